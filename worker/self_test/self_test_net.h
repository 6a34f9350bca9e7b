/* worker/self_test/self_test_net.h - the small training step by which a device is tested: a network
 * with the kinds of layers of an image classifier, fixed parameters and images, forward and
 * backward in fp32, and the comparison of what a backend made of it with the same in plain double
 * precision (kernels/reference.h).
 *
 * Tolerance: the largest error of a gradient is at most 5e-5 of its largest value, plus 1e-6; the
 * loss likewise. A float rounds by 2^-24; the longest sum has 8 x 144 terms, whose roundings, being
 * independent, add up to sqrt(1152) = 34 of these; about ten such sums lie behind the first layer's
 * gradients: 34 x 10 x 2^-24 = 2e-5. Products in TF32 or bf16 fail it, as they should: here fp32
 * is asked for.
 * Owns:    the network and its data. Threads: one at a time.
 * Errors:  ST_NOMEM, the backend's; logged. */
#ifndef WORKER_SELF_TEST_SELF_TEST_NET_H
#define WORKER_SELF_TEST_SELF_TEST_NET_H
#include "worker/model/model.h"

/* The seed is one with which no unit comes so near to relu's kink that rounding could tip it over
 * (tests/worker_self_test_test.c). */
enum { SELF_TEST_BATCH = 8, SELF_TEST_SEED = 21 };
#define SELF_TEST_TOLERANCE 5e-5
#define SELF_TEST_FLOOR 1e-6

struct self_test_net {
    struct model *model;
    int64_t n_elems; /* of all parameters */
    float *flat;     /* their values */
    const float **params;
    uint8_t *pixels, *labels;
    const uint8_t **images;
    uint64_t *position;
};

/* What a device made of it. */
struct self_test_values {
    float loss;
    float *flat; /* gradients, as the parameters lie */
    double step_ms;
    size_t memory_bytes; /* that the plan took */
};

struct self_test_difference {
    double worst;  /* of all, as a part of the tensor's largest value (and of 0.02 more) */
    char name[96]; /* of that tensor: "loss", or a parameter's */
    int differs;   /* beyond the tolerance */
};

enum status self_test_net_create(struct self_test_net *out);
void self_test_net_destroy(struct self_test_net *t);
/* Several steps; the values of the last, the time of the fastest. */
enum status self_test_net_run(const struct self_test_net *t, const struct backend *backend,
                              int device, struct self_test_values *out);
/* The last step's values by the definitions, in double precision. */
enum status self_test_net_reference(const struct self_test_net *t, struct self_test_values *out);
void self_test_net_values_free(struct self_test_values *v);
void self_test_net_compare(const struct self_test_net *t, const struct self_test_values *want,
                           const struct self_test_values *got, struct self_test_difference *out);

#endif
