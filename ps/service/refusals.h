/* ps/service/refusals.h - why workers that training waits for were refused last: a list of bounded
 * length, the oldest makes room. An entry stands until its worker is let in.
 * Owns:    its entries. Threads: none; under its user's lock. Errors: none. */
#ifndef PS_SERVICE_REFUSALS_H
#define PS_SERVICE_REFUSALS_H
#include "net/wire/status.h"
#include <stdint.h>

enum { REFUSALS_MAX = 32 };

struct refusal {
    int member;                     /* index, not below 0 */
    int64_t at_ns;                  /* when */
    char why[STATUS_REFUSAL_BYTES]; /* a sentence */
};

struct refusals {
    int n;
    struct refusal refusal[REFUSALS_MAX];
};

/* In the place of an earlier one of its worker. */
void refusals_put(struct refusals *r, int member, const char *why, int64_t now_ns);
void refusals_drop(struct refusals *r, int member); /* nothing, if there is none */
/* NULL: there is none. */
const struct refusal *refusals_find(const struct refusals *r, int member);

#endif
