/* ps/service/join.c - see service.h: decides whether a worker may join, and fills in the reply.
 *
 * A join is judged by the plan in force. Any process may join as a member of that plan: the last
 * process counts, unless the one before it lives (rival.h). Between the stop of a run and the next
 * plan every joiner waits. At ps 0 a joiner that is in no plan is put on the list from which the
 * next plan draws its new members; a joiner without an index receives the lowest free index, and
 * keeps it. */
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "checkpoint/job_check.h"
#include "net/wire/job_steps.h"
#include "ps/service/rival.h"
#include "ps/service/service_impl.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A joiner that was in an earlier generation may get the index of a member once that member has had
 * no stream for GONE_NS. A joiner repeats its request while it waits: a repeated request is
 * reported to the coordinator only if the request before it is older than ASKS_NS. */
#define GONE_NS INT64_C(10000000000)
#define ASKS_NS INT64_C(1000000000)

/* Compares the joiner's job and data with those of the job in force. Only ps 0, which every worker
 * asks first, compares the description of the data: other servers may still have that of the job
 * before. */
static enum status compare_job(struct service *s, const struct run *r, const struct net_join *req,
                               char *why, size_t why_bytes)
{
    pthread_mutex_lock(&s->trained_on_lock);
    const char *text = s->cfg.self == 0 ? s->trained_on : NULL;
    enum status st = checkpoint_job_check_running(&r->job, r->chunks, text, req, why, why_bytes);
    pthread_mutex_unlock(&s->trained_on_lock);
    return st;
}

/* Checks whether the joiner's job is the job in force. */
static enum join_answer check_job(struct service *s, const struct run *r,
                                  const struct net_join *req, char *why, size_t why_bytes)
{
    struct net_join full;
    int joins = req->job.n_workers == 0;
    if (joins && !r && req->member >= 0 && req->generation == 0) {
        snprintf(why, why_bytes, "the job has 0 workers; it must have from 1 to %d",
                 JOB_MAX_WORKERS);
        return JOIN_REFUSED;
    }
    if (joins && !r && (!s->cfg.first_join || req->member < 0 || req->generation == 0)) {
        snprintf(why, why_bytes, "this server has no job to join yet");
        return JOIN_RETRY;
    }
    if (!joins && req->job.n_workers > admission_max_workers(s)) {
        snprintf(why, why_bytes, "the job has %d workers, above --max_workers=%d of this server",
                 req->job.n_workers, admission_max_workers(s));
        return JOIN_REFUSED;
    }
    /* The job runs or ran, so fields that the request omits are not checked. */
    if (joins) {
        full = *req;
        full.job.n_workers = r ? r->job.n_workers : JOB_MAX_WORKERS;
        full.member = 0;
        if (req->job.train_steps == 0)
            full.job.train_steps = r ? r->job.train_steps : 0;
    }
    if (checkpoint_job_check_first(joins ? &full : req, joins && !r ? 0 : s->cfg.worker_hosts->n,
                                   why, why_bytes) != ST_OK)
        return JOIN_REFUSED;
    if (r && !r->ended && compare_job(s, r, req, why, why_bytes) != ST_OK) {
        admission_name_setter(s, req, why, why_bytes);
        return JOIN_REFUSED;
    }
    return JOIN_WELCOME;
}

/* Returns the rank of the plan's member that this process is or may become; -1: no rank. */
static int rank_of(const struct service *s, const struct run *r, const struct net_join *req)
{
    int rank = req->member >= 0 ? net_plan_rank(r->plan, req->member) : -1;
    if (req->job.n_workers > 0 || s->cfg.self != 0)
        return rank;
    for (int i = 0; i < r->plan->n_members; i++)
        if (r->members[i].incarnation == req->incarnation ||
            r->members[i].expected == req->incarnation)
            return i;
    /* Another process may have this index by now. The joiner gets the place only if the process
     * that has it has no stream, and one of these holds: that process never joined; it has been
     * missing for long; the joiner is a new process, which was in no generation before. */
    const struct member *m = rank >= 0 ? &r->members[rank] : NULL;
    int64_t missing_ns = m && m->missing_ns ? clock_now_ns() - m->missing_ns : 0;
    int lives_on = req->generation > 0;
    return m && m->missing_ns && (!m->incarnation || !lives_on || missing_ns > GONE_NS) ? rank : -1;
}

