/* checkpoint/manifest.c - see manifest.h: writes and reads its JSON. retention.c lists and cleans a
 * folder. */
#include "checkpoint/manifest.h"
#include "base/digest.h"
#include "base/log.h"
#include "checkpoint/manifest_data.h"
#include "checkpoint/manifest_input.h"
#include "checkpoint/manifest_lineage.h"
#include "checkpoint/manifest_names.h"
#include "checkpoint/manifest_optimizer.h"
#include "checkpoint/manifest_progress.h"
#include "checkpoint/manifest_tables.h"
#include "files/durable.h"
#include "files/json_text.h"
#include "net/wire/control.h"
#include "net/wire/job_steps.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_BYTES = 32 << 20,
    MAX_FILES = 4096,
    TAIL_BYTES = 21, /* ,"crc32c":"XXXXXXXX"} */
    /* a valid text has at least this many bytes for each container (list or object) of its JSON */
    LEAST_ELEMENT = 8,
};
static const char format[] = "weir checkpoint";
static const char tail_format[] = ",\"crc32c\":\"%08x\"}";

static struct checkpoint_id id_of(const struct checkpoint_manifest *m)
{
    return (struct checkpoint_id){m->generation, m->step};
}

static json_t *job_to_json(const struct net_job *job)
{
    json_t *o = json_pack(
        "{s:i, s:s, s:o, s:I, s:I, s:i, s:I, s:f, s:s, s:s, s:o, s:s}", "workers", job->n_workers,
        "sync_mode", job_sync_mode_name(job->sync_mode), "optimizer",
        manifest_optimizer_to_json(&job->optim), "train_steps", (json_int_t)job->train_steps,
        "seed", (json_int_t)job->seed, "aggregate", job->aggregate, "staleness",
        (json_int_t)job->staleness, "delay_compensation", (double)job->delay_compensation,
        "push_dtype", dtype_name(job->push_dtype), "version_dtype", dtype_name(job->version_dtype),
        "data", manifest_data_to_json(&job->data), "arithmetic", job->arithmetic);
    if (o && job->asked_steps > 0 &&
        json_object_set_new(o, "asked_steps", json_integer((json_int_t)job->asked_steps)) != 0) {
        json_decref(o);
        return NULL;
    }
    if (o && job->epochs > 0 && json_object_set_new(o, "epochs", json_real(job->epochs)) != 0) {
        json_decref(o);
        return NULL;
    }
    if (o && job->batch > 0 && json_object_set_new(o, "batch", json_integer(job->batch)) != 0) {
        json_decref(o);
        return NULL;
    }
    if (o && job->local_steps > 1 &&
        (json_object_set_new(o, "local_steps", json_integer(job->local_steps)) != 0 ||
         json_object_set_new(o, "local_optimizer", manifest_optimizer_to_json(&job->local)) != 0)) {
        json_decref(o);
        return NULL;
    }
    if (o && job->fragments > 1 &&
        json_object_set_new(o, "fragments", json_integer(job->fragments)) != 0) {
        json_decref(o);
        return NULL;
    }
    if (o && job->validation_split > 0 &&
        json_object_set_new(o, "validation_split", json_real(job->validation_split)) != 0) {
        json_decref(o);
        return NULL;
    }
    return manifest_input_add(o, job);
}

