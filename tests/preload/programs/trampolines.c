// Beside a library that exports functions of the driver's names and loads the driver itself, as
// TensorFlow does; loaded with its symbols global, where RTLD_NEXT finds them.
#include "fixture.h"
int main(void) {
    void *framework = dlopen("libtrampolines.so", RTLD_NOW | RTLD_GLOBAL);
    if (!framework) return printf("%s\n", dlerror()), 1;
    void (*train)(void) = dlsym(framework, "train");
    train();
    report();
    return 0;
}
