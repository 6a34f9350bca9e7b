/* net/wire/rows.c - see rows.h. The counts are bounded first: tables_add has checked that a payload
 * with the largest counts fits a piece, so that no size overflows. */
#include "net/wire/rows.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static enum status refuse(char why[ROWS_WHY_BYTES], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static enum status refuse(char why[ROWS_WHY_BYTES], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, ROWS_WHY_BYTES, fmt, ap);
    va_end(ap);
    return ST_PROTOCOL;
}

enum status rows_split(const struct chunks *c, const struct net_piece *piece,
                       struct rows_parts *out, char why[ROWS_WHY_BYTES])
{
    const struct net_table *t = tables_of(c, (int)piece->chunk);
    int bucket = (int)piece->chunk - t->first_chunk;
    int64_t share = tables_share(t, t->step_rows);
    uint32_t most = piece->rows > piece->reads ? piece->rows : piece->reads;
    bool has_gradients = piece->kind == PIECE_PUSH && piece->weight != 0;
    if (most > share)
        return refuse(why,
                      "table '%.60s', bucket %d: %" PRIu32 " keys, at most %" PRId64
                      " (step_rows=%" PRId64 ")",
                      t->name, bucket, most, share, t->step_rows);
    if (piece->rows > 0 && !has_gradients)
        return refuse(why,
                      "table '%.60s', bucket %d: only a PUSH with a weight has keys with gradients",
                      t->name, bucket);
    size_t keys = piece->rows * sizeof(uint64_t), reads = piece->reads * sizeof(uint64_t);
    size_t values = dtype_bytes(piece->dtype, piece->rows * (size_t)t->dim);
    if (piece->payload.bytes != keys + reads + values)
        return refuse(why, "table '%.60s', bucket %d: payload of %zu bytes, not %zu", t->name,
                      bucket, piece->payload.bytes, keys + reads + values);
    *out = (struct rows_parts){.keys = payload_part(&piece->payload, 0, keys),
                               .reads = payload_part(&piece->payload, keys, reads),
                               .values = payload_part(&piece->payload, keys + reads, values)};
    return ST_OK;
}
