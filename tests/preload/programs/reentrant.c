// The driver's initialiser itself calls dlsym and the driver, from two threads at once.
#include "fixture.h"
static void *load(void *unused) {
    (void)unused;
    struct driver d = {0};
    d.handle = dlopen("libcuda.so.1", RTLD_NOW);
    ptr_t p = 0;
    int (*alloc)(ptr_t *, size_t) = dlsym(d.handle, "cuMemAlloc_v2");
    return (void *)(long)(alloc ? alloc(&p, 16) : 99);
}
int main(void) {
    pthread_t threads[8];
    void *result;
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, load, 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], &result), printf("%ld\n", (long)result);
    report();
    return 0;
}
