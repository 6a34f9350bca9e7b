/* ps/coordinator/coordinator_lines.c - texts of the log lines about ps 0's decisions
 * (coordinator_lines.h). */
#include "ps/coordinator/coordinator_lines.h"
#include "base/status.h"
#include "ps/coordinator/coordinator_view.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct text {
    const struct coordinator_state *c;
    const struct coordinator_line *l;
    const char *folder;
    char *at;
    size_t bytes;
    int number;                           /* number of the server; -1: none */
    char server[CONTROL_TEXT_BYTES + 32]; /* "ps:1 (10.0.0.7:2221)" */
    char worker[COORDINATOR_ADDRESS_BYTES + 32];
};

char coordinator_line_level(enum coordinator_line_id id)
{
    static const char levels[] = {
#define X(name, level) level,
        COORDINATOR_LINES(X)
#undef X
    };
    return levels[id];
}

static void worker_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    char tail[96];
    snprintf(tail, sizeof tail, "(generation " TERM_FMT ", %d workers)",
             TERM_ARG((uint64_t)l->arg[1]), (int)l->arg[2]);
    switch (l->id) {
    case LINE_WORKER_LATE:
        snprintf(
            t->at, t->bytes,
            "%s has not returned for %g s: training continues without it from step %" PRId64 " %s",
            t->worker, (double)coordinator_view_worker_timeout_ms(t->c) * 1e-3, l->arg[0], tail);
        break;
    case LINE_WORKER_LEAVES:
        snprintf(t->at, t->bytes, "%s leaves at step %" PRId64 " %s", t->worker, l->arg[0], tail);
        break;
    case LINE_WORKER_REMOVED:
        snprintf(t->at, t->bytes, "%s was removed at step %" PRId64 " %s", t->worker, l->arg[0],
                 tail);
        break;
    case LINE_WORKER_JOINS:
        snprintf(t->at, t->bytes, "%s joins at step %" PRId64 " %s", t->worker, l->arg[0], tail);
        break;
    default: /* LINE_WORKER_UNREACHED */
        snprintf(t->at, t->bytes,
                 "%s reaches ps:0 but not %s: training continues without it from step %" PRId64
                 "; the worker may rejoin after %d s; repair the link between the two",
                 t->worker, t->server, l->arg[0], (int)(l->arg[1] / 1000));
    }
}

static void server_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    char from[96] = "there is no checkpoint, training begins again at step 0";
    if (l->arg[0])
        snprintf(from, sizeof from, "training goes back to the checkpoint at step %" PRId64,
                 l->arg[1]);
    if (l->id == LINE_SERVER_LOST)
        snprintf(t->at, t->bytes, "%s %s: %s (generation " TERM_FMT ")", t->server,
                 l->worker == 1   ? "was restarted and has lost its parameters"
                 : l->worker == 2 ? "counts as lost"
                                  : "is gone with its parameters",
                 from, TERM_ARG((uint64_t)l->arg[2]));
    else
        snprintf(t->at, t->bytes,
                 "%s claims to be in generation " TERM_FMT
                 ", which is out of range; the message is ignored",
                 l->id == LINE_WORKER_CLAIM ? "a worker"
                                            : coordinator_view_server_address(t->c, l->server),
                 TERM_ARG((uint64_t)l->arg[0]));
}

/* Writes the addresses of the servers that the change waits for, at most a few of them. */
static void behind_text(const struct coordinator_state *c, char *text, size_t bytes)
{
    int n = 0, more = 0;
    size_t at = 0;
    text[0] = 0;
    for (int i = coordinator_view_server_behind(c, 0); i >= 0;
         i = coordinator_view_server_behind(c, i + 1)) {
        struct coordinator_server_view s;
        coordinator_view_server(c, i, &s);
        if (n++ >= 4)
            more++;
        else if (at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%sps:%d (%.80s)", n > 1 ? ", " : "",
                                   s.number, coordinator_view_server_address(c, i));
    }
    if (more && at < bytes)
        snprintf(text + at, bytes - at, " and %d more", more);
}

