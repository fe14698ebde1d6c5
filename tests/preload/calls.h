// A call of each kind, by name: what a thread in an unusual state makes.
#include "fixture.h"
int cuMemAllocManaged(ptr_t *, size_t, unsigned);
int cuMemFreeAsync(ptr_t, handle_t);
int cuIpcGetMemHandle(void *, ptr_t);
static handle_t context;
static ptr_t block, large, ordered, managed;
static void *host;
static int init(void) { return cuInit(0); }
static int retain(void) { return cuDevicePrimaryCtxRetain(&context, 0); }
static int first(void) { return cuMemAlloc_v2(&block, 4096); }
static int again(void) { ptr_t p; return cuMemAlloc_v2(&p, 4096); }
static int grow(void) { return cuMemAlloc_v2(&large, 100 << 20); }
static int refused(void) { ptr_t p; return cuMemAlloc_v2(&p, 1ull << 40); }
static int refused_ordered(void) { ptr_t p; return cuMemAllocAsync(&p, 1ull << 40, 0); }
static int in_order(void) { return cuMemAllocAsync(&ordered, 1 << 20, 0); }
static int free_in_order(void) { return cuMemFreeAsync(ordered, 0); }
static int by_driver(void) { return cuMemAllocManaged(&managed, 1 << 20, 1); }
static int free_by_driver(void) { return cuMemFree_v2(managed); }
static int pinned(void) { return cuMemHostAlloc(&host, 1 << 20, 0); }
static int unpinned(void) { return cuMemFreeHost(host); }
static int info(void) { size_t a, b; return cuMemGetInfo_v2(&a, &b); }
static int exported(void) { char handle[64]; return cuIpcGetMemHandle(handle, block); }
static int stream(void) { handle_t s; return cuStreamCreate(&s, 1); }
static int give(void) { return cuMemFree_v2(large); }
static int wrong(void) { return cuMemFree_v2(4711); }
static int other_context(void) { handle_t c; return cuCtxCreate_v2(&c, 0, 0) || cuCtxDestroy_v2(c); }
static int (*calls[])(void) = {init, retain, first, again, grow, refused, refused_ordered, in_order, free_in_order, by_driver, free_by_driver,
                               pinned, unpinned, info, exported, stream, give, wrong, other_context};
static const char *names[] = {"init", "retain", "first", "again", "grow", "refused", "refused in order", "in order", "free in order", "by the driver",
                              "free by the driver", "pinned", "unpinned", "info", "exported", "stream", "give", "wrong", "other context"};
