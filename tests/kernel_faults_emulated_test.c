/* tests/kernel_faults_emulated_test.c - tests the CUDA backend when a call to CUDA, cuDNN or cuBLAS
 * fails. A piece of work runs again and again, and each time another one of its calls fails. The
 * backend must log the name of the call and, if the call belongs to one layer, the layer. There are
 * a few calls that the backend can do without: if one of them fails, the results must be those of
 * the undisturbed work. Afterwards the work must have the same results again, and no memory of a
 * card may be missing. WEIR_TEST_TUNING adds the calls of these tunings (tests/kernel_tuning.h);
 * with WEIR_TEST_STRIDE=N only every N-th call of a piece of work fails. If WEIR_TEST_FAULTS is
 * set, a run in which no call failed is an error, for example because no work makes the named call.
 * Arguments: the folder of the emulation's library; the name of the failing calls, omitted or
 * "all": all calls; and a pattern of the tests to run. Needs the emulation (tests/emulation), which
 * counts the calls. */
#include "kernels/backend.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/emulated.h"
#include "tests/kernel_faults.h"
#include "tests/kernel_tuning.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int stride = 1; /* step between failing calls */
static int only_one_name;
static long long n_all; /* calls that failed, in all tests */
static void (*fault_set)(long long number);
static const char *(*fault_name)(void);
static size_t (*bytes_taken)(void);

/* Calls that the backend can do without. If one fails, the backend copies through staging memory,
 * uses another algorithm, uses the proposed algorithm instead of a timed one, adds a bias by a
 * kernel of its own, or launches kernel by kernel. */
static const char *const dispensable[] = {"cudnnGetConvolutionForwardWorkspaceSize",
                                          "cudnnGetConvolutionBackwardFilterWorkspaceSize",
                                          "cudnnGetConvolutionBackwardDataWorkspaceSize",
                                          "an algorithm",
                                          "an epilogue",
                                          "an engine",
                                          "cudnnFindConvolutionForwardAlgorithmEx",
                                          "cudnnFindConvolutionBackwardFilterAlgorithmEx",
                                          "cudnnFindConvolutionBackwardDataAlgorithmEx",
                                          "a captured launch",
                                          "a captured event or copy",
                                          "cudaGraphGetNodes",
                                          "cudaHostRegister",
                                          "cudaStreamBeginCapture",
                                          "cudaStreamEndCapture",
                                          "cudaGraphInstantiate"};

/* Calls whose names are not in the log, and the texts that are there instead. */
static const struct {
    const char *call, *said;
} said_as[] = {
    {"a launch", " kernel: "},
    {"cudaMalloc", "memory"}, /* the purpose of the memory, and its size */
    {"cudaMalloc of a broken card", "cudaMalloc: "},
    {"a variant pack", "cudnnBackendFinalize: "},
    {"cudaGetDeviceCount", "no device"},
};

static const char *const cleaning[2] = {"cudaSetDevice", "cudaStreamSynchronize"};

static int is_dispensable(const char *name)
{
    for (size_t k = 0; k < sizeof dispensable / sizeof *dispensable; k++)
        if (strcmp(name, dispensable[k]) == 0)
            return 1;
    return 0;
}

/* Returns true if the results equal those of the reference job. */
static int same(const struct fault_job *j, const struct fault_job *want)
{
    return j->n_results == want->n_results &&
           memcmp(j->result, want->result, want->n_results * sizeof *want->result) == 0;
}

/* Compares like `same`, but a bias' gradient may be rounded differently, because another sum adds
 * its terms. */
static int near(const struct fault_job *j, const struct fault_job *want)
{
    size_t i = 0;
    for (int k = 0; k < want->n_notes; k++) {
        double largest = 0, worst = 0;
        for (; i < want->end[k]; i++) {
            double error = fabs((double)j->result[i] - (double)want->result[i]);
            largest = fmax(largest, fabs((double)want->result[i]));
            worst = error <= worst ? worst : error; /* keeps a NaN */
        }
        if (!(worst <= j->tolerance * largest))
            return 0;
    }
    return j->n_results == want->n_results;
}

/* Returns true if the log names the layer, or a relu or pool after the layer that is computed with
 * it. */
static int is_layer_said(const struct fault_job *j)
{
    char layer[128];
    for (int i = j->layer; i < j->r->n_layers && i <= j->layer + 2; i++) {
        snprintf(layer, sizeof layer, "layer '%s': ", j->r->layers[i].name);
        if (strstr(capture_text, layer) != NULL)
            return 1;
    }
    return 0;
}

/* Returns true for a call that belongs to no layer, or to a graph of several layers. */
static int is_of_many_layers(const char *name)
{
    return strcmp(name, "cudaSetDevice") == 0 ||
           ((test_tuning() & TUNING_CAPTURE) != 0 &&
            (strcmp(name, "cudaGraphLaunch") == 0 || strcmp(name, "cudaStreamSynchronize") == 0));
}

/* Returns true if the log names the call, and the layer. */
static int is_said(const struct fault_job *j, const char *name)
{
    char plain[128];
    const char *said = plain;
    snprintf(plain, sizeof plain, "%s: ", name);
    for (size_t k = 0; k < sizeof said_as / sizeof *said_as; k++)
        if (strcmp(name, said_as[k].call) == 0)
            said = said_as[k].said;
    return strstr(capture_text, said) != NULL &&
           (j->layer < 0 || is_of_many_layers(name) || is_layer_said(j));
}

/* Checks work in which one call failed. silent: failures that were not logged so far, for each name
 * in `cleaning`. */
