/* bench/vector.c - compares the loops of kernels/vector and the checksum with the speed of memcpy.
 *     bench_vector [rounds] [milliseconds of a turn]
 * Each contestant runs over a working set (all its arrays together) that fits into a core's L2
 * cache, and over a larger one. Each byte that it reads or writes is counted once, as for memcpy.
 * In a round each contestant has a turn, right after a turn of memcpy, so that other load on the
 * machine affects both alike. Times are the thread's processor time. Prints the medians of GB/s and
 * of the ratios to memcpy's speed, and the ratios as a line of JSON. */
#include "kernels/vector/vector.h"
#include "base/digest.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include "kernels/vector/quant.h"
#include "kernels/vector/topk.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 101, N_SIZES = 2, N_ARRAYS = 5 };
static const size_t sizes[N_SIZES] = {64u << 10, 64u << 20};
static const char *const size_names[N_SIZES] = {"64 KB", "64 MB"};

/* The arrays of one working set: n floats each; unused arrays are NULL. */
struct set {
    size_t n;
    float *array[N_ARRAYS];
    struct optim_config optim;
    uint64_t step;
};

struct contestant {
    const char *name;
    void (*pass)(struct set *s);
    int n_arrays; /* number of arrays of a set; each gets room for n floats, even if it holds
                   * shorter elements */
    double moved; /* bytes read and written per element */
    int optimizer, momentum;
};

static volatile uint64_t sink;

static void pass_memcpy(struct set *s)
{
    memcpy(s->array[1], s->array[0], s->n * sizeof(float));
}

