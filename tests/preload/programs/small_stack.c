// Threads with the smallest stack that there is make each kind of call, also those that do something for the first time.
#include "calls.h"
#include <limits.h>
static int at, result;
static void *call(void *unused) {
    (void)unused;
    if (context) cuCtxSetCurrent(context);
    result = calls[at]();
    return 0;
}
int main(int count, char **words) {
    size_t size = count > 1 ? strtoul(words[1], 0, 0) : PTHREAD_STACK_MIN;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, size);
    // What the driver itself needs more for is done here.
    int ready = init() || retain();
    printf("%d\n", ready);
    for (at = count > 2 ? atoi(words[2]) : 2; at < (int)(sizeof calls / sizeof *calls); at++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, call, 0)) return puts("no thread"), 1;
        pthread_join(thread, 0);
        printf("%s: %d\n", names[at], result);
        fflush(stdout);
    }
    report();
    return 0;
}
