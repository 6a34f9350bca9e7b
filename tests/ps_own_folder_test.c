/* tests/ps_own_folder_test.c - servers' own folders: the parts that own_folder reports and removes,
 * and checkpoints with files in several folders. */
#include "base/clock.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "files/durable.h"
#include "ps/checkpoint/own_folder.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_ELEMS = 2048 };
#define ELSEWHERE "0123456789abcdef0123456789abcdef"
static const char home[] = "fedcba9876543210fedcba9876543210";
static char folder[128];
static struct chunks *chunks;
static struct net_job job;

static int setup(void **state)
{
    const struct net_param w = {.name = "w", .shape = {1, {N_ELEMS}}};
    folder_rig_new(folder);
    job = (struct net_job){.n_workers = 1, .train_steps = 20, .seed = 3};
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.total_steps = 20;
    return chunks_create(&w, 1, N_ELEMS / 2 * (int64_t)sizeof(float), &chunks) != ST_OK;
}

static int teardown(void **state)
{
    chunks_destroy(chunks);
    return folder_rig_delete(folder);
}

static const char *path_of(int64_t step, int k)
{
    static char path[256];
    char name[MANIFEST_NAME_BYTES];
    checkpoint_manifest_file_name((struct checkpoint_id){checkpoint_term(1, 1), step}, k, 2, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int exists(int64_t step, int k)
{
    return access(path_of(step, k), F_OK) == 0;
}

/* Writes the file of server k of two; `addresses` lists their addresses. All values are `step`. */
static struct checkpoint_part write_part(int64_t step, int k, const char *addresses, const char *of)
{
    char tensor[64], text[2][32], digest[65];
    float values[N_ELEMS];
    struct checkpoint_part part = {{checkpoint_term(1, 1), step}, k, 2, {0, 0}};
    int begin = N_ELEMS * k / 2, end = N_ELEMS * (k + 1) / 2;
    for (int i = 0; i < N_ELEMS; i++)
        values[i] = (float)step;
    snprintf(tensor, sizeof tensor, "w [%d:%d]", begin, end);
    snprintf(text[0], sizeof *text, "%llu", (unsigned long long)part.id.generation);
    snprintf(text[1], sizeof *text, "%lld", (long long)step);
    assert_int_equal(checkpoint_manifest_digest(&job, chunks, digest), ST_OK);
    const struct safetensors_tensor t = {
        .name = tensor, .shape = {1, {end - begin}}, .data = values};
    const char *const metadata[][2] = {
        {"generation", text[0]}, {"step", text[1]},     {"server", k ? "1" : "0"}, {"servers", "2"},
        {"job", digest},         {"train_steps", "20"}, {"addresses", addresses},  {"folder", of}};
    const struct safetensors_content content = {&t, 1, metadata, of ? 8 : 7};
    assert_int_equal(safetensors_write(path_of(step, k), &content, &part.file), ST_OK);
    return part;
}

static void flip_last(const char *path)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    int c = getc(f);
    fseek(f, -1, SEEK_END);
    putc(c ^ 4, f);
    fclose(f);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int n;
} changes = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void on_changed(void *ctx)
{
    pthread_mutex_lock(&changes.lock);
    changes.n++;
    pthread_cond_broadcast(&changes.wake);
    pthread_mutex_unlock(&changes.lock);
}

static void wait_change(int n)
{
    pthread_mutex_lock(&changes.lock);
    while (changes.n < n)
        pthread_cond_wait(&changes.wake, &changes.lock);
    pthread_mutex_unlock(&changes.lock);
}

/* Returns the steps of the reported parts as the digits of a number, newest first; -1: not known
 * yet. */
static int64_t known(struct own_folder *k)
{
    struct net_part *list;
    int64_t all = 0;
    int n;
    if (!own_folder_parts(k, &list, &n))
        return -1;
    for (int i = 0; i < n; i++)
        all = all * 10 + list[i].step;
    free(list);
    return all;
}

/* Requests a sweep and waits until it is done. */
static void tell(struct own_folder *k, const struct checkpoint_keep *word)
{
    pthread_mutex_lock(&changes.lock);
    int n = changes.n;
    pthread_mutex_unlock(&changes.lock);
    capture_begin();
    own_folder_sweep(k, word);
    wait_change(n + 1);
    capture_end();
}

/* The folder's parts are read completely, written parts are added, and parts that ps 0 does not
 * keep are removed, even if a server at another address wrote them for this ps 0. */
static void complete_parts_are_reported(void **state)
{
    const struct own_folder_config cfg = {folder, "b:1", "", 0, on_changed, NULL};
    const struct checkpoint_id kept[] = {{checkpoint_term(1, 1), 6}, {checkpoint_term(1, 1), 2}};
    struct checkpoint_keep keep = {.kept = kept,
                                   .n_kept = 2,
                                   .generation = checkpoint_term(2, 1),
                                   .ordered = {checkpoint_term(1, 1), 7}};
    struct own_folder *k;
    for (int64_t step = 2; step <= 5; step++)
        write_part(step, 1, step == 3 ? "a:1,c:1" : "a:1,b:1", step == 3 ? home : NULL);
    flip_last(path_of(4, 1));
    changes.n = 0;
    assert_int_equal(own_folder_create(&cfg, &k), ST_OK);
    assert_int_equal(known(k), -1);
    capture_begin();
    own_folder_begin(k);
    wait_change(1);
    capture_end();
    assert_non_null(strstr(capture_text, "4-1-of-2.safetensors: skipped"));
    assert_int_equal(known(k), 532);
    struct checkpoint_part part = write_part(6, 1, "a:1,b:1", home);
    own_folder_add(k, &part);
    own_folder_add(k, &part);
    assert_int_equal(known(k), 6532);
    own_folder_sweep(k, &keep);
    wait_change(2);
    assert_int_equal(known(k), 632); /* nothing shows that 3 was written for this ps 0 */
    assert_false(exists(5, 1) || exists(4, 1));
    keep.home = home;
    keep.n_kept = 1;
    keep.older_stay = 1;
    own_folder_sweep(k, &keep);
    wait_change(3);
    assert_int_equal(known(k), 632);
    keep.older_stay = 0;
    own_folder_sweep(k, &keep); /* is carried out although own_folder is destroyed next */
    own_folder_destroy(k, clock_deadline_ns(60000));
    assert_true(exists(6, 1) && !exists(3, 1) && !exists(2, 1));
    assert_int_equal(checkpoint_parts_have_all_steps(folder), 0);
    write_part(20, 1, "a:1,b:1", home);
    assert_int_equal(checkpoint_parts_have_all_steps(folder), 1);
}

/* A checkpoint stays if it is ordered while an earlier sweep waits or is carried out. */
static void sweep_spares_later_orders(void **state)
{
    const struct own_folder_config cfg = {folder, "b:1", "", 0, on_changed, NULL};
    const struct checkpoint_keep word = {.generation = checkpoint_term(1, 1),
                                         .ordered = {checkpoint_term(1, 1), 2}};
    struct own_folder *k;
    changes.n = 0;
    write_part(1, 1, "a:1,b:1", NULL);
    write_part(3, 1, "a:1,b:1", NULL);
    write_part(4, 1, "a:1,b:1", NULL);
    assert_int_equal(own_folder_create(&cfg, &k), ST_OK);
    own_folder_note_order(k, (struct checkpoint_id){checkpoint_term(1, 1), 3});
    own_folder_sweep(k, &word); /* waits, since the parts are not known yet */
    own_folder_note_order(k, (struct checkpoint_id){checkpoint_term(1, 1), 4});
    own_folder_note_order(k, (struct checkpoint_id){checkpoint_term(1, 1), 5});
    own_folder_begin(k);
    wait_change(2);
    assert_int_equal(known(k), 4);
    assert_true(exists(4, 1) && !exists(3, 1) && !exists(1, 1));
    own_folder_sweep(k, &word); /* ps 0 has given up 4 */
    wait_change(3);
    assert_false(exists(4, 1));
    write_part(5, 1, "a:1,b:1", NULL);
    write_part(6, 1, "a:1,b:1", NULL);
    own_folder_destroy(k, clock_deadline_ns(60000));
    changes.n = 0;
    assert_int_equal(own_folder_create(&cfg, &k), ST_OK);
    own_folder_sweep(k, &word);
    for (int i = 0; i < 100; i++) /* more orders than own_folder records */
        own_folder_note_order(k, (struct checkpoint_id){checkpoint_term(1, 1), 5 + i});
    own_folder_begin(k);
    wait_change(2);
    assert_int_equal(known(k), 65);
    own_folder_destroy(k, clock_deadline_ns(60000));
}

/* A part that cannot be read at present is not lost. */
static void unreadable_part_is_not_forgotten(void **state)
{
    char id[FOLDER_ID_BYTES], away[300], folder_away[160];
    const struct checkpoint_id kept[] = {{checkpoint_term(1, 1), 2}, {checkpoint_term(1, 1), 1}};
    const struct checkpoint_keep word = {
        .kept = kept, .n_kept = 2, .generation = checkpoint_term(1, 1)};
    struct own_folder *k;
    assert_int_equal(checkpoint_folder_id(folder, id), ST_OK);
    const struct own_folder_config cfg = {folder, "b:1", id, 500, on_changed, NULL};
    changes.n = 0;
    write_part(1, 1, "a:1,b:1", NULL);
    write_part(2, 1, "a:1,b:1", NULL);
    snprintf(away, sizeof away, "%s-away", path_of(2, 1));
    snprintf(folder_away, sizeof folder_away, "%s-away", folder);
    assert_int_equal(rename(path_of(2, 1), away), 0);
    assert_int_equal(symlink(path_of(2, 1), path_of(2, 1)),
                     0); /* open fails, but not with ENOENT */
    assert_int_equal(own_folder_create(&cfg, &k), ST_OK);
    capture_begin();
    own_folder_begin(k);
    wait_change(1);
    assert_int_equal(known(k), -1);
    assert_int_equal(rename(away, path_of(2, 1)), 0);
    for (int i = 2; known(k) < 0; i++)
        wait_change(i);
    capture_end();
    assert_int_equal(known(k), 21);
    assert_int_equal(rename(path_of(2, 1), away), 0);
    assert_int_equal(symlink(path_of(2, 1), path_of(2, 1)), 0);
    tell(k, &word);
    assert_int_equal(known(k), 21);
    assert_int_equal(rename(away, path_of(2, 1)), 0);
    assert_int_equal(rename(folder, folder_away), 0); /* not mounted */
    tell(k, &word);
    assert_int_equal(known(k), 21);
    assert_int_equal(mkdir(folder, 0700), 0);
    tell(k, &word);
    assert_int_equal(known(k), 21);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rename(folder_away, folder), 0);
    assert_int_equal(unlink(path_of(2, 1)), 0);
    tell(k, &word);
    assert_int_equal(known(k), 1);
    own_folder_destroy(k, clock_deadline_ns(60000));
}

