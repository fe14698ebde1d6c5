// Linked with libcuda: calls come by the program's own symbol table.
#include "fixture.h"
int main(void) {
    use_linked("linked");
    printf("%s %s\n", whose(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), whose(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
    report();
    return 0;
}