/* Writes the names of the workers that have not returned, at most a few of them. */
static void late_text(const struct coordinator_state *c, char *text, size_t bytes)
{
    int n = 0, more = 0;
    size_t at = 0;
    text[0] = 0;
    for (int i = coordinator_view_worker_late(c, 0); i >= 0;
         i = coordinator_view_worker_late(c, i + 1)) {
        if (n++ >= 4)
            more++;
        else if (at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%sworker %d (%.60s)",
                                   n > 1 ? ", " : "; missing: ", i,
                                   coordinator_view_worker_address(c, i));
    }
    if (more && at < bytes)
        snprintf(text + at, bytes - at, " and %d more", more);
}

static void no_last_text(const struct text *t)
{
    char names[420];
    const struct coordinator_line *l = t->l;
    char last[64] = "there is no earlier checkpoint";
    if (l->arg[0] >= 0)
        snprintf(last, sizeof last, "the newest checkpoint is at step %" PRId64, l->arg[0]);
    if (l->id == LINE_CHECKPOINT_NO_VALUES)
        snprintf(t->at, t->bytes, "no checkpoint yet: the first values have not all arrived");
    else if (l->id == LINE_CHECKPOINT_DISK)
        snprintf(t->at, t->bytes,
                 "no checkpoint: %s has not answered for 5 minutes (is its disk mounted?); %s",
                 t->folder, last);
    else if (l->server >= 0)
        snprintf(
            t->at, t->bytes,
            "no last checkpoint: %s is not connected to ps:0 (does it run, with --checkpoint_dir?); %s",
            t->server, last);
    else if (behind_text(t->c, names, sizeof names), names[0])
        snprintf(
            t->at, t->bytes,
            "no last checkpoint: %s did not stop at the same step as the other servers in time; %s",
            names, last);
    else
        snprintf(t->at, t->bytes,
                 "no last checkpoint: a server could not copy or write its part; %s", last);
}

static void checkpoint_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    switch (l->id) {
    case LINE_CHECKPOINT_SILENT:
        snprintf(t->at, t->bytes,
                 "checkpoint at step %" PRId64
                 " given up: %s has been silent for 15 s; does it run?",
                 l->arg[0], t->server);
        break;
    case LINE_CHECKPOINT_FAILED: /* the server's own log has the reason */
        if (t->number == 0)
            snprintf(t->at, t->bytes, "checkpoint at step %" PRId64 " given up; training continues",
                     l->arg[0]);
        else
            snprintf(t->at, t->bytes,
                     "checkpoint at step %" PRId64
                     " given up: ps:%d could not copy or write its part; training continues",
                     l->arg[0], t->number);
        break;
    case LINE_CHECKPOINT_LOST:
        snprintf(t->at, t->bytes,
                 "checkpoint at step %" PRId64 " given up: ps:%d ended before it wrote its part",
                 l->arg[0], t->number);
        break;
    case LINE_CHECKPOINT_UNANSWERED:
        snprintf(t->at, t->bytes,
                 "checkpoint at step %" PRId64
                 " given up: servers did not answer within 3 s, such as %s; training continues",
                 l->arg[0], t->server);
        break;
    case LINE_CHECKPOINT_SLOW:
        snprintf(t->at, t->bytes,
                 "checkpoint at step %" PRId64
                 " given up: only %d of %d servers wrote their part in time; training continues",
                 l->arg[0], (int)l->arg[1], (int)l->arg[2]);
        break;
    case LINE_CHECKPOINT_MANIFEST:
        snprintf(t->at, t->bytes,
                 "checkpoint at step %" PRId64
                 " given up: its manifest could not be written; training continues",
                 l->arg[0]);
        break;
    case LINE_CHECKPOINT_ABSENT:
        snprintf(
            t->at, t->bytes,
            "no checkpoints while %s is not connected to ps:0; does it run, with the same --checkpoint_dir?",
            t->server);
        break;
    case LINE_CHECKPOINT_UNREAD: /* the server's own log has the reason */
        snprintf(
            t->at, t->bytes,
            "%s reports that the checkpoint at step %" PRId64
            " is damaged (the log of that server has the reason): ps:0 searches for an earlier checkpoint",
            t->server, l->arg[0]);
        break;
    default:
        no_last_text(t);
    }
}

/* Cuts off the words that are wrong for a checkpoint after which training makes no step. */
static void checkpoint_end_text(const struct text *t)
{
    char *tail = t->l->worker == LINE_ENDS ? strstr(t->at, "; training continues") : NULL;
    if (tail)
        *tail = 0;
}

