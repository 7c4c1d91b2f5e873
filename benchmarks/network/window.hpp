// What the clients of this folder's programs share: windows of time, and the answers about them.
//
// A program says `{"ready": true}` once it is connected. Then it reads lines with two moments of
// the monotonic clock, `[begin, end]`, and answers each with what it has done between them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace network {

// Small values are drawn from so many bytes, so that no processor's cache holds all of them.
constexpr std::uint64_t kPool = 16ull << 20;
constexpr std::uint64_t kMostBytes = 128ull << 20;

[[noreturn]] inline void fail(const std::string& what) {
    std::perror(what.c_str());
    std::exit(1);
}

inline double now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

inline double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// Memory whose pages are there.
inline std::byte* memory(std::uint64_t bytes) {
    void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (found == MAP_FAILED) {
        fail("memory");
    }
    return static_cast<std::byte*>(found);
}

// The values of a server: each page has another byte in it, from beginning to end.
inline std::byte byte_at(std::uint64_t offset) { return static_cast<std::byte>(offset / 4096); }

inline std::byte* values() {
    std::byte* const found = memory(kMostBytes);
    for (std::uint64_t offset = 0; offset < kMostBytes; offset += 4096) {
        std::fill_n(found + offset, 4096, byte_at(offset));
    }
    return found;
}

inline void check(const std::byte* value, std::uint64_t bytes, std::uint64_t offset) {
    for (std::uint64_t at = 0; at < bytes; ++at) {
        if (value[at] != byte_at(offset + at)) {
            std::fprintf(stderr, "byte %llu came back wrong\n",
                         static_cast<unsigned long long>(at));
            std::exit(1);
        }
    }
}

// Draws the offsets of values, each as likely as any other.
class Offsets {
  public:
    Offsets(std::uint64_t bytes, unsigned seed)
        : bytes_(bytes),
          draw_(0, std::max<std::uint64_t>(kPool / std::max<std::uint64_t>(bytes, 1), 1) - 1),
          random_(seed) {}
    std::uint64_t next() { return draw_(random_) * bytes_; }

  private:
    std::uint64_t bytes_;
    std::uniform_int_distribution<std::uint64_t> draw_;
    std::minstd_rand random_;
};

struct Window {
    double begin = 0;
    double end = 0;
};

inline bool read_window(Window& window) {
    std::string line;
    return std::getline(std::cin, line) &&
           std::sscanf(line.c_str(), "[%lf, %lf]", &window.begin, &window.end) == 2;
}

inline void say_ready() {
    std::puts("{\"ready\": true}");
    std::fflush(stdout);
}

// What the clients of one process do in a window.
class Counted {
  public:
    Counted(const Window& window, std::size_t clients) : window_(window), last_(clients) {
        std::this_thread::sleep_for(
            std::chrono::duration<double>(std::max(window.begin - now(), 0.0)));
        cpu_ = cpu_seconds();
        std::ranges::fill(last_, Client{now(), now(), 0});
    }
    // Notes that a client has ended an operation; says whether it begins another one.
    bool ended(std::size_t client) {
        Client& one = last_[client];
        const double then = now();
        seconds_.push_back(then - one.last);
        one.last = then;
        ++one.done;
        return then < window_.end;
    }
    void answer() {
        double rate = 0;  // the sum of the clients' own, since they end at different moments
        for (const Client& one : last_) {
            rate += one.done > 0 ? static_cast<double>(one.done) / (one.last - one.begun) : 0;
        }
        std::ranges::sort(seconds_);
        std::printf(
            "{\"done\": %zu, \"rate\": %.9g, \"p50\": %.9g, \"p99\": %.9g, \"cpu\": %.9g}\n",
            seconds_.size(), rate, percentile(50), percentile(99), cpu_seconds() - cpu_);
        std::fflush(stdout);
    }

  private:
    struct Client {
        double begun = 0;
        double last = 0;
        std::size_t done = 0;
    };
    double percentile(std::size_t percent) const {
        return seconds_.empty()
                   ? 0
                   : seconds_[std::min(seconds_.size() * percent / 100, seconds_.size() - 1)];
    }
    Window window_;
    std::vector<Client> last_;
    std::vector<double> seconds_;
    double cpu_ = 0;
};

inline sockaddr_in address_of(const char* host, int port) {
    sockaddr_in found{};
    found.sin_family = AF_INET;
    found.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, host, &found.sin_addr) != 1) {
        std::fprintf(stderr, "%s is not an IPv4 address\n", host);
        std::exit(2);
    }
    return found;
}

inline void say_port(int port) {
    std::printf("{\"port\": %d}\n", port);
    std::fflush(stdout);
}

// Listens at any free port, and prints it.
inline int listen_at(const char* host, int flags) {
    const int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    sockaddr_in address = address_of(host, 0);
    socklen_t size = sizeof(address);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        fail("listening");
    }
    say_port(ntohs(address.sin_port));
    return fd;
}

inline void set_no_delay(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

inline int connect_to(const sockaddr_in& address) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        fail("connecting");
    }
    set_no_delay(fd);
    return fd;
}

}  // namespace network
