/* tests/ps_update_test.c - one pass makes a version. Its bits are those of separate steps over the
 * whole chunk: decode, weigh and add, compensate, optimizer or average, encode, checksum. Covers
 * every optimizer, dtype and mode of a contribution, chunk lengths around the pass' block, payloads
 * in spans cut anywhere, one thread and several. Each array is a separate allocation, so that a
 * sanitizer detects an access past its end. */
#include "base/digest.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/vector/compensate.h"
#include "kernels/vector/vector.h"
#include "ps/store/update.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPANS = 40, N_RULES = OPTIM_N_KINDS + 4, MAX_TERMS = 4 };

struct spans {
    struct net_span span[MAX_SPANS];
    struct net_payload payload;
};

/* One case, and its inputs. */
struct input {
    struct net_param param;
    struct optim_config optim;
    int n_slots, has_sum, has_base;
    int n_before, n_behind; /* terms directly before and behind the one that arrived */
    enum dtype push, wire;
    size_t n;
    float *old, *sum, *base, *slots; /* slots: before the update */
    uint8_t *bytes;                  /* bytes of the contribution that arrived */
    uint8_t *term[MAX_TERMS];        /* bytes of all terms, in their order */
};

/* The outputs of a case. */
struct output {
    float *value, *slots;
    uint8_t *wire; /* NULL in fp32 */
    uint32_t crc;
};

static float *numbers(size_t n, uint64_t stream)
{
    float *out = malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = rng_uniform(rng_key(stream, RNG_TEST, n), i) - 0.5f;
    return out;
}

/* Sets a rule: 0 to OPTIM_N_KINDS - 1 are the optimizers; then rmsprop with momentum, sgd with
 * decay, the average, and adam with clipped gradients. */
static void set_rule(struct input *in, int rule)
{
    static const enum optim_kind more[] = {OPTIM_RMSPROP, OPTIM_SGD, OPTIM_ADAM, OPTIM_ADAM};
    optim_defaults(rule < OPTIM_N_KINDS ? (enum optim_kind)rule : more[rule - OPTIM_N_KINDS],
                   &in->optim);
    if (rule == OPTIM_N_KINDS)
        in->optim.momentum = 0.8f;
    if (rule == OPTIM_N_KINDS + 1)
        in->optim.weight_decay = 0.01f;
    if (rule == OPTIM_N_KINDS + 3)
        in->optim.clip_value = 0.1f;
    in->param = (struct net_param){.name = "w"};
    in->n_slots = optim_n_slots(&in->optim);
    if (rule == OPTIM_N_KINDS + 2) {
        in->param.rule = PARAM_AVERAGE;
        in->param.keep = 0.9f;
        in->n_slots = 0;
    }
    if (dtype_block(in->wire) > 1)
        in->n_slots++; /* the rounding residual of the wire form */
}

static void input_make(struct input *in, size_t n)
{
    in->n = n;
    in->old = numbers(n, 1);
    in->sum = numbers(n, 2);
    in->base = numbers(n, 3);
    in->slots = numbers(3 * n, 4);
    for (size_t i = 0; i < 3 * n; i++)
        in->slots[i] += 0.6f; /* the slots are positive, since optimizers compute their roots */
    for (int k = 0; k < in->n_before + 1 + in->n_behind; k++) {
        float *values = numbers(n, 5 + (uint64_t)k);
        in->term[k] = malloc(dtype_bytes(in->push, n));
        dtype_encode(in->push, in->term[k], values, n);
        free(values);
    }
    in->bytes = in->term[in->n_before];
}

static void input_free(struct input *in)
{
    free(in->old);
    free(in->sum);
    free(in->base);
    free(in->slots);
    for (int k = 0; k < MAX_TERMS; k++)
        free(in->term[k]);
}

