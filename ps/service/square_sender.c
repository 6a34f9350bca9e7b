/* ps/service/square_sender.c - see square_sender.h. A step's squares are kept until those of the
 * second step after it are put: no server reaches that step before all servers have accepted these
 * squares. */
#include "ps/service/square_sender.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "net/exchange/peer_client.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_MS = 5000,
    AGAIN_MS = 50,       /* first pause before a retry; each pause is twice as long */
    AGAIN_MAX_MS = 1000, /* longest pause before a retry */
    LINE_MS = 5000,      /* a step that waits this long for a peer gets a log line */
};

struct peer {
    struct square_sender *sender;
    char *addr;
    int number;
    struct peer_client *client;
    pthread_t thread;
    int has_thread;
    double *square; /* [n] the thread's own copy of the squares that it sends */

    /* The fields that the thread alone uses. */
    int64_t sent; /* last step that the peer accepted */
    int64_t again_ms, line_ns;
};

struct square_sender {
    uint64_t generation, ps0;
    int self, n, n_peers; /* n: number of chunks here */
    struct peer *peers;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t wake;
    int stopping;
    int64_t step;      /* last step that was put */
    double *square[2]; /* [n] squares of two steps, by the step's last bit */
};

/* Waits for a step that the peer has not accepted, and copies its squares. Returns false when the
 * sender is to end. */
static bool next_step(struct peer *p, int64_t *step)
{
    struct square_sender *s = p->sender;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping && s->step <= p->sent)
        pthread_cond_wait(&s->wake, &s->lock);
    *step = p->sent + 1 < s->step - 1 ? s->step - 1 : p->sent + 1;
    int go = !s->stopping;
    if (go)
        memcpy(p->square, s->square[*step & 1], (size_t)s->n * sizeof *p->square);
    pthread_mutex_unlock(&s->lock);
    return go;
}

