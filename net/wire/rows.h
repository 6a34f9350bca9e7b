/* net/wire/rows.h - the payload of a piece to a bucket of a table (tables.h):
 *
 *   PUSH: rows keys | reads keys | rows * dim values     keys: 64-bit little-endian, ascending
 *   PULL: reads keys
 *
 * The first keys have a gradient, of dim values in the piece's dtype. The sender receives the rows
 * of the read keys with the answer. A contribution of weight 0 has no gradients.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  ST_PROTOCOL, with the reason in `why`. */
#ifndef NET_WIRE_ROWS_H
#define NET_WIRE_ROWS_H
#include "net/wire/frame.h"
#include "net/wire/tables.h"

enum { ROWS_WHY_BYTES = 160 };

struct rows_parts {
    struct net_payload keys;   /* keys of the gradients */
    struct net_payload reads;  /* keys to read */
    struct net_payload values; /* gradients, in the order of `keys` */
};

/* Finds the parts of the payload of a PUSH or PULL to a bucket. Refuses counts above a bucket's
 * share of step_rows, and a payload that does not have exactly the bytes that follow from them.
 * Does not read the payload. The caller has checked the piece's dtype, which has no blocks. */
enum status rows_split(const struct chunks *c, const struct net_piece *piece,
                       struct rows_parts *out, char why[ROWS_WHY_BYTES]);

#endif
