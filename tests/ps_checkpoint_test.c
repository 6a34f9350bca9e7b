/* tests/ps_checkpoint_test.c - snapshots, a server's file, manifests and restoring, without a
 * network. A job is restored with other servers and chunks, and after damage to any byte. Each
 * system call fails, or ends the process (tests/fault_io.h). */
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "files/durable.h"
#include "net/wire/lacking.h"
#include "ps/checkpoint/snapshot_file.h"
#include "ps/store/handover.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fault_io.h"
#include "tests/folder_rig.h"
#include "tests/store_rig.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { N_PARAMS = 4, N_ELEMS = 1324 + 5 + 1100 + 3, MAX_SERVERS = 3, MAX_CALLS = 200 };

static const struct net_param model[N_PARAMS] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* chunks of 1024 and 300 */
    {.name = "bn/mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
    {.name = "v", .shape = {1, {1100}}},
    {.name = "b", .shape = {1, {3}}},
};

static char folder[FOLDER_RIG_BYTES];

static int setup(void **state)
{
    folder_rig_new(folder);
    fault_io_set(folder, FAULT_NONE, 0, 0); /* no need to wait for a real disk */
    return 0;
}

static int teardown(void **state)
{
    fault_io_set(NULL, FAULT_NONE, 0, 0);
    folder_rig_empty(folder);
    return rmdir(folder);
}

/* A job on n servers, all in this process. */
struct cluster {
    struct net_job job;
    struct chunks *chunks;
    int n, server[16];
    struct store *store[MAX_SERVERS];
    struct snapshot *snapshot[MAX_SERVERS];
    int n_done;
    struct checkpoint_progress progress;
};

static int n_answers; /* number of answers to pieces that had to wait */

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    n_answers++;
}

static void on_done(void *ctx)
{
    ((struct cluster *)ctx)->n_done++;
}

static void start(struct cluster *c, int n, int64_t chunk_bytes, enum optim_kind optim)
{
    *c = (struct cluster){.n = n};
    c->job = (struct net_job){.n_workers = 1, .train_steps = 100, .seed = 3, .aggregate = 1};
    optim_defaults(optim, &c->job.optim);
    c->job.optim.total_steps = 100;
    assert_int_equal(chunks_create(model, N_PARAMS, chunk_bytes, &c->chunks), ST_OK);
    assert_in_range(c->chunks->n_chunks, 1, 16);
    assert_int_equal(chunks_shard(c->chunks, n, c->server), ST_OK);
    for (int i = 0; i < n; i++) {
        struct store_config cfg = {.chunks = c->chunks,
                                   .job = &c->job,
                                   .server = c->server,
                                   .self = i,
                                   .generation = 1,
                                   .answer = on_answer};
        c->store[i] = store_rig_open(&cfg, 1, 1);
        assert_int_equal(snapshot_create(c->store[i], on_done, c, &c->snapshot[i]), ST_OK);
    }
}

static void end(struct cluster *c)
{
    for (int i = 0; i < c->n; i++) {
        snapshot_destroy(c->snapshot[i]);
        store_destroy(c->store[i]);
    }
    chunks_destroy(c->chunks);
}

static bool some_lack; /* contributions lack the gradients of some parameters */

/* Marks the gradients that the contribution to a step lacks, and sets them to zeros. Returns the
 * number of marks' bytes: 0 if it lacks none. */
static size_t mark(const struct cluster *c, int chunk, int64_t step, uint8_t *marks, float *data)
{
    const struct net_chunk *spec = &c->chunks->chunks[chunk];
    int n = lacking_n_params(c->chunks, chunk);
    memset(marks, 0, lacking_bytes(n));
    for (int k = 0; k < n; k++) {
        const struct net_param *p = &c->chunks->params[spec->param + k];
        if (!some_lack || p->rule == PARAM_AVERAGE || (step + spec->param + k) % 3)
            continue;
        lacking_set(marks, k);
        for (int64_t i = 0; i < spec->n_elems; i++)
            if (spec->first + i >= p->first && spec->first + i < p->first + p->n_elems)
                data[i] = 0;
    }
    return lacking_any(marks, n) ? lacking_bytes(n) : 0;
}

