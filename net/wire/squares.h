/* net/wire/squares.h - the squares that a server adds to the norm of a step's mean gradient, one
 * for each of its chunks. It sends them to every other server of the generation that has chunks.
 * Owns:    a request owns its list.
 * Threads: plain values without a lock.
 * Errors:  none. */
#ifndef NET_WIRE_SQUARES_H
#define NET_WIRE_SQUARES_H
#include "net/wire/control.h"
#include <stdint.h>

struct net_squares {
    uint64_t generation, ps0; /* > 0; see struct net_plan */
    int64_t step;             /* >= 0 */
    int server;               /* number of the server in the plan */
    int n;                    /* number of its chunks, > 0 */
    double *square;           /* [n] sum of squares of the mean gradient, one for each chunk */
};

enum squares_answer {
    SQUARES_TAKEN,   /* accepted, now or before */
    SQUARES_LATER,   /* the server cannot accept them yet: the sender must repeat them soon */
    SQUARES_OVER,    /* the generation is over at the receiver: the sender must stop */
    SQUARES_REFUSED, /* the squares do not fit; `why` contains the reason */
    SQUARES_N_ANSWERS
};

struct net_squares_reply {
    enum squares_answer answer;
    char why[CONTROL_TEXT_BYTES]; /* LATER, REFUSED: a sentence */
};

#endif
