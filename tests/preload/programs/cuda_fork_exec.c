// Uses CUDA, forks, and the child executes the same program anew, which uses CUDA again.
#include "fixture.h"
int main(int argc, char **argv) {
    struct driver d;
    if (!load_driver(&d)) return 1;
    use(&d, argc > 1 ? "after exec" : "before");
    if (argc > 1) return report(), 0;
    pid_t child = fork();
    if (!child) {
        execl("/proc/self/exe", argv[0], "again", (char *)0);
        _exit(9);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", status);
    return 0;
}
