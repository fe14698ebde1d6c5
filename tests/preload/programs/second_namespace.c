// Loads libcuda into a second namespace. That copy is another driver: its functions must stay its own.
#include "fixture.h"
int main(void) {
    void *other = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    if (!other) return printf("%s\n", dlerror()), 1;
    struct driver d;
    int (*init)(unsigned) = dlsym(other, "cuInit"), (*alloc)(ptr_t *, size_t) = dlsym(other, "cuMemAlloc_v2");
    Dl_info info;
    printf("in its own library: %d\n", dladdr(alloc, &info) && strstr(info.dli_fname, "libcuda.so.1"));
    ptr_t p;
    printf("%d %d\n", init(0), alloc(&p, 4096));
    if (!load_driver(&d)) return 1;
    use(&d, "first namespace");
    printf("two copies: %d\n", (void *)d.alloc != (void *)alloc);
    printf("still its own: %d\n", dlsym(other, "cuMemAlloc_v2") == (void *)alloc);
    report();
    return 0;
}
