/* tests/ps_chunk_update_test.c - updates that threads make in lockstep. The bits are those of a
 * store without threads. While an update waits for a thread, its chunk can be read, and other
 * chunks accept contributions; the lowest chunk is first. A contribution that the update refuses
 * does not count, and leaves the version and its slots as they were; each stream that waits for its
 * answer receives the refusal. A stop waits for the update. */
#include "base/clock.h"
#include "base/guarded.h"
#include "base/thread_pool.h"
#include "net/shm/segment.h"
#include "ps/store/handover.h"
#include "ps/store/update.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHUNKS = 3, CHUNK = 1024, N_ELEMS = N_CHUNKS * CHUNK, GENERATION = 7, MAX_SEEN = 16 };
enum { FIRST_PROCESS = 1000, OTHER_PROCESS = 2000, OTHER_STREAM = 3000, WAIT_MS = 60000 };

static const struct net_param model[] = {{.name = "w", .shape = {1, {N_ELEMS}}}};

struct seen {
    enum piece_kind kind;
    uint32_t chunk;
    uint64_t incarnation, from;
    bool replaced, has_payload;
    size_t placed;
};

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    int server[N_CHUNKS];
    struct store *store;
    struct thread_pool *threads; /* pool of one thread */
    struct segment *segment;
    bool may_place;            /* the pushes let the store write versions to the members' values */
    struct thread_loop closed; /* holds the thread until the gate is open */
    pthread_mutex_t gate;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    struct seen seen[MAX_SEEN];
    int n_seen;
};

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct fixture *f = ctx;
    pthread_mutex_lock(&f->lock);
    assert_true(f->n_seen < MAX_SEEN);
    f->seen[f->n_seen++] = (struct seen){.kind = a->kind,
                                         .chunk = a->chunk,
                                         .incarnation = head->incarnation,
                                         .from = from,
                                         .replaced = a->replaced,
                                         .has_payload = a->payload != NULL,
                                         .placed = a->placed};
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void open_store(struct fixture *f, int n_members, bool has_threads)
{
    *f = (struct fixture){.n_seen = 0};
    char why[SEGMENT_WHY_BYTES];
    pthread_mutex_init(&f->gate, NULL);
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->changed);
    assert_int_equal(segment_create(64, &f->segment, why), ST_OK);
    assert_int_equal(chunks_create(model, 1, CHUNK * sizeof(float), &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    f->job = (struct net_job){.n_workers = n_members, .sync_mode = JOB_SYNC, .train_steps = 100};
    optim_defaults(OPTIM_ADAM, &f->job.optim);
    if (has_threads)
        assert_int_equal(thread_pool_create(2, &f->threads), ST_OK);
    struct store_config cfg = {.chunks = f->chunks,
                               .job = &f->job,
                               .server = f->server,
                               .generation = GENERATION,
                               .threads = f->threads,
                               .long_bytes = 1,
                               .answer = on_answer,
                               .ctx = f};
    f->store = store_rig_open(&cfg, n_members, FIRST_PROCESS);
    static const float zeros[CHUNK];
    const struct net_frame_head head = {GENERATION, 0, FIRST_PROCESS};
    for (uint32_t c = 0; c < N_CHUNKS; c++) {
        struct net_piece init = {.kind = PIECE_INIT, .chunk = c, .payload.bytes = sizeof zeros};
        assert_int_equal(store_rig_act(f->store, &head, init, zeros, 0), PIECE_VERSION);
    }
}

static void close_store(struct fixture *f)
{
    thread_pool_destroy(f->threads);
    store_destroy(f->store);
    chunks_destroy(f->chunks);
    segment_unref(f->segment);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->gate);
}

static void pass_gate(void *ctx, int k)
{
    struct fixture *f = ctx;
    pthread_mutex_lock(&f->gate);
    pthread_mutex_unlock(&f->gate);
}

static void end_nothing(void *ctx)
{
}

/* Holds the thread until pthread_mutex_unlock(&f->gate). */
static void close_gate(struct fixture *f) ACQUIRES(f->gate)
{
    pthread_mutex_lock(&f->gate);
    f->closed = (struct thread_loop){
        .part = pass_gate, .ended = end_nothing, .ctx = f, .n = 1, .order = -1};
    thread_pool_start(f->threads, &f->closed);
}

