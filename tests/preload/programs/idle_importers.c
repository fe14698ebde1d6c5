// A block is shared with another process while a hundred connections to the exporter say nothing: they hold up nobody.
#include "fixture.h"
#include <sys/socket.h>
#include <sys/un.h>
struct ipc { char bytes[64]; };
int cuIpcGetMemHandle(struct ipc *, ptr_t);
int cuIpcOpenMemHandle_v2(ptr_t *, struct ipc, unsigned);

static void begin(void) {
    handle_t context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) exit(9);
}

// Connects to the socket of this process that weir answers importers at; bare there is none.
static int connect_idly(void) {
    char line[512], wanted[64];
    FILE *list = fopen("/proc/net/unix", "r");
    sprintf(wanted, "@weir-ipc-%d-", getpid());
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = 0;
    while (!length && fgets(line, sizeof line, list)) {
        char *name = strstr(line, wanted);
        if (!name) continue;
        name[strcspn(name, "\n")] = 0;
        strcpy(address.sun_path + 1, name + 1);
        length = sizeof(sa_family_t) + strlen(name);
    }
    fclose(list);
    if (!length) return 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    return connect(fd, (struct sockaddr *)&address, length) == 0;
}

int main(void) {
    int ends[2], status;
    struct ipc handle;
    pipe(ends);
    if (!fork()) {
        ptr_t at;
        if (read(ends[0], &handle, sizeof handle) != sizeof handle) _exit(8);
        begin();
        _exit(cuIpcOpenMemHandle_v2(&at, handle, 1));
    }
    ptr_t block;
    begin();
    int made = cuMemAlloc_v2(&block, 3 << 20), exported = cuIpcGetMemHandle(&handle, block), idle = 0;
    for (int i = 0; i < 100; i++) idle += connect_idly();
    write(ends[1], &handle, sizeof handle);
    wait(&status);
    printf("made %d exported %d, opened by the other %d\n", made, exported, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    fprintf(stderr, idle == 0 || idle == 100 ? "" : "only %d connections\n", idle);
    report();
    return 0;
}
