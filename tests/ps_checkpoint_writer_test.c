/* tests/ps_checkpoint_writer_test.c - a server's part in checkpoints while generations change. The
 * name of its file contains the server's number in the run's plan, and an order for another run
 * fails. */
#include "base/clock.h"
#include "ps/service/checkpoint_writer.h"
#include "ps/service/run.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/store_rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_CHUNKS = 8, DEADLINE_MS = 20000 };

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* chunks of 1024 and 300 */
    {.name = "b", .shape = {1, {3}}},
};

struct rig {
    char folder[FOLDER_RIG_BYTES];
    char *addr[2];
    struct hosts first, second; /* the servers of both plans */
    struct chunks *chunks;
    int member[2], shard[MAX_CHUNKS];
    struct service *service;
    struct checkpoint_writer *saver;
    pthread_mutex_t lock; /* guards n_changes */
    pthread_cond_t wake;
    int n_changes;
};

static void on_changed(void *ctx)
{
    struct rig *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->n_changes++;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

/* Waits until the last order is neither armed nor being written. Returns its phase. */
static enum part_phase wait_for_end(struct rig *r)
{
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    for (;;) {
        struct checkpoint_writer_state state;
        pthread_mutex_lock(&r->lock);
        int seen = r->n_changes;
        pthread_mutex_unlock(&r->lock);
        checkpoint_writer_state(r->saver, &state);
        if (state.phase != PART_ARMED && state.phase != PART_WRITING)
            return state.phase;
        pthread_mutex_lock(&r->lock);
        while (r->n_changes == seen && clock_cond_wait(&r->wake, &r->lock, deadline) == 0)
            ;
        pthread_mutex_unlock(&r->lock);
        assert_true(clock_now_ns() < deadline);
    }
}

/* Sets the first values of all chunks of the present run. */
static void init_values(struct rig *r)
{
    static const float zeros[1024];
    int ended;
    struct run *run = service_run(r->service, &ended);
    assert_non_null(run);
    store_admit(run->store, 0, 1);
    for (int i = 0; i < r->chunks->n_chunks; i++) {
        size_t bytes = (size_t)r->chunks->chunks[i].n_elems * sizeof(float);
        struct net_frame_head head = {run->generation, 0, 1};
        struct net_piece piece = {
            .kind = PIECE_INIT, .chunk = (uint32_t)i, .unsummed = 1, .payload.bytes = bytes};
        assert_int_equal(store_rig_act(run->store, &head, piece, zeros, 0), PIECE_VERSION);
    }
    run_unref(run);
}

static struct net_plan plan_of(struct rig *r, uint64_t generation, int n_members,
                               struct hosts servers, int owner)
{
    struct net_plan p = {.generation = generation,
                         .position = 4096,
                         .job = {.n_workers = 1, .train_steps = 100, .seed = 3, .batch = 8},
                         .chunks = r->chunks,
                         .n_members = n_members,
                         .member = r->member,
                         .servers = servers,
                         .shard = r->shard};
    optim_defaults(OPTIM_SGD, &p.job.optim);
    for (int i = 0; i < r->chunks->n_chunks; i++)
        r->shard[i] = owner;
    return p;
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    folder_rig_new(r->folder);
    r->addr[0] = "127.0.0.1:2";
    r->addr[1] = "127.0.0.1:1";
    r->first = (struct hosts){1, &r->addr[1]};
    r->second = (struct hosts){2, r->addr};
    r->member[1] = 5;
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->wake);
    assert_int_equal(chunks_create(model, 2, 4096, &r->chunks), ST_OK);
    assert_in_range(r->chunks->n_chunks, 2, MAX_CHUNKS);
    static const struct hosts nobody;
    struct service_config service = {.ps_hosts = &r->first,
                                     .worker_hosts = &nobody,
                                     .address = r->addr[1],
                                     .max_model_bytes = 1 << 20};
    assert_int_equal(service_create(&service, &r->service), ST_OK);
    struct checkpoint_writer_config saver = {
        .service = r->service, .folder = r->folder, .changed = on_changed, .ctx = r};
    assert_int_equal(checkpoint_writer_create(&saver, &r->saver), ST_OK);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    checkpoint_writer_destroy(r->saver);
    service_destroy(r->service);
    chunks_destroy(r->chunks);
    folder_rig_empty(r->folder);
    rmdir(r->folder);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return 0;
}

static int has(const struct rig *r, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    return access(path, F_OK) == 0;
}

