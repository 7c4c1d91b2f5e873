// The items of an operation whose values are read from files by other threads: since that takes
// long, or may have to wait for the disk.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "local_client/visible_files.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::local_client {

// On the link's thread, but for what the pool's threads do. Those touch these items of the
// operation, and nothing else of it, until `on_end` is called.
class FileReads : public std::enable_shared_from_this<FileReads> {
  public:
    FileReads(std::shared_ptr<const VisibleFiles> files,
              std::shared_ptr<client::Operation> operation,
              const std::vector<std::uint32_t>& items);

    // Begins; `on_end` is called on one of the pool's threads. To be called once.
    void start(const std::shared_ptr<threads::WorkerPool>& pool, std::function<void()> on_end);
    // Lets it end soon, as nobody wants it any more.
    void stop() { stopped_ = true; }
    // Whether anything was read since it was last asked.
    bool moved();

    const std::shared_ptr<client::Operation>& operation() const { return operation_; }
    // Once it has ended: notes in their items what was found. Returns those of which the server
    // must be asked, and the others. Throws what has failed, and then the operation has.
    struct Noted {
        std::vector<std::uint32_t> done;
        std::vector<std::uint32_t> unknown;
    };
    Noted note(const std::string& peer);

  private:
    struct Part {
        std::uint32_t item = 0;
        VisibleFiles::Finding finding;
        std::optional<base::Error> error;
        std::atomic<bool> failed = false;
        std::atomic<std::uint64_t> left = 0;  // segments; with the last one the file is closed
    };

    // These on the pool's threads.
    void find(Part& part);
    void read(Part& part, std::uint64_t begin);
    void end_task();

    const std::shared_ptr<const VisibleFiles> files_;
    const std::shared_ptr<client::Operation> operation_;
    std::vector<Part> parts_;
    std::shared_ptr<threads::WorkerPool> pool_;
    std::function<void()> on_end_;
    std::atomic<std::size_t> left_ = 0;  // tasks
    std::atomic<bool> stopped_ = false;
    std::atomic<std::uint64_t> moves_ = 0;
    std::uint64_t moves_seen_ = 0;
};

}  // namespace ucxstore::local_client
