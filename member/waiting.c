/* member/waiting.c - a thread that checks twice a second which program the member waits for, and
 * requests the status of servers; see waiting.h. */
#include "member/waiting.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "net/exchange/status_client.h"
#include "net/rpc/path.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 500,
    FIRST_MS = 3000,    /* time without an answer until a wait gets its first line */
    SECOND_MS = 30000,  /* time until its second line */
    CHANGE_MS = 3000,   /* pause before a line that names another program; doubled with each line */
    CHANGES_MS = 60000, /* longest such pause: two reasons may alternate */
    ASK_MS = 1000,      /* timeout of a request for a status */
    ASK_EACH_MS = 1000,
    ANSWER_MS = 10000 /* wait after which a connected server is reported if its status names no
                       * worker */
};

enum { PS0, OTHER, N_ASKED };

/* A server whose status is requested, over one channel for the whole wait. */
struct asked {
    struct status_asker *asker; /* NULL: none */
    char address[CONTROL_TEXT_BYTES];
};

struct waiting {
    struct waiting_config cfg;
    struct asked asked[N_ASKED];
    _Atomic int member;
    pthread_t thread;
    int runs;
    struct waiting_lines lines;
    /* workers that training waits for according to ps 0; empty: none */
    char whom[STATUS_WAITING_BYTES];
    /* slower workers that the servers wait for according to ps 0; empty: none */
    char slower[STATUS_WAITING_BYTES];
    int64_t asked_ns; /* time of the last request */
    int64_t began_ns; /* time when the wait began */
    int64_t ms;       /* duration of the wait when it was last checked */
    bool has_line;    /* the wait has a log line */
    int64_t step;     /* step and generation when the wait was first seen; see is_continued */
    uint64_t generation;
    struct net_path_watch path;

    pthread_mutex_t lock; /* guards the field below */
    pthread_cond_t ends;
    int ending;
};

/* Returns whether two texts are equal apart from digits. */
static int is_same(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (isdigit((unsigned char)*a))
            a++;
        while (isdigit((unsigned char)*b))
            b++;
        if (*a != *b)
            return 0;
        if (!*a)
            return 1;
    }
}

int waiting_line_is_due(struct waiting_lines *l, const char *whom, int64_t ms)
{
    bool is_first = !l->whom[0], is_due = is_first || ms >= l->line_ms;
    if (!is_due && (is_same(l->whom, whom) || ms < l->change_ms))
        return 0;
    snprintf(l->whom, sizeof l->whom, "%s", whom);
    if (is_due)
        l->line_ms = ms < SECOND_MS ? SECOND_MS : 2 * ms;
    l->gap_ms = is_first ? CHANGE_MS : 2 * l->gap_ms > CHANGES_MS ? CHANGES_MS : 2 * l->gap_ms;
    l->change_ms = ms + l->gap_ms;
    return 1;
}

void waiting_name_slower(const struct net_status *s, int self, char whom[STATUS_WAITING_BYTES])
{
    size_t at = 0;
    whom[0] = 0;
    for (int i = 0; i < s->n_members && at < STATUS_WAITING_BYTES / 2; i++)
        if (s->members[i].awaited > 0 && s->members[i].member != self)
            at += (size_t)snprintf(whom + at, STATUS_WAITING_BYTES - at,
                                   "%sworker %d (slower than this one)", at ? ", " : "",
                                   s->members[i].member);
}

static void drop_asked(struct asked *a)
{
    status_asker_destroy(a->asker);
    *a = (struct asked){.asker = NULL};
}

/* Requests from ps `server` the workers that training waits for, and removes this member from the
 * list. */
static void ask_server(struct waiting *w, struct asked *a, int server, const char *address)
{
    struct net_status s;
    char why[CONTROL_TEXT_BYTES] = "", self[32];
    w->whom[0] = w->slower[0] = 0;
    if (strcmp(a->address, address) != 0)
        drop_asked(a);
    if (!a->asker && status_asker_create(address, &a->asker) != ST_OK)
        return;
    snprintf(a->address, sizeof a->address, "%s", address);
    enum status st = status_asker_ask(a->asker, ASK_MS, &s, why);
    if (status_asker_is_unanswered(a->asker))
        snprintf(w->whom, sizeof w->whom, "ps:%d (%.95s%s%s)", server, address,
                 st == ST_DEADLINE ? ", " : ": ", why);
    if (st != ST_OK)
        return;
    snprintf(self, sizeof self, "worker %d (", atomic_load(&w->member));
    bool is_self = strncmp(s.waiting, self, strlen(self)) == 0;
    if (!is_self || strstr(s.waiting, "), "))
        memcpy(w->whom, s.waiting, sizeof w->whom);
    waiting_name_slower(&s, atomic_load(&w->member), w->slower);
    net_status_free(&s);
}

