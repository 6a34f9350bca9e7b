/* net/wire/chunks.h - what is trained, cut into chunks: the same table on every side (invariant
 * I5). A chunk is a run of one parameter's elements, at most chunk_bytes long; or several whole
 * parameters that follow each other, have the same rule, and are together at most
 * CHUNKS_PACK_BYTES (and chunk_bytes) long: each takes the next in as long as it fits, so that
 * many small tensors move like few large ones. The table is a function of the signature and
 * chunk_bytes alone; the shard map (chunk -> server) of the table and the number of servers:
 * chunks in order of falling size, each to the server with fewest bytes so far, lowest number
 * first. Owns: its copies of the names. Threads: immutable once made. Errors: ST_INVALID (no
 * parameters, a bad name, an empty or too large shape, bounds), ST_NOMEM. */
#ifndef NET_WIRE_CHUNKS_H
#define NET_WIRE_CHUNKS_H
#include "base/shape.h"
#include "base/status.h"
#include "kernels/vector/dtype.h"
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

/* Returns 1 if a parameter may have this name: 1 to CHUNKS_MAX_NAME bytes of printable ASCII
 * without spaces. NULL: returns 0. */
int chunks_name_ok(const char *name);

enum net_param_rule {
    PARAM_TRAINED, /* the optimizer's update */
    PARAM_AVERAGE, /* a statistic: exponential average of the contributions, see optim_average */
};

struct net_param {
    const char *name;
    struct shape shape;
    enum net_param_rule rule;
    float keep;      /* PARAM_AVERAGE: share of the old value kept, 0..1 */
    int64_t n_elems; /* filled by chunks_create */
    int64_t first;   /* element offset in the flat block of all parameters; filled likewise */
    int first_chunk, n_chunks; /* that hold it, alone or with others */
};

/* --freeze: an average that keeps all of the old value. It has no slots, and nothing changes it. */
static inline int net_param_is_frozen(const struct net_param *p)
{
    return p->rule == PARAM_AVERAGE && p->keep >= 1;
}

struct net_chunk {
    int param;     /* the first it holds elements of */
    int64_t first; /* element offset in the flat block of all parameters */
    int64_t n_elems;
};

struct chunks {
    int n_params;
    struct net_param *params;
    int n_chunks;
    struct net_chunk *chunks;
    int64_t n_elems; /* of the flat block: parameters lie one after the other without gaps */
    int64_t chunk_bytes;
};

/* params: name, shape, rule, keep are read and copied. */
enum status chunks_create(const struct net_param *params, int n_params, int64_t chunk_bytes,
                          struct chunks **out);
void chunks_destroy(struct chunks *c); /* NULL is fine */

/* A good chunk_bytes: CHUNKS_DEFAULT_BYTES, or less, down to CHUNKS_PACK_BYTES, where a model would
 * not fall into about four chunks for each server. */
int64_t chunks_default_bytes(int64_t n_elems, int n_servers);

/* Fills server[n_chunks] with numbers from 0 to n_servers - 1. No two servers are further apart
 * than the largest chunk. */
enum status chunks_shard(const struct chunks *c, int n_servers, int *server);
/* Likewise, from the map of n_old servers: prev[n_new] says which of them each of the new ones was,
 * -1: none. Within the same bound, a chunk whose server stays is moved only if it has to be:
 * nothing where the loads are near enough, else little more than what servers have above the
 * average. A function of its arguments. */
enum status chunks_reshard(const struct chunks *c, int n_old, const int *old_map, const int *prev,
                           int n_new, int *server);

/* What a chunk's contributions, or versions, are sent in, of a job that sends them in d: averages
 * as floats where d rounds to a scale that a block shares, and what that makes no shorter. */
enum dtype chunks_dtype(const struct chunks *c, int chunk, enum dtype d);
/* A block of memory for all contributions, each encoded in d by itself: its bytes, and where in it
 * the chunk's lie. Without a shared scale they lie as the flat block's elements do. */
size_t chunks_wire_bytes(const struct chunks *c, enum dtype d);
size_t chunks_wire_at(const struct chunks *c, enum dtype d, int chunk);

/* Compares two tables. ST_OK, or ST_MISMATCH with a sentence that names the first parameter that
 * differs, and how: "parameter 1 'b': shape 64 on the servers, 32 on the worker". */
enum status chunks_compare(const struct chunks *servers, const struct chunks *worker, char *why,
                           size_t why_bytes);

#endif
