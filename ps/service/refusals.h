/* ps/service/refusals.h - the latest reasons why the server refused workers that training waits
 * for. The list is bounded, and a new entry replaces the oldest. An entry stays until its worker is
 * admitted.
 * Owns:    its entries.
 * Threads: none; its user's lock guards it.
 * Errors:  none. */
#ifndef PS_SERVICE_REFUSALS_H
#define PS_SERVICE_REFUSALS_H
#include "net/wire/status.h"
#include <stdint.h>

enum { REFUSALS_MAX = 32 };

struct refusal {
    int member;                     /* index of the worker, at least 0 */
    int64_t at_ns;                  /* time of the refusal */
    char why[STATUS_REFUSAL_BYTES]; /* reason, a sentence */
};

struct refusals {
    int n;
    struct refusal refusal[REFUSALS_MAX];
};

/* Adds a refusal; replaces an earlier one of the same worker. */
void refusals_put(struct refusals *r, int member, const char *why, int64_t now_ns);
void refusals_drop(struct refusals *r, int member); /* Does nothing if there is no entry. */
/* Returns the worker's entry, or NULL. */
const struct refusal *refusals_find(const struct refusals *r, int member);

#endif
