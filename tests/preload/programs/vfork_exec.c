// vfork after CUDA: the child shares the parent's memory until it executes something.
#include "fixture.h"
int main(void) {
    use_linked("before");
    pid_t child = vfork();
    if (!child) {
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", status);
    use_linked("after");
    report();
    return 0;
}