static void file_name_has_the_number_of_the_run(void **state)
{
    struct rig *r = *state;
    struct safetensors_file *f;
    char path[512], why[SAFETENSORS_WHY_BYTES];
    checkpoint_writer_order(r->saver, 1, 1, 0);
    assert_int_equal(wait_for_end(r), PART_FAILED); /* there is no run yet */
    struct net_plan p = plan_of(r, 1, 1, r->first, 0);
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    init_values(r);
    checkpoint_writer_order(r->saver, 2, 1, 0);
    assert_int_equal(wait_for_end(r), PART_WRITTEN);
    assert_true(has(r, "weir-0-0-of-1.safetensors"));
    int shard[MAX_CHUNKS] = {0};
    p = plan_of(r, 2, 2, r->second, 1);
    p.source = PLAN_MEMORY;
    p.before = 1;
    p.holders = r->first;
    p.held_by = shard;
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    checkpoint_writer_order(r->saver, 3, 2, 0);
    assert_int_equal(wait_for_end(r), PART_WRITTEN);
    snprintf(path, sizeof path, "%s/weir-0-1-of-2.safetensors", r->folder);
    assert_int_equal(safetensors_open(path, &f, why), ST_OK);
    assert_string_equal(safetensors_metadata(f, "server"), "1");
    assert_string_equal(safetensors_metadata(f, "generation"), "2");
    assert_string_equal(safetensors_metadata(f, "position"), "4096");
    assert_string_equal(safetensors_metadata(f, "members"), "0,5");
    assert_string_equal(safetensors_metadata(f, "addresses"), "127.0.0.1:2,127.0.0.1:1");
    safetensors_close(f);
}

/* Orders of the previous generation and of the next one fail, and so does an order if the plan does
 * not name this server. */
static void order_of_another_run_fails(void **state)
{
    struct rig *r = *state;
    struct net_plan p = plan_of(r, 7, 1, r->first, 0);
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    init_values(r);
    checkpoint_writer_order(r->saver, 1, 6, 0);
    assert_int_equal(wait_for_end(r), PART_FAILED);
    checkpoint_writer_order(r->saver, 2, 8, 0);
    assert_int_equal(wait_for_end(r), PART_FAILED);
    checkpoint_writer_order(r->saver, 3, 7, 0);
    assert_int_equal(wait_for_end(r), PART_WRITTEN);
    p = plan_of(r, 8, 1, (struct hosts){1, &r->addr[0]}, 0);
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    checkpoint_writer_order(r->saver, 4, 8, 0);
    assert_int_equal(wait_for_end(r), PART_FAILED);
    /* An order waits for a step when the next generation begins. The next order replaces it. */
    p = plan_of(r, 9, 1, r->first, 0);
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    init_values(r);
    checkpoint_writer_order(r->saver, 5, 9, 3);
    struct checkpoint_writer_state s;
    checkpoint_writer_state(r->saver, &s);
    assert_int_equal(s.phase, PART_ARMED);
    p = plan_of(r, 10, 1, r->first, 0);
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    init_values(r);
    checkpoint_writer_order(r->saver, 6, 10, 0);
    assert_int_equal(wait_for_end(r), PART_WRITTEN);
    checkpoint_writer_state(r->saver, &s);
    assert_true(s.order == 6);
}

/* Returns the number of references to the present run besides the service's own. */
static int n_holders(struct rig *r)
{
    int ended;
    struct run *run = service_run(r->service, &ended);
    int n = atomic_load(&run->refs) - 2;
    run_unref(run);
    return n;
}

/* A reference that lived longer than its order would keep the memory of an old generation until the
 * next checkpoint. */
static void run_is_held_only_during_an_order(void **state)
{
    struct rig *r = *state;
    struct net_plan p = plan_of(r, 1, 1, r->first, 0);
    assert_int_equal(generation_begin(r->service, &p, NULL), ST_OK);
    init_values(r);
    checkpoint_writer_order(r->saver, 1, 1, 0);
    assert_int_equal(wait_for_end(r), PART_WRITTEN);
    assert_int_equal(n_holders(r), 0);
    checkpoint_writer_order(r->saver, 2, 1, 3);
    assert_int_equal(n_holders(r), 1);
    checkpoint_writer_cancel(r->saver);
    assert_int_equal(n_holders(r), 0);
    checkpoint_writer_order(r->saver, 3, 2, 3);
    assert_int_equal(wait_for_end(r), PART_FAILED);
    assert_int_equal(n_holders(r), 0);
}

int main(void)
{
    return RUN_EACH(setup, teardown, file_name_has_the_number_of_the_run,
                    order_of_another_run_fails, run_is_held_only_during_an_order);
}