/* Returns the lowest index that is free and not one of the job's first workers. */
static int free_index(struct service *s, const struct run *r)
{
    int index = r->job.n_workers;
    while (net_plan_rank(r->plan, index) >= 0 || join_queue_find_member(&s->waiting, index))
        index++;
    return index;
}

/* Puts the joiner on the list of joiners. Returns true if the joiner was not on the list. The
 * caller holds the lock. */
static bool note_waiter(struct service *s, const struct run *r, const struct net_join *req,
                        const char *peer)
{
    struct join_queue_entry w = {
        .member = req->member, .incarnation = req->incarnation, .heard_ns = clock_now_ns()};
    join_queue_expire(&s->waiting, w.heard_ns);
    const struct join_queue_entry *known = join_queue_find(&s->waiting, req->incarnation);
    int taken = req->member >= 0 && (net_plan_rank(r->plan, req->member) >= 0 ||
                                     join_queue_find_member(&s->waiting, req->member));
    if (known)
        w.member = known->member;
    else if (req->member < 0 || (req->job.n_workers == 0 && taken))
        w.member = free_index(s, r);
    if (w.member >= JOB_MAX_WORKERS)
        return false;
    snprintf(w.peer, sizeof w.peer, "%s", peer);
    snprintf(w.address, sizeof w.address, "%s", req->address ? req->address : "");
    bool is_new = !known;
    join_queue_put(&s->waiting, &w);
    if (is_new)
        LOG_MEMBER("worker %d at %s requests to join the running job", w.member, peer);
    return is_new;
}

/* Judges a join to a job that is over. */
static enum join_answer judge_ended(struct service *s, const struct net_join *req, char *why,
                                    size_t why_bytes)
{
    if (s->cfg.serve && req->member == 0) { /* worker 0 may begin the next job, in another format */
        admission_drop_formats(s);
        admission_waits_for_formats(s, req, why, why_bytes);
        why[0] = 0; /* worker 0 does not wait for the requests of other members */
        return JOIN_INIT;
    }
    snprintf(why, why_bytes,
             s->cfg.serve ? "the job is done; worker 0 starts the next job"
                          : "the job is done; this server is stopping");
    return JOIN_RETRY;
}

/* Judges a join to a service that is closed because it ends. */
static enum join_answer judge_closed(struct service *s, const struct net_join *req, char *why,
                                     size_t why_bytes)
{
    int rank = s->run ? net_plan_rank(s->run->plan, req->member) : -1;
    if (rank >= 0 && s->run->members[rank].incarnation == req->incarnation)
        s->run->members[rank].leaving = 1;
    snprintf(why, why_bytes, "%s", s->closed);
    return JOIN_REFUSED;
}

/* Records that a process asks to be this member while no process can be admitted. If the member has
 * no stream, the process replaces the earlier one, even if that one left or was removed. Returns
 * true if the coordinator must be informed of the request (ASKS_NS). The caller holds the lock. */
static bool note_stopped(struct member *m, const struct net_join *req)
{
    uint64_t before = m->incarnation ? m->incarnation : m->expected;
    if (!m->missing_ns)
        return false;
    int64_t now_ns = clock_now_ns();
    int news = !m->asked || now_ns - m->missing_ns > ASKS_NS;
    m->missing_ns = now_ns;
    m->asked = 1;
    if (before == req->incarnation || m->done)
        return news;
    m->incarnation = 0;
    m->expected = req->incarnation;
    m->leaving = m->failed = 0;
    m->joined = 1;
    return true;
}

static bool is_of_other_ps0(const struct run *r, const struct net_join *req)
{
    return req->generation > 0 && req->ps0 && req->ps0 != r->plan->ps0;
}

/* Returns true if the joiner was in a generation above this server's, or in a generation of another
 * ps 0 with the same number. */
static bool is_behind(const struct run *r, const struct net_join *req)
{
    return req->generation > r->generation ||
           (is_of_other_ps0(r, req) && req->generation == r->generation);
}

/* Records in s->claim the joiner's generation if another ps 0 made it and this ps 0's generation
 * does not exceed it. The joiner can join only a higher generation, so this ps 0 has to make one.
 * Returns true if the claim was not recorded before. The caller holds the lock. */
static bool note_claim(struct service *s, const struct run *r, const struct net_join *req)
{
    int news = s->cfg.self == 0 && is_of_other_ps0(r, req) && is_behind(r, req) &&
               req->generation > s->claim;
    if (news)
        s->claim = req->generation;
    return news;
}

