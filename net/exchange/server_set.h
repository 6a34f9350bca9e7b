/* net/exchange/server_set.h - which servers a generation has, and which of the links lead to them.
 * Private to net/exchange.
 * Owns:    the links that it made, until it is installed.
 * Threads: of the caller.
 * Errors:  ST_NOMEM; logged. */
#ifndef NET_EXCHANGE_SERVER_SET_H
#define NET_EXCHANGE_SERVER_SET_H
#include "net/exchange/link.h"

/* Servers of a generation, as links: those that are kept, new ones, and those to be retired. */
struct server_set {
    struct link **links, **gone;
    int n, n_gone;
    int *from;   /* [n]: the link's present number; -1: a new one */
    int *server; /* shard map */
    char *idle;  /* [n]: 1: no chunk is there */
};

/* Where reply's servers and map lead: what the session is to be told is put into *e. *out: to be
 * given to server_set_free; it is taken by server_set_install. ST_NOMEM: logged. */
enum status server_set_make(struct net_exchange *x, const struct net_join_reply *reply,
                            struct session_event *e, struct server_set *out);
void server_set_install(struct net_exchange *x, struct server_set *set); /* under x->lock */
/* What it still holds; `gone` are cancelled. */
void server_set_free(struct server_set *set);

#endif
