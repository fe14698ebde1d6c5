// A preload library around the assembly of shim/src/interpose/arch: the pointers to the real functions and a
// `decide` that knows a few names. It stands in for the Rust side, which cannot be compiled for every
// processor here; what is tested is the assembly.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <unwind.h>

#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN void *real_dlsym, *real_dlvsym;

struct seen {
    void *handle;
    const char *name, *version;
    uintptr_t caller;
    int count, reached;
};
static struct seen seen;
struct seen *tail_seen(void) { return &seen; }

static uintptr_t table(struct dl_phdr_info *o, ElfW(Sxword) tag) {
    for (int i = 0; i < o->dlpi_phnum; i++)
        if (o->dlpi_phdr[i].p_type == PT_DYNAMIC)
            for (ElfW(Dyn) *d = (void *)(o->dlpi_addr + o->dlpi_phdr[i].p_vaddr); d->d_tag; d++)
                if (d->d_tag == tag) return d->d_un.d_ptr < o->dlpi_addr ? d->d_un.d_ptr + o->dlpi_addr : d->d_un.d_ptr;
    return 0;
}

static int visit(struct dl_phdr_info *o, size_t size, void *data) {
    (void)size, (void)data;
    if (!strstr(o->dlpi_name, "libc.so.6")) return 0;
    ElfW(Sym) *symbols = (void *)table(o, DT_SYMTAB);
    const char *strings = (void *)table(o, DT_STRTAB);
    const uint16_t *versions = (void *)table(o, DT_VERSYM);
    const uint32_t *hash = (void *)table(o, DT_GNU_HASH);
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(void *) / 4), *chain = buckets + hash[0];
    for (uint32_t b = 0; b < hash[0]; b++)
        for (uint32_t i = buckets[b]; i >= hash[1]; i++) {
            if (symbols[i].st_shndx && !(versions[i] & 0x8000)) {
                if (!strcmp(strings + symbols[i].st_name, "dlsym")) real_dlsym = (void *)(o->dlpi_addr + symbols[i].st_value);
                if (!strcmp(strings + symbols[i].st_name, "dlvsym")) real_dlvsym = (void *)(o->dlpi_addr + symbols[i].st_value);
            }
            if (chain[i - hash[1]] & 1) break;
        }
    return 1;
}

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *data) {
    (void)data;
    if (_Unwind_GetIP(context) == seen.caller) seen.reached = 1;
    return _URC_NO_REASON;
}

struct verdict {
    void *address;
    uintptr_t jump;
};

static struct verdict decide(void *real, void *handle, const char *name, const char *version, uintptr_t caller) {
    seen = (struct seen){handle, name, version, caller, seen.count + 1, 0};
#ifndef WRAPPER_THAT_CALLS // which may recurse without end, and each level would unwind all others
    _Unwind_Backtrace(frame, 0);
#endif
    if (!strcmp(name, "cuAnswer")) return (struct verdict){(void *)0x1234, 0};
    // Leave nothing of the arguments in the registers they came in.
#ifdef __aarch64__
    __asm__ volatile("mov x0, #-1\n mov x1, #-1\n mov x2, #-1\n mov x3, #-1" ::: "x0", "x1", "x2", "x3", "memory");
#else
    __asm__ volatile("mov $-1, %%rdi\n mov $-1, %%rsi\n mov $-1, %%rdx" ::: "rdi", "rsi", "rdx", "memory");
#endif
    return (struct verdict){real, 1};
}

HIDDEN struct verdict decide_dlsym(void *handle, const char *name, const char *unused, uintptr_t caller) {
    (void)unused;
    if (!real_dlsym) dl_iterate_phdr(visit, 0);
    return decide(real_dlsym, handle, name, 0, caller);
}

HIDDEN struct verdict decide_dlvsym(void *handle, const char *name, const char *version, uintptr_t caller) {
    if (!real_dlvsym) dl_iterate_phdr(visit, 0);
    return decide(real_dlvsym, handle, name, version, caller);
}

#ifdef WRAPPER_THAT_CALLS
// What most interposers do, and what breaks RTLD_NEXT: the tests must notice it.
void *dlsym(void *handle, const char *name) {
    struct verdict v = decide_dlsym(handle, name, 0, (uintptr_t)__builtin_return_address(0));
    void *found = v.jump ? ((void *(*)(void *, const char *))v.address)(handle, name) : v.address;
    __asm__ volatile("" ::: "memory"); // no sibling call
    return found;
}
void *dlvsym(void *handle, const char *name, const char *version) {
    struct verdict v = decide_dlvsym(handle, name, version, (uintptr_t)__builtin_return_address(0));
    void *found = v.jump ? ((void *(*)(void *, const char *, const char *))v.address)(handle, name, version) : v.address;
    __asm__ volatile("" ::: "memory");
    return found;
}
#endif
