/* tests/kernel_overrun_emulated_test.c - tests accesses one element beyond a tensor of a plan's
 * memory. In the library `separate`, each tensor is an allocation of its own, so such an access
 * ends the program. In the library `together`, all tensors lie in one block, so the access is not
 * detected. Needs the emulation (tests/emulation). */
#include "kernels/cuda/common/kernels.h"
#include "kernels/cuda/memory/arena.h"
#include "kernels/cuda/memory/bind.h"
#include "tests/check.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELEMS = 64, NON_BLOCKING = 1, TO_DEVICE = 1, NOT_SEEN = 0, SEEN = 1, BROKEN = 2 };
static const char together[] = WEIR_TEST_DIR "/libweir_emulated.so",
                  separate[] = WEIR_TEST_DIR "/separate/libweir_emulated.so";

/* The called functions of the library. The types are those of CUDA's headers, which are not
 * included here. */
static struct {
    enum status (*bind)(int device, struct gpu_arena *a);
    void (*unbind)(int device, struct gpu_arena *a);
    int (*relu)(struct CUstream_st *s, const float *x, float *y, int64_t n);
    int (*create)(struct CUstream_st **out, unsigned flags);
    int (*copy)(void *to, const void *from, size_t bytes, int way, struct CUstream_st *s);
    int (*zero)(void *to, int value, size_t bytes, struct CUstream_st *s);
    int (*synchronize)(struct CUstream_st *s);
    int (*destroy)(struct CUstream_st *s);
} cuda;

static int look_up(void *so, const char *name, void *where)
{
    void *f = so != NULL ? dlsym(so, name) : NULL;
    memcpy(where, &f, sizeof f);
    return f != NULL;
}

static int library_open(const char *path)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return look_up(so, "gpu_bind_arena", &cuda.bind) &&
           look_up(so, "gpu_bind_undo", &cuda.unbind) &&
           look_up(so, "gpu_relu_forward", &cuda.relu) &&
           look_up(so, "cudaStreamCreateWithFlags", &cuda.create) &&
           look_up(so, "cudaMemcpyAsync", &cuda.copy) &&
           look_up(so, "cudaMemsetAsync", &cuda.zero) &&
           look_up(so, "cudaStreamSynchronize", &cuda.synchronize) &&
           look_up(so, "cudaStreamDestroy", &cuda.destroy);
}

/* In these jobs, y lies between two other tensors. over: elements to access beyond y. */
static int kernel_behind(float *y, int over, struct CUstream_st *s)
{
    return cuda.relu(s, y, y, ELEMS + over);
}

static int kernel_before(float *y, int over, struct CUstream_st *s)
{
    return cuda.relu(s, y - over, y - over, ELEMS);
}

static int copy_behind(float *y, int over, struct CUstream_st *s)
{
    static const float host[ELEMS + 1];
    return cuda.copy(y, host, (size_t)(ELEMS + over) * sizeof(float), TO_DEVICE, s);
}

static int memset_behind(float *y, int over, struct CUstream_st *s)
{
    return cuda.zero(y, 0, (size_t)(ELEMS + over) * sizeof(float), s);
}

/* Runs a job. The caller is a child process that may end here. */
static int work(const char *library, int (*job)(float *, int, struct CUstream_st *), int over)
{
    struct gpu_arena a;
    struct CUstream_st *s;
    float *x, *y, *z;
    if (!library_open(library))
        return BROKEN;
    gpu_arena_init(&a, UINT64_MAX, 0);
    if (gpu_arena_reserve(&a, "a", "x", ELEMS * sizeof *x, &x) != ST_OK ||
        gpu_arena_reserve(&a, "b", "y", ELEMS * sizeof *y, &y) != ST_OK ||
        gpu_arena_reserve(&a, "c", "z", ELEMS * sizeof *z, &z) != ST_OK ||
        cuda.bind(0, &a) != ST_OK || cuda.create(&s, NON_BLOCKING) != 0)
        return BROKEN;
    if (job(y, over, s) != 0 || cuda.synchronize(s) != 0)
        return BROKEN;
    cuda.destroy(s);
    cuda.unbind(0, &a);
    gpu_arena_free(&a);
    return NOT_SEEN;
}

static int seen(const char *library, int (*job)(float *, int, struct CUstream_st *), int over)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(work(library, job, over));
    assert_int_equal(waitpid(child, &status, 0), child);
    /* ended by abort(), or by a sanitizer */
    int ended =
        !WIFEXITED(status) || (WEXITSTATUS(status) != NOT_SEEN && WEXITSTATUS(status) != BROKEN);
    assert_true(ended || WEXITSTATUS(status) == NOT_SEEN);
    return ended ? SEEN : NOT_SEEN;
}

static void check(int (*job)(float *, int, struct CUstream_st *))
{
    assert_int_equal(seen(separate, job, 0), NOT_SEEN);
    assert_int_equal(seen(separate, job, 1), SEEN);
    assert_int_equal(seen(together, job, 1), NOT_SEEN);
}

static void test_kernel(void **state)
{
    check(kernel_behind);
}

static void test_kernel_before(void **state)
{
    check(kernel_before);
}

static void test_copy(void **state)
{
    check(copy_behind);
}

static void test_memset(void **state)
{
    check(memset_behind);
}

int main(void)
{
    if (access(separate, F_OK) != 0)
        return skip_program("the emulated CUDA backend is not in this build");
    return RUN_TESTS(test_kernel, test_kernel_before, test_copy, test_memset);
}
