/* Changes bits of what a process receives from the network, for tests. To be preloaded. A call of
 * alter() makes the next bytes that come in, and are these, differ in one bit: once. After
 * alter_some() it is any byte in the midst of the next ones that come in together, and are as many at
 * least: for what is encrypted, which nobody knows. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { MOST = 64 };
static char wanted[MOST];
static volatile size_t wanted_size;
static volatile size_t wanted_together;
static volatile int count;

void alter(const char* bytes, size_t size) {
    wanted_size = 0;
    memcpy(wanted, bytes, size < MOST ? size : MOST);
    wanted_size = size < MOST ? size : MOST;
}

void alter_some(size_t least) { wanted_together = least; }

int altered(void) { return count; }

static ssize_t change(void* bytes, ssize_t size) {
    if (wanted_together != 0 && size >= (ssize_t)wanted_together) {
        ((char*)bytes)[size / 16 * 5] ^= 4;  /* of no header: those are near to 64 KiB apart */
        wanted_together = 0;
        ++count;
    }
    if (wanted_size == 0 || size <= 0) {
        return size;
    }
    char* const found = memmem(bytes, (size_t)size, wanted, wanted_size);
    if (found != NULL) {
        found[wanted_size / 2] ^= 4;
        wanted_size = 0;
        ++count;
    }
    return size;
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
    return change(bytes, REAL(recv)(fd, bytes, size, flags));
}

ssize_t read(int fd, void* bytes, size_t size) { return change(bytes, REAL(read)(fd, bytes, size)); }

static ssize_t in_pieces(const struct iovec* pieces, size_t number, const ssize_t got) {
    ssize_t left = got;
    for (size_t i = 0; i < number && left > 0; ++i) {
        const ssize_t here = left < (ssize_t)pieces[i].iov_len ? left : (ssize_t)pieces[i].iov_len;
        change(pieces[i].iov_base, here);
        left -= here;
    }
    return got;
}

ssize_t readv(int fd, const struct iovec* pieces, int number) {
    return in_pieces(pieces, (size_t)number, REAL(readv)(fd, pieces, number));
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    const ssize_t got = REAL(recvmsg)(fd, message, flags);
    return in_pieces(message->msg_iov, message->msg_iovlen, got);
}
