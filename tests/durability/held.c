/* Holds a call of a process up as a slow file system would, for tests. To be preloaded. HELD names a
 * file with the name of the call. The first such call says so in HELD.now, and waits until HELD is
 * gone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_int once;

static void hold(const char* call) {
    const char* const path = getenv("HELD");
    char name[32] = "";
    char now[4096];
    FILE* const file = path == NULL ? NULL : fopen(path, "re");
    if (file == NULL) {
        return;
    }
    const int read = fscanf(file, "%31s", name);
    fclose(file);
    if (read != 1 || strcmp(name, call) != 0 || atomic_exchange(&once, 1) != 0) {
        return;
    }
    snprintf(now, sizeof(now), "%s.now", path);
    close(open(now, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    while (access(path, F_OK) == 0) {
        usleep(2000);
    }
}

int fdatasync(int fd) {
    hold("fdatasync");
    return REAL(fdatasync)(fd);
}

int linkat(int from, const char* old, int to, const char* new, int flags) {
    hold("linkat");
    return REAL(linkat)(from, old, to, new, flags);
}

int renameat(int from, const char* old, int to, const char* new) {
    hold("renameat");
    return REAL(renameat)(from, old, to, new);
}

int unlinkat(int at, const char* path, int flags) {
    if (flags == 0) {
        hold("unlinkat");
    }
    return REAL(unlinkat)(at, path, flags);
}
