// Linked with NVIDIA's own runtime, statically. It refuses to run on a driver that is not NVIDIA's; up
// to there, with and without weir must be the same.
#include "fixture.h"
int cudaMalloc(void **, size_t), cudaGetDeviceCount(int *), cudaFree(void *), cudaDriverGetVersion(int *);
int main(void) {
    void *p = 0;
    int count = 0, version = 0;
    printf("version %d", cudaDriverGetVersion(&version));
    printf(" %d, count %d", version, cudaGetDeviceCount(&count));
    printf(" %d, malloc %d, free %d\n", count, cudaMalloc(&p, 4096), cudaFree(0));
    report();
    return 0;
}
