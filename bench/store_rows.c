/* bench/store_rows.c - measures how fast a server's store handles pushes to the buckets of a table:
 * it checks and copies them, merges them, and makes the answers. The network is not measured.
 *     bench_store_rows [members] [keys of a member in a step] [rounds] [update threads] [rows ...]
 * The job is in sync; its table has 64 buckets, 16 floats for each row, and Adagrad. It is filled
 * first. In each round all members push to all buckets, one member after the other, and read the
 * same keys. The keys are log-uniform, as in bench/rows.c. One thread sends all pushes. Generating
 * and sorting keys is not measured. Prints the median of the rounds, by the clock: million rows
 * per second that are pushed and answered; and the microseconds of a push without keys. */
#include "base/clock.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "net/wire/tables.h"
#include "ps/store/store.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUCKETS = 64, DIM = 16, MAX_MEMBERS = 64, MAX_ROUNDS = 1001, FILL_KEYS = 1 << 16 };

struct push { /* contribution of a member to a bucket: keys, read keys, gradients */
    uint8_t *data;
    size_t bytes, room;
    uint32_t n;
};

struct bench {
    int n_members, n_threads;
    size_t n_keys, rounds;
    struct chunks *chunks;
    struct store *store;
    int64_t step;
    struct push push[MAX_MEMBERS][N_BUCKETS];
    uint64_t *keys;
    uint64_t drawn;
    pthread_mutex_t lock; /* guards n_answers */
    pthread_cond_t answered;
    int n_answers; /* answers that are missing in this step */
};

static void check(enum status st, const char *what)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "bench_store_rows: %s: %s\n", what, status_text(st));
    exit(1);
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct bench *b = ctx;
    if (a->kind == PIECE_REFUSED) {
        fprintf(stderr, "bench_store_rows: refused: %s\n", a->why);
        exit(1);
    }
    pthread_mutex_lock(&b->lock);
    if (--b->n_answers == 0)
        pthread_cond_signal(&b->answered);
    pthread_mutex_unlock(&b->lock);
}

static void open_store(struct bench *b, uint64_t n_rows, struct thread_pool *threads)
{
    static const struct net_param param = {.name = "w", .shape = {1, {1}}};
    static int server[1 + N_BUCKETS];
    struct net_table table = {.name = "bench",
                              .dim = DIM,
                              .n_buckets = N_BUCKETS,
                              .max_rows = (int64_t)n_rows + FILL_KEYS,
                              .step_rows = FILL_KEYS,
                              .init = ROW_INIT_UNIFORM,
                              .init_scale = 0.01f};
    struct net_job job = {.n_workers = b->n_members, .train_steps = INT64_MAX / 2};
    optim_defaults(OPTIM_SGD, &job.optim);
    optim_rows_defaults(OPTIM_ROWS_ADAGRAD, &table.optimizer);
    check(chunks_create(&param, 1, CHUNKS_DEFAULT_BYTES, &b->chunks), "chunks");
    check(tables_add(b->chunks, &table, 1), "table");
    const struct store_config cfg = {.chunks = b->chunks,
                                     .job = &job,
                                     .server = server,
                                     .generation = 1,
                                     .max_bytes = INT64_MAX,
                                     .threads = threads,
                                     .answer = on_answer,
                                     .ctx = b};
    check(store_create(&cfg, &b->store), "store");
    for (int m = 0; m < b->n_members; m++)
        store_admit(b->store, m, 1);
    b->step = 0;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Makes a member's pushes of n keys. Gradients are small numbers. */
static void make_pushes(struct bench *b, int member, size_t n)
{
    const struct net_table *t = &b->chunks->tables[0];
    size_t kept = 0;
    qsort(b->keys, n, sizeof *b->keys, compare_keys);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || b->keys[i] != b->keys[i - 1])
            b->keys[kept++] = b->keys[i];
    for (int bucket = 0; bucket < N_BUCKETS; bucket++) {
        struct push *p = &b->push[member][bucket];
        p->n = 0;
        for (size_t i = 0; i < kept; i++)
            p->n += tables_bucket(t, b->keys[i]) == bucket;
        p->bytes = p->n * (2 * sizeof(uint64_t) + DIM * sizeof(float));
        if (p->bytes > p->room || !p->data) {
            p->room = p->bytes + p->bytes / 2 + 1;
            p->data = realloc(p->data, p->room);
            check(p->data ? ST_OK : ST_NOMEM, "keys");
        }
        uint64_t *to = (uint64_t *)(void *)p->data;
        float *gradients = (float *)(void *)(to + 2 * (size_t)p->n);
        for (size_t i = 0, at = 0; i < kept; i++)
            if (tables_bucket(t, b->keys[i]) == bucket)
                to[at++] = b->keys[i];
        memcpy(to + p->n, to, p->n * sizeof *to);
        for (size_t i = 0; i < p->n * (size_t)DIM; i++)
            gradients[i] = (float)(i % 13) * 0.01f - 0.06f;
    }
}

/* Sends the pushes of all members, or pushes without keys, and waits for the answers. Returns the
 * seconds. */
