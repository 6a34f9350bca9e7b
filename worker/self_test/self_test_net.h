/* worker/self_test/self_test_net.h - the small training step that tests a device: a network with
 * the layers of an image classifier, with sums and with products of outputs, fixed parameters and
 * images, forward and backward in fp32. The results are compared with those in plain double
 * precision (kernels/reference.h).
 *
 * Tolerance: the largest error of a gradient is at most 5e-5 of the gradient's largest value, plus
 * 1e-6; the tolerance of the loss is the same. A float rounds by 2^-24. The longest sum has 8 x 144
 * summands, whose independent roundings add up to sqrt(1152) = 34 times 2^-24. About ten such sums
 * precede the first layer's gradients: 34 x 10 x 2^-24 = 2e-5. Products in TF32 or bf16 exceed the
 * tolerance, which is intended: the test requests fp32.
 * Owns:    the network and its data.
 * Threads: one at a time. Errors: ST_NOMEM, the backend's; logged. */
#ifndef WORKER_SELF_TEST_SELF_TEST_NET_H
#define WORKER_SELF_TEST_SELF_TEST_NET_H
#include "worker/model/model.h"

/* If this seed is used, each input of relu is so far from 0 that rounding cannot change its sign
 * (tests/worker_self_test_test.c). */
enum { SELF_TEST_BATCH = 8, SELF_TEST_SEED = 21 };
#define SELF_TEST_TOLERANCE 5e-5
#define SELF_TEST_FLOOR 1e-6

struct self_test_net {
    struct model *model;
    int64_t n_elems; /* number of values of all parameters */
    float *flat;     /* values of all parameters */
    const float **params;
    uint8_t *pixels, *labels;
    const uint8_t **images;
    uint64_t *position;
};

/* Results of a device. */
struct self_test_values {
    float loss;
    float *flat; /* gradients, in the order of the parameters */
    double step_ms;
    size_t memory_bytes; /* bytes of memory of the plan */
};

struct self_test_difference {
    double worst;  /* largest error, divided by (the tensor's largest value plus 0.02) */
    char name[96]; /* tensor with that error: "loss", or a parameter's name */
    int differs;   /* the error is beyond the tolerance */
};

enum status self_test_net_create(struct self_test_net *out);
void self_test_net_destroy(struct self_test_net *t);
/* Runs several steps. *out receives the values of the last step, and the time of the fastest
 * step. */
enum status self_test_net_run(const struct self_test_net *t, const struct backend *backend,
                              int device, struct self_test_values *out);
/* Computes the values of the last step by the mathematical definitions, in double precision. */
enum status self_test_net_reference(const struct self_test_net *t, struct self_test_values *out);
void self_test_net_values_free(struct self_test_values *v);
void self_test_net_compare(const struct self_test_net *t, const struct self_test_values *want,
                           const struct self_test_values *got, struct self_test_difference *out);

#endif
