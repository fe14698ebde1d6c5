// dlvsym, on a driver whose symbols have versions and on libc.
#include "fixture.h"
static void look(const char *what, void *found) { printf("%s: %s, %s\n", what, whose(found), dlerror() ? "an error" : "no error"); }
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    look("right version", dlvsym(driver, "cuMemAlloc_v2", "DRIVER_1"));
    look("wrong version", dlvsym(driver, "cuMemAlloc_v2", "DRIVER_9"));
    look("unhooked", dlvsym(driver, "cuDriverGetVersion", "DRIVER_1"));
    look("default scope", dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "DRIVER_1"));
    look("libc", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5"));
    look("next", dlvsym(RTLD_NEXT, "qsort", "GLIBC_2.2.5"));
    int (*alloc)(ptr_t *, size_t) = dlvsym(driver, "cuMemAlloc_v2", "DRIVER_1");
    ptr_t p;
    printf("call: %d\n", alloc(&p, 77));
    void *(*again)(void *, const char *) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    look("dlsym found by dlvsym", again(driver, "cuMemAlloc_v2"));
    report();
    return 0;
}
