/* Allocates and frees in a loop, for the benchmark: as a library under Python, and as a program without.
   Compiled a second time with -DFRAMEWORK it stands in for what the benchmark needs of TensorFlow's library. */
#ifdef FRAMEWORK
struct annotation { unsigned long length; const char *op; long step; unsigned long region_length; const char *region; int dtype; void *shape[4]; };
struct annotation *access_(void) __asm__("_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv");
void made(void) __asm__("_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEElS5_iOSt8functionIFNSt7__cxx1112basic_stringIcS4_SaIcEEEvEE");
static __thread struct annotation current;
struct annotation *access_(void) { return &current; }
void made(void) {}
#else
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static CUstream stream;

static void ok(CUresult result) {
    if (result) { fprintf(stderr, "CUDA error %d\n", result); exit(1); }
}

/* Nanoseconds for an allocation and its free, the least of many short rounds: other programs then disturb few of them. */
double pairs(int count) {
    double best = 1e18;
    if (!stream) {
        CUcontext context;
        ok(cuInit(0));
        ok(cuDevicePrimaryCtxRetain(&context, 0));
        ok(cuCtxSetCurrent(context));
        ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    for (int round = 0; round < 400; round++) {
        struct timespec from, to;
        CUdeviceptr pointer;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < count; i++) {
            ok(cuMemAllocAsync(&pointer, 65536, stream));
            ok(cuMemFreeAsync(pointer, stream));
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        double each = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / count;
        if (each < best) best = each;
    }
    return best;
}

int main(void) { printf("%.1f\n", pairs(1000)); }
#endif
