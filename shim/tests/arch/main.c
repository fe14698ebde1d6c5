// Calls dlsym and dlvsym in the ways that matter and compares with what glibc promises.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct seen {
    void *handle;
    const char *name, *version;
    uintptr_t caller;
    int count, reached;
};
extern struct seen *tail_seen(void);
extern void *other_next(const char *), *other_next_version(const char *, const char *);

static int passed, failed;
static void check(int ok, const char *what) {
    ok ? passed++ : failed++;
    printf("%s %s\n", ok ? "ok  " : "FAIL", what);
}
static const char *home(void *address) {
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fname : "nothing";
}
static int is_here(uintptr_t address) {
    Dl_info info, here;
    return dladdr((void *)address, &info) && dladdr((void *)check, &here) && info.dli_fbase == here.dli_fbase;
}

int main(void) {
    struct seen *seen = tail_seen();
    void *libc = dlopen("libc.so.6", RTLD_NOW);

    check(dlsym(libc, "qsort") != 0, "the first call of all finds the real function");
    check(seen->count == 1 && seen->handle == libc && !strcmp(seen->name, "qsort"), "and gets there by decide");
    int before = seen->count;
    check(dlsym(libc, "qsort") == dlsym(RTLD_DEFAULT, "qsort"), "handle and default scope agree");
    check(dlsym(RTLD_DEFAULT, "") == 0, "an empty name is nothing");
    check(dlsym(RTLD_DEFAULT, "c") == 0 && dlsym(RTLD_DEFAULT, "n") == 0 && dlsym(RTLD_DEFAULT, "d") == 0, "a one-letter name is nothing");
    check(dlsym(RTLD_DEFAULT, "ctime") && dlsym(RTLD_DEFAULT, "nanosleep") && dlsym(RTLD_DEFAULT, "daemon"), "near misses are found");
    check(seen->count == before, "and none of them was put to decide");

    // A name in the last bytes of a page: nothing behind its end may be read.
    long page = sysconf(_SC_PAGESIZE);
    char *end = (char *)mmap(0, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + page;
    mprotect(end, page, PROT_NONE);
    check(dlsym(RTLD_DEFAULT, strcpy(end - 2, "c")) == 0 && dlsym(RTLD_DEFAULT, strcpy(end - 1, "")) == 0, "a name at the end of a page");
    check(dlsym(RTLD_DEFAULT, "cuAnswer") == (void *)0x1234, "an answer of decide is the answer");
    check(seen->handle == RTLD_DEFAULT && !strcmp(seen->name, "cuAnswer"), "decide got handle and name");
    check(is_here(seen->caller), "decide got the return address of the caller");
    check(seen->reached, "the stack can be unwound through the assembly");
    check(dlvsym(RTLD_DEFAULT, "cuAnswer", "V") == (void *)0x1234 && !strcmp(seen->version, "V"), "decide got the version of dlvsym");
    check(is_here(seen->caller) && seen->reached, "and its caller");

    int (*thing)(void) = dlsym(RTLD_DEFAULT, "cuThing");
    check(thing && thing() == 7, "a jump after decide keeps handle and name");
    thing = dlsym(RTLD_NEXT, "nvThing");
    check(thing && thing() == 8, "a jump after decide keeps the caller for RTLD_NEXT");
    check(dlsym(libc, "cuThing") == 0 && strstr(dlerror(), "cuThing"), "a failure leaves its text");
    check(dlvsym(RTLD_NEXT, "dladdr", "NO_SUCH_VERSION") == 0, "dlvsym keeps the version over decide");

    check(strstr(home(other_next("getpid")), "libc") != 0, "another preload's RTLD_NEXT is not itself");
    check(getpid() == syscall(SYS_getpid) + 1000000, "its wrapper calls the real function");
    check(getppid() == syscall(SYS_getppid) + 1000000, "a second one, too");
    void *version = other_next_version("getpid", GLIBC);
    check(strstr(home(version), "libc") != 0, "dlvsym with RTLD_NEXT from another preload");
    check(other_next("cuThing") == 0, "another preload's own cu function is not the next one");

    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