/* Sends the worker's contribution to a chunk at a step; its values depend on both alone. Step -1:
 * sends INIT. */
static void send(struct cluster *c, int chunk, int64_t step)
{
    const struct net_chunk *spec = &c->chunks->chunks[chunk];
    float data[2048];
    for (int64_t i = 0; i < spec->n_elems; i++)
        data[i] = store_rig_number(7, step, spec->first + i);
    uint8_t marks[1] = {0};
    const struct net_span span = {marks, step < 0 ? 0 : mark(c, chunk, step, marks, data)};
    bool is_empty = span.n > 0 && lacking_all(marks, lacking_n_params(c->chunks, chunk));
    struct net_frame_head head = {1, 0, 1};
    struct net_piece piece = {.kind = step < 0 ? PIECE_INIT : PIECE_PUSH,
                              .chunk = (uint32_t)chunk,
                              .step = step < 0 ? 0 : (uint64_t)step,
                              .weight = step < 0 ? 0 : 32,
                              .unsummed = 1,
                              .lacking = {&span, 0, span.n},
                              .payload.bytes = is_empty ? 0 : (size_t)spec->n_elems * sizeof *data};
    struct store *store = c->store[c->server[chunk]];
    assert_int_not_equal(store_rig_act(store, &head, piece, data, 0), PIECE_REFUSED);
}

static void train(struct cluster *c, int64_t from, int64_t to)
{
    for (int64_t step = from; step < to; step++)
        for (int i = 0; i < c->chunks->n_chunks; i++)
            send(c, i, step);
}

static void values(struct cluster *c, float flat[N_ELEMS])
{
    for (int i = 0; i < c->chunks->n_chunks; i++) {
        int64_t version;
        struct buf *b = store_read(c->store[c->server[i]], i, &version);
        assert_non_null(b);
        memcpy(flat + c->chunks->chunks[i].first, b->data, b->bytes);
        buf_unref(b);
    }
}

static enum status write_files(struct cluster *c, int64_t step, uint64_t generation, int keep)
{
    enum status st = ST_OK;
    struct safetensors_written files[MAX_SERVERS];
    for (int i = 0; i < c->n; i++) {
        struct checkpoint_shard_file f = {.folder = folder,
                                          .step = step,
                                          .generation = generation,
                                          .server = i,
                                          .n_servers = c->n,
                                          .job = &c->job,
                                          .chunks = c->chunks,
                                          .progress = c->progress};
        TRY(snapshot_file_write(&f, c->snapshot[i], &files[i]));
    }
    struct checkpoint_manifest m = {.step = step,
                                    .generation = generation,
                                    .job = c->job,
                                    .chunks = c->chunks,
                                    .n_files = c->n,
                                    .files = files,
                                    .progress = c->progress};
    TRY(checkpoint_manifest_write(folder, &m));
    TRY(checkpoint_retention_sweep(folder, &(struct checkpoint_sweep){.keep = keep}));
done:
    return st;
}

/* Trains from `from` to `to`, with a checkpoint at `step`. */
static enum status train_and_save(struct cluster *c, int64_t from, int64_t step, int64_t to)
{
    c->n_done = 0;
    for (int i = 0; i < c->n; i++)
        assert_int_equal(snapshot_begin(c->snapshot[i], step), ST_OK);
    train(c, from, to);
    assert_int_equal(c->n_done, c->n);
    enum status st = write_files(c, step, 1, 0);
    for (int i = 0; i < c->n; i++)
        snapshot_end(c->snapshot[i]);
    return st;
}

static enum status load_chunk(void *ctx, int chunk, float *value, float *slots, int64_t *version)
{
    void **both = ctx;
    const struct chunks *chunks = both[1];
    return checkpoint_restore_read(both[0], chunks->chunks[chunk].first,
                                   chunks->chunks[chunk].n_elems, value, slots, version);
}

