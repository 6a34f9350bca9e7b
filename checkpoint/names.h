/* checkpoint/names.h - terms, and the names of a checkpoint's files, which contain them.
 *
 * A term (the number of a generation) is epoch << 24 | n: the epoch is recorded in the folder
 * before it is used (folder.h), and n is counted in memory. Jobs of versions before epochs have
 * epoch 0.
 *     weir-E.G-S-K-of-N.safetensors   server K's file at step S, of generation G in epoch E
 *     weir-E.G-S.json                 the manifest
 *     old-weir-E.G-S.json             a manifest about to be removed; its files keep their names
 *     weir-S-K-of-N.safetensors, weir-S.json, old-weir-S.json    the same in epoch 0
 * Because the term is in the name, no two files have the same name, so a file that is renamed late,
 * by a process that was paused or whose disk hung, replaces nothing. The contents of the manifests
 * decide which checkpoint is the newest: by term, then by step.
 *
 * Threads: values.
 * Errors:  none. */
#ifndef CHECKPOINT_NAMES_H
#define CHECKPOINT_NAMES_H
#include "base/term.h"
#include <stdbool.h>
#include <stdint.h>

enum { MANIFEST_NAME_BYTES = 96 };
#define MANIFEST_OLD_PREFIX "old-"

static inline uint64_t checkpoint_term(uint64_t epoch, uint64_t n)
{
    return epoch << TERM_BITS | n;
}

static inline uint64_t checkpoint_term_epoch(uint64_t generation)
{
    return generation >> TERM_BITS;
}

struct checkpoint_id {
    uint64_t generation; /* term; 0: none, or not known (a name in epoch 0) */
    int64_t step;
};
/* Compares two checkpoints; returns < 0 if a is older than b. */
int checkpoint_names_compare(struct checkpoint_id a, struct checkpoint_id b);

/* Writes the name of a file, without a folder; the next two functions do so for other files. */
void checkpoint_manifest_name(struct checkpoint_id id, char name[MANIFEST_NAME_BYTES]);
void checkpoint_manifest_old_name(struct checkpoint_id id, char name[MANIFEST_NAME_BYTES]);
void checkpoint_manifest_file_name(struct checkpoint_id id, int server, int n_servers,
                                   char name[MANIFEST_NAME_BYTES]);

enum checkpoint_name_kind {
    CHECKPOINT_NAME_OTHER,        /* no file of a checkpoint */
    CHECKPOINT_NAME_MANIFEST,     /* manifest; `old`: it is about to be removed */
    CHECKPOINT_NAME_FILE,         /* file of a server */
    CHECKPOINT_NAME_TEMPORARY,    /* unfinished file of a server, or unfinished manifest */
    CHECKPOINT_NAME_TEMPORARY_OF, /* unfinished file of another kind in the folder */
};

struct checkpoint_name {
    enum checkpoint_name_kind kind;
    struct checkpoint_id id; /* id in the name; generation 0: a name of epoch 0 */
    bool old;                /* the manifest is about to be removed */
    int server, n_servers;   /* server -1: not a server's file */
};
/* Parses a number of at most `digits` digits in a name, and returns the text after it; NULL: the
 * text does not begin with a number that Weir could have written (it has, for example, a sign or a
 * leading zero). */
const char *checkpoint_name_number(const char *text, int digits, uint64_t *out);
/* Parses a name, without looking at the file. */
void checkpoint_name_parse(const char *name, struct checkpoint_name *out);

#endif
