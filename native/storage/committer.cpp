#include "storage/committer.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "storage/durable_directories.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::storage {
namespace {

// What is flushed together, at the most, and so acknowledged together: small enough that a client
// sees progress on a slow disk.
constexpr std::uint64_t kMostBytes = 64ull << 20;

// Changes that wait, at the most. Each has two descriptors.
constexpr std::size_t kMostWaiting = 256;

// What a change is taken to cost those who wait, beside a nanosecond a byte.
constexpr std::chrono::milliseconds kFlush{1};

// So short a text takes none.
constexpr const char* kNoMemory = "no memory";

struct Job {
    Committer::Change* change;
    Committer::Done done;
    std::string failure = {};
};

void note(std::string& failure, const char* why) noexcept {
    try {
        failure = why;
    } catch (const std::bad_alloc&) {
        failure = kNoMemory;
    }
}

// Runs one step of a job, unless it has failed.
template <typename Step>
void attempt(Job& job, Step step) noexcept {
    if (!job.failure.empty()) {
        return;
    }
    try {
        step();
    } catch (const std::exception& error) {
        note(job.failure, error.what());
    }
}

}  // namespace

struct Committer::State {
    State(const files::DirectoryRoot& root, Durability how, bool elsewhere)
        : durability(how), never_here(elsewhere), directories(root) {}

    const Durability durability;
    const bool never_here;
    DurableDirectories directories;
    threads::WorkerPool pool;
    base::Mutex mutex;
    base::FairQueue<Job> waiting GUARDED_BY(mutex);

    std::optional<Job> next() noexcept {
        const base::Lock lock(mutex);
        return next_under_lock();
    }

    std::optional<Job> next_under_lock() noexcept REQUIRES(mutex) {
        auto taken = waiting.take();
        if (!taken) {
            return std::nullopt;
        }
        const auto bytes = std::chrono::nanoseconds(taken->item.change->bytes());
        waiting.end(taken->whose, kFlush + bytes);
        return std::move(taken->item);
    }

    // Throws std::bad_alloc only while none is taken.
    std::vector<Job> take() {
        std::vector<Job> taken;
        taken.reserve(1);
        std::uint64_t bytes = 0;
        const base::Lock lock(mutex);
        while (taken.empty() || (bytes < kMostBytes && has_room(taken))) {
            std::optional<Job> job = next_under_lock();
            if (!job) {
                break;
            }
            bytes += job->change->bytes();
            taken.push_back(std::move(*job));
        }
        return taken;
    }

    static bool has_room(std::vector<Job>& jobs) noexcept {
        try {
            if (jobs.size() == jobs.capacity()) {
                jobs.reserve(2 * jobs.size());
            }
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    // Makes the next changes, or fails one for want of memory: as there is a task for each that
    // waits, none is left.
    void run_next() noexcept {
        std::vector<Job> jobs;
        try {
            jobs = take();
        } catch (const std::bad_alloc&) {
            if (auto job = next()) {
                fail(*job, kNoMemory);
            }
        }
        run(jobs);
    }

    // Fails all jobs that wait.
    void fail_all(const char* why) noexcept {
        while (auto job = next()) {
            fail(*job, why);
        }
    }

    static void fail(Job& job, const char* why) noexcept {
        note(job.failure, why);
        finish(job);
    }

    // Each job ends with what its own change has come to: nothing in between may throw.
    void run(std::vector<Job>& jobs) noexcept {
        for (Job& job : jobs) {
            job.change->start();
        }
        for (Job& job : jobs) {
            attempt(job, [&] { job.change->flush(); });
            base::step();
        }
        std::set<std::string> changed;
        for (Job& job : jobs) {
            attempt(job, [&] {
                if (durability == Durability::fsync) {
                    changed.insert(job.change->directory());
                }
                job.change->name();
            });
            base::step();
            if (durability != Durability::fsync) {
                finish(job);
            }
        }
        if (durability != Durability::fsync || jobs.empty()) {
            return;
        }
        std::string failure;
        try {
            directories.sync(std::move(changed));
        } catch (const std::exception& error) {
            note(failure, error.what());
        }
        base::step();
        for (Job& job : jobs) {
            if (job.failure.empty()) {
                note(job.failure, failure.c_str());
            }
            finish(job);
        }
    }

    static void finish(Job& job) noexcept {
        const Done done = std::exchange(job.done, nullptr);
        try {
            done(std::move(job.failure));
        } catch (const std::exception&) {  // for want of memory: its client's time-out tells
        }
    }
};

Committer::Committer(const files::DirectoryRoot& root, Durability durability, bool never_here)
    : state_(std::make_shared<State>(root, durability, never_here)) {}

Committer::~Committer() = default;

Durability Committer::durability() const { return state_->durability; }

void Committer::add(Change& change, Done done, const base::Whose& whose) {
    bool many = false;
    {
        const base::Lock lock(state_->mutex);
        state_->waiting.push(whose, {&change, std::move(done)});
        many = state_->waiting.size() > kMostWaiting;
    }
    const auto run = [state = state_] { state->run_next(); };
    if (many && !state_->never_here) {
        run();
        return;
    }
    try {
        if (!state_->never_here) {
            state_->pool.post(run, whose);
        } else if (!state_->pool.try_post(run, whose)) {
            state_->fail_all("the server has no thread for it");
        }
    } catch (const std::exception&) {  // no memory for a task
        if (!state_->never_here) {
            run();
        } else if (auto job = state_->next()) {
            State::fail(*job, kNoMemory);
        }
    }
}

void Committer::make(Change& change) {
    std::vector<Job> jobs;
    std::string failure;
    jobs.push_back({&change, [&](std::string why) { failure = std::move(why); }});
    state_->run(jobs);
    if (!failure.empty()) {
        throw base::Error(base::ErrorKind::storage, failure);
    }
}

void Committer::removed_from(std::set<std::string> directories) {
    if (state_->durability == Durability::fsync && !directories.empty()) {
        state_->directories.sync(std::move(directories));
    }
}

}  // namespace ucxstore::storage
