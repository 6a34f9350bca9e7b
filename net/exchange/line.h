/* net/exchange/line.h - how fast the line to a server is, and which number format that asks for
 * (--wire_dtype=auto, docs/design/exchange.md).
 * Owns:    nothing. Threads: a call blocks its own thread alone.
 * Errors:  as net_unary_call, and ST_INVALID (not a status); not logged, a sentence in `why`. */
#ifndef NET_EXCHANGE_LINE_H
#define NET_EXCHANGE_LINE_H
#include "kernels/vector/dtype.h"
#include "net/wire/status.h"

struct net_line {
    double rtt_s;
    double bytes_per_s; /* each way, one way after the other */
    int has_job;        /* the server has a job already, not over; then nothing was measured */
    int is_loopback;    /* the address says so: its rate was not measured */
};
/* Asks for the server's status some times, with more and more bytes there and back: 2.4 MB each way
 * at most, and nothing after two seconds but what is under way then. */
enum status net_line_measure(const char *addr, struct net_line *out, char why[CONTROL_TEXT_BYTES]);

/* An exchange: what crosses in fp32 each way, and what it comes after. */
struct net_line_use {
    double bytes;  /* of fp32, each way */
    int steps;     /* of a member, from one exchange to the next */
    double step_s; /* that each of these takes */
};
enum { LINE_TEXT_BYTES = 192 };
/* Of fp32, int8 and int4 the first in which an exchange takes no more than a fifth of the time that
 * the steps take; int4, where none does. On a line like that of a local network (a round trip below
 * 5 ms, 100 Mbit/s and more): fp32. text: why, as "int8: 94 Mbit/s, ...". */
enum dtype net_line_choose(const struct net_line *l, const struct net_line_use *use,
                           char text[LINE_TEXT_BYTES]);

#endif
