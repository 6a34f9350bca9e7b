/* libweir/lookups.c - reads rows of tables; see tables.h and weir_tables.h. A lookup within a step
 * reads the version of the step (member/row_reads.h). */
#include "libweir/tables.h"
#include "member/row_reads.h"
#include <stdlib.h>
#include <string.h>

struct lookup {
    struct weir *w;
    struct row_table *t;
    const struct net_table *net;
    /* version that the buckets must have. Within a step at the member's own pace: 0, any version. A
     * request for the job's last version would wait for the last checkpoint, which waits for this
     * member's contributions to other chunks. */
    int64_t version;
    float *rows;
    int64_t deadline_ns;
};

static enum status read_rows(const struct lookup *l)
{
    struct row_reads r = {.updates = &l->w->updates,
                          .table = l->net,
                          .keys = &l->t->asked,
                          .done = l->t->done,
                          .version = l->version,
                          .exact = !l->w->own_pace,
                          .rows = l->rows,
                          .deadline_ns = l->deadline_ns};
    return row_reads_run(&r);
}

void weir_lookups_forget(struct row_table *t)
{
    free(t->rest.rows);
    t->rest = (struct lookup_rest){0};
}

static size_t rows_bytes(const struct row_table *t)
{
    return t->asked.n_given * (size_t)t->dim * sizeof(float);
}

/* Returns the size of the table's `done`. */
static size_t done_bytes(const struct lookup *l)
{
    return (size_t)l->net->n_buckets * sizeof *l->t->done;
}

/* Continues the lookup whose timeout has passed, if it had the same keys. Returns false if it had
 * not. */
static bool resume(const struct lookup *l, const uint64_t *keys, int64_t n)
{
    struct row_table *t = l->t;
    bool same = t->rest.rows && t->rest.version == l->version &&
                t->rest.generation == l->w->generation && row_keys_are(&t->asked, keys, (size_t)n);
    if (same)
        memcpy(l->rows, t->rest.rows, rows_bytes(t));
    weir_lookups_forget(t);
    return same;
}

/* Keeps the rows that the lookup has read, because the caller may use its memory for something
 * else. Without memory for them the next lookup begins again. */
static void keep_rest(const struct lookup *l)
{
    struct row_table *t = l->t;
    bool any = memcmp(t->done, t->asked.first, done_bytes(l)) != 0;
    float *rows = any ? malloc(rows_bytes(t)) : NULL;
    if (!rows)
        return;
    memcpy(rows, l->rows, rows_bytes(t));
    t->rest = (struct lookup_rest){rows, l->version, l->w->generation};
}

/* Sorts the keys of a lookup. Often the step before has named them, and so has sorted them. */
static int sort_asked(struct weir *w, int table, const uint64_t *keys, int64_t n)
{
    struct row_table *t = w->tables[table];
    if (t->next_step < 0 && row_keys_are(&t->next, keys, (size_t)n)) {
        struct row_keys asked = t->asked;
        t->asked = t->next;
        t->next = asked;
    }
    return weir_tables_sort_keys(w, table, &t->asked, keys, n, false);
}

/* Looks up the keys. The caller holds the table's lock. Sets *code if *st is OK but the call
 * failed. */
static enum status look_up(const struct lookup *l, int table, const uint64_t *keys, int64_t n,
                           int *code)
{
    struct row_table *t = l->t;
    *code = WEIR_OK;
    if (!resume(l, keys, n)) {
        *code = sort_asked(l->w, table, keys, n);
        if (*code != WEIR_OK)
            return ST_OK;
        memcpy(t->done, t->asked.first, done_bytes(l));
    }
    enum status st = read_rows(l);
    if (st == ST_DEADLINE)
        keep_rest(l);
    return st;
}

/* Returns the code with which a lookup after WEIR_DONE ends. The handle has stopped already. */
static int code_of_last(struct weir *w, const struct row_table *t, enum status st)
{
    if (st == ST_OK)
        return WEIR_OK;
    if (st == ST_DEADLINE)
        return WEIR_AGAIN;
    if (st == ST_REBASED)
        return weir_errors_fail(
            w, WEIR_E_UNAVAILABLE,
            "table '%.255s': the servers have begun another generation after the last step, so the last rows cannot be looked up any more; read them from the last checkpoint",
            t->name);
    return weir_errors_fail_st(w, st);
}

/* Looks up the keys in the present step, or after the last one. The step may have begun after this
 * call, which has waited for the table's other calls. */
static int look_up_locked(struct weir *w, int table, bool last, struct lookup *l,
                          const uint64_t *keys, int64_t n)
{
    int code;
    pthread_mutex_lock(&w->lock);
    bool pushed = !last && l->t->pushed == w->step + 1;
    l->version = last ? w->train_steps : w->own_pace ? 0 : w->step + pushed;
    pthread_mutex_unlock(&w->lock);
    enum status st = look_up(l, table, keys, n, &code);
    if (code != WEIR_OK)
        return code;
    return last ? code_of_last(w, l->t, st) : weir_steps_code_of_wait(w, st, !pushed);
}

/* Begins a lookup. Sets *last to true if the job has made its last step, and this member has not
 * left yet; otherwise the call is within a step, and the caller must call weir_steps_exit. */
static int enter(struct weir *w, struct within *in, bool *last)
{
    *last = !weir_errors_refuses(w) && weir_errors_stopped(w) == WEIR_DONE && !w->goodbye;
    if (!*last)
        return weir_steps_enter_call(w, in);
    weir_errors_listen();
    return WEIR_OK;
}

int weir_lookup(struct weir *w, int table, const uint64_t *keys, int64_t n, float *rows,
                int timeout_ms)
{
    struct within in;
    bool last;
    int code = enter(w, &in, &last);
    if (code != WEIR_OK)
        return code;
    struct row_table *t = weir_tables_find(w, table);
    code = t ? weir_tables_check_keys(w, t, keys, n) : WEIR_E_INVALID;
    if (code == WEIR_OK && n > 0 && !rows)
        code = weir_errors_fail(w, WEIR_E_INVALID, "table '%.255s': rows is NULL, but n is %lld",
                                t->name, (long long)n);
    if (code == WEIR_OK && !last && in.invalid)
        code = WEIR_REBASED;
    if (code == WEIR_OK) {
        struct lookup l = {.w = w,
                           .t = t,
                           .net = weir_tables_net(w, table),
                           .rows = rows,
                           .deadline_ns = weir_steps_deadline(timeout_ms)};
        pthread_mutex_lock(&t->lock);
        code = look_up_locked(w, table, last, &l, keys, n);
        pthread_mutex_unlock(&t->lock);
    }
    if (!last)
        weir_steps_exit(w);
    return code;
}

int weir_next_keys(struct weir *w, int table, const uint64_t *keys, int64_t n)
{
    struct within in;
    int code = weir_steps_enter_call(w, &in);
    if (code != WEIR_OK)
        return code;
    struct row_table *t = weir_tables_find(w, table);
    code = t ? weir_tables_check_keys(w, t, keys, n) : WEIR_E_INVALID;
    if (code == WEIR_OK) {
        pthread_mutex_lock(&t->lock);
        t->next_step = -1;
        code = weir_tables_sort_keys(w, table, &t->next, keys, n, true);
        if (code == WEIR_OK) {
            t->next_step = in.step;
            t->next_generation = w->generation;
        }
        pthread_mutex_unlock(&t->lock);
    }
    weir_steps_exit(w);
    return code;
}
