// Wrong arguments and their result codes, which must be the driver's own.
#include "fixture.h"
int main(void) {
    ptr_t p = 1;
    size_t size = 1;
    printf("not initialised: %d %d\n", cuMemAlloc_v2(&p, 4096), cuMemGetInfo_v2(&size, &size));
    use_linked("main");
    printf("nothing: %d\n", cuMemAlloc_v2(&p, 0));
    printf("nowhere: %d\n", cuMemAlloc_v2(0, 4096));
    printf("too much: %d\n", cuMemAlloc_v2(&p, (size_t)1 << 60));
    printf("not ours: %d\n", cuMemFree_v2(0xdead0000));
    printf("null: %d\n", cuMemFree_v2(0));
    printf("info: %d %d %d\n", cuMemGetInfo_v2(0, 0), cuMemGetInfo_v2(&size, 0), cuMemGetInfo_v2(0, &size));
    printf("no device: %d\n", cuDeviceTotalMem_v2(&size, 99));
    printf("total: %d", cuDeviceTotalMem_v2(&size, 0));
    printf(" %zu\n", size);
    handle_t stream;
    void *host;
    printf("stream: %d", cuStreamCreate(&stream, 0));
    printf(" %d", cuStreamSynchronize(stream));
    printf(" %d\n", cuStreamDestroy_v2(stream));
    printf("host: %d", cuMemHostAlloc(&host, 4096, 0));
    printf(" %d\n", cuMemFreeHost(host));
    report();
    return 0;
}
