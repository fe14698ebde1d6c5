// Runs beside a preload library that wraps cuMemAlloc_v2 and getpid itself, by RTLD_NEXT.
#include "fixture.h"
#include <sys/syscall.h>
int main(void) {
    int *wrapped = dlsym(RTLD_DEFAULT, "other_calls");
    use_linked("main");
    printf("getpid is wrapped: %d\n", getpid() - (int)syscall(SYS_getpid));
    printf("malloc works: %d\n", malloc(100) != 0);
    fprintf(stderr, "allocations seen by the other library: %d\n", wrapped ? *wrapped : -1);
    report();
    return 0;
}
