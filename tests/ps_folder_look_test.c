/* tests/ps_folder_look_test.c - what a server reads in the checkpoint folder while ps 0 does not
 * answer (ps/coordinator/folder_look.h). A server with a store asks every few seconds, so it opens
 * a checkpoint only when ps 0 has ended in order. The checkpoint here is damaged, which each read
 * of it logs. */
#include "base/clock.h"
#include "base/lane.h"
#include "base/term.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "ps/coordinator/folder_look.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <pthread.h>
#include <stdbool.h>

#define PS0 "127.0.0.1:1"
enum { DEADLINE_MS = 60000 };
static char manifest[MANIFEST_NAME_BYTES];

static void write_to(const char *name, const char *text)
{
    char path[FOLDER_RIG_BYTES + MANIFEST_NAME_BYTES + 1];
    snprintf(path, sizeof path, "%s/%s", folder_rig, name);
    folder_rig_save(path, text, strlen(text));
}

struct answers {
    pthread_mutex_t lock;
    pthread_cond_t came;
    int n;
};

static void note_answer(void *ctx, const struct folder_look *look)
{
    struct answers *a = ctx;
    pthread_mutex_lock(&a->lock);
    a->n += !look->has_all_steps && !look->is_over && !look->is_left_out;
    pthread_cond_broadcast(&a->came);
    pthread_mutex_unlock(&a->lock);
}

/* Returns true if the server of this generation opens the checkpoint. */
static bool opens_checkpoint(uint64_t generation)
{
    struct lane *lane;
    struct answers a = {.n = 0};
    const int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    const struct folder_look question = {.folder = folder_rig,
                                         .address = "127.0.0.1:2",
                                         .generation = generation,
                                         .end = note_answer,
                                         .ctx = &a};
    pthread_mutex_init(&a.lock, NULL);
    clock_cond_init(&a.came);
    assert_int_equal(lane_create("reads the folder", &lane), ST_OK);
    capture_begin();
    folder_look_post(lane, &question);
    pthread_mutex_lock(&a.lock);
    while (a.n == 0 && clock_cond_wait(&a.came, &a.lock, deadline) == 0)
        ;
    pthread_mutex_unlock(&a.lock);
    capture_end();
    assert_true(lane_destroy(lane, deadline));
    assert_int_equal(a.n, 1);
    pthread_cond_destroy(&a.came);
    pthread_mutex_destroy(&a.lock);
    return strstr(capture_text, manifest) != NULL;
}

static void checkpoint_is_opened_if_ps0_has_ended(void **state)
{
    struct checkpoint_lease lease;
    char up[] = "up-" PS0;
    assert_int_equal(checkpoint_folder_claim(folder_rig, 7, PS0, 0, NULL, &lease), ST_OK);
    checkpoint_manifest_name((struct checkpoint_id){term_of(lease.epoch, 1), 5}, manifest);
    write_to(manifest, "damaged");
    assert_true(opens_checkpoint(1)); /* ps 0 has removed its mark */
    write_to(up, "");
    assert_false(opens_checkpoint(1));
    assert_true(opens_checkpoint(0)); /* asks one time */
}

int main(void)
{
    return RUN_GROUP(folder_rig_make, folder_rig_remove, checkpoint_is_opened_if_ps0_has_ended);
}
