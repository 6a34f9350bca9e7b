/* tests/worker_timeline_test.c - the order of one training step of a worker with a card and a
 * server, in virtual time (timeline_rig.h), and the virtual time itself.
 *     worker_timeline_test                                      runs the tests
 *     worker_timeline_test FILE.svg [GB/s [US [TUNING]]]        draws the step, and prints its time
 * GB/s: speed of copies between card and host (25); US: time that the server needs for a chunk of
 * 1 MB (177); TUNING: as --gpu_tuning (auto). */
#include "kernels/tuning.h"
#include "net/wire/chunks.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/timeline_rig.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_GB_S = 25, DEFAULT_SERVER_US = 177 };
enum { CATCH_UP_US = 10 }; /* the worker's own time for a chunk; a copy of 1 MB needs 42 us */
static const double rounding_us = 1e-6;
static struct timeline_config config;
static struct timeline line;

static int run_line(void **state)
{
    timeline_run(&config, &line);
    return 0;
}

/* Returns the copy in this direction of the step that contains the byte at `host`. */
static const struct emulation_span *copy_of(enum emulation_engine engine, const void *host)
{
    const struct emulation_span *found = NULL;
    for (int i = 0; i < line.n_spans; i++) {
        const struct emulation_span *s = &line.spans[i];
        const char *first = s->host;
        if (s->engine == engine && first <= (const char *)host &&
            (const char *)host < first + s->bytes && s->queued_us >= line.begin_us &&
            s->queued_us < line.end_us) {
            assert_null(found);
            found = s;
        }
    }
    assert_non_null(found);
    return found;
}

static void test_copies_in_one_direction_share_an_engine(void **state)
{
    int n = 0;
    for (int i = 0; i < line.n_spans; i++)
        for (int k = 0; k < i; k++) {
            const struct emulation_span *a = &line.spans[i], *b = &line.spans[k];
            if (a->engine != b->engine || a->engine == ENGINE_KERNEL)
                continue;
            assert_true(a->begin_us >= b->end_us - rounding_us ||
                        b->begin_us >= a->end_us - rounding_us);
            n++;
        }
    assert_true(n > 0);
}

static void test_work_begins_after_it_is_queued(void **state)
{
    for (int i = 0; i < line.n_spans; i++)
        assert_true(line.spans[i].begin_us >= line.spans[i].queued_us - rounding_us);
}

static void test_chunks_are_pushed_after_their_download(void **state)
{
    for (int i = 0; i < line.n_chunks; i++) {
        const struct timeline_chunk *c = &line.chunk[i];
        const char *last = (const char *)c->gradient + c->bytes - 1;
        if (c->bytes < CHUNKS_DEFAULT_BYTES) /* its last bytes may be staged */
            continue;
        assert_true(copy_of(ENGINE_TO_HOST, c->gradient)->end_us <= c->push_us);
        assert_true(copy_of(ENGINE_TO_HOST, last)->end_us <= c->push_us);
    }
}

/* A chunk of the largest layer is pushed when it has arrived and the chunk before it has been
 * pushed: the worker does not wait for the next chunk. */
static void test_chunks_are_pushed_one_by_one(void **state)
{
    double pushed_us = 0;
    int n = 0;
    for (int i = 0; i < line.n_chunks; i++) {
        const struct timeline_chunk *c = &line.chunk[i];
        if (c->bytes < CHUNKS_DEFAULT_BYTES)
            continue;
        double end_us = copy_of(ENGINE_TO_HOST, c->gradient)->end_us;
        if (n++ > 0)
            assert_true(c->push_us <= fmax(end_us, pushed_us) + CATCH_UP_US);
        pushed_us = c->push_us;
    }
    assert_true(n > 1);
    assert_true(line.chunk[0].push_us > pushed_us);
}

/* Returns the last launch of the kernel in the step. */
static const struct emulation_span *launch_of(const char *kernel)
{
    const struct emulation_span *found = NULL;
    for (int i = 0; i < line.n_spans; i++)
        if (strcmp(line.spans[i].name, kernel) == 0 && line.spans[i].queued_us >= line.begin_us &&
            line.spans[i].queued_us < line.end_us)
            found = &line.spans[i];
    assert_non_null(found);
    return found;
}

/* Returns the end of the copies of gradients of the largest layer to the host. */
static double large_end_us(void)
{
    double end_us = 0;
    for (int i = 0; i < line.n_chunks; i++)
        if (line.chunk[i].bytes == CHUNKS_DEFAULT_BYTES)
            end_us = fmax(end_us, copy_of(ENGINE_TO_HOST, line.chunk[i].gradient)->end_us);
    return end_us;
}

static void test_lower_layers_compute_during_downloads(void **state)
{
    const struct emulation_span *product = launch_of("cudnnConvolutionBackwardFilter");
    assert_true(product->queued_us < large_end_us());
    assert_true(product->begin_us < large_end_us());
    assert_true(launch_of("weir_conv_first_sum")->queued_us < large_end_us());
}

/* A chunk is copied to the card when its version has arrived and the worker has pushed all chunks:
 * the copy does not wait for the next version. */