static double run_step(struct bench *b, bool is_empty)
{
    int64_t begin = clock_now_ns();
    b->n_answers = b->n_members * N_BUCKETS;
    for (int m = 0; m < b->n_members; m++)
        for (int i = 0; i < N_BUCKETS; i++) {
            const struct push *p = &b->push[m][i];
            const struct net_span span = {p->data, is_empty ? 0 : p->bytes};
            const struct net_frame_head head = {1, (uint32_t)m, 1};
            const struct net_piece piece = {.kind = PIECE_PUSH,
                                            .chunk = 1 + (uint32_t)i,
                                            .step = (uint64_t)b->step,
                                            .weight = 1,
                                            .unsummed = true,
                                            .rows = is_empty ? 0 : p->n,
                                            .reads = is_empty ? 0 : p->n,
                                            .payload = {&span, 0, span.n}};
            struct store_answer a;
            store_piece(b->store, &head, &piece, 1 + (uint64_t)m, 0, &a);
            check(a.kind == PIECE_NONE ? ST_OK : ST_REFUSED, a.why ? a.why : "push");
        }
    pthread_mutex_lock(&b->lock);
    while (b->n_answers > 0)
        pthread_cond_wait(&b->answered, &b->lock);
    pthread_mutex_unlock(&b->lock);
    b->step++;
    return (double)(clock_now_ns() - begin) / 1e9;
}

static void fill(struct bench *b, uint64_t n_rows)
{
    for (uint64_t at = 0; at < n_rows; at += FILL_KEYS) {
        size_t n = n_rows - at < FILL_KEYS ? (size_t)(n_rows - at) : FILL_KEYS;
        for (int m = 0; m < b->n_members; m++) {
            for (size_t i = 0; i < n; i++)
                b->keys[i] = rng_mix(at + i);
            make_pushes(b, m, m == 0 ? n : 0);
        }
        run_step(b, false);
    }
}

static void draw(struct bench *b, uint64_t n_rows)
{
    uint64_t stream = rng_key(1, RNG_TEST, 0);
    for (size_t i = 0; i < b->n_keys; i++) {
        double u = (double)(rng_u64(stream, b->drawn++) >> 11) * 0x1p-53;
        uint64_t rank = (uint64_t)exp(u * log((double)n_rows));
        b->keys[i] = rng_mix(rank < n_rows ? rank : n_rows - 1);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *b, uint64_t n_rows)
{
    static double rate[MAX_ROUNDS], empty[MAX_ROUNDS];
    struct thread_pool *threads = NULL;
    check(thread_pool_create(1 + b->n_threads, &threads), "threads");
    open_store(b, n_rows, threads);
    fill(b, n_rows);
    for (size_t round = 0; round < b->rounds; round++) {
        size_t pushed = 0;
        for (int m = 0; m < b->n_members; m++) {
            draw(b, n_rows);
            make_pushes(b, m, b->n_keys);
            for (int i = 0; i < N_BUCKETS; i++)
                pushed += b->push[m][i].n;
        }
        rate[round] = (double)pushed / run_step(b, false) / 1e6;
        empty[round] = run_step(b, true) * 1e6 / b->n_members / N_BUCKETS;
    }
    qsort(rate, b->rounds, sizeof *rate, compare_doubles);
    qsort(empty, b->rounds, sizeof *empty, compare_doubles);
    printf("%12" PRIu64 " %18.2f %18.2f\n", n_rows, rate[b->rounds / 2], empty[b->rounds / 2]);
    store_destroy(b->store);
    chunks_destroy(b->chunks);
    thread_pool_destroy(threads);
}

int main(int argc, char **argv)
{
    static struct bench b = {.lock = PTHREAD_MUTEX_INITIALIZER,
                             .answered = PTHREAD_COND_INITIALIZER};
    static const uint64_t default_rows[] = {100000, 1000000, 10000000};
    b.n_members = argc > 1 ? atoi(argv[1]) : 8;
    long n = argc > 2 ? atol(argv[2]) : 16384, rounds = argc > 3 ? atol(argv[3]) : 21;
    b.n_threads = argc > 4 ? atoi(argv[4]) : 0;
    if (b.n_members < 1 || b.n_members > MAX_MEMBERS || n < 1 || n > FILL_KEYS || rounds < 1 ||
        rounds > MAX_ROUNDS || b.n_threads < 0) {
        fprintf(stderr,
                "usage: bench_store_rows [members] [keys] [rounds] [update threads] [rows ...]\n");
        return 2;
    }
    b.n_keys = (size_t)n;
    b.rounds = (size_t)rounds;
    b.keys = malloc(FILL_KEYS * sizeof *b.keys);
    check(b.keys ? ST_OK : ST_NOMEM, "keys");
    printf("%12s %18s %18s\n", "rows", "million rows/s", "us of an empty push");
    for (int i = 0; i < (argc > 5 ? argc - 5 : 3); i++)
        measure(&b, argc > 5 ? strtoull(argv[5 + i], NULL, 10) : default_rows[i]);
    return 0;
}