static void restore(struct cluster *c, const char *path, int64_t step)
{
    struct checkpoint_restore *r = NULL;
    assert_int_equal(checkpoint_restore_find(path, &r), ST_OK);
    assert_int_equal(checkpoint_restore_manifest(r)->step, step);
    void *both[2] = {r, c->chunks};
    for (int i = 0; i < c->n; i++) {
        assert_int_equal(handover_load(c->store[i], load_chunk, both), ST_OK);
        assert_true(store_step(c->store[i]) == step);
    }
    for (int i = 0; i < c->chunks->n_chunks; i++) {
        uint64_t idle[N_PARAMS];
        checkpoint_restore_idle(r, c->chunks, i, step, idle);
        size_t n = (size_t)lacking_n_params(c->chunks, i);
        assert_int_equal(handover_set_idle(c->store[c->server[i]], i, idle, n), ST_OK);
    }
    checkpoint_restore_close(r);
}

/* A job is restored at step 5 after training had reached step 8, and continues with other servers
 * and chunks. Its bits are those of an undisturbed job, with every optimizer, and also if
 * contributions lack gradients. */
static void check_restored_jobs(void)
{
    static const struct {
        int n_before, n_after;
        int64_t bytes_before, bytes_after;
    } cases[] = {{1, 1, 4096, 4096}, {2, 2, 4096, 4096}, {2, 3, 4096, 8192}, {3, 1, 8192, 4100}};
    for (int optim = 0; optim < OPTIM_N_KINDS; optim++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct cluster c;
            float want[N_ELEMS], got[N_ELEMS];
            start(&c, cases[i].n_before, cases[i].bytes_before, (enum optim_kind)optim);
            train(&c, -1, 3);
            assert_int_equal(train_and_save(&c, 3, 5, 8), ST_OK);
            train(&c, 8, 12);
            values(&c, want);
            end(&c);
            start(&c, cases[i].n_after, cases[i].bytes_after, (enum optim_kind)optim);
            restore(&c, folder, 5);
            train(&c, 5, 12);
            values(&c, got);
            end(&c);
            assert_memory_equal(want, got, sizeof want);
            folder_rig_empty(folder);
        }
    }
}

static void restored_job_has_the_same_bits(void **state)
{
    for (int k = 0; k < 2; k++) {
        some_lack = k == 1;
        check_restored_jobs();
    }
    some_lack = false;
}

/* Only a file with idle updates has numbers of them. */
static void file_has_idle_updates_only_if_there_are_some(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct cluster c;
        struct safetensors_file *f;
        char path[256], why[SAFETENSORS_WHY_BYTES];
        start(&c, 1, 4096, OPTIM_ADAM);
        some_lack = k == 1;
        train(&c, -1, 3);
        assert_int_equal(train_and_save(&c, 3, 5, 6), ST_OK);
        snprintf(path, sizeof path, "%s/weir-5-0-of-1.safetensors", folder);
        assert_int_equal(safetensors_open(path, &f, why), ST_OK);
        const char *idle = safetensors_metadata(f, "idle b"), *mean = "idle bn/mean";
        assert_null(safetensors_metadata(f, mean));
        if (k == 0)
            assert_null(idle);
        else
            assert_string_equal(idle, "2"); /* steps 0 and 3 */
        safetensors_close(f);
        end(&c);
        folder_rig_empty(folder);
    }
    some_lack = false;
}

static void snapshot_holds_one_step_until_its_end(void **state)
{
    struct cluster c;
    int n;
    start(&c, 1, 4096, OPTIM_ADAM);
    train(&c, -1, 2);
    assert_int_equal(snapshot_begin(c.snapshot[0], 4), ST_OK);
    train(&c, 2, 3);
    send(&c, 0, 3);
    assert_int_equal(c.n_done, 0); /* only chunk 0 has reached the step */
    for (int i = 1; i < c.chunks->n_chunks; i++)
        send(&c, i, 3);
    assert_int_equal(c.n_done, 1);
    float at_4[N_ELEMS];
    values(&c, at_4);
    train(&c, 4, 9);
    assert_int_equal(c.n_done, 1);
    const struct snapshot_chunk *list = snapshot_chunks(c.snapshot[0], &n);
    assert_int_equal(n, c.chunks->n_chunks);
    for (int i = 0; i < n; i++) {
        const struct net_chunk *spec = &c.chunks->chunks[list[i].chunk];
        assert_true(list[i].version == 4);
        assert_memory_equal(list[i].value->data, at_4 + spec->first, list[i].value->bytes);
    }
    snapshot_end(c.snapshot[0]);
    assert_null(snapshot_chunks(c.snapshot[0], &n)[0].value);
    assert_int_equal(snapshot_begin(c.snapshot[0], 5), ST_RANGE); /* a past step */
    train(&c, 9, 10);
    assert_int_equal(c.n_done, 1);
    assert_int_equal(snapshot_begin(c.snapshot[0], 10), ST_OK); /* the present step */
    assert_int_equal(c.n_done, 2);
    end(&c);
}

