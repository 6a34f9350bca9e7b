/* tests/ps_shard_writer_test.c - a server's file while the disk hangs. The order can be cancelled
 * at once, the next order fails, a late end of the write makes the writer free, and no caller
 * waits. The tests have no service. */
#include "base/clock.h"
#include "net/wire/tables.h"
#include "ps/checkpoint/shard_writer.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/store_rig.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000, MAX_CHUNKS = 8 };

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static const struct net_param model[] = {{.name = "w", .shape = {2, {331, 4}}},
                                         {.name = "b", .shape = {1, {3}}}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all fields below */
static pthread_cond_t wake;
static int hangs, n_hanging, n_synced; /* numbers of fsync calls that hang, and that have ended */
static int n_changes, n_released;
static int priority; /* nice value of the thread that called fsync last */

/* Replaces the disk: a call lasts while `hangs` is set. */
int __wrap_fsync(int fd)
{
    (void)fd; /* nothing has to survive a failure of the machine */
    pthread_mutex_lock(&lock);
    n_hanging += hangs;
    priority = getpriority(PRIO_PROCESS, (id_t)gettid());
    pthread_cond_broadcast(&wake);
    while (hangs)
        pthread_cond_wait(&wake, &lock);
    n_synced++;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void bump(int *what, int to)
{
    pthread_mutex_lock(&lock);
    *what = to < 0 ? *what + 1 : to;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
}

static void wait_for(const int *what, int at_least)
{
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&lock);
    while (*what < at_least && clock_cond_wait(&wake, &lock, deadline) == 0)
        ;
    int is = *what;
    pthread_mutex_unlock(&lock);
    assert_true(is >= at_least);
}

static void on_changed(void *ctx)
{
    bump(&n_changes, -1);
}

static void on_release(void *owner)
{
    bump(&n_released, -1);
}

struct rig {
    char folder[FOLDER_RIG_BYTES];
    struct net_job job;
    struct chunks *chunks;
    int server[MAX_CHUNKS];
    struct store *store;
    struct shard_writer *writer;
};

/* Sets the store's first values, version 0. */
static void init_values(struct rig *r)
{
    static const float zeros[2048];
    for (int i = 0; i < r->chunks->n_dense; i++) {
        size_t bytes = (size_t)r->chunks->chunks[i].n_elems * sizeof(float);
        struct net_frame_head head = {1, 0, 1};
        struct net_piece piece = {
            .kind = PIECE_INIT, .chunk = (uint32_t)i, .unsummed = 1, .payload.bytes = bytes};
        enum piece_kind got = store_rig_act(r->store, &head, piece, zeros, clock_now_ns());
        assert_int_equal(got, PIECE_VERSION);
    }
}

static void open_store(struct rig *r)
{
    struct store_config cfg = {
        .chunks = r->chunks, .job = &r->job, .server = r->server, .generation = 1};
    r->store = store_rig_open(&cfg, 1, 1);
    init_values(r);
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    clock_cond_init(&wake);
    hangs = n_hanging = n_synced = n_changes = n_released = 0;
    folder_rig_new(r->folder);
    r->job = (struct net_job){.n_workers = 1, .train_steps = 100, .seed = 3, .aggregate = 1};
    optim_defaults(OPTIM_SGD, &r->job.optim);
    assert_int_equal(chunks_create(model, 2, 4096, &r->chunks), ST_OK);
    assert_in_range(r->chunks->n_chunks, 2, MAX_CHUNKS);
    open_store(r);
    assert_int_equal(shard_writer_create(on_changed, NULL, &r->writer), ST_OK);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    assert_int_equal(shard_writer_destroy(r->writer, clock_deadline_ns(DEADLINE_MS)), 1);
    store_destroy(r->store);
    chunks_destroy(r->chunks);
    folder_rig_empty(r->folder);
    int st = rmdir(r->folder);
    pthread_cond_destroy(&wake);
    free(r);
    return st;
}

static void order(struct rig *r, uint64_t number, uint64_t n, int64_t step)
{
    struct shard_writer_order o = {.order = number,
                                   .store = r->store,
                                   .file = {.folder = r->folder,
                                            .step = step,
                                            .generation = checkpoint_term(1, n),
                                            .n_servers = 1,
                                            .job = &r->job,
                                            .chunks = r->chunks},
                                   .release = on_release};
    shard_writer_order(r->writer, &o);
}

/* Waits until the writer is free, or until nothing is pending. Returns the writer's state. */
static struct shard_writer_state wait_end(struct rig *r)
{
    struct shard_writer_state s;
    for (int seen;;) {
        pthread_mutex_lock(&lock);
        seen = n_changes;
        pthread_mutex_unlock(&lock);
        shard_writer_state(r->writer, &s);
        if (!s.busy && s.phase != PART_ARMED && s.phase != PART_WRITING)
            return s;
        wait_for(&n_changes, seen + 1);
    }
}

static int has(const struct rig *r, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    return access(path, F_OK) == 0;
}

static void hanging_file_is_given_up(void **state)
{
    struct rig *r = *state;
    struct shard_writer_state s;
    bump(&hangs, 1);
    order(r, 1, 1, 0);
    wait_for(&n_hanging, 1);
    shard_writer_state(r->writer, &s);
    assert_true(s.order == 1 && s.phase == PART_WRITING && s.busy && s.busy_since_ns > 0);
    shard_writer_cancel(r->writer);
    shard_writer_state(r->writer, &s);
    assert_true(s.order == 1 && s.phase == PART_IDLE && s.busy);
    order(r, 2, 2, 0);
    shard_writer_state(r->writer, &s);
    assert_true(s.order == 2 && s.phase == PART_FAILED && s.failure == ST_BUSY && s.busy);
    assert_int_equal(n_released, 1); /* order 2, which is not kept */
    shard_writer_fail(r->writer, 3, 0, ST_RANGE);
    shard_writer_state(r->writer, &s);
    assert_true(s.order == 3 && s.phase == PART_FAILED && s.busy);
    /* The cancelled write ends late. Its file has its own name, and no order waits for it. */
    bump(&hangs, 0);
    s = wait_end(r);
    assert_true(s.order == 3 && s.phase == PART_FAILED);
    assert_true(has(r, "weir-1.1-0-0-of-1.safetensors"));
    assert_int_equal(n_released, 2);
    order(r, 4, 3, 0);
    s = wait_end(r);
    assert_true(s.order == 4 && s.phase == PART_WRITTEN && s.file.bytes > 0);
    assert_true(has(r, "weir-1.3-0-0-of-1.safetensors"));
    assert_int_equal(n_released, 3);
}

static void waiting_order_is_replaced(void **state)
{
    struct rig *r = *state;
    struct shard_writer_state s;
    order(r, 1, 1, 5); /* no step is made */
    shard_writer_state(r->writer, &s);
    assert_int_equal(s.phase, PART_ARMED);
    order(r, 2, 1, 6);
    assert_int_equal(n_released, 1);
    shard_writer_cancel(r->writer);
    assert_int_equal(n_released, 2);
    shard_writer_state(r->writer, &s);
    assert_true(s.phase == PART_IDLE && !s.busy);
    order(r, 3, 1, 0);
    s = wait_end(r);
    assert_int_equal(s.phase, PART_WRITTEN);
    shard_writer_fail(r->writer, 4, 0, ST_NOT_FOUND);
    s = wait_end(r);
    assert_true(s.order == 4 && s.phase == PART_FAILED && s.failure == ST_NOT_FOUND);
}

static void push_all(struct rig *r, int64_t step)
{
    static const float zeros[2048];
    for (int i = 0; i < r->chunks->n_chunks; i++) {
        size_t bytes = (size_t)r->chunks->chunks[i].n_elems * sizeof(float);
        struct net_frame_head head = {1, 0, 1};
        struct net_piece piece = {.kind = PIECE_PUSH,
                                  .chunk = (uint32_t)i,
                                  .step = (uint64_t)step,
                                  .weight = 1,
                                  .unsummed = 1,
                                  .payload.bytes = bytes};
        enum piece_kind got = store_rig_act(r->store, &head, piece, zeros, clock_now_ns());
        assert_int_not_equal(got, PIECE_REFUSED);
    }
}

/* An order arrives when the previous order is captured, but its file is not begun. The new order is
 * refused, and this does not change when the file is written. */
static void order_behind_a_captured_one_is_refused(void **state)
{
    struct rig *r = *state;
    struct shard_writer_state s;
    for (int k = 0; k < 40; k++) {
        order(r, 100 + 2 * (uint64_t)k, 1, k + 1);
        push_all(r, k);
        order(r, 101 + 2 * (uint64_t)k, 1, k + 3);
        wait_for(&n_synced, 2 * (k + 1)); /* the first order's file, its folder */
        for (int seen;;) {
            pthread_mutex_lock(&lock);
            seen = n_changes;
            pthread_mutex_unlock(&lock);
            shard_writer_state(r->writer, &s);
            if (!s.busy)
                break;
            wait_for(&n_changes, seen + 1);
        }
        assert_int_equal(s.order, 101 + 2 * k);
        assert_int_not_equal(s.phase, PART_WRITING);
        shard_writer_cancel(r->writer);
    }
}

/* Training waits for the thread that copies rows, so it has the priority of this process. */
static void files_without_rows_have_the_lowest_priority(void **state)
{
    struct rig *r = *state;
    struct net_table table = {
        .name = "ads", .dim = 4, .n_buckets = 1, .max_rows = 10, .step_rows = 10};
    int own = getpriority(PRIO_PROCESS, (id_t)gettid());
    order(r, 1, 1, 0);
    assert_int_equal(wait_end(r).phase, PART_WRITTEN);
    assert_int_equal(priority, 19);
    store_destroy(r->store);
    optim_rows_defaults(OPTIM_ROWS_SGD, &table.optimizer);
    assert_int_equal(tables_add(r->chunks, &table, 1), ST_OK);
    assert_in_range(r->chunks->n_chunks, 3, MAX_CHUNKS);
    open_store(r);
    order(r, 2, 2, 0);
    assert_int_equal(wait_end(r).phase, PART_WRITTEN);
    assert_int_equal(priority, own);
}

static void *volatile left[2]; /* valid until exit, for the leak checker */

static void end_does_not_wait_for_the_disk(void **state)
{
    struct rig *r = *state;
    bump(&hangs, 1);
    order(r, 1, 1, 0);
    wait_for(&n_hanging, 1);
    wait_for(&n_changes, 2); /* armed, writing */
    left[0] = r->writer;
    assert_int_equal(shard_writer_destroy(r->writer, clock_now_ns()), 0);
    r->writer = NULL;
    int changes = n_changes;
    bump(&hangs, 0);
    wait_for(&n_synced, 2); /* the file, its folder */
    assert_int_equal(n_changes, changes);
    assert_int_equal(n_released, 0);
    left[1] = r->store; /* a capture holds it */
    r->store = NULL;
}

int main(void)
{
    return RUN_EACH(setup, teardown, hanging_file_is_given_up, waiting_order_is_replaced,
                    order_behind_a_captured_one_is_refused,
                    files_without_rows_have_the_lowest_priority, end_does_not_wait_for_the_disk);
}
