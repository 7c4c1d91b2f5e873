// What operators ask of a server: answered by whoever has made it, on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "cache/later.hpp"
#include "threads/worker_pool.hpp"

namespace ucxstore::sessions {

// Any thread.
class Operators : public std::enable_shared_from_this<Operators> {
  public:
    // The longest request, far more than any of ours has.
    static constexpr std::size_t kMostBytes = 4096;

    struct Request {
        std::string text;       // JSON: see docs/wire.md
        std::uint64_t session;  // who asks: its number,
        std::string peer;       // and its name
    };
    // Returns the reply. It may wait.
    using Handler = std::function<std::string(const Request&)>;

    Operators() = default;
    Operators(const Operators&) = delete;
    Operators& operator=(const Operators&) = delete;

    void set_handler(Handler handler);
    // Has one answered, after those that came before.
    void ask(Request request, cache::Later<std::string> done);
    // Lets go of the handler. Waits until it is not running any more; false where `patience` is not
    // enough for that.
    bool close(std::chrono::milliseconds patience);

  private:
    std::shared_ptr<const Handler> handler();

    base::Mutex mutex_;
    std::shared_ptr<const Handler> handler_ GUARDED_BY(mutex_);
    threads::WorkerPool pool_{1, 0, "ucxstore-ops"};
};

}  // namespace ucxstore::sessions