static void find_whom(struct waiting *w, const struct net_exchange_wait *wait,
                      char whom[STATUS_WAITING_BYTES])
{
    int64_t now_ns = clock_now_ns();
    int is_lost = wait->reason[0] && !wait->is_asked;
    const char *colon = strrchr(wait->address, ':');
    int packet_bytes = net_path_look(&w->path, colon ? atoi(colon + 1) : -1);
    whom[0] = 0;
    if (packet_bytes > 0) {
        snprintf(whom, STATUS_WAITING_BYTES, "ps:%d (%s, packets of %d bytes are lost)",
                 wait->server, wait->address, packet_bytes);
        return;
    }
    if (is_lost) {
        snprintf(whom, STATUS_WAITING_BYTES, "ps:%d (%s, no connection)", wait->server,
                 wait->address);
        return;
    }
    if (now_ns - w->asked_ns >= ASK_EACH_MS * INT64_C(1000000)) {
        w->asked_ns = now_ns;
        ask_server(w, &w->asked[PS0], 0, w->cfg.ps0);
        if (!w->whom[0] && wait->server > 0)
            ask_server(w, &w->asked[OTHER], wait->server, wait->address);
    }
    if (w->whom[0])
        memcpy(whom, w->whom, sizeof w->whom);
    else if (wait->reason[0])
        snprintf(whom, STATUS_WAITING_BYTES, "ps:%d (%s: %s)", wait->server, wait->address,
                 wait->reason);
    else if (wait->ms >= ANSWER_MS && w->slower[0])
        memcpy(whom, w->slower, sizeof w->slower);
    else if (wait->ms >= ANSWER_MS)
        snprintf(whom, STATUS_WAITING_BYTES, "an answer of ps:%d (%s)", wait->server,
                 wait->address);
}

static void end_wait(struct waiting *w)
{
    for (int i = 0; i < N_ASKED; i++)
        drop_asked(&w->asked[i]);
    char label[STATUS_WAITING_BYTES];
    net_status_waiting_label(w->lines.whom, label);
    if (w->has_line)
        LOG_I("the wait for %s is over after %" PRId64 " s", label, w->ms / 1000);
    if (w->lines.whom[0])
        w->cfg.changed(w->cfg.ctx, NULL, 0);
    w->has_line = false;
    w->asked_ns = 0;
    w->lines = (struct waiting_lines){.line_ms = 0};
}

/* Returns true if the wait continues, in another generation or until that begins: answers that a
 * member receives when it enters a generation do not end a wait, since the job has made no step. */
static bool is_continued(const struct waiting *w, const struct net_exchange_wait *now)
{
    return w->lines.whom[0] && w->step >= 0 &&
           (now->step < 0 || (now->step == w->step && now->generation != w->generation));
}

/* Records the duration of the wait. */
static void measure(struct waiting *w, const struct net_exchange_wait *wait)
{
    int64_t now_ns = clock_now_ns();
    if (!w->lines.whom[0]) {
        w->began_ns = now_ns - wait->ms * 1000000;
        w->step = wait->step;
        w->generation = wait->generation;
    }
    w->ms = (now_ns - w->began_ns) / 1000000;
}

static void check_wait(struct waiting *w)
{
    struct net_exchange_wait wait;
    char whom[STATUS_WAITING_BYTES], text[STATUS_SENTENCE_BYTES];
    w->cfg.updates->ops->waits(w->cfg.updates->ctx, &wait);
    if (wait.ms < FIRST_MS) {
        if (!is_continued(w, &wait))
            end_wait(w);
        return;
    }
    measure(w, &wait);
    find_whom(w, &wait, whom);
    struct net_exchange_wait now;
    w->cfg.updates->ops->waits(w->cfg.updates->ctx, &now);
    if (now.ms < wait.ms) /* the wait ended while the request to ps 0 was made */
        return;
    if (!whom[0]) { /* no program is named: the program named before has answered */
        if (w->lines.whom[0])
            w->cfg.changed(w->cfg.ctx, NULL, 0);
        return;
    }
    if (waiting_line_is_due(&w->lines, whom, w->ms) && !wait.is_said) {
        net_status_waiting_text(whom, w->ms, text);
        LOG_W("%s", text);
        w->has_line = true;
    }
    w->cfg.changed(w->cfg.ctx, whom, w->ms);
}

static void *waiting_main(void *arg)
{
    struct waiting *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->ending) {
        int64_t deadline = clock_deadline_ns(LOOK_MS);
        while (!w->ending && clock_cond_wait(&w->ends, &w->lock, deadline) == 0)
            ;
        if (w->ending)
            break;
        pthread_mutex_unlock(&w->lock);
        check_wait(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum status waiting_create(const struct waiting_config *cfg, struct waiting **out)
{
    if (!cfg->updates->ops->waits) {
        *out = NULL;
        return ST_OK;
    }
    struct waiting *w = calloc(1, sizeof *w);
    int err = ENOMEM;
    if (w) {
        w->cfg = *cfg;
        atomic_store(&w->member, -1);
        pthread_mutex_init(&w->lock, NULL);
        clock_cond_init(&w->ends);
        err = pthread_create(&w->thread, NULL, waiting_main, w);
        w->runs = err == 0;
    }
    if (err) {
        LOG_E("the thread for lines on waits cannot be started: %s", threads_error(err));
        waiting_destroy(w);
        return ST_NOMEM;
    }
    pthread_setname_np(w->thread, "waits");
    *out = w;
    return ST_OK;
}

void waiting_set_member(struct waiting *w, int member)
{
    if (w)
        atomic_store(&w->member, member);
}

void waiting_destroy(struct waiting *w)
{
    if (!w)
        return;
    if (w->runs) {
        pthread_mutex_lock(&w->lock);
        w->ending = 1;
        pthread_cond_signal(&w->ends);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    for (int i = 0; i < N_ASKED; i++)
        drop_asked(&w->asked[i]);
    pthread_cond_destroy(&w->ends);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
