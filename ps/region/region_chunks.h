/* ps/region/region_chunks.h - the chunks of a region on all its servers: those of this one, ps 0,
 * in its store, those of other servers by letters (gate.h, region_server.h). Private to ps/region.
 * Threads: any, without the region's lock unless stated otherwise.
 * Errors:  ST_NOMEM, which ends the process. */
#ifndef PS_REGION_REGION_CHUNKS_H
#define PS_REGION_REGION_CHUNKS_H
#include "ps/region/region_impl.h"
#include <stdbool.h>

enum status region_chunks_create(struct ps_region *r); /* creates the mail */
/* Logs the lack of memory, and ends this process. */
void region_chunks_no_memory(struct ps_region *r);
/* How a version that waits is made. */
struct region_chunk_adoption {
    int chunk;
    int64_t version;
    struct outer_adoption how;
    bool alone; /* the parent has not answered */
};
/* Makes a version that waits (outer_adopt). On another server it is made a little later, if it
 * still waits. */
bool region_chunks_adopt(struct ps_region *r, struct run *run,
                         const struct region_chunk_adoption *w);
/* Sets the first versions of all chunks of the run; other servers receive them once. Returns
 * true if all chunks have one. */
bool region_chunks_set_first(struct ps_region *r, struct run *run, int64_t version,
                             enum status *st);
/* Returns the run's step, or a slightly earlier one; -1: it has no values yet. */
int64_t region_chunks_step(struct ps_region *r, const struct run *run);
/* Reads the present values of this server's chunks into params; it leaves other chunks, and those
 * without a value, unchanged. */
void region_chunks_read_own(struct ps_region *r, float *params);
/* Reads the values of all servers' chunks. ST_CANCELLED. */
enum status region_chunks_read(struct ps_region *r, float *params);

#endif
