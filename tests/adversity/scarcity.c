/* Lets a process run out of something, for tests: the n-th call that asks for it fails, and the
 * ones after it, if so wanted. To be preloaded; tests call what begins with scarcity_. Only calls
 * of our native core, of UCX or of the others, Python above all, fail: whichever is wanted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

enum Kind { MEMORY = 1, DESCRIPTOR = 2, MAPPING = 4, THREAD = 8, DISK = 16 };
enum Caller { CORE = 1, UCX = 2, OTHERS = 4 };
enum { FRAMES = 24, PLACES = 1 << 16, PAGES = 1 << 14 };

/* What forked processes share: the places that have failed already, and what failed last. */
static struct Shared {
    _Atomic uint64_t places[PLACES];
    char report[4096];
}* shared;

static struct {
    atomic_int kinds, callers;
    atomic_long left; /* calls that still succeed; once it is below 0, so many fail */
    atomic_long counted, failed;
    long failures;   /* how many fail in a row */
    atomic_int anew; /* fail at places that have never failed */
} armed;

static __thread int busy;   /* our own calls are not looked at */
static __thread int in_new; /* the allocation of an operator new that is to fail */

/* ---- who calls ---- */

static _Atomic uint64_t pages[PAGES]; /* (page << 3 | caller) + 1 */

static enum Caller module_of(const void* address) {
    Dl_info about;
    if (dladdr(address, &about) == 0 || about.dli_fname == NULL) {
        return OTHERS;
    }
    const char* const name = strrchr(about.dli_fname, '/');
    const char* const file = name == NULL ? about.dli_fname : name + 1;
    if (strncmp(file, "_core", 5) == 0 || strncmp(file, "libstdc++", 9) == 0) {
        return CORE;
    }
    return strncmp(file, "libuc", 5) == 0 ? UCX : OTHERS;
}

static enum Caller caller_of(const void* address) {
    const uint64_t page = (uintptr_t)address >> 12;
    _Atomic uint64_t* const place = &pages[page * 2654435761u % PAGES];
    const uint64_t known = atomic_load(place);
    if (known != 0 && (known - 1) >> 3 == page) {
        return (known - 1) & 7;
    }
    busy = 1;
    const enum Caller caller = module_of(address);
    busy = 0;
    atomic_store(place, (page << 3 | caller) + 1);
    return caller;
}

/* Code whose own calls never fail: what ends the process by itself if they do. */
static struct {
    uintptr_t begin, end;
} spared[4096];
static atomic_int spared_count;

static int is_spared(const void* address) {
    const uintptr_t at = (uintptr_t)address;
    int low = 0, high = atomic_load(&spared_count);
    while (low < high) {
        const int middle = (low + high) / 2;
        if (spared[middle].end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < atomic_load(&spared_count) && spared[low].begin <= at;
}

/* UCX's own functions that end the process by ucs_fatal() or an assertion where these calls fail.
 */
static char fatal[16][64];
static atomic_int fatal_count;

static int is_fatal(const void* address) {
    Dl_info about;
    if (atomic_load(&fatal_count) == 0 || dladdr(address, &about) == 0 || about.dli_sname == NULL) {
        return 0;
    }
    for (int i = 0; i < atomic_load(&fatal_count); ++i) {
        if (strcmp(fatal[i], about.dli_sname) == 0) {
            return 1;
        }
    }
    return 0;
}

/* ---- what fails ---- */

static const char* const kNames[] = {[MEMORY] = "memory",
                                     [DESCRIPTOR] = "descriptor",
                                     [MAPPING] = "mapping",
                                     [THREAD] = "thread",
                                     [DISK] = "disk"};

static void report(enum Kind kind, void** frames, int count) {
    char* at = shared->report;
    char* const end = shared->report + sizeof(shared->report);
    char thread[16] = "";
    pthread_getname_np(pthread_self(), thread, sizeof(thread));
    at += snprintf(at, (size_t)(end - at), "%s on %s:", kNames[kind], thread);
    for (int i = 0; i < count && at < end - 200; ++i) {
        Dl_info about;
        if (dladdr(frames[i], &about) == 0) {
            continue;
        }
        const char* const name = strrchr(about.dli_fname, '/');
        at +=
            snprintf(at, (size_t)(end - at), " %s+0x%lx", name == NULL ? about.dli_fname : name + 1,
                     (unsigned long)((char*)frames[i] - (char*)about.dli_fbase));
        if (about.dli_sname != NULL) {
            at += snprintf(at, (size_t)(end - at), "(%.60s)", about.dli_sname);
        }
    }
}

/* Whether a place is one that has never failed; then it is one that has. */
static int is_new(enum Kind kind, void** frames, int count) {
    uint64_t hash = 1469598103934665603u ^ (uint64_t)kind;
    for (int i = 0; i < count; ++i) {
        hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
    }
    hash |= 1;
    for (uint64_t i = hash % PLACES;; i = (i + 1) % PLACES) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&shared->places[i], &found, hash)) {
            return 1;
        }
        if (found == hash) {
            return 0;
        }
    }
}

