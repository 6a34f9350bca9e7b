/* tests/worker_self_test_test.c - compares the step of --self_test with the double-precision
 * reference, and checks its tolerance and its reaction to processes that crash or hang.
 * tests/python/test_self_test.py checks the output about cards. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"
#include "worker/self_test/self_test_child.h"
#include "worker/self_test/self_test_net.h"
#include <math.h>
#include <signal.h>

static const struct backend *cpu;

/* Adds a layer of the model that reads the max pool. */
static void add_columns(struct reference *r, const struct self_test_net *t)
{
    struct layer l = t->model->layers[r->n_layers];
    for (int k = 0; k < l.n_params; k++) {
        int64_t elems = shape_elems(&t->model->params[l.param[k]].shape);
        assert_int_equal(l.param[k], r->n_params);
        assert_int_equal(reference_param_add(r, elems), ST_OK);
    }
    assert_int_equal(l.input[0], 3);
    assert_int_equal(l.out.dim[1], 1);
    assert_int_equal(reference_layer_add(r, &l), ST_OK);
}

static struct reference *reference_of(const struct self_test_net *t)
{
    struct reference *r = reference_create(1, 12, 12, SELF_TEST_BATCH, SELF_TEST_SEED);
    reference_conv(r, 8, 5, 1, -1);
    reference_layer(r, LAYER_RELU);
    reference_layer(r, LAYER_BATCH_NORM);
    reference_pool(r, LAYER_MAX_POOL, 2, 2, 0);
    reference_conv(r, 8, 3, 1, -1);
    reference_join(r, LAYER_ADD, 2, (int[]){4, 3});
    reference_join(r, LAYER_CONCAT, 2, (int[]){5, 3});
    reference_conv(r, 16, 3, 2, -1);
    reference_layer(r, LAYER_RELU);
    reference_pool(r, LAYER_AVG_POOL, 3, 1, -1);
    reference_layer(r, LAYER_FLATTEN);
    reference_dense(r, 32);
    reference_layer(r, LAYER_RELU);
    reference_dropout(r, 0.25f);
    add_columns(r, t);
    reference_layer(r, LAYER_FACTORIZATION_MACHINE);
    reference_from(r, 14);
    reference_layer(r, LAYER_SUM);
    reference_join(r, LAYER_MULTIPLY, 2, (int[]){16, 16});
    reference_join(r, LAYER_CONCAT, 3, (int[]){13, 15, 17});
    reference_dense(r, 10);
    reference_layer(r, LAYER_SOFTMAX_XENT);
    assert_int_equal(r->n_layers, t->model->n_layers);
    assert_int_equal(r->n_params, t->model->n_params);
    for (int i = 0; i < r->n_layers; i++) {
        assert_int_equal(r->layers[i].kind, t->model->layers[i].kind);
        r->layers[i].epsilon = t->model->layers[i].epsilon;
    }
    for (int k = 0; k < r->n_params; k++) {
        assert_int_equal(r->param_elems[k], shape_elems(&t->model->params[k].shape));
        for (int64_t i = 0; i < r->param_elems[k]; i++)
            r->param[k][i] = (double)t->params[k][i];
    }
    reference_forward(r, t->pixels, t->labels, t->position, SELF_TEST_BATCH, 1);
    reference_backward(r);
    return r;
}

/* Returns the least distance of a unit from relu's kink, relative to the layer's root mean
 * square. */
static double nearest_to_kink(const struct reference *r, int relu)
{
    const double *x = r->y[relu - 1];
    int64_t n = SELF_TEST_BATCH * shape_elems(&r->layers[relu].in);
    double squares = 0, least = INFINITY;
    for (int64_t k = 0; k < n; k++) {
        squares += x[k] * x[k];
        least = fmin(least, fabs(x[k]));
    }
    return least / sqrt(squares / (double)n);
}

/* Returns the least relative distance of the two largest values in a window of a max pool. Equal
 * values do not count: they are zeros of relu, so either may be chosen. */
static double nearest_in_window(const struct reference *r, int pool)
{
    const struct layer *l = &r->layers[pool];
    int64_t planes = SELF_TEST_BATCH * l->in.dim[0], h = l->in.dim[1], w = l->in.dim[2];
    double least = INFINITY, squares = 0;
    for (int64_t k = 0; k < planes * (h / 2) * (w / 2); k++) {
        int64_t plane = k / (h / 2 * (w / 2)), y = k / (w / 2) % (h / 2), x = k % (w / 2);
        const double *at = r->y[pool - 1] + plane * h * w + y * 2 * w + x * 2;
        double v[4] = {at[0], at[1], at[w], at[w + 1]}, first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < 4; i++) {
            second = fmax(second, fmin(first, v[i]));
            first = fmax(first, v[i]);
        }
        if (first > second)
            least = fmin(least, first - second);
        squares += first * first;
    }
    return least / sqrt(squares / (double)(planes * (h / 2) * (w / 2)));
}

