// Events for Python's loggers. Native threads put them into a queue and never wait for whoever logs
// them; while nobody listens, an event costs one load.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/event_fd.hpp"
#include "base/mutex.hpp"

namespace ucxstore::base::log {

// The numbers of Python's logging.
enum Level : int { debug = 10, info = 20, warning = 30, off = 1'000'000 };

// The logger that an event is for: ucxstore.client, ucxstore.server.
enum class Area : std::uint8_t { client, server };
inline constexpr std::size_t kAreas = 2;

enum class EventKind : std::uint8_t {
    connected,
    closed,
    lost,
    refused,
    slow_request,
    evicted,
    kicked,
    request,
};

// What happened. Texts are cut to what a Record holds of them.
struct Event {
    Area area;
    Level level;
    EventKind kind;
    std::string_view peer = {};
    std::string_view key = {};
    std::string_view detail = {};  // the cause, or what was connected by
    std::uint64_t count = 0;       // of what it is about: requests, values
    std::uint64_t bytes = 0;
    double seconds = 0;
};

template <std::size_t capacity>
class EventText {
  public:
    EventText& operator=(std::string_view text) {
        size_ = text.copy(bytes_.data(), capacity);
        return *this;
    }
    std::string_view view() const { return {bytes_.data(), size_}; }

  private:
    std::array<char, capacity> bytes_;
    std::size_t size_ = 0;
};

// An event in the queue.
struct Record {
    Area area;
    Level level;
    EventKind kind;
    double time;  // seconds since the epoch
    EventText<64> peer;
    EventText<256> key;
    EventText<192> detail;
    std::uint64_t count;
    std::uint64_t bytes;
    double seconds;
};

// Records on their way to the thread that logs them.
class Queue {
  public:
    explicit Queue(std::size_t capacity);

    // Any thread; it never waits for long. An event that finds no room is dropped, and counted. One
    // of a request finds none in the last quarter, which is for others, and is dropped, too, where
    // other threads have the lock all the time.
    void push(const Event& event);
    // Counts an event as dropped.
    void count_dropped() { ++dropped_; }

    struct Taken {
        std::vector<Record> records;
        std::uint64_t dropped = 0;  // since the last time
    };
    Taken take();
    // Readable while there is something to take, or somebody has called wake().
    int fd() const { return wake_.get(); }
    void wake() { wake_.set(); }

  private:
    bool try_lock_for_a_moment() TRY_ACQUIRE(true, mutex_);
    // Adds it, unless there is no room. Whether it is the first.
    bool append(const Event& event) REQUIRES(mutex_);

    const std::size_t capacity_;
    const EventFd wake_;
    Mutex taking_ ACQUIRED_BEFORE(mutex_);
    std::vector<Record> taken_ GUARDED_BY(taking_);  // empty but in take()
    Mutex mutex_;  // held only while a record is copied, or the two vectors change places
    std::vector<Record> records_ GUARDED_BY(mutex_);
    std::atomic<std::uint64_t> dropped_ = 0;
};

// What follows is one for the whole process.

// The lowest level that is wanted, of each area.
inline std::array<std::atomic<int>, kAreas> thresholds{off, off};

inline bool wants(Area area, Level level) {
    return level >= thresholds[static_cast<std::size_t>(area)].load(std::memory_order_relaxed);
}

// Queues the event, where it is wanted.
void add(const Event& event);

// The process's queue, made at the first call. It is never destroyed.
Queue& queue();

// Wants events from these levels on; `off` for none.
void listen(int client, int server);

// Requests that take longer are reported as slow; 0 for none.
void set_slow_request(double seconds);
double slow_request();

// In a forked child: the parent's queue is left alone, for its lock may be taken.
void forget_in_child();

// Reports many small events as one, at most every few seconds. Not thread-safe.
class Evictions {
  public:
    explicit Evictions(const char* cache) : cache_(cache) {}
    Evictions(const Evictions&) = delete;
    Evictions& operator=(const Evictions&) = delete;
    ~Evictions() { report(); }
    void add(std::uint64_t bytes);

  private:
    void report();

    const char* const cache_;
    std::uint64_t count_ = 0;
    std::uint64_t bytes_ = 0;
    double reported_ = 0;
};

}  // namespace ucxstore::base::log
