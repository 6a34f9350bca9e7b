/* net/exchange/line.h - measures the speed of the line to a server, and chooses the number
 * format that suits it (--wire_dtype=auto, docs/design/exchange.md).
 * Owns:    nothing.
 * Threads: a call blocks only its own thread.
 * Errors:  those of net_unary_call, and ST_INVALID (the reply is not a status); not logged: `why`
 *          receives a sentence. */
#ifndef NET_EXCHANGE_LINE_H
#define NET_EXCHANGE_LINE_H
#include "kernels/vector/dtype.h"
#include "net/wire/status.h"
#include <stdbool.h>

struct net_line {
    double rtt_s;
    /* rate in each direction; the two directions are measured one after the other */
    double bytes_per_s;
    bool has_job;     /* the server already has a job that is not over, and nothing was measured */
    bool is_loopback; /* the address is a loopback address, so the rate was not measured */
};
/* Requests the server's status several times, with growing requests and replies: at most 2.4 MB
 * in each direction. After two seconds it starts no further request. */
enum status net_line_measure(const char *addr, struct net_line *out, char why[CONTROL_TEXT_BYTES]);

/* Load that an exchange puts on the line: its size in fp32, and the steps between two exchanges. */
struct net_line_use {
    double bytes;  /* size in fp32, in each direction */
    int steps;     /* steps of a member from one exchange to the next */
    double step_s; /* duration of one step */
};
enum { LINE_TEXT_BYTES = 256 };
/* Returns the first of fp32, int8 and int4 in which an exchange lasts at most a fifth of the time
 * of the steps between two exchanges; int4 if none is fast enough. Returns fp32 for a line as fast
 * as a local network (round trip below 5 ms, at least 100 Mbit/s). text: the reason, for example
 * "int8: 94 Mbit/s, ...". */
enum dtype net_line_choose(const struct net_line *l, const struct net_line_use *use,
                           char text[LINE_TEXT_BYTES]);

#endif
