/* worker/place/placement.h - assigns a device to each layer.
 *
 * Priorities, from the highest: the first matching rule of --placement; the layer's `device` in the
 * model file; the default. By default a layer without parameters is on the device of the first
 * layer that it reads; a layer with parameters is on the tower's own device. A layer that reads
 * rows of servers (layer_is_on_host) has no device, and may not be placed on a GPU.
 *
 * Data parallelism: if no layer is placed on a GPU by number, every device has its own tower, and
 * "gpu" and "cpu" mean the tower's own GPU and the CPU. If a layer is placed on gpu:K, or layers
 * are placed by round_robin over several GPUs, the worker has a single tower, which spans the named
 * devices (placement_spans); the tower's own device is then the first GPU.
 *
 * A parameter is stored and updated on its layer's device if the backend supports that, otherwise
 * on the host. A rule that assigns `cpu` to the name of a parameter keeps this parameter on the
 * host (placement_keeps_on_host).
 *
 * A device that does not exist is an error that names the layer and the existing devices. If soft
 * placement is allowed, the layer is put on the tower's own device instead, with a log line.
 * Owns:    its own memory; the memory of the request is borrowed while the placement exists.
 * Threads: immutable once created.
 * Errors:  ST_INVALID (a rule that decides nothing, a device that does not exist), ST_NOMEM. */
#ifndef WORKER_PLACE_PLACEMENT_H
#define WORKER_PLACE_PLACEMENT_H
#include "kernels/backend.h"
#include "net/wire/chunks.h"

enum { PLACEMENT_CPU = -1 }; /* any other value is the index of a chosen GPU */

struct placement_request {
    const struct layer *layers;
    int n_layers;
    const char *const *device; /* [n_layers] devices in the model file; NULL, or entry NULL: none */
    const char *rules;         /* value of --placement; NULL: none */
    int n_gpus;                /* number of GPUs chosen by --gpus */
    const struct net_param *params; /* [n_params] for rules that name parameters; NULL: none */
    int n_params;
    int task; /* index of this worker, for rules that name a worker; below 0: every rule applies */
    const int *number; /* [n_gpus] numbers by which rules name the GPUs; NULL: 0, 1, ... */
    /* true: besides the towers on GPUs, there are towers on the CPU, which have no GPU of their
     * own */
    int cpu_towers;
    int soft; /* --allow_soft_placement */
};

struct placement;
enum status placement_create(const struct placement_request *r, struct placement **out);
void placement_destroy(struct placement *p); /* NULL is fine */
/* Marks in named[n] the GPUs that rules and the model file request by number, and GPU 0 if a layer
 * with parameters stays on the tower's own device. Returns the highest number that is marked; 0 or
 * less: one GPU is enough. Invalid texts mark no GPU. */
int placement_numbers(const struct placement_request *r, uint8_t *named, int n);
/* Checks only the syntax of --placement. */
enum status placement_check(const char *rules);
/* Returns true if the worker has one tower over several devices instead of one tower for each
 * device. */
bool placement_spans(const struct placement *p);
/* Returns true if a rule keeps parameters on the host although a GPU could hold them. */
bool placement_keeps_on_host(const struct placement *p);
/* Returns the device of a layer in the tower whose own device is `own`. */
int placement_device(const struct placement *p, int layer, int own);
/* Logs one line per layer (--log_device_placement). If n_towers > 1, each line has the tower's
 * number. */
void placement_log(const struct placement *p, int tower, int n_towers, int own);

#endif
