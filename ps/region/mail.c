/* ps/region/mail.c - see mail.h. One thread sends to all receivers, one after the other, so a slow
 * receiver delays the letters to all.
 * Locks:   its own, the last one to be locked. */
#include "ps/region/mail.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "base/threads.h"
#include "net/exchange/peer_client.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_VALUES = 8,     /* limit on values of one chunk that are queued for one receiver */
    CALL_MS = 5000,      /* first timeout of a call */
    CALL_MAX_MS = 60000, /* longest timeout of a call, on a slow line */
    AGAIN_MS = 20,       /* first pause before a retry; each pause is twice as long */
    AGAIN_MAX_MS = 1000, /* longest pause before a retry */
    LINE_MS = 5000,      /* a letter that waits this long gets a log line */
};

struct letter {
    struct letter *next;
    uint64_t generation, ps0;
    int from, to;
    struct net_gate_item item;
    char addr[]; /* address of the receiver */
};

struct peer {
    struct peer *next;
    struct peer_client *client;
    int most; /* limit on letters in a call; lower on a slow line */
    int64_t call_ms;
    char addr[];
};

struct mail {
    struct mail_config cfg;
    pthread_t thread;
    int has_thread;
    /* The fields that the thread alone uses. */
    struct peer *peers;
    int64_t again_ms, line_ns;
    struct net_gate_item batch[GATE_MAX_ITEMS];

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t wake;
    struct letter *first, **end; /* only the thread removes letters */
    struct peer_client *calling; /* client whose call is in progress; NULL: none */
    uint64_t generation;         /* newest generation that has begun here */
    int stopping;
};

enum status mail_create(const struct mail_config *cfg, struct mail **out)
{
    struct mail *m = calloc(1, sizeof *m);
    if (!m)
        return ST_NOMEM;
    m->cfg = *cfg;
    m->end = &m->first;
    m->again_ms = AGAIN_MS;
    pthread_mutex_init(&m->lock, NULL);
    clock_cond_init(&m->wake);
    *out = m;
    return ST_OK;
}

static void letter_free(struct letter *l)
{
    buf_unref(l->item.value);
    free(l);
}

static bool is_same_way(const struct letter *a, const struct letter *b)
{
    return a->generation == b->generation && a->ps0 == b->ps0 && strcmp(a->addr, b->addr) == 0;
}

/* Removes the first n letters (INT_MAX: all) that have the receiver, the ps 0 and the generation
 * of `way`. */
static void drop_letters(struct mail *m, const struct letter *way, int n)
{
    struct letter *gone = NULL;
    const struct letter like = {.generation = way->generation, .ps0 = way->ps0};
    char addr[CONTROL_TEXT_BYTES];
    strncpy(addr, way->addr, sizeof addr - 1);
    addr[sizeof addr - 1] = 0;
    pthread_mutex_lock(&m->lock);
    for (struct letter **at = &m->first; *at && n > 0;) {
        struct letter *l = *at;
        if (l->generation != like.generation || l->ps0 != like.ps0 || strcmp(l->addr, addr) != 0) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        if (!*at)
            m->end = at;
        l->next = gone;
        gone = l;
        n--;
    }
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    while (gone) {
        struct letter *next = gone->next;
        letter_free(gone);
        gone = next;
    }
}

/* Returns the peer, created when first needed; NULL: no memory. */
static struct peer *peer_of(struct mail *m, const char *addr)
{
    struct peer *p = m->peers;
    while (p && strcmp(p->addr, addr) != 0)
        p = p->next;
    if (p)
        return p;
    p = calloc(1, sizeof *p + strlen(addr) + 1);
    if (!p || peer_client_create(addr, &p->client) != ST_OK) {
        free(p);
        return NULL;
    }
    memcpy(p->addr, addr, strlen(addr) + 1);
    p->most = GATE_MAX_ITEMS;
    p->call_ms = CALL_MS;
    p->next = m->peers;
    m->peers = p;
    return p;
}

/* Waits until a letter is queued. Returns the first letter, which stays queued; NULL: the mail
 * ends. */
