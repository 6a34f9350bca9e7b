/* net/exchange/exchange.h - the client's side of an exchange with all servers of the job: it
 * sends contributions and receives versions. A worker uses it, and so does a region's server,
 * which is a member of its parent group (ps/region/region.h).
 *
 * A push borrows the caller's gradient until net_exchange_wait() returns ST_OK for the chunk. The
 * version is written straight into params. If the job's versions are whole (dtype_block 1, no
 * fragments), the gradient may be stored in params, in the place of its chunk. A broken stream is
 * reopened without limit (a log line names the server every few seconds). Requests without an
 * answer are sent again under the same identity, so each counts once (I3). If a wait fails, the
 * bytes stay borrowed until net_exchange_destroy() has returned.
 *
 * When a generation ends, push, pull and wait return ST_REBASED. Gradients stay borrowed, and a
 * server may still write to `values`, until the next net_exchange_start(), which returns with the
 * versions, the step to continue from and the member's place. A planned end is at a step, and the
 * chunks reach that step one by one: wait may already return ST_REBASED for some chunks while the
 * caller must still push its contributions to the other chunks; these contributions count.
 *
 * If the job has wire_auto, the first start measures the line, reports the number format that
 * suits it, and then uses the format that the job has.
 *
 * Owns:    channels, streams, two threads.
 * Threads: any thread may push and wait.
 * Errors:  ST_REFUSED (another model or job; logged), ST_CANCELLED after cancel(), ST_REBASED,
 *          ST_DEADLINE, ST_PROTOCOL, ST_UNAVAILABLE (a server has lost the parameters; logged). */
#ifndef NET_EXCHANGE_EXCHANGE_H
#define NET_EXCHANGE_EXCHANGE_H
#include "base/hosts.h"
#include "net/wire/job.h"
#include <stdbool.h>

struct net_exchange_config {
    const struct hosts *ps_hosts; /* borrowed for ever */
    struct net_join join;         /* job, chunks: borrowed for ever */
    float *params; /* [chunks->n_elems] in: initial values, for INIT; out: versions */
    /* Writes the initial values again if the job restarts at its beginning; NULL: not possible. */
    enum status (*first_values)(void *ctx, float *params);
    /* Called by the first start while ps 0 does not answer: after 10 s, and then every 10 s.
     * True: the job has ended, and start returns ST_CANCELLED. NULL: start waits without end. */
    bool (*is_over)(void *ctx);
    void *ctx;                   /* argument of both callbacks */
    int64_t wait_line_ms;        /* interval between log lines about a missing server; 0: 5000 */
    int64_t first_line_ms;       /* time until the first such line during the first join; 0: 1000 */
    struct thread_pool *threads; /* help to copy from shared memory; borrowed; NULL: none */
    int step_ms;                 /* assumed duration of a step, if wire_auto; 0: 100 */
    bool shared_memory;          /* payloads to and from servers on this host: in shared memory */
    struct segment *segment;     /* segment of contributions; borrowed; NULL: create one */
    struct segment *values; /* lent segment with params, which each start may renew; NULL: none */
    int event_fd; /* eventfd above 0 that is incremented when a wait may have become ready: an
                    answer arrived, or the generation or the exchange has ended; 0: none */
};

struct net_exchange_stats {
    uint64_t sent_bytes, received_bytes; /* payload bytes */
    uint64_t shared_bytes;               /* part of these that passed through shared memory */
    uint64_t applied, duplicate, stale, reconnects;
};

/* Step from which this member continues, and, in lockstep, its share of the samples. */
struct net_start {
    int64_t step;
    uint64_t generation; /* 0: the job has no servers */
    uint64_t ps0;        /* incarnation of the ps 0 that made the plan */
    bool redoes;         /* lockstep: this member's last process has pushed a part of `step` */
    struct net_place place;
};

struct net_exchange;
enum status net_exchange_create(const struct net_exchange_config *cfg, struct net_exchange **out);
void net_exchange_destroy(struct net_exchange *x); /* NULL is fine */

/* Returns a segment for contributions in `dtype`, from which a server on this host reads without
 * a copy: a flat block of chunks->n_elems values, initially zeros. The caller receives a
 * reference, which may outlive the exchange. NULL: there is no such segment, or the job's
 * contributions have another dtype. */
struct segment *net_exchange_gradients(struct net_exchange *x, enum dtype dtype);

/* Waits for all servers (without end, or until cancel), joins, and sends or fetches the first
 * version. out->step is the step to continue from; in lockstep all chunks are at it. The servers
 * request INIT from member 0; other members wait until it has arrived. After ST_REBASED the caller
 * calls it again when no thread is in push, pull or wait; a log line names the generation. */
enum status net_exchange_start(struct net_exchange *x, struct net_start *out);

