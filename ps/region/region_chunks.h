/* ps/region/region_chunks.h - the chunks of a region on whatever servers they are: those of this
 * one, ps 0, in its store, those of others by letters (gate.h, region_server.h). Private to
 * ps/region. Threads: any, without the region's lock but where it says so. Errors: ST_NOMEM, ends
 * the process.
 */
#ifndef PS_REGION_REGION_CHUNKS_H
#define PS_REGION_REGION_CHUNKS_H
#include "ps/region/region_impl.h"

enum status region_chunks_create(struct ps_region *r); /* the mail */
void region_chunks_no_memory(struct ps_region *r);     /* says so, and has this process end */
/* What becomes of a version that waits. */
struct region_chunk_adoption {
    int chunk;
    int64_t version;
    struct outer_adoption how;
    int alone; /* the parent has not answered */
};
/* As outer_adopt. Another server's is made a little later, if it still waits. */
int region_chunks_adopt(struct ps_region *r, struct run *run,
                        const struct region_chunk_adoption *w);
/* The first versions of all chunks of the run, which others are sent once. 1: all have one. */
int region_chunks_set_first(struct ps_region *r, struct run *run, int64_t version, enum status *st);
/* The step at which the run is, or a little before; -1: it has no values yet. */
int64_t region_chunks_step(struct ps_region *r, const struct run *run);
/* What this server's chunks are now; of others, and where there is no value yet, it stays. */
void region_chunks_read_own(struct ps_region *r, float *params);
/* Likewise of all servers. ST_CANCELLED. */
enum status region_chunks_read(struct ps_region *r, float *params);

#endif
