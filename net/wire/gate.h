/* net/wire/gate.h - what ps 0 of a region and its other servers tell each other of their chunks at
 * the region's gates (ps/region/region_chunks.h). One call has several of these; it may come twice.
 * Owns:    a message its list, of buffers one reference each.
 * Threads: values. Errors: none. */
#ifndef NET_WIRE_GATE_H
#define NET_WIRE_GATE_H
#include "base/buf.h"
#include "net/wire/squares.h"

enum gate_kind {
    /* to ps 0 */
    GATE_FIRST, /* a member's first value of the chunk */
    GATE_MADE,  /* this version was made */
    GATE_WAITS, /* this version is computed, and waits */
    GATE_VALUE, /* as it was asked for */
    /* from ps 0 */
    GATE_BEGIN, /* the chunk's first version */
    GATE_WHOLE, /* the version that waits becomes this */
    GATE_ADD,   /* this is added to it */
    GATE_OWN,   /* it is made as it was computed */
    GATE_READ,  /* the present value is asked for */
    GATE_MIX,   /* `mix` of the version that waits, and the rest of this, make it */
    GATE_N_KINDS
};

/* Of one message; one item always fits. */
enum { GATE_MAX_ITEMS = 1024, GATE_BATCH_BYTES = 4 << 20 };

struct net_gate_item {
    enum gate_kind kind;
    int chunk;
    int64_t version;
    int64_t slots_since; /* BEGIN: the version at which the optimizer's slots are zero */
    float mix;           /* MIX: 0 to 1 */
    int alone;           /* OWN: it is made without the parent, and so are those that follow */
    struct buf *value;   /* little-endian fp32, the whole chunk; NULL: none */
};

struct net_gate {
    uint64_t generation, ps0; /* > 0; as in struct net_plan */
    int server;               /* the caller's number in the plan */
    int n;                    /* 1 to GATE_MAX_ITEMS */
    struct net_gate_item *item;
};
void message_gate_free(struct net_gate *g); /* what it holds; zeros are fine */

#endif
