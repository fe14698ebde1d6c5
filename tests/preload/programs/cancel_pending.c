// Threads with a cancellation pending make each kind of call, also those in which weir works with files for the first
// time. No call may end the process, and the cancellation comes at the thread's next cancellation point.
#include "calls.h"
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
