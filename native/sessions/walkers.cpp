#include "sessions/walkers.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace ucxstore::sessions {
namespace {

// For so long one walk has a thread, and then another one.
constexpr std::chrono::milliseconds kStep{20};
constexpr std::chrono::milliseconds kStepInMemory{2};

// How often a walk says that it goes on.
constexpr std::chrono::milliseconds kReportEvery{100};

// So many walks at a time keep the names that they have listed, some MiB each. Others list them
// again after each step.
constexpr int kMostKeeping = 16;

int half_of_processors() {
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1,
                      threads::WorkerPool::kMostThreads);
}

}  // namespace

Errand::Errand(std::shared_ptr<storage::Storage> storage, cache::StorageCall call, Moves moves,
               Done done, CatchUp catch_up, base::MandateRef mandate)
    : moves_(std::move(moves)),
      done_(std::move(done)),
      whose_(base::whose_of(mandate)),
      walk_(
          std::move(storage), std::move(call), brake_,
          [this, mandate] {
              brake_->check();
              base::check(mandate);
              report();
          },
          std::move(catch_up), mandate) {}

void Errand::report() {
    const base::TimePoint now = base::Clock::now();
    if (now - reported_ >= kReportEvery) {
        reported_ = now;
        moves_(walk_.keys());
    }
}

bool Errand::step(base::Clock::duration duration) noexcept try {
    Answer answer;
    try {
        auto result = walk_.step(base::Clock::now() + duration);
        if (!result) {
            report();
            return true;
        }
        answer = answer_of(*result);
        walk_.rest();  // here, and not on the thread that gets the answer
    } catch (const Stopped&) {
        return false;
    } catch (const std::exception& error) {
        answer = {status_of(error), error.what()};
    }
    done_(std::move(answer));
    return false;
} catch (const std::exception&) {  // for want of memory: whoever waits times out
    return false;
}

Walkers::Walkers(bool wait)
    : step_(wait ? kStep : kStepInMemory),
      pool_(wait ? threads::WorkerPool::kMostThreads : half_of_processors(),
            wait ? threads::WorkerPool::kSpareThreads : 1, "ucxstore-walks",
            threads::Priority::low) {}

bool Walkers::start(const std::shared_ptr<Errand>& errand) {
    return pool_.try_post([self = shared_from_this(), errand] { self->step(errand); },
                          errand->whose_);
}

void Walkers::step(const std::shared_ptr<Errand>& errand) noexcept try {
    const bool more = errand->step(step_);
    if (!more && errand->keeps_names_) {
        --keeping_;
    } else if (more && !errand->keeps_names_) {
        errand->keeps_names_ = ++keeping_ <= kMostKeeping;
        if (!errand->keeps_names_) {
            --keeping_;
            errand->walk_.rest();
        }
    }
    if (more) {
        pool_.post([self = shared_from_this(), errand] { self->step(errand); }, errand->whose_);
    }
} catch (const std::exception&) {  // for want of memory, as above
}

}  // namespace ucxstore::sessions
