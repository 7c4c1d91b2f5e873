// A connected socket, of TCP or Unix, as messages; with descriptors on the latter. It never blocks.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/handle.hpp"
#include "protocol/sealing.hpp"
#include "stream/acknowledged.hpp"
#include "stream/frames.hpp"
#include "stream/sealed_message.hpp"

namespace ucxstore::stream {

// A message on its way out. The memory of `pieces` stays until `sent` is called, or this goes.
struct OutMessage {
    FrameKind kind;
    std::string header = {};
    std::vector<ucp_dt_iov_t> pieces = {};  // the body; or
    std::string body = {};                  // this, where there are none
    std::vector<base::Fd> descriptors = {};
    // Whose memory the pieces are: see disown().
    const void* owner = nullptr;
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
    // Whether its body is not what was sent; then it is zeros.
    bool forged = false;
    std::uint32_t sum = 0;  // of the body: see sum_bodies()
};

// What tells accidents and attackers on the way: checksums in headers, which are for whoever
// makes and takes the messages; with keys, encryption, which makes checksums superfluous.
struct Protection {
    bool checked = false;
    std::optional<protocol::SessionKeys> keys = {};
};

// On one thread.
class StreamSocket {
  public:
    class Handler {
      public:
        virtual ~Handler() = default;
        // A message begins. Returns the memory that its body goes to, of just so many bytes;
        // nullopt for a body that is to be in the message, or after await_target(). Throws
        // Error(protocol).
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

    // Takes a descriptor that is not used. Its close may wait.
    using Refuse = std::function<void(base::Fd)>;

    // Takes the descriptor over. With `refuse`, the other side may pass a descriptor of memory with
    // a message, and no other: all else goes there. So does the socket, if it has unread bytes.
    // With `keys`, all messages are encrypted. Throws Error(connect) where OpenSSL cannot.
    StreamSocket(base::Fd fd, Handler& handler, Refuse refuse = nullptr,
                 const std::optional<protocol::SessionKeys>& keys = {});
    StreamSocket(const StreamSocket&) = delete;
    StreamSocket& operator=(const StreamSocket&) = delete;
    ~StreamSocket();

    // From now on bodies that are not encrypted are summed as they come, while they are in a cache.
    void sum_bodies() { sums_ = true; }

    int fd() const { return fd_.get(); }
    // Whether it has ended, at either side.
    bool ended() const { return ended_; }
    // Ends it where the peer does not acknowledge any more what was sent to it: see Acknowledged.
    void look(base::TimePoint now);
    // When to look next.
    base::TimePoint look_at() const {
        return ended_ ? base::TimePoint::max() : acknowledged_.look_at();
    }
    bool vanished() const { return vanished_; }

    // Sends what the kernel takes now, as long as the handler says; the rest waits for flush().
    // True where something waits for the kernel.
    bool send(OutMessage message);
    // Sends more of what waits. As above.
    bool flush();
    // Whether a message is being sent now: this is inside of its `sent`.
    bool flushes() const { return flushing_; }
    // Whether something waits, for the kernel or for the next turn.
    bool has_more() const { return !out_.empty() && !ended_; }

    // Reads what has come, and hands it to the handler, as long as that says. True where there may
    // be more. Once nothing is left, it asks the kernel only after readable(). Throws what the
    // handler throws, Error(protocol) for bytes that are no message, and Error(integrity) for a
    // header that is not what was sent.
    bool read();
    // The kernel says that there is something to read, or it is to be asked anyway.
    void readable() { drained_ = false; }
    // For place(): nothing is read until give_target() has the memory that the body goes to.
    void await_target() { awaits_target_ = true; }
    bool awaits_target() const { return awaits_target_; }
    void give_target(std::vector<ucp_dt_iov_t> target);
    // The rest of a body that is coming goes nowhere: nothing is written any more to the memory
    // that place() has given for it. take() is called all the same.
    void redirect();

    // Messages of this owner use its pieces no more: those that have not begun to go are dropped,
    // without calling `sent`, and of one that has begun the rest is copied. Throws std::bad_alloc.
    void disown(const void* owner);

    // Ends it at both sides. What waits to be sent is dropped, as above.
    void end();

  private:
    struct Out {
        OutMessage message;
        std::string head;        // the frame and the header
        std::uint64_t done = 0;  // bytes that are with the kernel
        std::uint64_t size = 0;
        std::size_t piece = 0;                            // all pieces before this one are,
        std::uint64_t piece_begin = 0;                    // which begins so far behind the first
        std::unique_ptr<SealedMessage> sealed = nullptr;  // of an encrypted one that has begun

        bool has_begun() const { return done > 0 || sealed != nullptr; }
    };
    enum class Moved { all, some, none };

    Moved write(Out& out);
    Moved write_sealed(Out& out);
    std::optional<std::uint64_t> write(const void* message);
    bool fill(std::size_t wanted);
    bool begin_message();
    bool read_body();
    bool read_sealed_body();
    void note_read(std::size_t bytes);
    void open_header(InMessage& message);
    void set_target(std::vector<ucp_dt_iov_t> target);
    ssize_t receive(std::span<const ucp_dt_iov_t> pieces);
    void take_descriptors(const void* message);

    base::Fd fd_;
    Handler& handler_;
    const Refuse refuse_;
    Acknowledged acknowledged_;
    bool ended_ = false;
    bool vanished_ = false;

    std::deque<Out> out_;
    bool flushing_ = false;
    // Of an encrypted message that goes, what is sealed and has not gone yet.
    std::vector<std::byte> staged_;
    std::size_t staged_begin_ = 0;

    // Bytes that were read ahead, and the message that they belong to.
    std::vector<std::byte> ahead_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    bool drained_ = false;  // the kernel had less than it was asked for
    std::deque<base::Fd> descriptors_;
    std::optional<InMessage> current_;
    bool awaits_target_ = false;
    bool sums_ = false;
    std::uint64_t body_left_ = 0;
    std::vector<ucp_dt_iov_t> target_;
    std::size_t target_at_ = 0;
    std::string scrap_;                     // where a redirected body goes
    std::optional<protocol::Seals> seals_;  // where messages are encrypted,
    std::unique_ptr<OpenedBody> opened_;    // and the body that comes
};

}  // namespace ucxstore::stream
