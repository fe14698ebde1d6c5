// A library that is linked with libcuda and looks functions up itself.
#include "fixture.h"
void *plugin_look(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    __asm__ volatile("" ::: "memory"); // a call from here, not a jump of the compiler's
    return found;
}
void plugin_work(void) { use_linked("plugin"); }