VECTOR_CLONES static uint64_t sum_of(const uint64_t *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

static void pass_read(struct set *s)
{
    sink = sum_of((const uint64_t *)(const void *)s->array[0], s->n / 2);
}

static void pass_scale(struct set *s)
{
    vector_scale(s->array[1], s->array[0], 0.5f, s->n);
}

static void pass_add_scaled(struct set *s)
{
    vector_add_scaled(s->array[1], s->array[0], 1e-6f, s->n);
}

static void pass_add_unaligned(struct set *s)
{
    vector_add_scaled(s->array[1], (const char *)s->array[0] + 1, 1e-6f, s->n - 16);
}

static void pass_sum_scaled(struct set *s)
{
    vector_sum_scaled(s->array[2], s->array[1], s->array[0], 0.5f, s->n);
}

static void pass_encode_bf16(struct set *s)
{
    dtype_encode(DTYPE_BF16, s->array[1], s->array[0], s->n);
}

static void pass_decode_bf16(struct set *s)
{
    dtype_decode(DTYPE_BF16, s->array[0], s->array[1], s->n);
}

static void pass_encode_f16(struct set *s)
{
    dtype_encode(DTYPE_F16, s->array[1], s->array[0], s->n);
}

static void pass_decode_f16(struct set *s)
{
    dtype_decode(DTYPE_F16, s->array[0], s->array[1], s->n);
}

static void pass_quant8(struct set *s)
{
    quant_encode(8, s->array[1], s->array[0], s->array[2], s->n);
}

static void pass_unquant8(struct set *s)
{
    quant_decode(8, s->array[0], s->array[1], s->n);
}

static void pass_quant4(struct set *s)
{
    quant_encode(4, s->array[1], s->array[0], s->array[2], s->n);
}

static void pass_unquant4(struct set *s)
{
    quant_decode(4, s->array[0], s->array[1], s->n);
}

static void pass_topk(struct set *s)
{
    topk_encode(s->array[1], s->array[0], s->array[2], s->n);
}

static void pass_untopk(struct set *s)
{
    topk_decode(s->array[0], s->array[1], s->n);
}

static void pass_crc32c(struct set *s)
{
    sink = digest_crc32c(0, s->array[0], s->n * sizeof(float));
}

/* Runs one optimizer. A chunk's slots lie one behind the other, and old and new slots are separate
 * arrays, as on a server. */
static void pass_optim(struct set *s)
{
    optim_apply(&s->optim, ++s->step, s->n, s->array[0], 1e-3f, s->array[1], s->array[3],
                s->array[2]);
}

static const struct contestant contestants[] = {
    {"memcpy", pass_memcpy, 2, 8, -1, 0}, /* must be first: other loops are compared with it */
    {"read and sum", pass_read, 1, 4, -1, 0},
    {"vector_scale", pass_scale, 2, 8, -1, 0},
    {"vector_add_scaled", pass_add_scaled, 2, 12, -1, 0},
    {"vector_add_scaled, odd address", pass_add_unaligned, 2, 12, -1, 0},
    {"vector_sum_scaled", pass_sum_scaled, 3, 12, -1, 0},
    {"dtype_encode bf16", pass_encode_bf16, 2, 6, -1, 0},
    {"dtype_decode bf16", pass_decode_bf16, 2, 6, -1, 0},
    {"dtype_encode fp16", pass_encode_f16, 2, 6, -1, 0},
    {"dtype_decode fp16", pass_decode_f16, 2, 6, -1, 0},
    {"quant_encode int8, residual", pass_quant8, 3, 13, -1, 0},
    {"quant_decode int8", pass_unquant8, 2, 5, -1, 0},
    {"quant_encode int4, residual", pass_quant4, 3, 12.5, -1, 0},
    {"quant_decode int4", pass_unquant4, 2, 4.5, -1, 0},
    {"topk_encode, residual", pass_topk, 3, 12.1, -1, 0},
    {"topk_decode", pass_untopk, 2, 4.1, -1, 0},
    {"optim sgd", pass_optim, 3, 12, OPTIM_SGD, 0},
    {"optim momentum", pass_optim, 4, 20, OPTIM_MOMENTUM, 0},
    {"optim nesterov", pass_optim, 4, 20, OPTIM_NESTEROV, 0},
    {"optim adagrad", pass_optim, 4, 20, OPTIM_ADAGRAD, 0},
    {"optim rmsprop", pass_optim, 4, 20, OPTIM_RMSPROP, 0},
    {"optim rmsprop, momentum", pass_optim, 5, 28, OPTIM_RMSPROP, 1},
    {"optim adam", pass_optim, 5, 28, OPTIM_ADAM, 0},
    {"optim adamw", pass_optim, 5, 28, OPTIM_ADAMW, 0},
    {"digest_crc32c", pass_crc32c, 1, 4, -1, 0},
};
enum { N = sizeof contestants / sizeof *contestants };

/* Lays the arrays out in `room`, each at a multiple of 64 bytes, and fills them. */
static void prepare(const struct contestant *c, size_t bytes, float *room, struct set *s)
{
    *s = (struct set){.n = bytes / sizeof(float) / (size_t)c->n_arrays / 16 * 16};
    for (int a = 0; a < c->n_arrays; a++) {
        s->array[a] = room + (size_t)a * s->n;
        for (size_t i = 0; i < s->n; i++)
            s->array[a][i] = 0.25f + (float)(i % 1024) / 1024;
    }
    if (c->pass == pass_add_unaligned) /* the same numbers, shifted by a byte */
        memmove((char *)s->array[0] + 1, s->array[0], (s->n - 16) * sizeof(float));
    if (c->optimizer < 0)
        return;
    optim_defaults((enum optim_kind)c->optimizer, &s->optim);
    if (c->momentum)
        s->optim.momentum = 0.9f;
}

/* Returns the processor time of this thread, which excludes other programs. */
static double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Returns GB/s over at least `turn` seconds. */
static double measure(const struct contestant *c, struct set *s, double turn)
{
    c->pass(s);
    for (size_t passes = 1;; passes *= 2) {
        double start = cpu_seconds();
        for (size_t i = 0; i < passes; i++)
            c->pass(s);
        double seconds = cpu_seconds() - start;
        if (seconds >= turn)
            return (double)passes * (double)s->n * c->moved / seconds / 1e9;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct figure {
    double speed, to_memcpy;
};

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static void run(int rounds, double turn, float *room, struct figure out[N_SIZES][N])
{
    static double speed[N][MAX_ROUNDS], ratio[N][MAX_ROUNDS];
    for (int z = 0; z < N_SIZES; z++) {
        for (int r = 0; r < rounds; r++)
            for (int k = 0; k < N; k++) {
                struct set s;
                prepare(&contestants[0], sizes[z], room, &s);
                double before = measure(&contestants[0], &s, turn);
                prepare(&contestants[k], sizes[z], room, &s);
                speed[k][r] = measure(&contestants[k], &s, turn);
                ratio[k][r] = speed[k][r] / before;
            }
        for (int k = 0; k < N; k++)
            out[z][k] = (struct figure){.speed = median(speed[k], rounds),
                                        .to_memcpy = median(ratio[k], rounds)};
    }
}

static void print(struct figure f[N_SIZES][N])
{
    printf("%-32s", "GB/s (to memcpy)");
    for (int z = 0; z < N_SIZES; z++)
        printf("  %16s", size_names[z]);
    for (int k = 0; k < N; k++) {
        printf("\n%-32s", contestants[k].name);
        for (int z = 0; z < N_SIZES; z++)
            printf("  %8.1f (%5.2f)", f[z][k].speed, f[z][k].to_memcpy);
    }
    printf("\n{\"loops\": \"%s\"", vector_description());
    for (int k = 0; k < N; k++)
        printf(", \"%s\": [%.2f, %.2f]", contestants[k].name, f[0][k].to_memcpy, f[1][k].to_memcpy);
    printf("}\n");
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    int turn_ms = argc > 2 ? atoi(argv[2]) : 10;
    float *room = aligned_alloc(64, sizes[N_SIZES - 1]);
    static struct figure figures[N_SIZES][N];
    if (rounds < 1 || rounds > MAX_ROUNDS || turn_ms < 1 || room == NULL) {
        fprintf(stderr, "usage: bench_vector [rounds, 1 to %d] [milliseconds of a turn]\n",
                MAX_ROUNDS);
        free(room);
        return 2;
    }
    run(rounds, turn_ms / 1e3, room, figures);
    print(figures);
    free(room);
    return 0;
}
