// Values over plain TCP, by the fewest system calls that do it: what TCP itself can do.
//
//     raw_tcp serve HOST THREADS copy|zerocopy LINGER
//     raw_tcp clients HOST PORT get|set BYTES CLIENTS STREAMS copy|zerocopy LINGER
//
// A request and a reply are 64 bytes each, and one of them has a value behind it. With several
// streams, each carries an equal part of the value. A thread asks for so many microseconds whether
// something has come (LINGER) before it sleeps until then. Both programs end with their input.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <semaphore>
#include <span>
#include <string_view>

#include "window.hpp"

namespace {

using namespace network;

// To copy less than this takes the kernel less time than to pin its pages.
constexpr std::uint64_t kLeastZeroCopy = 32 << 10;

struct Head {
    std::uint64_t is_set = 0;
    std::uint64_t bytes = 0;   // of the value, or of this stream's part of it
    std::uint64_t offset = 0;  // of the value among all
    std::uint64_t rest[5]{};
};
static_assert(sizeof(Head) == 64);

enum class Step { done, again, closed };

// What goes one way: a head, if there is one, and the bytes behind it.
class Message {
  public:
    Message() = default;
    Message(Head* head, std::byte* body, std::uint64_t bytes)
        : parts_{{{head, head != nullptr ? sizeof(Head) : 0}, {body, bytes}}},
          large_(bytes >= kLeastZeroCopy) {}

    Step send(int fd, bool zero_copy) {
        return move([&](const msghdr& rest) {
            const int flags = MSG_NOSIGNAL | (zero_copy && large_ ? MSG_ZEROCOPY : 0);
            const ssize_t sent = sendmsg(fd, &rest, flags);
            // No room for a note: this part goes with a copy.
            return sent < 0 && errno == ENOBUFS ? sendmsg(fd, &rest, MSG_NOSIGNAL) : sent;
        });
    }
    Step receive(int fd) {
        return move([&](msghdr& rest) { return recvmsg(fd, &rest, 0); });
    }

  private:
    template <typename Call>
    Step move(Call call) {
        for (;;) {
            while (first_ < parts_.size() && parts_[first_].iov_len == 0) {
                ++first_;
            }
            if (first_ == parts_.size()) {
                return Step::done;
            }
            msghdr rest{};
            rest.msg_iov = &parts_[first_];
            rest.msg_iovlen = parts_.size() - first_;
            const ssize_t moved = call(rest);
            if (moved <= 0) {
                return moved < 0 && errno == EAGAIN ? Step::again : Step::closed;
            }
            advance(static_cast<std::size_t>(moved));
        }
    }
    void advance(std::size_t moved) {
        for (std::size_t at = first_; moved > 0; ++at) {
            const std::size_t step = std::min(moved, parts_[at].iov_len);
            parts_[at].iov_base = static_cast<std::byte*>(parts_[at].iov_base) + step;
            parts_[at].iov_len -= step;
            moved -= step;
        }
    }

    std::array<iovec, 2> parts_{};
    std::size_t first_ = 0;
    bool large_ = false;
};

void allow_zero_copy(int fd) {
    const int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) {
        fail("SO_ZEROCOPY");
    }
}

// The kernel leaves a note at the socket when it is done with memory that it did not copy.
void drop_notes(int fd) {
    std::array<char, 256> control;
    for (;;) {
        msghdr message{};
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            return;
        }
    }
}

constexpr std::uint32_t kBothWays = EPOLLIN | EPOLLOUT | EPOLLET;

// Descriptors and their events.
class Watch {
  public:
    // Asks for `linger` seconds after the last event, and sleeps then.
    explicit Watch(double linger) : linger_(linger) {}

