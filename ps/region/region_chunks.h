/* ps/region/region_chunks.h - the chunks of a region on all its servers: ps 0 reaches its own
 * chunks in its store, and other servers' chunks by letters (gate.h, region_server.h). Private to
 * ps/region.
 * Threads: any, without the region's lock unless stated otherwise.
 * Errors:  ST_NOMEM, which ends the process. */
#ifndef PS_REGION_REGION_CHUNKS_H
#define PS_REGION_REGION_CHUNKS_H
#include "ps/region/region_impl.h"
#include <stdbool.h>

enum status region_chunks_create(struct ps_region *r); /* creates the mail */
/* Logs the lack of memory, and ends this process. */
void region_chunks_no_memory(struct ps_region *r);
/* Order to make a version that waits. */
struct region_chunk_adoption {
    int chunk;
    int64_t version;
    struct outer_adoption how;
    bool alone; /* the version is made without an answer of the parent */
};
/* Makes a version that waits (outer_adopt). Another server receives an order and makes it a little
 * later, if the version still waits then. */
bool region_chunks_adopt(struct ps_region *r, struct run *run,
                         const struct region_chunk_adoption *w);
/* Sets the first versions of all chunks of the run. May be called repeatedly for a run; the
 * first call sends the other servers their values. Returns true if all chunks have a first
 * version. */
bool region_chunks_set_first(struct ps_region *r, struct run *run, int64_t version,
                             enum status *st);
/* Returns the run's step, or a slightly earlier one; -1: it has no values yet. */
int64_t region_chunks_step(struct ps_region *r, const struct run *run);
/* Reads the present values of this server's chunks into params. The places of other chunks, and
 * of chunks without a value, stay unchanged. */
void region_chunks_read_own(struct ps_region *r, float *params);
/* Reads the values of all servers' chunks. ST_CANCELLED: the region's exchange ends. */
enum status region_chunks_read(struct ps_region *r, float *params);

#endif