/* Waits for the duration. Returns true if the sender is to end. */
static bool wait_until(struct square_sender *s, int64_t ms)
{
    int64_t ns = clock_deadline_ns(ms);
    pthread_mutex_lock(&s->lock);
    while (!s->stopping && clock_cond_wait(&s->wake, &s->lock, ns) == 0)
        ;
    int stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

/* Sends the squares of a step in one call. Returns true if this step needs no retry. *over is set
 * if the peer needs no squares of this generation any more. */
static bool send_squares(struct peer *p, int64_t step, int *over, char why[CONTROL_TEXT_BYTES])
{
    const struct square_sender *s = p->sender;
    const struct net_squares squares = {.generation = s->generation,
                                        .ps0 = s->ps0,
                                        .step = step,
                                        .server = s->self,
                                        .n = s->n,
                                        .square = p->square};
    struct net_squares_reply reply = {.answer = SQUARES_LATER};
    if (peer_client_squares(p->client, &squares, CALL_MS, &reply, why) != ST_OK)
        return false;
    *over = reply.answer == SQUARES_OVER;
    if (reply.answer == SQUARES_TAKEN || *over)
        return true;
    memcpy(why, reply.why, CONTROL_TEXT_BYTES);
    return false;
}

static void *peer_main(void *arg)
{
    struct peer *p = arg;
    int64_t step;
    int over = 0;
    while (!over && next_step(p, &step)) {
        char why[CONTROL_TEXT_BYTES] = "";
        if (p->line_ns == 0)
            p->line_ns = clock_deadline_ns(LINE_MS);
        if (send_squares(p, step, &over, why)) {
            p->sent = step;
            p->again_ms = AGAIN_MS;
            p->line_ns = 0;
            continue;
        }
        if (wait_until(p->sender, p->again_ms))
            break;
        if (clock_now_ns() >= p->line_ns) {
            LOG_W(
                "step %" PRId64
                " waits for ps:%d (%s) to acknowledge this server's part of the gradient norm: %s; retrying",
                step, p->number, p->addr, why[0] ? why : "no answer");
            p->line_ns = clock_deadline_ns(LINE_MS);
        }
        p->again_ms = 2 * p->again_ms < AGAIN_MAX_MS ? 2 * p->again_ms : AGAIN_MAX_MS;
    }
    return NULL;
}

static enum status add_peer(struct square_sender *s, const struct net_plan *plan, int number)
{
    enum status st = ST_OK;
    struct peer *p = &s->peers[s->n_peers++];
    *p = (struct peer){.sender = s, .number = number, .sent = plan->step - 1, .again_ms = AGAIN_MS};
    p->addr = strdup(plan->servers.addr[number]);
    p->square = malloc((size_t)s->n * sizeof *p->square);
    TRY(p->addr && p->square ? ST_OK : ST_NOMEM);
    TRY(peer_client_create(p->addr, &p->client));
    int err = pthread_create(&p->thread, NULL, peer_main, p);
    p->has_thread = err == 0;
    if (err)
        LOG_E("the thread for ps:%d (%s) cannot be started: %s", number, p->addr,
              threads_error(err));
    st = p->has_thread ? ST_OK : ST_NOMEM;
done:
    return st;
}

/* Counts the chunks of each server in the plan. Returns how many other servers have chunks. */
static int count_chunks(const struct net_plan *plan, int self, int *n_chunks)
{
    int n = 0;
    for (int i = 0; i < plan->chunks->n_chunks; i++)
        n += n_chunks[plan->shard[i]]++ == 0 && plan->shard[i] != self;
    return n;
}

enum status square_sender_create(const struct net_plan *plan, int self, struct square_sender **out)
{
    enum status st = ST_OK;
    struct square_sender *s = NULL;
    int *n_chunks = calloc((size_t)plan->servers.n, sizeof *n_chunks);
    *out = NULL;
    if (!job_servers_clip(&plan->job) || self < 0 || !n_chunks)
        goto done;
    int n_others = count_chunks(plan, self, n_chunks);
    if (n_others == 0 || n_chunks[self] == 0)
        goto done;
    s = calloc(1, sizeof *s);
    TRY(s ? ST_OK : ST_NOMEM);
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->wake);
    s->generation = plan->generation;
    s->ps0 = plan->ps0;
    s->self = self;
    s->n = n_chunks[self];
    s->step = plan->step - 1;
    s->peers = calloc((size_t)n_others, sizeof *s->peers);
    for (int i = 0; i < 2; i++)
        s->square[i] = calloc((size_t)s->n, sizeof *s->square[i]);
    TRY(s->peers && s->square[0] && s->square[1] ? ST_OK : ST_NOMEM);
    for (int i = 0; i < plan->servers.n; i++)
        if (i != self && n_chunks[i] > 0)
            TRY(add_peer(s, plan, i));
    *out = s;
    s = NULL;
done:
    if (!n_chunks)
        st = ST_NOMEM;
    if (st != ST_OK)
        LOG_E("cannot send this server's part of the gradient norm to other servers: %s",
              status_text(st));
    square_sender_destroy(s);
    free(n_chunks);
    return st;
}

void square_sender_destroy(struct square_sender *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_peers; i++)
        if (s->peers[i].has_thread)
            peer_client_cancel(s->peers[i].client);
    for (int i = 0; i < s->n_peers; i++) {
        struct peer *p = &s->peers[i];
        if (p->has_thread)
            pthread_join(p->thread, NULL);
        peer_client_destroy(p->client);
        free(p->square);
        free(p->addr);
    }
    free(s->peers);
    free(s->square[0]);
    free(s->square[1]);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void square_sender_put(void *ctx, int64_t step, const double *square, int n)
{
    struct square_sender *s = ctx;
    pthread_mutex_lock(&s->lock);
    if (n == s->n && step > s->step) {
        memcpy(s->square[step & 1], square, (size_t)n * sizeof *square);
        s->step = step;
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}
