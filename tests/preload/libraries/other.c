// Another preload library: wraps cuMemAlloc_v2, getpid and malloc, and finds the next ones by RTLD_NEXT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/types.h>
#define NEXT(name) ({ static void *next; if (!next) next = dlsym(RTLD_NEXT, name); next; })
int other_calls;
int cuMemAlloc_v2(unsigned long long *p, size_t size) {
    other_calls++;
    return ((int (*)(unsigned long long *, size_t))NEXT("cuMemAlloc_v2"))(p, size);
}
pid_t getpid(void) { return ((pid_t(*)(void))NEXT("getpid"))() + 1000; }
void *malloc(size_t size) { return ((void *(*)(size_t))NEXT("malloc"))(size); }
