// The process ends while another thread is inside a driver call (the script makes cuMemAlloc slow).
#include "fixture.h"
static volatile int inside;
static void *allocate(void *context) {
    ptr_t p;
    cuCtxSetCurrent(context);
    inside = 1;
    cuMemAlloc_v2(&p, 4096);
    return 0;
}
int main(void) {
    use_linked("main");
    handle_t context;
    cuCtxGetCurrent(&context);
    pthread_t thread;
    pthread_create(&thread, 0, allocate, context);
    while (!inside) usleep(1000);
    usleep(20000);
    report();
    return 5;
}
