/* tests/net_wire.h - a message on its way: a test packs into it and reads from it, and what is
 * refused is refused with a sentence. */
#ifndef TESTS_NET_WIRE_H
#define TESTS_NET_WIRE_H
#include "net/wire/message.h"
#include "tests/check.h"
#include <stdlib.h>

struct wire {
    uint8_t *data; /* malloc'd, until wire_end */
    size_t bytes;
    char why[MESSAGE_WHY_BYTES];
};

/* st: what the reader said; returned. */
static inline enum status wire_end(struct wire *w, enum status st)
{
    free(w->data);
    assert_true(st == ST_OK || w->why[0]);
    return st;
}

#endif
