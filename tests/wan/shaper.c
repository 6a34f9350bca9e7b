/* tests/wan/shaper.c - see shaper.h. The bucket is kept as one instant, free_ns: tokens are how far
 * it lies in the past, the queue is how far it lies in the future. */
#include "tests/wan/shaper.h"
#include "base/rng.h"

enum { DRAW_LOSS, DRAW_JITTER };

void shaper_init(struct shaper *s, const struct shaper_config *cfg)
{
    *s = (struct shaper){.cfg = *cfg, .free_ns = INT64_MIN};
}

static int64_t time_of(const struct shaper *s, int64_t bytes)
{
    return (int64_t)((double)bytes * 8e9 / (double)s->cfg.rate_bits);
}

/* Uniform in [0, 1), 53 bits. */
static double draw(const struct shaper *s, uint64_t use)
{
    return (double)(rng_u64(rng_key(s->cfg.seed, RNG_TEST, use), s->n_sent) >> 11) * 0x1p-53;
}

/* 1: when the packet's last bit is on the line; 0: there is no room to wait. */
static int take_turn(struct shaper *s, int64_t now_ns, int64_t bytes, int64_t *out_ns)
{
    *out_ns = now_ns;
    if (s->cfg.rate_bits == 0)
        return 1;
    int64_t full_bucket = now_ns - time_of(s, s->cfg.burst_bytes);
    int64_t begin = s->free_ns > full_bucket ? s->free_ns : full_bucket;
    int64_t end = begin + time_of(s, bytes);
    if (end - now_ns > time_of(s, s->cfg.queue_bytes))
        return 0;
    s->free_ns = end;
    if (end > now_ns)
        *out_ns = end;
    return 1;
}

enum shaper_verdict shaper_put(struct shaper *s, int64_t now_ns, int64_t bytes, int64_t *due_ns)
{
    int64_t out_ns;
    if (!take_turn(s, now_ns, bytes, &out_ns))
        return SHAPER_FULL;
    int lost = draw(s, DRAW_LOSS) < s->cfg.loss;
    double aside = 2 * draw(s, DRAW_JITTER) - 1;
    s->n_sent++;
    if (lost)
        return SHAPER_LOST;
    *due_ns = out_ns + s->cfg.delay_ns + (int64_t)(aside * (double)s->cfg.jitter_ns);
    return SHAPER_SENT;
}