static void check_one(const struct fault_job *j, const struct fault_job *want, enum status st,
                      const char *name, int silent[2])
{
    int said = is_dispensable(name) || is_said(j, name);
    if (st == ST_OK && !is_dispensable(name) && !j->may_go_on)
        fail_msg("call %lld, %s, fails and nobody says so", j->fault, name);
    int equal = strcmp(name, "an epilogue") == 0 ? near(j, want) : same(j, want);
    if (st == ST_OK && !equal)
        fail_msg("call %lld, %s, fails, and the results are others", j->fault, name);
    if (!said && (st != ST_OK || !j->may_go_on))
        fail_msg("call %lld, %s, fails, and of that no line names it and its layer:\n%s", j->fault,
                 name, capture_text);
    for (int k = 0; k < 2 && !said; k++)
        said = strcmp(name, cleaning[k]) == 0 && silent[k]++ < j->n_silent[k];
    if (!said)
        fail_msg("call %lld, %s, fails and nobody says so", j->fault, name);
}

/* Repeats the work; each time another one of its calls fails. least: minimum number of calls. */
static void check_work(void (*build)(struct reference *r), enum status (*work)(struct fault_job *j),
                       int least)
{
    struct fault_job *want = fault_job_create(build), *again;
    assert_int_equal(work(want), ST_OK);
    fault_job_end(want);
    long long n_failed = 0;
    int silent[2] = {0, 0};
    for (long long number = 1;; number += stride) {
        struct fault_job *j = fault_job_create(build);
        j->fault = number;
        fault_set(number);
        enum status st = CAPTURE(work(j));
        const char *name = fault_name();
        fault_set(0);
        if (name != NULL)
            check_one(j, want, st, name, silent);
        fault_job_destroy(j);
        if (name == NULL) {
            assert_int_equal(st, ST_OK);
            break;
        }
        n_failed++;
        if (bytes_taken() != 0)
            fail_msg("call %lld, %s, fails, and %zu bytes of a card are lost", number, name,
                     bytes_taken());
    }
    again = fault_job_create(build);
    assert_int_equal(work(again), ST_OK);
    assert_true(same(again, want));
    fault_job_destroy(again);
    fault_job_destroy(want);
    assert_int_equal(bytes_taken(), 0);
    assert_true(only_one_name || n_failed * stride >= least);
    n_all += n_failed;
}

static void test_steps_from_outside(void **state)
{
    check_work(fault_build_all, fault_work_outside, 400);
}

static void test_bf16(void **state)
{
    check_work(fault_build_all, fault_work_bf16, 200);
}

static void test_tf32(void **state)
{
    check_work(fault_build_words, fault_work_tf32, 100);
}

static void test_items(void **state)
{
    check_work(fault_build_words, fault_work_items, 100);
}

static void test_reserved(void **state)
{
    check_work(fault_build_words, fault_work_reserved, 50);
}

static void test_copies(void **state)
{
    check_work(fault_build_words, fault_work_copies, 20);
}

static void test_steps_inside(void **state)
{
    check_work(fault_build_all, fault_work_inside, 200);
}

static void test_updates(void **state)
{
    check_work(fault_build_all, fault_work_updates, 200);
}

static void test_split(void **state)
{
    check_work(fault_build_all, fault_work_split, 300);
}

static void test_floats(void **state)
{
    check_work(fault_build_all, fault_work_floats, 300);
}

static void test_group(void **state)
{
    check_work(fault_build_words, fault_work_group, 200);
}

static void test_group_on_the_host(void **state)
{
    check_work(fault_build_words, fault_work_group_host, 200);
}

static void test_cards(void **state)
{
    if (!WEIR_TEST_NCCL)
        skip_because("this build has no NCCL");
    check_work(fault_build_words, fault_work_cards, 200);
}

static void test_trial_of_nccl(void **state)
{
    if (!WEIR_TEST_NCCL)
        skip_because("this build has no NCCL");
    check_work(fault_build_words, fault_work_trial, 60);
}

static void test_ends(void **state)
{
    check_work(fault_build_words, fault_work_ends, 15);
}

int main(int argc, char **argv)
{
    const char *slowness = getenv("WEIR_TEST_SLOWNESS"), *every = getenv("WEIR_TEST_STRIDE");
    if (every != NULL && atoi(every) > 0)
        stride = atoi(every);
    if (slowness != NULL && atoi(slowness) > 1)
        stride = 11; /* sanitizers test some of them */
    /* the heap reuses the memory of emulated cards, without a page fault for each page */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    int status;
    const struct backend *backend;
    void *so = emulated_open(argc > 1 ? argv[1] : WEIR_TEST_DIR, &backend, &status);
    if (so == NULL)
        return status;
    if (!emulated_look_up(so, "emulation_fault_set", &fault_set) ||
        !emulated_look_up(so, "emulation_fault_name", &fault_name) ||
        !emulated_look_up(so, "emulation_bytes_taken", &bytes_taken))
        return 1;
    fault_begin(backend, fault_set);
    if (argc > 2 && strcmp(argv[2], "all") != 0) {
        void (*only)(const char *name);
        void *f = dlsym(so, "emulation_fault_only");
        memcpy(&only, &f, sizeof only);
        only(argv[2]);
        only_one_name = 1;
    }
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    int n_wrong =
        RUN_TESTS(test_trial_of_nccl, test_ends, test_reserved, test_items, test_tf32, test_bf16,
                  test_floats, test_steps_from_outside, test_steps_inside, test_updates,
                  test_copies, test_split, test_group, test_group_on_the_host, test_cards);
    if (n_wrong == 0 && n_all == 0 && getenv("WEIR_TEST_FAULTS") != NULL) {
        fprintf(stderr, "no call failed: nothing was tested\n");
        return 1;
    }
    return n_wrong;
}
