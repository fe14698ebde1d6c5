// exit() is called by a second thread while main waits for it.
#include "fixture.h"
static void *leave(void *unused) {
    (void)unused;
    ptr_t p;
    printf("thread: %d\n", cuMemAlloc_v2(&p, 4096));
    report();
    exit(4);
}
int main(void) {
    use_linked("main");
    handle_t context;
    cuCtxGetCurrent(&context);
    pthread_t thread;
    pthread_create(&thread, 0, leave, 0);
    pthread_join(thread, 0);
    return 1;
}
