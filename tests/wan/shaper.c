/* tests/wan/shaper.c - see shaper.h. The bucket is stored as one instant, free_ns. If it is in the
 * past, its distance is the number of tokens. If it is in the future, its distance is the length of
 * the queue. */
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

/* Returns a uniform number in [0, 1) of 53 bits. */
static double draw(const struct shaper *s, uint64_t use)
{
    return (double)(rng_u64(rng_key(s->cfg.seed, RNG_TEST, use), s->n_sent) >> 11) * 0x1p-53;
}

/* Sets *out_ns to the time at which the packet's last bit is on the line, and returns true. Returns
 * false if the queue is full. */
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