static void output_make(struct output *out, const struct input *in)
{
    *out = (struct output){.value = malloc(in->n * sizeof(float))};
    if (in->wire != DTYPE_F32)
        out->wire = malloc(dtype_bytes(in->wire, in->n));
    if (in->n_slots) {
        size_t bytes = (size_t)in->n_slots * in->n * sizeof(float);
        out->slots = malloc(bytes);
        memcpy(out->slots, in->slots, bytes);
    }
}

static void output_free(struct output *out)
{
    free(out->value);
    free(out->wire);
    free(out->slots);
}

static struct thread_pool *threads; /* NULL: none */
static const float weights[MAX_TERMS] = {30.5f, 12, 7.25f, 64}, scale = 1 / 94.5f, lambda = 0.4f;
static const uint64_t step = 7;

static void one_after_the_other(const struct input *in, struct output *out)
{
    float *g = malloc(in->n * sizeof *g), *last = malloc(in->n * sizeof *last);
    if (in->has_sum)
        memcpy(g, in->sum, in->n * sizeof *g);
    for (int k = 0; k < in->n_before + 1 + in->n_behind; k++) {
        dtype_decode(in->push, last, in->term[k], in->n);
        if (in->has_sum || k > 0)
            vector_add_scaled(g, last, weights[k], in->n);
        else
            vector_scale(g, last, weights[k], in->n);
    }
    if (in->has_base)
        optim_compensate(lambda, in->n, in->old, in->base, g);
    if (in->param.rule == PARAM_AVERAGE)
        optim_average(in->param.keep, in->n, g, scale, in->old, out->value);
    else
        optim_apply(&in->optim, step, in->n, g, scale, in->old, out->slots, out->value);
    if (out->wire && dtype_block(in->wire) > 1) {
        float *residual = out->slots + (size_t)(in->n_slots - 1) * in->n;
        for (size_t i = 0; i < in->n; i++)
            g[i] = out->value[i] - in->old[i];
        dtype_encode_residual(in->wire, out->wire, g, residual, in->n);
        dtype_decode(in->wire, g, out->wire, in->n);
        for (size_t i = 0; i < in->n; i++)
            out->value[i] = in->old[i] + g[i];
    } else if (out->wire) {
        dtype_encode(in->wire, out->wire, out->value, in->n);
    }
    const void *sent = out->wire ? (const void *)out->wire : out->value;
    out->crc = digest_crc32c(0, sent, dtype_bytes(in->wire, in->n));
    free(g);
    free(last);
}

/* Cuts the bytes at random places into separate allocations, some of which are empty. The first one
 * begins with foreign bytes. */
static void cut(struct spans *s, const uint8_t *bytes, size_t n, uint64_t seed)
{
    uint64_t key = rng_key(seed, RNG_TEST, n), draw = 0;
    size_t at = 0;
    int i = 0;
    s->payload = (struct net_payload){s->span, (size_t)rng_below(key, draw++, 4), n};
    for (; at < n || i == 0; i++) {
        static const size_t most[] = {1, 3, 9, 4096, 9000, 20000};
        size_t skip = i == 0 ? s->payload.skip : 0;
        size_t longest = most[rng_below(key, draw++, 6)];
        size_t len = (size_t)rng_below(key, draw++, longest + 1);
        if (len > n - at || i == MAX_SPANS - 1)
            len = n - at;
        uint8_t *block = malloc(skip + len + 1);
        memcpy(block + skip, bytes + at, len);
        s->span[i] = (struct net_span){block, skip + len};
        at += len;
    }
    for (; i < MAX_SPANS; i++)
        s->span[i] = (struct net_span){NULL, 0};
}

static void cut_free(struct spans *s)
{
    for (int i = 0; i < MAX_SPANS; i++)
        free((void *)(uintptr_t)s->span[i].data);
}

