/* Breaks connections of UCX's over TCP as they are made, for tests: to be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { NOTHING, CONNECTIONS, SERVER, REQUESTS };
static volatile int breaks;
static volatile int count;
static volatile pid_t victim;
static int control;             /* a port that stays as it is */
static struct sockaddr_in gone; /* where nobody listens any more */

/* Connections to other ports are reset once they are made, and then refused. */
void break_connections(int port) {
    gone.sin_port = 0;
    control = port;
    breaks = CONNECTIONS;
}

/* The next connection to another port is made, and then this process is killed. */
void break_server(int port, int pid) {
    control = port;
    victim = pid;
    breaks = SERVER;
}

/* A connection is over before UCX has sent its request on it, and no other one can be made. */
void break_requests(void) {
    gone.sin_port = 0;
    breaks = REQUESTS;
}

/* How many were broken, and will be no more. */
int mend(void) {
    breaks = NOTHING;
    return count;
}

static int make_and_reset(int fd) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof(gone);
    gone = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void*)&gone, size) || listen(listener, 1) ||
        getsockname(listener, (void*)&gone, &size)) {
        abort();
    }
    const int result = REAL(connect)(fd, (void*)&gone, sizeof(gone));
    const int error = errno;
    const int accepted = accept(listener, NULL, NULL);
    const struct linger reset = {.l_onoff = 1};
    setsockopt(accepted, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(accepted);
    close(listener);
    gone.sin_port = htons(1); /* the listener's may soon be another process's */
    ++count;
    errno = error;
    return result;
}

int connect(int fd, const struct sockaddr* address, socklen_t size) {
    const struct sockaddr_in* const v4 = (const void*)address;
    if (breaks == NOTHING || address->sa_family != AF_INET || ntohs(v4->sin_port) == control) {
        return REAL(connect)(fd, address, size);
    }
    if (breaks == CONNECTIONS && gone.sin_port == 0) {
        return make_and_reset(fd);
    }
    if (breaks == SERVER) {
        breaks = NOTHING;
        const int result = REAL(connect)(fd, address, size);
        const int error = errno;
        ++count;
        kill(victim, SIGKILL);
        struct pollfd end = {.fd = fd, .events = POLLIN};
        poll(&end, 1, 20000); /* until its sockets are closed */
        errno = error;
        return result;
    }
    return REAL(connect)(fd, gone.sin_port == 0 ? address : (void*)&gone, size);
}

/* The head of a message that makes a connection, uct/tcp: its kind, its length, a request. */
enum { KIND = 32, HEAD = 9, REQUEST = 1 };

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
    const unsigned char* const head = bytes;
    if (breaks == REQUESTS && size >= HEAD && head[0] == KIND && head[5] == REQUEST) {
        gone = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(1)};
        gone.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ++count;
        shutdown(fd, SHUT_RDWR);
    }
    return REAL(send)(fd, bytes, size, flags);
}
