/* net/wire/message_squares.c - see message.h: the terms of one server's chunks in the norm of a
 * step's mean gradient. */
#include "net/wire/message_impl.h"

static const char no_step[] = "the generation or the step is out of bounds";

static const char *problem(const void *message)
{
    return ((const Weir__V1__SquaresRequest *)message)->generation == 0 ? no_step : NULL;
}

#define OF Weir__V1__SquaresRequest, struct net_squares
static const struct message_row rows[] = {
    ANY(OF, generation, generation),
    ANY(OF, ps0, ps0),
    NUMBER(OF, step, step, 0, MESSAGE_MAX_STEP, no_step),
    NUMBER(OF, server, server, 0, HOSTS_MAX - 1, "the server's number is out of bounds"),
    ARRAY(OF, squares, n, square, 1, CHUNKS_MAX_CHUNKS, "the request has no chunks, or too many"),
};
const struct message_type message_squares = {MESSAGE_TYPE(OF, squares_request, rows),
                                             .problem = problem};
#undef OF

#define OF Weir__V1__SquaresReply, struct net_squares_reply
static const struct message_row reply_rows[] = {
    NUMBER(OF, answer, answer, 0, SQUARES_N_ANSWERS - 1, "the answer is unknown"),
    CUT(OF, why, why),
};
const struct message_type message_squares_reply = {MESSAGE_TYPE(OF, squares_reply, reply_rows)};
