// What every fixture shares: the few driver functions it calls, declared by hand, and how it reports what
// weir saw. A fixture prints results on stdout, the same with and without the preload; the status that
// weir reports goes to descriptor 3, which only the suite reads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long ptr_t;
typedef void *handle_t;
int cuInit(unsigned);
int cuDriverGetVersion(int *);
int cuDeviceGetCount(int *);
int cuDeviceTotalMem_v2(size_t *, int);
int cuDevicePrimaryCtxRetain(handle_t *, int);
int cuCtxCreate_v2(handle_t *, unsigned, int);
int cuCtxDestroy_v2(handle_t);
int cuCtxSetCurrent(handle_t);
int cuCtxGetCurrent(handle_t *);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(ptr_t *, size_t);
int cuMemAllocAsync(ptr_t *, size_t, handle_t);
int cuMemFree_v2(ptr_t);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemFreeHost(void *);
int cuStreamCreate(handle_t *, unsigned);
int cuStreamSynchronize(handle_t);
int cuStreamDestroy_v2(handle_t);
int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);

// The driver of a fixture that is not linked with it: dlopen and dlsym, as frameworks do.
struct driver {
    void *handle;
    int (*init)(unsigned);
    int (*retain)(handle_t *, int);
    int (*set_current)(handle_t);
    int (*alloc)(ptr_t *, size_t);
    int (*free)(ptr_t);
    int (*info)(size_t *, size_t *);
    int (*synchronize)(void);
    int (*find)(const char *, void **, int, unsigned long long, int *);
};

static inline int load_driver(struct driver *d) {
    d->handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->handle) return 0;
    d->init = dlsym(d->handle, "cuInit");
    d->retain = dlsym(d->handle, "cuDevicePrimaryCtxRetain");
    d->set_current = dlsym(d->handle, "cuCtxSetCurrent");
    d->alloc = dlsym(d->handle, "cuMemAlloc_v2");
    d->free = dlsym(d->handle, "cuMemFree_v2");
    d->info = dlsym(d->handle, "cuMemGetInfo_v2");
    d->synchronize = dlsym(d->handle, "cuCtxSynchronize");
    d->find = dlsym(d->handle, "cuGetProcAddress_v2");
    return d->init && d->retain && d->set_current && d->alloc && d->free && d->info && d->find;
}

// Initialises, makes device 0 current, allocates and frees; prints each result.
static inline void use(struct driver *d, const char *who) {
    handle_t context;
    ptr_t p = 0;
    size_t total = 0;
    int a = d->init(0), b = d->retain(&context, 0), c = d->set_current(context);
    int e = d->alloc(&p, 1 << 20), f = d->info(0, &total), g = d->free(p);
    printf("%s: %d %d %d %d %d %d, %zu bytes\n", who, a, b, c, e, f, g, total);
    fflush(stdout);
}

// The same for a fixture linked with the driver.
static inline void use_linked(const char *who) {
    struct driver d = {0, cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2, cuCtxSynchronize, cuGetProcAddress_v2};
    use(&d, who);
}

// Whose function this is, in words that are the same with and without weir.
static inline const char *whose(void *address) {
    Dl_info info;
    if (!address) return "nobody";
    if (!dladdr(address, &info)) return "somebody";
    const char *name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    return strstr(name, "libweir.so") || strstr(name, "libcuda") ? "the driver" : name;
}

static inline void report(void) {
    size_t (*status)(char *, size_t) = dlsym(RTLD_DEFAULT, "weir_status");
    if (!status) return;
    size_t size = status(0, 0) + 4096;
    char *text = malloc(size);
    status(text, size);
    dprintf(3, "%s\n", text);
    free(text);
}
