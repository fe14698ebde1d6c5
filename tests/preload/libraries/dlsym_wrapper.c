// Another preload library that wraps dlsym and finds the real one by dlvsym, as several tools do.
#define _GNU_SOURCE
#include <dlfcn.h>
int wrapped_lookups;
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    wrapped_lookups++;
    return real(handle, name);
}
