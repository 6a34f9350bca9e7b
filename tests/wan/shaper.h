/* tests/wan/shaper.h - one direction of an emulated link, as a pure function of time: a packet that
 * is sent at one instant arrives at the other end at a later instant, or is lost. A packet first
 * waits in the queue of a token bucket, or is dropped there. Then it is lost or travels. So a lost
 * packet has used its part of the rate, as on a real line. Owns: nothing; a value. Threads: one at
 * a time. Clock: the caller's. Errors: none. */
#ifndef TESTS_WAN_SHAPER_H
#define TESTS_WAN_SHAPER_H
#include <stdint.h>

struct shaper_config {
    int64_t delay_ns;    /* delay of one way, without the wait in the queue */
    int64_t jitter_ns;   /* <= delay_ns; 0: packets keep their order, otherwise each has delay_ns +-
                            jitter_ns, uniformly, and may overtake others */
    double loss;         /* share of packets that are lost, in [0, 1], at random */
    int64_t rate_bits;   /* bits per second, headers of IP included; 0: no limit, no queue */
    int64_t queue_bytes; /* bytes that may wait; packets that do not fit are dropped */
    int64_t burst_bytes; /* size of the bucket: bytes that may leave at once after a pause */
    uint64_t seed;       /* decides whether the n-th packet is lost, whatever its time */
};

enum shaper_verdict { SHAPER_SENT, SHAPER_LOST, SHAPER_FULL };

struct shaper {
    struct shaper_config cfg;
    int64_t free_ns; /* time at which all sent packets have left */
    uint64_t n_sent; /* number of sent packets, including lost ones */
};

void shaper_init(struct shaper *s, const struct shaper_config *cfg);
/* Sends a packet of so many bytes at now_ns, which never decreases. If the result is SHAPER_SENT,
 * *due_ns is the packet's arrival; otherwise it is unchanged. */
enum shaper_verdict shaper_put(struct shaper *s, int64_t now_ns, int64_t bytes, int64_t *due_ns);

#endif