static void await_answers(struct fixture *f, int n)
{
    int64_t deadline = clock_deadline_ns(WAIT_MS);
    pthread_mutex_lock(&f->lock);
    while (f->n_seen < n && clock_cond_wait(&f->changed, &f->lock, deadline) == 0)
        ;
    assert_int_equal(f->n_seen, n);
    pthread_mutex_unlock(&f->lock);
}

struct sender {
    int member;
    uint64_t process, stream;
};

/* Pushes a contribution in the segment; the values of each step and chunk stay where they are.
 * is_bad: the last one is not finite. */
static enum piece_kind push_from(struct fixture *f, struct sender from, int chunk, int64_t step,
                                 bool is_bad)
{
    enum { STEPS = 8, MEMBERS = 2 };
    static float all[2][MEMBERS][STEPS][N_CHUNKS][CHUNK];
    float *values = all[is_bad][from.member][step][chunk];
    for (int i = 0; i < CHUNK; i++)
        values[i] = store_rig_number(from.member, step, chunk * CHUNK + i);
    if (is_bad)
        values[CHUNK - 1] = INFINITY;
    const struct net_span span = {(const uint8_t *)values, CHUNK * sizeof *values};
    const struct net_frame_head head = {GENERATION, (uint32_t)from.member, from.process};
    struct net_piece p = {.kind = PIECE_PUSH,
                          .chunk = (uint32_t)chunk,
                          .step = (uint64_t)step,
                          .weight = 1,
                          .unsummed = true,
                          .payload = {&span, 0, span.n},
                          .placed = f->may_place,
                          .memory = f->segment};
    struct store_answer a;
    store_piece(f->store, &head, &p, from.stream, 0, &a);
    buf_unref(a.payload);
    return a.kind;
}

/* Pushes on the process' first stream. */
static enum piece_kind push(struct fixture *f, int member, uint64_t process, int chunk,
                            int64_t step, bool is_bad)
{
    return push_from(f, (struct sender){member, process, process}, chunk, step, is_bad);
}

static void push_all(struct fixture *f, int n_members, int64_t step)
{
    f->n_seen = 0;
    for (int c = 0; c < N_CHUNKS; c++)
        for (int m = 0; m < n_members; m++)
            assert_int_equal(push(f, m, FIRST_PROCESS + (uint64_t)m, c, step, false), PIECE_NONE);
    await_answers(f, n_members * N_CHUNKS);
}

/* Computes the values after n_steps in a store without threads. */
static void compute(int n_members, int n_steps, float *out)
{
    struct fixture f;
    open_store(&f, n_members, false);
    for (int step = 0; step < n_steps; step++)
        push_all(&f, n_members, step);
    store_rig_read_all(f.store, f.chunks, n_steps, out);
    close_store(&f);
}

static void threads_do_not_change_the_bits(void **state)
{
    enum { STEPS = 5 };
    static float expect[N_ELEMS], got[N_ELEMS];
    for (int n_members = 1; n_members <= 2; n_members++) {
        struct fixture f;
        compute(n_members, STEPS, expect);
        open_store(&f, n_members, true);
        for (int step = 0; step < STEPS; step++)
            push_all(&f, n_members, step);
        store_rig_read_all(f.store, f.chunks, STEPS, got);
        assert_memory_equal(got, expect, sizeof got);
        close_store(&f);
    }
}

static void lowest_chunk_is_first_and_no_lock_is_held(void **state)
{
    struct fixture f;
    const struct net_frame_head head = {GENERATION, 0, FIRST_PROCESS};
    const struct net_piece pull = {.kind = PIECE_PULL, .chunk = 2};
    open_store(&f, 1, true);
    close_gate(&f);
    for (int c = N_CHUNKS - 1; c >= 0; c--)
        assert_int_equal(push(&f, 0, FIRST_PROCESS, c, 0, false), PIECE_NONE);
    assert_int_equal(store_rig_act(f.store, &head, pull, NULL, 0), PIECE_VERSION);
    assert_int_equal(store_step(f.store), 0);
    assert_int_equal(push(&f, 0, FIRST_PROCESS, 1, 0, false), PIECE_NONE); /* a repeat waits */
    assert_int_equal(f.n_seen, 0);
    pthread_mutex_unlock(&f.gate);
    await_answers(&f, N_CHUNKS);
    for (uint32_t c = 0; c < N_CHUNKS; c++) {
        assert_int_equal(f.seen[c].chunk, c);
        assert_int_equal(f.seen[c].kind, PIECE_APPLIED);
    }
    close_store(&f);
}

