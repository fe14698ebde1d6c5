// NVML's memory and process queries, by dlsym as every client does.
#include "fixture.h"
int main(void) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) return printf("%s\n", dlerror()), 1;
    int (*init)(void) = dlsym(nvml, "nvmlInit_v2"), (*get)(unsigned, void **) = dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*info)(void *, unsigned long long *) = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    int (*processes)(void *, unsigned *, void *) = dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    void *device = 0;
    unsigned long long memory[3] = {0};
    unsigned count = 0;
    printf("init %d", init());
    printf(" device %d", get(0, &device));
    printf(" memory %d", info(device, memory));
    printf(" %llu %d", memory[0], memory[0] == memory[1] + memory[2]);
    printf(" processes %d %u\n", processes(device, &count, 0), count);
    printf("bad device %d, nowhere %d\n", info(0, memory), info(device, 0));
    printf("%s\n", strstr(whose((void *)info), "the driver") || strstr(whose((void *)info), "libnvidia-ml") ? "found" : "lost");
    report();
    return 0;
}
