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

#include "local/frames.hpp"
#include "local_client/file_reads.hpp"
#include "local_client/upload.hpp"
#include "local_client/visible_storage.hpp"
#include "protocol/keys.hpp"
#include "shared/sealed.hpp"
#include "stream_client/stream_link.hpp"
#include "threads/event_thread.hpp"

namespace ucxstore::local_client {

class LocalLink : public stream_client::StreamLink {
  public:
    // As StreamLink. `pool` reads files.
    LocalLink(std::shared_ptr<threads::EventThread> thread,
              std::shared_ptr<threads::WorkerPool> pool, base::Fd socket,
              const protocol::Token& token, std::string peer,
              std::function<void(base::TimePoint)> due);

    // Copies what can be seen before it returns.
    void submit(const std::shared_ptr<client::Operation>& operation) override;
    std::optional<std::uint64_t> see(std::string_view key, const MakeRoom& make_room) override {
        // An operation tells the server of values that are read once.
        return protocol::is_read_once(key) ? std::nullopt : visible_.copy(key, make_room);
    }
    std::shared_ptr<memory::Region> hold(std::string_view key) override {
        return visible_.hold(key);
    }
    std::shared_ptr<memory::Region> map_file(std::string_view key,
                                             files::DirectoryRoot::Wait wait) override {
        return visible_.map_file(key, wait);
    }
    bool takes_files(std::uint64_t bytes) const override;

    // What follows is for the thread.

    base::TimePoint tick(base::TimePoint now) override;
    void abandon() override;

  private:
    std::shared_ptr<LocalLink> self() {
        return std::static_pointer_cast<LocalLink>(shared_from_this());
    }
    const char* lane() const override { return "local"; }
    void clear() override;
    const char* why_gone() const override;
    // Lets the server look at what this process holds, whenever it is called.
    std::function<void()> tell_held();
    bool send_file(const Pointer& operation) override;
    void stop(const client::Operation& operation) override;
    // Asks the server for the bytes of items of a get, which cannot be seen.
    void ask_for_bytes(const client::Operation& operation, std::span<const std::uint32_t> items);
    bool send_segment(const Pointer& operation, client::Item& item, std::uint32_t index) override;
    void take_other(stream::InMessage message) override;
    bool take_reply(const Pointer& operation, const protocol::ReplyHeader& header) override;
    // The server says that the value is to be seen.
    void on_shown(const Pointer& operation, std::uint32_t item);
    // The server says that it does not take the file.
    void on_unmoved(const Pointer& operation, std::uint32_t item);
    base::TimePoint leak_stuck(base::TimePoint now, base::Clock::duration timeout);
    // Has other threads read items from files, and takes what they have read.
    void read_files(const std::shared_ptr<const VisibleFiles>& files, const Pointer& operation,
                    const std::vector<std::uint32_t>& items);
    void on_read(const std::shared_ptr<FileReads>& reads);

    const std::shared_ptr<threads::WorkerPool> pool_;
    VisibleStorage visible_;
    // Until the server says what it takes, it is worth a try.
    std::atomic<std::uint64_t> least_in_file_ = shared::kLeastInFile;
    mutable std::atomic<int> can_leave_memory_ = -1;  // not looked at yet

    // On the thread:
    std::unordered_map<std::uint64_t, std::shared_ptr<FileReads>> reads_;  // by operation
    std::unique_ptr<Upload> upload_;
    std::unordered_map<std::uint64_t, Pointer> uploaded_;  // whose segments are there, by place
};

}  // namespace ucxstore::local_client
