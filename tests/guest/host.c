/* tests/guest/host.c - a host of libweir that checks the library's effects on its process. It loads
 * the library, trains as a member of two jobs, one after the other, closes each handle and unloads
 * the library. Afterwards the state of the whole process must be unchanged: the host reports each
 * difference in a line, and exits with 1. gRPC keeps the descriptors that the first job opened
 * (epoll, eventfd). Usage: host LIBRARY [SETTING VALUE]... */
#include "libweir/weir.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fenv.h>
#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_SIGNALS = 64, N_ARRAYS = 5, ARRAY_BYTES = 40 << 20, PAGE_BYTES = 4096, HEAD_BYTES = 64 };
enum { PARAM_ELEMENTS = 1000, WAIT_S = 60 };

extern char **environ;
static int n_faults;

static void expect(int ok, const char *what)
{
    n_faults += !ok;
    if (!ok)
        printf("host: libweir has changed %s\n", what);
}

/* An allocator that the host sets for jansson: free() cannot release its memory. */
static void *take(size_t bytes)
{
    char *p = malloc(bytes + HEAD_BYTES);
    return p ? p + HEAD_BYTES : NULL;
}

static void give_back(void *p)
{
    if (p)
        free((char *)p - HEAD_BYTES);
}

struct common { /* State of the whole process. */
    struct sigaction actions[N_SIGNALS];
    sigset_t blocked;
    mode_t mask;
    int rounding, n_environ;
    char locale[256], folder[4096];
};

static void look(struct common *c)
{
    memset(c, 0, sizeof *c);
    for (int i = 1; i < N_SIGNALS; i++)
        sigaction(i, NULL, &c->actions[i]);
    sigprocmask(SIG_SETMASK, NULL, &c->blocked);
    c->mask = umask(0);
    umask(c->mask);
    c->rounding = fegetround();
    while (environ[c->n_environ])
        c->n_environ++;
    snprintf(c->locale, sizeof c->locale, "%s", setlocale(LC_ALL, NULL));
    if (!getcwd(c->folder, sizeof c->folder))
        exit(2);
}

static void compare(const struct common *before)
{
    struct common now;
    look(&now);
    for (int i = 1; i < N_SIGNALS; i++)
        expect(now.actions[i].sa_handler == before->actions[i].sa_handler, strsignal(i));
    for (int i = 1; i < N_SIGNALS; i++)
        expect(sigismember(&now.blocked, i) == sigismember(&before->blocked, i),
               "a blocked signal");
    expect(now.mask == before->mask, "the umask");
    expect(now.rounding == before->rounding, "the rounding of the FPU");
    expect(now.n_environ == before->n_environ, "the environment");
    expect(strcmp(now.locale, before->locale) == 0, "the locale");
    expect(strcmp(now.folder, before->folder) == 0, "the working directory");
}

static int count(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Waits until the folder has no more entries than before. gRPC ends its threads a while after the
 * library was closed. */
static int returns_to(const char *folder, int before)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    time_t deadline = time(NULL) + WAIT_S;
    while (count(folder) > before && time(NULL) < deadline)
        nanosleep(&pause, NULL);
    return count(folder) <= before;
}

static long resident_bytes(void)
{
    long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &total, &resident) != 2)
        exit(2);
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

/* Checks that freed large arrays return to the kernel. */
static void check_malloc(void)
{
    char *arrays[N_ARRAYS];
    long before = resident_bytes();
    for (int i = 0; i < N_ARRAYS; i++) {
        arrays[i] = malloc(ARRAY_BYTES);
        for (size_t k = 0; arrays[i] && k < ARRAY_BYTES; k += PAGE_BYTES)
            ((volatile char *)arrays[i])[k] = 1;
    }
    for (int i = 0; i < N_ARRAYS; i++)
        free(arrays[i]);
    expect(resident_bytes() - before < ARRAY_BYTES, "malloc: what is freed stays");
}

/* A function of the library. POSIX allows this conversion of dlsym()'s result. */
#define FUNCTION(name) __typeof__(name) *name##_ = (__typeof__(name) *)dlsym(library, #name)

/* A child was forked while the handle was open. The library refuses it, and the child closes its
 * copy of the handle without a wait. */
static void check_fork(struct weir *w, void *library)
{
    FUNCTION(weir_next);
    FUNCTION(weir_error);
    FUNCTION(weir_goodbye);
    FUNCTION(weir_close);
    struct weir_step step;
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(WAIT_S);
        int code = weir_next_(w, -1, &step);
        int told =
            strstr(weir_error_(w), "was forked from the one that opened this member") != NULL;
        int goodbye = weir_goodbye_(w);
        weir_close_(w);
        _exit(code == WEIR_E_INVALID && told && goodbye == WEIR_OK ? 0 : 1);
    }
    waitpid(child, &status, 0);
    expect(status == 0, "a forked child's end");
}

static void train(void *library, int n, char **settings)
{
    FUNCTION(weir_open);
    FUNCTION(weir_set);
    FUNCTION(weir_param);
    FUNCTION(weir_next);
    FUNCTION(weir_gradient);
    FUNCTION(weir_push);
    FUNCTION(weir_error);
    FUNCTION(weir_close);
    const int64_t shape[] = {PARAM_ELEMENTS};
    struct weir *w = NULL;
    struct weir_step step;
    int code = weir_open_(&w);
    for (int i = 0; code == WEIR_OK && i + 1 < n; i += 2)
        code = weir_set_(w, settings[i], settings[i + 1]);
    int param = weir_param_(w, "w", WEIR_FLOAT32, 1, shape, NULL);
    while (code == WEIR_OK && (code = weir_next_(w, -1, &step)) == WEIR_OK)
        code = weir_push_(w, param, weir_gradient_(w, param), 1);
    if (code != WEIR_DONE) {
        printf("host: %s\n", weir_error_(w));
        exit(2);
    }
    check_fork(w, library);
    printf("host: trained %d steps\n", (int)step.train_steps);
    weir_close_(w);
}

int main(int argc, char **argv)
{
    struct common before;
    json_malloc_t allocate;
    json_free_t release;
    json_set_alloc_funcs(take, give_back);
    json_t *own = json_pack("{s:s}", "host", "value");
    look(&before);
    int n_threads = count("/proc/self/task");
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        printf("host: %s\n", argc > 1 ? dlerror() : "which library?");
        return 2;
    }
    train(library, argc - 2, argv + 2);
    expect(returns_to("/proc/self/task", n_threads), "the number of threads");
    int n_fds = count("/proc/self/fd");
    train(library, argc - 2, argv + 2);
    compare(&before);
    expect(returns_to("/proc/self/task", n_threads), "the number of threads");
    expect(returns_to("/proc/self/fd", n_fds), "the number of descriptors");
    json_get_alloc_funcs(&allocate, &release);
    expect(allocate == take && release == give_back, "the allocator of jansson");
    check_malloc();
    dlclose(library);
    json_decref(own);
    compare(&before);
    puts(n_faults ? "host: not left as it was" : "host: left as it was");
    return n_faults ? 1 : 0;
}
