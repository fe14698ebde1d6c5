// Leaves by _exit with memory allocated: no destructor, no atexit handler runs.
#include "fixture.h"
int main(void) {
    use_linked("main");
    ptr_t p;
    printf("%d\n", cuMemAlloc_v2(&p, 4096));
    fflush(stdout);
    report();
    _exit(3);
}
