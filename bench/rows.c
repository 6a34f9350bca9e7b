/* bench/rows.c - measures how fast one core of a server looks up, merges and updates the rows of a
 * table, for tables of several sizes.
 *     bench_rows [keys of a member in a step] [rounds] [rows of a table ...]
 * Between the numbers of rows, fp32 or bf16 is the format of the values of the tables that follow
 * (fp32 by default). A table has 64 buckets, 16 floats for each row, Adagrad, and the previous
 * version (as in sync). It is filled first. Then in each round each table has a step of two
 * members: the first contribution is copied, the second one is merged in place, and both members
 * read the keys of their next step. The keys are log-uniform: rank r of n rows has a probability of
 * about 1 / (r log n). Generating and sorting keys is not measured. Times are the thread's
 * processor time. Prints the median of the rounds, in millions of rows per second: rows that are
 * created by the fill, rows that are pushed, rows that are pulled, and rows that are both pushed
 * and pulled; then the same as a line of JSON. */
#include "base/rng.h"
#include "ps/rows/merge.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    N_BUCKETS = 64,
    N_MEMBERS = 2,
    DIM = 16,
    MAX_ROUNDS = 1001,
    MAX_TABLES = 8,
    FILL_KEYS = 1 << 16 /* number of rows that one step creates */
};

struct keys { /* keys of one member in one step, by bucket, ascending and unique */
    uint64_t *all;
    size_t first[N_BUCKETS + 1];
};

struct table {
    uint64_t n_rows;
    enum dtype dtype;
    struct bucket *bucket[N_BUCKETS];
    struct merge *merge[N_BUCKETS];
    struct keys keys[N_MEMBERS];
    double created, push[MAX_ROUNDS], pull[MAX_ROUNDS], both[MAX_ROUNDS]; /* million rows/s */
};

static uint64_t drawn;
static float *gradients, *values;

static void check(enum status st, const char *what)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "bench_rows: %s: %s\n", what, status_text(st));
    exit(1);
}

/* Returns the processor time of this thread, which excludes other programs. */
static double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t bucket_of(uint64_t key)
{
    return rng_mix(key) % N_BUCKETS;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    uint64_t in_x = bucket_of(x), in_y = bucket_of(y);
    if (in_x != in_y)
        return in_x < in_y ? -1 : 1;
    return (x > y) - (x < y);
}

/* Sorts n keys by bucket and key, and removes repeated ones. */
static void arrange(struct keys *k, size_t n)
{
    size_t kept = 0, bucket = 0;
    qsort(k->all, n, sizeof *k->all, compare_keys);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && k->all[i] == k->all[i - 1])
            continue;
        while (bucket <= bucket_of(k->all[i]))
            k->first[bucket++] = kept;
        k->all[kept++] = k->all[i];
    }
    while (bucket <= N_BUCKETS)
        k->first[bucket++] = kept;
}

static void draw_keys(struct table *t, struct keys *k, size_t n)
{
    uint64_t stream = rng_key(1, RNG_TEST, 0);
    for (size_t i = 0; i < n; i++) {
        double u = (double)(rng_u64(stream, drawn++) >> 11) * 0x1p-53;
        uint64_t rank = (uint64_t)exp(u * log((double)t->n_rows));
        k->all[i] = rng_mix(rank < t->n_rows ? rank : t->n_rows - 1);
    }
    arrange(k, n);
}

static struct merge_input input_of(const struct keys *k, int bucket)
{
    size_t n = k->first[bucket + 1] - k->first[bucket];
    return (struct merge_input){n, 1, k->all + k->first[bucket], gradients};
}

static void create(struct table *t)
{
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        struct bucket_config c = {.dim = DIM,
                                  .dtype = t->dtype,
                                  .init = {ROW_INIT_UNIFORM, 0.01f, row_init_key(1, "bench")},
                                  .number = i,
                                  .n_buckets = N_BUCKETS,
                                  .keeps_previous = true,
                                  .max_rows = UINT32_MAX};
        optim_rows_defaults(OPTIM_ROWS_ADAGRAD, &c.optimizer);
        check(bucket_create(&c, &t->bucket[i]), "bucket");
        check(merge_create(N_MEMBERS, DIM, &t->merge[i]), "merge");
    }
}

static void fill(struct table *t)
{
    struct keys *k = &t->keys[0];
    double seconds = 0;
    for (uint64_t at = 0; at < t->n_rows; at += FILL_KEYS) {
        size_t n = t->n_rows - at < FILL_KEYS ? (size_t)(t->n_rows - at) : FILL_KEYS;
        for (size_t i = 0; i < n; i++)
            k->all[i] = rng_mix(at + i);
        arrange(k, n);
        double start = cpu_seconds();
        for (int i = 0; i < N_BUCKETS; i++) {
            struct merge_input in = input_of(k, i);
            check(merge_run(t->merge[i], t->bucket[i], 0, &in, 1, 1), "fill");
        }
        seconds += cpu_seconds() - start;
    }
    t->created = (double)t->n_rows / seconds / 1e6;
}

/* Pushes the keys of both members. Returns the seconds. */
static double push(struct table *t)
{
    double start = cpu_seconds();
    for (int i = 0; i < N_BUCKETS; i++) {
        struct merge_input in = input_of(&t->keys[0], i), last = input_of(&t->keys[1], i);
        check(merge_keep(t->merge[i], 0, &in), "push");
        check(merge_run(t->merge[i], t->bucket[i], 1, &last, 0.5f, 1), "push");
    }
    return cpu_seconds() - start;
}

