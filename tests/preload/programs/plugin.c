// Loads a plugin, local to itself, that is linked with libcuda and looks functions up from there: its
// default scope has the driver, the program's has not.
#include "fixture.h"
int main(void) {
    printf("program before: %s\n", whose(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return printf("%s\n", dlerror()), 1;
    void *(*look)(void *, const char *) = dlsym(plugin, "plugin_look");
    void (*work)(void) = dlsym(plugin, "plugin_work");
    printf("plugin, default: %s\n", whose(look(RTLD_DEFAULT, "cuMemAlloc_v2")));
    printf("plugin, next: %s\n", whose(look(RTLD_NEXT, "cuMemAlloc_v2")));
    printf("by the plugin's handle: %s\n", whose(dlsym(plugin, "cuMemAlloc_v2")));
    printf("program after: %s\n", whose(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    // By whatever entry point: it must be weir's where weir is, so that no allocation is missed.
    void *status = dlsym(RTLD_DEFAULT, "weir_status");
    Dl_info weir = {0}, found = {0};
    void *all[] = {look(RTLD_DEFAULT, "cuMemAlloc_v2"), look(RTLD_NEXT, "cuMemAlloc_v2"), dlsym(plugin, "cuMemAlloc_v2")};
    int missed = 0;
    for (int i = 0; status && i < 3; i++) missed += !dladdr(status, &weir) || !dladdr(all[i], &found) || weir.dli_fbase != found.dli_fbase;
    printf("missed %d, %s\n", missed, dlerror() ? "an error" : "no error");
    work();
    report();
    return 0;
}
