/* ps/service/rival.c - see rival.h. */
#include "ps/service/rival.h"
#include <stdbool.h>
#include <stdio.h>

#define MS INT64_C(1000000)

bool rival_is_known(const struct member *m, uint64_t incarnation, int64_t now_ns)
{
    uint64_t before = m->incarnation ? m->incarnation : m->expected;
    return before && before != incarnation && !m->leaving && !m->done && m->missing_ns &&
           now_ns - m->missing_ns < RIVAL_KNOWN_MS * MS;
}

enum rival_verdict rival_judge(struct member *m, uint64_t incarnation, int64_t heard_ns,
                               int64_t now_ns)
{
    if (!m->incarnation) /* no process has joined in this generation */
        return rival_is_known(m, incarnation, now_ns) ? RIVAL_WAITS : RIVAL_NONE;
    if (m->incarnation == incarnation || !m->stream)
        return RIVAL_NONE;
    if (!m->rival_last_ns || now_ns - m->rival_last_ns > RIVAL_PAUSE_MS * MS)
        m->rival_first_ns = now_ns;
    m->rival_last_ns = now_ns;
    if (m->leaving) /* its place will be free soon */
        return RIVAL_WAITS;
    int spoke = heard_ns - m->rival_first_ns >= RIVAL_SPOKE_MS * MS;
    int open = now_ns - m->rival_first_ns >= RIVAL_OPEN_MS * MS;
    if (!spoke && !open)
        return RIVAL_WAITS;
    /* the next request is judged like a first one, because the first process may be dead by then */
    m->rival_last_ns = 0;
    return RIVAL_LATE;
}

void rival_name(const struct member *m, int index, const struct net_join *req, const char *peer,
                char *why, size_t why_bytes)
{
    int named = req->address && req->address[0];
    snprintf(
        why, why_bytes,
        "another process is already worker %d: it runs at %s%s%s%s, and this process at %s%s%s%s; to train with both, start each with its own --task_index; if the other process hangs, kill it, or run weirctl remove-worker %d",
        index, m->peer, m->address[0] ? " (" : "", m->address, m->address[0] ? ")" : "", peer,
        named ? " (" : "", named ? req->address : "", named ? ")" : "", index);
}