static void independent_chunks_keep_their_versions(void **state)
{
    struct cluster c;
    struct checkpoint_restore *r;
    start(&c, 1, 4096, OPTIM_ADAM);
    snapshot_destroy(c.snapshot[0]);
    store_destroy(c.store[0]);
    c.job.sync_mode = JOB_ASYNC;
    c.job.batch = 32;
    struct store_config cfg = {.chunks = c.chunks,
                               .job = &c.job,
                               .server = c.server,
                               .generation = 1,
                               .position = 960,
                               .answer = on_answer};
    c.store[0] = store_rig_open(&cfg, 1, 1);
    assert_int_equal(snapshot_create(c.store[0], on_done, &c, &c.snapshot[0]), ST_OK);
    train(&c, -1, 2);
    send(&c, 0, 2);
    send(&c, 0, 3); /* chunk 0 is at 4, all other chunks are at 2 */
    assert_int_equal(snapshot_begin(c.snapshot[0], 3), ST_OK);
    for (int i = 1; i < c.chunks->n_chunks; i++)
        send(&c, i, 2);
    assert_int_equal(c.n_done, 1);
    assert_int_equal(write_files(&c, 3, 1, 0), ST_OK);
    assert_int_equal(checkpoint_restore_find(folder, &r), ST_OK);
    float value[2048], slots[2 * 2048];
    int64_t version;
    assert_int_equal(checkpoint_restore_read(r, 0, 1024, value, slots, &version), ST_OK);
    assert_true(version == 4);
    assert_int_equal(checkpoint_restore_read(r, 0, 1324, value, slots, &version), ST_OK);
    assert_true(version == 3);
    uint64_t *list; /* four batches of chunk 0 have counted, and a fifth is assigned */
    size_t n_list;
    assert_int_equal(checkpoint_restore_samples(r, &list, &n_list), ST_OK);
    assert_int_equal(n_list, 2);
    assert_true(list[0] == 960 + 5 * 32 && list[1] == 960 + 4 * 32);
    free(list);
    checkpoint_restore_close(r);
    end(&c);
}

/* Position, members and addresses are restored, and each file records them. A manifest without them
 * has the format of earlier versions. */
static void progress_is_restored(void **state)
{
    struct cluster c;
    struct checkpoint_restore *r;
    struct safetensors_file *f;
    char path[256], why[SAFETENSORS_WHY_BYTES], *addr[] = {"10.0.0.7:2220", "[::1]:2221"};
    int member[] = {0, 2, JOB_MAX_WORKERS - 1};
    start(&c, 2, 4096, OPTIM_SGD);
    train(&c, -1, 3);
    assert_int_equal(train_and_save(&c, 3, 4, 5), ST_OK);
    assert_int_equal(checkpoint_restore_find(folder, &r), ST_OK);
    assert_false(checkpoint_restore_manifest(r)->progress.known);
    checkpoint_restore_close(r);
    c.progress = (struct checkpoint_progress){.known = 1,
                                              .position = (1ULL << 40) + 7,
                                              .n_members = 3,
                                              .member = member,
                                              .servers = {2, addr}};
    assert_int_equal(train_and_save(&c, 5, 6, 7), ST_OK);
    assert_int_equal(checkpoint_restore_find(folder, &r), ST_OK);
    const struct checkpoint_progress *p = &checkpoint_restore_manifest(r)->progress;
    assert_true(p->known && p->position == (1ULL << 40) + 7);
    assert_int_equal(p->n_members, 3);
    assert_memory_equal(p->member, member, sizeof member);
    assert_int_equal(p->servers.n, 2);
    assert_string_equal(p->servers.addr[1], "[::1]:2221");
    checkpoint_restore_close(r);
    snprintf(path, sizeof path, "%s/weir-6-1-of-2.safetensors", folder);
    assert_int_equal(safetensors_open(path, &f, why), ST_OK);
    assert_string_equal(safetensors_metadata(f, "position"), "1099511627783");
    assert_string_equal(safetensors_metadata(f, "members"), "0,2,4095");
    assert_string_equal(safetensors_metadata(f, "addresses"), "10.0.0.7:2220,[::1]:2221");
    safetensors_close(f);
    end(&c);
}

