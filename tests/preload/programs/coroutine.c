// A coroutine with a small stack of its own, which no thread knows of, makes each kind of call.
#include "calls.h"
#include <sys/mman.h>
#include <ucontext.h>
static ucontext_t thread, coroutine;
static int at, result;
static void work(void) {
    for (;;) {
        result = calls[at]();
        swapcontext(&coroutine, &thread);
    }
}
int main(void) {
    enum { GUARD = 64 << 10, SIZE = 16 << 10 };
    // What the driver itself needs more for is done here.
    printf("%d\n", init() || retain());
    char *stack = mmap(0, GUARD + SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack + GUARD, SIZE, PROT_READ | PROT_WRITE)) return puts("no stack"), 1;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack + GUARD;
    coroutine.uc_stack.ss_size = SIZE;
    coroutine.uc_link = &thread;
    makecontext(&coroutine, work, 0);
    for (at = 2; at < (int)(sizeof calls / sizeof *calls); at++) {
        swapcontext(&thread, &coroutine);
        printf("%s: %d\n", names[at], result);
        fflush(stdout);
    }
    report();
    return 0;
}
