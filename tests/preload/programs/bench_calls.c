// Measures a call through the exported name beside one through a name that nobody intercepts, in the
// same process, in alternating rounds; the best round of each counts: bench_calls THREADS.
#include "fixture.h"
#include <time.h>
int direct_cuMemGetInfo_v2(size_t *, size_t *), direct_cuMemAlloc_v2(ptr_t *, size_t);
enum { ROUNDS = 15, CALLS = 1000000 };
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static pthread_barrier_t together;
static int threads;
static int compare(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
static void measure(const char *name, void *direct, void *through, int allocate) {
    double times[2][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int which = 0; which < 2; which++) {
            void *volatile function = which ? through : direct;
            if (threads > 1) pthread_barrier_wait(&together);
            double start = now();
            for (int i = 0; i < CALLS; i++) {
                ptr_t p;
                size_t total;
                allocate ? ((int (*)(ptr_t *, size_t))function)(&p, 4096) : ((int (*)(size_t *, size_t *))function)(0, &total);
            }
            times[which][round] = (now() - start) / CALLS;
        }
    qsort(times[0], ROUNDS, sizeof(double), compare);
    qsort(times[1], ROUNDS, sizeof(double), compare);
    double a = times[0][0], b = times[1][0];
    if (name) printf("{\"bench\":\"shim\",\"function\":\"%s\",\"threads\":%d,\"direct_ns\":%.2f,\"through_ns\":%.2f,\"added_ns\":%.2f}\n", name, threads, a, b, b - a);
}
static void *work(void *name) {
    measure(name ? "cuMemGetInfo_v2" : 0, direct_cuMemGetInfo_v2, cuMemGetInfo_v2, 0);
    measure(name ? "cuMemAlloc_v2" : 0, direct_cuMemAlloc_v2, cuMemAlloc_v2, 1);
    return 0;
}
int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 1;
    cuInit(0);
    pthread_barrier_init(&together, 0, threads);
    pthread_t others[16];
    for (int i = 1; i < threads; i++) pthread_create(&others[i], 0, work, 0);
    work("");
    for (int i = 1; i < threads; i++) pthread_join(others[i], 0);
    return 0;
}
