"""Libraries that a test preloads into a program, to replace functions of the C library or of
gRPC."""
import os
import subprocess

# A pread() from a file with HANG in its name never returns, as from a lost network folder.
HANGING_READS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static ssize_t look_and_read(int fd, void *to, size_t n, off_t at)
{
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, getenv("HANG")))
        for (dprintf(2, "a read of %s hangs\n", path);;)
            pause();
    return ((ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread"))(fd, to, n, at);
}
ssize_t pread(int fd, void *to, size_t n, off_t at) { return look_and_read(fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off_t at) { return look_and_read(fd, to, n, at); }
"""

# The allocation number FAIL_AT of the program's own code fails; those of its libraries never do.
LACKING_MEMORY = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void *__libc_malloc(size_t n), *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *old, size_t n);
static unsigned long first, end; /* addresses of the program */
static int n_made;
static int find(struct dl_phdr_info *of, size_t bytes, void *ctx)
{
    for (int i = 0; i < of->dlpi_phnum; i++) {
        unsigned long at = of->dlpi_addr + of->dlpi_phdr[i].p_vaddr;
        if (of->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        first = !first || at < first ? at : first;
        end = at + of->dlpi_phdr[i].p_memsz > end ? at + of->dlpi_phdr[i].p_memsz : end;
    }
    return 1; /* the program precedes its libraries */
}
__attribute__((constructor)) static void begin(void) { dl_iterate_phdr(find, NULL); }
static int fails(void *caller)
{
    unsigned long at = (unsigned long)caller;
    int fails = at >= first && at < end &&
                __atomic_add_fetch(&n_made, 1, __ATOMIC_RELAXED) == atoi(getenv("FAIL_AT"));
    if (fails)
        errno = ENOMEM;
    return fails;
}
#define FAILS fails(__builtin_return_address(0))
void *malloc(size_t n) { return FAILS ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t each) { return FAILS ? NULL : __libc_calloc(n, each); }
void *realloc(void *old, size_t n) { return FAILS ? NULL : __libc_realloc(old, n); }
char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *to = FAILS ? NULL : __libc_malloc(n);
    return to ? memcpy(to, text, n) : NULL;
}
"""

# While the file HOLD exists, a rename() to a name that ends with HELD_NAME waits, or, with
# HELD_FULL in the environment, fails as on a full disk.
HOLDS_NAMES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int rename(const char *from, const char *to)
{
    const char *end = getenv("HELD_NAME");
    size_t n = strlen(to), k = strlen(end);
    while (n > k && strcmp(to + n - k, end) == 0 && access(getenv("HOLD"), F_OK) == 0) {
        if (getenv("HELD_FULL")) {
            errno = ENOSPC;
            return -1;
        }
        usleep(1000);
    }
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""


def env(test, source, **more):
    """Returns the environment in which a program loads this library."""
    return {**os.environ, "LD_PRELOAD": library(test, source), **more}


def library(test, source):
    """Builds a library; returns its path for LD_PRELOAD."""
    path = os.path.join(test.dir(), "preloaded.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-ldl"], text=True,
                   check=True, input=source)
    return path

# Returns whether gRPC itself calls a function: its own threads also call grpc_init and
# grpc_shutdown, and one of them may make the last call.
IS_OF_GRPC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
static int is_of_grpc(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) && strstr(info.dli_fname, "libgrpc");
}
"""

# The program's last grpc_shutdown() never returns, as if gRPC lacked a thread.
HANGING_GRPC = IS_OF_GRPC + r"""
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static atomic_int users, hangs;
/* More than ten seconds end when the hang begins. */
int nanosleep(const struct timespec *how_long, struct timespec *rest)
{
    while (how_long->tv_sec > 10 && !atomic_load(&hangs))
        usleep(1000);
    return how_long->tv_sec > 10 ? 0
        : ((int (*)(const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "nanosleep"))(
            how_long, rest);
}
void grpc_init(void)
{
    if (!is_of_grpc(__builtin_return_address(0)))
        atomic_fetch_add(&users, 1);
    ((void (*)(void))dlsym(RTLD_NEXT, "grpc_init"))();
}
void grpc_shutdown(void)
{
    if (!is_of_grpc(__builtin_return_address(0)) && atomic_fetch_sub(&users, 1) == 1)
        for (dprintf(2, "grpc_shutdown hangs\n"), atomic_store(&hangs, 1);;)
            pause();
    ((void (*)(void))dlsym(RTLD_NEXT, "grpc_shutdown"))();
}
"""
