// Threads for work that may wait for a disk. They are made when they are needed, and go when they
// have had nothing to do for a while. Origins and sessions take turns (fair_queue.hpp).
#pragma once

#include <chrono>
#include <memory>

#include "base/fair_queue.hpp"
#include "base/mutex.hpp"
#include "threads/quiet_thread.hpp"
#include "threads/task_thread.hpp"

namespace ucxstore::threads {

// Called from any thread.
class WorkerPool {
  public:
    // Enough to copy as fast as memory is, mostly, and for a disk to have something to choose from.
    static constexpr int kMostThreads = 4;
    // Beyond these, one for an origin and one for a session that has none: so nobody waits until
    // others have ended what takes long.
    static constexpr int kSpareThreads = 2;

    // `name`, `priority`: of the threads.
    explicit WorkerPool(int most_threads = kMostThreads, int spare_threads = kSpareThreads,
                        const char* name = "ucxstore-files", Priority priority = Priority::usual);
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;
    // Does not wait for the threads; they run what was posted.
    ~WorkerPool();

    // Runs the task on one of the threads; here, where none can be made.
    void post(Task task, const base::Whose& whose = {});
    // The same, before all that waits of the same session.
    void post_first(Task task, const base::Whose& whose = {});
    // As post(), but false, and the task is dropped, where no thread can be made.
    [[nodiscard]] bool try_post(Task task, const base::Whose& whose = {});
    // Waits until all that was posted has run; false where `patience` is not enough for that.
    bool settle(std::chrono::milliseconds patience);

  private:
    struct State;
    bool ready_for_one_more();
    // The last one again, where there is no thread for it: the caller runs it. Else none.
    Task take_back_if_alone(const base::Whose& whose);
    static void run(const std::shared_ptr<State>& state);

    const std::shared_ptr<State> state_;  // threads hold it, too
};

}  // namespace ucxstore::threads
