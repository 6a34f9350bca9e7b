/* tests/ps_dtype_test.c - the store of a job whose numbers cross the wire in 16 bits. A reference
 * in double precision, which rounds by itself, shows which numbers the store rounds. The bits do
 * not depend on the order of arrival, and each answer has the right precision. */
#include "base/digest.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_MEMBERS = 3,
    GENERATION = 4,
    TRAINED = 1324,
    N_ELEMS = TRAINED + 5,
    N_CHUNKS = 3,
    STEPS = 5,
    MAX_SEEN = 16,
};
static const double keep = 0.9, rate = 0.125;

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* chunks of 1024 and 300 */
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
};
static const double weights[N_MEMBERS] = {64, 30.5, 7};

struct seen {
    uint32_t member, chunk, crc;
    enum piece_kind kind;
    uint64_t step;
    enum dtype dtype;
    struct buf *payload; /* payload of the answer, with a reference */
};

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    int server[N_CHUNKS];
    struct store *store;
    struct seen seen[MAX_SEEN]; /* answers to pieces that waited, of one step */
    int n_seen;
};

static void check_payload(const struct buf *payload, enum dtype dtype, uint32_t crc,
                          const struct net_chunk *chunk)
{
    assert_non_null(payload);
    assert_int_equal(payload->bytes, dtype_bytes(dtype, (size_t)chunk->n_elems));
    assert_int_equal(digest_crc32c(0, payload->data, payload->bytes), crc);
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct fixture *f = ctx;
    assert_int_equal(from, 1 + head->member);
    check_payload(a->payload, a->dtype, a->crc32c, &f->chunks->chunks[a->chunk]);
    assert_in_range(f->n_seen, 0, MAX_SEEN - 1);
    f->seen[f->n_seen++] = (struct seen){head->member, a->chunk, a->crc32c,          a->kind,
                                         a->step,      a->dtype, buf_ref(a->payload)};
}

static void forget_seen(struct fixture *f)
{
    for (int i = 0; i < f->n_seen; i++)
        buf_unref(f->seen[i].payload);
    f->n_seen = 0;
}

