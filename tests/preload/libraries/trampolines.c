// Like TensorFlow's: exports functions of the driver's names, each of which loads the driver on first
// use and looks the real one up; an absent driver is an error code of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
typedef unsigned long long ptr_t;
static void *driver(const char *name) {
    static void *handle;
    if (!handle) handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, name) : NULL;
}
#define TRAMPOLINE(name, parameters, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) real = driver(#name); \
        return real ? real arguments : 4242; \
    }
TRAMPOLINE(cuInit, (unsigned flags), (flags))
TRAMPOLINE(cuDevicePrimaryCtxRetain, (void **context, int device), (context, device))
TRAMPOLINE(cuCtxSetCurrent, (void *context), (context))
TRAMPOLINE(cuMemAlloc_v2, (ptr_t *p, size_t size), (p, size))
TRAMPOLINE(cuMemFree_v2, (ptr_t p), (p))
void train(void) {
    void *context = 0;
    ptr_t p = 0;
    int a = cuInit(0), b = cuDevicePrimaryCtxRetain(&context, 0), c = cuCtxSetCurrent(context);
    int d = cuMemAlloc_v2(&p, 4096), e = cuMemFree_v2(p);
    printf("%d %d %d %d %d\n", a, b, c, d, e);
}
