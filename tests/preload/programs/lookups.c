// dlsym by RTLD_DEFAULT, RTLD_NEXT and handles, before and after libcuda is there, with dlerror.
#include "fixture.h"
static void look(const char *when, void *handle, const char *name) {
    dlerror();
    void *found = dlsym(handle, name);
    const char *error = dlerror();
    printf("%s, %s: %s, %s\n", when, name, whose(found), error ? "an error" : "no error");
}
static void look_everywhere(const char *when) {
    const char *names[] = {"cuMemAlloc_v2", "cuNoSuchFunction", "cudaMalloc", "cu", "nvmlDeviceGetMemoryInfo", "malloc"};
    for (int i = 0; i < 6; i++) {
        look(when, RTLD_DEFAULT, names[i]);
        look(when, RTLD_NEXT, names[i]);
        look(when, dlopen(0, RTLD_NOW), names[i]);
    }
}
int main(void) {
    look_everywhere("before");
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    look("libc", libc, "cuMemAlloc_v2");
    look("libc", libc, "qsort");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    look("handle", driver, "cuMemAlloc_v2");
    look("handle", driver, "cuMemAllocAsync_ptsz");
    look("handle", driver, "cuGetProcAddress_v2");
    look("handle", driver, "cuNoSuchFunction");
    look_everywhere("local");
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    look_everywhere("global");
    report();
    return 0;
}
