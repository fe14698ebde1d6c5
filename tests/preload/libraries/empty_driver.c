// A driver that does nothing, to measure what stands in front of it: each function also goes by a name
// that nobody intercepts.
#include <stddef.h>
typedef unsigned long long ptr_t;
#define TWICE(result, name, parameters, body) \
    __attribute__((noinline)) result name parameters body \
    __attribute__((noinline)) result direct_##name parameters body
TWICE(int, cuInit, (unsigned flags), { return (int)flags; })
TWICE(int, cuMemGetInfo_v2, (size_t *free, size_t *total), { if (free) *free = 1; if (total) *total = 2; return 0; })
TWICE(int, cuMemAlloc_v2, (ptr_t *p, size_t size), { *p = 0x1000 + size; return 0; })
TWICE(int, cuMemFree_v2, (ptr_t p), { return p == 0; })
