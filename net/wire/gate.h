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
    /* sent to ps 0 */
    GATE_FIRST, /* a member's first value of the chunk */
    GATE_MADE,  /* this version is complete */
    GATE_WAITS, /* this version is computed, and waits at the gate */
    GATE_VALUE, /* present value, as requested by READ */
    /* sent by ps 0 */
    GATE_BEGIN, /* first version of the chunk */
    GATE_WHOLE, /* the value replaces the version that waits */
    GATE_ADD,   /* the value is added to the version that waits */
    GATE_OWN,   /* the version that waits becomes valid as computed */
    GATE_READ,  /* requests the present value */
    GATE_MIX,   /* averages: weight `mix` for the version that waits, 1 - `mix` for this value */
    GATE_N_KINDS
};

/* Limits of one message; one item always fits. */
enum { GATE_MAX_ITEMS = 1024, GATE_BATCH_BYTES = 4 << 20 };

struct net_gate_item {
    enum gate_kind kind;
    int chunk;
    int64_t version;
    int64_t slots_since; /* BEGIN: the version at which the optimizer's slots are zero */
    float mix;           /* MIX: 0 to 1 */
    bool alone;          /* OWN: this version and the following ones do not wait for the parent */
    struct buf *value;   /* little-endian fp32, the whole chunk; NULL: none */
};

struct net_gate {
    uint64_t generation, ps0; /* > 0; see struct net_plan */
    int server;               /* number of the caller in the plan */
    int n;                    /* 1 to GATE_MAX_ITEMS */
    struct net_gate_item *item;
};
void message_gate_free(struct net_gate *g); /* frees the members; zeros are fine */

#endif
