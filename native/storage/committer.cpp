#include "storage/committer.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "base/worker_pool.hpp"
#include "storage/durable_directories.hpp"

namespace ucxstore {
namespace {

// What is flushed together, at the most, and so acknowledged together: small enough that a client
// sees progress on a slow disk.
constexpr std::uint64_t kMostBytes = 64ull << 20;

// Changes that wait, at the most. Each has two descriptors.
constexpr std::size_t kMostWaiting = 256;

// What a change is taken to cost those who wait, beside a nanosecond a byte.
constexpr std::chrono::milliseconds kFlush{1};

struct Job {
    Committer::Change* change;
    Committer::Done done;
    std::string failure = {};
};

// Runs one step of a job, unless it has failed.
template <typename Step>
void attempt(Job& job, Step step) {
    if (!job.failure.empty()) {
        return;
    }
    try {
        step();
    } catch (const std::exception& error) {
        job.failure = error.what();
    }
}

}  // namespace

struct Committer::State {
    State(const DirectoryRoot& root, Durability how, bool elsewhere)
        : durability(how), never_here(elsewhere), directories(root) {}

    const Durability durability;
    const bool never_here;
    DurableDirectories directories;
    WorkerPool pool;
    Mutex mutex;
    FairQueue<Job> waiting;

    std::vector<Job> take() {
        std::vector<Job> taken;
        std::uint64_t bytes = 0;
        const std::lock_guard lock(mutex);
        while (taken.empty() || bytes < kMostBytes) {
            auto next = waiting.take();
            if (!next) {
                break;
            }
            const std::uint64_t size = next->item.change->bytes();
            waiting.end(next->whose, kFlush + std::chrono::nanoseconds(size));
            bytes += size;
            taken.push_back(std::move(next->item));
        }
        return taken;
    }

    // Fails all jobs that wait.
    void fail(const char* why) {
        for (std::vector<Job> jobs = take(); !jobs.empty(); jobs = take()) {
            for (Job& job : jobs) {
                job.failure = why;
                finish(job);
            }
        }
    }

    // What fails, mostly for want of memory, fails all jobs that have not ended.
    void run(std::vector<Job>& jobs) noexcept {
        try {
            carry_out(jobs);
        } catch (const std::exception&) {
            for (Job& job : jobs) {
                if (job.done) {
                    job.failure = "no memory";  // so short a text takes none
                    finish(job);
                }
            }
        }
    }

    void carry_out(std::vector<Job>& jobs) {
        if (jobs.empty()) {
            return;  // others have come with those before
        }
        for (Job& job : jobs) {
            job.change->start();
        }
        std::set<std::string> changed;
        for (Job& job : jobs) {
            attempt(job, [&] { job.change->flush(); });
            step();
        }
        for (Job& job : jobs) {
            attempt(job, [&] {
                job.change->name();
                changed.insert(job.change->directory());
            });
            step();
            if (durability != Durability::fsync) {
                finish(job);
            }
        }
        if (durability != Durability::fsync) {
            return;
        }
        std::string failure;
        try {
            directories.sync(std::move(changed));
        } catch (const std::exception& error) {
            failure = error.what();
        }
        step();
        for (Job& job : jobs) {
            if (job.failure.empty()) {
                job.failure = failure;
            }
            finish(job);
        }
    }

    static void finish(Job& job) {
        const Done done = std::exchange(job.done, nullptr);
        try {
            done(std::move(job.failure));
        } catch (const std::exception&) {  // for want of memory: its client's time-out tells
        }
    }
};

Committer::Committer(const DirectoryRoot& root, Durability durability, bool never_here)
    : state_(std::make_shared<State>(root, durability, never_here)) {}

Committer::~Committer() = default;

Durability Committer::durability() const { return state_->durability; }

void Committer::add(Change& change, Done done, const Whose& whose) {
    bool many = false;
    {
        const std::lock_guard lock(state_->mutex);
        state_->waiting.push(whose, {&change, std::move(done)});
        many = state_->waiting.size() > kMostWaiting;
    }
    const auto run = [state = state_] {
        std::vector<Job> jobs = state->take();
        state->run(jobs);
    };
    if (state_->never_here) {
        if (!state_->pool.try_post(run, whose)) {
            state_->fail("the server has no thread for it");
        }
    } else if (many) {
        run();
    } else {
        state_->pool.post(run, whose);
    }
}

void Committer::make(Change& change) {
    std::vector<Job> jobs;
    std::string failure;
    jobs.push_back({&change, [&](std::string why) { failure = std::move(why); }});
    state_->run(jobs);
    if (!failure.empty()) {
        throw Error(ErrorKind::storage, failure);
    }
}

void Committer::removed_from(std::set<std::string> directories) {
    if (state_->durability == Durability::fsync && !directories.empty()) {
        state_->directories.sync(std::move(directories));
    }
}

}  // namespace ucxstore