static json_t *params_to_json(const struct chunks *chunks)
{
    json_t *list = json_array();
    bool failed = !list;
    for (int i = 0; i < chunks->n_params; i++) {
        const struct net_param *p = &chunks->params[i];
        json_t *shape = json_array();
        for (int d = 0; d < p->shape.n_dims; d++)
            failed |= json_array_append_new(shape, json_integer(p->shape.dim[d])) != 0;
        json_t *param = json_pack("{s:s, s:o}", "name", p->name, "shape", shape);
        if (p->rule == PARAM_AVERAGE)
            failed |= json_object_set_new(param, "average", json_real((double)p->keep)) != 0;
        if (p->factors.rate != 1)
            failed |= json_object_set_new(param, "rate", json_real((double)p->factors.rate)) != 0;
        if (p->factors.decay != 1)
            failed |= json_object_set_new(param, "decay", json_real((double)p->factors.decay)) != 0;
        failed |= json_array_append_new(list, param) != 0;
    }
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

enum status checkpoint_manifest_digest(const struct net_job *job, const struct chunks *chunks,
                                       char hex[65])
{
    enum status st = ST_NOMEM;
    struct digest_sha256 *d = NULL;
    json_t *what =
        json_pack("{s:o, s:o, s:I, s:s}", "parameters", params_to_json(chunks), "optimizer",
                  manifest_optimizer_to_json(&job->optim), "seed", (json_int_t)job->seed,
                  "sync_mode", job_sync_mode_name(job->sync_mode));
    bool ok = what && manifest_tables_add(what, chunks, false);
    char *text = ok ? json_dumps(what, JSON_COMPACT) : NULL;
    if (!text)
        goto done;
    TRY(digest_sha256_create(&d));
    digest_sha256_update(d, text, strlen(text));
    digest_sha256_hex(d, hex);
done:
    if (st != ST_OK)
        LOG_E("out of memory for the digest of a checkpoint's job");
    digest_sha256_destroy(d);
    free(text);
    json_decref(what);
    return st;
}

static json_t *files_to_json(const struct checkpoint_manifest *m)
{
    json_t *list = json_array();
    bool failed = !list;
    for (int i = 0; i < m->n_files; i++) {
        char name[MANIFEST_NAME_BYTES], crc[16];
        checkpoint_manifest_file_name(id_of(m), i, m->n_files, name);
        snprintf(crc, sizeof crc, "%08x", m->files[i].crc32c);
        json_t *file = json_pack("{s:s, s:I, s:s}", "name", name, "bytes",
                                 (json_int_t)m->files[i].bytes, "header_crc32c", crc);
        if (file && m->folder && m->folder[i][0])
            failed |= json_object_set_new(file, "folder", json_string(m->folder[i])) != 0;
        failed |= json_array_append_new(list, file) != 0;
    }
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

/* Adds the file of each chunk. Returns false if memory ran out. */
static bool add_shard(json_t *root, const struct checkpoint_manifest *m)
{
    json_t *list = json_array();
    bool failed = !list;
    for (int i = 0; i < m->chunks->n_chunks; i++)
        failed |= json_array_append_new(list, json_integer(m->shard[i])) != 0;
    failed |= json_object_set_new(root, "shard", list) != 0;
    return !failed;
}

static json_t *manifest_to_json(const struct checkpoint_manifest *m)
{
    json_t *root =
        json_pack("{s:s, s:i, s:I, s:I, s:o, s:I, s:o, s:o}", "format", format, "version", 1,
                  "step", (json_int_t)m->step, "generation", (json_int_t)m->generation, "job",
                  job_to_json(&m->job), "chunk_bytes", (json_int_t)m->chunks->chunk_bytes,
                  "parameters", params_to_json(m->chunks), "files", files_to_json(m));
    if (root && m->trained_on) /* a text that is not UTF-8 is left out: json_string() fails */
        json_object_set_new(root, "trained_on", json_string(m->trained_on));
    if (!root || (manifest_tables_add(root, m->chunks, true) &&
                  (!m->progress.known || manifest_progress_add(root, &m->progress)) &&
                  manifest_lineage_add(root, &m->lineage) && (!m->shard || add_shard(root, m))))
        return root;
    json_decref(root);
    return NULL;
}

enum status checkpoint_manifest_write(const char *folder, const struct checkpoint_manifest *m)
{
    enum status st = ST_OK;
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES], tail[TAIL_BYTES + 1];
    struct durable f;
    json_t *json = manifest_to_json(m);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    checkpoint_manifest_name(id_of(m), name);
    bool fits = (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path;
    json_decref(json);
    if (!text || !fits) {
        LOG_E("%s/%s: %s", folder, name, fits ? "out of memory" : "the path is too long");
        free(text);
        return fits ? ST_NOMEM : ST_IO;
    }
    size_t n = strlen(text) - 1; /* without its last brace */
    snprintf(tail, sizeof tail, tail_format, digest_crc32c(0, text, n));
    st = durable_begin(&f, path);
    if (st == ST_OK) {
        TRY(durable_write(&f, text, n));
        TRY(durable_write(&f, tail, strlen(tail)));
        TRY(durable_write(&f, "\n", 1));
        TRY(durable_commit(&f));
    done:
        durable_end(&f);
    }
    free(text);
    return st;
}

static enum status explain_corrupt(char why[MANIFEST_WHY_BYTES], const char *text)
{
    snprintf(why, MANIFEST_WHY_BYTES, "%s", text);
    return ST_CORRUPT;
}

static const char *mode_at(int i)
{
    return job_sync_mode_name((enum job_sync_mode)i);
}

static const char *dtype_at(int i)
{
    return dtype_name((enum dtype)i);
}

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static float number_of(const json_t *o, const char *key)
{
    return (float)json_number_value(json_object_get(o, key));
}

static int64_t integer_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static bool job_from_json(const json_t *o, struct net_job *to)
{
    int mode = manifest_names_find(o, "sync_mode", mode_at, JOB_N_MODES);
    int push = manifest_names_find(o, "push_dtype", dtype_at, DTYPE_N_KINDS);
    int version = manifest_names_find(o, "version_dtype", dtype_at, DTYPE_N_KINDS);
    int64_t batch = json_integer_value(json_object_get(o, "batch")); /* 0: the manifest has none */
    int64_t workers = integer_of(o, "workers"), aggregate = integer_of(o, "aggregate");
    if (mode < 0 || push < 0 || version < 0 || workers < 1 || workers > JOB_MAX_WORKERS ||
        aggregate < 0 || aggregate > workers)
        return false;
    *to = (struct net_job){.n_workers = (int)workers,
                           .sync_mode = (enum job_sync_mode)mode,
                           .train_steps = integer_of(o, "train_steps"),
                           .batch = (int)batch,
                           .asked_steps = json_integer_value(json_object_get(o, "asked_steps")),
                           .epochs = json_number_value(json_object_get(o, "epochs")),
                           .seed = (uint64_t)integer_of(o, "seed"),
                           .aggregate = (int)aggregate,
                           .staleness = integer_of(o, "staleness"),
                           .delay_compensation = number_of(o, "delay_compensation"),
                           .validation_split =
                               json_number_value(json_object_get(o, "validation_split")),
                           .push_dtype = (enum dtype)push,
                           .version_dtype = (enum dtype)version};
    bool ok = manifest_optimizer_from_json(json_object_get(o, "optimizer"), &to->optim);
    int64_t local_steps = integer_of(o, "local_steps");
    int64_t fragments = json_integer_value(json_object_get(o, "fragments"));
    ok = ok && batch >= 0 && batch <= INT_MAX && fragments >= 0 && fragments <= JOB_MAX_FRAGMENTS;
    to->fragments = ok ? (int)fragments : 0;
    to->optim.total_steps = (uint64_t)(to->asked_steps ? to->asked_steps : to->train_steps);
    ok = ok && local_steps >= 0 && local_steps <= JOB_MAX_LOCAL_STEPS &&
         to->train_steps <= INT64_MAX / (local_steps + 1) / 2;
    if (ok && local_steps > 1) {
        to->local_steps = (int)local_steps;
        ok = manifest_optimizer_from_json(json_object_get(o, "local_optimizer"), &to->local);
        to->local.total_steps = to->optim.total_steps * (uint64_t)local_steps;
    }
    ok = ok && manifest_data_from_json(json_object_get(o, "data"), &to->data);
    ok = ok && manifest_input_read(o, to);
    const char *arithmetic = text_of(o, "arithmetic");
    snprintf(to->arithmetic, sizeof to->arithmetic, "%s", arithmetic ? arithmetic : "");
    return ok && to->train_steps >= 1 &&
           (to->asked_steps == 0 || to->asked_steps >= to->train_steps) && to->epochs >= 0 &&
           to->epochs <= JOB_MAX_EPOCHS && to->validation_split >= 0 && to->validation_split < 1 &&
           !job_check_mode(to);
}

/* Returns a factor of the optimizer for one parameter: 1 if the manifest has no such entry, -1 if
 * the entry is not a number. */
static float factor_of(const json_t *param, const char *name)
{
    const json_t *factor = json_object_get(param, name);
    return !factor ? 1 : json_is_number(factor) ? (float)json_number_value(factor) : -1;
}

static bool param_from_json(const json_t *o, struct net_param *p)
{
    const json_t *shape = json_object_get(o, "shape"), *keep = json_object_get(o, "average");
    *p = (struct net_param){.name = text_of(o, "name")};
    if (!p->name || !json_is_array(shape) || json_array_size(shape) > SHAPE_MAX_DIMS)
        return false;
    p->shape.n_dims = (int)json_array_size(shape);
    for (int d = 0; d < p->shape.n_dims; d++)
        p->shape.dim[d] = json_integer_value(json_array_get(shape, (size_t)d));
    p->rule = keep ? PARAM_AVERAGE : PARAM_TRAINED;
    p->keep = (float)json_number_value(keep);
    p->factors = (struct optim_factors){factor_of(o, "rate"), factor_of(o, "decay")};
    p->has_factors = p->factors.rate != 1 || p->factors.decay != 1;
    return p->keep >= 0 && p->keep <= 1;
}

static enum status chunks_from_json(const json_t *root, struct chunks **out)
{
    const json_t *list = json_object_get(root, "parameters");
    size_t n = json_array_size(list);
    int64_t chunk_bytes = integer_of(root, "chunk_bytes");
    if (n < 1 || n > CHUNKS_MAX_PARAMS || chunk_bytes < 0 || chunk_bytes > CHUNKS_MAX_BYTES)
        return ST_CORRUPT;
    struct net_param *params = calloc(n, sizeof *params);
    if (!params)
        return ST_NOMEM;
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++)
        st = param_from_json(json_array_get(list, i), &params[i]) ? ST_OK : ST_CORRUPT;
    if (st == ST_OK)
        st = chunks_create(params, (int)n, chunk_bytes, out);
    free(params);
    if (st == ST_OK)
        st = manifest_tables_read(root, *out);
    return st == ST_OK || st == ST_NOMEM ? st : ST_CORRUPT;
}

/* Reads the id of a file's folder, if the file is in another folder than the manifest. */
static enum status folder_from_json(const json_t *o, struct checkpoint_manifest *m, int i)
{
    const json_t *id = json_object_get(o, "folder");
    const char *text = json_string_value(id);
    if (!id)
        return ST_OK;
    if (!text || strlen(text) != FOLDER_ID_BYTES - 1 ||
        strspn(text, "0123456789abcdef") != FOLDER_ID_BYTES - 1)
        return ST_CORRUPT;
    if (!m->folder)
        m->folder = calloc((size_t)m->n_files, sizeof *m->folder);
    if (!m->folder)
        return ST_NOMEM;
    memcpy(m->folder[i], text, FOLDER_ID_BYTES);
    return ST_OK;
}

static enum status files_from_json(const json_t *root, struct checkpoint_manifest *m)
{
    const json_t *list = json_object_get(root, "files");
    size_t n = json_array_size(list);
    if (n < 1 || n > MAX_FILES)
        return ST_CORRUPT;
    m->files = calloc(n, sizeof *m->files);
    if (!m->files)
        return ST_NOMEM;
    m->n_files = (int)n;
    for (int i = 0; i < m->n_files; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        const char *crc = text_of(o, "header_crc32c"), *name = text_of(o, "name");
        char want[MANIFEST_NAME_BYTES];
        checkpoint_manifest_file_name(id_of(m), i, m->n_files, want);
        if (!crc || strlen(crc) != 8 || !name || strcmp(name, want) || integer_of(o, "bytes") < 0)
            return ST_CORRUPT;
        m->files[i] = (struct safetensors_written){(uint64_t)integer_of(o, "bytes"),
                                                   (uint32_t)strtoul(crc, NULL, 16)};
        enum status st = folder_from_json(o, m, i);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

static enum status shard_from_json(const json_t *root, struct checkpoint_manifest *m)
{
    const json_t *list = json_object_get(root, "shard");
    if (!list)
        return ST_OK;
    if (json_array_size(list) != (size_t)m->chunks->n_chunks)
        return ST_CORRUPT;
    m->shard = calloc((size_t)m->chunks->n_chunks + 1, sizeof *m->shard);
    if (!m->shard)
        return ST_NOMEM;
    for (int i = 0; i < m->chunks->n_chunks; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        json_int_t file = json_integer_value(o);
        if (!json_is_integer(o) || file < 0 || file >= m->n_files)
            return ST_CORRUPT;
        m->shard[i] = (int)file;
    }
    return ST_OK;
}

static enum status trained_on_from_json(const json_t *root, struct checkpoint_manifest *m)
{
    const char *text = text_of(root, "trained_on");
    if (!text)
        return ST_OK;
    if (strlen(text) > JOB_MAX_TRAINED_ON_BYTES)
        return ST_CORRUPT;
    m->trained_on = strdup(text);
    return m->trained_on ? ST_OK : ST_NOMEM;
}

static enum status from_json(const json_t *root, struct checkpoint_manifest *m,
                             char why[MANIFEST_WHY_BYTES])
{
    const char *of = text_of(root, "format");
    if (!of || strcmp(of, format) != 0)
        return explain_corrupt(why, "is not a checkpoint manifest");
    if (integer_of(root, "version") != 1) {
        snprintf(why, MANIFEST_WHY_BYTES,
                 "has format version %" PRId64 ", but this program reads only version 1",
                 integer_of(root, "version"));
        return ST_CORRUPT;
    }
    m->step = integer_of(root, "step");
    m->generation = (uint64_t)integer_of(root, "generation");
    if (m->step < 0 || m->generation < 1 || m->generation > INT64_MAX ||
        !job_from_json(json_object_get(root, "job"), &m->job))
        return explain_corrupt(why, "has an invalid job");
    enum status st = chunks_from_json(root, &m->chunks);
    if (st == ST_OK)
        st = files_from_json(root, m);
    if (st == ST_OK)
        st = shard_from_json(root, m);
    if (st == ST_OK)
        st = trained_on_from_json(root, m);
    if (st == ST_OK)
        st = manifest_progress_read(root, m->step, &m->progress);
    if (st == ST_OK)
        st = manifest_lineage_read(root, m->generation, &m->lineage);
    return st == ST_CORRUPT
               ? explain_corrupt(
                     why, "has a malformed list of parameters, files, chunks, members or servers")
               : st;
}

/* Checks the CRC in the tail, and limits the number of containers (lists, objects), so that parsing
 * cannot exhaust memory. */
static enum status check_text(const char *text, size_t n, char why[MANIFEST_WHY_BYTES])
{
    char tail[TAIL_BYTES + 1];
    if (n < TAIL_BYTES || memcmp(text + n - TAIL_BYTES, ",\"crc32c\":\"", 11) != 0)
        return explain_corrupt(why, "is truncated, or not a checkpoint manifest");
    snprintf(tail, sizeof tail, tail_format, digest_crc32c(0, text, n - TAIL_BYTES));
    if (memcmp(text + n - TAIL_BYTES, tail, TAIL_BYTES) != 0)
        return explain_corrupt(why, "does not match its own checksum");
    return json_text_count(text, n, "{[") <= 64 + n / LEAST_ELEMENT
               ? ST_OK
               : explain_corrupt(why, "is not a manifest");
}

static enum status no_memory(char why[MANIFEST_WHY_BYTES])
{
    snprintf(why, MANIFEST_WHY_BYTES, "cannot be read: %s", status_text(ST_NOMEM));
    return ST_NOMEM;
}

/* Writes to `why` a sentence that explains errno, and returns errno's status. */
static enum status explain_unread(char why[MANIFEST_WHY_BYTES], const char *what)
{
    enum status st = status_of_reading(errno);
    snprintf(why, MANIFEST_WHY_BYTES, "cannot be %s: %s", what, status_errno_text(errno));
    return st;
}

/* Reads the file's text without its newline, malloc'd. */
static enum status read_text(const char *path, char **out, size_t *n, char why[MANIFEST_WHY_BYTES])
{
    struct stat s;
    FILE *f = fopen(path, "re");
    enum status st = ST_OK;
    char *text = NULL;
    if (!f || fstat(fileno(f), &s) != 0)
        TRY(explain_unread(why, "opened"));
    if (!S_ISREG(s.st_mode) || s.st_size > MAX_BYTES)
        TRY(explain_corrupt(why, "is not a checkpoint manifest"));
    text = malloc((size_t)s.st_size + 1);
    TRY(text ? ST_OK : no_memory(why));
    *n = fread(text, 1, (size_t)s.st_size, f);
    if (ferror(f))
        TRY(explain_unread(why, "read"));
    if (*n != (size_t)s.st_size)
        TRY(explain_corrupt(why, "cannot be read to its end"));
    *n -= *n > 0 && text[*n - 1] == '\n';
    text[*n] = 0;
    *out = text;
    text = NULL;
done:
    free(text);
    if (f)
        fclose(f);
    return st;
}

enum status checkpoint_manifest_read(const char *path, struct checkpoint_manifest **out,
                                     char why[MANIFEST_WHY_BYTES])
{
    enum status st = ST_OK;
    char *text = NULL;
    size_t n = 0;
    json_t *root = NULL;
    struct checkpoint_manifest *m = calloc(1, sizeof *m);
    TRY(m ? ST_OK : no_memory(why));
    st = ST_IO;
    for (int i = 0; i < CHECKPOINT_TRIES && st == ST_IO; i++)
        st = read_text(path, &text, &n, why);
    TRY(st);
    TRY(check_text(text, n, why));
    m->crc32c = (uint32_t)strtoul(text + n - TAIL_BYTES + strlen(",\"crc32c\":\""), NULL, 16);
    st = json_text_load(text, n, &root);
    if (st == ST_CORRUPT)
        TRY(explain_corrupt(why, "does not parse as JSON"));
    if (st == ST_OK)
        st = from_json(root, m, why);
    TRY(st == ST_NOMEM ? no_memory(why) : st);
    *out = m;
    m = NULL;
done:
    json_decref(root);
    free(text);
    checkpoint_manifest_free(m);
    return st;
}

uint64_t checkpoint_manifest_position(const struct checkpoint_manifest *m)
{
    struct net_place place = {.n_members = m->job.sync_mode == JOB_SYNC ? m->job.n_workers : 1};
    return m->progress.known ? m->progress.position
                             : net_place_position(&place, m->job.batch, m->step);
}

void checkpoint_manifest_free(struct checkpoint_manifest *m)
{
    if (!m)
        return;
    chunks_destroy(m->chunks);
    free(m->files);
    free(m->folder);
    free(m->shard);
    free(m->trained_on);
    manifest_progress_free(&m->progress);
    free(m);
}
