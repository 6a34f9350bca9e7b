/* tests/checkpoint_best_test.c - tests the file `best` of a checkpoint folder, valid, damaged or
 * unreadable: its contents, and its effect on sweeps, which delete old checkpoints. The checkpoints
 * are manifests without files. */
#include "checkpoint/best.h"
#include "checkpoint/folder.h"
#include "files/durable.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct net_param model[] = {{.name = "w", .shape = {1, {8}}}};
static char folder[FOLDER_RIG_BYTES], best_path[96];

static int setup(void **state)
{
    folder_rig_new(folder);
    snprintf(best_path, sizeof best_path, "%s/best", folder);
    return 0;
}

static int teardown(void **state)
{
    char path[512];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            remove(path);
    }
    if (d)
        closedir(d);
    return rmdir(folder);
}

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void save(uint64_t generation, int64_t step)
{
    struct safetensors_written file = {100, 1};
    struct net_job job = {.n_workers = 1, .train_steps = 100, .seed = 3};
    struct chunks *chunks;
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.total_steps = 100;
    assert_int_equal(chunks_create(model, 1, 4096, &chunks), ST_OK);
    const struct checkpoint_manifest m = {.step = step,
                                          .generation = generation,
                                          .job = job,
                                          .chunks = chunks,
                                          .n_files = 1,
                                          .files = &file};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    chunks_destroy(chunks);
}

static void sweep(int keep)
{
    assert_int_equal(
        CAPTURE(checkpoint_retention_sweep(folder, &(struct checkpoint_sweep){.keep = keep})),
        ST_OK);
}

static const struct checkpoint_best best_of_10 = {
    {((uint64_t)1 << 24) + 1, 10}, 0.125, 0.75, {600, 0xfedcba98, 7}};

static void save_three(void)
{
    for (int64_t step = 10; step <= 30; step += 10)
        save(checkpoint_term(1, 1), step);
    assert_int_equal(checkpoint_best_write(folder, &best_of_10), ST_OK);
}

static void best_checkpoint_survives_sweeps(void **state)
{
    struct checkpoint_best got;
    assert_int_equal(checkpoint_best_read(folder, &got), ST_NOT_FOUND);
    save_three();
    assert_int_equal(checkpoint_best_read(folder, &got), ST_OK);
    assert_int_equal(checkpoint_names_compare(got.id, best_of_10.id), 0);
    assert_true(got.loss == 0.125 && got.accuracy == 0.75);
    assert_true(job_validation_same(&got.data, &best_of_10.data));
    sweep(1);
    assert_true(exists("weir-1.1-10.json") && exists("weir-1.1-30.json"));
    assert_false(exists("weir-1.1-20.json"));
    save(checkpoint_term(2, 1), 40); /* a later owner of the folder writes this checkpoint */
    sweep(1);
    assert_true(exists("weir-1.1-10.json") && exists("weir-2.1-40.json"));
    assert_false(exists("weir-1.1-30.json"));
}

/* If --restore names another folder, or a manifest there, `best` belongs to another training. */
static void restore_from_elsewhere_ignores_best(void **state)
{
    char other[] = "/tmp/weir_other_XXXXXX", manifest[96], there[96];
    struct checkpoint_best got = {.loss = 1};
    save_three();
    assert_non_null(mkdtemp(other));
    snprintf(manifest, sizeof manifest, "%s/weir-1.1-10.json", folder);
    snprintf(there, sizeof there, "%s/weir-1.1-10.json", other);
    assert_int_equal(durable_put(there, "{}", 2), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_best_find(folder, other, &got)), ST_NOT_FOUND);
    assert_non_null(
        strstr(capture_text, "the best evaluation that this file records is not compared"));
    assert_int_equal(CAPTURE(checkpoint_best_find(folder, there, &got)), ST_NOT_FOUND);
    assert_true(got.loss == 1);
    assert_int_equal(CAPTURE(checkpoint_best_find(folder, folder, &got)), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_best_find(folder, manifest, &got)), ST_OK);
    assert_string_equal(capture_text, "");
    assert_true(got.loss == 0.125);
    assert_int_equal(unlink(there) | rmdir(other), 0);
}

/* A damaged `best` protects no checkpoint from sweeps, so the disk does not fill up; a log line
 * reports the damage. */
static void damaged_best_keeps_no_checkpoint(void **state)
{
    struct checkpoint_best got = {.loss = 1};
    save_three();
    assert_int_equal(durable_put(best_path, "{", 1), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_best_read(folder, &got)), ST_CORRUPT);
    assert_int_equal(CAPTURE(checkpoint_best_find(folder, NULL, &got)), ST_NOT_FOUND);
    assert_true(got.loss == 1);
    sweep(1);
    assert_non_null(strstr(capture_text, "best: this file names no checkpoint"));
    assert_false(exists("weir-1.1-10.json") || exists("weir-1.1-20.json"));
    assert_true(exists("weir-1.1-30.json") && exists("best"));
    assert_int_equal(unlink(best_path), 0);
    assert_int_equal(mkdir(best_path, 0700), 0);
    assert_int_equal(CAPTURE(checkpoint_best_read(folder, &got)), ST_CORRUPT);
}

/* Figures of `best` become part of a status, whose receiver would refuse invalid ones. */
static void invalid_figures_are_refused(void **state)
{
    static const char *const accuracies[] = {"5.0", "-0.5", "\"0.5\"", "true"};
    struct checkpoint_best got;
    char text[160];
    for (int i = 0; i < 4; i++) {
        snprintf(
            text, sizeof text,
            "{\"manifest\":\"weir-1.1-10.json\",\"step\":10,\"validation_loss\":0.5,\"validation_accuracy\":%s}",
            accuracies[i]);
        assert_int_equal(durable_put(best_path, text, strlen(text)), ST_OK);
        assert_int_equal(CAPTURE(checkpoint_best_read(folder, &got)), ST_CORRUPT);
    }
}

/* An unreadable `best` may name any checkpoint, so a sweep deletes none. */
static void unreadable_best_keeps_all_checkpoints(void **state)
{
    struct checkpoint_best got;
    save_three();
    assert_int_equal(unlink(best_path), 0);
    assert_int_equal(symlink("best", best_path), 0); /* a link to itself: ELOOP, also for root */
    assert_int_equal(CAPTURE(checkpoint_best_find(folder, NULL, &got)), ST_IO);
    assert_non_null(strstr(capture_text, "this file cannot be read, and the next evaluation"));
    sweep(1);
    assert_non_null(strstr(capture_text, "best: cannot be read"));
    assert_true(exists("weir-1.1-10.json") && exists("weir-1.1-20.json"));
}

/* Older versions wrote no description of the data. */
static void best_without_data_is_read(void **state)
{
    static const char text[] =
        "{\"manifest\":\"weir-1.1-10.json\",\"step\":10,\"validation_loss\":0.5,\"validation_accuracy\":0.25}";
    struct checkpoint_best got;
    assert_int_equal(durable_put(best_path, text, sizeof text - 1), ST_OK);
    assert_int_equal(checkpoint_best_read(folder, &got), ST_OK);
    assert_true(got.id.step == 10 && got.loss == 0.5 && got.data.n == 0);
}

int main(void)
{
    return RUN_EACH(setup, teardown, best_checkpoint_survives_sweeps,
                    restore_from_elsewhere_ignores_best, damaged_best_keeps_no_checkpoint,
                    invalid_figures_are_refused, unreadable_best_keeps_all_checkpoints,
                    best_without_data_is_read);
}
