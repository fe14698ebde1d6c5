// A job that has little address space left takes as many small blocks as it gets. A refusal is an answer,
// the end of the process is none.
//
// usage: short_memory MIB WHEN [MANY]   so much is left from WHEN on: 0 before cuInit, 1 after it, 2 with a context, 3 with a
//                                       block, 4 with MANY blocks
#include "fixture.h"
#include <sys/resource.h>
#define MORE 60000
#define MOST (2 << 20)
int cuMemFreeAsync(ptr_t, handle_t);
static ptr_t blocks[MOST];
static int moment, when;
static size_t left;

static void now(void) {
    size_t pages = 0;
    if (moment++ != when) return;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%zu", &pages);
    fclose(file);
    struct rlimit limit = {pages * 4096 + left, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
}

int main(int count, char **words) {
    handle_t context;
    ptr_t first;
    int wrong = 0;
    left = strtoull(words[1], 0, 0) << 20;
    when = atoi(words[2]);
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    now();
    if (cuInit(0)) return puts("no driver"), 0;
    now();
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return puts("no context"), 0;
    now();
    cuMemAlloc_v2(&first, 4096);
    now();
    {
        int code = 0, taken = 0, many = count > 3 ? atoi(words[3]) : 0;
        for (; taken < many + MORE && taken < MOST; taken++) {
            if (taken == many) now();
            size_t size = (taken % 5 + 1) << 8;
            code = taken & 1 ? cuMemAllocAsync(&blocks[taken], size, 0) : cuMemAlloc_v2(&blocks[taken], size);
            if (code) break;
        }
        wrong += code != 0 && code != 2;
        for (int i = 0; i < taken; i++) wrong += (i & 1 ? cuMemFreeAsync(blocks[i], 0) : cuMemFree_v2(blocks[i])) != 0;
        wrong += cuCtxSynchronize() != 0;
    }
    printf("%d wrong answers\n", wrong);
    return 0;
}
