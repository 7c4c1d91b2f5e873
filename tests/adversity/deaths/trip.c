/* Hurts the process that it is preloaded into, or one of its connections, at an exact byte: it ends
 * or stops itself, resets the connection, or changes what comes. A call of arm() begins, and each
 * call hurts once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* tests/adversity/deaths/trips.py has these numbers, too. */
enum { NOTHING, CONNECT, SEND, RECEIVE };
enum { CONTROL = 1, DATA = 2, UNIX = 4 };
enum { KILL, STOP, RESET, DROP, REPEAT, FLIP };
enum { MOST = 4096, MOST_PIECES = 1024 };

static volatile int event;  /* what is counted, until it has hurt */
static volatile int sockets; /* of which sockets: a sum */
static volatile int control; /* the port of the control connection */
static volatile long left;   /* bytes until it hurts */
static volatile int action;
static volatile long amount;
static volatile int count;

static volatile long to_drop;
static volatile int repeating = -1; /* the socket */
static volatile long to_repeat;
static char again[MOST];

void arm(int what, int of, int port, long after, int how, long bytes) {
    event = NOTHING;
    sockets = of;
    control = port;
    left = after;
    action = how;
    amount = bytes < MOST ? bytes : MOST;
    to_drop = to_repeat = 0;
    repeating = -1;
    event = what;
}

/* How often it has hurt. */
int tripped(void) { return count; }

static int kind_of(const struct sockaddr_storage* address, socklen_t size) {
    if (address->ss_family == AF_UNIX) {
        return size > offsetof(struct sockaddr_un, sun_path) ? UNIX : 0;
    }
    if (address->ss_family != AF_INET) {
        return 0;
    }
    return ntohs(((const struct sockaddr_in*)address)->sin_port) == control ? CONTROL : DATA;
}

static int kind_of_socket(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof(here), there_size = sizeof(there);
    int type = 0;
    socklen_t size = sizeof(type);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_STREAM ||
        getsockname(fd, (void*)&here, &here_size) || getpeername(fd, (void*)&there, &there_size)) {
        return 0;
    }
    const int one = kind_of(&here, here_size);
    const int other = kind_of(&there, there_size);
    return one == CONTROL || other == CONTROL ? CONTROL : one | other;
}

static int counts(int what, int fd) {
    const int saved = errno;
    const int yes = event == what && (kind_of_socket(fd) & sockets) != 0;
    errno = saved;
    return yes;
}

/* Each of these hurts once. */
static int take(int what) { return __sync_bool_compare_and_swap(&event, what, NOTHING); }

static void hurt(int what, int fd) {
    if (!take(what)) {
        return;
    }
    ++count;
    if (action == RESET) {
        /* The kernel resets a connection that is dissolved. */
        const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
        REAL(connect)(fd, &nowhere, sizeof(nowhere));
        return;
    }
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), action == KILL ? SIGKILL : SIGSTOP);
}

static int changes(void) { return action >= DROP; }

int connect(int fd, const struct sockaddr* address, socklen_t size) {
    struct sockaddr_storage there = {0};
    memcpy(&there, address, size < sizeof(there) ? size : sizeof(there));
    const int is_it = event == CONNECT && (kind_of(&there, size) & sockets) != 0;
    if (is_it && left == 0) {
        hurt(CONNECT, fd);
    }
    const int result = REAL(connect)(fd, address, size);
    if (is_it && left > 0) {
        const int saved = errno;
        hurt(CONNECT, fd);
        errno = saved;
    }
    return result;
}

int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
    struct sockaddr_storage here = {0};
    socklen_t here_size = sizeof(here);
    const int is_it = event == CONNECT && getsockname(fd, (void*)&here, &here_size) == 0 &&
                      (kind_of(&here, here_size) & sockets) != 0;
    if (is_it && left == 0) {
        hurt(CONNECT, fd);
    }
    const int result = REAL(accept4)(fd, address, size, flags);
    if (is_it && left > 0 && result >= 0) {
        hurt(CONNECT, result);
    }
    return result;
}

int accept(int fd, struct sockaddr* address, socklen_t* size) {
    return accept4(fd, address, size, 0);
}

/* Has `moved` bytes go by, of as many as are left. */
static ssize_t pass(int what, int fd, ssize_t moved) {
    if (moved > 0 && __sync_sub_and_fetch(&left, moved) <= 0) {
        const int saved = errno;
        hurt(what, fd);
        errno = saved;
    }
    return moved;
}

/* True where it hurts before any byte. */
static int at_once(int what, int fd) {
    if (left > 0) {
        return 0;
    }
    hurt(what, fd);
    return action == RESET;
}

