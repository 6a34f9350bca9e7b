/* tests/fuzz_weights.c - libFuzzer target: any bytes as the state dict of --init, or, if they begin
 * with '#', as --init_map's text for a valid state dict. Accepted values are finite, and only
 * parameters of the file are written. Corpus: tests/corpus/weights. */
#include "tests/fuzz.h"
#include "worker/weights/weights.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 12 + 4 + 2 };
static const struct net_param params[] = {
    {.name = "c/weights", .shape = {4, {2, 1, 3, 2}}},
    {.name = "n/gamma", .shape = {1, {4}}},
    {.name = "n/moving_mean", .shape = {1, {2}}, .rule = PARAM_AVERAGE, .keep = 0.5f},
};
static const char sound[] =
    "{\"c.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3,2],\"data_offsets\":[0,24]},\"n.weight\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[24,32]},\"n.running_mean\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}";

static int memory_file(const void *data, size_t n, char path[64])
{
    int fd = memfd_create("weights", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static int sound_file(char path[64])
{
    char all[sizeof sound + 48] = {0};
    uint64_t length = sizeof sound - 1;
    memcpy(all, &length, 8);
    memcpy(all + 8, sound, length);
    return memory_file(all, 8 + length + 40, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], map_path[64] = "";
    float flat[N];
    uint8_t given[3] = {0};
    struct chunks *chunks = NULL;
    int is_map = size > 0 && data[0] == '#', map = -1;
    int fd = is_map ? sound_file(path) : memory_file(data, size, path);
    if (is_map)
        map = memory_file(data, size, map_path);
    require(chunks_create(params, 3, 65536, &chunks) == ST_OK);
    for (int i = 0; i < N; i++)
        flat[i] = 1e30f;
    struct weights_request q = {"init", path, is_map ? map_path : NULL, chunks, 0, NULL};
    struct weights_result result = {0};
    int taken = weights_read(&q, flat, given, &result) == ST_OK;
    require(!result.origin.normal_known || !job_input_normal_problem(&result.origin.normal));
    for (int k = 0; k < 3 && taken; k++)
        for (int64_t i = 0; i < chunks->params[k].n_elems; i++) {
            float v = flat[chunks->params[k].first + i];
            require(given[k] ? isfinite(v) : v == 1e30f);
        }
    chunks_destroy(chunks);
    if (map >= 0)
        close(map);
    close(fd);
    return 0;
}
