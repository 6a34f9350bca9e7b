/* tests/checkpoint_lineage_test.c - the restores before a checkpoint: which older checkpoints are
 * in its line of descent, and how its manifest records them. */
#include "checkpoint/lineage.h"
#include "checkpoint/manifest.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct checkpoint_id id(uint64_t generation, int64_t step)
{
    return (struct checkpoint_id){generation, step};
}

static bool has(const struct checkpoint_lineage *l, uint64_t generation, int64_t step)
{
    return checkpoint_lineage_has(l, id(generation, step), id(99, 1000));
}

static void generations_from_memory_continue(void **state)
{
    const struct checkpoint_lineage l = checkpoint_lineage_begin(3);
    assert_true(has(&l, 3, 10));
    assert_true(has(&l, 98, 10));
    assert_true(has(&l, 99, 999));
    assert_false(has(&l, 99, 1000)); /* the checkpoint itself */
    assert_false(has(&l, 99, 1001));
    assert_false(has(&l, 2, 10)); /* an earlier job of this folder */
    assert_false(checkpoint_lineage_has(&l, id(0, 1), id(99, 1000)));
}

static void abandoned_checkpoints_do_not_count(void **state)
{
    struct checkpoint_lineage l = checkpoint_lineage_begin(1);
    l = checkpoint_lineage_resume(&l, 5, id(4, 40));
    l = checkpoint_lineage_resume(&l, 9, id(7, 70));
    assert_true(has(&l, 9, 71));
    assert_true(has(&l, 7, 70));
    assert_false(has(&l, 7, 71));
    assert_false(has(&l, 8, 60)); /* a newer generation, though of an older step */
    assert_true(has(&l, 7, 69));
    assert_true(has(&l, 5, 41));
    assert_true(has(&l, 4, 40));
    assert_false(has(&l, 4, 41));
    assert_true(has(&l, 3, 30));
    l = checkpoint_lineage_resume(&l, 12, id(4, 30)); /* back, behind both */
    assert_false(has(&l, 7, 70));
    assert_false(has(&l, 4, 40));
    assert_true(has(&l, 4, 30));
}

/* --restore of an older checkpoint than the one that an earlier restore used: that checkpoint has
 * the older list. */
static void list_is_that_of_the_restored_checkpoint(void **state)
{
    const struct checkpoint_lineage first = checkpoint_lineage_begin(1);
    const struct checkpoint_lineage second = checkpoint_lineage_resume(&first, 5, id(4, 40));
    const struct checkpoint_lineage third = checkpoint_lineage_resume(&first, 9, id(3, 30));
    assert_true(has(&second, 4, 40));
    assert_false(has(&third, 4, 40));
    assert_false(has(&third, 6, 60));
    assert_true(has(&third, 3, 30));
}

static void full_or_missing_list_shows_nothing(void **state)
{
    struct checkpoint_lineage l = checkpoint_lineage_begin(1);
    const struct checkpoint_lineage none = {.n = 0};
    for (uint64_t i = 1; i <= 17; i++)
        l = checkpoint_lineage_resume(&l, 4 * i, id(4 * i - 1, 10 * (int64_t)i));
    assert_int_equal(l.n, LINEAGE_MOST);
    assert_true(checkpoint_lineage_is_valid(&l, 70));
    assert_true(has(&l, 8, 21));  /* since 8 is the oldest entry: the second restore */
    assert_false(has(&l, 7, 20)); /* the entry before it, from 4 on, was dropped */
    assert_false(has(&none, 50, 10));
}

static void invalid_lists_are_refused(void **state)
{
    const struct checkpoint_lineage first = checkpoint_lineage_begin(4);
    struct checkpoint_lineage l = checkpoint_lineage_resume(&first, 9, id(4, 8));
    assert_true(checkpoint_lineage_is_valid(&l, 9));
    assert_false(checkpoint_lineage_is_valid(&l, 8));
    l.entry[0].resumed.generation = 3; /* before the job began */
    assert_false(checkpoint_lineage_is_valid(&l, 9));
    l.entry[0].resumed.generation = 9;
    assert_false(checkpoint_lineage_is_valid(&l, 9));
    l = first;
    l.entry[0].since = 0;
    assert_false(checkpoint_lineage_is_valid(&l, 9));
}

/* Writes a manifest with this line, and reads it. */
static enum status through(const struct checkpoint_lineage *l, struct checkpoint_lineage *out)
{
    const struct net_param param = {.name = "w", .shape = {1, {4}}};
    struct safetensors_written file = {0};
    struct net_job job = {.n_workers = 1, .aggregate = 1, .train_steps = 100};
    struct checkpoint_manifest *read = NULL;
    struct chunks *chunks;
    char folder[FOLDER_RIG_BYTES], path[96], why[MANIFEST_WHY_BYTES];
    folder_rig_new(folder);
    snprintf(path, sizeof path, "%s/weir-9.json", folder);
    optim_defaults(OPTIM_SGD, &job.optim);
    assert_int_equal(chunks_create(&param, 1, 8192, &chunks), ST_OK);
    const struct checkpoint_manifest m = {.step = 9,
                                          .generation = 9,
                                          .job = job,
                                          .chunks = chunks,
                                          .n_files = 1,
                                          .files = &file,
                                          .lineage = *l};
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
    enum status st = checkpoint_manifest_read(path, &read, why);
    if (st == ST_OK)
        *out = read->lineage;
    checkpoint_manifest_free(read);
    chunks_destroy(chunks);
    unlink(path);
    rmdir(folder);
    return st;
}

static void manifest_records_the_list(void **state)
{
    const struct checkpoint_lineage first = checkpoint_lineage_begin(2);
    struct checkpoint_lineage l = checkpoint_lineage_resume(&first, 9, id(4, 8)), read;
    assert_int_equal(through(&l, &read), ST_OK);
    assert_int_equal(read.n, 2);
    assert_memory_equal(read.entry, l.entry, 2 * sizeof *l.entry);
    l.entry[1].since = 5; /* after the checkpoint that the first entry resumed from */
    assert_int_equal(through(&l, &read), ST_CORRUPT);
    l.n = 0; /* a manifest of an older version */
    assert_int_equal(through(&l, &read), ST_OK);
    assert_int_equal(read.n, 0);
}

int main(void)
{
    return RUN_TESTS(generations_from_memory_continue, abandoned_checkpoints_do_not_count,
                     list_is_that_of_the_restored_checkpoint, full_or_missing_list_shows_nothing,
                     invalid_lists_are_refused, manifest_records_the_list);
}
