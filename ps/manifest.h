/* ps/manifest.h - what names a checkpoint: one step of one job, with all servers' files.
 *
 * A checkpoint at step S of N servers is, in one folder that all servers share:
 *     weir-S-K-of-N.safetensors   server K's chunks and their optimizer slots (checkpoint.h)
 *     weir-S.json                 the manifest, written last: without it there is no checkpoint
 *     checkpoint                  TensorFlow's text file: the newest of them, and those kept
 * The manifest is one line of JSON that ends in ,"crc32c":"XXXXXXXX"}: the CRC-32C of the text
 * before.
 *
 * Owns:    a manifest that was read owns its lists and its table of parameters.
 * Threads: values; one at a time in one folder writes.
 * Errors:  writing: ST_IO, ST_NOMEM, logged. Reading: ST_NOT_FOUND, ST_IO, ST_CORRUPT, ST_NOMEM;
 *          not logged, a sentence in `why`. */
#ifndef PS_MANIFEST_H
#define PS_MANIFEST_H
#include "base/hosts.h"
#include "files/safetensors.h"
#include "net/job.h"

enum { MANIFEST_NAME_BYTES = 96, MANIFEST_WHY_BYTES = SAFETENSORS_WHY_BYTES + 128 };

/* How far training was at the step, and who had done it. */
struct ps_progress {
    int known;              /* 0: written before there was this; nothing below is set */
    uint64_t position;      /* samples that were read up to the step, of all passes */
    int n_members, *member; /* indices, ascending */
    struct hosts servers;   /* addresses; a server's number is its place */
};

struct ps_manifest {
    int64_t step;
    uint64_t generation;
    struct net_job job;
    struct chunks *chunks; /* what is trained; cut as it was then */
    int n_files;           /* servers */
    struct safetensors_written *files;
    struct ps_progress progress;
};

/* File names, without a folder. */
void ps_manifest_name(int64_t step, char name[MANIFEST_NAME_BYTES]);
void ps_manifest_file_name(int64_t step, int server, int n_servers, char name[MANIFEST_NAME_BYTES]);

/* Names the job in 64 hex digits and a 0: its parameters, optimizer, seed and mode. */
enum status ps_manifest_digest(const struct net_job *job, const struct chunks *chunks,
                               char hex[65]);

enum status ps_manifest_write(const char *folder, const struct ps_manifest *m);
enum status ps_manifest_read(const char *path, struct ps_manifest **out,
                             char why[MANIFEST_WHY_BYTES]);
void ps_manifest_free(struct ps_manifest *m); /* NULL is fine */

/* One of a folder's manifests. */
struct ps_manifest_place {
    int64_t step;
    uint64_t generation;
    int readable; /* 0: generation is unknown, why says what is wrong */
    char why[MANIFEST_WHY_BYTES];
};
/* All of the folder's, newest first: by generation, then by step, the unreadable where their steps
 * belong. *out is malloc'd. A folder that is not there has none. ST_INVALID, ST_IO,
 * ST_NOMEM; logged. */
enum status ps_manifest_list(const char *folder, struct ps_manifest_place **out, int *n);
/* After a manifest was written: writes `checkpoint`, and takes away what is more than `keep` (0:
 * all are kept), a manifest before its files, and files that no manifest names. */
enum status ps_manifest_tidy(const char *folder, int keep);

#endif
