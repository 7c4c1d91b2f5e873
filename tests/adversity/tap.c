/* Records what a process receives over TCP, for tests: to be preloaded. A call of tap() begins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static volatile int record = -1;

int tap(const char* path) {
    return record = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}

static int is_tcp(int fd) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
           (domain == AF_INET || domain == AF_INET6);
}

static ssize_t note(int fd, const void* bytes, ssize_t size) {
    if (record >= 0 && size > 0 && is_tcp(fd) && write(record, bytes, (size_t)size) != size) {
        _exit(70);
    }
    return size;
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
    const ssize_t got = REAL(recv)(fd, bytes, size, flags);
    return flags & MSG_PEEK ? got : note(fd, bytes, got);
}

ssize_t read(int fd, void* bytes, size_t size) { return note(fd, bytes, REAL(read)(fd, bytes, size)); }

static ssize_t in_pieces(int fd, const struct iovec* pieces, size_t number, const ssize_t got) {
    ssize_t left = got;
    for (size_t i = 0; i < number && left > 0; ++i) {
        const ssize_t here = left < (ssize_t)pieces[i].iov_len ? left : (ssize_t)pieces[i].iov_len;
        note(fd, pieces[i].iov_base, here);
        left -= here;
    }
    return got;
}

ssize_t readv(int fd, const struct iovec* pieces, int number) {
    return in_pieces(fd, pieces, (size_t)number, REAL(readv)(fd, pieces, number));
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    const ssize_t got = REAL(recvmsg)(fd, message, flags);
    return flags & MSG_PEEK ? got : in_pieces(fd, message->msg_iov, message->msg_iovlen, got);
}
