// Forks before any CUDA; only the child uses it. The parent never does.
#include "fixture.h"
int main(void) {
    pid_t child = fork();
    if (!child) {
        struct driver d;
        if (load_driver(&d)) use(&d, "child");
        report();
        return 0;
    }
    int status;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", status);
    return 0;
}
