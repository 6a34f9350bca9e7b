/* net/exchange/exchange.h - the client's side of an exchange: contributions out, versions in, with
 * all servers of the job. Serves the worker, and a region's server, which is one of its parent
 * group's (ps/region/region.h).
 *
 * A push borrows the caller's gradient until wait() says that the chunk's answer is there and the
 * bytes are no longer referenced; the version's bytes are written straight into params. A broken
 * stream is opened again without end (a line names the server every few seconds) and what was not
 * answered is sent again under the same identity, so that it counts once (I3).
 * Where wait() fails, the bytes stay borrowed until destroy() has returned.
 *
 * When a generation ends, push, pull and wait return ST_REBASED, nothing more is written to params,
 * and the bytes stay borrowed, until start() is called again: it returns with the versions and the
 * step to go on from, and the member's place. A planned end is at a step, and comes chunk by chunk:
 * wait says so first for some; what remains of the contributions that make that step must still be
 * pushed, and is counted.
 *
 * Of a job with wire_auto the first start measures the line, says what number format it asks for,
 * and takes the one that the job then has.
 *
 * Owns:    channels, streams, two threads.
 * Threads: push, wait from any thread.
 * Errors:  ST_REFUSED (another model or job; logged with the server's sentence), ST_CANCELLED
 *          after cancel(), ST_REBASED, ST_DEADLINE, ST_PROTOCOL,
 *          ST_UNAVAILABLE (a server has lost the parameters; logged). */
#ifndef NET_EXCHANGE_EXCHANGE_H
#define NET_EXCHANGE_EXCHANGE_H
#include "base/hosts.h"
#include "net/wire/job.h"

struct net_exchange_config {
    const struct hosts *ps_hosts; /* borrowed for ever */
    struct net_join join;         /* job, chunks: borrowed for ever */
    float *params;                /* flat block, chunks->n_elems floats; in: initial values (sent if
                                     the servers ask this member for INIT); out: versions */
    void (*first_values)(void *ctx, float *params); /* writes the initial values again, where all
                                                       begins anew; NULL: it cannot */
    /* Asked by the first start, where ps 0 has not answered for 10 s, and every 10 s from then on:
     * 1: the job has ended, and start returns ST_CANCELLED. NULL: it waits without end. */
    int (*is_over)(void *ctx);
    void *ctx;                   /* of both */
    int64_t wait_line_ms;        /* how often a missing server is named; 0: 5000 */
    int64_t first_line_ms;       /* likewise, before it has joined: when first; 0: 1000 */
    struct thread_pool *threads; /* that share the copying of versions out of a server's memory;
                                    borrowed; NULL: the network's thread alone */
    int step_ms;                 /* with wire_auto: that a step is reckoned to take; 0: 100 */
    int shared_memory; /* with servers on this host, payloads cross by reference (segment.h) */
    int event_fd;      /* an eventfd above 0, to which 1 is added when a wait that is not over may
                          be: an answer came, or the generation or all has ended; 0: none */
};

struct net_exchange_stats {
    uint64_t sent_bytes, received_bytes; /* payload */
    uint64_t shared_bytes;               /* of these, through shared memory */
    uint64_t applied, duplicate, stale, reconnects;
};

/* Where this member goes on, and, in lockstep, which of the samples are its. */
struct net_start {
    int64_t step;
    uint64_t generation; /* 0: there are no servers */
    uint64_t ps0;        /* who made its plan */
    struct net_place place;
};

struct net_exchange;
enum status net_exchange_create(const struct net_exchange_config *cfg, struct net_exchange **out);
void net_exchange_destroy(struct net_exchange *x); /* NULL is fine */

/* Where contributions, made in `dtype`, are so that nothing of them is copied on their way to a
 * server on this host: its data are a flat block of chunks->n_elems values, zeros at first. With a
 * reference for the caller, who may outlive the exchange; NULL: there is no such place, or the
 * job's contributions are in another dtype. */
struct segment *net_exchange_gradients(struct net_exchange *x, enum dtype dtype);

/* Waits for all servers (without end, or until cancel), joins, sends or fetches the first version.
 * out->step: the step to go on from; in lockstep all chunks are at it, also where this member's
 * last life ended in the middle of a step. Member 0 is asked for INIT; others wait until it has
 * come. Again after ST_REBASED, when no thread is in push, pull or wait any more; a line then names
 * the generation. */
