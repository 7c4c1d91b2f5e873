// Walk: a call to a storage that may concern many keys, carried out in steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/mandate.hpp"
#include "base/mutex.hpp"
#include "cache/calls.hpp"
#include "sessions/answer.hpp"
#include "storage/storage.hpp"

namespace ucxstore {

// What stop() makes of the work: no failure, as nobody waits for it any more.
class Stopped : public std::exception {};

// Stops the work of another thread. What that does at once, under hold(), has ended when stop()
// returns, and nothing of it begins later: so what comes after stop() is not undone.
class Brake {
  public:
    void stop() {
        const Lock lock(mutex_);
        stopped_ = true;
    }
    // Both throw Stopped.
    [[nodiscard]] std::unique_lock<Mutex> hold() UNCHECKED_LOCKS {  // the caller gets it
        std::unique_lock lock(mutex_);
        if (stopped_) {
            throw Stopped();
        }
        return lock;
    }
    void check() { static_cast<void>(hold()); }

  private:
    Mutex mutex_;
    bool stopped_ GUARDED_BY(mutex_) = false;
};

// Has the session's thread take in what its client has sent, and waits for that: the client may
// have given something up. Any other thread.
using CatchUp = std::function<void()>;

// On one thread at a time.
class Walk {
  public:
    // `pace` as for Storage::list(). `mandate` is checked at each step, and before each change.
    Walk(std::shared_ptr<Storage> storage, StorageCall call, std::shared_ptr<Brake> brake,
         Pace pace = {}, CatchUp catch_up = {}, MandateRef mandate = nullptr);

    // Goes on until the end, and returns the result, or until `until` has passed. Throws what the
    // storage throws, Stopped, and Error(denied).
    std::optional<CallResult> step(TimePoint until);
    // The keys that it is through with.
    std::uint64_t keys() const { return keys_; }
    // Forgets the names that it has listed and not yet used; it will list them again.
    void rest();

  private:
    std::optional<CallResult> go_on(const StatCall& call, TimePoint until);
    std::optional<CallResult> go_on(const RemoveCall& call, TimePoint until);
    std::optional<CallResult> go_on(const RemovePrefixCall& call, TimePoint until);
    std::optional<CallResult> go_on(const MeasureCall& call, TimePoint until);
    std::optional<CallResult> go_on(const ListCall& call, TimePoint until);
    // The next key that begins with the prefix; nullptr after the last. `max_bytes` of names are
    // listed at a time.
    const std::string* next_key(const std::string& prefix, std::size_t max_bytes);
    void remove(const std::string& key);
    void note_unreadable();

    const std::shared_ptr<Storage> storage_;
    const StorageCall call_;
    const std::shared_ptr<Brake> brake_;
    const Pace pace_;
    const CatchUp catch_up_;
    const MandateRef mandate_;
    std::uint64_t keys_ = 0;
    std::vector<std::string> removed_;  // in this step, where the storage is to be told of them
    Sizes sizes_;
    Measure sum_;
    Page page_;
    std::size_t next_ = 0;              // of its names
    std::set<std::string> unreadable_;  // the folders of all pages
    std::size_t unreadable_bytes_ = 0;
    bool begun_ = false;
};

// Carries all of it out here. A failure becomes the answer.
Answer answer_at_once(std::shared_ptr<Storage> storage, StorageCall call);

}  // namespace ucxstore
