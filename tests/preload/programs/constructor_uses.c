// CUDA is used by a constructor, before main.
#include "fixture.h"
__attribute__((constructor)) static void constructor(void) { use_linked("constructor"); }
int main(void) {
    use_linked("main");
    report();
    return 0;
}
