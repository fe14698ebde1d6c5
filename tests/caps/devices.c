// Random legal programs on two devices, each with a cap of its own: memory of one device is requested, freed, mapped, copied
// and exported to mempools while the other one is current, in streams of either, by one or three threads. After each
// operation the virtual GPU's own peaks are compared with the caps, and at the end all of both must be there.
//
// usage: devices SEED OPERATIONS THREADS CAP0 CAP1
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ptr_t;
typedef void *handle_t;
typedef struct { int type, handles, at, id; uint64_t windows; char flags[8]; } prop_t;
typedef struct { int type, handles, at, id; void *windows; size_t most; char rest[56]; } pool_t;
typedef struct { int at, id, flags; } access_t;
typedef struct { size_t width, height; int format; unsigned channels; } array_t;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(handle_t *, int);
int cuCtxSetCurrent(handle_t);
int cuCtxCreate_v2(handle_t *, unsigned, int);
int cuCtxDestroy_v2(handle_t);
int cuCtxSynchronize(void);
int cuCtxEnablePeerAccess(handle_t, unsigned);
int cuCtxDisablePeerAccess(handle_t);
int cuMemAlloc_v2(ptr_t *, size_t);
int cuMemAllocManaged(ptr_t *, size_t, unsigned);
int cuMemFree_v2(ptr_t);
int cuMemAllocAsync(ptr_t *, size_t, handle_t);
int cuMemAllocFromPoolAsync(ptr_t *, size_t, handle_t, handle_t);
int cuMemFreeAsync(ptr_t, handle_t);
int cuMemPoolCreate(handle_t *, const pool_t *);
int cuMemPoolDestroy(handle_t);
int cuMemPoolSetAccess(handle_t, const access_t *, size_t);
int cuMemPoolTrimTo(handle_t, size_t);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemCreate(ptr_t *, size_t, const prop_t *, uint64_t);
int cuMemRelease(ptr_t);
int cuMemAddressReserve(ptr_t *, size_t, size_t, ptr_t, uint64_t);
int cuMemAddressFree(ptr_t, size_t);
int cuMemMap(ptr_t, size_t, size_t, ptr_t, uint64_t);
int cuMemUnmap(ptr_t, size_t);
int cuMemSetAccess(ptr_t, size_t, const access_t *, size_t);
int cuArrayCreate_v2(handle_t *, const array_t *);
int cuArrayDestroy(handle_t);
int cuStreamCreate(handle_t *, unsigned);
int cuStreamDestroy_v2(handle_t);
int cuStreamSynchronize(handle_t);
int cuStreamWaitEvent(handle_t, handle_t, unsigned);
int cuStreamBeginCapture_v2(handle_t, int);
int cuStreamEndCapture(handle_t, handle_t *);
int cuEventCreate(handle_t *, unsigned);
int cuEventRecord(handle_t, handle_t);
int cuEventDestroy_v2(handle_t);
int cuGraphInstantiateWithFlags(handle_t *, handle_t, uint64_t);
int cuGraphLaunch(handle_t, handle_t);
int cuGraphDestroy(handle_t);
int cuGraphExecDestroy(handle_t);
int cuDeviceGraphMemTrim(int);
int cuLaunchHostFunc(handle_t, void (*)(void *), void *);
int cuMemsetD8Async(ptr_t, unsigned char, size_t, handle_t);
int cuMemcpyPeerAsync(ptr_t, handle_t, ptr_t, handle_t, size_t, handle_t);
uint64_t vgpu_physical_peak(int);

enum { SLOTS = 40, STREAMS = 3, MIB = 1 << 20, REFUSED = 2 };
enum kind { NONE, PLAIN, ORDERED, FROM_POOL, MANAGED, ARRAY, HANDLE };
// Memory of `device`, whose last work is in one of the streams there.
typedef struct { enum kind kind; ptr_t at, mapped; size_t bytes; int device, stream, pool; } block_t;

static handle_t contexts[2];
static uint64_t caps[2], seed;
static int operations, threads, reaches[2];

static uint64_t below(uint64_t *state, uint64_t limit) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % limit;
}

