// Threads with a cancellation pending make each kind of call, also those in which weir works with files for the first
// time. No call may end the process, and the cancellation comes at the thread's next cancellation point.
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
static int at, deferred, result, returned;
static void *call(void *unused) {
    (void)unused;
    int before;
    if (context) cuCtxSetCurrent(context);
    if (!deferred) {
        // At any instruction, but not now.
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    }
    pthread_cancel(pthread_self());
    result = calls[at]();
    returned = 1;
    if (!deferred) pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    pthread_testcancel();
    return 0;
}
int main(void) {
    for (deferred = 1; deferred >= 0; deferred--) {
        for (at = 0; at < (int)(sizeof calls / sizeof *calls); at++) {
            pthread_t thread;
            void *end = 0;
            result = returned = 0;
            pthread_create(&thread, 0, call, 0);
            pthread_join(thread, &end);
            // A driver with a cancellation point inside does not come back, and then the main thread does it.
            if (!context) cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
            if (!block && at >= 2) cuMemAlloc_v2(&block, 4096);
            printf("%s: cancelled %d", names[at], end == PTHREAD_CANCELED);
            if (!deferred) printf(", returned %d with %d", returned, result);
            puts("");
            fflush(stdout);
        }
    }
    report();
    return 0;
}
