/* net/wire/status_names.c - see status.h. */
#include "net/wire/status.h"
#include <inttypes.h>
#include <stdio.h>

const char *net_state_name(enum status_state state)
{
    static const char *const names[STATE_N_KINDS] = {"no job yet", "starting", "training",
                                                     "stopped", "done"};
    return names[state];
}

const char *net_member_name(enum member_state state)
{
    static const char *const names[MEMBER_N_STATES] = {"expected", "training", "missing", "joining",
                                                       "leaving",  "left",     "done"};
    return names[state];
}

const char *net_server_name(enum server_state state)
{
    static const char *const names[SERVER_N_STATES] = {"unknown", "here", "missing", "joining",
                                                       "leaving"};
    return names[state];
}

const char *net_status_state(const struct net_status *s)
{
    int trains = s->state == STATE_TRAINING || s->state == STATE_STARTING;
    return trains && s->waiting[0] ? "waiting" : net_state_name(s->state);
}

void net_waiting_text(const char *whom, int64_t ms, char text[STATUS_SENTENCE_BYTES])
{
    snprintf(text, STATUS_SENTENCE_BYTES, "waiting for %.*s, %" PRId64 " s", STATUS_WAITING_BYTES,
             whom, ms / 1000);
}
