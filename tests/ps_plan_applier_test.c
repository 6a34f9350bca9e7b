/* tests/ps_plan_applier_test.c - a server applies a plan that resumes from a checkpoint
 * (ps/coordinator/plan_applier.h): which parts it reads, and what it does if they are damaged.
 * There are two servers with one folder, and no network. */
#include "base/clock.h"
#include "base/term.h"
#include "ps/checkpoint/snapshot_file.h"
#include "ps/coordinator/plan_applier.h"
#include "ps/service/run.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/store_rig.h"
#include <pthread.h>

enum { N_SERVERS = 2, N_CHUNKS = 3, MAX_ELEMS = 1024, DEADLINE_MS = 20000, STEP = 0 };

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* chunks of 1024 and 300 */
    {.name = "b", .shape = {1, {3}}},
};
static char *addrs[N_SERVERS] = {"127.0.0.1:1", "127.0.0.1:2"};
static const struct hosts servers = {N_SERVERS, addrs}, nobody;

struct rig {
    char folder[FOLDER_RIG_BYTES];
    struct chunks *chunks;
    struct net_job job;
    int shard[N_CHUNKS];
    struct service *service; /* service of one server */
    struct plan_applier *applier;
    pthread_mutex_t lock; /* guards n_changed */
    pthread_cond_t wake;
    int n_changed;
};

static void on_changed(void *ctx)
{
    struct rig *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->n_changed++;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

/* Waits until the plan has been tried n_changed times. */
static void wait_for(struct rig *r, int n_changed)
{
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&r->lock);
    while (r->n_changed < n_changed && clock_cond_wait(&r->wake, &r->lock, deadline) == 0)
        ;
    int enough = r->n_changed >= n_changed;
    pthread_mutex_unlock(&r->lock);
    assert_true(enough);
}

static float value_of(int chunk, int64_t i)
{
    return (float)chunk * 5000 + (float)i;
}

static void on_done(void *ctx)
{
}

/* Writes one server's file of the checkpoint. */
static void write_file(struct rig *r, int server, struct safetensors_written *out)
{
    const struct store_config cfg = {.chunks = r->chunks,
                                     .job = &r->job,
                                     .server = r->shard,
                                     .self = server,
                                     .generation = term_of(1, 1)};
    struct store *store = store_rig_open(&cfg, 1, 1);
    struct snapshot *snapshot;
    assert_int_equal(snapshot_create(store, on_done, NULL, &snapshot), ST_OK);
    for (int c = 0; c < N_CHUNKS; c++) {
        float data[MAX_ELEMS];
        const int64_t n = r->chunks->chunks[c].n_elems;
        for (int64_t i = 0; i < n; i++)
            data[i] = value_of(c, i);
        const struct net_frame_head head = {term_of(1, 1), 0, 1};
        const struct net_piece piece = {.kind = PIECE_INIT,
                                        .chunk = (uint32_t)c,
                                        .unsummed = 1,
                                        .payload.bytes = (size_t)n * sizeof *data};
        if (r->shard[c] == server)
            assert_int_equal(store_rig_act(store, &head, piece, data, 0), PIECE_VERSION);
    }
    assert_int_equal(snapshot_begin(snapshot, STEP), ST_OK);
    const struct checkpoint_shard_file f = {.folder = r->folder,
                                            .step = STEP,
                                            .generation = term_of(1, 1),
                                            .server = server,
                                            .n_servers = N_SERVERS,
                                            .job = &r->job,
                                            .chunks = r->chunks};
    assert_int_equal(snapshot_file_write(&f, snapshot, out), ST_OK);
    snapshot_destroy(snapshot);
    store_destroy(store);
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct safetensors_written files[N_SERVERS];
    folder_rig_new(r->folder);
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->wake);
    r->job = (struct net_job){.n_workers = 1, .train_steps = 100, .seed = 3, .batch = 8};
    optim_defaults(OPTIM_SGD, &r->job.optim);
    assert_int_equal(chunks_create(model, 2, 4096, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, N_CHUNKS);
    r->shard[1] = 1;
    for (int i = 0; i < N_SERVERS; i++)
        write_file(r, i, &files[i]);
    const struct checkpoint_manifest m = {.step = STEP,
                                          .generation = term_of(1, 1),
                                          .job = r->job,
                                          .chunks = r->chunks,
                                          .n_files = N_SERVERS,
                                          .files = files};
    assert_int_equal(checkpoint_manifest_write(r->folder, &m), ST_OK);
    *state = r;
    return 0;
}

/* Starts the server's service, and the thread that applies plans for it. */
static void start(struct rig *r, int self)
{
    const struct service_config service = {.self = self,
                                           .address = addrs[self],
                                           .ps_hosts = &servers,
                                           .worker_hosts = &nobody,
                                           .max_model_bytes = 1 << 20};
    assert_int_equal(service_create(&service, &r->service), ST_OK);
    const struct plan_applier_config taker = {.service = r->service,
                                              .folder = r->folder,
                                              .address = addrs[self],
                                              .changed = on_changed,
                                              .ctx = r};
    r->n_changed = 0;
    assert_int_equal(plan_applier_create(&taker, &r->applier), ST_OK);
}

