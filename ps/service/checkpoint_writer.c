/* ps/service/checkpoint_writer.c - see checkpoint_writer.h: finds the run that an order is for. */
#include "ps/service/checkpoint_writer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "ps/checkpoint/shard_writer.h"
#include "ps/service/run.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { END_MS = 2000 }; /* longest wait for a file that is no longer needed */

struct checkpoint_writer {
    struct checkpoint_writer_config cfg;
    struct shard_writer *writer;
    int server, n_servers; /* number of this server, and number of servers, in the last order */
    char home[FOLDER_ID_BYTES];
};

static void on_changed(void *ctx)
{
    struct checkpoint_writer *s = ctx;
    s->cfg.changed(s->cfg.ctx);
}

static void release_run(void *owner)
{
    run_unref(owner);
}

enum status checkpoint_writer_create(const struct checkpoint_writer_config *cfg,
                                     struct checkpoint_writer **out)
{
    struct checkpoint_writer *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    enum status st = shard_writer_create(on_changed, s, &s->writer);
    if (st == ST_OK)
        *out = s;
    else
        free(s);
    return st;
}

void checkpoint_writer_destroy(struct checkpoint_writer *s)
{
    if (!s)
        return;
    shard_writer_destroy(s->writer, clock_deadline_ns(END_MS));
    free(s);
}

/* Returns a reference to the service's present run if the run is of this generation and has chunks
 * on this server. */
static enum status take_run(struct checkpoint_writer *s, uint64_t generation, struct run **out)
{
    int ended;
    struct run *run = service_run(s->cfg.service, &ended);
    if (!run)
        return ST_NOT_FOUND;
    if (run->generation != generation || run->self < 0) {
        LOG_D("ignoring a checkpoint order of generation " TERM_FMT
              ": this server is in generation " TERM_FMT ", server %d",
              TERM_ARG(generation), TERM_ARG(run->generation), run->self);
        run_unref(run);
        return ST_MISMATCH;
    }
    *out = run;
    return ST_OK;
}

void checkpoint_writer_order(struct checkpoint_writer *s, uint64_t order, uint64_t generation,
                             int64_t step)
{
    struct run *run;
    enum status st = take_run(s, generation, &run);
    if (st != ST_OK) {
        shard_writer_fail(s->writer, order, step, st);
        return;
    }
    s->server = run->self;
    s->n_servers = run->plan->servers.n;
    struct shard_writer_order o = {.order = order,
                                   .store = run->store,
                                   .file = {.folder = s->cfg.folder,
                                            .step = step,
                                            .generation = run->generation,
                                            .server = run->self,
                                            .n_servers = run->plan->servers.n,
                                            .job = &run->job,
                                            .chunks = run->chunks,
                                            .progress = run_progress(run, step)},
                                   .release = release_run,
                                   .owner = run};
    memcpy(o.file.home, s->home, sizeof o.file.home);
    shard_writer_order(s->writer, &o);
}

void checkpoint_writer_set_home(struct checkpoint_writer *s, const char *id)
{
    snprintf(s->home, sizeof s->home, "%s", id);
}

void checkpoint_writer_cancel(struct checkpoint_writer *s)
{
    shard_writer_cancel(s->writer);
}

void checkpoint_writer_state(struct checkpoint_writer *s, struct checkpoint_writer_state *out)
{
    struct shard_writer_state state;
    shard_writer_state(s->writer, &state);
    *out = (struct checkpoint_writer_state){.order = state.order,
                                            .generation = state.generation,
                                            .step = state.step,
                                            .server = s->server,
                                            .n_servers = s->n_servers,
                                            .phase = state.phase,
                                            .file = state.file};
    /* These two failures are reported as PART_PAST, since a new order may succeed: one for a
     * later step, or one that arrives when the writer is free. */
    if (state.phase == PART_FAILED && (state.failure == ST_RANGE || state.failure == ST_BUSY))
        out->phase = PART_PAST;
    if (state.phase == PART_FAILED && state.failure == ST_INVALID)
        out->phase = PART_DIVERGED;
}
