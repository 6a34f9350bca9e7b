/* net/wire/status_names.c - see status.h. */
#include "net/wire/status.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *net_status_state_name(enum status_state state)
{
    static const char *const names[STATE_N_KINDS] = {"no job yet", "starting", "training",
                                                     "stopped", "done"};
    return names[state];
}

const char *net_status_member_name(enum member_state state)
{
    static const char *const names[MEMBER_N_STATES] = {"expected", "training", "missing", "joining",
                                                       "leaving",  "left",     "done"};
    return names[state];
}

const char *net_status_server_name(enum server_state state)
{
    static const char *const names[SERVER_N_STATES] = {"unknown", "here", "missing", "joining",
                                                       "leaving"};
    return names[state];
}

const char *net_status_state(const struct net_status *s)
{
    int trains = s->state == STATE_TRAINING || s->state == STATE_STARTING;
    return trains && s->waiting[0] ? "waiting" : net_status_state_name(s->state);
}

void net_status_waiting_text(const char *whom, int64_t ms, char text[STATUS_SENTENCE_BYTES])
{
    snprintf(text, STATUS_SENTENCE_BYTES, "waiting for %.*s, %" PRId64 " s so far",
             STATUS_WAITING_BYTES, whom, ms / 1000);
}

/* Returns the length of the note in brackets at the start of the text. If the note was cut, it ends
 * at the end of the text. */
static size_t note_length(const char *text)
{
    size_t n = 0;
    int depth = 0;
    do {
        depth += text[n] == '(';
        depth -= text[n] == ')';
        n += text[n] != 0;
    } while (depth > 0 && text[n]);
    return n;
}

void net_status_waiting_label(const char *whom, char label[STATUS_WAITING_BYTES])
{
    size_t at = 0, n;
    while (*whom && strncmp(whom, ": ", 2) != 0 && at < STATUS_WAITING_BYTES - 1) {
        bool is_note = strncmp(whom, " (", 2) == 0;
        n = is_note ? 1 + note_length(whom + 1) : 1;
        bool is_kept = !is_note || strcspn(whom, "0123456789") >= n;
        if (is_kept && n < STATUS_WAITING_BYTES - at) {
            memcpy(label + at, whom, n);
            at += n;
        }
        whom += n;
    }
    label[at] = 0;
}