/* Admits a member, except in these cases: this generation has stopped; it is older than the
 * generation that the member was in (is_behind); ps 0 has not announced it to the member yet. The
 * caller holds the lock. */
static enum join_answer judge_generation(struct service *s, struct run *r, int rank,
                                         const struct net_join *req, int *news,
                                         struct net_join_reply *reply)
{
    int leads = s->cfg.self == 0, behind = is_behind(r, req), other = is_of_other_ps0(r, req);
    int stopped = !r->ended && handover_is_stopped(r->store);
    int untold = !leads && req->generation && req->generation < r->generation;
    const char *why = NULL;
    uint64_t named = r->generation;
    int claims =
        /* true: this generation, whether it has begun or not, has to end */
        leads && other && behind && !r->ended;
    /* A joiner that was in a generation of another ps 0 was not started by mistake, so it is not
     * judged as a rival. */
    int known = !claims && rival_is_known(&r->members[rank], req->incarnation, clock_now_ns());
    /* A member waits here for a generation that other servers have begun. It must not count as
     * absent if that generation cannot begin here. */
    int early = leads && behind && !other && r->members[rank].incarnation == req->incarnation;
    if (claims || (stopped && !untold && (!behind || early) && !known))
        *news |= note_stopped(&r->members[rank], req);
    /* without this check, the joiner's index alone might admit it in place of another member */
    if (untold) {
        why = "this server has not received generation " TERM_FMT " from ps:0 yet";
    } else if (behind) {
        why = !other  ? "this server has not reached generation " TERM_FMT " yet"
              : leads ? "ps:0 was restarted: a generation above " TERM_FMT " is to begin"
                      : "ps:0 was restarted, and has announced no generation above " TERM_FMT
                        " yet";
        named = req->generation;
    } else if (stopped) {
        why = "generation " TERM_FMT " has stopped, and the next has not begun";
        reply->generation = r->generation;
        reply->ps0 = r->plan->ps0;
    }
    if (why)
        snprintf(reply->why, sizeof reply->why, why, TERM_ARG(named));
    return why ? JOIN_RETRY : JOIN_WELCOME;
}

/* Returns true if a later process has replaced this one. If two processes join as one worker, the
 * later one counts. But the Join of a dead process may arrive after the Join of its successor. So a
 * process that lost its place may regain it, one time, from a process that has not sent a piece. */
static bool is_replaced(const struct member *m, uint64_t incarnation)
{
    if (m->incarnation == incarnation || m->previous != incarnation)
        return false;
    return m->took_back == incarnation || (m->spoke && m->took_back != m->incarnation);
}

/* Judges a rival if that is this server's task. If workers send pieces to ps 0, only ps 0 judges:
 * at other servers, a process that ps 0 has admitted may still find streams of a dead process.
 * Otherwise every server judges. */
static enum rival_verdict judge_rival(const struct service *s, struct run *r, int rank,
                                      const struct net_join *req)
{
    int64_t heard_ns = atomic_load_explicit(&r->heard_ns[rank], memory_order_relaxed);
    if (s->cfg.self > 0 && r->has_chunks0)
        return RIVAL_NONE;
    return rival_judge(&r->members[rank], req->incarnation, heard_ns, clock_now_ns());
}

/* Returns true, with the reason in `why`, if the joiner wrongly assumes that this server is ps 0
 * of its job. A worker asks ps 0 before all other servers, so a joiner that was in a generation
 * has found ps 0. For such a joiner, `why` receives the generation that it waits for at this
 * server. */
static bool is_taken_for_ps0(const struct service *s, const struct net_join *req, char *why,
                             size_t why_bytes)
{
    if (!s->cfg.first_join || s->cfg.self == 0)
        return false;
    if (req->generation > 0)
        snprintf(why, why_bytes, "this server has not reached generation " TERM_FMT " yet",
                 TERM_ARG(req->generation));
    else if (s->cfg.self > 0)
        snprintf(why, why_bytes, "this server is ps:%d of its job; --ps_hosts must begin with ps:0",
                 s->cfg.self);
    else
        snprintf(why, why_bytes,
                 "this server is to join a job; --ps_hosts must begin with ps:0 of that job");
    return req->generation == 0;
}

/* Judges a join. WELCOME: *rank is the joiner's rank; INIT: the caller has to make a first plan.
 * *news is set if the list of joiners or the claims changed. The caller holds the lock. */
