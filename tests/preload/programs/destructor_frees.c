// Memory is freed by an atexit handler and by a destructor of the program, after main.
#include "fixture.h"
static ptr_t first, second;
static void at_exit(void) { printf("atexit: %d\n", cuMemFree_v2(first)); }
__attribute__((destructor)) static void destructor(void) {
    printf("destructor: %d\n", cuMemFree_v2(second));
    report();
    fflush(stdout);
}
int main(void) {
    use_linked("main");
    printf("%d %d\n", cuMemAlloc_v2(&first, 4096), cuMemAlloc_v2(&second, 4096));
    atexit(at_exit);
    return 0;
}
