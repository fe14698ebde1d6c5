// A preload library as checkpoint tools have one: wraps the calls of virtual memory management by RTLD_NEXT, makes every
// handle one that can be exported, and keeps a table of the handles that live.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#define NEXT(name) ({ static void *next; if (!next) next = dlsym(RTLD_NEXT, name); next; })
#define INVALID_VALUE 1
typedef unsigned long long u64;
struct prop { int type, handles, location, id; void *win32; unsigned char flags[8]; };
static u64 live[1024];
static int seen;

static int find(u64 handle) {
    for (int i = 0; i < 1024; i++)
        if (live[i] == handle) return i;
    return -1;
}

int interposer_seen(void) { return seen; }
int interposer_live(void) {
    int count = 0;
    for (int i = 0; i < 1024; i++) count += live[i] != 0;
    return count;
}

int cuMemCreate(u64 *handle, size_t size, const struct prop *given, u64 flags) {
    int (*next)(u64 *, size_t, const struct prop *, u64) = NEXT("cuMemCreate");
    if (!given || given->location != 1) return next(handle, size, given, flags);
    struct prop prop = *given;
    prop.handles |= 1;  // a file descriptor
    int code = next(handle, size, &prop, flags);
    if (code == 0) {
        live[find(0)] = *handle;
        seen++;
    }
    return code;
}

int cuMemMap(u64 at, size_t size, size_t offset, u64 handle, u64 flags) {
    if (find(handle) < 0) return INVALID_VALUE;
    return ((int (*)(u64, size_t, size_t, u64, u64))NEXT("cuMemMap"))(at, size, offset, handle, flags);
}

int cuMemRelease(u64 handle) {
    int code = ((int (*)(u64))NEXT("cuMemRelease"))(handle);
    int at = find(handle);
    if (code == 0 && at >= 0) live[at] = 0;
    return code;
}

int cuMemUnmap(u64 at, size_t size) { return ((int (*)(u64, size_t))NEXT("cuMemUnmap"))(at, size); }
int cuMemSetAccess(u64 at, size_t size, const void *access, size_t count) {
    return ((int (*)(u64, size_t, const void *, size_t))NEXT("cuMemSetAccess"))(at, size, access, count);
}
int cuMemAddressReserve(u64 *at, size_t size, size_t alignment, u64 hint, u64 flags) {
    return ((int (*)(u64 *, size_t, size_t, u64, u64))NEXT("cuMemAddressReserve"))(at, size, alignment, hint, flags);
}