/* The file matches its manifest, but its only tensor has an impossible name. */
static void impossible_tensor_names_are_refused(void **state)
{
    static const char *const names[] = {
        "w [-9223372036854775808:9223372036854775807]",
        "v [9223372036854775807:9223372036854775807]",
        "w [0:9223372036854775807]",
        "w [4:2]",
        "w slot 9",
        "w slot -2",
    };
    struct cluster c;
    char path[256];
    float zeros[8] = {0};
    start(&c, 1, 8192, OPTIM_SGD);
    snprintf(path, sizeof path, "%s/weir-3-0-of-1.safetensors", folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct safetensors_tensor t = {.name = names[i], .shape = {1, {8}}, .data = zeros};
        struct safetensors_content content = {&t, 1, NULL, 0};
        struct safetensors_written file;
        struct checkpoint_restore *r;
        assert_int_equal(safetensors_write(path, &content, &file), ST_OK);
        struct checkpoint_manifest m = {.step = 3,
                                        .generation = 1,
                                        .job = c.job,
                                        .chunks = c.chunks,
                                        .n_files = 1,
                                        .files = &file};
        assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
        assert_int_equal(checkpoint_restore_find(folder, &r), ST_CORRUPT);
    }
    end(&c);
}

/* The manifest's text is valid, but its members and servers are impossible. */
static void impossible_progress_is_refused(void **state)
{
    static const struct {
        int n_members, member[2];
        uint64_t position;
    } bad[] = {{0, {0, 0}, 5},  {2, {1, 1}, 5},       {2, {1, 0}, 5},
               {1, {-1, 0}, 5}, {1, {0}, 1ULL << 63}, {2, {0, JOB_MAX_WORKERS}, 5}};
    struct cluster c;
    int member[2];
    char path[256], why[MANIFEST_WHY_BYTES], *addr[] = {"a:1"};
    start(&c, 1, 8192, OPTIM_SGD);
    struct safetensors_written file = {0};
    struct checkpoint_manifest m = {
        .step = 3, .generation = 1, .job = c.job, .chunks = c.chunks, .n_files = 1, .files = &file};
    snprintf(path, sizeof path, "%s/weir-3.json", folder);
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        struct checkpoint_manifest *read = NULL;
        int good = i == sizeof bad / sizeof *bad;
        memcpy(member, good ? (int[]){0, 1} : bad[i].member, sizeof member);
        m.progress = (struct checkpoint_progress){.known = 1,
                                                  .position = good ? 5 : bad[i].position,
                                                  .n_members = good ? 2 : bad[i].n_members,
                                                  .member = member,
                                                  .servers = {1, addr}};
        assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
        assert_int_equal(checkpoint_manifest_read(path, &read, why), good ? ST_OK : ST_CORRUPT);
        assert_true(good || strstr(why, "members"));
        checkpoint_manifest_free(read);
    }
    /* A manifest with an impossible shard map is refused, too. */
    for (int bad_file = 0; bad_file < 2; bad_file++) {
        struct checkpoint_manifest *read = NULL;
        int shard[16] = {bad_file};
        m.shard = shard;
        assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
        assert_int_equal(checkpoint_manifest_read(path, &read, why), bad_file ? ST_CORRUPT : ST_OK);
        assert_true(bad_file ||
                    memcmp(read->shard, shard, (size_t)c.chunks->n_chunks * sizeof *shard) == 0);
        checkpoint_manifest_free(read);
    }
    m.shard = NULL;
    m.progress.servers.n = 0;
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    assert_int_equal(checkpoint_manifest_read(path, &(struct checkpoint_manifest *){NULL}, why),
                     ST_CORRUPT);
    end(&c);
}

