/* base/rng.h - random numbers that depend only on a key and a counter, so that any thread, tower or
 * worker can compute number n of a stream without the numbers before it (invariant I6). Source: the
 * mixer is splitmix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number
 * generators, OOPSLA 2014), applied to key and counter in turn.
 * Threads: any. Errors: none. */
#ifndef BASE_RNG_H
#define BASE_RNG_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t rng_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Uses of random numbers. Each use has its own key: rng_key(seed, RNG_..., layer or parameter
 * index). */
enum rng_use {
    RNG_INIT = 1,
    RNG_SHUFFLE = 2,
    RNG_DROPOUT = 3,
    RNG_TEST = 4,
    RNG_SPLIT = 9,
    RNG_AUGMENT = 10,
    RNG_ROWS = 11
};
static inline uint64_t rng_key(uint64_t seed, enum rng_use use, uint64_t index)
{
    return rng_mix(rng_mix(rng_mix(seed) ^ (uint64_t)use) ^ index);
}

static inline uint64_t rng_u64(uint64_t key, uint64_t counter)
{
    return rng_mix(key ^ rng_mix(counter));
}

/* Returns a number that stands for a text. Two of 100 million random texts have the same number
 * with a probability of about 0.0003. It offers no protection against texts that are chosen to
 * collide. */
static inline uint64_t rng_text(const void *text, size_t bytes)
{
    uint64_t mixed = rng_mix(bytes);
    for (size_t at = 0; at < bytes; at += sizeof mixed) {
        uint64_t word = 0;
        memcpy(&word, (const char *)text + at, bytes - at < sizeof word ? bytes - at : sizeof word);
        mixed = rng_mix(mixed ^ word);
    }
    return mixed;
}

/* Returns a number uniform in [0, 1), with 24 bits. */
static inline float rng_uniform(uint64_t key, uint64_t counter)
{
    return (float)(rng_u64(key, counter) >> 40) * 0x1p-24f;
}

/* Returns a number uniform in [0, n), computed by a multiplication and a shift. The numbers'
 * probabilities differ by a factor of at most 1 + n / 2^32. n: above 0 and below 2^32. */
static inline uint64_t rng_below(uint64_t key, uint64_t counter, uint64_t n)
{
    return ((rng_u64(key, counter) >> 32) * n) >> 32;
}

#endif
