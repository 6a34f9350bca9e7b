/* net/wire/rounding.h - which layers of a network multiply factors in bf16, where that was asked
 * for: the bits of a job depend on it, so what its first member has measured is for all.
 * Threads: values. */
#ifndef NET_WIRE_ROUNDING_H
#define NET_WIRE_ROUNDING_H
#include <stdint.h>

enum { ROUNDING_MAX_BYTES = 128 };
struct net_rounding {
    int n_bytes;                      /* 0: nothing is said */
    uint8_t bits[ROUNDING_MAX_BYTES]; /* of layer i bit i % 8 of byte i / 8; behind the last 0 */
};

/* rounded: [n_layers] 0 or 1. Nothing is said of more than 1024 layers. */
void net_rounding_set(struct net_rounding *r, const uint8_t *rounded, int n_layers);
/* 1: it is of so many layers, and rounded is filled. */
int net_rounding_get(const struct net_rounding *r, uint8_t *rounded, int n_layers);

#endif
