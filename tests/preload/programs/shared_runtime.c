// Loads NVIDIA's own runtime library, named by the first argument, and requests memory from it.
#include "fixture.h"
int main(int argc, char **argv) {
    void *runtime = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
    if (!runtime) return printf("%s\n", dlerror()), 1;
    int (*allocate)(void **, size_t) = dlsym(runtime, "cudaMalloc"), (*count)(int *) = dlsym(runtime, "cudaGetDeviceCount");
    void *p = 0;
    int devices = 0;
    printf("count %d, malloc %d\n", count(&devices), allocate(&p, 4096));
    report();
    return 0;
}
