/* tests/fake_driver/state.h - the machine that the fake libcuda.so.1 and libnvidia-ml.so.1 show.
 * WEIR_FAKE_GPUS is the path of a text file that describes the machine. A line has one word, and
 * then KEY=VALUE pairs. A '_' in a name stands for a space, and sizes are in MB:
 *     cuda init=100                        result of cuInit
 *     cuda version=12040 runtime=35        supported CUDA version; the runtime's error for it
 *     nvml init=9                          result of nvmlInit
 *     gpu uuid=GPU-... pci=0000:3b:00.0 name=NVIDIA_H200 cc=9.0 total=143771 used=600 busy=0
 *         procs=12,13 speed=2 lost=1       (one line; cards in the order of NVML, which is by bus)
 *         error=46 wrong=1 launches=200    (for tests/emulation: CUDA's result, -1: CUDA hangs, -2:
 *         unpinned=1      CUDA crashes; wrong products; no launch after the 200th; nothing pinned)
 *         temp=41 power=68500 limit=700000 ecc=1 eccerr=0    (absent: not supported; power in mW)
 *     nvml driver=550.54.15 container=1    in a container: the lists of processes are empty
 *     mig uuid=MIG-... total=18000 used=0 procs=    an instance of the card above
 * lost=1: NVML has no handle of the card; 2: the handle's queries fail; 3: they fail, and libcuda,
 * which lists all lost cards, hides the memory. lag=1000: a process reads busy=0 after 1 s. */
#ifndef TESTS_FAKE_DRIVER_STATE_H
#define TESTS_FAKE_DRIVER_STATE_H
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_MAX = 16, FAKE_MAX_PROCS = 16 };

struct fake_part {
    char uuid[64];
    unsigned long long total_mb, used_mb;
    unsigned proc[FAKE_MAX_PROCS];
    int n_procs;
};

struct fake_gpu {
    struct fake_part own;
    char name[64];
    unsigned pci[4];
    int cc[2], busy, lag, speed, lost, error, wrong, launches, unpinned;
    int temp, power, limit, ecc, eccerr; /* below 0: not supported */
    struct fake_part mig[FAKE_MAX];
    int n_migs;
};

struct fake_state {
    int cuda_init, cuda_version, runtime_error, nvml_init, nvml_container, n;
    char nvml_driver[32];
    struct fake_gpu gpu[FAKE_MAX];
};

static inline void fake_read_part(struct fake_part *p, const char *key, const char *value)
{
    if (strcmp(key, "uuid") == 0)
        snprintf(p->uuid, sizeof p->uuid, "%s", value);
    else if (strcmp(key, "total") == 0)
        p->total_mb = strtoull(value, NULL, 10);
    else if (strcmp(key, "used") == 0)
        p->used_mb = strtoull(value, NULL, 10);
    else if (strcmp(key, "procs") == 0)
        for (char *at = (char *)value; *at && p->n_procs < FAKE_MAX_PROCS; at += *at == ',')
            p->proc[p->n_procs++] = (unsigned)strtoul(at, &at, 10);
}

/* Returns false if the UUID is invalid. */
static inline int fake_uuid_bytes(const struct fake_part *part, unsigned char out[16])
{
    const char *s = part->uuid + 4;
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        s += *s == '-';
        if (!isxdigit((unsigned char)*s) || sscanf(s, "%2x", &byte) != 1)
            return 0;
        out[i] = (unsigned char)byte;
        s += 2;
    }
    return 1;
}

static inline void fake_read_gpu(struct fake_gpu *g, const char *key, const char *value)
{
    fake_read_part(&g->own, key, value);
    if (strcmp(key, "name") == 0) {
        snprintf(g->name, sizeof g->name, "%s", value);
        for (char *c = g->name; *c; c++)
            *c = *c == '_' ? ' ' : *c;
    } else if (strcmp(key, "pci") == 0) {
        sscanf(value, "%x:%x:%x.%x", &g->pci[0], &g->pci[1], &g->pci[2], &g->pci[3]);
    } else if (strcmp(key, "cc") == 0) {
        sscanf(value, "%d.%d", &g->cc[0], &g->cc[1]);
    }
    const struct {
        const char *key;
        int *to;
    } numbers[] = {{"busy", &g->busy},        {"speed", &g->speed},       {"lost", &g->lost},
                   {"error", &g->error},      {"wrong", &g->wrong},       {"temp", &g->temp},
                   {"power", &g->power},      {"launches", &g->launches}, {"limit", &g->limit},
                   {"ecc", &g->ecc},          {"eccerr", &g->eccerr},     {"lag", &g->lag},
                   {"unpinned", &g->unpinned}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].key) == 0)
            *numbers[i].to = atoi(value);
}

static inline void fake_read_line(struct fake_state *s, char *line)
{
    char *save = NULL, *word = strtok_r(line, " \n", &save), *pair;
    if (word == NULL)
        return;
    struct fake_gpu *g = s->n > 0 ? &s->gpu[s->n - 1] : NULL;
    struct fake_part *mig = NULL;
    if (strcmp(word, "gpu") == 0 && s->n < FAKE_MAX) {
        g = &s->gpu[s->n++];
        g->temp = g->power = g->limit = g->ecc = g->eccerr = -1;
    } else if (strcmp(word, "mig") == 0 && g != NULL && g->n_migs < FAKE_MAX)
        mig = &g->mig[g->n_migs++];
    while ((pair = strtok_r(NULL, " \n", &save)) != NULL) {
        char *value = strchr(pair, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        if (strcmp(word, "cuda") == 0 && strcmp(pair, "version") == 0)
            s->cuda_version = atoi(value);
        else if (strcmp(word, "cuda") == 0 && strcmp(pair, "runtime") == 0)
            s->runtime_error = atoi(value);
        else if (strcmp(word, "cuda") == 0)
            s->cuda_init = atoi(value);
        else if (strcmp(word, "nvml") == 0 && strcmp(pair, "driver") == 0)
            snprintf(s->nvml_driver, sizeof s->nvml_driver, "%s", value);
        else if (strcmp(word, "nvml") == 0)
            *(strcmp(pair, "init") == 0 ? &s->nvml_init : &s->nvml_container) = atoi(value);
        else if (mig != NULL)
            fake_read_part(mig, pair, value);
        else if (g != NULL)
            fake_read_gpu(g, pair, value);
    }
}

/* Returns false if there is no such file. */
static inline int fake_read(struct fake_state *s)
{
    char line[1024];
    const char *path = getenv("WEIR_FAKE_GPUS");
    FILE *f = path ? fopen(path, "re") : NULL;
    memset(s, 0, sizeof *s);
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        fake_read_line(s, line);
    fclose(f);
    return 1;
}

#endif