static void refused_contribution_changes_nothing(void **state)
{
    enum { BEFORE = 2 };
    static float expect[N_ELEMS], got[N_ELEMS];
    struct fixture f;
    compute(2, BEFORE + 1, expect);
    open_store(&f, 2, true);
    for (int step = 0; step < BEFORE; step++)
        push_all(&f, 2, step);
    f.n_seen = 0;
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(push(&f, 0, FIRST_PROCESS, c, BEFORE, false), PIECE_NONE);
    assert_int_equal(push(&f, 1, FIRST_PROCESS + 1, 0, BEFORE, true), PIECE_NONE);
    await_answers(&f, 1);
    assert_int_equal(f.seen[0].kind, PIECE_REFUSED);
    assert_int_equal(f.seen[0].from, FIRST_PROCESS + 1);
    assert_false(f.seen[0].replaced);
    assert_int_equal(store_step(f.store), BEFORE);
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(push(&f, 1, FIRST_PROCESS + 1, c, BEFORE, false), PIECE_NONE);
    await_answers(&f, 1 + 2 * N_CHUNKS);
    store_rig_read_all(f.store, f.chunks, BEFORE + 1, got);
    assert_memory_equal(got, expect, sizeof got);
    close_store(&f);
}

/* A process of the member has sent a contribution and died, and the next process sends it again. If
 * the update refuses the first one, the next process must not wait for ever. */
static void other_process_sends_a_refused_contribution_again(void **state)
{
    struct fixture f;
    open_store(&f, 1, true);
    close_gate(&f);
    assert_int_equal(push(&f, 0, FIRST_PROCESS, 0, 0, true), PIECE_NONE);
    store_admit(f.store, 0, OTHER_PROCESS);
    assert_int_equal(push(&f, 0, OTHER_PROCESS, 0, 0, false), PIECE_NONE);
    pthread_mutex_unlock(&f.gate);
    await_answers(&f, 1);
    assert_int_equal(f.seen[0].kind, PIECE_REFUSED);
    assert_int_equal(f.seen[0].incarnation, OTHER_PROCESS);
    assert_true(f.seen[0].replaced); /* only its stream ends */
    assert_int_equal(push(&f, 0, OTHER_PROCESS, 0, 0, false), PIECE_NONE);
    await_answers(&f, 2);
    assert_int_equal(f.seen[1].kind, PIECE_APPLIED);
    close_store(&f);
}

static struct fixture *repeats; /* store whose next update is preceded by a repeated push */

size_t __real_ps_update_run(struct ps_update *u, uint32_t *crc);
size_t __wrap_ps_update_run(struct ps_update *u, uint32_t *crc);

size_t __wrap_ps_update_run(struct ps_update *u, uint32_t *crc)
{
    const struct sender again = {0, FIRST_PROCESS, OTHER_STREAM};
    struct fixture *f = repeats;
    repeats = NULL;
    if (f)
        assert_int_equal(push_from(f, again, 0, 0, true), PIECE_NONE);
    return __real_ps_update_run(u, crc);
}

/* The thread of the push makes the update. Before the update has read the contribution, the process
 * sends it again on another stream: each of the two streams receives the refusal. */
static void contribution_repeated_on_another_stream_is_refused_there(void **state)
{
    struct fixture f;
    open_store(&f, 1, false);
    repeats = &f;
    assert_int_equal(push(&f, 0, FIRST_PROCESS, 0, 0, true), PIECE_REFUSED);
    assert_null(repeats);
    await_answers(&f, 1);
    assert_int_equal(f.seen[0].kind, PIECE_REFUSED);
    assert_int_equal(f.seen[0].from, OTHER_STREAM);
    assert_false(f.seen[0].replaced);
    assert_int_equal(push(&f, 0, FIRST_PROCESS, 0, 0, true), PIECE_REFUSED);
    assert_int_equal(f.n_seen, 1); /* without a repeat there is only the direct answer */
    close_store(&f);
}

