/* net/wire/status_names.c - see status.h. */
#include "net/wire/status.h"

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
