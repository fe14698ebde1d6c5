// A driver that is newer, older and odder than the headers: unknown versions pass through untouched.
#include "fixture.h"
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*find)(const char *, void **, int, unsigned long long, int *) = dlsym(driver, "cuGetProcAddress_v2");
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    printf("init %d\n", init(0));
    void *p = 0;
    int status, r = find("cuMemAlloc", &p, 99000, 0, &status);
    printf("newer: %d, three arguments make %d\n", r, ((int (*)(ptr_t *, size_t, int))p)(0, 0, 5));
    r = find("cuMemAlloc", &p, 12000, 0, &status);
    ptr_t q = 0;
    printf("known: %d, %d", r, ((int (*)(ptr_t *, size_t))p)(&q, 5));
    printf(" %llx\n", q);
    r = find("cuMemFree", &p, 12000, 0, &status);
    printf("not exported: %d, %d\n", r, ((int (*)(ptr_t))p)(5));
    void *legacy = 0, *thread = 0;
    find("cuMemAllocAsync", &legacy, 12000, 1, &status);
    find("cuMemAllocAsync", &thread, 12000, 2, &status);
    printf("variants at one address: %d", ((int (*)(ptr_t *, size_t, void *))legacy)(&q, 1, 0));
    printf(" %d", ((int (*)(ptr_t *, size_t, void *))thread)(&q, 2, 0));
    printf(" %d\n", ((int (*)(ptr_t *, size_t, void *))thread)(&q, 3, 0));
    r = find("cuMemBrandNew", &p, 12000, 0, &status);
    printf("brand new: %d, %d\n", r, ((int (*)(void))p)());
    printf("missing: %s\n", whose(dlsym(driver, "cuMemAllocPitch_v2")));
    printf("brand new by dlsym: %d\n", ((int (*)(void))dlsym(driver, "cuMemBrandNew"))());
    report();
    return 0;
}
