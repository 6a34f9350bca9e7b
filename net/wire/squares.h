/* net/wire/squares.h - the share of one server's chunks in the norm of a step's mean gradient,
 * which it sends to every other server of the generation that has chunks.
 * Owns:    a request its list.
 * Threads: values.
 * Errors:  none. */
#ifndef NET_WIRE_SQUARES_H
#define NET_WIRE_SQUARES_H
#include "net/wire/control.h"
#include <stdint.h>

struct net_squares {
    uint64_t generation, ps0; /* > 0; as in struct net_plan */
    int64_t step;             /* >= 0 */
    int server;               /* its number in the plan */
    int n;                    /* > 0: its chunks */
    double *square;           /* [n] sum of squares of the mean gradient of each, ascending */
};

enum squares_answer {
    SQUARES_TAKEN,   /* accepted, now or before */
    SQUARES_LATER,   /* not now: the sender must repeat it soon */
    SQUARES_OVER,    /* the generation is over here: the sender must stop */
    SQUARES_REFUSED, /* they do not fit; `why` contains the reason */
    SQUARES_N_ANSWERS
};

struct net_squares_reply {
    enum squares_answer answer;
    char why[CONTROL_TEXT_BYTES]; /* LATER, REFUSED: a sentence */
};

#endif