/* own_folder's thread reads the id again, so that the caller does not wait for the disk. */
static void replaced_folder_is_read_again(void **state)
{
    char id[FOLDER_ID_BYTES] = "", now[FOLDER_ID_BYTES], path[160];
    const struct own_folder_config cfg = {folder, "b:1", ELSEWHERE, 500, on_changed, NULL};
    struct own_folder *k;
    snprintf(path, sizeof path, "%s/folder-id", folder);
    assert_int_equal(durable_put(path, ELSEWHERE, strlen(ELSEWHERE)), ST_OK);
    changes.n = 0;
    write_part(1, 1, "a:1,b:1", NULL);
    assert_int_equal(own_folder_create(&cfg, &k), ST_OK);
    own_folder_begin(k);
    wait_change(1);
    assert_true(known(k) == 1 && own_folder_id(k, id));
    assert_string_equal(id, ELSEWHERE);
    assert_int_equal(unlink(path) + unlink(path_of(1, 1)), 0);
    write_part(3, 1, "a:1,b:1", NULL);
    assert_int_equal(mkfifo(path, 0600), 0); /* a disk that hangs until a write */
    own_folder_reread_id(k);
    assert_true(!own_folder_id(k, now) && known(k) == -1);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_false(own_folder_id(k, now));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(durable_put(path, home, strlen(home)), ST_OK); /* later looks find it */
    fputs(home, f);
    fclose(f);
    wait_change(3);
    assert_true(own_folder_id(k, now) && known(k) == 3);
    assert_string_equal(now, home);
    own_folder_destroy(k, clock_deadline_ns(60000));
}