static void test_uploads_do_not_wait_for_the_next_chunk(void **state)
{
    double pushed_us = 0;
    int n = 0;
    for (int i = 0; i < line.n_chunks; i++)
        pushed_us = fmax(pushed_us, line.chunk[i].push_us);
    for (int i = 0; i + 1 < line.n_chunks; i++) {
        const struct timeline_chunk *c = &line.chunk[i], *next = c + 1;
        if (c->bytes < CHUNKS_DEFAULT_BYTES || c->copied_us < pushed_us)
            continue;
        double begin_us = copy_of(ENGINE_TO_CARD, c->value)->begin_us;
        assert_true(begin_us >= c->copied_us && begin_us < next->copied_us);
        n++;
    }
    assert_true(n > 1);
}

static void test_only_the_card_checks_gradients(void **state)
{
    assert_int_equal(line.n_host_checks, 0);
    assert_non_null(launch_of("weir_finite"));
}

/* ---- with TUNING_UPDATES ---- */

static struct timeline plain; /* the same step without this tuning */

static int run_ahead(void **state)
{
    plain = line;
    config.tuning |= TUNING_UPDATES;
    timeline_run(&config, &line);
    return 0;
}

static void test_card_loads_no_versions(void **state)
{
    for (int i = 0; i < line.n_spans; i++)
        for (int k = 0; k < line.n_chunks; k++) {
            const struct emulation_span *s = &line.spans[i];
            const char *value = line.chunk[k].value;
            assert_false(s->engine == ENGINE_TO_CARD && s->queued_us >= line.begin_us &&
                         (const char *)s->host < value + line.chunk[k].bytes &&
                         value < (const char *)s->host + s->bytes);
        }
    assert_true(line.n_digests > 0);
}

/* Returns the time at which the last version of the step before has arrived. */
static double last_answer_us(void)
{
    double last_us = 0;
    for (int i = 0; i < line.n_chunks; i++)
        last_us = fmax(last_us, line.before[i].copied_us);
    return last_us;
}

/* The card has computed the step's gradients before the last version of the step before it. */
static void test_card_does_not_wait_for_versions(void **state)
{
    assert_true(launch_of("cublasGemmEx")->end_us < last_answer_us());
    assert_true(launch_of("weir_update<KIND>")->queued_us < last_answer_us());
    assert_true(line.end_us - line.begin_us < plain.end_us - plain.begin_us);
}

/* No gradient is copied or pushed before the servers have answered all chunks of the step before
 * it (I4). */
static void test_gradients_are_pushed_behind_all_answers(void **state)
{
    for (int i = 0; i < line.n_chunks; i++) {
        assert_true(line.chunk[i].push_us >= last_answer_us());
        if (line.chunk[i].bytes >= CHUNKS_DEFAULT_BYTES)
            assert_true(copy_of(ENGINE_TO_HOST, line.chunk[i].gradient)->queued_us >=
                        last_answer_us());
    }
}

static int draw(int argc, char **argv)
{
    char title[160];
    if (argc > 2)
        config.copy_bytes_per_us = atof(argv[2]) * 1000;
    if (argc > 3)
        config.server_us = atof(argv[3]);
    timeline_run(&config, &line);
    snprintf(
        title, sizeof title,
        "deep_mnist, batch 512, one server: %.2f ms a step (estimated: copies of %.0f GB/s, %.0f us for 1 MB on the server)",
        (line.end_us - line.begin_us) / 1000, config.copy_bytes_per_us / 1000, config.server_us);
    timeline_draw(&line, title, argv[1]);
    puts(title);
    return 0;
}

int main(int argc, char **argv)
{
    int status, n_bad;
    const char *bad;
    config = (struct timeline_config){.copy_bytes_per_us = DEFAULT_GB_S * 1000,
                                      .server_us = DEFAULT_SERVER_US};
    config.so = emulated_open(WEIR_TEST_DIR, &config.backend, &status);
    if (config.so == NULL)
        return status;
    if (tuning_parse(argc > 4 ? argv[4] : "auto", &config.tuning, &bad, &n_bad) != ST_OK) {
        fprintf(stderr, "worker_timeline_test: '%.*s' is no tuning\n", n_bad, bad);
        return 2;
    }
    if (argc > 1)
        return draw(argc, argv);
    status =
        RUN_GROUP(run_line, NULL, test_copies_in_one_direction_share_an_engine,
                  test_work_begins_after_it_is_queued, test_chunks_are_pushed_after_their_download,
                  test_chunks_are_pushed_one_by_one, test_lower_layers_compute_during_downloads,
                  test_uploads_do_not_wait_for_the_next_chunk, test_only_the_card_checks_gradients);
    return status + RUN_GROUP(run_ahead, NULL, test_copies_in_one_direction_share_an_engine,
                              test_work_begins_after_it_is_queued,
                              test_chunks_are_pushed_after_their_download,
                              test_only_the_card_checks_gradients, test_card_loads_no_versions,
                              test_card_does_not_wait_for_versions,
                              test_gradients_are_pushed_behind_all_answers);
}
