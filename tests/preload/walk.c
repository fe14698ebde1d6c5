#include <stdint.h>
#include <stddef.h>
extern int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuStreamCreate(void **, unsigned), cuMemAllocAsync(uint64_t *, size_t, void *), cuMemFreeAsync(uint64_t, void *);
__attribute__((noinline)) void ready(void) { __asm__ volatile(""); }
int main(void) {
    int device; void *context, *stream; uint64_t address;
    cuInit(0); cuDeviceGet(&device, 0); cuDevicePrimaryCtxRetain(&context, device); cuCtxSetCurrent(context); cuStreamCreate(&stream, 1);
    for (int i = 0; i < 1000; i++) { cuMemAllocAsync(&address, 1 << 20, stream); cuMemFreeAsync(address, stream); }
    ready();
    cuMemAllocAsync(&address, 1 << 20, stream);
    cuMemFreeAsync(address, stream);
    return 0;
}
