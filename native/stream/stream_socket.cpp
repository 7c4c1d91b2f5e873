#include "stream/stream_socket.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/inherited.hpp"
#include "base/status.hpp"
#include "base/steps.hpp"
#include "memory/crc32c.hpp"
#include "stream/closing.hpp"

namespace ucxstore::stream {
namespace {

// Bytes that are read ahead of a message are copied; all of an encrypted one goes that way.
constexpr std::size_t kAheadBytes = 8 * 1024;
constexpr std::size_t kSealedAheadBytes = 64 * 1024;
// So many bytes of a body are given to the kernel at once. What the peer acknowledges meanwhile
// waits for the end of the call: of 16 MiB at once a client got half of what it gets now (veth,
// BBR).
constexpr std::uint64_t kSentAtOnce = 512 * 1024;
constexpr std::size_t kKeptBytes = 64 * 1024;  // of encrypted messages, while none is sent
constexpr std::uint64_t kScrapBytes = 64 * 1024;
constexpr std::size_t kMaxDescriptors = 8;  // of one message
constexpr std::size_t kMostPassed = 253;    // that the kernel passes at once (SCM_MAX_FD)
// Of a message that a client has begun, and of the next.
constexpr std::size_t kMostOfClient = 2;
constexpr std::size_t kMaxPieces = 256;  // of one call

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

base::Fd copy_of(int descriptor) {
    base::Fd copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
        base::throw_errno("a descriptor for a client", base::ErrorKind::resource);
    }
    return copy;
}

StreamSocket::StreamSocket(base::Fd fd, Handler& handler, Refuse refuse,
                           const std::optional<protocol::SessionKeys>& keys)
    : fd_(std::move(fd)),
      handler_(handler),
      refuse_(std::move(refuse)),
      acknowledged_(fd_.get()),
      ahead_(keys ? kSealedAheadBytes : kAheadBytes) {
    if (keys) {
        seals_.emplace(*keys);
    }
    base::enlist_for_children(fd_.get());
}

StreamSocket::~StreamSocket() {
    end();
    base::strike_off_for_children(fd_.get());
    if (refuse_ == nullptr) {
        return;
    }
    for (base::Fd& one : descriptors_) {
        refuse_(std::move(one));
    }
    if (current_) {
        for (base::Fd& one : current_->descriptors) {
            refuse_(std::move(one));
        }
    }
    // What nobody has read may have descriptors, which the kernel closes with the socket.
    int unread = 0;
    if (ioctl(fd_.get(), SIOCINQ, &unread) == 0 && unread > 0) {
        refuse_(std::move(fd_));
    }
}

void StreamSocket::end() {
    ended_ = true;
    // A forked child may hold a copy of the descriptor: close alone would not tell the peer.
    shutdown(fd_.get(), SHUT_RDWR);
    if (!flushing_) {
        out_.clear();
    }
}

void StreamSocket::look(base::TimePoint now) {
    if (!ended_ && !acknowledged_.look(now)) {
        vanished_ = true;
        end();
    }
}

// ---- out ----

bool StreamSocket::send(OutMessage message) {
    Out out;
    out.size = message.body.size();
    for (const ucp_dt_iov_t& piece : message.pieces) {
        out.size += piece.length;
    }
    const Frame frame{message.kind, static_cast<std::uint32_t>(message.descriptors.size()),
                      static_cast<std::uint32_t>(message.header.size()), 0, out.size};
    out.head.assign(reinterpret_cast<const char*>(&frame), sizeof(frame));
    out.head += message.header;
    out.size += out.head.size();
    out.message = std::move(message);
    out_.push_back(std::move(out));
    return flush();
}

bool StreamSocket::flush() {
    if (flushing_) {
        return false;  // inside of `sent`; the loop below goes on
    }
    struct Flushing {
        explicit Flushing(bool& flag) : flag(flag) { flag = true; }
        ~Flushing() { flag = false; }  // also where `sent` fails
        bool& flag;
    } flushing(flushing_);
    bool waits = false;
    while (!out_.empty() && !ended_ && !waits && handler_.sends_on()) {
        const Moved moved = seals_ ? write_sealed(out_.front()) : write(out_.front());
        if (moved == Moved::all) {
            const auto sent = std::move(out_.front().message.sent);
            out_.pop_front();
            if (sent) {
                sent();
            }
        }
        waits = moved == Moved::none;
    }
    if (ended_) {
        out_.clear();
    }
    if (out_.empty() && staged_.size() > kKeptBytes) {
        staged_ = {};
        staged_begin_ = 0;
    }
    return waits && !ended_;
}

StreamSocket::Moved StreamSocket::write(Out& out) {
    std::array<iovec, kMaxPieces + 1> pieces;
    std::size_t count = 0;
    std::uint64_t skip = out.done;
    std::uint64_t room = out.head.size() + kSentAtOnce;
    const auto add = [&](const void* data, std::uint64_t length) {
        if (skip >= length) {
            skip -= length;
        } else if (count < pieces.size() && room > 0) {
            const std::uint64_t part = std::min(length - skip, room);
            pieces[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skip, part};
            room -= part;
            skip = 0;
        }
    };
    add(out.head.data(), out.head.size());
    add(out.message.body.data(), out.message.body.size());
    const std::vector<ucp_dt_iov_t>& body = out.message.pieces;
    while (out.piece < body.size() && out.piece_begin + body[out.piece].length <= skip) {
        out.piece_begin += body[out.piece++].length;
    }
    skip -= std::min(skip, out.piece_begin);
    for (std::size_t i = out.piece; i < body.size() && count < pieces.size(); ++i) {
        add(body[i].buffer, body[i].length);
    }
    msghdr header{};
    header.msg_iov = pieces.data();
    header.msg_iovlen = count;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control{};
    const std::size_t descriptors = out.message.descriptors.size();
    if (out.done == 0 && descriptors > 0) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors);
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * descriptors);
        for (std::size_t i = 0; i < descriptors; ++i) {
            const int fd = out.message.descriptors[i].get();
            std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(int));
        }
    }
    const auto sent = write(&header);
    if (!sent) {
        return Moved::none;
    }
    out.message.descriptors.clear();
    out.done += *sent;
    return out.done == out.size ? Moved::all : Moved::some;
}

