/* Records what a process does to files and directories, for tests that ask what a crash of the host
 * would leave of it. To be preloaded; FILE_RECORD names the file that it appends to. Each event is a
 * line of fields, and, of a write, the bytes behind it. A flush takes SLOW_FLUSH_US microseconds more,
 * if that is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void open_record(void) {
    const char* const path = getenv("FILE_RECORD");
    if (path != NULL) {
        record = REAL(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    }
}

static void note(const void* bytes, size_t size, const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    const struct iovec parts[2] = {{line, (size_t)length}, {(void*)bytes, size}};
    if (record >= 0 && writev(record, parts, 2) != (ssize_t)(length + (ssize_t)size)) {
        abort();
    }
}

static unsigned long long inode(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

static unsigned long long inode_at(int directory, const char* name, int flags) {
    struct stat about;
    return fstatat(directory, name, &about, flags) == 0 ? about.st_ino : 0;
}

static int opens(const char* symbol, int directory, const char* path, int flags, mode_t mode) {
    int (*const real)(int, const char*, int, ...) =
        (int (*)(int, const char*, int, ...))dlsym(RTLD_NEXT, symbol);
    if (!(flags & O_CREAT) && (flags & O_TMPFILE) != O_TMPFILE) {
        return real(directory, path, flags, mode);
    }
    pthread_mutex_lock(&lock);
    const int fd = real(directory, path, flags, mode);
    const int error = errno;
    if (fd >= 0 && directory >= 0) {
        const int named = (flags & O_TMPFILE) != O_TMPFILE;
        note(NULL, 0, "create %llu %llu %s\n", inode(fd), inode(directory), named ? path : "-");
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE                                                              \
    va_list arguments;                                                    \
    va_start(arguments, flags);                                           \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments)

int openat(int directory, const char* path, int flags, ...) {
    MODE;
    return opens("openat", directory, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
    MODE;
    return opens("openat64", directory, path, flags, mode);
}

static ssize_t writes(const char* symbol, int fd, const void* bytes, size_t size, off_t offset) {
    ssize_t (*const real)(int, const void*, size_t, off_t) =
        (ssize_t (*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, symbol);
    pthread_mutex_lock(&lock);
    const ssize_t done = real(fd, bytes, size, offset);
    const int error = errno;
    if (done > 0) {
        note(bytes, (size_t)done, "write %llu %lld %zd\n", inode(fd), (long long)offset, done);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
    return writes("pwrite", fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
    return writes("pwrite64", fd, bytes, size, offset);
}

static int syncs(int (*real)(int), int fd) {
    const unsigned long long about = inode(fd);
    pthread_mutex_lock(&lock);
    note(NULL, 0, "sync-begins %llu %lu\n", about, (unsigned long)pthread_self());
    pthread_mutex_unlock(&lock);
    const char* const slow = getenv("SLOW_FLUSH_US");
    if (slow != NULL) {
        usleep((useconds_t)atoi(slow));
    }
    const int result = real(fd);
    const int error = errno;
    pthread_mutex_lock(&lock);
    if (result == 0) {
        note(NULL, 0, "sync-ends %llu %lu\n", about, (unsigned long)pthread_self());
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int fd) { return syncs(REAL(fsync), fd); }
int fdatasync(int fd) { return syncs(REAL(fdatasync), fd); }

#define NAMING(call, ...)             \
    pthread_mutex_lock(&lock);        \
    const int result = call;          \
    const int error = errno;          \
    if (result == 0) {                \
        note(NULL, 0, __VA_ARGS__);   \
    }                                 \
    pthread_mutex_unlock(&lock);      \
    errno = error;                    \
    return result

int linkat(int from, const char* old, int to, const char* name, int flags) {
    NAMING(REAL(linkat)(from, old, to, name, flags), "link %llu %llu %s\n",
           inode_at(to, name, AT_SYMLINK_NOFOLLOW), inode(to), name);
}

int renameat(int from, const char* old, int to, const char* name) {
    NAMING(REAL(renameat)(from, old, to, name), "rename %llu %s %llu %s\n", inode(from), old,
           inode(to), name);
}

int unlinkat(int directory, const char* name, int flags) {
    NAMING(REAL(unlinkat)(directory, name, flags), "unlink %llu %s\n", inode(directory), name);
}

int mkdirat(int directory, const char* name, mode_t mode) {
    NAMING(REAL(mkdirat)(directory, name, mode), "mkdir %llu %llu %s\n",
           inode_at(directory, name, AT_SYMLINK_NOFOLLOW), inode(directory), name);
}