static enum join_answer judge_join(struct service *s, const struct net_join *req, const char *peer,
                                   int *rank, int *news, struct net_join_reply *reply)
{
    char *why = reply->why;
    const size_t why_bytes = sizeof reply->why;
    struct run *r = s->run;
    if (s->closed[0])
        return judge_closed(s, req, why, why_bytes);
    if (!r && is_taken_for_ps0(s, req, why, why_bytes))
        return JOIN_REFUSED;
    enum join_answer answer = check_job(s, r, req, why, why_bytes);
    if (answer != JOIN_WELCOME)
        return answer;
    *rank = r ? rank_of(s, r, req) : -1;
    int again = *rank >= 0 && r->members[*rank].incarnation == req->incarnation;
    if (r && r->ended && !again)
        return judge_ended(s, req, why, why_bytes);
    if (!r) {
        bool waits = admission_waits_for_formats(s, req, why, why_bytes);
        waits |= admission_waits_for_first(s, req, why, why_bytes);
        return waits ? JOIN_RETRY : JOIN_INIT;
    }
    /* A removed process may join the present generation, if this generation has a place for it,
     * until the generation stops. */
    int stopped = r && !r->ended && handover_is_stopped(r->store);
    if ((*rank < 0 || stopped) && membership_was_removed(s, req->incarnation)) {
        snprintf(why, why_bytes, "it was removed from the job; start it again to rejoin");
        return JOIN_REFUSED;
    }
    if (*rank < 0 && s->cfg.self == 0) {
        answer = admission_check_room(s, r, req, why, why_bytes);
        if (answer != JOIN_WELCOME)
            return answer;
    }
    if (is_of_other_ps0(r, req) && !term_is_possible(req->generation)) {
        snprintf(why, why_bytes, "the server received an invalid generation, " TERM_FMT,
                 TERM_ARG(req->generation));
        return JOIN_REFUSED;
    }
    *news = note_claim(s, r, req);
    if (*rank < 0) {
        if (s->cfg.self == 0)
            *news |= note_waiter(s, r, req, peer);
        snprintf(why, why_bytes,
                 "the plan of generation " TERM_FMT " has no place for this worker yet",
                 TERM_ARG(r->generation));
        return JOIN_RETRY;
    }
    answer = judge_generation(s, r, *rank, req, news, reply);
    if (answer != JOIN_WELCOME)
        return answer;
    struct member *m = &r->members[*rank];
    enum rival_verdict rival = judge_rival(s, r, *rank, req);
    bool replaced = is_replaced(m, req->incarnation);
    if (rival == RIVAL_NONE && !replaced)
        return JOIN_WELCOME;
    rival_name(m, r->plan->member[*rank], req, peer, why, why_bytes);
    return rival == RIVAL_LATE || replaced ? JOIN_REFUSED : JOIN_RETRY;
}

/* Logs that a worker computes with other arithmetic than the job's first worker. Bit-identity holds
 * only for members that compute alike. */
static void log_arithmetic(const struct run *r, int rank, const struct net_join *req)
{
    const struct member *m = &r->members[rank];
    uint64_t before = m->incarnation ? m->incarnation : m->expected;
    if ((before != req->incarnation || !m->known) && job_arithmetic_differs(&r->job, &req->job))
        LOG_FEW(
            "worker %d computes with '%s', the job's first worker with '%s': this does no harm, but a repeated run yields exactly the same values only if each worker has the same samples again",
            r->plan->member[rank], req->job.arithmetic, r->job.arithmetic);
}

/* Makes the joiner its member's present incarnation. Returns the earlier process's stream, which
 * the caller ends. The caller holds the lock. */
static uint64_t admit_worker(struct service *s, struct run *r, int rank, const struct net_join *req,
                             const char *peer)
{
    struct member *m = &r->members[rank];
    uint64_t old = m->stream, before = m->incarnation ? m->incarnation : m->expected;
    if (m->incarnation == req->incarnation) {
        old = 0;
        if (m->missing_ns) /* the member asks again while it waits for another server */
            m->missing_ns = clock_now_ns();
    } else {
        if (before != req->incarnation || !m->known)
            LOG_MEMBER("worker %d joined from %s%s", r->plan->member[rank], peer,
                       before && before != req->incarnation ? ", in place of an earlier process"
                                                            : "");
        if (before != req->incarnation)
            *m = (struct member){.previous = m->incarnation,
                                 .took_back =
                                     m->previous == req->incarnation ? m->previous : m->took_back};
        m->incarnation = req->incarnation;
        m->stream = 0;
        m->missing_ns = clock_now_ns();
    }
    m->joined = m->known = 1;
    refusals_drop(&s->refusals, r->plan->member[rank]);
    snprintf(m->peer, sizeof m->peer, "%s", peer);
    snprintf(m->address, sizeof m->address, "%s", req->address ? req->address : "");
    store_admit(r->store, rank, req->incarnation);
    return old;
}