static void fail(const char *what, long number) {
    printf("%s: %ld\n", what, number);
    fflush(stdout);
    _exit(1);
}

// A call that succeeds or is refused; whether it was done.
static int done(const char *name, int code) {
    if (code && code != REFUSED) fail(name, code);
    return !code;
}
#define DONE(call) done(#call, call)
#define MUST(call) do if (!DONE(call)) fail(#call, REFUSED); while (0)

static void look(void) {
    for (int device = 0; device < 2; device++)
        if (vgpu_physical_peak(device) > caps[device]) fail("bytes above the cap", (long)(vgpu_physical_peak(device) - caps[device]));
}

static void nap(void *microseconds) { usleep((useconds_t)(uintptr_t)microseconds); }

static size_t size(uint64_t *random) {
    switch (below(random, 6)) {
    case 0: return 1 + below(random, 4096);
    case 1: return 1 + below(random, MIB / 4);
    case 2: return 1 + below(random, 2 * MIB);
    case 3: return (1 + below(random, 6)) * MIB;
    default: return 1 + below(random, caps[0] / 6);
    }
}

typedef struct {
    uint64_t random;
    block_t blocks[SLOTS];
    handle_t streams[2][STREAMS], pools[3], graph, context;
    int pool_device[3], pool_blocks[3], graph_device, current;
} thread_t;

static void enter(thread_t *t, int device) {
    MUST(cuCtxSetCurrent(contexts[device]));
    t->current = device;
}

static void give_back(thread_t *t, block_t *b, int at_rest) {
    handle_t stream = t->streams[b->device][b->stream];
    uint64_t how = at_rest ? 0 : below(&t->random, 4);
    switch (b->kind) {
    case PLAIN: case ORDERED: case FROM_POOL:
        if (b->kind == FROM_POOL) t->pool_blocks[b->pool]--;
        if (how == 1) MUST(cuLaunchHostFunc(stream, nap, (void *)(uintptr_t)below(&t->random, 300)));
        if (how == 3 && b->kind != PLAIN) {
            // In a stream of the other device, which an event orders behind.
            handle_t event, other = t->streams[!b->device][b->stream];
            int current = t->current;
            enter(t, b->device);
            MUST(cuEventCreate(&event, 2));
            MUST(cuEventRecord(event, stream));
            MUST(cuStreamWaitEvent(other, event, 0));
            MUST(cuEventDestroy_v2(event));
            enter(t, current);
            stream = other;
        }
        if (how == 0) MUST(cuStreamSynchronize(stream));
        if (how < 2) MUST(cuMemFree_v2(b->at));
        else MUST(cuMemFreeAsync(b->at, stream));
        break;
    case MANAGED: MUST(cuMemFree_v2(b->at)); break;
    case ARRAY: MUST(cuArrayDestroy((handle_t)(uintptr_t)b->at)); break;
    case HANDLE:
        if (b->mapped) {
            MUST(cuMemUnmap(b->mapped, b->bytes));
            MUST(cuMemAddressFree(b->mapped, b->bytes));
        }
        MUST(cuMemRelease(b->at));
        break;
    case NONE: break;
    }
    b->kind = NONE;
}

static void graph(thread_t *t, int device, size_t bytes, handle_t stream) {
    if (t->graph) {
        (void)DONE(cuGraphLaunch(t->graph, t->streams[t->graph_device][0]));
        if (below(&t->random, 3)) return;
        MUST(cuStreamSynchronize(t->streams[t->graph_device][0]));
        MUST(cuGraphExecDestroy(t->graph));
        t->graph = NULL;
        return;
    }
    handle_t made;
    ptr_t at;
    MUST(cuStreamBeginCapture_v2(stream, 1));
    if (DONE(cuMemAllocAsync(&at, bytes, stream))) MUST(cuMemFreeAsync(at, stream));
    MUST(cuStreamEndCapture(stream, &made));
    if (!DONE(cuGraphInstantiateWithFlags(&t->graph, made, 0))) t->graph = NULL;
    t->graph_device = device;
    MUST(cuGraphDestroy(made));
}

