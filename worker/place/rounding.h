/* worker/place/rounding.h - chooses by measurement the layers that multiply in bf16 on the CPU. It
 * times the same network twice: with all products rounded to bf16, and with none. A layer is
 * rounded if its forward and backward together are faster in bf16. Two processes may measure
 * differently, so the choice of one worker is used by its whole job (net/wire/rounding.h).
 * Threads: only the main thread. Errors: the backend's; ST_INVALID: no layer that can multiply in
 *          bf16 has a given name; ST_NOMEM; logged. */
#ifndef WORKER_PLACE_ROUNDING_H
#define WORKER_PLACE_ROUNDING_H
#include "net/wire/chunks.h"
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"

struct rounding_request {
    const struct tower_plan *towers;
    const struct model *model;
    const struct chunks *chunks;
    const float *params; /* values of all parameters, in the order of chunks */
    const char *named; /* names of rounded layers, separated by commas, or "none"; NULL: measured */
};

/* Logs the names of the rounded layers. whence: text about the source of the choice, such as "as
 * measured". */
void rounding_log(const struct model *m, const uint8_t *rounded, const char *whence);
/* Measures the layers. *out: [n_layers], malloc'd. If no tower computes in bf16 on the CPU, nothing
 * is measured, and *out becomes NULL. */
enum status rounding_measure(const struct rounding_request *r, uint8_t **out);

#endif