static void in_one_pass(const struct input *in, struct output *out, uint64_t seed)
{
    struct spans s;
    struct ps_term terms[MAX_TERMS];
    size_t bytes = dtype_bytes(in->push, in->n);
    cut(&s, in->bytes, bytes, seed);
    for (int k = 0; k < MAX_TERMS; k++) {
        terms[k] = (struct ps_term){.weight = weights[k], .span = {in->term[k], bytes}};
        terms[k].payload = (struct net_payload){&terms[k].span, 0, bytes};
    }
    terms[in->n_before].payload = s.payload;
    struct ps_update u = {
        .sums = 1,
        .threads = threads,
        .param = &in->param,
        .n = in->n,
        .sum = in->has_sum ? in->sum : NULL,
        .terms = terms,
        .n_terms = in->n_before + 1 + in->n_behind,
        .arrived = in->n_before,
        .dtype = in->push,
        .scale = scale,
        .old = in->old,
        .slots = out->slots ? in->slots : NULL,
        .n_slots = in->n_slots,
        .compensation = lambda,
        .base = in->has_base ? in->base : NULL,
        .value = out->value,
        .new_slots = out->slots,
        .wire_dtype = in->wire,
        .wire = out->wire,
    };
    if (in->param.rule != PARAM_AVERAGE)
        optim_begin(&in->optim, step, &u.step);
    assert_true(ps_update_run(&u, &out->crc) == SIZE_MAX);
    cut_free(&s);
}

static void check(struct input *in, size_t n, int rule, uint64_t seed)
{
    struct output expect, got;
    set_rule(in, rule);
    input_make(in, n);
    output_make(&expect, in);
    output_make(&got, in);
    one_after_the_other(in, &expect);
    in_one_pass(in, &got, seed);
    int same = memcmp(got.value, expect.value, n * sizeof(float)) == 0 && got.crc == expect.crc;
    if (got.slots)
        same &= memcmp(got.slots, expect.slots, (size_t)in->n_slots * n * sizeof(float)) == 0;
    if (got.wire)
        same &= memcmp(got.wire, expect.wire, dtype_bytes(in->wire, n)) == 0;
    if (!same)
        fail_msg("rule %d, %zu elements, %s in, %s out, sum %d, base %d, cut %u: other bits", rule,
                 n, dtype_name(in->push), dtype_name(in->wire), in->has_sum, in->has_base,
                 (unsigned)seed);
    output_free(&expect);
    output_free(&got);
    input_free(in);
}

static const size_t lengths[] = {1, 7, 2047, 2048, 2049, 4095, 4096, 4097, 6161};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static void every_rule_matches_its_steps(void **state)
{
    uint64_t seed = 1;
    for (int rule = 0; rule < N_RULES; rule++)
        for (int mode = 0; mode < 4; mode++)
            for (size_t i = 0; i < N_LENGTHS; i++) {
                struct input in = {.has_sum = mode & 1, .has_base = mode >> 1};
                check(&in, lengths[i], rule, seed++);
            }
}

static void every_dtype_matches_its_steps(void **state)
{
    static const int rules[] = {OPTIM_SGD, OPTIM_ADAM, N_RULES - 2};
    uint64_t seed = 1000;
    for (int d = 0; d < DTYPE_N_KINDS * DTYPE_N_KINDS; d++)
        for (int k = 0; k < 6; k++)
            for (size_t i = 0; i < N_LENGTHS; i++) {
                struct input in = {.has_sum = k & 1,
                                   .push = (enum dtype)(d / DTYPE_N_KINDS),
                                   .wire = (enum dtype)(d % DTYPE_N_KINDS)};
                if (k / 2 == 2 &&
                    dtype_block(in.wire) > 1) /* averages are not sent in these formats */
                    continue;
                check(&in, lengths[i], rules[k / 2], seed++);
            }
}

/* Cuts a payload in many ways. */
static void cuts_of_the_payload_do_not_change_the_bits(void **state)
{
    for (uint64_t seed = 2000; seed < 2600; seed++) {
        struct input in = {.has_sum = (int)(seed & 1), .push = (enum dtype)(seed % DTYPE_N_KINDS)};
        check(&in, 4100, OPTIM_MOMENTUM, seed);
    }
}