static double pull(struct table *t)
{
    double start = cpu_seconds();
    for (int m = 0; m < N_MEMBERS; m++)
        for (int i = 0; i < N_BUCKETS; i++) {
            struct merge_input in = input_of(&t->keys[m], i);
            check(bucket_read(t->bucket[i], t->bucket[i]->version, in.keys, in.n, values), "pull");
        }
    return cpu_seconds() - start;
}

static void step(struct table *t, size_t n, int round)
{
    size_t pushed = 0, pulled = 0;
    for (int m = 0; m < N_MEMBERS; m++)
        pushed += t->keys[m].first[N_BUCKETS];
    double push_s = push(t);
    for (int m = 0; m < N_MEMBERS; m++) {
        draw_keys(t, &t->keys[m], n);
        pulled += t->keys[m].first[N_BUCKETS];
    }
    double pull_s = pull(t);
    t->push[round] = (double)pushed / push_s / 1e6;
    t->pull[round] = (double)pulled / pull_s / 1e6;
    t->both[round] = 1 / (1 / t->push[round] + 1 / t->pull[round]);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values_of, int n)
{
    qsort(values_of, (size_t)n, sizeof *values_of, compare_doubles);
    return values_of[n / 2];
}

static double bytes_of_row(const struct table *t)
{
    size_t bytes = 0;
    for (int i = 0; i < N_BUCKETS; i++)
        bytes += row_table_bytes(&t->bucket[i]->rows);
    return (double)bytes / (double)t->n_rows;
}

static void report(struct table *tables, int n_tables, int rounds)
{
    printf("%12s %7s %10s %10s %10s %10s %14s\n", "rows", "format", "created", "pushed", "pulled",
           "both", "bytes per row");
    for (int i = 0; i < n_tables; i++) {
        struct table *t = &tables[i];
        printf("%12" PRIu64 " %7s %10.2f %10.2f %10.2f %10.2f %14.1f\n", t->n_rows,
               dtype_name(t->dtype), t->created, median(t->push, rounds), median(t->pull, rounds),
               median(t->both, rounds), bytes_of_row(t));
    }
    printf("{");
    for (int i = 0; i < n_tables; i++) {
        const struct table *t = &tables[i];
        printf("%s\"%" PRIu64 " %s\": [%.2f, %.2f, %.2f, %.2f]", i ? ", " : "", t->n_rows,
               dtype_name(t->dtype), t->created, t->push[rounds / 2], t->pull[rounds / 2],
               t->both[rounds / 2]);
    }
    printf("}\n");
}

/* Reads the tables of the command line. Returns their number; -1: an argument is not valid. */
static int read_tables(int argc, char **argv, struct table *tables)
{
    static const uint64_t default_rows[] = {100000, 1000000, 10000000};
    enum dtype dtype = DTYPE_F32;
    int n = 0;
    for (int i = 0; i < argc; i++) {
        bool is_half = strcmp(argv[i], "bf16") == 0;
        if (is_half || strcmp(argv[i], "fp32") == 0) {
            dtype = is_half ? DTYPE_BF16 : DTYPE_F32;
            continue;
        }
        tables[n] = (struct table){.n_rows = strtoull(argv[i], NULL, 10), .dtype = dtype};
        if (tables[n].n_rows < 1 || ++n == MAX_TABLES)
            return -1;
    }
    for (int i = 0; n == 0 && i < 3; i++)
        tables[i] = (struct table){.n_rows = default_rows[i], .dtype = dtype};
    return n > 0 ? n : 3;
}

int main(int argc, char **argv)
{
    static struct table tables[MAX_TABLES];
    long n = argc > 1 ? atol(argv[1]) : 16384, rounds = argc > 2 ? atol(argv[2]) : 51;
    int n_tables = read_tables(argc > 3 ? argc - 3 : 0, argv + 3, tables);
    if (n < 1 || n > 1 << 20 || rounds < 1 || rounds > MAX_ROUNDS || n_tables < 0) {
        fprintf(stderr,
                "usage: bench_rows [keys of a step] [rounds, 1 to %d] [[fp32|bf16] rows ...]\n",
                MAX_ROUNDS);
        return 2;
    }
    size_t most = (size_t)n > FILL_KEYS ? (size_t)n : FILL_KEYS;
    gradients = calloc(most * DIM, sizeof *gradients);
    values = malloc(most * DIM * sizeof *values);
    for (size_t i = 0; gradients && i < most * DIM; i++)
        gradients[i] = (float)(i % 1024) / 1024 - 0.5f;
    for (int i = 0; i < n_tables; i++) {
        struct table *t = &tables[i];
        for (int m = 0; m < N_MEMBERS; m++)
            t->keys[m].all = malloc(most * sizeof(uint64_t));
        if (!gradients || !values || !t->keys[0].all || !t->keys[1].all)
            return 1;
        create(t);
        fill(t);
        for (int m = 0; m < N_MEMBERS; m++)
            draw_keys(t, &t->keys[m], (size_t)n);
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < n_tables; i++)
            step(&tables[i], (size_t)n, round);
    report(tables, n_tables, (int)rounds);
    return 0;
}
