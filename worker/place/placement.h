/* worker/place/placement.h - which device computes which layer.
 *
 * What counts, from the first to the last: a rule of --placement (the first that fits), the layer's
 * `device` in the model file, and where nothing is said: a layer without parameters lies where the
 * layer lies that it reads, any other on the tower's own device.
 *
 * Data parallelism: as long as no layer is put on a GPU by number, every device has its own tower,
 * and "gpu" and "cpu" mean the tower's own GPU and the one CPU. A layer on gpu:K, or round_robin
 * over several GPUs, makes the worker one tower that spans the devices named (placement_spans); its
 * own device is then the first GPU. That tower has no sisters.
 *
 * A parameter lies, and is updated, where its layer is computed if the backend can do that, else on
 * the host; a rule on its name with cpu keeps it on the host (placement_keeps_on_host).
 *
 * A device that is not there is an error that names the layer and the devices that are; or, with
 * soft placement, the layer goes to the tower's own device, and one line says so.
 * Owns:    its own memory; the request's is borrowed while it lives.
 * Threads: immutable once made.
 * Errors:  ST_INVALID (a rule that decides nothing, a device that is not there), ST_NOMEM. */
#ifndef WORKER_PLACE_PLACEMENT_H
#define WORKER_PLACE_PLACEMENT_H
#include "kernels/backend.h"
#include "net/wire/chunks.h"

enum { PLACEMENT_CPU = -1 }; /* else the number of a GPU, among those chosen */

struct placement_request {
    const struct layer *layers;
    int n_layers;
    const char *const *device; /* [n_layers] the model file's, an entry NULL: none; NULL: none */
    const char *rules;         /* --placement; NULL: none */
    int n_gpus;                /* chosen by --gpus */
    const struct net_param *params; /* [n_params] for rules that name parameters; NULL: none */
    int n_params;
    int task;          /* this worker's, where rules name one; below 0: not known, any */
    const int *number; /* [n_gpus] by which rules call them; NULL: 0, 1, ... */
    int cpu_towers; /* with GPUs: there are towers on the CPU, too, which have no GPU of their own
                     */
    int soft;       /* --allow_soft_placement */
};

struct placement;
enum status placement_create(const struct placement_request *r, struct placement **out);
void placement_destroy(struct placement *p); /* NULL is fine */
/* GPUs that rules and the model file ask for by number, named[n]; number 0, too, where layers with
 * parameters are left to the tower's own. The highest of them; 0 or less: no reason for a second
 * GPU. What cannot be read names none. */
int placement_numbers(const struct placement_request *r, uint8_t *named, int n);
/* The form of --placement alone. */
enum status placement_check(const char *rules);
/* One tower over several devices, instead of one tower for each. */
int placement_spans(const struct placement *p);
/* A rule keeps parameters on the host that else could stay on a GPU. */
int placement_keeps_on_host(const struct placement *p);
/* Device of a layer in the tower whose own device is `own`. */
int placement_device(const struct placement *p, int layer, int own);
/* --log_device_placement: one line a layer. n_towers > 1: the tower's number is shown. */
void placement_log(const struct placement *p, int tower, int n_towers, int own);

#endif
