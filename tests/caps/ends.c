// Contexts of several threads end with what they hold, and the driver hands the addresses and handles on to other threads
// before those calls return. At the end nothing is held, and all of the cap must be there.
//
// usage: ends blocks|arrays CAP
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 10000, HELD = 3 };
typedef unsigned long long ptr_t;
typedef void *handle_t;
typedef struct { size_t width, height; int format; unsigned channels; } array_t;
int cuInit(unsigned);
int cuCtxCreate_v2(handle_t *, unsigned, int);
int cuCtxDestroy_v2(handle_t);
int cuMemAlloc_v2(ptr_t *, size_t);
int cuArrayCreate_v2(handle_t *, const array_t *);
uint64_t vgpu_physical_bytes(int);

static const size_t BLOCK = 2 << 20;
static int arrays;

static int take(size_t blocks) {
    if (arrays) {
        handle_t array;
        // Floats: rows of 256 KiB.
        array_t shape = {1 << 16, 8 * blocks, 0x20, 1};
        return cuArrayCreate_v2(&array, &shape);
    }
    ptr_t ptr;
    return cuMemAlloc_v2(&ptr, blocks * BLOCK);
}

static void *rounds(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        handle_t ctx;
        if (cuCtxCreate_v2(&ctx, 0, 0) != 0) continue;
        for (int held = 0; held < HELD; held++) take(2);
        if (cuCtxDestroy_v2(ctx) != 0) abort();
    }
    return NULL;
}

int main(int count, char **words) {
    if (count != 3 || cuInit(0) != 0) return 2;
    arrays = strcmp(words[1], "arrays") == 0;
    size_t whole = strtoull(words[2], NULL, 10) / BLOCK, got = 0;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, rounds, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    handle_t ctx;
    if (cuCtxCreate_v2(&ctx, 0, 0) != 0) return 2;
    while (take(1) == 0) {
        got++;
        if (vgpu_physical_bytes(0) > whole * BLOCK) return 3;
    }
    printf("%zu of %zu blocks\n", got, whole);
    // What tiny requests always get is set aside, and an array needs a chunk more while it is made.
    return got + 3 < whole;
}