    void add(int fd, std::uint32_t events, std::uint64_t owner) {
        epoll_event event{};
        event.events = events;
        event.data.u64 = owner;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
            fail("watching a descriptor");
        }
    }
    std::span<const epoll_event> wait() {
        for (;;) {
            const bool asks = linger_ > 0 && now() - active_ < linger_;
            const int count = epoll_wait(epoll_, events_.data(), events_.size(), asks ? 0 : -1);
            if (count > 0) {
                active_ = linger_ > 0 ? now() : 0;
                return {events_.data(), static_cast<std::size_t>(count)};
            }
            sched_yield();
        }
    }

  private:
    const double linger_;
    double active_ = 0;
    const int epoll_ = epoll_create1(0);
    std::array<epoll_event, 256> events_{};
};

// ---- the server ----

// A connection, as the server sees it.
class Peer {
  public:
    Peer(int fd, std::byte* values, bool zero_copy)
        : fd_(fd), values_(values), zero_copy_(zero_copy), in_(&request_, nullptr, 0) {}
    ~Peer() {
        close(fd_);
        if (sink_ != nullptr) {
            munmap(sink_, sink_bytes_);
        }
    }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    // Goes on until it would have to wait; false once the client is gone.
    bool move() {
        if (zero_copy_) {
            drop_notes(fd_);
        }
        for (;;) {
            const Step step = replies_ ? out_.send(fd_, zero_copy_) : in_.receive(fd_);
            if (step != Step::done) {
                return step == Step::again;
            }
            if (replies_) {
                replies_ = false;
                in_ = Message(&request_, nullptr, 0);
            } else if (request_.is_set != 0 && !receives_) {
                receives_ = true;
                in_ = Message(nullptr, sink(), request_.bytes);
            } else {
                reply();
            }
        }
    }

  private:
    std::byte* sink() {
        request_.bytes = std::min(request_.bytes, kMostBytes);
        if (request_.bytes > sink_bytes_) {
            if (sink_ != nullptr) {
                munmap(sink_, sink_bytes_);
            }
            sink_ = memory(request_.bytes);
            sink_bytes_ = request_.bytes;
        }
        return sink_;
    }
    void reply() {
        receives_ = false;
        replies_ = true;
        const std::uint64_t begin = std::min(request_.offset, kMostBytes);
        reply_.bytes = std::min(request_.bytes, kMostBytes - begin);
        out_ = Message(&reply_, values_ + begin, request_.is_set != 0 ? 0 : reply_.bytes);
    }

    const int fd_;
    std::byte* const values_;
    const bool zero_copy_;
    Head request_;
    Head reply_;
    Message in_;
    Message out_;
    std::byte* sink_ = nullptr;
    std::uint64_t sink_bytes_ = 0;
    bool receives_ = false;  // the value of a set
    bool replies_ = false;
};

// Connections are dealt to the threads in turn.
class Server {
  public:
    Server(const char* host, std::size_t threads, bool zero_copy, double linger)
        : listener_(listen_at(host, SOCK_NONBLOCK)), zero_copy_(zero_copy) {
        for (std::size_t number = 0; number < threads; ++number) {
            watches_.push_back(std::make_unique<Watch>(linger));
        }
        watches_[0]->add(STDIN_FILENO, EPOLLIN, kInput);
        watches_[0]->add(listener_, EPOLLIN, kListener);
        for (std::size_t number = 1; number < threads; ++number) {
            std::thread([this, number] { run(*watches_[number]); }).detach();
        }
    }
    // Returns with the end of the input.
    void run() { run(*watches_[0]); }

  private:
    // No address of a peer.
    static constexpr std::uint64_t kInput = 0;
    static constexpr std::uint64_t kListener = 1;

    void run(Watch& watch) {
        for (;;) {
            for (const epoll_event& event : watch.wait()) {
                if (event.data.u64 == kInput) {
                    return;
                }
                if (event.data.u64 == kListener) {
                    accept_all();
                } else if (auto* peer = reinterpret_cast<Peer*>(event.data.u64); !peer->move()) {
                    delete peer;
                }
            }
        }
    }
    void accept_all() {
        for (;;) {
            const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
            if (fd < 0) {
                return;
            }
            set_no_delay(fd);
            if (zero_copy_) {
                allow_zero_copy(fd);
            }
            auto* const peer = new Peer(fd, values_, zero_copy_);
            watches_[accepted_++ % watches_.size()]->add(fd, kBothWays,
                                                         reinterpret_cast<std::uint64_t>(peer));
        }
    }

