/* tests/libweir_first_values_test.c - first values of an array and of a function, which the servers
 * request again after they have lost the parameters. */
#include "tests/libweir_rig.h"

struct source {
    struct weir *w;
    int n_calls, fails_at; /* fails_at: number of the call that fails; 0: none */
};

static int write_first(void *ctx, int param, float *values)
{
    struct source *s = ctx;
    assert_int_equal(param, 0);
    assert_error(s->w, weir_push(s->w, 0, values, 3), WEIR_E_INVALID,
                 "a function that writes first values");
    for (int i = 0; i < MODEL_ELEMS; i++)
        values[i] = (float)i;
    return ++s->n_calls == s->fails_at ? 3 : 0;
}

/* Makes two steps, and lets the servers lose the parameters before the third. */
static void lose_parameters(struct librig *r)
{
    librig_step(r, 0);
    librig_step(r, 1);
    assert_int_equal(weir_wait(r->w, 0, -1), WEIR_OK);
    tiny_stop(&r->tiny);
    tiny_forget(&r->tiny);
    tiny_start(&r->tiny);
    librig_step(r, 2); /* its values are here */
}

static void test_array_is_kept(void **state)
{
    struct librig r;
    librig_open(&r, NULL);
    lose_parameters(&r);
    librig_step(&r, 0);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    librig_assert_values(&r, 1);
    librig_close(&r);
}

static void test_function_is_called_again(void **state)
{
    struct librig r;
    struct source s = {0};
    librig_open(&r, NULL);
    s.w = r.w;
    assert_error(r.w, weir_param_first_values(r.w, 1, write_first, &s), WEIR_E_INVALID,
                 "no parameter 1");
    assert_error(r.w, weir_param_first_values(r.w, 0, NULL, &s), WEIR_E_INVALID, "is NULL");
    assert_int_equal(weir_param_first_values(r.w, 0, write_first, &s), WEIR_OK);
    lose_parameters(&r);
    assert_int_equal(s.n_calls, 1);
    assert_error(r.w, weir_param_first_values(r.w, 0, write_first, &s), WEIR_E_INVALID,
                 "before the first weir_next");
    librig_step(&r, 0);
    assert_int_equal(s.n_calls, 2);
    assert_int_equal(weir_wait(r.w, 0, -1), WEIR_OK);
    librig_assert_values(&r, 1);
    librig_close(&r);
}

/* A function that fails stops the handle, at the start or later, and the servers receive nothing.
 */
static void test_failing_function_stops(void **state)
{
    for (int fails_at = 1; fails_at <= 2; fails_at++) {
        struct librig r;
        struct source s = {.fails_at = fails_at};
        struct weir_step step;
        librig_open(&r, NULL);
        s.w = r.w;
        assert_int_equal(weir_param_first_values(r.w, 0, write_first, &s), WEIR_OK);
        if (fails_at == 2)
            lose_parameters(&r);
        int n_piece = tiny_get(&r.tiny, &r.tiny.n_piece);
        assert_error(r.w, weir_next(r.w, -1, &step), WEIR_E_INVALID,
                     "the function that writes its first values returned 3");
        assert_int_equal(tiny_get(&r.tiny, &r.tiny.n_piece), n_piece);
        librig_close(&r);
    }
}

int main(void)
{
    return RUN_TESTS(test_array_is_kept, test_function_is_called_again,
                     test_failing_function_stops);
}
