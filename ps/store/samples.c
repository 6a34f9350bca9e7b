/* ps/store/samples.c - see samples.h. The number of batches that are in hand or have to be
 * assigned again is at most the largest number of members that the job had at one time, because
 * a new batch begins only when no batch has to be assigned again. */
#include "ps/store/samples.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct ps_samples {
    uint64_t batch, next; /* number of samples of a batch; first sample that was never assigned */
    int n_members;
    uint64_t *in_hand;       /* [n_members] 1 + the first sample of a member's batch; 0: no batch */
    int *counted, n_counted; /* members whose batches the next version contains */
    /* first samples of the batches that have to be assigned again, ascending */
    uint64_t *again;
    size_t n_again, at;
};

enum status ps_samples_create(int n_members, int batch, uint64_t first, struct ps_samples **out)
{
    struct ps_samples *s = calloc(1, sizeof *s);
    if (s)
        s->in_hand = calloc((size_t)n_members + 1, sizeof *s->in_hand);
    if (s)
        s->counted = calloc((size_t)n_members + 1, sizeof *s->counted);
    if (!s || !s->in_hand || !s->counted) {
        ps_samples_destroy(s);
        return ST_NOMEM;
    }
    s->n_members = n_members;
    s->batch = (uint64_t)batch;
    s->next = first;
    *out = s;
    return ST_OK;
}

void ps_samples_destroy(struct ps_samples *s)
{
    if (!s)
        return;
    free(s->in_hand);
    free(s->counted);
    free(s->again);
    free(s);
}

uint64_t ps_samples_in_hand(struct ps_samples *s, int member)
{
    if (s->in_hand[member] == 0 && s->at < s->n_again) {
        s->in_hand[member] = 1 + s->again[s->at++];
    } else if (s->in_hand[member] == 0) {
        s->in_hand[member] = 1 + s->next;
        s->next += s->batch;
    }
    return s->in_hand[member] - 1;
}

void ps_samples_counted(struct ps_samples *s, int member)
{
    s->counted[s->n_counted++] = member;
}

void ps_samples_made(struct ps_samples *s)
{
    while (s->n_counted > 0)
        s->in_hand[s->counted[--s->n_counted]] = 0;
}

size_t ps_samples_room(const struct ps_samples *s)
{
    return 1 + (size_t)s->n_members + s->n_again;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

size_t ps_samples_list(const struct ps_samples *s, uint64_t *out)
{
    size_t n = 0;
    out[n++] = s->next;
    for (size_t i = s->at; i < s->n_again; i++)
        out[n++] = s->again[i];
    for (int m = 0; m < s->n_members; m++)
        if (s->in_hand[m] > 0)
            out[n++] = s->in_hand[m] - 1;
    qsort(out + 1, n - 1, sizeof *out, ascending);
    return n;
}

static bool is_list(const uint64_t *list, size_t n)
{
    int ok = n >= 1 && n <= SAMPLES_MAX_LIST && list[0] <= SAMPLES_MAX;
    for (size_t i = 1; ok && i < n; i++)
        ok = list[i] < list[0] && (i == 1 || list[i] > list[i - 1]);
    return ok;
}

enum status ps_samples_set(struct ps_samples *s, const uint64_t *list, size_t n)
{
    if (!is_list(list, n))
        return ST_PROTOCOL;
    uint64_t *again = malloc(n * sizeof *again);
    if (!again)
        return ST_NOMEM;
    memcpy(again, list + 1, (n - 1) * sizeof *again);
    free(s->again);
    s->again = again;
    s->n_again = n - 1;
    s->at = 0;
    s->next = list[0];
    return ST_OK;
}