static int64_t newest(void)
{
    struct checkpoint_restore *r = NULL;
    int64_t step = -1;
    capture_begin();
    if (checkpoint_restore_find(folder, &r) == ST_OK)
        step = checkpoint_restore_manifest(r)->step;
    capture_end();
    checkpoint_restore_close(r);
    return step;
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = getc(f);
    fseek(f, at, SEEK_SET);
    putc(c ^ (1 << at % 8), f);
    fclose(f);
}

/* Damages every byte of the manifest and a sample of the files' bytes, and cuts or removes files.
 */
static void damaged_checkpoint_falls_back_to_the_previous_one(void **state)
{
    struct cluster c;
    start(&c, 2, 4096, OPTIM_MOMENTUM);
    train(&c, -1, 1);
    assert_int_equal(train_and_save(&c, 1, 4, 5), ST_OK);
    assert_int_equal(train_and_save(&c, 5, 8, 9), ST_OK);
    assert_int_equal(newest(), 8);
    static const char *const names[] = {"weir-8.json", "weir-8-0-of-2.safetensors",
                                        "weir-8-1-of-2.safetensors"};
    for (int k = 0; k < 3; k++) {
        char path[256], aside[280];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", folder, names[k]);
        snprintf(aside, sizeof aside, "%s.aside", path);
        assert_int_equal(stat(path, &s), 0);
        for (long at = 0; at < s.st_size - (k == 0); at += k == 0 || at < 32 ? 1 : 97) {
            flip(path, at);
            assert_int_equal(newest(), 4);
            assert_non_null(strstr(capture_text, "weir-8.json: not restored"));
            assert_null(strstr(capture_text, "weir-4"));
            flip(path, at);
        }
        assert_int_equal(newest(), 8);
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(newest(), 4);
        assert_int_equal(rename(aside, path), 0);
        assert_int_equal(truncate(path, s.st_size - 2), 0);
        assert_int_equal(newest(), 4);
        folder_rig_empty(folder);
        end(&c);
        start(&c, 2, 4096, OPTIM_MOMENTUM);
        train(&c, -1, 1);
        assert_int_equal(train_and_save(&c, 1, 4, 5), ST_OK);
        assert_int_equal(train_and_save(&c, 5, 8, 9), ST_OK);
    }
    /* A complete file of another step is refused, although it has the right name. */
    char from[256], to[256];
    snprintf(from, sizeof from, "%s/weir-4-0-of-2.safetensors", folder);
    snprintf(to, sizeof to, "%s/weir-8-0-of-2.safetensors", folder);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(newest(), -1);
    assert_non_null(strstr(capture_text, "none of its checkpoints is complete"));
    end(&c);
}

static enum status load(struct cluster *c, int server, struct checkpoint_restore *r)
{
    void *both[2] = {r, c->chunks};
    return handover_load(c->store[server], load_chunk, both);
}

/* The data of one server's file is damaged. Servers that need this data detect the damage, and
 * other servers do not read it. */
static void server_reads_only_the_data_that_it_needs(void **state)
{
    struct cluster c;
    struct checkpoint_restore *r;
    struct stat s;
    char path[256];
    float value[2048];
    int64_t version, last_of_1 = 0;
    start(&c, 2, 4096, OPTIM_SGD);
    train(&c, -1, 3);
    assert_int_equal(train_and_save(&c, 3, 5, 8), ST_OK);
    for (int i = 0; i < c.chunks->n_chunks; i++)
        if (c.server[i] == 1)
            last_of_1 = i;
    end(&c);
    snprintf(path, sizeof path, "%s/weir-5-1-of-2.safetensors", folder);
    assert_int_equal(stat(path, &s), 0);
    flip(path, s.st_size - 1); /* the last value of the server's last chunk */
    start(&c, 2, 4096, OPTIM_SGD);
    const struct net_chunk *chunk = &c.chunks->chunks[last_of_1];
    struct checkpoint_restore_query q = {.folder = folder, .name = "weir-5.json"};
    assert_int_equal(checkpoint_restore_open(&q, &r), ST_OK);
    assert_int_equal(load(&c, 0, r), ST_OK);
    assert_int_equal(CAPTURE(load(&c, 1, r)), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "weir-5.json: tensor"));
    assert_non_null(strstr(capture_text, "does not match its checksum"));
    /* Even a single element of that tensor cannot be read, wherever the damage lies. */
    assert_int_equal(CAPTURE(checkpoint_restore_read(r, chunk->first, 1, value, NULL, &version)),
                     ST_CORRUPT);
    checkpoint_restore_close(r);
    q.whole = 1;
    assert_int_equal(CAPTURE(checkpoint_restore_open(&q, &r)), ST_CORRUPT);
    end(&c);
    /* If chunks are cut differently, another chunk may need part of the damaged data. */
    start(&c, 1, 8192, OPTIM_SGD);
    q.whole = 0;
    assert_int_equal(checkpoint_restore_open(&q, &r), ST_OK);
    assert_int_equal(CAPTURE(load(&c, 0, r)), ST_CORRUPT);
    flip(path, s.st_size - 1);
    assert_int_equal(load(&c, 0, r), ST_OK);
    checkpoint_restore_close(r);
    /* Headers are always checked. */
    flip(path, 40);
    assert_int_equal(CAPTURE(checkpoint_restore_open(&q, &r)), ST_CORRUPT);
    end(&c);
}

