// Calls to the source behind a cache, and their results. Any thread makes calls; one thread, which
// is Python's, carries them out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/event_fd.hpp"
#include "base/fair_queue.hpp"
#include "base/mutex.hpp"
#include "storage/storage.hpp"

namespace ucxstore::cache {

// The calls. The last five are also made to a storage that is not cached.
struct GetCall {
    std::string key;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;      // 0: all of it; may be larger than the value
    std::string if_match = {};  // the entity tag that it must have; "" for any
};
// The size and the entity tag of an object, without its bytes.
struct HeadCall {
    std::string key;
};
struct PutCall {
    std::string key;
    std::shared_ptr<memory::Region> value;
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
using StorageCall = std::variant<StatCall, RemoveCall, RemovePrefixCall, MeasureCall, ListCall>;
using Call = std::variant<GetCall, HeadCall, PutCall, StatCall, RemoveCall, RemovePrefixCall,
                          MeasureCall, ListCall>;

// The results.
struct Failure {
    std::string text;
    bool unknown = false;  // whether the source may have made the change, or may still make it
};
struct Missing {};
struct SourceObject {
    // Or the bytes that the call wants; nullptr for a HeadCall.
    std::shared_ptr<memory::Region> value;
    std::string etag = {};   // "" where the source has none
    std::uint64_t size = 0;  // of the whole object, for a HeadCall and a GetCall of a range
};
struct Changed {};  // the object has another entity tag
struct Stored {
    bool written = true;  // false: the key was there
    std::string etag;
    bool may_be_kept = true;  // nobody else has changed the key meanwhile
};
struct Removed {
    std::uint64_t keys = 0;
};
struct Measure {
    std::uint64_t keys = 0;
    std::uint64_t bytes = 0;
    // As in a Page; where they are more than a page holds, some of them.
    std::vector<std::string> unreadable = {};
};
using Sizes = std::vector<std::uint64_t>;  // protocol::kAnySize for a missing key
using CallResult = std::variant<Failure, Missing, Changed, SourceObject, Stored, Removed, Sizes,
                                Measure, storage::Page>;

// Why a result is not the one wanted; "" for a missing key.
const std::string& failure_of(const CallResult& result);
// Whether it is that of a change which the source may have made, or not.
bool is_unknown(const CallResult& result);

class Calls {
  public:
    // True if whoever carried the call out may keep the result: the key was not changed meanwhile.
    using Then = std::function<bool(CallResult)>;
    using Ticket = std::uint64_t;
    // Tells whoever waits for a long call that it moves; false if nobody waits any more.
    using Moves = std::function<bool()>;

    // Queues the call. `then` runs once, on the thread that calls answer() or close(). `moves` runs
    // on the thread that calls moved().
    void push(Call call, Then then, Moves moves = {}, base::Whose whose = {});

    // Readable whenever there is something to take, or somebody called wake().
    int fd() const { return wake_.get(); }
    void wake() { wake_.set(); }
    std::vector<std::pair<Ticket, Call>> take();
    // For the turns of calls to the source.
    base::Whose whose(Ticket ticket) const;
    // Passes the result to `then`, and returns what that does; nullopt where the call has ended.
    std::optional<bool> answer(Ticket ticket, CallResult result);
    // The call moves, or is to be carried out now. False if its result is not wanted any more, or
    // its session may not have it any more: whoever carries it out may stop, and answers with a
    // failure.
    bool moved(Ticket ticket);
    // How many calls have had a result: while this grows, the source moves.
    std::uint64_t answered() const { return answered_; }
    // Fails every call that has no result yet, and every later one, with this text.
    void close(const std::string& why);

  private:
    struct Waiting {
        Then then;
        Moves moves;
        base::Whose whose;
    };

    const base::EventFd wake_;
    std::atomic<std::uint64_t> answered_ = 0;
    mutable base::Mutex mutex_;
    std::vector<std::pair<Ticket, Call>> queue_ GUARDED_BY(mutex_);
    std::unordered_map<Ticket, Waiting> waiting_ GUARDED_BY(mutex_);
    Ticket last_ GUARDED_BY(mutex_) = 0;
    std::string closed_ GUARDED_BY(mutex_);  // why; "" where it is not
};

}  // namespace ucxstore::cache
