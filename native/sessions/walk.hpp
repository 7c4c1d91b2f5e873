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

namespace ucxstore::sessions {

// What stop() makes of the work: no failure, as nobody waits for it any more.
class Stopped : public std::exception {};

// Stops the work of another thread. What that does at once, under hold(), has ended when stop()
// returns, and nothing of it begins later: so what comes after stop() is not undone.
class Brake {
  public:
    void stop() {
        const base::Lock lock(mutex_);
        stopped_ = true;
    }
    // Both throw Stopped.
    [[nodiscard]] std::unique_lock<base::Mutex> hold() UNCHECKED_LOCKS {  // the caller gets it
        std::unique_lock lock(mutex_);
        if (stopped_) {
            throw Stopped();
        }
        return lock;
    }
    void check() { static_cast<void>(hold()); }

  private:
    base::Mutex mutex_;
    bool stopped_ GUARDED_BY(mutex_) = false;
};

// Has the session's thread take in what its client has sent, and waits for that: the client may
// have given something up. Any other thread.
using CatchUp = std::function<void()>;

// On one thread at a time.
class Walk {
  public:
    // `pace` as for Storage::list(). `mandate` is checked at each step, and before each change.
    Walk(std::shared_ptr<storage::Storage> storage, cache::StorageCall call,
         std::shared_ptr<Brake> brake, storage::Pace pace = {}, CatchUp catch_up = {},
         base::MandateRef mandate = nullptr);

    // Goes on until the end, and returns the result, or until `until` has passed. Throws what the
    // storage throws, Stopped, and Error(denied).
    std::optional<cache::CallResult> step(base::TimePoint until);
    // The keys that it is through with.
    std::uint64_t keys() const { return keys_; }
    // Forgets the names that it has listed and not yet used; it will list them again.
    void rest();

  private:
    std::optional<cache::CallResult> go_on(const cache::StatCall& call, base::TimePoint until);
    std::optional<cache::CallResult> go_on(const cache::RemoveCall& call, base::TimePoint until);
    std::optional<cache::CallResult> go_on(const cache::RemovePrefixCall& call,
                                           base::TimePoint until);
    std::optional<cache::CallResult> go_on(const cache::MeasureCall& call, base::TimePoint until);
    std::optional<cache::CallResult> go_on(const cache::ListCall& call, base::TimePoint until);
    // The next key that begins with the prefix; nullptr after the last. `max_bytes` of names are
    // listed at a time.
    const std::string* next_key(const std::string& prefix, std::size_t max_bytes);
    void remove(const std::string& key);
    void note_unreadable();

    const std::shared_ptr<storage::Storage> storage_;
    const cache::StorageCall call_;
    const std::shared_ptr<Brake> brake_;
    const storage::Pace pace_;
    const CatchUp catch_up_;
    const base::MandateRef mandate_;
    std::uint64_t keys_ = 0;
    std::vector<std::string> removed_;  // in this step, where the storage is to be told of them
    cache::Sizes sizes_;
    cache::Measure sum_;
    storage::Page page_;
    std::size_t next_ = 0;              // of its names
    std::set<std::string> unreadable_;  // the folders of all pages
    std::size_t unreadable_bytes_ = 0;
    bool begun_ = false;
};

// Carries all of it out here. A failure becomes the answer.
Answer answer_at_once(std::shared_ptr<storage::Storage> storage, cache::StorageCall call);

}  // namespace ucxstore::sessions
