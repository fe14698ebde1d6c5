// cuGetProcAddress in both generations, every flag, pinned old versions, unknown names; each result
// must work and must be what name, version and flags mean.
#include "fixture.h"
typedef int (*first_t)(const char *, void **, int, unsigned long long);
int main(void) {
    struct driver d;
    if (!load_driver(&d)) return 1;
    use(&d, "main");
    const char *names[] = {"cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuMemcpyHtoD", "cuMemGetInfo", "cuStreamSynchronize", "cuInit", "cuGetProcAddress", "cuCtxCreate", "cuNoSuchFunction", ""};
    int versions[] = {2000, 3020, 7000, 11020, 12000, 12080, 99000};
    first_t first = (first_t)dlsym(d.handle, "cuGetProcAddress");
    for (int n = 0; n < 11; n++)
        for (int v = 0; v < 7; v++)
            for (int flags = 0; flags < 4; flags++) {
                void *p = (void *)1, *q = (void *)1;
                int status = 77, r = d.find(names[n], &p, versions[v], flags, &status);
                int s = first(names[n], &q, versions[v], flags);
                printf("%s %d %d: %d %d %s %d %s\n", names[n], versions[v], flags, r, status, whose(p == (void *)1 ? 0 : p), s, p == q ? "same" : "different");
            }
    printf("%d %d\n", d.find(0, &(void *){0}, 12000, 0, 0), d.find("cuInit", 0, 12000, 0, 0));
    void *old = 0, *legacy = 0, *thread = 0;
    d.find("cuMemAlloc", &old, 2000, 0, 0);
    unsigned small[2] = {0, 0xfeedbeef}; // the first generation writes 32 bits
    printf("old: %d %x\n", ((int (*)(unsigned *, unsigned))old)(small, 0), small[1]);
    d.find("cuStreamSynchronize", &legacy, 12000, 1, 0);
    d.find("cuStreamSynchronize", &thread, 12000, 2, 0);
    printf("variants differ: %d, %d %d\n", legacy != thread, ((int (*)(void *))legacy)(0), ((int (*)(void *))thread)(0));
    report();
    return 0;
}
