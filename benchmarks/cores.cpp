// Measures the round trip of a cache line between two processors.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace {

constexpr unsigned kTrips = 20'000;

struct alignas(128) Line {
    std::atomic<unsigned> value = 0;
};

void pin(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

// Nanoseconds a round trip, on average.
extern "C" double round_trip_ns(int one, int other) {
    Line there;
    Line back;
    std::thread echo([&] {
        pin(other);
        for (unsigned trip = 1; trip <= kTrips; ++trip) {
            while (there.value.load(std::memory_order_acquire) != trip) {
            }
            back.value.store(trip, std::memory_order_release);
        }
    });
    double result = 0;
    std::thread ping([&] {
        pin(one);
        const auto start = std::chrono::steady_clock::now();
        for (unsigned trip = 1; trip <= kTrips; ++trip) {
            there.value.store(trip, std::memory_order_release);
            while (back.value.load(std::memory_order_acquire) != trip) {
            }
        }
        result = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
                     .count() /
                 kTrips;
    });
    ping.join();
    echo.join();
    return result;
}
