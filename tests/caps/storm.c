// A member of a group that takes and gives memory at random until it is killed, and a watcher of what is really taken.
//
// usage: storm member SEED CAP   random requests by several entry points; ends by itself only on a wrong answer (exit 1)
//        storm watch CAP         prints the most that was ever taken on device 0, when told to end (SIGTERM)
//        storm one               takes one block and gives it back
//        storm all               takes all that it can get, prints the bytes really taken, gives it back
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ptr_t;
typedef void *handle_t;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(handle_t *, int);
int cuCtxSetCurrent(handle_t);
int cuCtxSynchronize(void);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuStreamCreate(handle_t *, unsigned);
int cuMemAlloc_v2(ptr_t *, size_t);
int cuMemFree_v2(ptr_t);
int cuMemAllocAsync(ptr_t *, size_t, handle_t);
int cuMemFreeAsync(ptr_t, handle_t);
int cuArrayCreate_v2(handle_t *, const void *);
int cuArrayDestroy(handle_t);
uint64_t vgpu_physical_bytes(int);

static volatile sig_atomic_t ended;
static void end(int signal) { (void)signal; ended = 1; }
static uint64_t state;
static uint64_t number(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static handle_t stream;
static void begin(void) {
    handle_t ctx;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) || cuStreamCreate(&stream, 1)) exit(3);
}

struct array { size_t width, height; int format; unsigned channels; };
struct held { int entry; ptr_t at; };

static int take(struct held *held) {
    size_t size = number(3) ? number(1 << 20) + 1 : number(16 << 20) + 1;
    held->entry = number(8);
    if (held->entry < 4) return held->entry = 0, cuMemAlloc_v2(&held->at, size);
    if (held->entry < 7) return held->entry = 1, cuMemAllocAsync(&held->at, size, stream);
    struct array wanted = {1024, size / 4096 + 1, 32, 1};
    return held->entry = 2, cuArrayCreate_v2((handle_t *)&held->at, &wanted);
}

static int give(struct held *held) {
    if (held->entry == 0) return cuMemFree_v2(held->at);
    if (held->entry == 1) return cuMemFreeAsync(held->at, stream);
    return cuArrayDestroy((handle_t)held->at);
}

static int member(uint64_t seed, uint64_t cap) {
    static struct held held[4096];
    int count = 0;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    begin();
    (void)cap;
    for (;;) {
        if (count < 4096 && number(5) > 1) {
            int code = take(&held[count]);
            if (code == 0) count++;
            else if (code != 2) return fprintf(stderr, "a request was answered by %d\n", code), 1;
            else if (count) {
                if (give(&held[--count])) return 1;
            }
        } else if (count) {
            int which = number(count);
            if (give(&held[which])) return fprintf(stderr, "a free was refused\n"), 1;
            held[which] = held[--count];
        }
        if (!number(64)) cuCtxSynchronize();
    }
}

static int watch(uint64_t cap) {
    uint64_t most = 0, looks = 0, above = 0;
    signal(SIGTERM, end);
    begin();
    while (!ended) {
        // The whole device, over all processes that share it.
        size_t left, total;
        if (cuMemGetInfo_v2(&left, &total)) return 3;
        uint64_t now = total - left;
        if (now > most) most = now;
        above += now > cap;
        looks++;
        usleep(50);
    }
    printf("{\"most\": %llu, \"looks\": %llu, \"above\": %llu}\n", (unsigned long long)most, (unsigned long long)looks, (unsigned long long)above);
    return 0;
}

static int one(void) {
    ptr_t at;
    begin();
    return cuMemAlloc_v2(&at, 1 << 20) || cuMemFree_v2(at);
}

static int all(void) {
    ptr_t at;
    begin();
    for (size_t size = 64 << 20; size >= 2 << 20; size /= 2)
        while (cuMemAlloc_v2(&at, size) == 0) continue;
    printf("%llu\n", (unsigned long long)vgpu_physical_bytes(0));
    return 0;
}

int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "watch")) return watch(strtoull(words[2], 0, 0));
    if (count > 3 && !strcmp(words[1], "member")) return member(strtoull(words[2], 0, 0), strtoull(words[3], 0, 0));
    if (count > 1 && !strcmp(words[1], "one")) return one();
    if (count > 1 && !strcmp(words[1], "all")) return all();
    return 2;
}
