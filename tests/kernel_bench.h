/* tests/kernel_bench.h - nets for the tests of backends, each with its double-precision reference,
 * a plan of a backend and a batch, and the comparison of plan and reference. Tolerance for float32:
 * the largest error of a tensor is at most reference_tolerance() times its largest value, plus
 * 1e-6. Threads: one at a time. Errors: fail the running test. */
#ifndef TESTS_KERNEL_BENCH_H
#define TESTS_KERNEL_BENCH_H
#include "kernels/parts.h"
#include "tests/kernel_reference.h"

enum { BENCH_BATCH = 8, BENCH_SEED = 77 };

struct net {
    const char *name;
    int c, h, w;
    void (*build)(struct reference *r);
};

/* Chains first, then graphs; BENCH_SQUARED ends with squared errors. */
extern const struct net bench_nets[];
extern int bench_n_nets;
/* Nets without relus and max pools: rounding may change the sign before a relu, and the index of a
 * maximum. */
enum { BENCH_N_SMOOTH = 2 };
extern const struct net bench_smooth[BENCH_N_SMOOTH];
/* Numbers of nets, and of chains. */
enum { BENCH_DEEP = 2, BENCH_NORM = 8, BENCH_N_CHAINS = 11, BENCH_SQUARED = 26 };

struct bench {
    struct reference *r;
    struct plan *plan;
    float *params[REFERENCE_MAX_PARAMS], *grads[REFERENCE_MAX_PARAMS];
    struct parts_config parts; /* parts of the plans of bench_config */
    int64_t pixels;
    uint8_t *images, labels[BENCH_BATCH];
    const uint8_t *image[BENCH_BATCH];
    uint64_t position[BENCH_BATCH];
};

extern const struct backend *backend; /* the tested backend */
extern double bench_tolerance_f32;    /* tolerance of the backend */
extern double bench_tolerance; /* tolerance of the running test; bench_tolerance_f32, unless the
                                  test sets it */

/* Opens the backend: argv[1], or WEIR_TEST_BACKEND, or "cpu"; its folder: argv[2], or the build's.
 * Returns the return value of main if there is no such backend, otherwise 0. */
int bench_open(int argc, char **argv);

struct bench *bench_create(const struct net *net);
void bench_destroy(struct bench *b);
/* Sets the parameters of the plan and of the reference; each `round` has other values. */
void bench_params(struct bench *b, int round);
/* Returns a config; it has parts if the backend supports them. */
struct backend_plan_config bench_config(const struct bench *b, int n_threads, int inference_only);
enum status bench_plan(struct bench *b, int n_threads, int inference_only);
void bench_forward(struct bench *b, int first, int n, int train);
/* Calls backward for all layers, and waits for their gradients, in parts if the plan has them. */
void bench_backward(struct bench *b);
/* Waits for the parts of a layer's gradients, which must all be finite. */
void bench_wait_parts(struct bench *b, int layer);

/* Results of a step, beside its gradients. */
struct bench_outcome {
    float loss;
    int n_correct;
};
/* Runs a step like a worker: loads the parameters of a layer just before its forward, and waits for
 * its gradients when all backwards are queued: in parts if the plan has them. In an odd round it
 * waits for whole layers, one layer later, as a worker with several devices does. bench_step() uses
 * the samples that set_input has set, bench_step_of() the first n samples of the bench. */
struct bench_outcome bench_step(struct bench *b, int round);
struct bench_outcome bench_step_of(struct bench *b, int round, int n);
/* Fails unless the outcome and the gradients of b have the same bits as those of a. */
void bench_check_same(const struct net *net, const struct bench *a, struct bench_outcome of_a,
                      const struct bench *b, struct bench_outcome of_b);

/* Compares n values with the reference; a failure names the net, `what` and index. */
void bench_compare(const struct net *net, const char *what, int index, const float *got,
                   const double *want, int64_t n);
void bench_compare_outputs(const struct net *net, struct bench *b);
/* Compares one pass with the reference: outputs, loss, and if `train` is set the gradients. */
void bench_check_pass(const struct net *net, struct bench *b, int n, int train);
void bench_check_net(const struct net *net, int n_threads);

#endif
