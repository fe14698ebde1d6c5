// A file system that says it is NFS, for everything below the directory REMOTE, and one that takes 250 ms for each write, below
// the directory SLOW.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

// Whether a descriptor is of a file below the directory that a variable names.
static int below(int fd, const char *variable)
{
    const char *directory = getenv(variable);
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || !directory)
        return 0;
    path[length] = 0;
    return strncmp(path, directory, strlen(directory)) == 0;
}

int fstatfs(int fd, struct statfs *found)
{
    int done = syscall(SYS_fstatfs, fd, found);
    if (below(fd, "REMOTE"))
        found->f_type = 0x6969;
    return done;
}

int fstatfs64(int fd, struct statfs64 *found)
{
    return fstatfs(fd, (struct statfs *)found);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    if (below(fd, "SLOW"))
        usleep(250000);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}