static enum status open_part(const struct checkpoint_part *part, const struct net_job *job,
                             const struct chunks *chunks, struct checkpoint_restore **out)
{
    return checkpoint_restore_open_parts(
        folder, &(struct checkpoint_restore_parts){part, 1, job, chunks}, out);
}

/* Restores without a manifest, from the parts in a server's own folder. */
static void server_restores_its_own_part(void **state)
{
    struct cluster c;
    struct checkpoint_part *parts;
    float want[N_ELEMS], got[N_ELEMS];
    int n;
    start(&c, 2, 4096, OPTIM_ADAM);
    train(&c, -1, 3);
    assert_int_equal(train_and_save(&c, 3, 5, 8), ST_OK);
    train(&c, 8, 12);
    values(&c, want);
    end(&c);
    char path[256];
    snprintf(path, sizeof path, "%s/weir-5.json", folder);
    assert_int_equal(unlink(path), 0);
    start(&c, 2, 4096, OPTIM_ADAM);
    assert_int_equal(checkpoint_parts_list(folder, NULL, &parts, &n, NULL), ST_OK);
    assert_int_equal(n, 2);
    for (int k = 0; k < n; k++) {
        struct checkpoint_restore *r;
        assert_int_equal(parts[k].server, k);
        assert_int_equal(open_part(&parts[k], &c.job, c.chunks, &r), ST_OK);
        for (int i = 0; i < c.chunks->n_chunks; i++) {
            const struct net_chunk *chunk = &c.chunks->chunks[i];
            assert_int_equal(checkpoint_restore_holds(r, chunk->first, chunk->n_elems),
                             c.server[i] == k);
        }
        assert_int_equal(load(&c, k, r), ST_OK);
        assert_int_equal(CAPTURE(load(&c, 1 - k, r)), ST_NOT_FOUND);
        checkpoint_restore_close(r);
    }
    for (int k = 0; k < n; k++) { /* the failed load has filled the stores only partly */
        struct checkpoint_restore *r;
        assert_int_equal(open_part(&parts[k], &c.job, c.chunks, &r), ST_OK);
        assert_int_equal(load(&c, k, r), ST_OK);
        checkpoint_restore_close(r);
    }
    train(&c, 5, 12);
    values(&c, got);
    assert_memory_equal(want, got, sizeof want);
    struct checkpoint_restore *r;
    struct net_job other = c.job;
    other.seed++;
    assert_int_equal(CAPTURE(open_part(&parts[0], &other, c.chunks, &r)), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "another job"));
    parts[1].file.crc32c ^= 1;
    assert_int_equal(CAPTURE(open_part(&parts[1], &c.job, c.chunks, &r)), ST_CORRUPT);
    free(parts);
    end(&c);
}

