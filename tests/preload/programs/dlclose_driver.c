// Closes libcuda and opens it again, three times; pointers from before the close are not used.
#include "fixture.h"
int main(void) {
    for (int i = 0; i < 3; i++) {
        struct driver d;
        if (!load_driver(&d)) return 1;
        use(&d, "round");
        printf("closed: %d\n", dlclose(d.handle));
    }
    report();
    return 0;
}
