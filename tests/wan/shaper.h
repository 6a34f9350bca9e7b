/* tests/wan/shaper.h - one direction of an emulated link, as a pure function of time: what becomes
 * of a packet that comes at an instant, and when it is at the other end. In this order: it waits
 * for its turn in a token bucket's queue (or finds it full), it is lost or not, it travels. So what
 * is lost has taken its part of the rate, as on a real line. Owns:    nothing; a value. Threads:
 * one at a time. Clock: the caller's. Errors:  none. */
#ifndef TESTS_WAN_SHAPER_H
#define TESTS_WAN_SHAPER_H
#include <stdint.h>

struct shaper_config {
    int64_t delay_ns;    /* one way, without the queue */
    int64_t jitter_ns;   /* <= delay_ns; 0: packets keep their order. Else each takes
                            delay_ns +- jitter_ns, uniformly, and may overtake others */
    double loss;         /* of all that is sent, in [0, 1], each packet on its own */
    int64_t rate_bits;   /* bits per second, headers of IP included; 0: no limit, no queue */
    int64_t queue_bytes; /* that may wait for their turn; what does not fit is dropped */
    int64_t burst_bytes; /* the bucket: what may leave at once after a pause */
    uint64_t seed;       /* the n-th packet is lost or not by it alone, whenever it comes */
};

enum shaper_verdict { SHAPER_SENT, SHAPER_LOST, SHAPER_FULL };

struct shaper {
    struct shaper_config cfg;
    int64_t free_ns; /* all that was sent so far is out by then */
    uint64_t n_sent; /* that were lost or not */
};

void shaper_init(struct shaper *s, const struct shaper_config *cfg);
/* A packet of so many bytes that comes at now_ns, which never falls. SHAPER_SENT: *due_ns is when
 * it arrives; else unchanged. */
enum shaper_verdict shaper_put(struct shaper *s, int64_t now_ns, int64_t bytes, int64_t *due_ns);

#endif