static ssize_t was_reset(void) {
    errno = ECONNRESET;
    return -1;
}

/* The first `size` bytes of these pieces; at most MOST_PIECES of them. */
static size_t cut(struct iovec* out, const struct iovec* in, size_t number, size_t size) {
    size_t taken = 0;
    for (size_t i = 0; i < number && i < MOST_PIECES && size > 0; ++i) {
        out[taken] = in[i];
        if (out[taken].iov_len > size) {
            out[taken].iov_len = size;
        }
        size -= out[taken++].iov_len;
    }
    return taken;
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
    if (size == 0 || !counts(SEND, fd)) {
        return REAL(send)(fd, bytes, size, flags);
    }
    if (at_once(SEND, fd)) {
        return was_reset();
    }
    const long most = left;
    const size_t part = most > 0 && (size_t)most < size ? (size_t)most : size;
    return pass(SEND, fd, REAL(send)(fd, bytes, part, flags));
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
    if (message->msg_iovlen == 0 || !counts(SEND, fd)) {
        return REAL(sendmsg)(fd, message, flags);
    }
    if (at_once(SEND, fd)) {
        return was_reset();
    }
    struct iovec pieces[MOST_PIECES];
    struct msghdr part = *message;
    const long most = left;
    if (most > 0) {
        part.msg_iovlen = cut(pieces, message->msg_iov, message->msg_iovlen, (size_t)most);
        part.msg_iov = pieces;
    }
    return pass(SEND, fd, REAL(sendmsg)(fd, &part, flags));
}

/* What has come, changed as it was asked for. */
static ssize_t change(int fd, char* bytes, ssize_t got) {
    if (got <= 0) {
        return got;
    }
    ssize_t begin = 0;
    if (event == RECEIVE) {
        begin = left < got ? left : got;
        left -= begin;
        if (begin == got) {
            return got;
        }
        if (!take(RECEIVE)) {
            return got;
        }
        ++count;
        if (action == FLIP) {
            bytes[begin] ^= 4;
        } else if (action == DROP) {
            to_drop = amount;
        } else {
            to_repeat = amount < got - begin ? amount : got - begin;
            memcpy(again, bytes + begin, (size_t)to_repeat);
            repeating = fd;
        }
    }
    const ssize_t dropped = to_drop < got - begin ? to_drop : got - begin;
    memmove(bytes + begin, bytes + begin + dropped, (size_t)(got - begin - dropped));
    to_drop -= dropped;
    return got - dropped;
}

static ssize_t receive(int fd, char* bytes, size_t size, int flags) {
    if (repeating == fd && to_repeat > 0 && !(flags & MSG_PEEK)) {
        const size_t part = (size_t)to_repeat < size ? (size_t)to_repeat : size;
        memcpy(bytes, again, part);
        memmove(again, again + part, (size_t)to_repeat - part);
        to_repeat -= (long)part;
        return (ssize_t)part;
    }
    for (;;) {
        const ssize_t got = REAL(recv)(fd, bytes, size, flags);
        const ssize_t kept = change(fd, bytes, got);
        if (kept != 0 || got <= 0) {
            return kept;
        }
    }
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
    if (size > 0 && changes() && (event == RECEIVE || to_drop > 0 || to_repeat > 0)) {
        return kind_of_socket(fd) & sockets ? receive(fd, bytes, size, flags)
                                            : REAL(recv)(fd, bytes, size, flags);
    }
    if (size == 0 || flags & MSG_PEEK || !counts(RECEIVE, fd)) {
        return REAL(recv)(fd, bytes, size, flags);
    }
    if (at_once(RECEIVE, fd)) {
        return was_reset();
    }
    const long most = left;
    const size_t part = most > 0 && (size_t)most < size ? (size_t)most : size;
    return pass(RECEIVE, fd, REAL(recv)(fd, bytes, part, flags));
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    if (message->msg_iovlen == 0 || changes() || !counts(RECEIVE, fd)) {
        return REAL(recvmsg)(fd, message, flags);
    }
    if (at_once(RECEIVE, fd)) {
        return was_reset();
    }
    struct iovec pieces[MOST_PIECES];
    struct iovec* const whole = message->msg_iov;
    const size_t number = message->msg_iovlen;
    const long most = left;
    if (most > 0) {
        message->msg_iovlen = cut(pieces, whole, number, (size_t)most);
        message->msg_iov = pieces;
    }
    const ssize_t got = REAL(recvmsg)(fd, message, flags);
    message->msg_iov = whole;
    message->msg_iovlen = number;
    return pass(RECEIVE, fd, got);
}
