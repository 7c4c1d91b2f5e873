// Shows ThreadSanitizer the locks that are waited for with a deadline. The C++ library takes them
// by `pthread_mutex_clocklock`, which GCC 12's ThreadSanitizer does not know: it would report that
// what nobody locked is unlocked.
#ifdef __SANITIZE_THREAD__
#include <pthread.h>
#include <time.h>

extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* deadline) noexcept {
    timespec now{};
    timespec same{};
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &same);
    constexpr long kSecond = 1'000'000'000;
    same.tv_sec += deadline->tv_sec - now.tv_sec;
    same.tv_nsec += deadline->tv_nsec - now.tv_nsec;
    if (same.tv_nsec < 0) {
        same.tv_nsec += kSecond;
        --same.tv_sec;
    } else if (same.tv_nsec >= kSecond) {
        same.tv_nsec -= kSecond;
        ++same.tv_sec;
    }
    return pthread_mutex_timedlock(mutex, &same);
}
#endif