static void stop(struct rig *r)
{
    plan_applier_destroy(r->applier);
    service_destroy(r->service);
    r->applier = NULL;
    r->service = NULL;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    if (r->applier)
        stop(r);
    folder_rig_empty(r->folder);
    rmdir(r->folder);
    chunks_destroy(r->chunks);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return 0;
}

static void take(struct rig *r, int *shard)
{
    static int member[] = {0};
    struct net_plan p = {.generation = term_of(2, 1),
                         .step = STEP,
                         .job = r->job,
                         .chunks = r->chunks,
                         .n_members = 1,
                         .member = member,
                         .servers = servers,
                         .shard = shard,
                         .source = PLAN_CHECKPOINT,
                         .restore = "weir-1.1-0.json"};
    plan_applier_take(r->applier, &p, NULL);
}

/* Changes a bit of the last value of the server's last chunk. */
static void flip(struct rig *r, int server)
{
    char path[512];
    snprintf(path, sizeof path, "%s/weir-1.1-0-%d-of-2.safetensors", r->folder, server);
    FILE *f = fopen(path, "r+be");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    int c = getc(f);
    fseek(f, -1, SEEK_END);
    putc(c ^ 4, f);
    assert_int_equal(fclose(f), 0);
}

static void assert_restored(struct rig *r, int self)
{
    int ended;
    struct run *run = service_run(r->service, &ended);
    assert_non_null(run);
    assert_int_equal(run->generation, term_of(2, 1));
    for (int c = 0; c < N_CHUNKS; c++) {
        int64_t version;
        if (r->shard[c] != self)
            continue;
        struct buf *b = store_read(run->store, c, &version);
        assert_non_null(b);
        assert_int_equal(version, STEP);
        for (int64_t i = 0; i < r->chunks->chunks[c].n_elems; i++)
            assert_true(((const float *)b->data)[i] == value_of(c, i));
        buf_unref(b);
    }
    run_unref(run);
}

/* A server reads only its own chunks, so it does not detect damage in another server's part. */
static void server_reads_only_its_own_chunks(void **state)
{
    struct rig *r = *state;
    for (int self = 0; self < N_SERVERS; self++) {
        flip(r, !self);
        start(r, self);
        take(r, r->shard);
        wait_for(r, 1);
        assert_int_equal(plan_applier_generation(r->applier), term_of(2, 1));
        assert_restored(r, self);
        stop(r);
        flip(r, !self);
    }
}

/* The plan is retried until the server's own part is repaired. */
static void plan_with_a_damaged_part_is_retried(void **state)
{
    struct rig *r = *state;
    struct generation_state s;
    flip(r, 1);
    start(r, 1);
    capture_begin();
    take(r, r->shard);
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    pthread_mutex_lock(&r->lock); /* no assertion may fail here, while stderr is redirected */
    while (r->n_changed == 0 && clock_cond_wait(&r->wake, &r->lock, deadline) == 0)
        ;
    pthread_mutex_unlock(&r->lock);
    capture_end();
    assert_non_null(strstr(capture_text, "does not match its checksum"));
    assert_int_equal(plan_applier_generation(r->applier), 0);
    assert_int_equal(plan_applier_unreadable(r->applier), term_of(2, 1));
    generation_state(r->service, &s);
    assert_int_equal(s.generation, 0);
    flip(r, 1);
    for (int n = 1; plan_applier_generation(r->applier) == 0 && n < 4; n++)
        wait_for(r, n + 1);
    assert_int_equal(plan_applier_generation(r->applier), term_of(2, 1));
    assert_restored(r, 1);
    assert_int_equal(plan_applier_unreadable(r->applier), 0);
}

/* A network folder may show a file late, so the damage is not reported to the coordinator at once.
 */
static void missing_file_is_not_reported_as_damage(void **state)
{
    struct rig *r = *state;
    char path[512];
    snprintf(path, sizeof path, "%s/weir-1.1-0-1-of-2.safetensors", r->folder);
    assert_int_equal(unlink(path), 0);
    start(r, 1);
    take(r, r->shard);
    wait_for(r, 1);
    assert_int_equal(plan_applier_generation(r->applier), 0);
    assert_int_equal(plan_applier_unreadable(r->applier), 0);
}

/* A server without chunks needs no checkpoint. */
static void server_without_chunks_reads_nothing(void **state)
{
    struct rig *r = *state;
    static int all_at_0[N_CHUNKS];
    folder_rig_empty(r->folder);
    start(r, 1);
    take(r, all_at_0);
    wait_for(r, 1);
    assert_int_equal(plan_applier_generation(r->applier), term_of(2, 1));
}

int main(void)
{
    return RUN_EACH(setup, teardown, server_reads_only_its_own_chunks,
                    plan_with_a_damaged_part_is_retried, missing_file_is_not_reported_as_damage,
                    server_without_chunks_reads_nothing);
}