/* Sets the factor of the learning rate that later pushes send; 1 at first. */
void net_exchange_set_rate(struct net_exchange *x, float rate);
/* Queues a contribution to `chunk`, computed on version `step`. data: the chunk's n_elems floats.
 * Chunks with low numbers overtake others in the queue. Small contributions are gathered until
 * there are 128 KB, or until flush or wait. A contribution of weight 0 counts but adds nothing; its
 * data are not read. */
enum status net_exchange_push(struct net_exchange *x, int chunk, int64_t step, const float *data,
                              float weight);
/* Queues a contribution with marks of missing gradients (net/wire/lacking.h; NULL: none), which are
 * copied. data has zeros where a gradient is missing, and is not read if all are. */
enum status net_exchange_push_lacking(struct net_exchange *x, int chunk, int64_t step,
                                      const float *data, float weight, const uint8_t *lacking);
/* Queues a contribution whose data already have the job's dtype of contributions. */
enum status net_exchange_push_encoded(struct net_exchange *x, int chunk, int64_t step,
                                      const void *data, float weight, const uint8_t *lacking);
/* Notes that the contributions to `step` did not count, and that the caller's next contributions
 * will contain them again. So the exchange adds to the next contributions the unsent part
 * (residuals.h) that it had added to these. The caller has no request in flight. */
void net_exchange_restore_unsent(struct net_exchange *x, int64_t step);
/* Returns the part of the chunk's contributions so far that rounding has kept back
 * (residuals.h): n_elems floats, valid until the next push. NULL: the job's number format keeps
 * nothing back. */
const float *net_exchange_unsent(const struct net_exchange *x, int chunk);
/* Sets the unsent part that the contribution to version `version` or an earlier one left over;
 * the next contribution includes it. Called before the first push, if the format keeps anything
 * back. */
void net_exchange_set_unsent(struct net_exchange *x, int chunk, int64_t version,
                             const float *unsent);
/* Requests a chunk's version `step` or later, in fp32 whatever the job's dtype of versions. */
enum status net_exchange_pull(struct net_exchange *x, int chunk, int64_t step);
void net_exchange_flush(struct net_exchange *x); /* starts to send all queued requests */
/* Flushes, then waits until each chunk in [first, first + n) has no push or pull pending and its
 * version is at least `step`. Blocks while servers reconnect; ST_CANCELLED: after cancel. */
enum status net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step);
/* Waits as net_exchange_wait does, but returns ST_DEADLINE when deadline_ns, a time of
 * base/clock.h, has passed. INT64_MAX: without limit. */
enum status net_exchange_wait_until(struct net_exchange *x, int first, int n, int64_t step,
                                    int64_t deadline_ns);
/* Returns true if a push or pull of the chunk is pending, so that another returns ST_BUSY.
 * Returns false after the generation has ended. Sends nothing. */
bool net_exchange_is_busy(struct net_exchange *x, int chunk);
int64_t net_exchange_version(struct net_exchange *x, int chunk); /* version in params */
/* Returns 1 + the first sample of this member's next step, from the last answer for chunk 0; 0: no
 * answer has contained it. Only for modes in which each chunk advances by itself. The caller has no
 * request for chunk 0 pending. */
uint64_t net_exchange_samples(struct net_exchange *x);
/* Sends ps 0 the request to leave, and waits until ps 0 has acknowledged it. The next generation
 * excludes this member: start then returns ST_CANCELLED, and the caller should leave. Other
 * threads may call any function at the same time. Before the first start has returned, nothing
 * is sent. ST_DEADLINE: ps 0 was not reached in time; the request is still sent if ps 0 is
 * reached later. */
enum status net_exchange_leave_soon(struct net_exchange *x, int64_t deadline_ms);
bool net_exchange_is_leaving(struct net_exchange *x); /* ps 0 has acknowledged the request */
/* Sends all servers a leave message (deadline_ms for each). done: this member has the job's last
 * versions; then the message also goes to servers of a generation that this member has not
 * entered. */
enum status net_exchange_leave(struct net_exchange *x, bool done, int64_t deadline_ms);
/* Sends all servers a leave message with the error that ends this member for good (one line, cut
 * to fit in LEAVE_ERROR_BYTES); ps 0 logs it. */
enum status net_exchange_leave_failed(struct net_exchange *x, bool done, const char *error,
                                      int64_t deadline_ms);
/* Returns for how many milliseconds a running net_exchange_start or _wait has failed to join ps 0,
 * counted from the first failed attempt; 0: no attempt has failed since the last answer of ps 0. */
int64_t net_exchange_silence_ms(struct net_exchange *x);
void net_exchange_cancel(struct net_exchange *x); /* wakes all waits; not async-signal-safe */
void net_exchange_stats(struct net_exchange *x, struct net_exchange_stats *out);

#endif
