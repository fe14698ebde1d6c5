// What a process has around it before and after using CUDA: nothing of it is weir's to change.
#include "fixture.h"
#include <dirent.h>
#include <errno.h>
#include <locale.h>
#include <sys/stat.h>
extern char **environ;
static int entries(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char target[4096] = "";
        int link = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1) >= 0;
        // The virtual GPU keeps its memory in such files; weir keeps its journal, and reads the resident size.
        int known = !strncmp(target, "/memfd:", 7) || strstr(target, "/.local/state/weir") || strstr(target, "/statm");
        count += !(link && known);
    }
    if (dir) closedir(dir);
    return count;
}
static void show(const char *when) {
    mode_t mask = umask(0);
    umask(mask);
    unsigned long handlers = 0;
    for (int i = 1; i < 65; i++) {
        struct sigaction action;
        if (sigaction(i, 0, &action) == 0 && action.sa_handler != SIG_DFL) handlers |= 1ul << (i - 1);
    }
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, 0, &blocked);
    unsigned long bits = 0;
    for (int i = 1; i < 65; i++) bits |= (unsigned long)(sigismember(&blocked, i) == 1) << (i - 1);
    int variables = 0;
    for (char **v = environ; *v; v++) variables += strncmp(*v, "LD_PRELOAD=", 11) && strncmp(*v, "WEIR_", 5);
    char cwd[4096];
    printf("%s: umask %o, handlers %lx, blocked %lx, %d variables, %s, locale %s, %d files\n", when, mask, handlers, bits, variables, getcwd(cwd, sizeof cwd), setlocale(LC_ALL, 0), entries("/proc/self/fd"));
}
int main(void) {
    umask(027);
    show("before");
    printf("threads %d\n", entries("/proc/self/task"));
    void *context = (void *)1;
    errno = 77;
    int a = cuInit(0);
    int kept = errno;
    printf("cuInit %d, errno %d, context %d", a, kept, cuCtxGetCurrent(&context));
    printf(" %p\n", context);
    show("initialised");
    use_linked("main");
    show("used");
    report();
    return 0;
}
