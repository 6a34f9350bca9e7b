/* ps/lead_servers.h - the servers that ps 0 knows, by address: what each has said last, and what
 * that means for the next generation. Private to the lead. Owns:    in struct lead: its remotes.
 * Threads: all under the lead's lock, but for those that say otherwise. Errors: ST_NOMEM. */
#ifndef PS_LEAD_SERVERS_H
#define PS_LEAD_SERVERS_H
#include "ps/lead.h"

struct lead;

/* Another server that has called, or is in the plan. */
struct remote {
    char address[CONTROL_TEXT_BYTES];
    int server;           /* its number in the plan in force; -1: it has no place there */
    uint64_t incarnation; /* 0: it has not called yet */
    uint64_t held;        /* that has its share of the generation settled last; 0: none */
    uint64_t generation;  /* of its job; 0: it has none */
    uint64_t call, seen;  /* its call that waits; 0: none */
    int64_t heard_ns, call_ns, first_ns; /* first_ns 0: it has not called */
    int64_t life_ns; /* while no call waits, nobody else takes this address before */
    uint64_t wanted, taken_up, given; /* checkpoints that it asked for */
    struct saver_state state;
    int mute;           /* it has not called since it left an order for one untouched */
    int leaving, drain; /* it wants to go; somebody wants it to */
    uint64_t stop;      /* the last that it took up, */
    int stopped;        /* and is at the end of; */
    int64_t lowest;     /* version */
    int n_missing;
    struct net_missing *missing; /* ms: the time on our clock since when */
};

enum status lead_servers_create(struct lead *l); /* from cfg.servers; no lock */
void lead_servers_free(struct lead *l);          /* no lock */
/* The remote that calls, known or new; NULL: it cannot take part, *why says so (static text), or
 * there is no memory. */
struct remote *lead_servers_caller(struct lead *l, const struct net_control *c, const char **why);
/* 1: another process of that address is there, as far as anybody can tell: the caller is to come
 * again later, and until then nothing that it says counts. */
int lead_servers_doubted(const struct remote *r, const struct net_control *c);
/* Its call has been answered, or has ended; by its process' end, or to make another. */
void lead_servers_answered(struct remote *r);
void lead_servers_closed(struct lead *l, uint64_t call);
/* Takes down what it says. */
void lead_servers_note(struct lead *l, struct remote *r, const struct net_control *c,
                       uint64_t call);
/* The plan in force is another: who has which number. */
void lead_servers_number(struct lead *l, const struct hosts *servers);
int lead_server_silent(const struct remote *r, int64_t ms);
/* It is of no generation, and wants in. */
int lead_server_joins(const struct lead *l, const struct remote *r);
/* It is in the plan, and wants out or is wanted out. */
int lead_server_leaves(const struct remote *r);
/* It is in the plan, but was only to join or wants out, and does not call any more: a generation
 * that begins does not wait for it. From the lead's thread. */
int lead_server_gone(const struct lead *l, const struct remote *r);
/* NULL, or one of the settled generation that has lost its chunks, or will not come back. */
const struct remote *lead_servers_lost(const struct lead *l);
/* The servers of the next generation; for the caller to free. No lock. ST_NOMEM. */
enum status lead_servers_next(struct lead *l, struct hosts *out);
/* Keeps the list for ps 0's next life, where checkpoints are kept. No lock. */
void lead_servers_record(struct lead *l, const struct hosts *servers);

#endif