static struct letter *await_letter(struct mail *m)
{
    pthread_mutex_lock(&m->lock);
    while (!m->stopping && !m->first)
        pthread_cond_wait(&m->wake, &m->lock);
    struct letter *l = m->stopping ? NULL : m->first;
    pthread_mutex_unlock(&m->lock);
    return l;
}

/* Collects the letters of one call: `first`, and the letters directly after it that may go in the
 * same call. */
static int gather_letters(struct mail *m, const struct letter *first, int most)
{
    size_t bytes = 0;
    int n = 0;
    pthread_mutex_lock(&m->lock);
    for (const struct letter *l = first; l && n < most && is_same_way(l, first); l = l->next) {
        bytes += l->item.value ? l->item.value->bytes : 0;
        if (n > 0 && bytes > GATE_BATCH_BYTES)
            break;
        m->batch[n++] = l->item;
    }
    pthread_mutex_unlock(&m->lock);
    return n;
}

static void wait_to_retry(struct mail *m)
{
    int64_t ns = clock_deadline_ns(m->again_ms);
    pthread_mutex_lock(&m->lock);
    while (!m->stopping && clock_cond_wait(&m->wake, &m->lock, ns) == 0)
        ;
    pthread_mutex_unlock(&m->lock);
    m->again_ms = 2 * m->again_ms < AGAIN_MAX_MS ? 2 * m->again_ms : AGAIN_MAX_MS;
}

static bool is_over(struct mail *m, const struct letter *l)
{
    pthread_mutex_lock(&m->lock);
    int over = l->generation < m->generation;
    pthread_mutex_unlock(&m->lock);
    return over;
}

/* Adapts to a slow line: a call that timed out is repeated with fewer letters and more time, since
 * otherwise it would never succeed. */
static void adapt_to_line(struct peer *p, enum status st, int n, int64_t ms)
{
    if (st == ST_DEADLINE) {
        p->most = n > 1 ? n / 2 : 1;
        p->call_ms = 2 * p->call_ms < CALL_MAX_MS ? 2 * p->call_ms : CALL_MAX_MS;
    } else if (st == ST_OK && ms < p->call_ms / 4) {
        p->most = 2 * p->most < GATE_MAX_ITEMS ? 2 * p->most : GATE_MAX_ITEMS;
        p->call_ms = p->call_ms / 2 > CALL_MS ? p->call_ms / 2 : CALL_MS;
    }
}

static enum status call_peer(struct mail *m, struct peer *p, const struct net_gate *gate,
                             struct net_squares_reply *reply, char why[CONTROL_TEXT_BYTES])
{
    enum status st = ST_CANCELLED;
    int64_t since_ns = clock_now_ns();
    pthread_mutex_lock(&m->lock);
    int over = m->stopping || gate->generation < m->generation;
    m->calling = over ? NULL : p->client;
    pthread_mutex_unlock(&m->lock);
    if (over)
        return st;
    st = peer_client_gate(p->client, gate, p->call_ms, reply, why);
    pthread_mutex_lock(&m->lock);
    m->calling = NULL;
    pthread_mutex_unlock(&m->lock);
    adapt_to_line(p, st, gate->n, (clock_now_ns() - since_ns) / 1000000);
    return st;
}

/* Sends letters. Returns zero if they are to be sent again. */
static int send_letters(struct mail *m, const struct letter *l, char why[CONTROL_TEXT_BYTES])
{
    struct net_squares_reply reply = {.answer = SQUARES_LATER};
    struct peer *p = peer_of(m, l->addr);
    if (!p)
        return 0;
    int n = gather_letters(m, l, p->most);
    const struct net_gate gate = {l->generation, l->ps0, l->from, n, m->batch};
    enum status st = call_peer(m, p, &gate, &reply, why);
    if (st != ST_OK)
        return 0;
    if (reply.answer == SQUARES_REFUSED) {
        LOG_E(
            "ps:%d (%s) refuses this server's message about the region's chunks: %s; this server exits; run the same version of the program on all servers of the region",
            l->to, l->addr, reply.why);
        m->cfg.refused(m->cfg.ctx);
    }
    if (reply.answer == SQUARES_LATER)
        memcpy(why, reply.why, CONTROL_TEXT_BYTES);
    else
        drop_letters(m, l, reply.answer == SQUARES_OVER ? INT32_MAX : n);
    return reply.answer != SQUARES_LATER;
}

