/* net/wire/chunks.h - cuts the parameters into chunks. The table of chunks is the same in all
 * workers and servers (invariant I5). A chunk is either a run of one parameter's elements, at most
 * chunk_bytes long, or several consecutive whole parameters with the same rule and factors,
 * together at most CHUNKS_PACK_BYTES (and chunk_bytes) long. A small parameter is added to the
 * previous chunk if it fits there, so many small tensors cost no more than a few large ones.
 *
 * The table is a function of the signature and chunk_bytes alone. The shard map (chunk -> server)
 * is a function of the table and the number of servers. It assigns the chunks in order of falling
 * size, each to the server with the fewest bytes so far; if several servers have the fewest, to the
 * lowest number. Buckets of tables have a rule of their own (tables.h).
 * Owns:    its copies of the names.
 * Threads: any; a table never changes after its creation.
 * Errors:  ST_INVALID (no parameters, a bad name, an empty or too large shape, bounds),
 *          ST_NOMEM. */
#ifndef NET_WIRE_CHUNKS_H
#define NET_WIRE_CHUNKS_H
#include "base/shape.h"
#include "base/status.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHUNKS_MAX_PARAMS = 65536,
    CHUNKS_MAX_NAME = 255, /* bytes, printable ASCII without spaces */
    CHUNKS_MAX_CHUNKS = 1 << 20,
    CHUNKS_MIN_BYTES = 4096, /* bounds of chunk_bytes; a multiple of 4 */
    CHUNKS_MAX_BYTES = 4 << 20,
    CHUNKS_DEFAULT_BYTES = 1 << 20,
    CHUNKS_PACK_BYTES = 64 << 10,
};

/* Returns true if a parameter may have this name: 1 to CHUNKS_MAX_NAME bytes of printable
 * ASCII without spaces. NULL: returns false. */
bool chunks_name_ok(const char *name);

enum net_param_rule {
    PARAM_TRAINED, /* updated by the optimizer */
    PARAM_AVERAGE, /* a statistic: exponential average of the contributions, see optim_average */
};

struct net_param {
    const char *name;
    struct shape shape;
    enum net_param_rule rule;
    float keep; /* PARAM_AVERAGE: fraction of the old value that a step keeps, 0..1 */
    /* PARAM_TRAINED: the optimizer's factors for this parameter are set; otherwise they are 1, and
     * chunks_create fills them */
    bool has_factors;
    struct optim_factors factors;
    int64_t n_elems;           /* filled by chunks_create */
    int64_t first;             /* element offset in the flat block of all parameters; filled by
                                  chunks_create */
    int first_chunk, n_chunks; /* chunks that contain the parameter (and perhaps others) */
};

/* Returns true for a parameter of --freeze: a PARAM_AVERAGE that keeps all of the old value. Such a
 * parameter has no slots, and never changes. */
static inline bool net_param_is_frozen(const struct net_param *p)
{
    return p->rule == PARAM_AVERAGE && p->keep >= 1;
}

struct net_chunk {
    int param;     /* first parameter whose elements the chunk contains; -1: a bucket (tables.h) */
    int table;     /* bucket: index of its table */
    int64_t first; /* element offset in the flat block of all parameters */
    int64_t n_elems; /* bucket: 0 */
};

struct net_table;
struct chunks {
    int n_params;
    struct net_param *params;
    int n_chunks; /* number of all chunks */
    int n_dense;  /* number of chunks with elements of parameters; buckets follow */
    struct net_chunk *chunks;
    int n_tables;
    struct net_table *tables;
    int64_t n_elems; /* elements of the flat block, in which parameters follow each other without
                        gaps */
    int64_t chunk_bytes;
};

/* Makes the table. params: name, shape, rule, keep and factors are read and copied. */
enum status chunks_create(const struct net_param *params, int n_params, int64_t chunk_bytes,
                          struct chunks **out);
/* Makes an equal table of chunks. */
enum status chunks_copy(const struct chunks *from, struct chunks **out);
void chunks_destroy(struct chunks *c); /* NULL is fine */
/* Returns true if a parameter has factors other than 1. */
bool chunks_have_factors(const struct chunks *c);

/* Returns a suitable chunk_bytes: CHUNKS_DEFAULT_BYTES, or less, down to CHUNKS_PACK_BYTES, if
 * the model would otherwise not yield about four chunks for each server. */
int64_t chunks_default_bytes(int64_t n_elems, int n_servers);

/* Fills server[n_chunks] with the index of each chunk's server. The loads of two servers differ by
 * at most the largest chunk. */
enum status chunks_shard(const struct chunks *c, int n_servers, int *server);
/* Fills server[n_chunks] from `old_map`, the map of n_old servers. prev[n_new]: old index of each
 * new server; -1: the server is new. The loads differ by at most the bound of chunks_shard. If the
 * loads meet that bound without moves, no chunk of a remaining server moves. Otherwise few more
 * bytes move than the servers have above the average load. The result depends only on the
 * arguments. */
enum status chunks_reshard(const struct chunks *c, int n_old, const int *old_map, const int *prev,
                           int n_new, int *server);

/* Returns the dtype in which a chunk's contributions, or versions, are sent if the job sends them
 * in d. The result is fp32 for chunks that d does not make shorter, and for averages
 * (PARAM_AVERAGE) if d stores one scale for all values of a block. */
enum dtype chunks_dtype(const struct chunks *c, int chunk, enum dtype d);
/* Returns the size of a block of memory for the contributions of all chunks, each chunk encoded in
 * d by itself; chunks_wire_at returns the offset of a chunk in that block. If d has no scales, the
 * chunks are stored in the same order as in the flat block. */
size_t chunks_wire_bytes(const struct chunks *c, enum dtype d);
size_t chunks_wire_at(const struct chunks *c, enum dtype d, int chunk);

/* Compares two tables. Returns ST_OK, or ST_MISMATCH with a sentence that names the first
 * parameter that differs, and how: "parameter 1 'b': shape 64 on the servers, 32 on the worker". */
enum status chunks_compare(const struct chunks *servers, const struct chunks *worker, char *why,
                           size_t why_bytes);

#endif
