/* Makes calls of a process fail as a bad disk would, for tests. To be preloaded. FAULTS names a file
 * with a line of its own for what fails: a call, the error's number, the size of the files that it
 * fails for (0: directories), and, for a read, the first byte that cannot be read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int fails(const char* call, int fd, long long end) {
    const char* const path = getenv("FAULTS");
    FILE* const file = path == NULL ? NULL : fopen(path, "re");
    struct stat about;
    int found = 0;
    if (file == NULL || fstat(fd, &about) != 0) {
        return 0;
    }
    char name[32];
    int error;
    long long size;
    long long bad;
    while (!found && fscanf(file, "%31s %d %lld %lld", name, &error, &size, &bad) == 4) {
        const int meant = size == 0 ? S_ISDIR(about.st_mode)
                                    : S_ISREG(about.st_mode) && about.st_size == size;
        if (meant && end > bad && strcmp(name, call) == 0) {
            found = error;
        }
    }
    fclose(file);
    errno = found;
    return found;
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
    return fails("pread", fd, offset + (long long)size) ? -1 : REAL(pread)(fd, bytes, size, offset);
}

ssize_t pread64(int fd, void* bytes, size_t size, off64_t offset) {
    return fails("pread", fd, offset + (long long)size) ? -1 : REAL(pread64)(fd, bytes, size, offset);
}

int fsync(int fd) { return fails("fsync", fd, 1) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails("fdatasync", fd, 1) ? -1 : REAL(fdatasync)(fd); }
