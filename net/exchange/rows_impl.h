/* net/exchange/rows_impl.h - the rows of an exchange's buckets: the payload of each request, and
 * the rows of its answer. Private to the exchange's files. Threads: a bucket's state belongs to the
 * caller while the bucket has no request, and otherwise to the thread that processes its answer. */
#ifndef NET_EXCHANGE_ROWS_IMPL_H
#define NET_EXCHANGE_ROWS_IMPL_H
#include "net/exchange/exchange_impl.h"

struct exchange_rows {
    /* Payload of the last request (net/wire/rows.h). It stays unchanged until the answer, because
     * the request may be sent again. */
    uint8_t *request;
    uint8_t *own; /* malloc'd memory; NULL: none */
    size_t own_bytes;
    /* Range of the exchange's segment, in which servers on this host read the payload: its offset,
     * and the bytes that are reserved; at 0: no range. */
    size_t at, reserved;
    int dim;
    const uint64_t *reads; /* keys in `request` whose rows the answer has */
    size_t n_reads;
    float *values; /* rows of the answer */
    size_t n_values;
};

/* Returns the segment for contributions of dtype `d`: the parameters first, and then a range for
 * each bucket (tables_wire_bytes), whose memory is reserved on first use. If there is no room for
 * the ranges, it has only the parameters. NULL, with the reason: there is no segment. */
struct segment *exchange_rows_segment(const struct chunks *chunks, enum dtype d,
                                      char why[SEGMENT_WHY_BYTES]);
/* Makes x->rows, without rows. */
enum status exchange_rows_create(struct net_exchange *x);
void exchange_rows_destroy(struct net_exchange *x);
/* Forgets the rows of a bucket, whose next request has no read keys. */
void exchange_rows_forget(struct net_exchange *x, int chunk);
/* Checks that an answer has exactly the rows that were requested; otherwise logs the difference and
 * returns ST_PROTOCOL. */
enum status exchange_rows_check(const struct link *l, const struct net_piece *p);
/* Checks that the rows of an answer, which were decoded to `values`, are finite. */
enum status exchange_rows_check_values(const struct link *l, const struct net_piece *p);
static inline struct exchange_rows *exchange_rows_of(const struct net_exchange *x, int chunk)
{
    return &x->rows[chunk - x->n_dense];
}

#endif