static void test_against_the_reference(void **state)
{
    struct self_test_net t;
    struct self_test_values want, got;
    struct self_test_difference d;
    assert_int_equal(self_test_net_create(&t), ST_OK);
    assert_int_equal(self_test_net_run(&t, cpu, 0, &got), ST_OK);
    struct reference *r = reference_of(&t);
    for (int i = 0; i < r->n_layers; i++) {
        if (r->layers[i].kind == LAYER_RELU)
            assert_true(nearest_to_kink(r, i) > 1e-4);
        if (r->layers[i].kind == LAYER_MAX_POOL)
            assert_true(nearest_in_window(r, i) > 1e-5);
    }
    assert_int_equal(self_test_net_reference(&t, &want), ST_OK);
    assert_float_equal(want.loss, r->loss, 1e-6);
    for (int k = 0; k < r->n_params; k++)
        for (int64_t i = 0; i < r->param_elems[k]; i++)
            assert_true(want.flat[t.params[k] - t.flat + i] == (float)r->grad[k][i]);
    self_test_net_compare(&t, &want, &got, &d);
    print_message("off by %.2g at the %s\n", d.worst, d.name);
    assert_false(d.differs);
    assert_true(got.memory_bytes > 0 && got.step_ms > 0);
    reference_destroy(r);
    self_test_net_values_free(&want);
    self_test_net_values_free(&got);
    self_test_net_destroy(&t);
}

static void test_what_differs_is_named(void **state)
{
    struct self_test_net t;
    struct self_test_values want, got;
    struct self_test_difference d;
    assert_int_equal(self_test_net_create(&t), ST_OK);
    assert_int_equal(self_test_net_run(&t, cpu, 0, &want), ST_OK);
    assert_int_equal(self_test_net_run(&t, cpu, 0, &got), ST_OK);
    self_test_net_compare(&t, &want, &got, &d);
    assert_true(d.worst == 0 && !d.differs);
    got.loss *= 1.001f;
    self_test_net_compare(&t, &want, &got, &d);
    assert_true(d.differs);
    assert_string_equal(d.name, "loss");
    got.loss = want.loss;
    for (int k = 0; k < t.model->n_params; k++) {
        float *g = &got.flat[t.params[k] - t.flat], saved = *g;
        char name[96];
        snprintf(name, sizeof name, "gradient of %s", t.model->params[k].name);
        for (int i = 0; i < 2; i++) {
            *g = i ? NAN : saved + 0.1f;
            self_test_net_compare(&t, &want, &got, &d);
            assert_true(d.differs);
            assert_string_equal(d.name, name);
        }
        *g = saved;
    }
    self_test_net_values_free(&want);
    self_test_net_values_free(&got);
    self_test_net_destroy(&t);
}

static void child(const void *arg, void *result)
{
    const char *what = arg;
    strcpy(result, what);
    if (*what == 'c')
        raise(SIGKILL);
    if (*what == 'e')
        _exit(3);
    while (*what == 'h')
        pause();
}

static enum status run_child(const char *what, char *result, char *why)
{
    return self_test_child_run(child, what, result, 16, *what == 'h' ? 1 : 60, why);
}

static void test_processes(void **state)
{
    char result[16] = "", why[SELF_TEST_WHY_SIZE];
    assert_int_equal(run_child("works", result, why), ST_OK);
    assert_string_equal(result, "works");
    strcpy(result, "as it was");
    assert_int_equal(run_child("crashes", result, why), ST_INTERNAL);
    assert_string_equal(why, "the driver or a library crashed (signal 9, Killed)");
    assert_int_equal(run_child("ends", result, why), ST_INTERNAL);
    assert_string_equal(why, "the process that tested it ended (status 3)");
    assert_int_equal(run_child("hangs", result, why), ST_DEADLINE);
    assert_string_equal(why, "it does not answer within 1 s");
    assert_string_equal(result, "as it was");
}

int main(void)
{
    if (backend_open("cpu", WEIR_TEST_BACKEND_DIR, &cpu) != ST_OK)
        return 1;
    return RUN_TESTS(test_processes, test_against_the_reference, test_what_differs_is_named);
}