static void setup(struct fixture *f, enum dtype push, enum dtype version)
{
    *f = (struct fixture){.n_seen = 0};
    assert_int_equal(chunks_create(model, 2, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    f->job = (struct net_job){
        .n_workers = N_MEMBERS, .train_steps = 100, .push_dtype = push, .version_dtype = version};
    optim_defaults(OPTIM_SGD, &f->job.optim);
    f->job.optim.learning_rate = (float)rate;
    struct store_config cfg = {.chunks = f->chunks,
                               .job = &f->job,
                               .server = f->server,
                               .generation = GENERATION,
                               .answer = on_answer,
                               .ctx = f};
    f->store = store_rig_open(&cfg, N_MEMBERS, 100);
    store_sum(f->store);
}

static void teardown(struct fixture *f)
{
    forget_seen(f);
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

/* Returns an element of a contribution, or of the first values if step is -1. Some elements are far
 * below fp16's normal range. */
static float number(int member, int64_t step, int64_t elem)
{
    float u = store_rig_number(member, step, elem);
    return elem % 50 ? u : u * 1e-5f;
}

/* Sends a piece of `dtype`. Returns the direct answer, whose payload the caller owns. */
static struct store_answer send_piece(struct fixture *f, enum piece_kind kind, int member,
                                      int chunk, int64_t step, enum dtype dtype)
{
    const struct net_chunk *c = &f->chunks->chunks[chunk];
    size_t n = (size_t)c->n_elems, bytes = kind == PIECE_PULL ? 0 : dtype_bytes(dtype, n);
    float values[1024] = {0};
    uint8_t encoded[1024 * sizeof(float)];
    for (size_t i = 0; i < n; i++)
        values[i] = number(member, kind == PIECE_INIT ? -1 : step, c->first + (int64_t)i);
    dtype_encode(dtype, encoded, values, n);
    struct net_frame_head head = {GENERATION, (uint32_t)member, 100 + (uint64_t)member};
    struct net_piece piece = {.kind = kind,
                              .chunk = (uint32_t)chunk,
                              .step = (uint64_t)step,
                              .weight = (float)weights[member],
                              .dtype = dtype,
                              .payload.bytes = bytes};
    struct store_answer now = store_rig_send(f->store, &head, piece, encoded, 0);
    if (now.payload)
        check_payload(now.payload, now.dtype, now.crc32c, c);
    return now;
}

/* Sends a piece whose answer follows later. */
static void send_and_wait(struct fixture *f, enum piece_kind kind, int member, int chunk,
                          int64_t step, enum dtype dtype)
{
    struct store_answer now = send_piece(f, kind, member, chunk, step, dtype);
    assert_int_equal(now.kind, PIECE_NONE);
    assert_null(now.payload);
}

static void init_all(struct fixture *f)
{
    for (int c = 0; c < N_CHUNKS; c++) {
        struct store_answer now = send_piece(f, PIECE_INIT, 0, c, 0, DTYPE_F32);
        assert_int_equal(now.kind, PIECE_VERSION);
        assert_int_equal(now.dtype, f->job.version_dtype);
        buf_unref(now.payload);
    }
}

/* Returns x rounded to the precision of d (ties to even), and limited to the largest value of d. */
static double rounded(enum dtype d, double x)
{
    static const int bits[] = {24, 8, 11}, lowest[] = {-149, -133, -24};
    int e;
    frexp(x, &e);
    int quantum = e - bits[d] > lowest[d] ? e - bits[d] : lowest[d];
    return ldexp(nearbyint(ldexp(x, -quantum)), quantum);
}

/* Trains in double precision. The contributions are rounded to `push`; DTYPE_F32: not rounded. */
static void reference(enum dtype push, int n_steps, double *p)
{
    double total = weights[0] + weights[1] + weights[2];
    for (int64_t i = 0; i < N_ELEMS; i++) {
        p[i] = (double)number(0, -1, i);
        for (int64_t step = 0; step < n_steps; step++) {
            double mean = 0;
            for (int m = 0; m < N_MEMBERS; m++)
                mean += weights[m] * rounded(push, (double)number(m, step, i)) / total;
            p[i] = i < TRAINED ? p[i] - rate * mean : keep * p[i] + (1 - keep) * mean;
        }
    }
}

/* Checks that members received the full value, rounded only once. */
static void check_sent(struct fixture *f, int chunk, int64_t step)
{
    float decoded[1024];
    int64_t v;
    struct buf *whole = store_read(f->store, chunk, &v);
    const float *value = whole->data;
    assert_int_equal(f->n_seen, N_MEMBERS);
    for (int m = 0; m < N_MEMBERS; m++) {
        const struct seen *s = &f->seen[m];
        assert_int_equal(s->member, m);
        assert_int_equal(s->kind, PIECE_APPLIED);
        assert_int_equal(s->step, step);
        assert_int_equal(s->dtype, f->job.version_dtype);
        assert_ptr_equal(s->payload, f->seen[0].payload); /* all members get the same buffer */
        dtype_decode(s->dtype, decoded, s->payload->data, whole->bytes / sizeof(float));
        for (size_t i = 0; i < whole->bytes / sizeof(float); i++)
            if ((double)decoded[i] != rounded(s->dtype, (double)value[i]))
                fail_msg("chunk %d, element %zu: sent as %.9g, is %.9g", chunk, i,
                         (double)decoded[i], (double)value[i]);
    }
    buf_unref(whole);
}

/* Trains with pushes in an order that changes from chunk to chunk and from step to step. */
static void train(struct fixture *f, int n_steps, int first)
{
    static const int orders[6][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0},
                                     {2, 0, 1}, {0, 2, 1}, {1, 0, 2}};
    for (int step = 0; step < n_steps; step++)
        for (int c = 0; c < N_CHUNKS; c++) {
            forget_seen(f);
            for (int k = 0; k < N_MEMBERS; k++)
                send_and_wait(f, PIECE_PUSH, orders[(first + step * (c + 1)) % 6][k], c, step,
                              f->job.push_dtype);
            check_sent(f, c, step + 1);
        }
}

static const struct {
    enum dtype push, version;
} jobs[] = {{DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F16},  {DTYPE_F16, DTYPE_F32},
            {DTYPE_F32, DTYPE_BF16},  {DTYPE_BF16, DTYPE_F16}, {DTYPE_F32, DTYPE_F32}};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

static void training_matches_double_precision(void **state)
{
    static const double unit[] = {0x1p-24, 0x1p-8, 0x1p-11}; /* unit of rounding, by dtype */
    static double own[N_ELEMS], exact[N_ELEMS];
    static float first[N_ELEMS], got[N_ELEMS];
    for (int j = 0; j < N_JOBS; j++) {
        reference(jobs[j].push, STEPS, own);
        reference(DTYPE_F32, STEPS, exact);
        for (int order = 0; order < 6; order++) {
            struct fixture f;
            setup(&f, jobs[j].push, jobs[j].version);
            init_all(&f);
            train(&f, STEPS, order);
            store_rig_read_all(f.store, f.chunks, STEPS, got);
            teardown(&f);
            if (order == 0)
                memcpy(first, got, sizeof got);
            assert_memory_equal(got, first, sizeof got);
        }
        for (int i = 0; i < N_ELEMS; i++) {
            /* The bound is the error of fp32 arithmetic and of the rounding of contributions. */
            double bound = STEPS * (0.5 * unit[jobs[j].push] + 4 * 0x1p-24);
            if (fabs((double)got[i] - own[i]) > STEPS * 4 * 0x1p-24 ||
                fabs((double)got[i] - exact[i]) > bound)
                fail_msg("%s in, %s out, element %d: %.9g, not %.9g (exactly %.9g)",
                         dtype_name(jobs[j].push), dtype_name(jobs[j].version), i, (double)got[i],
                         own[i], exact[i]);
        }
    }
}

/* Members pull the present version, the version before, and one that does not exist yet, in
 * fp32. */
static void pull_in_fp32_gets_the_full_value(void **state)
{
    for (int j = 0; j < N_JOBS; j++) {
        struct fixture f;
        struct store_answer now;
        int64_t v;
        enum dtype dtype = jobs[j].version;
        setup(&f, jobs[j].push, dtype);
        init_all(&f);
        train(&f, 1, 0);
        struct buf *before = store_read(f.store, 0, &v);
        for (int m = 0; m < N_MEMBERS; m++)
            send_and_wait(&f, PIECE_PUSH, m, 0, 1, jobs[j].push);
        forget_seen(&f);
        struct buf *present = store_read(f.store, 0, &v);
        assert_int_equal(v, 2);
        for (int64_t step = -1; step <= 2; step++) {
            if (step == 0) /* version 0 is no longer kept */
                continue;
            struct buf *value = step == 1 ? before : present;
            now = send_piece(&f, PIECE_PULL, 1, 0, step + 1, DTYPE_F32);
            assert_int_equal(now.kind, PIECE_VERSION);
            assert_int_equal(now.dtype, DTYPE_F32);
            assert_int_equal(now.step, step == 1 ? 1 : 2);
            assert_ptr_equal(now.payload, value);
            buf_unref(now.payload);
            now = send_piece(&f, PIECE_PULL, 1, 0, step + 1, dtype);
            assert_int_equal(now.dtype, dtype);
            assert_int_equal(now.payload == value, dtype == DTYPE_F32);
            buf_unref(now.payload);
        }
        /* Member 1 waits for the version in fp32, member 2 in the job's format, and each also
         * pushes. */
        send_and_wait(&f, PIECE_PULL, 1, 0, 4, DTYPE_F32);
        send_and_wait(&f, PIECE_PULL, 2, 0, 4, dtype);
        for (int m = 0; m < N_MEMBERS; m++)
            send_and_wait(&f, PIECE_PUSH, m, 0, 2, jobs[j].push);
        struct buf *waited = store_read(f.store, 0, &v);
        assert_int_equal(f.n_seen, N_MEMBERS + 2);
        for (int i = 0; i < f.n_seen; i++) {
            int whole = f.seen[i].kind == PIECE_VERSION && f.seen[i].member == 1;
            assert_int_equal(f.seen[i].step, 3);
            assert_int_equal(f.seen[i].dtype, whole ? DTYPE_F32 : dtype);
            assert_int_equal(f.seen[i].payload == waited, whole || dtype == DTYPE_F32);
        }
        buf_unref(before);
        buf_unref(present);
        buf_unref(waited);
        teardown(&f);
    }
}

static void refused(struct fixture *f, enum piece_kind kind, enum dtype dtype, const char *name)
{
    struct store_answer now = send_piece(f, kind, 1, 1, 0, dtype);
    assert_int_equal(now.kind, PIECE_REFUSED);
    assert_null(now.payload);
    if (!strstr(now.text, "chunk 1") || !strstr(now.text, name))
        fail_msg("'%s' does not name chunk 1 and %s", now.text, name);
}

static void wrong_dtype_is_refused(void **state)
{
    struct fixture f;
    setup(&f, DTYPE_BF16, DTYPE_F16);
    refused(&f, PIECE_INIT, DTYPE_BF16, "fp32");
    refused(&f, PIECE_INIT, DTYPE_F16, "fp32");
    init_all(&f);
    refused(&f, PIECE_PUSH, DTYPE_F32, "bf16");
    refused(&f, PIECE_PUSH, DTYPE_F16, "bf16"); /* the length is right, but not the dtype */
    refused(&f, PIECE_PULL, DTYPE_BF16, "fp16");
    train(&f, 2, 3); /* the refusals changed nothing */
    teardown(&f);
    setup(&f, DTYPE_F32, DTYPE_F32);
    init_all(&f);
    refused(&f, PIECE_PUSH, DTYPE_BF16, "fp32");
    refused(&f, PIECE_PULL, DTYPE_BF16, "fp32");
    teardown(&f);
}

int main(void)
{
    return RUN_TESTS(training_matches_double_precision, pull_in_fp32_gets_the_full_value,
                     wrong_dtype_is_refused);
}
