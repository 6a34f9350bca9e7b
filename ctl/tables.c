/* ctl/tables.c - see tables.h. Each server reports only its own part of a table. */
#include "ctl/tables.h"
#include "base/log.h"
#include "ctl/table.h"
#include "net/exchange/status_client.h"
#include "net/wire/table_status.h"
#include "net/wire/tables.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* Longest wait of ctl_tables_add_bytes for one server: operators look at the status when servers
 * hang. */
enum { ADD_MS = 1000 };

/* Part of each server, by its number; NULL: the server has not answered. */
struct parts {
    int n;
    struct net_status *answers;                   /* [n] statuses of other servers */
    const struct net_status_table *of[HOSTS_MAX]; /* [n] figures of all tables */
};

/* How the other servers are asked. */
struct request {
    int64_t timeout_ms; /* longest wait for one server */
    bool skips_missing; /* does not ask servers that the status reports as missing */
    const char *loss;   /* text for the log: what an absent answer means */
};

/* Requests the status of server v. Returns NULL, or the reason why its part is not known. why: room
 * for CONTROL_TEXT_BYTES. */
static const char *ask_one(const struct net_status_server *v, const struct request *r, int n_tables,
                           struct net_status *answer, char *why)
{
    if (r->skips_missing && v->state == SERVER_MISSING)
        return "it is missing";
    enum status st = status_client_ask(v->address, 0, r->timeout_ms, answer, why);
    if (st != ST_OK)
        return st == ST_NOMEM ? "out of memory" : st == ST_DEADLINE ? "no answer" : why;
    return answer->n_tables == n_tables ? NULL : "it has not begun this generation";
}

/* Requests the parts of the servers that `s` lists. */
static enum status ask_all(const struct net_status *s, const struct request *r, struct parts *p)
{
    p->answers = calloc((size_t)s->n_servers + 1, sizeof *p->answers);
    if (!p->answers)
        return ST_NOMEM;
    p->n = s->n_servers;
    for (int i = 0; i < s->n_servers; i++) {
        const struct net_status_server *v = &s->servers[i];
        struct net_status *answer = &p->answers[i];
        char why[CONTROL_TEXT_BYTES] = "";
        if (v->server == s->server) {
            p->of[i] = s->n_tables > 0 ? s->tables : NULL;
            continue;
        }
        if (v->server < 0 || v->n_chunks == 0)
            continue;
        const char *reason = ask_one(v, r, s->chunks->n_tables, answer, why);
        if (!reason)
            p->of[i] = answer->tables;
        else
            LOG_W("ps:%d (%s): %s: %s", v->server, v->address, r->loss, reason);
    }
    return ST_OK;
}

static void free_parts(struct parts *p)
{
    for (int i = 0; i < p->n; i++)
        net_status_free(&p->answers[i]);
    free(p->answers);
}

enum status ctl_tables_add_bytes(struct net_status *s)
{
    const struct request r = {ADD_MS, true, "its memory is shown without the rows of tables"};
    struct parts p = {.answers = NULL};
    if (!s->chunks || s->chunks->n_tables == 0)
        return ST_OK;
    enum status st = ask_all(s, &r, &p);
    if (st != ST_OK)
        LOG_E("out of memory");
    for (int k = 0; k < p.n; k++)
        for (int i = 0; p.of[k] && i < s->chunks->n_tables; i++)
            s->servers[k].bytes += p.of[k][i].bytes;
    free_parts(&p);
    return st;
}

static enum status print_table(const struct net_status *s, const struct parts *p)
{
    struct ctl_table *t = NULL;
    enum status st = ctl_table_create("TABLE\t>SERVER\t>BUCKETS\t>ROWS\t>PENDING\t>MB\t>REMOVED\t"
                                      ">KEYS\t>HOTTEST BUCKET\t>TIMES AVERAGE",
                                      &t);
    for (int i = 0; st == ST_OK && i < s->chunks->n_tables; i++)
        for (int k = 0; k < p->n; k++) {
            const struct net_status_table *v = p->of[k] ? &p->of[k][i] : NULL;
            if (v && v->n_buckets > 0)
                ctl_table_row(t,
                              "%s\t%d\t%d\t%" PRIu64 "\t%" PRIu64 "\t%.1f\t%" PRIu64 "\t%" PRIu64
                              "\t%d\t%.2f",
                              s->chunks->tables[i].name, s->servers[k].server, v->n_buckets,
                              v->rows, v->pending, (double)v->bytes * 1e-6, v->removed, v->keys,
                              v->hottest, net_status_table_imbalance(v));
        }
    if (st == ST_OK)
        st = ctl_table_print(t);
    ctl_table_destroy(t);
    return st;
}

/* Names the tables whose figure includes expired rows: the status does not count them, because it
 * would have to look at every row. */
static void print_expiry(const struct net_status *s)
{
    for (int i = 0; i < s->chunks->n_tables; i++)
        if (s->chunks->tables[i].evict_after > 0)
            printf("%s: ROWS also counts rows that have expired (evict_after=%" PRId64
                   ") and are not freed yet\n",
                   s->chunks->tables[i].name, s->chunks->tables[i].evict_after);
}

static json_t *part_json(const struct net_status_server *server, const struct net_status_table *v)
{
    return json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:f}", "server", server->server,
                     "buckets", v->n_buckets, "rows", (json_int_t)v->rows, "pending",
                     (json_int_t)v->pending, "bytes", (json_int_t)v->bytes, "removed",
                     (json_int_t)v->removed, "keys", (json_int_t)v->keys, "hottest_bucket",
                     v->hottest, "imbalance", net_status_table_imbalance(v));
}

static json_t *parts_json(const struct net_status *s, const struct parts *p, int table)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int k = 0; k < p->n && ok; k++)
        if (p->of[k] && p->of[k][table].n_buckets > 0)
            ok = json_array_append_new(list, part_json(&s->servers[k], &p->of[k][table])) == 0;
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static enum status print_json(const struct net_status *s, const struct parts *p)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; i < s->chunks->n_tables && ok; i++) {
        const struct net_table *t = &s->chunks->tables[i];
        ok = json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:I, s:I, s:o}", "name",
                                                   t->name, "dim", t->dim, "buckets", t->n_buckets,
                                                   "max_rows", (json_int_t)t->max_rows,
                                                   "evict_after", (json_int_t)t->evict_after,
                                                   "servers", parts_json(s, p, i))) == 0;
    }
    json_t *all = ok ? json_pack("{s:O}", "tables", list) : NULL;
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    json_decref(list);
    if (text)
        puts(text);
    free(text);
    return text ? ST_OK : ST_NOMEM;
}

enum status ctl_tables_show(const struct net_status *s, int64_t timeout_ms, bool is_json)
{
    const struct request r = {timeout_ms, false, "its part of the tables is not known"};
    struct parts p = {.n = 0};
    enum status st = ST_OK;
    if (s->chunks->n_tables == 0 && !is_json) {
        puts("the job has no tables");
        return ST_OK;
    }
    TRY(ask_all(s, &r, &p));
    st = is_json ? print_json(s, &p) : print_table(s, &p);
    if (st == ST_OK && !is_json)
        print_expiry(s);
done:
    if (st != ST_OK)
        LOG_E("out of memory");
    fflush(stdout);
    free_parts(&p);
    return st;
}