static struct fixture *stops; /* store whose chunks are stopped while one update still runs */

void __real_chunk_update_await_all(struct store *s);
void __wrap_chunk_update_await_all(struct store *s) UNCHECKED_LOCKS;

/* Sends contributions again, and one that arrives late. None is answered yet. Then opens the gate,
 * which the caller of stop_store has closed: clang cannot follow that. */
void __wrap_chunk_update_await_all(struct store *s)
{
    struct fixture *f = stops;
    stops = NULL;
    if (f) {
        assert_int_equal(push(f, 1, FIRST_PROCESS + 1, 0, 2, false), PIECE_NONE);
        assert_int_equal(push(f, 1, FIRST_PROCESS + 1, 1, 2, false), PIECE_NONE);
        assert_int_equal(push(f, 1, FIRST_PROCESS + 1, 2, 2, false), PIECE_NONE);
        assert_int_equal(f->n_seen, 0);
        assert_false(handover_is_stopped(s));
        pthread_mutex_unlock(&f->gate);
    }
    __real_chunk_update_await_all(s);
}

/* Stops the store, and opens the gate when every chunk is stopped; clang cannot follow that. */
static void stop_store(struct fixture *f) RELEASES(f->gate) UNCHECKED_LOCKS
{
    stops = f;
    handover_stop(f->store);
    assert_null(stops);
}

/* Chunk 0 has the next version, whose answer member 1 has lost. Chunk 1 has all contributions, and
 * chunk 2 waits for one. No member receives REBASE for chunk 0 or 2 while the update of chunk 1
 * reads its contribution, which the member may then overwrite. */
static void stop_waits_for_an_update(void **state)
{
    static float expect[N_ELEMS], got[CHUNK];
    struct fixture f;
    struct handover_chunk t;
    compute(2, 3, expect);
    open_store(&f, 2, true);
    push_all(&f, 2, 0);
    push_all(&f, 2, 1);
    f.n_seen = 0;
    for (int m = 0; m < 2; m++)
        assert_int_equal(push(&f, m, FIRST_PROCESS + (uint64_t)m, 0, 2, false), PIECE_NONE);
    await_answers(&f, 2);
    close_gate(&f);
    f.n_seen = 0;
    for (int m = 0; m < 2; m++)
        assert_int_equal(push(&f, m, FIRST_PROCESS + (uint64_t)m, 1, 2, false), PIECE_NONE);
    assert_int_equal(push(&f, 0, FIRST_PROCESS, 2, 2, false), PIECE_NONE);
    stop_store(&f);
    assert_true(handover_is_stopped(f.store));
    static const struct seen answers[] = {{.kind = PIECE_APPLIED, .chunk = 1},
                                          {.kind = PIECE_APPLIED, .chunk = 1},
                                          {.kind = PIECE_REBASE, .chunk = 0},
                                          {.kind = PIECE_REBASE, .chunk = 2},
                                          {.kind = PIECE_REBASE, .chunk = 2}};
    assert_int_equal(f.n_seen, sizeof answers / sizeof *answers);
    for (int i = 0; i < f.n_seen; i++) {
        assert_int_equal(f.seen[i].chunk, answers[i].chunk);
        assert_int_equal(f.seen[i].kind, answers[i].kind);
    }
    assert_int_equal(push(&f, 1, FIRST_PROCESS + 1, 2, 2, false), PIECE_REBASE);
    store_rig_read(f.store, &f.chunks->chunks[1], 1, 3, got);
    assert_memory_equal(got, expect + CHUNK, sizeof got);
    assert_int_equal(handover_take(f.store, 1, 2, &t), ST_OK); /* the version before is kept */
    handover_drop(&t);
    handover_empty(f.store);
    close_store(&f);
}

/* Lends memory for the values of all chunks. Returns it; the fixture's segment has the mapping to
 * write. */