static int fails(enum Kind kind, const void* address) {
    if ((atomic_load(&armed.kinds) & (int)kind) == 0 || busy ||
        (caller_of(address) & atomic_load(&armed.callers)) == 0 || is_spared(address)) {
        return 0;
    }
    busy = 1;
    const int spared_name = is_fatal(address);
    busy = 0;
    if (spared_name) {
        return 0;
    }
    atomic_fetch_add(&armed.counted, 1);
    if (!atomic_load(&armed.anew) && atomic_load(&armed.left) > 0 &&
        atomic_fetch_sub(&armed.left, 1) > 1) {
        return 0;
    }
    void* frames[FRAMES];
    busy = 1;
    const int count = backtrace(frames, FRAMES);
    if (atomic_load(&armed.anew) && atomic_load(&armed.failed) == 0 &&
        !is_new(kind, frames + 2, count - 2)) {
        busy = 0;
        return 0;
    }
    const long before = atomic_fetch_add(&armed.failed, 1);
    if (before == 0) {
        report(kind, frames + 2, count - 2);
    }
    busy = 0;
    return before < armed.failures;
}

/* ---- for tests ---- */

__attribute__((constructor)) static void begin(void) {
    shared = mmap(NULL, sizeof(struct Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    void* frames[4];
    backtrace(frames, 4); /* it allocates the first time */
}

/* From now on, calls of these kinds by these callers are counted, and the n-th and some more fail;
 * with n = 0, the first one from a place that has never failed in this process's family. */
void scarcity_arm(int kinds, int callers, long n, long failures) {
    armed.failures = failures;
    shared->report[0] = 0;
    atomic_store(&armed.counted, 0);
    atomic_store(&armed.failed, 0);
    atomic_store(&armed.anew, n == 0);
    atomic_store(&armed.left, n);
    atomic_store(&armed.callers, callers);
    atomic_store(&armed.kinds, kinds);
}

/* Forgets which places have failed. */
void scarcity_forget(void) { memset((void*)shared->places, 0, sizeof(shared->places)); }

/* Spares the calls of the code between two addresses. To be called in ascending order. */
void scarcity_spare(uintptr_t begin, uintptr_t end) {
    const int count = atomic_load(&spared_count);
    if (count < (int)(sizeof(spared) / sizeof(spared[0]))) {
        spared[count].begin = begin;
        spared[count].end = end;
        atomic_store(&spared_count, count + 1);
    }
}

/* Spares the calls of a function of a shared library, by its name. */
void scarcity_spare_function(const char* name) {
    const int count = atomic_load(&fatal_count);
    if (count < (int)(sizeof(fatal) / sizeof(fatal[0]))) {
        snprintf(fatal[count], sizeof(fatal[count]), "%s", name);
        atomic_store(&fatal_count, count + 1);
    }
}

/* Nothing fails any more. How many calls would have been able to. */
long scarcity_end(void) {
    atomic_store(&armed.kinds, 0);
    return atomic_load(&armed.counted);
}

long scarcity_failed(void) {
    const long tried = atomic_load(&armed.failed);
    return tried < armed.failures ? tried : armed.failures;
}
/* Where the first one has failed; also of a process of the family that is no more. */
const char* scarcity_report(void) { return shared->report; }

/* ---- the calls ---- */

#define REAL(type, name, ...)                     \
    static type (*real)(__VA_ARGS__);             \
    if (real == NULL) {                           \
        const int looked = busy;                  \
        busy = 1;                                 \
        *(void**)&real = dlsym(RTLD_NEXT, #name); \
        busy = looked;                            \
    }
#define HERE __builtin_return_address(0)
#define UNLESS(kind, error, failure) \
    if (fails(kind, HERE)) {         \
        errno = error;               \
        return failure;              \
    }

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
    if (in_new) {
        in_new = 0;
        errno = ENOMEM;
        return NULL;
    }
    UNLESS(MEMORY, ENOMEM, NULL)
    return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
    UNLESS(MEMORY, ENOMEM, NULL)
    return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
    UNLESS(MEMORY, ENOMEM, NULL)
    return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
    if (in_new) {
        in_new = 0;
        errno = ENOMEM;
        return NULL;
    }
    UNLESS(MEMORY, ENOMEM, NULL)
    return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
    UNLESS(MEMORY, ENOMEM, NULL)
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
    UNLESS(MEMORY, ENOMEM, ENOMEM)
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

/* The library's own throw where their malloc fails. */
#define NEW(name, ...)                              \
    REAL(void*, name, __VA_ARGS__)                  \
    const int before = busy;                        \
    if (fails(MEMORY, HERE)) {                      \
        in_new = 1;                                 \
    } else {                                        \
        busy = 1; /* its malloc is no other call */ \
    }
void* _Znwm(size_t size) {
    NEW(_Znwm, size_t)
    void* const memory = real(size);
    busy = before;
    return memory;
}
void* _Znam(size_t size) {
    NEW(_Znam, size_t)
    void* const memory = real(size);
    busy = before;
    return memory;
}
void* _ZnwmSt11align_val_t(size_t size, size_t alignment) {
    NEW(_ZnwmSt11align_val_t, size_t, size_t)
    void* const memory = real(size, alignment);
    busy = before;
    return memory;
}
void* _ZnwmRKSt9nothrow_t(size_t size, const void* tag) {
    (void)tag;
    UNLESS(MEMORY, ENOMEM, NULL)
    return __libc_malloc(size == 0 ? 1 : size);
}

#define DESCRIPTOR_CALL(name, parameters, ...)   \
    int name parameters {                        \
        UNLESS(DESCRIPTOR, EMFILE, -1)           \
        REAL(int, name, DESCRIPTOR_TYPES_##name) \
        return real(__VA_ARGS__);                \
    }
#define DESCRIPTOR_TYPES_socket int, int, int
#define DESCRIPTOR_TYPES_socketpair int, int, int, int*
#define DESCRIPTOR_TYPES_accept4 int, struct sockaddr*, socklen_t*, int
#define DESCRIPTOR_TYPES_accept int, struct sockaddr*, socklen_t*
#define DESCRIPTOR_TYPES_eventfd unsigned, int
#define DESCRIPTOR_TYPES_timerfd_create int, int
#define DESCRIPTOR_TYPES_memfd_create const char*, unsigned
#define DESCRIPTOR_TYPES_epoll_create int
#define DESCRIPTOR_TYPES_epoll_create1 int
#define DESCRIPTOR_TYPES_pipe int*
#define DESCRIPTOR_TYPES_pipe2 int*, int
#define DESCRIPTOR_TYPES_dup int
DESCRIPTOR_CALL(socket, (int domain, int type, int protocol), domain, type, protocol)
DESCRIPTOR_CALL(socketpair, (int domain, int type, int protocol, int pair[2]), domain, type,
                protocol, pair)
DESCRIPTOR_CALL(accept4, (int fd, struct sockaddr* address, socklen_t* size, int flags), fd,
                address, size, flags)
DESCRIPTOR_CALL(accept, (int fd, struct sockaddr* address, socklen_t* size), fd, address, size)
DESCRIPTOR_CALL(eventfd, (unsigned value, int flags), value, flags)
DESCRIPTOR_CALL(timerfd_create, (int clock, int flags), clock, flags)
DESCRIPTOR_CALL(memfd_create, (const char* name, unsigned flags), name, flags)
DESCRIPTOR_CALL(epoll_create, (int size), size)
DESCRIPTOR_CALL(epoll_create1, (int flags), flags)
DESCRIPTOR_CALL(pipe, (int pair[2]), pair)
DESCRIPTOR_CALL(pipe2, (int pair[2], int flags), pair, flags)
DESCRIPTOR_CALL(dup, (int fd), fd)

#define MODE(last)                      \
    va_list rest;                       \
    va_start(rest, last);               \
    const int mode = va_arg(rest, int); \
    va_end(rest);
int open(const char* path, int flags, ...) {
    UNLESS(DESCRIPTOR, EMFILE, -1)
    REAL(int, open, const char*, int, ...)
    MODE(flags)
    return real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    UNLESS(DESCRIPTOR, EMFILE, -1)
    REAL(int, open64, const char*, int, ...)
    MODE(flags)
    return real(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
    UNLESS(DESCRIPTOR, EMFILE, -1)
    REAL(int, openat, int, const char*, int, ...)
    MODE(flags)
    return real(folder, path, flags, mode);
}
int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void* const argument = va_arg(rest, void*);
    va_end(rest);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        UNLESS(DESCRIPTOR, EMFILE, -1)
    }
    REAL(int, fcntl, int, int, ...)
    return real(fd, command, argument);
}
long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; ++i) {
        a[i] = va_arg(rest, long);
    }
    va_end(rest);
    if (number == SYS_openat2 || number == SYS_pidfd_open) {
        UNLESS(DESCRIPTOR, EMFILE, -1)
    } else if (number == SYS_mmap) {
        UNLESS(MAPPING, ENOMEM, -1)
    }
    REAL(long, syscall, long, ...)
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
    UNLESS(MAPPING, ENOMEM, MAP_FAILED)
    REAL(void*, mmap, void*, size_t, int, int, int, off_t)
    return real(address, length, protection, flags, fd, offset);
}
void* mremap(void* address, size_t length, size_t wanted, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void* const target = va_arg(rest, void*);
    va_end(rest);
    UNLESS(MAPPING, ENOMEM, MAP_FAILED)
    REAL(void*, mremap, void*, size_t, size_t, int, ...)
    return real(address, length, wanted, flags, target);
}
int shmget(key_t key, size_t size, int flags) {
    UNLESS(MAPPING, ENOSPC, -1)
    REAL(int, shmget, key_t, size_t, int)
    return real(key, size, flags);
}
void* shmat(int id, const void* address, int flags) {
    UNLESS(MAPPING, ENOMEM, (void*)-1)
    REAL(void*, shmat, int, const void*, int)
    return real(id, address, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
    UNLESS(THREAD, EAGAIN, EAGAIN)
    REAL(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)
    return real(thread, attributes, run, argument);
}

ssize_t write(int fd, const void* bytes, size_t size) {
    struct stat about;
    if (atomic_load(&armed.kinds) & DISK && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        UNLESS(DISK, ENOSPC, -1)
    }
    REAL(ssize_t, write, int, const void*, size_t)
    return real(fd, bytes, size);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(ssize_t, pwrite, int, const void*, size_t, off_t)
    return real(fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t)
    return real(fd, bytes, size, offset);
}
ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(ssize_t, pwritev, int, const struct iovec*, int, off_t)
    return real(fd, pieces, count, offset);
}
int ftruncate(int fd, off_t length) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(int, ftruncate, int, off_t)
    return real(fd, length);
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(int, fallocate, int, int, off_t, off_t)
    return real(fd, mode, offset, length);
}
int posix_fallocate(int fd, off_t offset, off_t length) {
    UNLESS(DISK, ENOSPC, ENOSPC)
    REAL(int, posix_fallocate, int, off_t, off_t)
    return real(fd, offset, length);
}
int mkdirat(int folder, const char* path, mode_t mode) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(int, mkdirat, int, const char*, mode_t)
    return real(folder, path, mode);
}
int linkat(int from, const char* path, int to, const char* target, int flags) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(int, linkat, int, const char*, int, const char*, int)
    return real(from, path, to, target, flags);
}
int renameat(int from, const char* path, int to, const char* target) {
    UNLESS(DISK, ENOSPC, -1)
    REAL(int, renameat, int, const char*, int, const char*)
    return real(from, path, to, target);
}