/* If there are too many parts, each server that shares the folder reports its own parts first. */
static void own_parts_are_reported_first(void **state)
{
    enum { N_OTHERS = CONTROL_MAX_PARTS + 8 };
    const struct own_folder_config cfg = {folder, "b:1", "", 0, on_changed, NULL};
    struct own_folder *k;
    struct net_part *list;
    int n, n_own = 0;
    changes.n = 0;
    write_part(1, 1, "a:1,b:1", NULL);
    for (int i = 0; i < N_OTHERS; i++)
        write_part(4 + i, 0, "a:1,b:1", NULL);
    assert_int_equal(own_folder_create(&cfg, &k), ST_OK);
    own_folder_begin(k);
    wait_change(1);
    struct checkpoint_part part = write_part(2, 1, "a:1,b:1", NULL);
    own_folder_add(k, &part);
    assert_int_equal(own_folder_parts(k, &list, &n), 1);
    assert_int_equal(n, CONTROL_MAX_PARTS);
    assert_true(list[0].step == N_OTHERS + 3 && list[n - 3].step > 4);
    assert_true(list[n - 2].step == 2 && list[n - 1].step == 1);
    for (int i = 0; i < n; i++)
        n_own += list[i].server == 1;
    assert_int_equal(n_own, 2);
    free(list);
    own_folder_destroy(k, clock_deadline_ns(60000));
}

