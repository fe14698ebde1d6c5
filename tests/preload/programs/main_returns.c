// main returns while threads go on allocating and freeing.
#include "fixture.h"
static void *churn(void *context) {
    cuCtxSetCurrent(context);
    for (;;) {
        ptr_t p;
        if (cuMemAlloc_v2(&p, 4096) == 0) cuMemFree_v2(p);
    }
    return 0;
}
int main(void) {
    use_linked("main");
    handle_t context;
    cuCtxGetCurrent(&context);
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, churn, context);
    }
    usleep(20000);
    report();
    return 6;
}