static int exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void old_checkpoints_are_deleted(void **state)
{
    struct cluster c;
    char text[512] = "", path[256];
    start(&c, 1, 8192, OPTIM_SGD);
    train(&c, -1, 1);
    for (int64_t step = 2; step <= 5; step++) {
        assert_int_equal(snapshot_begin(c.snapshot[0], step), ST_OK);
        train(&c, step - 1, step);
        assert_int_equal(write_files(&c, step, 1, 2), ST_OK);
        snapshot_end(c.snapshot[0]);
    }
    assert_false(exists("weir-3.json") || exists("weir-3-0-of-1.safetensors"));
    assert_true(exists("weir-4.json") && exists("weir-4-0-of-1.safetensors"));
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_string_equal(text, "model_checkpoint_path: \"weir-5\"\n"
                              "all_model_checkpoint_paths: \"weir-4\"\n"
                              "all_model_checkpoint_paths: \"weir-5\"\n");
    /* A newer generation has precedence over a higher step, and foreign files stay. */
    assert_int_equal(durable_put(path, "x", 1), ST_OK);
    snprintf(path, sizeof path, "%s/weir-notes.txt", folder);
    assert_int_equal(durable_put(path, "x", 1), ST_OK);
    snprintf(path, sizeof path, "%s/weir-1-0-of-1.safetensors.99.tmp", folder);
    assert_int_equal(durable_put(path, "x", 1), ST_OK);
    snprintf(path, sizeof path, "%s/servers.99.tmp", folder);
    assert_int_equal(durable_put(path, "x", 1), ST_OK);
    assert_int_equal(snapshot_begin(c.snapshot[0], 6), ST_OK);
    train(&c, 5, 6);
    assert_int_equal(write_files(&c, 3, 2, 2), ST_OK);
    assert_true(exists("weir-3.json") && exists("weir-5.json") && exists("weir-notes.txt"));
    assert_false(exists("weir-4.json") || exists("weir-1-0-of-1.safetensors.99.tmp"));
    assert_false(exists("servers.99.tmp"));
    assert_int_equal(newest(), 3);
    end(&c);
}

/* Replaces an older checkpoint. System call number `at` fails, or ends the process. */
static int save_with_fault(struct cluster *c, enum fault_kind kind, int at)
{
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        fault_io_set(folder, kind, at, ENOSPC);
        enum status st = write_files(c, 8, 1, 1);
        _exit(at > fault_io_count() ? 3 : st == ST_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void fault_at_any_call_leaves_a_complete_checkpoint(void **state)
{
    struct cluster c;
    start(&c, 2, 4096, OPTIM_MOMENTUM);
    train(&c, -1, 1);
    for (enum fault_kind kind = FAULT_ERROR; kind <= FAULT_POWER_2; kind++) {
        int seen_old = 0, seen_new = 0;
        for (int at = 1;; at++) {
            assert_in_range(at, 1, MAX_CALLS);
            folder_rig_empty(folder);
            for (int i = 0; i < c.n; i++)
                assert_int_equal(snapshot_begin(c.snapshot[i], store_step(c.store[i])), ST_OK);
            assert_int_equal(write_files(&c, 4, 1, 1), ST_OK);
            int exit_code = save_with_fault(&c, kind, at);
            int64_t step = newest();
            assert_true(step == 4 || step == 8);
            seen_old |= step == 4;
            seen_new |= step == 8;
            assert_true(exit_code != 0 || step == 8);
            /* A manifest is deleted before the files that it lists. */
            assert_true(!exists("weir-4.json") || (exists("weir-4-0-of-2.safetensors") &&
                                                   exists("weir-4-1-of-2.safetensors")));
            /* the next checkpoint is written over any remains */
            assert_int_equal(write_files(&c, 8, 1, 1), ST_OK);
            assert_int_equal(newest(), 8);
            assert_false(exists("weir-4.json") || exists("weir-4-0-of-2.safetensors"));
            for (int i = 0; i < c.n; i++)
                snapshot_end(c.snapshot[i]);
            if (exit_code == 3)
                break;
        }
        assert_true(seen_old && seen_new);
    }
    end(&c);
}

int main(void)
{
    return RUN_EACH(setup, teardown, restored_job_has_the_same_bits,
                    file_has_idle_updates_only_if_there_are_some,
                    snapshot_holds_one_step_until_its_end, independent_chunks_keep_their_versions,
                    progress_is_restored, impossible_tensor_names_are_refused,
                    impossible_progress_is_refused,
                    damaged_checkpoint_falls_back_to_the_previous_one,
                    server_reads_only_the_data_that_it_needs, server_restores_its_own_part,
                    old_checkpoints_are_deleted, fault_at_any_call_leaves_a_complete_checkpoint);
}
