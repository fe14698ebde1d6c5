// A thread is cancelled while it waits in the driver: the unwinding goes through weir's function.
#include "fixture.h"
static volatile int inside;
static void *wait_for_ever(void *unused) {
    (void)unused;
    inside = 1;
    cuCtxSynchronize();
    return 0;
}
int main(void) {
    printf("%d\n", cuInit(0));
    pthread_t thread;
    pthread_create(&thread, 0, wait_for_ever, 0);
    while (!inside) usleep(1000);
    usleep(50000);
    void *result;
    printf("cancel %d", pthread_cancel(thread));
    printf(" join %d", pthread_join(thread, &result));
    printf(" cancelled %d\n", result == PTHREAD_CANCELED);
    report();
    return 0;
}