static void evaluation_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    struct best_evaluation best;
    char since[96] = "no finite validation loss", accuracy[48] = "";
    evaluation_best(t->c, &best);
    if (best.known && !isnan(best.accuracy))
        snprintf(accuracy, sizeof accuracy, " validation accuracy: %.4f,", best.accuracy);
    if (best.known)
        snprintf(since, sizeof since,
                 "no lower validation loss than that of step %" PRId64 " (%.4f)", best.step,
                 best.loss);
    if (l->id == LINE_EARLY_STOP)
        snprintf(t->at, t->bytes,
                 "--early_stopping: %s in %" PRId64 " evaluations: the job ends at step %" PRId64,
                 since, l->arg[1], l->arg[0]);
    else if (l->id == LINE_BEST_OTHER)
        snprintf(t->at, t->bytes,
                 "the best checkpoint so far, of step %" PRId64
                 ", was chosen with other validation data (%" PRId64
                 " samples; now there are %" PRId64
                 "): the next evaluation replaces this checkpoint without a comparison",
                 l->arg[0], l->arg[1], l->arg[2]);
    else if (l->id == LINE_BEST)
        snprintf(t->at, t->bytes,
                 "best so far: step %" PRId64 ",%s validation loss: %.4f; its checkpoint is kept",
                 best.step, accuracy, best.loss);
    else
        snprintf(t->at, t->bytes,
                 "the evaluation at step %" PRId64
                 " does not count as the best: its checkpoint could not be kept",
                 l->arg[0]);
}

static void wait_start_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    const char *why = status_text((enum status)l->arg[0]);
    switch (l->id) {
    case WAIT_EPOCH:
        if (l->arg[0])
            snprintf(
                t->at, t->bytes,
                "training waits until ps:0 can record its start in %s (%s): free some space there, or make the folder writable",
                t->folder, why);
        else
            snprintf(t->at, t->bytes,
                     "training waits until ps:0 has recorded its start in %s (under way)",
                     t->folder);
        break;
    case WAIT_RAISE:
        snprintf(
            t->at, t->bytes,
            "programs whose last generation was made by another ps:0 cannot join until this ps:0 has recorded a higher term in %s (%s): free some space there, or make the folder writable",
            t->folder, why);
        break;
    case WAIT_SERVER_CALLS:
        snprintf(t->at, t->bytes, "%s has not connected to ps:0 yet", t->server);
        break;
    case WAIT_FIND:
        snprintf(t->at, t->bytes, "ps:0 has searched %s for the newest checkpoint for %d s so far",
                 t->folder, (int)l->arg[0]);
        break;
    case WAIT_FIND_FAILED:
    case WAIT_PLAN_FAILED:
    default:
        snprintf(t->at, t->bytes, "the next generation cannot begin: %s; retrying", why);
    }
}

static void wait_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    int number = (int)l->arg[0];
    char at[40] = "before its first step", late[400];
    switch (l->id) {
    case WAIT_STOP:
        snprintf(
            t->at, t->bytes,
            "training stops for a change and waits for %s; restart it if it is gone, or remove it with weirctl drain %d",
            t->server, number);
        break;
    case WAIT_LEAVER:
        snprintf(
            t->at, t->bytes,
            "%s must move its chunks to other servers, but has been silent for %d s; if it is gone for good, weirctl drain %d resumes from the newest checkpoint without it",
            t->server, (int)l->arg[1], number);
        break;
    case WAIT_SILENT:
        snprintf(
            t->at, t->bytes,
            "training waits for %s, which has been silent for %d s; restart it, or, if it is gone for good, weirctl drain %d resumes from the newest checkpoint without it",
            t->server, (int)l->arg[1], number);
        break;
    case WAIT_WORKERS:
        if (l->arg[0] >= 0)
            snprintf(at, sizeof at, "at step %" PRId64, l->arg[0]);
        late_text(t->c, late, sizeof late);
        snprintf(
            t->at, t->bytes,
            "training waits %s: %d %s present, --min_workers=%d%s; start more, or end the job with weirctl stop",
            at, (int)l->arg[1], l->arg[1] == 1 ? "worker is" : "workers are", (int)l->arg[2], late);
        break;
    case WAIT_REACH:
        snprintf(
            t->at, t->bytes,
            "no worker reaches %s, and training waits; repair the link, or remove the server with weirctl drain %d",
            t->server, number);
        break;
    case WAIT_BEGIN:
        snprintf(t->at, t->bytes,
                 "generation " TERM_FMT " waits for %s, whose log may have the reason",
                 TERM_ARG((uint64_t)l->arg[0]), t->server);
        break;
    case WAIT_BEGIN_OWN:
        snprintf(t->at, t->bytes, "generation " TERM_FMT " waits for this server's chunks",
                 TERM_ARG((uint64_t)l->arg[0]));
        break;
    case WAIT_LAST_CHECKPOINT:
        snprintf(t->at, t->bytes, "the last checkpoint, at step %" PRId64 ", is being made",
                 l->arg[0]);
        break;
    default:
        wait_start_text(t);
    }
}

