// What a server asks of a storage that takes its time, and what it is told: asked by any thread,
// carried out by one that waits for it, which is Python's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/handle.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

// What is asked. The last five are what clients ask of any storage, too.
struct GetCall {
    std::string key;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;      // 0: all of it; else it may be behind the end
    std::string if_match = {};  // the entity tag that it must have; "" for any
};
// For what is known of an object without its bytes.
struct HeadCall {
    std::string key;
};
struct PutCall {
    std::string key;
    std::shared_ptr<Region> value;
    bool if_absent = false;
};
struct StatCall {
    std::vector<std::string> keys;
};
struct RemoveCall {
    std::vector<std::string> keys;
};
struct RemovePrefixCall {
    std::string prefix;
};
struct MeasureCall {
    std::string prefix;
    bool any = false;
};
struct ListCall {
    std::string prefix;
    bool delimited = false;
    std::string cursor;
    std::size_t max_bytes = 0;
};
using Ask = std::variant<StatCall, RemoveCall, RemovePrefixCall, MeasureCall, ListCall>;
using Call = std::variant<GetCall, HeadCall, PutCall, StatCall, RemoveCall, RemovePrefixCall,
                          MeasureCall, ListCall>;

// What is told.
struct Failure {
    std::string text;
};
struct Missing {};
struct Object {
    std::shared_ptr<Region> value;  // or the part that was asked for; nullptr for a HeadCall
    std::string etag = {};          // "" where the far side has none
    std::uint64_t size = 0;         // of all of it, for a HeadCall and a part
};
struct Changed {};  // it is not the one that was asked for
struct Stored {
    bool written = true;  // false: the key was there
    std::string etag;
};
struct Removed {
    std::uint64_t keys = 0;
};
using Sizes = std::vector<std::uint64_t>;  // wire::kAnySize for a missing key
using Told = std::variant<Failure, Missing, Changed, Object, Stored, Removed, Sizes, Measure, Page>;

// Why what was told is no value; "" where it is that there is none.
const std::string& failure_of(const Told& told);

class Calls {
  public:
    // True if what was told may be kept by whoever tells it: its key was not changed meanwhile.
    using Then = std::function<bool(Told)>;
    using Ticket = std::uint64_t;

    Calls();

    // Queues the call; `then` runs once, on whichever thread answers it, or closes this.
    void push(Call call, Then then);

    // Readable whenever there is something to take, or somebody called wake().
    int fd() const { return wake_.get(); }
    void wake();
    std::vector<std::pair<Ticket, Call>> take();
    // What `then` says; nullopt where nobody waits for that any more.
    std::optional<bool> answer(Ticket ticket, Told told);
    // Whatever is not answered, or asked from now on, has failed with this text.
    void close(const std::string& why);

  private:
    Fd wake_;
    std::mutex mutex_;
    std::vector<std::pair<Ticket, Call>> queue_;
    std::unordered_map<Ticket, Then> waiting_;
    Ticket last_ = 0;
    std::string closed_;  // why; "" where it is not
};

}  // namespace ucxstore
