// A driver for tests that need one the virtual GPU is not: functions that the headers do not know, a
// newer version with another signature, addresses that are handed out and not exported, an initialiser
// that calls back, a wait without end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long ptr_t;
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { return *version = 99990, 0; }
int cuMemAlloc_v2(ptr_t *p, size_t size) { return *p = 0x1000 + size, 0; }
int cuMemBrandNew(void) { return 4711; }
int cuCtxSynchronize(void) { for (;;) sleep(1000); }
// One address for both stream variants, as a driver may have it.
int cuMemAllocAsync(ptr_t *p, size_t size, void *stream) { return *p = 0x2000 + size, stream != 0; }
int cuMemAllocAsync_ptsz(ptr_t *, size_t, void *) __attribute__((alias("cuMemAllocAsync")));
static int alloc_v9(ptr_t *p, size_t size, int third) { return (void)p, (void)size, third * 2; }
static int free_inside(ptr_t p) { return (int)p + 1; }
int cuGetProcAddress_v2(const char *name, void **p, int version, unsigned long long flags, int *status) {
    (void)flags;
    *p = 0;
    if (!strcmp(name, "cuMemAlloc")) *p = version >= 90000 ? (void *)alloc_v9 : (void *)cuMemAlloc_v2;
    if (!strcmp(name, "cuMemAllocAsync")) *p = (void *)cuMemAllocAsync;
    if (!strcmp(name, "cuMemFree")) *p = (void *)free_inside;
    if (!strcmp(name, "cuMemBrandNew")) *p = (void *)cuMemBrandNew;
    if (status) *status = *p ? 0 : 1;
    return *p ? 0 : 500;
}
#ifdef CALLS_BACK
extern int cuMemAlloc_v2(ptr_t *, size_t) __attribute__((visibility("default")));
__attribute__((constructor)) static void initialise(void) {
    usleep(20000);
    ptr_t p;
    int (*found)(ptr_t *, size_t) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    if (found) found(&p, 1);
    cuMemAlloc_v2(&p, 1);
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (self && (found = dlsym(self, "cuMemAlloc_v2"))) found(&p, 1);
}
#endif