static void context(thread_t *t, int device, size_t bytes) {
    ptr_t at;
    if (t->context) {
        MUST(cuCtxDestroy_v2(t->context));
        t->context = NULL;
    } else if (DONE(cuCtxCreate_v2(&t->context, 0, device))) {
        // Goes with the context.
        (void)DONE(cuMemAlloc_v2(&at, bytes));
    } else {
        t->context = NULL;
    }
    enter(t, t->current);
}

static void mempool(thread_t *t, block_t *b, int number, size_t bytes) {
    handle_t *pool = &t->pools[number];
    int device = (int)below(&t->random, 2);
    if (!*pool) {
        pool_t properties = {.type = 1, .handles = below(&t->random, 3) == 0, .at = 1, .id = device};
        access_t access = {1, !device, 3};
        if (!DONE(cuMemPoolCreate(pool, &properties))) { *pool = NULL; return; }
        t->pool_device[number] = device;
        if (below(&t->random, 2)) MUST(cuMemPoolSetAccess(*pool, &access, 1));
    }
    switch (below(&t->random, 6)) {
    case 0: MUST(cuMemPoolTrimTo(*pool, below(&t->random, 2) * 8 * MIB)); break;
    case 1:
        if (t->pool_blocks[number]) break;
        MUST(cuMemPoolDestroy(*pool));
        *pool = NULL;
        break;
    default:
        // A third in a stream of the other device.
        b->device = below(&t->random, 3) ? t->pool_device[number] : !t->pool_device[number];
        b->pool = number;
        if (!DONE(cuMemAllocFromPoolAsync(&b->at, bytes, *pool, t->streams[b->device][b->stream]))) break;
        b->kind = FROM_POOL;
        t->pool_blocks[number]++;
    }
}

static void handle(thread_t *t, block_t *b, int device, size_t bytes) {
    prop_t properties = {.type = 1, .handles = (int)below(&t->random, 2), .at = 1, .id = device};
    access_t access[2] = {{1, device, 3}, {1, !device, 3}};
    b->bytes = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (!DONE(cuMemCreate(&b->at, b->bytes, &properties, 0))) return;
    b->kind = HANDLE;
    b->mapped = 0;
    if (below(&t->random, 2)) return;
    MUST(cuMemAddressReserve(&b->mapped, b->bytes, 0, 0, 0));
    MUST(cuMemMap(b->mapped, b->bytes, 0, b->at, 0));
    MUST(cuMemSetAccess(b->mapped, b->bytes, access, 1 + below(&t->random, 2)));
}

static void copy(thread_t *t) {
    block_t *from = &t->blocks[below(&t->random, SLOTS)];
    for (block_t *to = t->blocks; to < t->blocks + SLOTS; to++) {
        if (from->kind == NONE || from->kind > FROM_POOL || to->kind == NONE || to->kind > FROM_POOL || to == from) continue;
        size_t bytes = from->bytes < to->bytes ? from->bytes : to->bytes;
        // Where the memory is, a mempool knows; its stream may be the other device's.
        int source = from->kind == FROM_POOL ? t->pool_device[from->pool] : from->device;
        int target = to->kind == FROM_POOL ? t->pool_device[to->pool] : to->device;
        if (source == target) continue;
        MUST(cuStreamSynchronize(t->streams[to->device][to->stream]));
        handle_t stream = t->streams[from->device][from->stream];
        MUST(cuMemcpyPeerAsync(to->at, contexts[target], from->at, contexts[source], bytes < 65536 ? bytes : 65536, stream));
        MUST(cuStreamSynchronize(stream));
        return;
    }
}

static void peers(thread_t *t) {
    // Access belongs to the process: one thread alone may know it.
    int device = (int)below(&t->random, 2), current = t->current;
    if (threads > 1) return;
    enter(t, device);
    if (reaches[device]) MUST(cuCtxDisablePeerAccess(contexts[!device]));
    else MUST(cuCtxEnablePeerAccess(contexts[!device], 0));
    reaches[device] = !reaches[device];
    enter(t, current);
}

