/* tests/net_wire.h - a message between a writer and a reader: a test encodes the message and reads
 * it again; a refusal must have a reason. */
#ifndef TESTS_NET_WIRE_H
#define TESTS_NET_WIRE_H
#include "net/wire/message.h"
#include "tests/check.h"
#include <stdlib.h>

struct wire {
    uint8_t *data; /* allocated by message_pack, freed by wire_end */
    size_t bytes;
    char why[MESSAGE_WHY_BYTES];
};

/* Frees the encoded message. Returns `st`, the status of the reader. */
static inline enum status wire_end(struct wire *w, enum status st)
{
    free(w->data);
    assert_true(st == ST_OK || w->why[0]);
    return st;
}

/* Sends a message of this type. Returns the reader's status, with the message in *got. */
static inline enum status wire_through(const struct message_type *type, const void *sent, void *got)
{
    struct wire w = {.why = ""};
    assert_int_equal(message_pack(type, sent, &w.data, &w.bytes), ST_OK);
    return wire_end(&w, message_unpack(type, w.data, w.bytes, got, w.why));
}

#endif
