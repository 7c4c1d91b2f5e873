// Server: its threads, and the sessions on them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "local_server/local_thread.hpp"
#include "sessions/places.hpp"
#include "sessions/yielding.hpp"
#include "ucx_server/ucx_thread.hpp"

namespace ucxstore::server {

class Server {
  public:
    // How it uses UCX.
    struct Ucx {
        ucx::Options options;
        bool polling = false;
        // Whether a thread for it is made once a client needs that: then what is wrong with the
        // options, or with UCX, is that client's error, and not the constructor's.
        bool when_needed = false;
        // Whether it lets clients that ask for it use UCX's shared memory.
        ucx::SharedMemory memory = ucx::SharedMemory::off;
    };
    // `most_sessions`: see Places.
    Server(sessions::Storages storages, int threads, Ucx ucx, bool read_only,
           std::uint64_t most_sessions = sessions::Places::kNoLimit);
    ~Server();

    // Any thread, but not one that holds the GIL: UCX may have to be loaded. Throws Error(connect)
    // once the server is closed, and what the constructor of a UcxThread throws.
    std::shared_ptr<ucx_server::UcxThread> thread(int index);
    const std::shared_ptr<local_server::LocalThread>& local_thread(int index) const {
        return local_threads_.at(static_cast<std::size_t>(index));
    }
    const base::Counters& counters() const { return *service_.counters; }
    // For operators: the clients of sessions with larger numbers than `after`, as JSON. Ends the
    // session of this number, or those of this origin, but not session `but`; returns how many.
    std::string sessions_json(std::uint64_t after);
    std::size_t kick(std::optional<std::uint64_t> session, const std::string& origin,
                     std::uint64_t but);
    // Has operators answered by this, until close().
    void set_operators(sessions::Operators::Handler handler) {
        service_.operators->set_handler(std::move(handler));
    }
    // All counters, those of each client too, as JSON: what it answers to a request for them.
    std::string stats_json() const { return service_.stats(); }
    // As Counters::tell().
    void tell(std::string name, std::function<std::uint64_t()> read) {
        service_.counters->tell(std::move(name), std::move(read));
    }
    // Whether every thread runs what it is given, within this time.
    bool answers(std::chrono::milliseconds timeout);
    std::size_t sessions();
    // Makes room for a session of this origin, if need be by having others end; true if there is
    // some, and false if it is worth asking again in a moment. `waiting`: how many newcomers wait,
    // with this one. `is_short`: the process is short of what sessions need, whatever the limit
    // says; then only those of other origins end. Throws Error(resource) where there will be none.
    bool make_room(const std::string& origin, std::size_t waiting, bool is_short = false);
    // Has all clients that are connected connect anew, after what they have begun, as they must
    // learn something of the server. Ends the sessions that are left after `timeout`.
    void renew_sessions(std::chrono::milliseconds timeout);
    // Tells the clients that the server ends, and waits until they have gone with nothing under
    // way. Those that have heard, and hang up late, are not waited for long. False where something
    // still is under way when `timeout` has passed.
    bool drain(std::chrono::milliseconds timeout);
    void close(std::chrono::milliseconds timeout);
    // In a forked child: the parent's UCX objects must not be touched, not even to free them.
    void abandon();

  private:
    using Threads = std::vector<std::shared_ptr<ucx_server::UcxThread>>;

    // Those that are there.
    Threads threads() const;
    std::vector<sessions::YieldingThread*> yielding(const Threads& ucx) const;

    const int pid_;
    const sessions::Service service_;
    const Ucx ucx_;
    mutable base::Mutex mutex_;
    Threads threads_ GUARDED_BY(mutex_);  // nullptr where none has been needed
    bool closed_ GUARDED_BY(mutex_) = false;
    std::vector<std::shared_ptr<local_server::LocalThread>> local_threads_;
};

}  // namespace ucxstore::server