/* Adds the shard map and the servers, which only ps 0 sends. */
static enum status fill_plan(const struct net_plan *p, struct net_join_reply *reply)
{
    size_t bytes = (size_t)p->chunks->n_chunks * sizeof *reply->server;
    enum status st = ST_NOMEM;
    reply->server = malloc(bytes);
    TRY(reply->server ? ST_OK : ST_NOMEM);
    memcpy(reply->server, p->shard, bytes);
    reply->n_chunks = p->chunks->n_chunks;
    TRY(hosts_copy((const char *const *)p->servers.addr, (size_t)p->servers.n, &reply->servers));
done:
    return st;
}

static void fill_reply(const struct service *s, const struct run *r, int rank,
                       struct net_join_reply *reply)
{
    const struct net_plan *p = r->plan;
    const struct net_contribution counted = net_plan_contributed(p, p->member[rank], p->step);
    reply->generation = r->generation;
    reply->ps0 = p->ps0;
    reply->step = store_step(r->store);
    reply->place = (struct net_place){.member = p->member[rank],
                                      .rank = rank,
                                      .n_members = p->n_members,
                                      .first_step = p->step,
                                      .position = p->position,
                                      .train_steps = p->job.train_steps,
                                      .asked_steps = job_asked_steps(&p->job),
                                      .region = s->cfg.region,
                                      .n_regions = s->cfg.n_regions,
                                      .rounding = p->job.rounding,
                                      .push_dtype = p->job.push_dtype,
                                      .version_dtype = p->job.version_dtype,
                                      .has_outer = p->job.local_steps > 1,
                                      .outer = p->job.optim,
                                      .contributed = counted.version,
                                      .contributed_in = counted.generation,
                                      .validates = p->job.validation.data.n > 0};
    store_segment(r->store, &reply->segment);
    if (reply->step < 0 && rank == 0)
        reply->answer = JOIN_INIT;
    if (s->cfg.self == 0 && fill_plan(p, reply) != ST_OK) {
        reply->answer = JOIN_RETRY;
        snprintf(reply->why, sizeof reply->why, "the server is out of memory");
    }
}

/* Judges a join and admits a welcome joiner: then *out is a new reference to the run. */
static enum join_answer try_join(struct service *s, const struct net_join *req, const char *peer,
                                 struct net_join_reply *reply, struct run **out, int *rank)
{
    uint64_t old = 0;
    int news = 0;
    *rank = -1;
    pthread_mutex_lock(&s->lock);
    enum join_answer answer = judge_join(s, req, peer, rank, &news, reply);
    if (answer == JOIN_WELCOME) {
        *out = run_ref(s->run);
        if (s->cfg.self == 0)
            log_arithmetic(s->run, *rank, req);
        old = admit_worker(s, s->run, *rank, req, peer);
    }
    if (answer == JOIN_INIT)
        admission_note_setter(s, req, peer);
    pthread_mutex_unlock(&s->lock);
    if (old)
        stream_table_end(s->streams, old, "another process has joined as this worker");
    if (news || answer == JOIN_WELCOME)
        service_roster_changed(s);
    return answer;
}

static void fill_generation(struct service *s, struct net_join_reply *reply)
{
    pthread_mutex_lock(&s->lock);
    reply->generation = s->run ? s->run->generation : 0;
    reply->ps0 = s->run ? s->run->plan->ps0 : 0;
    pthread_mutex_unlock(&s->lock);
}

/* Records that a member was admitted and need only send a piece, so that a member that does not
 * send one is noticed soon. A member that has to make the initial values is not recorded, since it
 * may need more time. */
static void note_joined(struct service *s, struct run *r, int rank, uint64_t incarnation)
{
    pthread_mutex_lock(&s->lock);
    struct member *m = &r->members[rank];
    int news = m->incarnation == incarnation && !m->came;
    if (news)
        m->came = 1;
    pthread_mutex_unlock(&s->lock);
    if (news)
        service_roster_changed(s);
}