static void job_failed_text(const struct text *t)
{
    const struct coordinator_line *l = t->l;
    char from[96] = "there is no checkpoint, training begins again at step 0";
    if (l->arg[1] >= 0)
        snprintf(from, sizeof from, "the last checkpoint, of step %" PRId64 ", is kept", l->arg[1]);
    snprintf(
        t->at, t->bytes,
        "all workers have ended with an error, at step %" PRId64
        ": the job has failed, and its servers exit; correct the cause of the errors (a flag, the data), then start all programs again: %s",
        l->arg[0] > 0 ? l->arg[0] : 0, from);
}

void coordinator_line_text(const struct coordinator_state *c, const struct coordinator_line *l,
                           const char *folder, char *text, size_t bytes)
{
    struct coordinator_server_view s = {.number = -1};
    struct text t = {
        .c = c, .l = l, .folder = folder ? folder : "memory", .at = text, .bytes = bytes};
    if (l->server >= 0)
        coordinator_view_server(c, l->server, &s);
    t.number = s.number;
    if (s.number >= 0)
        snprintf(t.server, sizeof t.server, "ps:%d (%s)", s.number,
                 coordinator_view_server_address(c, l->server));
    else
        snprintf(t.server, sizeof t.server, "a server (%s)",
                 coordinator_view_server_address(c, l->server));
    snprintf(t.worker, sizeof t.worker, "worker %d (%s)", l->worker,
             coordinator_view_worker_address(c, l->worker));
    text[0] = 0;
    if (l->id == LINE_JOB_DONE)
        snprintf(
            text, bytes,
            "the job has completed its steps, and its missing workers do not connect again: the job is done");
    else if (l->id == LINE_JOB_STOPPED && l->arg[0] < 0)
        snprintf(text, bytes,
                 "the job is stopped, as requested, and has no workers: the job is done");
    else if (l->id == LINE_JOB_STOPPED)
        snprintf(text, bytes,
                 "the job is stopped, as requested: it ends at step %" PRId64 " of %" PRId64,
                 l->arg[0], l->arg[1]);
    else if (l->id == LINE_JOB_FAILED)
        job_failed_text(&t);
    else if (l->id == LINE_JOB_ANEW)
        snprintf(text, bytes,
                 "%s%s: the job, which began before this ps:0 started, begins again at step 0",
                 folder ? folder : "there is no --checkpoint_dir",
                 folder ? " has no checkpoint" : "");
    else if (l->id == LINE_JOB_DONE_BEFORE)
        snprintf(text, bytes,
                 "the job in %s has completed its steps, and no worker returns: the job is done",
                 t.folder);
    else if (l->id >= LINE_WORKER_LATE && l->id <= LINE_WORKER_JOINS)
        worker_text(&t);
    else if (l->id >= LINE_SERVER_LOST && l->id <= LINE_WORKER_CLAIM)
        server_text(&t);
    else if (l->id >= LINE_CHECKPOINT_SILENT && l->id <= LINE_CHECKPOINT_NO_LAST)
        checkpoint_text(&t), checkpoint_end_text(&t);
    else if (l->id >= LINE_BEST && l->id <= LINE_EARLY_STOP)
        evaluation_text(&t);
    else if (l->id != LINE_NONE)
        wait_text(&t);
}
