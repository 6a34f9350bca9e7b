/* kernels/cuda/groups/nccl_load.c - finds NCCL as the dynamic linker does: in the folders of the
 * libraries that this object was linked with, in LD_LIBRARY_PATH, in the system's folders. The
 * library is never unloaded. */
#include "base/log.h"
#include "kernels/cuda/groups/nccl.h"
#include "kernels/cuda/plan/libraries.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two variables below */
static int loaded;
static struct gpu_nccl nccl;

static int look_up(void *so)
{
    const struct {
        const char *name;
        void *where; /* address of the function pointer that is set */
    } wanted[] = {
        {"ncclGetVersion", &nccl.get_version},
        {"ncclGetUniqueId", &nccl.get_unique_id},
        {"ncclCommInitRankConfig", &nccl.comm_init_rank_config},
        {"ncclCommFinalize", &nccl.comm_finalize},
        {"ncclCommAbort", &nccl.comm_abort},
        {"ncclCommDestroy", &nccl.comm_destroy},
        {"ncclCommGetAsyncError", &nccl.comm_get_async_error},
        {"ncclGroupStart", &nccl.group_start},
        {"ncclGroupEnd", &nccl.group_end},
        {"ncclReduceScatter", &nccl.reduce_scatter},
        {"ncclAllGather", &nccl.all_gather},
        {"ncclGetErrorString", &nccl.get_error_string},
        {"ncclGetLastError", &nccl.get_last_error},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *f = dlsym(so, wanted[i].name);
        if (f == NULL) {
            LOG_W("CUDA backend: libnccl.so.2 has no %s: it is too old; NCCL 2.18 has it",
                  wanted[i].name);
            return 0;
        }
        memcpy(wanted[i].where, &f, sizeof f);
    }
    return 1;
}

static void say_loaded(void)
{
    int version = 0;
    char path[512];
    void *f;
    memcpy(&f, &nccl.get_version, sizeof f);
    gpu_libraries_path(f, path, sizeof path);
    (void)nccl.get_version(&version);
    LOG_I("NCCL %d.%d.%d (%s)", version / 10000, version / 100 % 100, version % 100, path);
}

const struct gpu_nccl *gpu_nccl_load(void)
{
    pthread_mutex_lock(&lock);
    if (!loaded) {
        void *so = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (so == NULL)
            LOG_W(
                "CUDA backend: NCCL cannot be loaded: %s; install NVIDIA's package libnccl2, or name its folder in LD_LIBRARY_PATH",
                dlerror());
        loaded = so != NULL && look_up(so);
        if (loaded)
            say_loaded();
    }
    int there = loaded;
    pthread_mutex_unlock(&lock);
    return there ? &nccl : NULL;
}