    const int listener_;
    const bool zero_copy_;
    std::byte* const values_ = values();
    std::vector<std::unique_ptr<Watch>> watches_;
    std::size_t accepted_ = 0;
};

// ---- clients ----

struct Load {
    sockaddr_in server;
    bool is_set;
    std::uint64_t bytes;  // of a value, or of a stream's part of it
    bool zero_copy;
    double linger;  // seconds
};

// A connection, as a client sees it: one operation at a time.
class Stream {
  public:
    // Carries the part of a value that is `offset` behind its beginning.
    Stream(const Load& load, std::uint64_t offset, unsigned seed)
        : load_(load),
          offset_(offset),
          fd_(connect_to(load.server)),
          memory_(memory(load.bytes)),
          offsets_(load.bytes, seed) {
        if (load.zero_copy) {
            allow_zero_copy(fd_);
        }
        begin(offset_);
        if (go_on() != Step::done) {
            fail("the first operation");
        }
        if (!load.is_set) {
            check(memory_, load.bytes, offset_);
        }
    }
    void never_block() { fcntl(fd_, F_SETFL, O_NONBLOCK); }
    int fd() const { return fd_; }
    void begin() { begin(offset_ + offsets_.next()); }
    void wait() const {
        const short events = sends_ ? POLLIN | POLLOUT : POLLIN;
        pollfd watched{.fd = fd_, .events = events, .revents = 0};
        poll(&watched, 1, -1);
    }
    Step go_on() {
        if (load_.zero_copy) {
            drop_notes(fd_);
        }
        if (sends_) {
            const Step step = out_.send(fd_, load_.zero_copy);
            if (step != Step::done) {
                return step;
            }
            sends_ = false;
        }
        const Step step = in_.receive(fd_);
        if (step == Step::done && reply_.bytes != load_.bytes) {
            std::fprintf(stderr, "the reply is to another request\n");
            std::exit(1);
        }
        return step;
    }

  private:
    void begin(std::uint64_t offset) {
        request_ = {.is_set = load_.is_set, .bytes = load_.bytes, .offset = offset};
        out_ = Message(&request_, memory_, load_.is_set ? load_.bytes : 0);
        in_ = Message(&reply_, memory_, load_.is_set ? 0 : load_.bytes);
        sends_ = true;
    }

    const Load load_;
    const std::uint64_t offset_;
    const int fd_;
    std::byte* const memory_;
    Offsets offsets_;
    Head request_;
    Head reply_;
    Message out_;
    Message in_;
    bool sends_ = false;
};

using Streams = std::vector<std::unique_ptr<Stream>>;

void do_one(Stream& stream, double linger) {
    stream.begin();
    const double begun = linger > 0 ? now() : 0;
    for (;;) {
        const Step step = stream.go_on();
        if (step == Step::done) {
            return;
        }
        if (step == Step::closed) {
            fail("an operation");
        }
        if (now() - begun < linger) {
            sched_yield();
        } else {
            stream.wait();
        }
    }
}

// One client: a thread for each of its streams.
class OneClient {
  public:
    OneClient(Streams& streams, double linger) : streams_(streams), linger_(linger) {
        for (const auto& stream : streams) {
            if (linger > 0) {
                stream->never_block();
            }
        }
        for (std::size_t number = 1; number < streams.size(); ++number) {
            std::thread([this, number] {
                for (;;) {
                    begun_.acquire();
                    do_one(*streams_[number], linger_);
                    done_.release();
                }
            }).detach();
        }
    }
    void run(Counted& counted) {
        const auto others = static_cast<std::ptrdiff_t>(streams_.size()) - 1;
        do {
            begun_.release(others);
            do_one(*streams_[0], linger_);
            for (std::ptrdiff_t number = 0; number < others; ++number) {
                done_.acquire();
            }
        } while (counted.ended(0));
    }

