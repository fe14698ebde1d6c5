// There is no libcuda on this machine: what a program sees of that, and what remains callable.
#include "fixture.h"
int main(void) {
    struct driver d;
    printf("driver: %s\n", load_driver(&d) ? "there" : dlerror());
    printf("default: %s, next: %s\n", whose(dlsym(RTLD_DEFAULT, "cuInit")), whose(dlsym(RTLD_NEXT, "cuInit")));
    return 0;
}
