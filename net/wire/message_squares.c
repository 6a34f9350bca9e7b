/* net/wire/message_squares.c - see message.h: what servers tell each other of a step's norm. */
#include "net/wire/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status message_squares_pack(const struct net_squares *squares, uint8_t **data, size_t *bytes)
{
    Weir__V1__SquaresRequest wire = WEIR__V1__SQUARES_REQUEST__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.generation = squares->generation;
    wire.ps0 = squares->ps0;
    wire.step = squares->step;
    wire.server = (uint32_t)squares->server;
    wire.n_squares = (size_t)squares->n;
    wire.squares = squares->square;
    return message_pack(&wire.base, data, bytes);
}

static enum status from_wire(const Weir__V1__SquaresRequest *wire, struct net_squares *out,
                             char why[MESSAGE_WHY_BYTES])
{
    if (message_check_protocol(wire->protocol, why) != ST_OK)
        return ST_INVALID;
    if (wire->generation == 0 || wire->step < 0 || wire->step > MESSAGE_MAX_STEP)
        return message_invalid(why, "the generation or the step is out of bounds");
    if (wire->server >= HOSTS_MAX)
        return message_invalid(why, "the server's number is out of bounds");
    if (wire->n_squares < 1 || wire->n_squares > CHUNKS_MAX_CHUNKS)
        return message_invalid(why, "there are no chunks, or more than there can be");
    double *square = malloc(wire->n_squares * sizeof *square);
    if (!square)
        return ST_NOMEM;
    memcpy(square, wire->squares, wire->n_squares * sizeof *square);
    *out = (struct net_squares){.generation = wire->generation,
                                .ps0 = wire->ps0,
                                .step = wire->step,
                                .server = (int)wire->server,
                                .n = (int)wire->n_squares,
                                .square = square};
    return ST_OK;
}

enum status message_squares_unpack(const uint8_t *data, size_t bytes, struct net_squares *squares,
                                   char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__SquaresRequest *wire = weir__v1__squares_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the SquaresRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = from_wire(wire, squares, why);
    weir__v1__squares_request__free_unpacked(wire, &b.allocator);
    return st;
}

enum status message_squares_reply_pack(const struct net_squares_reply *reply, uint8_t **data,
                                       size_t *bytes)
{
    Weir__V1__SquaresReply wire = WEIR__V1__SQUARES_REPLY__INIT;
    wire.answer = (Weir__V1__SquaresReply__Answer)reply->answer;
    wire.why = (char *)(uintptr_t)reply->why;
    return message_pack(&wire.base, data, bytes);
}

enum status message_squares_reply_unpack(const uint8_t *data, size_t bytes,
                                         struct net_squares_reply *reply,
                                         char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__SquaresReply *wire = weir__v1__squares_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the SquaresReply does not decode");
        return ST_PROTOCOL;
    }
    enum status st = ST_OK;
    if ((unsigned)wire->answer >= SQUARES_N_ANSWERS) {
        st = message_invalid(why, "the answer is none that there is");
    } else {
        reply->answer = (enum squares_answer)wire->answer;
        snprintf(reply->why, sizeof reply->why, "%.*s", (int)sizeof reply->why - 1, wire->why);
    }
    weir__v1__squares_reply__free_unpacked(wire, &b.allocator);
    return st;
}
