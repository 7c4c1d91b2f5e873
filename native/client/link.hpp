// Link: a client's way to one server, whatever carries the messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/operation.hpp"
#include "files/directory_root.hpp"

namespace ucxstore::client {

// Any thread. An operation always completes, even if the link is closed.
class Link {
  public:
    Link() = default;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    virtual ~Link() = default;

    virtual const std::string& peer() const = 0;
    // Never waits for the server. Throws Error(argument), and then does nothing, where a request is
    // larger than a server takes.
    virtual void submit(const std::shared_ptr<Operation>& operation) = 0;
    // The same, but for gets; also from inside of another operation's end.
    virtual void submit_later(const std::shared_ptr<Operation>& operation) { submit(operation); }
    // Returns memory for a value of this size; nullptr for none.
    using MakeRoom = std::function<std::byte*(std::uint64_t)>;
    // Copies a whole value to memory that it asks for, if it can be seen from here: returns its
    // size. nullopt where it cannot, or has no room: then an operation tells.
    virtual std::optional<std::uint64_t> see(std::string_view, const MakeRoom&) {
        return std::nullopt;
    }
    // A whole value where it lies, to read, if it can be seen from here; see Visible::hold().
    virtual std::shared_ptr<memory::Region> hold(std::string_view) { return nullptr; }
    // A whole value as a mapping of its file, if that can be opened here: see VisibleFiles::map().
    virtual std::shared_ptr<memory::Region> map_file(std::string_view, files::DirectoryRoot::Wait) {
        return nullptr;
    }
    // Whether a value of so many bytes may go as a file (Operation::file).
    virtual bool takes_files(std::uint64_t) const { return false; }
    // Waits until the operation is done, for so long at most; returns whether it is. The thread may
    // do the link's work meanwhile.
    virtual bool wait_for(Operation& operation, std::chrono::milliseconds time) {
        return operation.wait_for(time);
    }
    // The operation fails as cancelled, once nothing is transferred for it any more.
    virtual void cancel(const std::shared_ptr<Operation>& operation) = 0;
    // Fails what is under way, in bounded time; does not wait for that.
    virtual void close() = 0;
    // Whether it is closed, or lost.
    virtual bool failed() const = 0;
    // Whether the server has said that it ends. What is under way goes on, and the link closes
    // itself after that.
    virtual bool leaving() const = 0;
    // What carries the messages: "local", or the transports that UCX has chosen.
    virtual std::vector<std::string> lanes() = 0;
    // Whether the messages have checksums.
    virtual bool checked() const { return false; }
    // Whether all messages are encrypted.
    virtual bool encrypted() const { return false; }
};

}  // namespace ucxstore::client
