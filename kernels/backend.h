/* kernels/backend.h - the one interface between the worker and what computes.
 *
 * A backend plans a whole network for one device once (struct plan: all memory is taken there),
 * then runs it layer by layer, so that the caller can wait for a layer's parameters before its
 * forward and hand out its gradients after its backward. Canonical layouts at the border are plain,
 * row-major float: images NCHW, convolution weights OIHW, dense weights [out][in], a flatten of
 * NCHW keeps that order; inside, a backend lays data out as it likes.
 * Backends are shared objects libweir_<name>.so that export `const struct backend weir_backend`
 * and its version (kernels/backend_abi.h); where they are found: see backend_open.
 *
 * Threads: a plan belongs to one at a time; others run at once. Errors: ST_UNSUPPORTED, ST_NOMEM,
 * ST_RANGE (a limit), ST_INTERNAL; logged with the layer. */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H
#include "base/status.h"
#include "kernels/layer.h"
#include "kernels/vector/dtype.h"
#include <stddef.h>
#include <stdint.h>

/* What products are rounded to on the way in; sums are always in float. */
enum backend_precision { BACKEND_FP32, BACKEND_TF32, BACKEND_BF16 };

/* Plans of one network, each on its samples of one batch and its own thread, whose gradients are
 * added on the devices and come to the host as one sum. */
struct backend_group; /* opaque, the backend's */
struct backend_group_config {
    int n;               /* plans; each has a rank 0 .. n-1 */
    const int *device;   /* [n] of the ranks' plans; several may share one */
    const float *weight; /* [n] what a rank's gradients count for: its samples / the batch's */
    int deterministic;   /* same bits on every run on the same devices */
};

struct backend_plan_config {
    const struct layer *layers; /* borrowed while the plan lives */
    int n_layers;
    int batch;     /* largest number of samples in one pass */
    int device;    /* 0.. */
    int n_threads; /* CPU: threads inside one operation; >= 1 */
    int n_params;
    const float *const
        *params;         /* [n_params] host values, canonical layout; borrowed; see load_param */
    float *const *grads; /* [n_params] host, written by backward; borrowed. For batch norm's
                            running mean and variance: the batch's own (variance with n-1) */
    uint64_t seed;       /* dropout masks */
    int inference_only;  /* no backward: less memory */
    /* Zero is the default of all; a backend refuses what it does not have. */
    uint64_t memory_limit_bytes;      /* GPU: the most that this plan takes; 0: see set_memory */
    enum backend_precision precision; /* CPU: FP32; BF16 where it has instructions for it */
    int deterministic;                /* same bits on every run; the CPU always gives them */
    struct backend_group *group; /* the plan is its rank `rank`, `grads` are the same memory in all
                                    its plans, and get the sum over ranks of weight x gradient */
    int rank;
    const uint8_t *mine;      /* [n_layers] 1: this plan computes the layer, and is called for these
                                 alone; other plans have the others. NULL: all. Borrowed as layers are */
    uint16_t *const *grads16; /* [n_params] host, instead of `grads`: gradients in grads_dtype, as
                                 dtype_encode rounds them; not in a group. NULL: floats */
    enum dtype grads_dtype;   /* bf16 or fp16 */
    uint32_t tuning;          /* GPU: kernels/tuning.h */
    const uint8_t *rounded;   /* [n_layers] CPU, BF16: see set_rounded; NULL: by a rule */
};

