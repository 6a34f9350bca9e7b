/* kernels/backend.h - the one interface between the worker and the code that computes.
 *
 * A backend prepares a whole network for one device (struct plan) and then allocates all memory. It
 * runs the plan layer by layer: the caller waits for a layer's parameters before its forward, and
 * sends that layer's gradients after its backward. Tensors at this interface are plain row-major
 * floats: images NCHW, convolution weights OIHW, dense weights [out][in]; a flatten of NCHW keeps
 * that order. Inside, a backend chooses its layouts. It is a shared object libweir_<name>.so that
 * exports `const struct backend weir_backend` and its version (kernels/backend_abi.h).
 * Threads: one thread at a time uses a plan; several plans run in parallel. Errors: ST_UNSUPPORTED,
 *          ST_NOMEM, ST_RANGE (a limit), ST_INTERNAL; logged with the layer. */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H
#include "base/status.h"
#include "kernels/layer.h"
#include "kernels/vector/dtype.h"
#include <stddef.h>
#include <stdint.h>

/* Type to which the factors of products are rounded; sums are always floats. */
enum backend_precision { BACKEND_FP32, BACKEND_TF32, BACKEND_BF16 };

/* Plans of one network, each for a part of the batch and run by its own thread. The devices add the
 * gradients of these plans, and the host receives one sum. */
struct backend_group; /* opaque, defined by the backend */
struct backend_group_config {
    int n;               /* number of plans; each has a rank 0 .. n-1 */
    const int *device;   /* [n] device of each rank; ranks may share a device */
    const float *weight; /* [n] factor of each rank's gradients: its fraction of the batch */
};

struct backend_plan_config {
    const struct layer *layers; /* borrowed while the plan exists */
    int n_layers;
    int batch;     /* highest number of samples in one pass */
    int device;    /* device index, from 0 */
    int n_threads; /* CPU: threads inside one operation; >= 1 */
    int n_params;
    const float *const *params; /* [n_params] host values as plain rows, borrowed */
    /* [n_params] host memory, borrowed; backward writes here. For batch norm's running statistics
     * it writes the statistics of the batch (variance divided by n-1) */
    float *const *grads;
    uint64_t seed;      /* seed of the dropout masks */
    int inference_only; /* the plan needs no backward, and so it needs less memory */
    /* Each field below is 0 by default. A backend refuses a setting that it does not support. */
    uint64_t memory_limit_bytes;      /* GPU: limit on this plan's memory; 0: see set_memory */
    enum backend_precision precision; /* CPU: FP32, or BF16 if the CPU has the instructions */
    int deterministic;                /* same bits in every run; a CPU always computes so */
    struct backend_group *group; /* this plan is its member `rank`; all its plans share `grads`,
                                    which receive the sum over ranks of weight x gradient */
    int rank;
    const uint8_t *mine; /* [n_layers] 1: this plan computes the layer, 0: another plan does; NULL:
                            this plan computes all layers. Borrowed */
    uint16_t *const *grads16; /* [n_params] as `grads`, but for gradients that are rounded to
                                 grads_dtype (dtype_encode); not in a group. NULL: not rounded */
    enum dtype grads_dtype;   /* bf16 or fp16 */
    uint32_t tuning;          /* GPU: kernels/tuning.h */
    const uint8_t *rounded;   /* [n_layers] CPU, BF16: see set_rounded; NULL: the backend decides */
    const struct parts_config *parts; /* GPU: kernels/parts.h; copied; NULL: no parts */
};

