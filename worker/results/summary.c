/* worker/results/summary.c - builds the JSON object of summary.h and writes it. */
#include "worker/results/summary.h"
#include "base/digest.h"
#include "base/log.h"
#include "files/durable.h"
#include "worker/results/predictions_text.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status summary_digest(const float *flat, int64_t n, char hex[65])
{
    struct digest_sha256 *d;
    enum status st = digest_sha256_create(&d);
    if (st != ST_OK)
        return st;
    digest_sha256_update(d, flat, (size_t)n * sizeof *flat);
    digest_sha256_hex(d, hex);
    digest_sha256_destroy(d);
    return ST_OK;
}

void summary_log_elapsed(const struct trainer_result *r, const char *unit)
{
    char after[64] = "", waits[64] = "";
    if (r->warm_up_images > 0)
        snprintf(after, sizeof after, " after the first %" PRId64, r->warm_up_images);
    if (r->waited_seconds > 0)
        snprintf(waits, sizeof waits, ", without %.1f s of waits", r->waited_seconds);
    LOG_I("Training elapsed time: %f s (%" PRId64 " %s, %.0f %s/s%s%s)", r->elapsed_seconds,
          r->images, unit, r->images_per_second, unit, after, waits);
}

/* Lists the device of each tower. NULL: no memory. */
static json_t *devices_list(const struct tower_plan *towers)
{
    json_t *list = json_array();
    for (int i = 0; list && i < towers->n; i++) {
        const struct tower_spec *t = &towers->tower[i];
        const struct device_info *gpu = t->own.gpu;
        json_t *one = gpu ? json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "device_type", "GPU",
                                      "samples", t->n, "number", gpu->ordinal, "product", gpu->name,
                                      "uuid", gpu->uuid, "pci_bus_id", gpu->pci)
                          : json_pack("{s:s, s:i, s:i}", "device_type", "CPU", "samples", t->n,
                                      "threads", t->own.n_threads);
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Returns the value as JSON; null if it is not finite, since JSON has no such number. A loss may be
 * infinite although all parameters are finite, and data with targets have no accuracy (NaN). */
static json_t *figure(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Returns a path, which may have any bytes, as JSON. NULL if path is NULL or there is no memory. */
static json_t *path_text(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    char *quoted = path ? malloc(predictions_text_most(n)) : NULL;
    json_t *text =
        quoted ? json_loadb(quoted, predictions_text_json(quoted, path, n), JSON_DECODE_ANY, NULL)
               : NULL;
    free(quoted);
    return text;
}

static enum status write_json(const char *path, json_t *j)
{
    char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
    enum status st = ST_NOMEM;
    if (text)
        st = durable_put(path, text, strlen(text));
    else
        LOG_E("--summary_json: out of memory; the file is not written");
    free(text);
    json_decref(j);
    return st;
}

/* Returns false if there is no memory. */
static bool add_validation(json_t *j, const struct validation *v)
{
    json_t *more = json_pack("{s:o, s:o, s:b}", "validation_accuracy", figure(v->accuracy),
                             "validation_loss", figure(v->loss), "stopped_early", v->stopped_early);
    json_t *best = !v->best.known
                       ? json_object()
                       : json_pack("{s:I, s:o, s:o}", "best_step", (json_int_t)v->best.step,
                                   "best_validation_accuracy", figure(v->best.accuracy),
                                   "best_validation_loss", figure(v->best.loss));
    int ok = more && best && json_object_update(j, more) == 0 && json_object_update(j, best) == 0;
    json_decref(more);
    json_decref(best);
    return ok;
}

enum status summary_write(const char *path, const struct summary *s)
{
    const struct trainer_result *r = &s->result;
    json_t *j = json_pack(
        "{s:s, s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:I, s:o, s:o, s:o, s:o, s:I, s:s, s:I, s:{s:I, "
        "s:I, "
        "s:I, "
        "s:I, "
        "s:I, s:I, s:I}, s:o}",
        "role", "worker", "model", s->model, "task_index", s->task_index, "global_step",
        (json_int_t)r->global_step, "local_steps", (json_int_t)r->local_steps, "images",
        (json_int_t)r->images, "elapsed_seconds", r->elapsed_seconds, "images_per_second",
        r->images_per_second, "warm_up_images", (json_int_t)r->warm_up_images, "loss",
        figure((double)r->loss), "test_accuracy", figure(s->test_accuracy), "test_loss",
        figure(s->test_loss), "test_auc", figure(s->test_auc), "parameters",
        (json_int_t)s->n_params, "parameters_sha256", s->parameters_sha256, "nonfinite_skipped",
        (json_int_t)r->skipped, "exchange", "sent_bytes", (json_int_t)s->stats.sent_bytes,
        "received_bytes", (json_int_t)s->stats.received_bytes, "shared_bytes",
        (json_int_t)s->stats.shared_bytes, "applied", (json_int_t)s->stats.applied, "duplicate",
        (json_int_t)s->stats.duplicate, "stale", (json_int_t)s->stats.stale, "reconnects",
        (json_int_t)s->stats.reconnects, "towers", devices_list(s->towers));
    if (j && s->validation->known && !add_validation(j, s->validation)) {
        json_decref(j);
        j = NULL;
    }
    return write_json(path, j);
}

enum status summary_write_inference(const char *path, const struct summary_inference *s)
{
    json_t *j = json_pack("{s:s, s:s, s:o, s:o*, s:I, s:I, s:o*, s:o*, s:o*, s:I, s:s}", "role",
                          "worker", "model", s->model, s->output ? "predict" : "evaluate",
                          path_text(s->file), "output", path_text(s->output), "global_step",
                          (json_int_t)s->step, "images", (json_int_t)s->images, "test_accuracy",
                          s->has_figures ? figure(s->test_accuracy) : NULL, "test_loss",
                          s->has_figures ? figure(s->test_loss) : NULL, "test_auc",
                          s->has_figures ? figure(s->test_auc) : NULL, "parameters",
                          (json_int_t)s->n_params, "parameters_sha256", s->parameters_sha256);
    return write_json(path, j);
}
