// A link to a server of the same host: its values are seen in shared memory, and messages go over a
// Unix socket.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/conversation.hpp"
#include "client/link.hpp"
#include "local/local_socket.hpp"
#include "local_client/file_reads.hpp"
#include "local_client/upload.hpp"
#include "local_client/visible_storage.hpp"
#include "shared/sealed.hpp"
#include "threads/event_thread.hpp"

namespace ucxstore::local_client {

class LocalLink : public client::Link,
                  public std::enable_shared_from_this<LocalLink>,
                  private client::Conversation::Carrier,
                  private local::LocalSocket::Handler {
  public:
    // `due` is told of each deadline, on the thread: tick() is to be called by then. `pool` reads
    // files.
    LocalLink(std::shared_ptr<threads::EventThread> thread,
              std::shared_ptr<threads::WorkerPool> pool, base::Fd socket,
              const protocol::Token& token, std::string peer,
              std::function<void(base::TimePoint)> due);

    const std::string& peer() const override { return conversation_.peer(); }
    // Copies what can be seen before it returns.
    void submit(const std::shared_ptr<client::Operation>& operation) override;
    std::optional<std::uint64_t> see(std::string_view key, std::byte* out,
                                     std::uint64_t room) override {
        return visible_.copy(key, out, room);
    }
    std::shared_ptr<memory::Region> hold(std::string_view key) override {
        return visible_.hold(key);
    }
    std::shared_ptr<memory::Region> map_file(std::string_view key,
                                             files::DirectoryRoot::Wait wait) override {
        return visible_.map_file(key, wait);
    }
    bool takes_files(std::uint64_t bytes) const override;
    void cancel(const std::shared_ptr<client::Operation>& operation) override;
    void close() override;
    bool failed() const override { return closed_; }
    bool leaving() const override { return conversation_.leaving(); }
    std::vector<std::string> lanes() override { return {"local"}; }

    // What follows is for the thread.

    // Begins to read.
    void begin();
    // Looks at deadlines; returns when the next look is due.
    base::TimePoint tick(base::TimePoint now);
    // Fails what is under way; `lost` where this side did not want it.
    void end(base::ErrorKind kind, std::string_view message, bool lost);
    // Whether no operation waits any more for its memory to be given back.
    bool released() const { return conversation_.empty(); }
    // Completes those that do, as leaked.
    void abandon();

  private:
    using Pointer = std::shared_ptr<client::Operation>;

    // The item that the body goes to which is being read.
    struct Filling {
        Pointer operation;
        protocol::ReplyHeader header;
    };

    // Lets the server look at what this process holds, whenever it is called.
    std::function<void()> tell_held();
    // Sends what it asks, and has other threads read what they can.
    void start(const Pointer& operation, const VisibleStorage::Unanswered& unanswered);
    void move();
    void send(local::OutMessage message);
    void send_request(client::Outgoing outgoing) override;
    bool send_file(const Pointer& operation) override;
    void pump() override;
    void stop(const client::Operation& operation) override;
    void shut(const char* why) override { end(base::ErrorKind::server_lost, why, false); }
    // Asks the server for the bytes of items of a get, which cannot be seen.
    void ask_for_bytes(const client::Operation& operation, std::span<const std::uint32_t> items);
    bool send_segment(const Pointer& operation, client::Item& item, std::uint32_t index);
    std::optional<std::vector<ucp_dt_iov_t>> place(local::FrameKind kind, std::string_view header,
                                                   std::uint64_t body_bytes) override;
    void take(local::InMessage message) override;
    void on_reply(const local::InMessage& message);
    // The server says that the value is to be seen.
    void on_shown(const Pointer& operation, std::uint32_t item);
    // The server says that it does not take the file.
    void on_unmoved(const Pointer& operation, std::uint32_t item);
    base::TimePoint leak_stuck(base::TimePoint now, base::Clock::duration timeout);
    // Has other threads read items from files, and takes what they have read.
    void read_files(const std::shared_ptr<const VisibleFiles>& files, const Pointer& operation,
                    const std::vector<std::uint32_t>& items);
    void on_read(const std::shared_ptr<FileReads>& reads);

    const std::shared_ptr<threads::EventThread> thread_;
    const std::shared_ptr<threads::WorkerPool> pool_;
    const std::function<void(base::TimePoint)> due_;
    std::atomic<bool> closed_ = false;
    VisibleStorage visible_;
    // Until the server says what it takes, it is worth a try.
    std::atomic<std::uint64_t> least_in_file_ = shared::kLeastInFile;
    mutable std::atomic<int> can_leave_memory_ = -1;  // not looked at yet

    // On the thread:
    local::LocalSocket socket_;
    client::Conversation conversation_;
    std::unordered_map<std::uint64_t, std::shared_ptr<FileReads>> reads_;  // by operation
    std::unique_ptr<Upload> upload_;
    std::unordered_map<std::uint64_t, Pointer> uploaded_;  // whose segments are there, by place
    std::optional<Filling> filling_;
    bool waits_ = false;  // for the socket to take more
};

}  // namespace ucxstore::local_client
