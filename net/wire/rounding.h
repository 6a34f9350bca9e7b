/* net/wire/rounding.h - lists the layers of a network that multiply in bf16, if a worker requested
 * bf16. The bits of a job's results depend on this list, so all members use the list that the job's
 * first member chose by measuring.
 * Threads: plain values without a lock. */
#ifndef NET_WIRE_ROUNDING_H
#define NET_WIRE_ROUNDING_H
#include <stdbool.h>
#include <stdint.h>

enum { ROUNDING_MAX_BYTES = 128 };
struct net_rounding {
    int n_bytes; /* 0: unset */
    /* bit i % 8 of byte i / 8 is set if layer i multiplies in bf16; bits after the last layer are
     * 0 */
    uint8_t bits[ROUNDING_MAX_BYTES];
};

/* Sets the bits from rounded ([n_layers], 0 or 1). Leaves them unset if there are more than 1024
 * layers. */
void net_rounding_set(struct net_rounding *r, const uint8_t *rounded, int n_layers);
/* Fills `rounded` from the bits. Returns false if the bits are not for this number of layers. */
bool net_rounding_get(const struct net_rounding *r, uint8_t *rounded, int n_layers);

#endif