// Returns how many bytes the kernel has taken; nullopt where it takes none.
std::optional<std::uint64_t> StreamSocket::write(const void* message) {
    ssize_t sent;
    base::step();
    do {
        sent = sendmsg(fd_.get(), static_cast<const msghdr*>(message), MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        if (!would_block()) {
            end();
        }
        return std::nullopt;
    }
    base::step();
    acknowledged_.sent();
    return static_cast<std::uint64_t>(sent);
}

StreamSocket::Moved StreamSocket::write_sealed(Out& out) {
    if (out.sealed == nullptr) {
        OutMessage& message = out.message;
        try {
            out.sealed = std::make_unique<SealedMessage>(
                seals_->out, message.kind, std::move(message.header), std::move(message.pieces),
                std::move(message.body));
        } catch (const std::bad_alloc&) {  // the message is gone
            end();
            throw;
        }
    }
    if (staged_begin_ == staged_.size()) {
        out.sealed->next(staged_);
        staged_begin_ = 0;
    }
    iovec piece{staged_.data() + staged_begin_, staged_.size() - staged_begin_};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    const auto sent = write(&header);
    if (!sent) {
        return Moved::none;
    }
    staged_begin_ += *sent;
    return staged_begin_ == staged_.size() && out.sealed->is_at_end() ? Moved::all : Moved::some;
}

void StreamSocket::disown(const void* owner) {
    std::erase_if(out_, [&](Out& out) {
        if (out.message.owner != owner || !out.has_begun()) {
            return out.message.owner == owner;
        }
        out.message.owner = nullptr;
        out.message.sent = nullptr;
        if (out.sealed != nullptr) {
            out.sealed->forget_body();
            return false;
        }
        // Nothing but what is behind `done` is sent of it.
        std::string rest(out.size - out.head.size(), '\0');
        std::uint64_t at = 0;
        for (const ucp_dt_iov_t& piece : out.message.pieces) {
            if (at + piece.length > out.done - std::min(out.done, out.head.size())) {
                std::memcpy(rest.data() + at, piece.buffer, piece.length);
            }
            at += piece.length;
        }
        out.message.pieces.clear();
        out.message.body = std::move(rest);
        return false;
    });
}

// ---- in ----

// All are taken: the kernel would close the others before it returns, and that may wait.
void StreamSocket::take_descriptors(const void* message) {
    const std::size_t most = refuse_ == nullptr ? 2 * kMaxDescriptors : kMostOfClient;
    bool too_many = false;
    bool strange = false;
    const auto* const header = static_cast<const msghdr*>(message);
    auto* const mutable_header = const_cast<msghdr*>(header);
    for (cmsghdr* one = CMSG_FIRSTHDR(header); one != nullptr;
         one = CMSG_NXTHDR(mutable_header, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int number;
            std::memcpy(&number, CMSG_DATA(one) + i * sizeof(int), sizeof(int));
            base::Fd fd(number);
            const bool is_strange = refuse_ != nullptr && !is_memory(number);
            strange = strange || is_strange;
            too_many = too_many || descriptors_.size() >= most;
            if (!is_strange && !too_many) {
                descriptors_.push_back(std::move(fd));
            } else if (refuse_ != nullptr) {
                refuse_(std::move(fd));
            }
        }
    }
    if (strange) {
        throw base::Error(base::ErrorKind::protocol, "a descriptor that is not one of memory");
    }
    if (header->msg_flags & MSG_CTRUNC || too_many) {
        throw base::Error(base::ErrorKind::protocol, "more descriptors at once than are taken");
    }
}

// Reads into these pieces; -1 where nothing has come yet.
ssize_t StreamSocket::receive(std::span<const ucp_dt_iov_t> pieces) {
    if (drained_) {
        return -1;
    }
    std::array<iovec, kMaxPieces> vectors;
    const std::size_t count = std::min(pieces.size(), vectors.size());
    ssize_t room = 0;
    for (std::size_t i = 0; i < count; ++i) {
        vectors[i] = {pieces[i].buffer, pieces[i].length};
        room += static_cast<ssize_t>(pieces[i].length);
    }
    msghdr header{};
    header.msg_iov = vectors.data();
    header.msg_iovlen = count;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostPassed)> control;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t got;
    do {
        got = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    drained_ = got < room;
    if (got > 0) {
        base::step();
        take_descriptors(&header);
        return got;
    }
    if (got == 0 || !would_block()) {
        ended_ = true;
    }
    return -1;
}

// Reads until so many bytes are ahead; false where they have not come.
bool StreamSocket::fill(std::size_t wanted) {
    while (end_ - begin_ < wanted) {
        if (begin_ > 0) {
            std::memmove(ahead_.data(), ahead_.data() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
        const ucp_dt_iov_t room{ahead_.data() + end_, ahead_.size() - end_};
        const ssize_t got = receive({&room, 1});
        if (got < 0) {
            return false;
        }
        end_ += static_cast<std::size_t>(got);
    }
    return true;
}

bool StreamSocket::begin_message() {
    if (!fill(sizeof(Frame))) {
        return false;
    }
    Frame frame;
    std::memcpy(&frame, ahead_.data() + begin_, sizeof(frame));
    const std::uint64_t most = seals_ ? protocol::sealed_bytes(kMaxBodyBytes) : kMaxBodyBytes;
    if (frame.header_bytes > kMaxHeaderBytes || frame.body_bytes > most ||
        frame.descriptors > kMaxDescriptors) {
        throw base::Error(base::ErrorKind::protocol, "bytes that are no message");
    }
    if (!fill(sizeof(Frame) + frame.header_bytes)) {
        return false;
    }
    const auto* const text = reinterpret_cast<const char*>(ahead_.data() + begin_ + sizeof(Frame));
    InMessage message{frame.kind, std::string(text, frame.header_bytes), {}, frame.body_bytes, {}};
    begin_ += sizeof(Frame) + frame.header_bytes;
    if (seals_) {
        open_header(message);
    }
    if (descriptors_.size() < frame.descriptors) {
        throw base::Error(base::ErrorKind::protocol, "a message without its descriptors");
    }
    for (std::uint32_t i = 0; i < frame.descriptors; ++i) {
        message.descriptors.push_back(std::move(descriptors_.front()));
        descriptors_.pop_front();
    }
    auto place = handler_.place(message.kind, message.header, message.body_bytes);
    current_ = std::move(message);
    body_left_ = frame.body_bytes;
    if (place) {
        set_target(std::move(*place));
    } else if (!awaits_target_) {
        current_->body.resize(current_->body_bytes);
        set_target({{current_->body.data(), current_->body_bytes}});
    }
    return true;
}

void StreamSocket::open_header(InMessage& message) {
    auto opened =
        seals_->in.open_header(static_cast<protocol::Message>(message.kind),
                               std::as_bytes(std::span(message.header)), message.body_bytes);
    if (!opened) {
        throw base::Error(base::ErrorKind::integrity, "a message was changed on its way");
    }
    message.header = std::move(opened->header);
    message.body_bytes = opened->data.bytes;
    opened_ =
        opened->data.bytes == 0 ? nullptr : std::make_unique<OpenedBody>(seals_->in, opened->data);
}

void StreamSocket::set_target(std::vector<ucp_dt_iov_t> target) {
    target_ = std::move(target);
    target_at_ = 0;
    if (opened_ != nullptr) {
        opened_->place(std::move(target_));
    }
}

// Reads what is left of the body; false where not all of it has come.
bool StreamSocket::read_body() {
    if (opened_ != nullptr) {
        return read_sealed_body();
    }
    while (body_left_ > 0) {
        ucp_dt_iov_t& piece = target_[target_at_];
        if (piece.length == 0) {
            ++target_at_;
            continue;
        }
        std::size_t got = std::min({end_ - begin_, piece.length, body_left_});
        if (got > 0) {
            std::memcpy(piece.buffer, ahead_.data() + begin_, got);
            begin_ += got;
        } else {
            // Never beyond the body: the target has just so many bytes left.
            const ssize_t read = receive(std::span(target_).subspan(target_at_));
            if (read < 0) {
                return false;
            }
            got = static_cast<std::size_t>(read);
        }
        note_read(got);
    }
    return true;
}

// So many more bytes of the body have come to its target.
void StreamSocket::note_read(std::size_t bytes) {
    body_left_ -= bytes;
    while (bytes > 0) {
        ucp_dt_iov_t& next = target_[target_at_];
        const std::size_t part = std::min(bytes, next.length);
        if (sums_) {
            current_->sum =
                memory::crc32c({static_cast<const std::byte*>(next.buffer), part}, current_->sum);
        }
        next.buffer = static_cast<char*>(next.buffer) + part;
        next.length -= part;
        bytes -= part;
        target_at_ += next.length == 0 ? 1 : 0;
    }
}

bool StreamSocket::read_sealed_body() {
    while (body_left_ > 0) {
        if (!fill(1)) {
            return false;
        }
        const std::size_t got = std::min(end_ - begin_, body_left_);
        opened_->take(std::span(ahead_).subspan(begin_, got));
        begin_ += got;
        body_left_ -= got;
    }
    current_->forged = !opened_->end();
    opened_.reset();
    return true;
}

bool StreamSocket::read() {
    std::uint64_t turn = 0;
    while (handler_.reads_on(turn)) {
        if ((!current_ && !begin_message()) || awaits_target_ || !read_body()) {
            return false;
        }
        InMessage message = std::move(*current_);
        current_.reset();
        turn += sizeof(Frame) + message.header.size() + message.body_bytes;
        handler_.take(std::move(message));
        if (refuse_ != nullptr && begin_ == end_ && !descriptors_.empty()) {
            throw base::Error(base::ErrorKind::protocol, "a descriptor that is no message's");
        }
    }
    return true;
}

void StreamSocket::give_target(std::vector<ucp_dt_iov_t> target) {
    set_target(std::move(target));
    awaits_target_ = false;
}

void StreamSocket::redirect() {
    if (!current_) {
        return;
    }
    awaits_target_ = false;
    if (opened_ != nullptr) {
        return set_target({});
    }
    scrap_.resize(std::min(body_left_, kScrapBytes));
    std::vector<ucp_dt_iov_t> scraps;
    for (std::uint64_t left = body_left_; left > 0; left -= scraps.back().length) {
        scraps.push_back({scrap_.data(), std::min(left, kScrapBytes)});
    }
    set_target(std::move(scraps));
}

}  // namespace ucxstore::stream
