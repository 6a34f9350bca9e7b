/* tests/net_fragments_test.c - the chunks that a step exchanges: each chunk has one turn in
 * `fragments` steps, and the last step exchanges all chunks. Fragments have about equal bytes. */
#include "net/wire/fragments.h"
#include "tests/check.h"
#include <stdlib.h>

enum { LAYERS = 8, CHUNK_BYTES = 16384 };

/* Makes a table of layers, each with a matrix of several chunks and a vector. */
static struct chunks *make_table(void)
{
    static const char *const names[2 * LAYERS] = {"w0", "b0", "w1", "b1", "w2", "b2", "w3", "b3",
                                                  "w4", "b4", "w5", "b5", "w6", "b6", "w7", "b7"};
    struct net_param params[2 * LAYERS];
    struct chunks *chunks;
    for (int i = 0; i < 2 * LAYERS; i++) {
        int matrix = i % 2 == 0;
        params[i] = (struct net_param){.name = names[i],
                                       .shape = {matrix ? 2 : 1, {matrix ? 100 + i : 3000, 90}}};
    }
    assert_int_equal(chunks_create(params, 2 * LAYERS, CHUNK_BYTES, &chunks), ST_OK);
    return chunks;
}

static void each_chunk_has_its_turn(void **state)
{
    struct chunks *chunks = make_table();
    for (int n = 2; n <= chunks->n_chunks; n++) {
        const struct net_job job = {.fragments = n, .train_steps = 3 * n + 2};
        int *fragment, first = 0;
        assert_int_equal(fragments_create(&job, chunks, &fragment), ST_OK);
        for (int i = 0; i < chunks->n_chunks; i++) {
            int64_t turn = -1;
            first += fragments_turn(&job, fragment, i, 0);
            for (int64_t step = 0; step + 1 < job.train_steps; step++) {
                if (!fragments_turn(&job, fragment, i, step))
                    continue;
                assert_true(turn < 0 ? step < n : step == turn + n);
                turn = step;
            }
            assert_true(turn >= 2 * n);
            assert_true(fragments_turn(&job, fragment, i, job.train_steps - 1));
            assert_true(
                fragments_turn(&job, fragment, i, INT64_MAX)); /* possible in an invalid frame */
        }
        assert_in_range(first, 1, chunks->n_chunks - n + 1);
        free(fragment);
    }
    chunks_destroy(chunks);
}

static void bytes_are_about_equal(void **state)
{
    struct chunks *chunks = make_table();
    for (int n = 2; n <= 8; n++) {
        const struct net_job job = {.fragments = n, .train_steps = 100};
        int64_t elems[8] = {0}, most = 0, least = INT64_MAX;
        int *fragment;
        assert_int_equal(fragments_create(&job, chunks, &fragment), ST_OK);
        for (int i = 0; i < chunks->n_chunks; i++)
            elems[fragment[i]] += chunks->chunks[i].n_elems;
        for (int k = 0; k < n; k++) {
            most = elems[k] > most ? elems[k] : most;
            least = elems[k] < least ? elems[k] : least;
        }
        assert_true((most - least) * (int64_t)sizeof(float) <= CHUNK_BYTES);
        free(fragment);
    }
    chunks_destroy(chunks);
}

static void turns_between_steps_are_found(void **state)
{
    const struct net_job job = {.fragments = 4, .train_steps = 30};
    const int fragment[] = {2};
    for (int64_t from = 0; from <= 30; from++)
        for (int64_t to = from; to <= 30; to++) {
            int want = 0;
            for (int64_t step = from; step < to; step++)
                want |= step % 4 == 2 || step == 29;
            assert_int_equal(fragments_turn_between(&job, fragment, 0, from, to), want);
        }
    assert_false(fragments_turn_between(&job, fragment, 0, 9, 3));
}

/* A single fragment has its turn in each step. */
static void one_fragment_has_every_turn(void **state)
{
    struct chunks *chunks = make_table();
    const int none[] = {0, 1};
    for (int k = 0; k < 2; k++) {
        const struct net_job job = {.fragments = none[k], .train_steps = 30};
        int *fragment;
        assert_int_equal(fragments_create(&job, chunks, &fragment), ST_OK);
        assert_null(fragment);
        assert_true(fragments_turn(&job, fragment, 3, 7));
        assert_true(fragments_turn_between(&job, fragment, 3, 7, 8));
        assert_false(fragments_turn_between(&job, fragment, 3, 7, 7));
    }
    chunks_destroy(chunks);
}

int main(void)
{
    return RUN_TESTS(each_chunk_has_its_turn, bytes_are_about_equal, turns_between_steps_are_found,
                     one_fragment_has_every_turn);
}
