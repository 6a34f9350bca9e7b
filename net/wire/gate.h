/* net/wire/gate.h - messages between ps 0 of a region and the region's other servers, about the
 * chunks of these servers at the region's gates (ps/region/region_chunks.h). One call contains
 * several messages, and may arrive twice.
 * Owns:    a message owns its list, and one reference to each buffer.
 * Threads: plain values without a lock.
 * Errors:  none. */
#ifndef NET_WIRE_GATE_H
#define NET_WIRE_GATE_H
#include "base/buf.h"
#include "net/wire/squares.h"
#include <stdbool.h>

enum gate_kind {
    /* kinds that a server sends to ps 0 */
    GATE_FIRST, /* a member's initial value of the chunk */
    GATE_MADE,  /* this version of the chunk is complete */
    GATE_WAITS, /* this version is computed, but waits at the gate */
    GATE_VALUE, /* present value, which ps 0 has requested by READ */
    /* kinds that ps 0 sends */
    GATE_BEGIN, /* first version of the chunk */
    GATE_WHOLE, /* the value replaces the version that waits */
    GATE_ADD,   /* the value is added to the version that waits */
    GATE_OWN,   /* the version that waits becomes valid unchanged */
    GATE_READ,  /* requests the present value */
    /* the new value is `mix` times the version that waits plus 1 - `mix` times this value */
    GATE_MIX,
    GATE_N_KINDS
};

/* Limits of one message; one item always fits. */
enum { GATE_MAX_ITEMS = 1024, GATE_BATCH_BYTES = 4 << 20 };

struct net_gate_item {
    enum gate_kind kind;
    int chunk;
    int64_t version;
    int64_t slots_since; /* BEGIN: version at which the optimizer's slots were zero */
    float mix;           /* MIX: 0 to 1 */
    bool alone;          /* OWN: this version and the following ones do not wait for the parent */
    struct buf *value;   /* little-endian fp32, the whole chunk; NULL: none */
};

struct net_gate {
    uint64_t generation, ps0; /* > 0; see struct net_plan */
    int server;               /* number of the sender in the plan */
    int n;                    /* 1 to GATE_MAX_ITEMS */
    struct net_gate_item *item;
};
void message_gate_free(struct net_gate *g); /* frees the members; zeros are fine */

#endif
