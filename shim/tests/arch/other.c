// A second preload library, which wraps functions itself and finds the next ones by RTLD_NEXT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/types.h>

void *other_next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    __asm__ volatile("" ::: "memory"); // the call must come from here, not be a jump of its own
    return found;
}
void *other_next_version(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version);
    __asm__ volatile("" ::: "memory");
    return found;
}
pid_t getpid(void) { return ((pid_t(*)(void))other_next("getpid"))() + 1000000; }
pid_t getppid(void) { return ((pid_t(*)(void))other_next("getppid"))() + 1000000; }
int cuThing(void) { return 7; }
int nvThing(void) { return 8; }
