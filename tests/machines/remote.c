// A file system that says it is NFS: for everything below the directory REMOTE.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

int fstatfs(int fd, struct statfs *found)
{
    const char *remote = getenv("REMOTE");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int done = syscall(SYS_fstatfs, fd, found);
    if (length > 0 && remote) {
        path[length] = 0;
        if (strncmp(path, remote, strlen(remote)) == 0)
            found->f_type = 0x6969;
    }
    return done;
}

int fstatfs64(int fd, struct statfs64 *found)
{
    return fstatfs(fd, (struct statfs *)found);
}
