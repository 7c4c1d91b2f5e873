// Walkers: the threads that carry walks out, in turns among origins and sessions, so that no
// progress thread does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "sessions/answer.hpp"
#include "sessions/walk.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::sessions {

// A walk, and who waits for it.
class Errand {
  public:
    // Both run on any thread. `moves` gets the number of keys that are done with, now and then
    // while it goes on; `done` gets the answer, once, unless it was stopped.
    using Moves = std::function<void(std::uint64_t)>;
    using Done = std::function<void(Answer)>;
    Errand(std::shared_ptr<storage::Storage> storage, cache::StorageCall call, Moves moves,
           Done done, CatchUp catch_up = {}, base::MandateRef mandate = nullptr);
    Errand(const Errand&) = delete;
    Errand& operator=(const Errand&) = delete;

    // Any thread. Nothing changes any more once it returns.
    void stop() { brake_->stop(); }

  private:
    friend class Walkers;

    // Goes on for about so long. True if there is more to do.
    bool step(base::Clock::duration duration) noexcept;
    void report();

    const std::shared_ptr<Brake> brake_ = std::make_shared<Brake>();
    const Moves moves_;
    const Done done_;
    const base::Whose whose_;
    Walk walk_;
    base::TimePoint reported_ = base::Clock::now();
    bool keeps_names_ = false;  // between its steps
};

// Called from any thread.
class Walkers : public std::enable_shared_from_this<Walkers> {
  public:
    // `wait`: whether most walks wait for a disk. Else they take processors, and leave half of
    // those to others.
    explicit Walkers(bool wait = true);

    // False where there is no thread for it.
    [[nodiscard]] bool start(const std::shared_ptr<Errand>& errand);
    // Waits until no errand is under way; false where `patience` is not enough for that.
    bool settle(std::chrono::milliseconds patience) { return pool_.settle(patience); }

  private:
    void step(const std::shared_ptr<Errand>& errand) noexcept;

    const base::Clock::duration step_;
    std::atomic<int> keeping_ = 0;  // errands that keep names
    threads::WorkerPool pool_;
};

}  // namespace ucxstore::sessions