  private:
    Streams& streams_;
    const double linger_;
    std::counting_semaphore<> begun_{0};
    std::counting_semaphore<> done_{0};
};

// Many clients: one thread, and a stream for each.
class ManyClients {
  public:
    ManyClients(Streams& streams, double linger) : streams_(streams), watch_(linger) {
        for (std::size_t number = 0; number < streams.size(); ++number) {
            streams[number]->never_block();
            watch_.add(streams[number]->fd(), kBothWays, number);
        }
    }
    void run(Counted& counted) {
        busy_.assign(streams_.size(), true);
        left_ = streams_.size();
        for (std::size_t number = 0; number < streams_.size(); ++number) {
            streams_[number]->begin();
            go_on(number, counted);
        }
        while (left_ > 0) {
            for (const epoll_event& event : watch_.wait()) {
                if (busy_[event.data.u64]) {
                    go_on(event.data.u64, counted);
                }
            }
        }
    }

  private:
    void go_on(std::size_t number, Counted& counted) {
        for (;;) {
            const Step step = streams_[number]->go_on();
            if (step == Step::again) {
                return;
            }
            if (step == Step::closed) {
                fail("an operation");
            }
            if (!counted.ended(number)) {
                busy_[number] = false;
                --left_;
                return;
            }
            streams_[number]->begin();
        }
    }

    Streams& streams_;
    Watch watch_;
    std::vector<bool> busy_;
    std::size_t left_ = 0;
};

template <typename Clients>
void answer_windows(Streams& streams, std::size_t count, double linger) {
    Clients clients(streams, linger);
    say_ready();
    for (Window window; read_window(window);) {
        Counted counted(window, count);
        clients.run(counted);
        counted.answer();
    }
}

int run_clients(char** words) {
    const std::size_t clients = std::strtoul(words[4], nullptr, 10);
    const std::size_t count = std::strtoul(words[5], nullptr, 10);
    const std::uint64_t bytes = std::strtoull(words[3], nullptr, 10);
    if (clients == 0 || count == 0 || (clients > 1 && count > 1) || bytes > kMostBytes) {
        std::fprintf(stderr, "raw_tcp: one client of several streams, or several clients\n");
        return 2;
    }
    const Load load{address_of(words[0], std::atoi(words[1])), std::string_view(words[2]) == "set",
                    bytes / count, std::string_view(words[6]) == "zerocopy",
                    std::atof(words[7]) / 1e6};
    Streams streams;
    for (std::size_t number = 0; number < clients * count; ++number) {
        const std::uint64_t offset = clients > 1 ? 0 : number * load.bytes;
        streams.push_back(
            std::make_unique<Stream>(load, offset, static_cast<unsigned>(number + 1)));
    }
    if (clients > 1) {
        answer_windows<ManyClients>(streams, clients, load.linger);
    } else {
        answer_windows<OneClient>(streams, 1, load.linger);
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    const std::string_view what = count > 1 ? words[1] : "";
    if (what == "serve" && count == 6) {
        Server(words[2], std::strtoul(words[3], nullptr, 10),
               std::string_view(words[4]) == "zerocopy", std::atof(words[5]) / 1e6)
            .run();
        std::_Exit(0);  // with its threads
    }
    if (what == "clients" && count == 10) {
        const int status = run_clients(words + 2);
        std::_Exit(status);
    }
    std::fprintf(stderr,
                 "usage: raw_tcp serve HOST THREADS copy|zerocopy LINGER\n"
                 "       raw_tcp clients HOST PORT get|set BYTES CLIENTS STREAMS "
                 "copy|zerocopy LINGER\n");
    return 2;
}