struct asked {
    enum status st[3]; /* status of the file at each step */
    int n;
};

static enum status has(void *ctx, const struct checkpoint_manifest *m, int file,
                       char why[MANIFEST_WHY_BYTES])
{
    struct asked *a = ctx;
    a->n++;
    assert_int_equal(file, 1);
    assert_string_equal(m->folder[1], ELSEWHERE);
    assert_int_equal(m->folder[0][0], 0);
    snprintf(why, MANIFEST_WHY_BYTES, "nobody has it");
    return a->st[m->step];
}

static int64_t found_step(struct asked *a)
{
    const struct checkpoint_elsewhere e = {has, a};
    struct checkpoint_restore *r = NULL;
    a->n = 0;
    enum status st = checkpoint_restore_find_with(folder, &e, &r);
    int64_t step = st == ST_OK ? checkpoint_restore_manifest(r)->step : -(int64_t)st;
    checkpoint_restore_close(r);
    return step;
}

/* Some files of a checkpoint lie in a server's own folder. The search asks for the files of the
 * newest checkpoint first. */
static void files_in_other_folders_are_found(void **state)
{
    struct checkpoint_restore *r;
    float value[N_ELEMS];
    int64_t version;
    char away[300];
    int shard[] = {0, 1};
    char own[2][FOLDER_ID_BYTES] = {"", ELSEWHERE};
    for (int64_t step = 1; step <= 2; step++) {
        struct safetensors_written files[2];
        for (int k = 0; k < 2; k++)
            files[k] = write_part(step, k, "a:1,b:1", NULL).file;
        const struct checkpoint_manifest m = {.step = step,
                                              .generation = checkpoint_term(1, 1),
                                              .job = job,
                                              .chunks = chunks,
                                              .n_files = 2,
                                              .files = files,
                                              .folder = own,
                                              .shard = shard};
        assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    }
    assert_int_equal(unlink(path_of(1, 1)), 0);
    snprintf(away, sizeof away, "%s-away", path_of(2, 1));
    assert_int_equal(rename(path_of(2, 1), away), 0);
    struct asked a = {.st = {0, ST_OK, ST_OK}};
    assert_int_equal(found_step(&a), 2);
    assert_int_equal(a.n, 1);
    a.st[2] = ST_BUSY; /* the search waits, and does not skip it */
    assert_int_equal(found_step(&a), -(int64_t)ST_BUSY);
    a.st[2] = ST_NOT_FOUND;
    capture_begin();
    int64_t step = found_step(&a);
    capture_end();
    assert_int_equal(step, 1);
    assert_non_null(strstr(capture_text, "2.json: not restored: nobody has it; trying the prev"));
    a.st[1] = ST_NOT_FOUND;
    assert_int_equal(CAPTURE(found_step(&a)), -(int64_t)ST_CORRUPT);
    assert_int_equal(checkpoint_restore_find(folder, &r), ST_OK); /* no other folder is asked */
    assert_true(checkpoint_restore_has_file(r, 0) && !checkpoint_restore_has_file(r, 1));
    assert_int_equal(checkpoint_restore_read(r, 0, N_ELEMS / 2, value, NULL, &version), ST_OK);
    assert_true(value[0] == 2 && value[N_ELEMS / 2 - 1] == 2);
    assert_int_equal(
        CAPTURE(checkpoint_restore_read(r, N_ELEMS / 2, N_ELEMS / 2, value, NULL, &version)),
        ST_NOT_FOUND);
    uint64_t *samples;
    size_t n_samples;
    assert_int_equal(checkpoint_restore_samples(r, &samples, &n_samples), ST_OK);
    assert_true(!samples && n_samples == 0);
    checkpoint_restore_close(r);
    assert_int_equal(rename(away, path_of(2, 1)), 0); /* copied here, so that one folder has all */
    assert_int_equal(found_step(&a), 2);
    assert_int_equal(a.n, 0);
    assert_int_equal(checkpoint_restore_find(folder, &r), ST_OK);
    assert_int_equal(checkpoint_restore_read(r, 0, N_ELEMS, value, NULL, &version), ST_OK);
    checkpoint_restore_close(r);
    flip_last(path_of(2, 1));
    assert_int_equal(CAPTURE(found_step(&a)), -(int64_t)ST_CORRUPT);
}

