// Values that were decoded once, for all of their readers: a cache of them, whatever storage has
// them as they are stored.
//
// A decoded value belongs to one version of the stored one, and to a recipe, which its reader
// brings. So nothing here must be told of changes: whoever asks knows the version of now. If a
// value cannot be decoded here, its reader decodes it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.hpp"
#include "base/mutex.hpp"
#include "cache/cache.hpp"
#include "cache/decoder.hpp"
#include "cache/flights.hpp"
#include "cache/later.hpp"
#include "memory/region.hpp"
#include "shared/shelf.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::cache {

// Any thread.
class DecodedValues : public std::enable_shared_from_this<DecodedValues> {
  public:
    using Value = std::shared_ptr<const memory::Region>;

    // The most recipes that are kept; the oldest one goes first.
    static constexpr std::size_t kMostRecipes = 1024;

    struct Wanted {
        std::string name;                           // in protocol::kDecodedFolder
        std::shared_ptr<const std::string> recipe;  // its text
    };

    // They take so many bytes, and are decoded by so many threads. `visible`: they lie on a shelf.
    DecodedValues(std::shared_ptr<Decoder> decoder, std::uint64_t bytes, int threads, bool visible);
    DecodedValues(const DecodedValues&) = delete;
    DecodedValues& operator=(const DecodedValues&) = delete;

    // What was decoded of this version; nullptr where that is not here.
    Value find(const std::string& name, std::uint64_t version);
    // Decodes the bytes of a stored value that the name says; once for all who ask meanwhile, at
    // the turn of the first. The result has the version of the stored value. A failure says why
    // that cannot be done here, and is not kept.
    void decode(const Wanted& wanted, Value stored, Later<Value> then,
                const base::Whose& whose = {});

    // Where other processes see them; nullptr for nowhere. They believe nothing there that they
    // were not just told of.
    const std::shared_ptr<shared::Shelf>& shelf() const { return shelf_; }
    base::DecodedCounts counts();
    // How many have ended: while this grows, it moves.
    std::uint64_t ended() const { return decoded_ + failed_; }
    // Forgets all, and lets go of the decoder. Waits until nothing is being decoded any more; false
    // where `patience` is not enough for that.
    bool close(std::chrono::milliseconds patience);

  private:
    struct Flight {
        std::uint64_t version = 0;
        std::vector<Later<Value>> waiting;
        bool stale = false;
    };
    using FlightPointer = std::shared_ptr<Flight>;
    struct Prepared {
        std::shared_ptr<const Recipe> recipe;
        std::string failure;
    };

    Value found(const std::string& name, std::uint64_t version) REQUIRES(mutex_);
    std::shared_ptr<const Recipe> prepare(const std::string& text);
    Value make(const Wanted& wanted, const Value& stored);
    std::shared_ptr<memory::Region> allocate(const std::string& name, std::uint64_t bytes);
    void end(const std::string& name, const FlightPointer& flight, Outcome<Value> outcome);

    const std::uint64_t limit_;
    const std::shared_ptr<shared::Shelf> shelf_;
    std::atomic<std::uint64_t> hits_ = 0;
    std::atomic<std::uint64_t> joined_ = 0;
    std::atomic<std::uint64_t> decoded_ = 0;
    std::atomic<std::uint64_t> failed_ = 0;
    base::Mutex mutex_;
    std::shared_ptr<Decoder> decoder_ GUARDED_BY(mutex_);  // nullptr once it is closed
    Cache cache_ GUARDED_BY(mutex_);
    Flights<Flight> flights_ GUARDED_BY(mutex_);
    std::map<std::string, Prepared> recipes_ GUARDED_BY(mutex_);  // by text
    std::deque<std::string> recipe_order_ GUARDED_BY(mutex_);
    threads::WorkerPool pool_;
};

}  // namespace ucxstore::cache