enum status net_exchange_start(struct net_exchange *x, struct net_start *out);

/* Contribution to `chunk`, computed on version `step`. data: the chunk's n_elems floats. Chunks
 * with low numbers overtake others that wait to be sent; small ones gather until there are 128 KB,
 * or until flush or wait. weight 0: it counts, but adds nothing; data are not read. */
enum status net_exchange_push(struct net_exchange *x, int chunk, int64_t step, const float *data,
                              float weight);
/* The same with data that are in the job's dtype of contributions already. */
enum status net_exchange_push_encoded(struct net_exchange *x, int chunk, int64_t step,
                                      const void *data, float weight);
/* Contributions to `step` did not count, and are a part of those that come next, so that what was
 * not sent of them (residuals.h) is so, too. Nothing is under way. */
void net_exchange_take_back(struct net_exchange *x, int64_t step);
/* What is not sent yet of the chunk's contributions so far (residuals.h): n_elems floats, valid
 * until the next push. NULL: nothing is kept in this job's number format. */
const float *net_exchange_unsent(const struct net_exchange *x, int chunk);
/* So much was left over by the contribution that made version `version`, or an earlier one: the
 * next has it. Before the first push, where something is kept. */
void net_exchange_set_unsent(struct net_exchange *x, int chunk, int64_t version,
                             const float *unsent);
/* Asks for a chunk's version `step` or later, in fp32 whatever the job's dtype of versions (used
 * after training by members that evaluate and export). */
enum status net_exchange_pull(struct net_exchange *x, int chunk, int64_t step);
/* Has everything sent that was pushed or pulled. */
void net_exchange_flush(struct net_exchange *x);
/* Flushes; waits until each chunk in [first, first + n) has no push or pull under way and its
 * version is at least `step`. Blocks without end while servers reconnect; ST_CANCELLED after
 * cancel. */
enum status net_exchange_wait(struct net_exchange *x, int first, int n, int64_t step);
/* The same until a time of base/clock.h, which may be past: ST_DEADLINE. INT64_MAX: without end. */
enum status net_exchange_wait_until(struct net_exchange *x, int first, int n, int64_t step,
                                    int64_t deadline_ns);
/* Whether a push or pull of the chunk is under way, so that another is ST_BUSY. Not where a
 * generation has ended. Sends nothing. */
int net_exchange_is_busy(struct net_exchange *x, int chunk);
/* Version held in params for a chunk. */
int64_t net_exchange_version(struct net_exchange *x, int chunk);
/* Where chunks go each at its own pace: 1 + the first sample of this member's next step, as the
 * answer for chunk 0 has said; so nothing may be under way for it. 0: none has. */
uint64_t net_exchange_samples(struct net_exchange *x);
/* Tells ps 0 that this member wants to go, and waits until it knows. The next generation will be
 * without it: start then returns ST_CANCELLED, and it is time to leave. While others call what
 * they like. Before the first start has returned there is nobody who has to know. ST_DEADLINE: ps 0
 * was not reached in time; it will still be told if it is. */
enum status net_exchange_leave_soon(struct net_exchange *x, int64_t deadline_ms);
int net_exchange_is_leaving(struct net_exchange *x); /* ps 0 knows */
/* Says goodbye to all servers (deadline_ms for each); done: this member has the job's last
 * versions, and all servers are told, also where it has not followed them to their generation. */
enum status net_exchange_leave(struct net_exchange *x, int done, int64_t deadline_ms);
/* Likewise, since this member ends for good, with this error (one line, cut to fit in
 * LEAVE_ERROR_BYTES): all servers are told, and ps 0 says so. */
enum status net_exchange_leave_failed(struct net_exchange *x, int done, const char *error,
                                      int64_t deadline_ms);
/* For how long net_exchange_start or _wait, while one is under way, has tried to join ps 0 in vain,
 * from the first try that failed; 0: none has since ps 0 answered. */
int64_t net_exchange_silence_ms(struct net_exchange *x);
void net_exchange_cancel(struct net_exchange *x); /* async-signal-UNsafe; wakes every waiter */
void net_exchange_stats(struct net_exchange *x, struct net_exchange_stats *out);

#endif