/* One server's own folder has the parts of several servers. */
static void parts_in_one_folder_are_combined(void **state)
{
    struct checkpoint_restore *r;
    float value[N_ELEMS];
    int64_t version;
    for (int64_t step = 1; step <= 3; step++)
        for (int k = 0; k < 2; k++)
            if (step < 3 || k == 1)
                write_part(step, k, "a:1,b:1", home);
    const struct checkpoint_id two = {checkpoint_term(1, 1), 2}, three = {checkpoint_term(1, 1), 3},
                               four = {checkpoint_term(1, 1), 4};
    assert_int_equal(checkpoint_restore_open_own(folder, two, &job, chunks, &r), ST_OK);
    assert_int_equal(checkpoint_restore_read(r, 0, N_ELEMS, value, NULL, &version), ST_OK);
    assert_true(value[0] == 2 && value[N_ELEMS - 1] == 2);
    checkpoint_restore_close(r);
    assert_int_equal(checkpoint_restore_open_own(folder, three, &job, chunks, &r), ST_OK);
    assert_true(!checkpoint_restore_holds(r, 0, N_ELEMS / 2));
    assert_true(checkpoint_restore_holds(r, N_ELEMS / 2, N_ELEMS / 2));
    checkpoint_restore_close(r);
    assert_int_equal(checkpoint_restore_open_own(folder, four, &job, chunks, &r), ST_NOT_FOUND);
}

int main(void)
{
    return RUN_EACH(setup, teardown, complete_parts_are_reported, sweep_spares_later_orders,
                    unreadable_part_is_not_forgotten, replaced_folder_is_read_again,
                    own_parts_are_reported_first, files_in_other_folders_are_found,
                    parts_in_one_folder_are_combined);
}
