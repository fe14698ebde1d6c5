// Ten thousand threads, two hundred at a time; each allocates and frees.
#include "fixture.h"
static handle_t context;
static void *work(void *unused) {
    (void)unused;
    ptr_t p;
    long bad = cuCtxSetCurrent(context) != 0;
    bad += cuMemAlloc_v2(&p, 4096) != 0;
    bad += cuMemFree_v2(p) != 0;
    return (void *)bad;
}
int main(void) {
    enum { WAVES = 50, WAVE = 200 };
    use_linked("main");
    cuCtxGetCurrent(&context);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    long bad = 0;
    for (int wave = 0; wave < WAVES; wave++) {
        pthread_t threads[WAVE];
        for (int i = 0; i < WAVE; i++) bad += pthread_create(&threads[i], &small, work, 0) != 0;
        for (int i = 0; i < WAVE; i++) {
            void *result;
            pthread_join(threads[i], &result);
            bad += (long)result;
        }
    }
    printf("bad %ld\n", bad);
    report();
    return 0;
}
