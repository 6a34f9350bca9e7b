/* base/term.h - the number of a generation. A term is epoch << 24 | n: the epoch counts the starts
 * of ps 0 and is recorded before it is used; n counts, from 1 and only in memory, the generations
 * after one start. So no term is used twice, and terms only increase. A term is printed as "1.2".
 * Threads: plain values without a lock.
 * Errors:  none. */
#ifndef BASE_TERM_H
#define BASE_TERM_H
#include <inttypes.h>
#include <stdint.h>

enum { TERM_BITS = 24 };
#define TERM_MAX_EPOCH ((UINT64_C(1) << TERM_BITS) - 1)
#define TERM_MAX_N ((UINT64_C(1) << TERM_BITS) - 1)

static inline uint64_t term_of(uint64_t epoch, uint64_t n)
{
    return epoch << TERM_BITS | n;
}

static inline uint64_t term_epoch(uint64_t term)
{
    return term >> TERM_BITS;
}

static inline uint64_t term_n(uint64_t term)
{
    return term & TERM_MAX_N;
}

/* Returns 0 for a term so high that no job reaches it, and that no term could follow. The receiver
 * must reject such a term. */
static inline int term_is_possible(uint64_t term)
{
    return term_epoch(term) < TERM_MAX_EPOCH;
}

/* use: printf("generation " TERM_FMT, TERM_ARG(term)) */
#define TERM_FMT "%" PRIu64 ".%" PRIu64
#define TERM_ARG(term) term_epoch(term), term_n(term)

#endif
