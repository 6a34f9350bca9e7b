/* tests/emulation/machine.c - see the header. */
#include "tests/emulation/machine.h"
#include "tests/emulation/runtime.h"
#include "tests/fake_driver/usage.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_DEVICES = 2 };
/* Bytes of a device: enough for the largest test. A plan uses an eighth of them for cuBLAS, up to
 * 32 MB, and fills all its memory with NaN. */
static const size_t device_bytes = (size_t)128 << 20;
static size_t own_bytes[EMULATION_MAX_DEVICES]; /* bytes in use, if there is no fake driver */

static const struct fake_state *(*fake_look)(int device, int *card);

/* Looks for the fake driver once: each launch needs it, and ThreadSanitizer reads the map of memory
 * after each dlopen(). */
static void fake_find(void)
{
    void *so = getenv("WEIR_FAKE_GPUS") ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
    void *f = so != NULL ? dlsym(so, "fake_cuda_card") : NULL;
    memcpy(&fake_look, &f, sizeof fake_look);
}

/* Returns the state of the machine, and sets *card to the index of the card with CUDA's number
 * `device`. NULL: there is no fake driver. */
static const struct fake_state *fake_card(int device, int *card)
{
    static pthread_once_t found = PTHREAD_ONCE_INIT;
    pthread_once(&found, fake_find);
    return fake_look != NULL ? fake_look(device, card) : NULL;
}

static const struct fake_gpu *fake_gpu_of(int device)
{
    int card;
    const struct fake_state *s = fake_card(device, &card);
    return s != NULL && card >= 0 ? &s->gpu[card] : NULL;
}

int emulation_n_devices(void)
{
    int card, n = 0;
    const char *wanted = getenv("WEIR_EMULATED_DEVICES");
    if (fake_card(0, &card) == NULL)
        return wanted != NULL ? atoi(wanted) : N_DEVICES;
    while (n < EMULATION_MAX_DEVICES && fake_card(n, &card) != NULL && card >= 0)
        n++;
    return n;
}

size_t emulation_total_bytes(int device)
{
    const struct fake_gpu *g = fake_gpu_of(device);
    return g != NULL ? (size_t)g->own.total_mb << 20 : device_bytes;
}

size_t emulation_free_bytes(int device)
{
    int card;
    const struct fake_state *s = fake_card(device, &card);
    if (s == NULL || card < 0)
        return device_bytes - own_bytes[device];
    const struct fake_part *own = &s->gpu[card].own;
    unsigned long long used = own->used_mb << 20, total = own->total_mb << 20;
    struct fake_usage *u = fake_usage_open(1);
    for (int i = 0; u != NULL && i < FAKE_MAX_USERS; i++)
        used += fake_usage_of(u, i, card);
    fake_usage_close(u);
    return used < total ? (size_t)(total - used) : 0;
}

void emulation_book(int device, long long bytes)
{
    int card, mine = -1;
    if (fake_card(device, &card) == NULL || card < 0) {
        own_bytes[device] = (size_t)((long long)own_bytes[device] + bytes);
        return;
    }
    struct fake_usage *u = fake_usage_open(1);
    for (int i = 0; u != NULL && i < FAKE_MAX_USERS; i++)
        if (u->user[i].pid == (int)getpid())
            mine = i;
    for (int i = 0; u != NULL && mine < 0 && i < FAKE_MAX_USERS; i++)
        if (!fake_usage_lives(u, i)) {
            memset(&u->user[i], 0, sizeof u->user[i]);
            u->user[i].pid = (int)getpid();
            mine = i;
        }
    if (mine >= 0)
        u->user[mine].bytes[card] += bytes;
    fake_usage_close(u);
}

int emulation_error(int device)
{
    const struct fake_gpu *g = fake_gpu_of(device);
    int error = g != NULL ? g->error : 0;
    while (error == -1)
        pause();
    if (error == -2)
        emulation_fail("a driver that crashes");
    return error;
}

int emulation_is_wrong(int device)
{
    const struct fake_gpu *g = fake_gpu_of(device);
    return g != NULL && g->wrong;
}

int emulation_is_unpinned(int device)
{
    const struct fake_gpu *g = fake_gpu_of(device);
    return g != NULL && g->unpinned;
}

int emulation_launches(int device)
{
    const struct fake_gpu *g = fake_gpu_of(device);
    return g != NULL ? g->launches : 0;
}

void emulation_identity(int device, char *name, size_t size, unsigned char uuid[16], int pci[3])
{
    const struct fake_gpu *g = fake_gpu_of(device);
    snprintf(name, size, "%s", g != NULL ? g->name : "emulated");
    memset(uuid, device, 16);
    if (g != NULL)
        fake_uuid_bytes(&g->own, uuid);
    for (int i = 0; i < 3; i++)
        pci[i] = g != NULL ? (int)g->pci[i] : device * (i == 1);
}

void emulation_capability(int device, int *major, int *minor)
{
    const struct fake_gpu *g = fake_gpu_of(device);
    const char *wanted = getenv("WEIR_EMULATED_CC");
    *major = 9;
    *minor = 0;
    if (g != NULL && g->cc[0] > 0) {
        *major = g->cc[0];
        *minor = g->cc[1];
    } else if (wanted != NULL && sscanf(wanted, "%d.%d", major, minor) != 2) {
        emulation_fail("WEIR_EMULATED_CC is no compute capability");
    }
}

int emulation_driver_version(void)
{
    int card;
    const struct fake_state *s = fake_card(0, &card);
    return s != NULL ? s->cuda_version : 0;
}

int emulation_driver_error(void)
{
    int card;
    const struct fake_state *s = fake_card(0, &card);
    return s != NULL ? s->runtime_error : 0;
}
