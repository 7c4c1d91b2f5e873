// A connected Unix socket as messages with descriptors. It never blocks.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/handle.hpp"
#include "local/frames.hpp"

namespace ucxstore::local {

// A message on its way out. The memory of `pieces` stays until `sent` is called, or this goes.
struct OutMessage {
    FrameKind kind;
    std::string header = {};
    std::vector<ucp_dt_iov_t> pieces = {};  // the body; or
    std::string body = {};                  // this, where there are none
    std::vector<base::Fd> descriptors = {};
    // Called once all of it is with the kernel. Not where the socket has failed before that.
    std::function<void()> sent = {};
};

// Returns a header as a message has it.
template <typename Header>
std::string raw(const Header& header) {
    return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

// Returns a copy of a descriptor, for a message to pass.
base::Fd copy_of(int descriptor);

// A message that has come.
struct InMessage {
    FrameKind kind;
    std::string header;
    std::string body;  // empty where place() has taken it
    std::uint64_t body_bytes;
    std::vector<base::Fd> descriptors;
};

// On one thread.
class LocalSocket {
  public:
    class Handler {
      public:
        virtual ~Handler() = default;
        // A message begins. Returns the memory that its body goes to, of just so many bytes;
        // nullopt for a body that is to be in the message. Throws Error(protocol).
        virtual std::optional<std::vector<ucp_dt_iov_t>> place(FrameKind kind,
                                                               std::string_view header,
                                                               std::uint64_t body_bytes) = 0;
        // A message has come, all of it. Throws Error(protocol).
        virtual void take(InMessage message) = 0;
        // Whether to go on, after `bytes` in this turn, with reading and with sending.
        virtual bool reads_on(std::uint64_t bytes) { return bytes < kTurnBytes; }
        virtual bool sends_on() { return true; }

      protected:
        static constexpr std::uint64_t kTurnBytes = 8ull << 20;
    };

    // Takes a descriptor that is not used, and whose close may wait.
    using Refuse = std::function<void(base::Fd)>;

    // Takes the descriptor over. With `refuse`, the other side may pass a descriptor of memory with
    // a message, and no other: all else goes there. So does the socket, if it has unread bytes.
    LocalSocket(base::Fd fd, Handler& handler, Refuse refuse = nullptr);
    LocalSocket(const LocalSocket&) = delete;
    LocalSocket& operator=(const LocalSocket&) = delete;
    ~LocalSocket();

    int fd() const { return fd_.get(); }
    // Whether it has ended, at either side.
    bool ended() const { return ended_; }

    // Sends what the kernel takes now, as long as the handler says; the rest waits for flush().
    // True where something waits for the kernel.
    bool send(OutMessage message);
    // Sends more of what waits. As above.
    bool flush();
    // Whether something waits, for the kernel or for the next turn.
    bool has_more() const { return !out_.empty() && !ended_; }

    // Reads what has come, and hands it to the handler, as long as that says. True where there may
    // be more. Throws what the handler throws, and Error(protocol) for bytes that are no message.
    bool read();
    // The rest of a body that is coming goes nowhere: nothing is written any more to the memory
    // that place() has given for it. take() is called all the same.
    void redirect();

    // Ends it at both sides.
    void end();

  private:
    struct Out {
        OutMessage message;
        std::string head;        // the frame and the header
        std::uint64_t done = 0;  // bytes that are with the kernel
        std::uint64_t size = 0;
        std::size_t piece = 0;          // all pieces before this one are,
        std::uint64_t piece_begin = 0;  // which begins so far behind the first
    };
    enum class Moved { all, some, none };

    Moved write(Out& out);
    bool fill(std::size_t wanted);
    bool begin_message();
    bool read_body();
    ssize_t receive(std::span<const ucp_dt_iov_t> pieces);
    void take_descriptors(const void* message);

    base::Fd fd_;
    Handler& handler_;
    const Refuse refuse_;
    bool ended_ = false;

    std::deque<Out> out_;
    bool flushing_ = false;

    // Bytes that were read ahead, and the message that they belong to.
    std::vector<std::byte> ahead_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::deque<base::Fd> descriptors_;
    std::optional<InMessage> current_;
    std::uint64_t body_left_ = 0;
    std::vector<ucp_dt_iov_t> target_;
    std::size_t target_at_ = 0;
    std::string scrap_;  // where a redirected body goes
};

}  // namespace ucxstore::local