struct plan; /* opaque, defined by the backend */
struct backend_data;
struct backend_device; /* kernels/device_report.h */
struct backend {
    const char *name;        /* "cpu" */
    const char *description; /* static text, such as "oneDNN v2.6.3, AVX-512" */
    int grads16;             /* supports backend_plan_config.grads16 */
    int (*n_devices)(void);
    int (*has_precision)(enum backend_precision precision); /* true if all devices support it */
    enum status (*plan_create)(const struct backend_plan_config *cfg, struct plan **out);
    void (*plan_destroy)(struct plan *p); /* NULL is fine */
    size_t (*plan_memory_bytes)(const struct plan *p);
    /* Reads the host value of parameter `param`. The caller may overwrite the value when the
     * gradients of its layer are on the host, or, if there is no backward, after `result`. */
    enum status (*load_param)(struct plan *p, int param);
    /* Sets n <= batch images of bytes (C,H,W), scaled to value/255; images NULL: no layer of this
     * plan reads the image. labels: 0..classes-1, or NULL. position[i]: global position of sample
     * i. Dropout masks depend only on these positions, not on the tower of a sample. */
    enum status (*set_input)(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                             const uint64_t *position, int n);
    /* Optional. Sets samples of floats, which are used unscaled, with any number of classes. */
    enum status (*set_floats)(struct plan *p, const float *const *samples, const int32_t *labels,
                              const uint64_t *position, int n);
    /* Optional, called after set_input or set_floats without labels: sets n rows of targets, each
     * with as many floats as the loss has inputs. Then `result` sets n_correct to 0. */
    enum status (*set_targets)(struct plan *p, const float *const *targets, int n);
    /* Called for layers 0 .. n_layers-1 in order. train: uses dropout and batch statistics. */
    enum status (*forward)(struct plan *p, int layer, int train);
    /* Called from the last layer to layer 0. Computes gradients of the mean loss. */
    enum status (*backward)(struct plan *p, int layer);
    /* Returns mean loss and number of samples with argmax == label. Valid from the last forward
     * until the next set_input. On a device that queues work, call it after all backwards. */
    enum status (*result)(struct plan *p, float *loss, int *n_correct);
    /* Optional. Copies a layer's output, n x elems(out) floats; fails if a relu overwrote it. */
    enum status (*read_output)(struct plan *p, int layer, float *dst);
    /* Optional, for plans with `mine`: sets the output of a layer that another plan computes, n x
     * elems(out) floats. Called between set_input and the forwards that read it. Copies src. */
    enum status (*set_output)(struct plan *p, int layer, const float *src);
    /* Adds src, which another plan's read_output_grad returned, to the gradient with respect to the
     * output of a layer of this plan. Called before the layer's backward. */
    enum status (*set_output_grad)(struct plan *p, int layer, const float *src);
    /* Copies the gradient with respect to the output of a layer of another plan, summed over the
     * layers of this plan that read the output, after their backwards: see set_output_grad. */
    enum status (*read_output_grad)(struct plan *p, int layer, float *dst);
    enum status (*finish)(struct plan *p); /* waits for all queued work; NULL: not needed */
    /* Optional, after finish. on: the range may get new pages until a call with `on` 0. */
    void (*host_moves)(struct plan *p, const void *at, size_t bytes, int on);
    /* Optional. If it is NULL, the gradients are on the host when backward returns. Otherwise
     * backward may only queue its work, and this call waits for the gradients of the layer. Call it
     * once for each layer with parameters, before the gradients are read and before set_input. */
    enum status (*wait_grads)(struct plan *p, int layer);
    /* Optional; either all three are set or none. A group is created before its plans and destroyed
     * after them; it starts when all ranks are present. In a group wait_grads also waits for ranks
     * that have not called the layer's backward yet. It returns when this plan's part of the sum is
     * on the host; the sum is complete when wait_grads has returned in all ranks. group_cancel
     * (from any thread, permanent) makes all running and later calls return ST_CANCELLED. */
    enum status (*group_create)(const struct backend_group_config *cfg, struct backend_group **out);
    void (*group_destroy)(struct backend_group *g); /* NULL is fine */
    void (*group_cancel)(struct backend_group *g);
    /* Optional; either all three are set or none. Copies a data set of n images of `pixels` bytes
     * with their labels to the device. ST_NOMEM, logged: it does not fit. */
    enum status (*data_create)(int device, const uint8_t *images, const uint8_t *labels, int64_t n,
                               int64_t pixels, struct backend_data **out);
    void (*data_destroy)(struct backend_data *d); /* after the plans that read it; NULL is fine */
    /* Does the same as set_input, but with these samples of a data set on the plan's device. */
    enum status (*set_items)(struct plan *p, const struct backend_data *d, const uint32_t *item,
                             const uint64_t *position, int n);
    enum status (*device_info)(int device, struct backend_device *out); /* optional; no memory */
    /* Optional. Limits the memory of this process's plans on the device; limit 0: the free memory.
     * reserve: allocate that memory at once. ST_BUSY if the device already had a plan. */
    enum status (*set_memory)(int device, uint64_t limit_bytes, int reserve);
    /* Optional, BF16 only, between steps. rounded[i] is 1 if layer i rounds the factors of its
     * products; NULL: the backend's rule decides. */
    enum status (*set_rounded)(struct plan *p, const uint8_t *rounded);
    /* Optional. Calls part(ctx, k) once for each k < n on the threads that a plan with n_threads
     * would use if the calling thread ran it, and returns when all calls have returned. */
    void (*spread)(int n_threads, int n, void (*part)(void *ctx, int k), void *ctx);
    const struct parts_ops *parts;            /* NULL: not supported; see kernels/parts.h */
    const struct resident_ops *resident;      /* NULL: not supported; see kernels/resident.h */
    const struct device_report *report;       /* NULL: not supported; see kernels/device_report.h */
    const struct device_updates_ops *updates; /* NULL: not supported; kernels/device_updates.h */
};

/* Load a backend from the folder `dir`, for the life of the process. dir NULL: from the
 * installation, the build, or the program's folder. ST_NOT_FOUND: the loader failed, or the version
 * differs. backend_open logs the reason, backend_find writes it to why[BACKEND_WHY_SIZE]. */
enum { BACKEND_WHY_SIZE = 1024 };
enum status backend_open(const char *name, const char *dir, const struct backend **out);
enum status backend_find(const char *name, const char *dir, const struct backend **out, char *why);
#endif