struct plan; /* opaque, the backend's */
struct backend_data;
struct backend_device; /* kernels/device_report.h */
struct resident_ops;
struct backend {
    const char *name;        /* "cpu" */
    const char *description; /* "oneDNN v2.6.3, AVX-512" ; static */
    int grads16;             /* 1: it has them */
    int (*n_devices)(void);
    int (*has_precision)(enum backend_precision precision); /* each device; NULL: has all */
    enum status (*plan_create)(const struct backend_plan_config *cfg, struct plan **out);
    void (*plan_destroy)(struct plan *p); /* NULL is fine */
    size_t (*plan_memory_bytes)(const struct plan *p);
    /* The host value of parameter `param` is new: read it (it may be overwritten again only when
     * the gradients of its layer are there, or after `result` if there is no backward). */
    enum status (*load_param)(struct plan *p, int param);
    /* n <= batch images of bytes (C,H,W), scaled to value/255; NULL if no layer of mine reads the
     * image. labels 0..classes-1, or NULL. position[i]: the sample's global position, the dropout
     * mask's counter, so that masks do not depend on how samples are split over the towers. */
    enum status (*set_input)(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                             const uint64_t *position, int n);
    /* Optional: the same for samples of floats, taken as they are, and any number of classes. */
    enum status (*set_floats)(struct plan *p, const float *const *samples, const int32_t *labels,
                              const uint64_t *position, int n);
    /* Optional, after these without labels: n rows of elems(in of the loss); n_correct is 0. */
    enum status (*set_targets)(struct plan *p, const float *const *targets, int n);
    /* train: dropout and batch statistics in use. Layers in order 0 .. n_layers-1. */
    enum status (*forward)(struct plan *p, int layer, int train);
    /* Layers from the last to 0; then (see wait_grads) grads are those of the n's mean loss. */
    enum status (*backward)(struct plan *p, int layer);
    /* After the last layer's forward and until the next set_input: mean loss and number of
     * argmax == label. Where work is queued, it costs least after the backwards. */
    enum status (*result)(struct plan *p, float *loss, int *n_correct);
    /* Optional: layer's output, n x elems(out) floats; refused if not kept. */
    enum status (*read_output)(struct plan *p, int layer, float *dst);
    /* Optional, for plans with `mine`; n x elems(out) floats, not needed any more on return.
     * Between set_input and the forwards that read it: the output of a layer that is not mine. */
    enum status (*set_output)(struct plan *p, int layer, const float *src);
    /* After set_input and before the backward of a layer of mine that others read: adds what
     * another plan's read_output_grad gave, behind what earlier calls gave; the sum is added to
     * that of my own readers. Only where the layer or one that it follows from has parameters. */
    enum status (*set_output_grad)(struct plan *p, int layer, const float *src);
    /* After the backwards of all layers of mine that read the output of a layer that is not mine:
     * the gradient by that output, summed over them. Where there is one, see set_output_grad. */
    enum status (*read_output_grad)(struct plan *p, int layer, float *dst);
    enum status (*finish)(struct plan *p); /* waits for all queued work; NULL: there is none */
    /* Optional. NULL: grads are there when backward returns. Else backward may return when its work
     * is queued, and this waits until grads of the layer's parameters are on the host: call it once
     * for each layer with parameters, before they are read and before the next set_input. */
    enum status (*wait_grads)(struct plan *p, int layer);
    /* Optional, all three or none (NULL: not offered). A group is created before its plans and
     * destroyed after them, and starts when all ranks are there. In a group wait_grads returns when
     * this plan's part of the sum is on the host: all of it is when it has returned in all ranks.
     * It waits for ranks whose backward of the layer has not been called yet, until cancel (any
     * thread; for good), which makes this and later calls return ST_CANCELLED. */
    enum status (*group_create)(const struct backend_group_config *cfg, struct backend_group **out);
    void (*group_destroy)(struct backend_group *g); /* NULL is fine */
    void (*group_cancel)(struct backend_group *g);
    /* Optional, all three: a data set in the device's own memory, n images of `pixels` bytes with
     * their labels, so that a step's images need not travel. ST_NOMEM, logged: it does not fit. */
    enum status (*data_create)(int device, const uint8_t *images, const uint8_t *labels, int64_t n,
                               int64_t pixels, struct backend_data **out);
    void (*data_destroy)(struct backend_data *d); /* after the plans that read it; NULL is fine */
    /* set_input with the images and labels of these items of a data set on the plan's device. */
    enum status (*set_items)(struct plan *p, const struct backend_data *d, const uint32_t *item,
                             const uint64_t *position, int n);
    enum status (*device_info)(int device, struct backend_device *out); /* optional; no memory */
    /* Optional. The most that all plans of this process take on the device; 0: what is free.
     * reserve: takes and keeps it. Before the device's first plan (ST_BUSY). */
    enum status (*set_memory)(int device, uint64_t limit_bytes, int reserve);
    /* Optional, in BF16, between steps; 1: the layer's factors are rounded; NULL: by the rule. */
    enum status (*set_rounded)(struct plan *p, const uint8_t *rounded);
    /* Optional: part(ctx, k) once for each k below n, all at an end on return, on the calling
     * thread's threads for plans of n_threads. */
    void (*spread)(int n_threads, int n, void (*part)(void *ctx, int k), void *ctx);
    const struct resident_ops *resident; /* optional: kernels/resident.h */
    const struct device_report *report;  /* optional: kernels/device_report.h */
};

/* Loads a backend for good; dir NULL: as installed or built, or beside the program. ST_NOT_FOUND,
 * with the loader's reason, or another version: open logs it, find tells it in
 * why[BACKEND_WHY_SIZE]. */
enum { BACKEND_WHY_SIZE = 1024 };
enum status backend_open(const char *name, const char *dir, const struct backend **out);
enum status backend_find(const char *name, const char *dir, const struct backend **out, char *why);
#endif
