// A timer interrupts every 100 µs, in the hooks and in the driver; the first signal interrupts the very
// first call. Nothing may be lost, nothing may hang, and the handler's own errno stays the handler's.
#include "fixture.h"
#include <errno.h>
#include <sys/time.h>
static volatile sig_atomic_t signals;
static void handler(int number) {
    (void)number;
    int kept = errno;
    signals++;
    errno = EINTR;
    errno = kept;
}
int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval every = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &every, 0);
    use_linked("main");
    int failures = 0;
    for (int i = 0; i < 20000 || signals < 100; i++) {
        ptr_t p = 0;
        size_t total = 0;
        failures += cuMemAlloc_v2(&p, 4096) != 0;
        failures += cuMemGetInfo_v2(0, &total) != 0;
        failures += dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == 0;
        failures += cuMemFree_v2(p) != 0;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
    printf("failures %d\n", failures);
    report();
    return 0;
}
