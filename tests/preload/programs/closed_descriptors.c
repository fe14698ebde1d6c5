// A job that runs without standard descriptors, and later closes all that it finds, as daemons do, and has their numbers
// itself: what it prints goes to no file of weir's, and what it opened stays open.
#include "fixture.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
struct ipc { char bytes[64]; };
int cuIpcGetMemHandle(struct ipc *, ptr_t);
enum { OUT = 100, MINE = 4 };

static int is_open(int from, int to) {
    int count = 0;
    for (int fd = from; fd < to; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int serves(void) {
    int found = 0;
    char path[300], name[32];
    DIR *list = opendir("/proc/self/task");
    for (struct dirent *task; list && (task = readdir(list));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file)) found += !strncmp(name, "weir-ipc", 8);
        if (file) fclose(file);
    }
    if (list) closedir(list);
    return found;
}

// Connects to the socket of this process that weir answers importers at. First to be turned away; then, when the socket is
// closed, to see that nobody answers any more.
static void knock(int again) {
    char line[512], wanted[64];
    FILE *list = fopen("/proc/net/unix", "r");
    sprintf(wanted, "@weir-ipc-%d-", getpid());
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = 0;
    while (list && !length && fgets(line, sizeof line, list)) {
        char *name = strstr(line, wanted);
        if (!name) continue;
        name[strcspn(name, "\n")] = 0;
        strcpy(address.sun_path + 1, name + 1);
        length = sizeof(sa_family_t) + strlen(name);
    }
    if (list) fclose(list);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (length && !connect(fd, (struct sockaddr *)&address, length)) {
        if (!again) send(fd, "0123456789abcdef", 16, 0), read(fd, line, 1);
        for (int i = 0; again && i < 6000 && serves(); i++) usleep(10000);
    }
    close(fd);
}

int main(void) {
    handle_t context;
    ptr_t block;
    struct ipc handle;
    dup2(1, OUT);
    for (int fd = 0; fd < 3; fd++) close(fd);
    int made = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, 3 << 20);
    dprintf(OUT, "made %d, standard descriptors %d\n", made, is_open(0, 3));
    int exported = cuIpcGetMemHandle(&handle, block);
    dprintf(OUT, "exported %d, standard descriptors %d\n", exported, is_open(0, 3));
    knock(0);
    for (int fd = 0; fd < OUT; fd++)
        if (fd >= MINE) close(fd);
    while (open("/dev/null", O_RDWR) < OUT) {
    }
    int mine = is_open(0, OUT);
    knock(1);
    dprintf(OUT, "opened %d, %d of them closed by others\n", mine, mine - is_open(0, OUT));
    report();
    return 0;
}
