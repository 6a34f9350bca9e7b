/* tests/ps_turns_test.c - updates run on the cores in turn while members use all cores. Each core
 * has equally many turns, and only updates of large chunks have turns. No update has a turn if a
 * core is free or cannot be used. */
#include "base/core_turns.h"
#include "base/digest.h"
#include "tests/check.h"
#include "tests/skip.h"
#include "tests/store_rig.h"
#include <stdlib.h>

enum { LARGE = 32768, SMALL = 5, N_STEPS = 6 };

static int runs_on(int core)
{
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    return CPU_COUNT(&now) == 1 && CPU_ISSET(core, &now) && sched_getcpu() == core;
}

static void updates_visit_each_core(void **state)
{
    static struct core_turns t;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    core_turns_init(&t);
    int n = t.n;
    assert_int_equal(n, CPU_COUNT(&before));
    if (n < 2)
        skip_because("one core");
    for (int i = 0; i < n; i++) {
        assert_int_equal(core_turns_begin(&t), 0); /* a core is free */
        core_turns_busy(&t, 1);
    }
    for (int i = 0; i < 3 * n; i++) {
        assert_int_equal(core_turns_begin(&t), 1);
        assert_true(runs_on(t.core[i % n]));
        core_turns_end(&t);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
    core_turns_busy(&t, -1);
    assert_int_equal(core_turns_begin(&t), 0);
}

static void one_core_has_no_turns(void **state)
{
    static struct core_turns t;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    core_turns_init(&t);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    core_turns_busy(&t, 5);
    assert_int_equal(core_turns_begin(&t), 0);
}

/* A core of the list has been removed from this machine. */
static void removed_core_is_skipped(void **state)
{
    static struct core_turns t = {.n = 2, .n_busy = 2, .core = {CPU_SETSIZE - 1, CPU_SETSIZE - 1}};
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(core_turns_begin(&t), 0);
    assert_int_equal(t.n, 0);
    assert_int_equal(core_turns_begin(&t), 0);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static enum piece_kind send_piece(struct store *s, enum piece_kind kind, uint32_t chunk,
                                  uint64_t step)
{
    static float values[LARGE];
    size_t bytes = (chunk == 0 ? LARGE : SMALL) * sizeof *values;
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = (float)i / LARGE;
    const struct net_frame_head head = {1, 0, 11};
    const struct net_piece piece = {.kind = kind,
                                    .chunk = chunk,
                                    .step = step,
                                    .weight = kind == PIECE_PUSH ? 1 : 0,
                                    .payload.bytes = bytes};
    return store_rig_act(s, &head, piece, values, 0);
}

/* Returns a digest of the parameters after N_STEPS. *turns: number of updates that moved to the
 * next core. */
static uint32_t train(struct core_turns *t, unsigned *turns)
{
    static const struct net_param model[] = {{.name = "w", .shape = {2, {LARGE / 4, 4}}},
                                             {.name = "b", .shape = {1, {SMALL}}}};
    static const int server[2] = {0, 0};
    struct chunks *chunks;
    uint32_t crc = 0;
    assert_int_equal(chunks_create(model, 2, LARGE * sizeof(float), &chunks), ST_OK);
    assert_int_equal(chunks->n_chunks, 2);
    struct net_job job = {.n_workers = 1, .sync_mode = JOB_SYNC, .train_steps = 100};
    optim_defaults(OPTIM_ADAM, &job.optim);
    const struct store_config cfg = {
        .chunks = chunks, .job = &job, .server = server, .generation = 1, .turns = t};
    struct store *s = store_rig_open(&cfg, 1, 11);
    store_sum(s);
    for (uint32_t c = 0; c < 2; c++)
        assert_int_equal(send_piece(s, PIECE_INIT, c, 0), PIECE_VERSION);
    for (uint64_t step = 0; step < N_STEPS; step++)
        for (uint32_t c = 0; c < 2; c++)
            assert_int_not_equal(send_piece(s, PIECE_PUSH, c, step), PIECE_REFUSED);
    for (int c = 0; c < 2; c++) {
        int64_t version;
        struct buf *b = store_read(s, c, &version);
        assert_int_equal(version, N_STEPS);
        crc = digest_crc32c(crc, b->data, b->bytes);
        buf_unref(b);
    }
    *turns = t ? t->next : 0;
    store_destroy(s);
    chunks_destroy(chunks);
    return crc;
}

static void only_large_chunks_alternate(void **state)
{
    static struct core_turns t;
    unsigned turns;
    core_turns_init(&t);
    if (t.n < 2)
        skip_because("one core");
    uint32_t alone = train(NULL, &turns);
    assert_int_equal(train(&t, &turns), alone);
    assert_int_equal(turns, 0); /* no core is busy here */
    core_turns_busy(&t, t.n);
    assert_int_equal(train(&t, &turns), alone);
    assert_int_equal(turns, N_STEPS);
}

int main(void)
{
    return RUN_TESTS(updates_visit_each_core, one_core_has_no_turns, removed_core_is_skipped,
                     only_large_chunks_alternate);
}