/* Logs a refusal. Stores it if the worker is missing, but not if another process is this worker. */
static void note_refusal(struct service *s, const struct net_join *req, const char *peer,
                         const char *why)
{
    if (req->member < 0) {
        LOG_FEW("a joining worker from %s refused: %s", peer, why);
        return;
    }
    LOG_FEW("worker %d from %s refused: %s", req->member, peer, why);
    pthread_mutex_lock(&s->lock);
    const struct run *r = s->run;
    int rank = r ? net_plan_rank(r->plan, req->member) : -1;
    if (rank < 0 || !r->members[rank].incarnation || r->members[rank].missing_ns)
        refusals_put(&s->refusals, req->member, why, clock_now_ns());
    pthread_mutex_unlock(&s->lock);
}

/* Stores the text in which a member of the job describes its data, if it has one. If memory is
 * lacking, the previous text stays. */
static void keep_trained_on(struct service *s, const char *text)
{
    pthread_mutex_lock(&s->trained_on_lock);
    char *copy = text && (!s->trained_on || strcmp(s->trained_on, text) != 0) ? strdup(text) : NULL;
    if (copy) {
        free(s->trained_on);
        s->trained_on = copy;
    }
    pthread_mutex_unlock(&s->trained_on_lock);
}

/* If memory is lacking, there is no text. The text must be stored before the plan exists, so that
 * no worker joins the plan without a comparison. */
void join_begin_trained_on(struct service *s, const char *text)
{
    pthread_mutex_lock(&s->trained_on_lock);
    free(s->trained_on);
    s->trained_on = text ? strdup(text) : NULL;
    pthread_mutex_unlock(&s->trained_on_lock);
}

/* Creates the first plan from the joiner's job, with the number format that all members ask for. */
static enum status make_first(struct service *s, const struct net_join *req, char *why,
                              size_t why_bytes)
{
    struct net_join first = *req;
    pthread_mutex_lock(&s->lock);
    admission_choose_format(s, &first.job);
    pthread_mutex_unlock(&s->lock);
    const char *wrong = job_check_asked(&first.job);
    if (wrong) {
        snprintf(why, why_bytes, "%s", wrong);
        return ST_MISMATCH;
    }
    if (s->cfg.first_join)
        return s->cfg.first_join(s->cfg.ctx, &first, why, why_bytes);
    join_begin_trained_on(s, req->trained_on);
    return generation_make_first_plan(s, &first, why, why_bytes);
}

enum status join_trained_on(struct service *s, char **out)
{
    pthread_mutex_lock(&s->trained_on_lock);
    *out = s->trained_on ? strdup(s->trained_on) : NULL;
    enum status st = s->trained_on && !*out ? ST_NOMEM : ST_OK;
    pthread_mutex_unlock(&s->trained_on_lock);
    return st;
}

void service_join(void *ctx, const struct net_join *req, const char *peer,
                  struct net_join_reply *reply)
{
    struct service *s = ctx;
    struct run *r = NULL;
    int rank;
    *reply = (struct net_join_reply){.step = -1};
    reply->answer = try_join(s, req, peer, reply, &r, &rank);
    if (reply->answer == JOIN_INIT) { /* makes a first plan, then judges the join again */
        reply->answer = JOIN_RETRY;
        if (!reply->why[0])
            snprintf(reply->why, sizeof reply->why, "the first plan is being made");
        if (make_first(s, req, reply->why, sizeof reply->why) != ST_OK)
            reply->answer = JOIN_REFUSED;
        else if (!s->cfg.first_join)
            reply->answer = try_join(s, req, peer, reply, &r, &rank);
    }
    if (reply->answer == JOIN_RETRY && s->cfg.self > 0)
        /* A member that waits only for this server to enter the next generation receives the number
         * of that generation. */
        fill_generation(s, reply);
    if (r) {
        keep_trained_on(s, req->trained_on);
        fill_reply(s, r, rank, reply);
    } else if (reply->answer == JOIN_REFUSED)
        note_refusal(s, req, peer, reply->why);
    else /* the worker asks again and again, and logs the reason itself */
        LOG_D("worker %d from %s must wait: %s", req->member, peer, reply->why);
    if (r && reply->answer == JOIN_WELCOME)
        note_joined(s, r, rank, req->incarnation);
    run_unref(r);
}
