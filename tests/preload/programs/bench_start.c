// Measures how long a trivial program takes from start to end under each of several LD_PRELOAD values,
// in turns: bench_start ROUNDS PROGRAM NAME=LIBRARY... An empty library means no preload.
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static int compare(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
int main(int argc, char **argv) {
    int rounds = atoi(argv[1]), kinds = argc - 3;
    double *times = calloc(rounds * kinds, sizeof(double));
    for (int round = -3; round < rounds; round++)
        for (int kind = 0; kind < kinds; kind++) {
            char preload[4096];
            snprintf(preload, sizeof preload, "LD_PRELOAD=%s", strchr(argv[3 + kind], '=') + 1);
            char *environment[] = {"PATH=/usr/bin:/bin", preload, 0}, *arguments[] = {argv[2], 0};
            pid_t child;
            int status;
            double start = now();
            if (posix_spawn(&child, argv[2], 0, 0, arguments, environment)) return 1;
            waitpid(child, &status, 0);
            if (status) return 2;
            if (round >= 0) times[kind * rounds + round] = now() - start;
        }
    for (int kind = 0; kind < kinds; kind++) {
        qsort(times + kind * rounds, rounds, sizeof(double), compare);
        printf("%.*s %.1f %.1f\n", (int)(strchr(argv[3 + kind], '=') - argv[3 + kind]), argv[3 + kind], times[kind * rounds + rounds / 2], times[kind * rounds + rounds / 10]);
    }
    return 0;
}
