/* worker/trained_on.c - see the header. */
#include "worker/trained_on.h"
#include "base/log.h"
#include "checkpoint/restore.h"
#include "files/safetensors.h"
#include "worker/weights/weights_source.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES_BYTES = 1 << 20 };

static const char *const kinds[JOB_LABELS_N_KINDS] = {NULL, "classes", "targets"};

static void read_sample(const char *text, struct shape *out)
{
    struct shape s = {3, {0}};
    char rest;
    if (text &&
        sscanf(text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &s.dim[0], &s.dim[1], &s.dim[2],
               &rest) == 3 &&
        s.dim[0] > 0 && s.dim[1] > 0 && s.dim[2] > 0 && s.dim[0] <= DATASET_MAX_SIDE &&
        s.dim[1] <= DATASET_MAX_SIDE && s.dim[2] <= DATASET_MAX_SIDE)
        *out = s;
}

/* Of a file of another make, which has no "global_step", nothing: it may mean what it likes. */
static enum status read_export(const char *path, struct trained_on *out)
{
    char why[SAFETENSORS_WHY_BYTES];
    struct safetensors_file *f;
    if (safetensors_open_any(path, &f, why) != ST_OK)
        return ST_OK;
    int own = safetensors_metadata(f, "global_step") != NULL;
    const char *labels = own ? safetensors_metadata(f, "labels") : NULL;
    const char *names = own ? safetensors_metadata(f, "classes") : NULL;
    read_sample(own ? safetensors_metadata(f, "sample") : NULL, &out->sample);
    for (int i = JOB_LABELS_CLASSES; labels && i < JOB_LABELS_N_KINDS; i++)
        if (strcmp(labels, kinds[i]) == 0)
            out->labels = (enum job_labels)i;
    if (names && *names)
        out->class_names = strdup(names);
    enum status st = names && *names && !out->class_names ? ST_NOMEM : ST_OK;
    if (st != ST_OK)
        LOG_E("%s: no memory for the names of its classes", path);
    safetensors_close(f);
    return st;
}

static void read_checkpoint(const char *path, struct trained_on *out)
{
    struct ps_restore *r = NULL;
    if (ps_restore_find(path, &r) != ST_OK)
        return;
    const struct job_data *d = &ps_restore_manifest(r)->job.data;
    out->labels = d->n_train ? d->labels : JOB_LABELS_UNSAID;
    out->names_sum = d->class_names;
    if (d->n_train)
        out->sample = (struct shape){3, {d->dim[0], d->dim[1], d->dim[2]}};
    ps_restore_close(r);
}

enum status trained_on_read(const char *path, struct trained_on *out)
{
    *out = (struct trained_on){.sample = {0}};
    if (!weights_source_is_checkpoint(path))
        return read_export(path, out);
    read_checkpoint(path, out);
    return ST_OK;
}

void trained_on_free(struct trained_on *t)
{
    free(t->class_names);
    t->class_names = NULL;
}

/* JSON has Unicode alone; a folder may be called anything. */
static int can_be_kept(const char *names)
{
    size_t n = strlen(names);
    json_t *text = n <= MOST_NAMES_BYTES ? json_string(names) : NULL;
    int can = text != NULL;
    json_decref(text);
    if (!can)
        LOG_W("--export: the names of the classes are left out: %s",
              n > MOST_NAMES_BYTES ? "they are longer than 1 MB" : "one of them is not UTF-8");
    return can;
}

int trained_on_metadata(const struct dataset *train, char sample[TRAINED_ON_SAMPLE_BYTES],
                        const char *pairs[TRAINED_ON_PAIRS][2])
{
    const int64_t *is = train->sample.dim;
    const char *names = train->class_names;
    snprintf(sample, TRAINED_ON_SAMPLE_BYTES, "%" PRId64 "x%" PRId64 "x%" PRId64, is[0], is[1],
             is[2]);
    const char *all[TRAINED_ON_PAIRS][2] = {
        {"sample", sample},
        {"labels", kinds[train->targets ? JOB_LABELS_TARGETS : JOB_LABELS_CLASSES]},
        {"classes", names}};
    memcpy(pairs, all, sizeof all);
    return names && can_be_kept(names) ? 3 : 2;
}