/* Several terms are not in the sum yet. The last one to arrive is at any place among them. */
static void several_terms_have_the_same_bits(void **state)
{
    uint64_t seed = 3000;
    for (int rule = 0; rule < N_RULES; rule++)
        for (int k = 0; k < 2 * MAX_TERMS * DTYPE_N_KINDS; k++)
            for (int before = 0; before < MAX_TERMS; before++) {
                struct input in = {.has_sum = k & 1,
                                   .push = (enum dtype)(k / 2 / MAX_TERMS),
                                   .n_before = before,
                                   .n_behind = k / 2 % MAX_TERMS};
                if (in.n_before + in.n_behind < MAX_TERMS)
                    check(&in, lengths[seed % N_LENGTHS], rule, seed);
                seed++;
            }
}

/* Tests lengths around the parts of threads, with a bad element in any part. */
static void number_of_threads_does_not_change_the_bits(void **state)
{
    static const size_t many[] = {32768, 32769, 70001, 262144};
    uint64_t seed = 4000;
    assert_int_equal(thread_pool_create(4, &threads), ST_OK);
    for (int rule = 0; rule < N_RULES; rule++)
        for (size_t i = 0; i < 4; i++) {
            struct input in = {.has_sum = (int)(seed & 1), .n_before = (int)(seed % 3)};
            check(&in, many[i], rule, seed++);
        }
    for (int d = 0; d < DTYPE_N_KINDS * DTYPE_N_KINDS; d++)
        for (size_t i = 0; i < 3; i++) {
            struct input in = {.push = (enum dtype)(d / DTYPE_N_KINDS),
                               .wire = (enum dtype)(d % DTYPE_N_KINDS)};
            check(&in, many[i], OPTIM_ADAM, seed++);
        }
    thread_pool_destroy(threads);
    threads = NULL;
}

/* One thread and several report the same first bad element. */
static void first_bad_element_is_reported(void **state)
{
    enum { N = 200000 };
    struct input in = {.n = N};
    for (int pooled = 0; pooled < 2; pooled++) {
        assert_int_equal(thread_pool_create(pooled ? 4 : 1, &threads), ST_OK);
        set_rule(&in, OPTIM_SGD);
        input_make(&in, N);
        for (size_t bad = N; bad-- > 0; bad -= bad % 50021) {
            struct output out;
            struct net_span span = {in.bytes, N * sizeof(float)};
            struct ps_term term = {.weight = 1, .payload = {&span, 0, span.n}};
            output_make(&out, &in);
            ((float *)in.bytes)[bad] = INFINITY;
            struct ps_update u = {.param = &in.param,
                                  .threads = threads,
                                  .n = N,
                                  .terms = &term,
                                  .n_terms = 1,
                                  .scale = 1,
                                  .old = in.old,
                                  .value = out.value};
            optim_begin(&in.optim, step, &u.step);
            assert_int_equal(ps_update_run(&u, &out.crc), bad);
            assert_int_equal(u.not_finite, bad);
            output_free(&out);
        }
        input_free(&in);
        thread_pool_destroy(threads);
    }
    threads = NULL;
}

/* ThreadSanitizer finds nothing in tests with a single thread. */
#ifdef __SANITIZE_THREAD__
enum { ALL = 0 };
#else
enum { ALL = 1 };
#endif

int main(void)
{
    if (ALL)
        RUN_TESTS(every_rule_matches_its_steps, every_dtype_matches_its_steps,
                  cuts_of_the_payload_do_not_change_the_bits,
                  several_terms_have_the_same_bits); /* the next call adds their failures */
    return RUN_TESTS(number_of_threads_does_not_change_the_bits, first_bad_element_is_reported);
}
