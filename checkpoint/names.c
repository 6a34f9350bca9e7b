/* checkpoint/names.c - see names.h. A name is accepted only if the code here would write exactly
 * the same name: a number with a sign, with leading zeros or out of bounds belongs to a foreign
 * file. */
#include "checkpoint/names.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char old_prefix[] = MANIFEST_OLD_PREFIX;

int checkpoint_names_compare(struct checkpoint_id a, struct checkpoint_id b)
{
    if (a.generation != b.generation)
        return a.generation < b.generation ? -1 : 1;
    return a.step < b.step ? -1 : a.step > b.step;
}

/* Writes weir-E.G-S, or weir-S in epoch 0; returns its length. */
static int stem(struct checkpoint_id id, char name[MANIFEST_NAME_BYTES])
{
    uint64_t epoch = checkpoint_term_epoch(id.generation);
    if (epoch == 0)
        return snprintf(name, MANIFEST_NAME_BYTES, "weir-%" PRId64, id.step);
    return snprintf(name, MANIFEST_NAME_BYTES, "weir-%" PRIu64 ".%" PRIu64 "-%" PRId64, epoch,
                    id.generation - checkpoint_term(epoch, 0), id.step);
}

void checkpoint_manifest_name(struct checkpoint_id id, char name[MANIFEST_NAME_BYTES])
{
    int n = stem(id, name);
    snprintf(name + n, MANIFEST_NAME_BYTES - (size_t)n, ".json");
}

void checkpoint_manifest_old_name(struct checkpoint_id id, char name[MANIFEST_NAME_BYTES])
{
    char plain[MANIFEST_NAME_BYTES];
    checkpoint_manifest_name(id, plain);
    snprintf(name, MANIFEST_NAME_BYTES, "%s%.*s", old_prefix,
             MANIFEST_NAME_BYTES - (int)sizeof old_prefix, plain);
}

void checkpoint_manifest_file_name(struct checkpoint_id id, int server, int n_servers,
                                   char name[MANIFEST_NAME_BYTES])
{
    int n = stem(id, name);
    snprintf(name + n, MANIFEST_NAME_BYTES - (size_t)n, "-%d-of-%d.safetensors", server, n_servers);
}

static bool parse_stem(const char *name, struct checkpoint_id *id)
{
    uint64_t epoch, n;
    int64_t step;
    if (sscanf(name, "weir-%8" SCNu64 ".%8" SCNu64 "-%18" SCNd64, &epoch, &n, &step) == 3) {
        *id = (struct checkpoint_id){checkpoint_term(epoch, n), step};
        return epoch > 0 && epoch <= TERM_MAX_EPOCH && n <= TERM_MAX_EPOCH && step >= 0;
    }
    *id = (struct checkpoint_id){0, 0};
    return sscanf(name, "weir-%18" SCNd64, &id->step) == 1 && id->step >= 0;
}

/* Returns true if the name is `own`, or (*temporary) that of an unfinished `own`. */
static bool is_own(const char *name, const char *own, bool *temporary)
{
    size_t n = strlen(own), length = strlen(name);
    *temporary = length > n + 5 && name[n] == '.' && !strcmp(name + length - 4, ".tmp");
    return strncmp(name, own, n) == 0 && (!name[n] || *temporary);
}

static bool is_temporary_of(const char *name)
{
    static const char *const of[] = {"checkpoint.", "generation.", "servers.",
                                     "lease-",      "folder-id.",  "best."};
    size_t n = strlen(name);
    bool ours = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        ours |= strncmp(name, of[i], strlen(of[i])) == 0;
    return ours && n > 4 && !strcmp(name + n - 4, ".tmp");
}

void checkpoint_name_parse(const char *name, struct checkpoint_name *out)
{
    char own[MANIFEST_NAME_BYTES];
    bool temporary = false;
    *out = (struct checkpoint_name){.server = -1};
    if (is_temporary_of(name)) {
        out->kind = CHECKPOINT_NAME_TEMPORARY_OF;
        return;
    }
    out->old = strncmp(name, old_prefix, strlen(old_prefix)) == 0;
    name += out->old ? strlen(old_prefix) : 0;
    if (!parse_stem(name, &out->id))
        return;
    checkpoint_manifest_name(out->id, own);
    if (is_own(name, own, &temporary)) {
        out->kind = temporary ? CHECKPOINT_NAME_TEMPORARY : CHECKPOINT_NAME_MANIFEST;
        return;
    }
    const char *of = strstr(name, "-of-");
    while (of && of > name && of[-1] != '-')
        of--;
    if (!of || out->old || sscanf(of, "%6d-of-%6d", &out->server, &out->n_servers) != 2)
        return;
    checkpoint_manifest_file_name(out->id, out->server, out->n_servers, own);
    if (is_own(name, own, &temporary))
        out->kind = temporary ? CHECKPOINT_NAME_TEMPORARY : CHECKPOINT_NAME_FILE;
}
