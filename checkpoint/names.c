/* checkpoint/names.c - see names.h. A name is accepted only if the code here would write exactly
 * the same name: a number with a sign, with leading zeros or out of bounds belongs to a foreign
 * file. */
#include "checkpoint/names.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "weir-", old_prefix[] = MANIFEST_OLD_PREFIX;

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
        return snprintf(name, MANIFEST_NAME_BYTES, "%s%" PRId64, prefix, id.step);
    return snprintf(name, MANIFEST_NAME_BYTES, "%s%" PRIu64 ".%" PRIu64 "-%" PRId64, prefix, epoch,
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

const char *checkpoint_name_number(const char *text, int digits, uint64_t *out)
{
    int n = 0;
    for (*out = 0; n < digits && text[n] >= '0' && text[n] <= '9'; n++)
        *out = *out * 10 + (uint64_t)(text[n] - '0');
    return n == 0 || (n > 1 && text[0] == '0') ? NULL : text + n;
}

/* Returns the text after a number and the character `end`, or NULL if the text does not begin
 * with these. */
static const char *skip_number(const char *text, int digits, char end, uint64_t *out)
{
    const char *after = text ? checkpoint_name_number(text, digits, out) : NULL;
    return after && *after == end ? after + 1 : NULL;
}

/* Returns the text after E.G-S or S, or NULL if the text does not begin with these. */
static const char *parse_stem(const char *text, struct checkpoint_id *id)
{
    uint64_t epoch, n, step;
    const char *rest = skip_number(skip_number(text, 8, '.', &epoch), 8, '-', &n);
    if (rest && (epoch == 0 || epoch > TERM_MAX_EPOCH || n > TERM_MAX_EPOCH))
        return NULL;
    uint64_t generation = rest ? checkpoint_term(epoch, n) : 0;
    rest = checkpoint_name_number(rest ? rest : text, 18, &step);
    if (rest)
        *id = (struct checkpoint_id){generation, (int64_t)step};
    return rest;
}

/* Returns true if the name ends with `own`, or if it is the temporary name of an unfinished file
 * (*temporary is set) whose final name ends with `own`. */
static bool is_own(const char *end, const char *own, bool *temporary)
{
    size_t n = strlen(own), length = strlen(end);
    *temporary = length > n + 5 && end[n] == '.' && !strcmp(end + length - 4, ".tmp");
    return strncmp(end, own, n) == 0 && (!end[n] || *temporary);
}

static bool is_temporary_of(const char *name)
{
    static const char *const of[] = {"checkpoint.", "generation.", "servers.",
                                     "lease-",      "folder-id.",  "best."};
    size_t n = strlen(name);
    if (n <= 4 || strcmp(name + n - 4, ".tmp") != 0)
        return false;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strncmp(name, of[i], strlen(of[i])) == 0)
            return true;
    return false;
}

void checkpoint_name_parse(const char *name, struct checkpoint_name *out)
{
    uint64_t server, n;
    bool temporary = false;
    *out = (struct checkpoint_name){.server = -1};
    if (is_temporary_of(name)) {
        out->kind = CHECKPOINT_NAME_TEMPORARY_OF;
        return;
    }
    out->old = strncmp(name, old_prefix, strlen(old_prefix)) == 0;
    name += out->old ? strlen(old_prefix) : 0;
    const char *rest = strncmp(name, prefix, strlen(prefix)) == 0
                           ? parse_stem(name + strlen(prefix), &out->id)
                           : NULL;
    if (!rest)
        return;
    if (is_own(rest, ".json", &temporary)) {
        out->kind = temporary ? CHECKPOINT_NAME_TEMPORARY : CHECKPOINT_NAME_MANIFEST;
        return;
    }
    rest = *rest == '-' && !out->old ? checkpoint_name_number(rest + 1, 6, &server) : NULL;
    if (!rest || strncmp(rest, "-of-", 4) != 0)
        return;
    rest = checkpoint_name_number(rest + 4, 6, &n);
    if (!rest || !is_own(rest, ".safetensors", &temporary))
        return;
    out->kind = temporary ? CHECKPOINT_NAME_TEMPORARY : CHECKPOINT_NAME_FILE;
    out->server = (int)server;
    out->n_servers = (int)n;
}