static void *mail_main(void *arg)
{
    struct mail *m = arg;
    for (const struct letter *l; (l = await_letter(m));) {
        char why[CONTROL_TEXT_BYTES] = "";
        bool over = is_over(m, l);
        if (over)
            drop_letters(m, l, INT32_MAX);
        if (m->line_ns == 0)
            m->line_ns = clock_deadline_ns(LINE_MS);
        if (over || send_letters(m, l, why)) {
            m->again_ms = AGAIN_MS;
            m->line_ns = 0;
            continue;
        }
        if (is_over(m, l))
            continue;
        if (clock_now_ns() >= m->line_ns) {
            LOG_W("the region waits for ps:%d (%s): %s; retrying", l->to, l->addr,
                  why[0] ? why : "no answer");
            m->line_ns = clock_deadline_ns(LINE_MS);
        }
        wait_to_retry(m);
    }
    return NULL;
}

enum status mail_start(struct mail *m)
{
    if (m->has_thread)
        return ST_OK;
    int err = pthread_create(&m->thread, NULL, mail_main, m);
    m->has_thread = err == 0;
    if (err)
        LOG_E("the thread for messages to the servers of this region cannot be started: %s",
              threads_error(err));
    return m->has_thread ? ST_OK : ST_NOMEM;
}

void mail_begin(struct mail *m, uint64_t generation)
{
    pthread_mutex_lock(&m->lock);
    m->generation = generation > m->generation ? generation : m->generation;
    if (m->calling)
        peer_client_cancel(m->calling);
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void mail_stop(struct mail *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stopping = 1;
    if (m->calling)
        peer_client_cancel(m->calling);
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    if (m->has_thread)
        pthread_join(m->thread, NULL);
    m->has_thread = 0;
}

void mail_destroy(struct mail *m)
{
    if (!m)
        return;
    mail_stop(m);
    while (m->first) {
        struct letter *l = m->first;
        m->first = l->next;
        letter_free(l);
    }
    while (m->peers) {
        struct peer *p = m->peers;
        m->peers = p->next;
        peer_client_destroy(p->client);
        free(p);
    }
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* Returns true if a requested value is already queued MOST_VALUES times. This bounds the queue for
 * a receiver that repeats its request without end. The limit is above 1, since the receiver may
 * have the first value already and ask for a newer one. The caller holds the lock. */
static bool is_on_its_way(const struct mail *m, const struct letter *l)
{
    int n = 0;
    for (const struct letter *o = l->item.kind == GATE_VALUE ? m->first : NULL; o; o = o->next)
        n += o->item.kind == GATE_VALUE && o->item.chunk == l->item.chunk &&
             o->generation == l->generation && o->ps0 == l->ps0 && o->to == l->to;
    return n >= MOST_VALUES;
}

enum status mail_put(struct mail *m, const struct net_plan *plan, int self, int to,
                     const struct net_gate_item *item)
{
    const char *addr = plan->servers.addr[to];
    struct letter *l = calloc(1, sizeof *l + strlen(addr) + 1);
    if (!l)
        return ST_NOMEM;
    l->generation = plan->generation;
    l->ps0 = plan->ps0;
    l->from = self;
    l->to = to;
    l->item = *item;
    if (item->value)
        buf_ref(item->value);
    memcpy(l->addr, addr, strlen(addr) + 1);
    pthread_mutex_lock(&m->lock);
    bool again = is_on_its_way(m, l);
    if (!again) {
        *m->end = l;
        m->end = &l->next;
        pthread_cond_broadcast(&m->wake);
    }
    pthread_mutex_unlock(&m->lock);
    if (again)
        letter_free(l);
    return ST_OK;
}

bool mail_is_empty(struct mail *m, uint64_t generation)
{
    pthread_mutex_lock(&m->lock);
    const struct letter *l = m->first;
    while (l && l->generation != generation)
        l = l->next;
    pthread_mutex_unlock(&m->lock);
    return !l;
}