static void step(thread_t *t) {
    block_t *b = &t->blocks[below(&t->random, SLOTS)];
    int device = (int)below(&t->random, 2), number = (int)below(&t->random, STREAMS);
    size_t bytes = size(&t->random), free, total;
    handle_t stream = t->streams[device][number];
    if (b->kind && below(&t->random, 2)) return give_back(t, b, 0);
    block_t fresh = {NONE, 0, 0, bytes, device, number, 0}, *to = b->kind ? NULL : b;
    if (to) *to = fresh;
    switch (below(&t->random, 14)) {
    case 0: case 1:
        if (!to) break;
        to->device = t->current;
        if (!DONE(cuMemAlloc_v2(&to->at, bytes))) break;
        to->kind = PLAIN;
        MUST(cuMemsetD8Async(to->at, 1, bytes, t->streams[to->device][number]));
        break;
    case 2: case 3:
        if (!to || !DONE(cuMemAllocAsync(&to->at, bytes, stream))) break;
        to->kind = ORDERED;
        MUST(cuMemsetD8Async(to->at, 1, bytes, stream));
        break;
    case 4: case 5: if (to) mempool(t, to, number, bytes); break;
    case 6: if (to) handle(t, to, device, bytes); break;
    case 7: if (to && DONE(cuMemAllocManaged(&to->at, bytes, 1))) to->kind = MANAGED; break;
    case 8: {
        array_t shape = {1 + below(&t->random, 2000), below(&t->random, 1500), 0x20, 1};
        handle_t array;
        if (!to || !DONE(cuArrayCreate_v2(&array, &shape))) break;
        to->at = (uintptr_t)array;
        to->kind = ARRAY;
        break;
    }
    case 9: graph(t, device, bytes, stream); break;
    case 10: context(t, device, bytes); break;
    case 11: copy(t); break;
    case 12: peers(t); break;
    default:
        enter(t, device);
        MUST(cuMemGetInfo_v2(&free, &total));
        if (total != caps[device] || free > total) fail("free", (long)free);
        if (below(&t->random, 4) == 0) MUST(cuCtxSynchronize());
    }
}

static void *run(void *number) {
    static thread_t all[8];
    thread_t *t = &all[(uintptr_t)number];
    t->random = seed * 8 + (uintptr_t)number;
    for (int device = 0; device < 2; device++) {
        enter(t, device);
        for (int i = 0; i < STREAMS; i++) MUST(cuStreamCreate(&t->streams[device][i], 1));
    }
    for (int i = 0; i < operations; i++) {
        step(t);
        look();
    }
    for (int i = 0; i < SLOTS; i++) give_back(t, &t->blocks[i], 1);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < STREAMS; i++) {
            MUST(cuStreamSynchronize(t->streams[device][i]));
            MUST(cuStreamDestroy_v2(t->streams[device][i]));
        }
    if (t->graph) MUST(cuGraphExecDestroy(t->graph));
    if (t->context) MUST(cuCtxDestroy_v2(t->context));
    for (int i = 0; i < 3; i++)
        if (t->pools[i]) MUST(cuMemPoolDestroy(t->pools[i]));
    return NULL;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    seed = strtoull(words[1], NULL, 10);
    operations = atoi(words[2]);
    threads = atoi(words[3]);
    size_t before[2], total;
    MUST(cuInit(0));
    for (int device = 0; device < 2; device++) {
        caps[device] = strtoull(words[4 + device], NULL, 10);
        MUST(cuDevicePrimaryCtxRetain(&contexts[device], device));
        MUST(cuCtxSetCurrent(contexts[device]));
        MUST(cuMemGetInfo_v2(&before[device], &total));
    }
    pthread_t all[8];
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++) pthread_create(&all[i], NULL, run, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    for (int device = 0; device < 2; device++) {
        prop_t properties = {.type = 1, .at = 1, .id = device};
        ptr_t whole;
        MUST(cuCtxSetCurrent(contexts[device]));
        MUST(cuCtxSynchronize());
        MUST(cuDeviceGraphMemTrim(device));
        if (!DONE(cuMemCreate(&whole, before[device] / (2 * MIB) * (2 * MIB), &properties, 0))) fail("not all is there at the end", device);
        MUST(cuMemRelease(whole));
    }
    look();
    printf("%llu and %llu bytes at most\n", (unsigned long long)vgpu_physical_peak(0), (unsigned long long)vgpu_physical_peak(1));
    return 0;
}