static struct segment *lend_values(struct fixture *f)
{
    char why[SEGMENT_WHY_BYTES];
    struct segment *values, *opened;
    struct segment_name name;
    assert_int_equal(segment_create_lent(N_ELEMS * sizeof(float), &values, why), ST_OK);
    segment_name_of(values, &name);
    assert_int_equal(segment_open_to_write(&name, &opened, why), ST_OK);
    segment_set_values(f->segment, opened);
    return values;
}

static void assert_seen(const struct fixture *f, int first, int n, bool placed)
{
    for (int i = first; i < first + n; i++) {
        assert_int_equal(f->seen[i].kind, PIECE_APPLIED);
        assert_int_equal(f->seen[i].has_payload, !placed);
        assert_int_equal(f->seen[i].placed, placed ? CHUNK * sizeof(float) : 0);
    }
}

/* The version is written to the values of the sender of the last contribution; other members
 * receive it as a payload. */
static void version_is_written_to_values(void **state)
{
    enum { STEPS = 4 };
    static float expect[N_ELEMS], got[N_ELEMS];
    for (int n_members = 1; n_members <= 2; n_members++) {
        struct fixture f;
        compute(n_members, STEPS, expect);
        open_store(&f, n_members, true);
        struct segment *values = lend_values(&f);
        push_all(&f, n_members, 0);
        assert_seen(&f, 0, n_members * N_CHUNKS, false); /* no push allows it */
        f.may_place = true;
        for (int step = 1; step < STEPS; step++)
            push_all(&f, n_members, step);
        for (int i = 0; i < n_members * N_CHUNKS; i++)
            assert_seen(&f, i, 1, f.seen[i].from == FIRST_PROCESS + (uint64_t)n_members - 1);
        store_rig_read_all(f.store, f.chunks, STEPS, got);
        assert_memory_equal(got, expect, sizeof got);
        assert_memory_equal(segment_data(values), expect, sizeof expect);
        close_store(&f);
        segment_unref(values);
    }
}

/* While the update waits for a thread, the member's stream breaks. On the next one it does not let
 * the store write, so it receives a payload; and so does the next process of the member. */
static void only_the_sender_of_the_answered_push_has_it(void **state)
{
    struct fixture f;
    open_store(&f, 1, true);
    struct segment *values = lend_values(&f);
    close_gate(&f);
    f.may_place = true;
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(push(&f, 0, FIRST_PROCESS, c, 0, false), PIECE_NONE);
    f.may_place = false;
    assert_int_equal(push(&f, 0, FIRST_PROCESS, 0, 0, false), PIECE_NONE);
    store_admit(f.store, 0, OTHER_PROCESS);
    f.may_place = true;
    assert_int_equal(push(&f, 0, OTHER_PROCESS, 1, 0, false), PIECE_NONE);
    pthread_mutex_unlock(&f.gate);
    await_answers(&f, N_CHUNKS);
    assert_seen(&f, 0, 2, false);
    assert_int_equal(f.seen[1].incarnation, OTHER_PROCESS);
    assert_seen(&f, 2, 1, true);
    close_store(&f);
    segment_unref(values);
}

/* Memory of another size than the model's is not written. */
static void short_values_are_not_written(void **state)
{
    char why[SEGMENT_WHY_BYTES];
    struct fixture f;
    struct segment *values;
    open_store(&f, 1, true);
    assert_int_equal(segment_create_lent(CHUNK * sizeof(float), &values, why), ST_OK);
    segment_set_values(f.segment, values);
    f.may_place = true;
    push_all(&f, 1, 0);
    for (int i = 0; i < N_CHUNKS; i++)
        assert_seen(&f, i, 1, f.seen[i].chunk == 0);
    close_store(&f);
}

int main(void)
{
    return RUN_TESTS(threads_do_not_change_the_bits, lowest_chunk_is_first_and_no_lock_is_held,
                     refused_contribution_changes_nothing,
                     other_process_sends_a_refused_contribution_again,
                     contribution_repeated_on_another_stream_is_refused_there,
                     stop_waits_for_an_update, version_is_written_to_values,
                     only_the_sender_of_the_answered_push_has_it, short_values_are_not_written);
}
