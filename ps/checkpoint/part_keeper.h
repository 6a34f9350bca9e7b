/* ps/checkpoint/part_keeper.h - a server's folder that is its own: which parts of checkpoints lie
 * whole in it, and the removal of those that ps 0 does not keep. A folder that ps 0 has, too, is
 * ps 0's to tidy: there a keeper is never begun, and does nothing.
 *
 * Parts that lie there as it begins are read once, whole; what this process writes later it knows
 * to be whole.
 *
 * Owns:    one thread, which alone waits for the disk; a list of parts.
 * Threads: any; `changed` comes from its own thread, with no lock held.
 * Errors:  ST_NOMEM; what goes wrong with the folder is logged, and tried again. */
#ifndef PS_CHECKPOINT_PART_KEEPER_H
#define PS_CHECKPOINT_PART_KEEPER_H
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"
#include "net/wire/control.h"

struct ps_keeper_config {
    const char *folder, *address; /* of this server; borrowed for ever */
    const char *folder_id;        /* likewise, as it begins; empty: it has none */
    int again_ms;                 /* after what lies there could not be read; 0: as is usual */
    void (*changed)(void *ctx);   /* other parts are known than before */
    void *ctx;
};

struct ps_keeper;
enum status ps_keeper_create(const struct ps_keeper_config *cfg, struct ps_keeper **out);
/* What was to be removed is, unless the disk does not answer before the deadline: then the thread
 * is left to the process' end. NULL is fine. */
void ps_keeper_destroy(struct ps_keeper *k, int64_t deadline_ns);
void ps_keeper_begin(struct ps_keeper *k); /* the folder is this server's own; once or more */
/* Reads the folder's id again; `changed` comes after it. With another id its parts are looked at
 * anew. */
void ps_keeper_ask_id(struct ps_keeper *k);
/* 0: it is being read; until then the parts are not known, either. */
int ps_keeper_id(struct ps_keeper *k, char id[FOLDER_ID_BYTES]);
/* Before it is ordered: a word that was given earlier and is being carried out removes nothing of
 * it. */
void ps_keeper_order(struct ps_keeper *k, struct checkpoint_id ordered);
void ps_keeper_add(struct ps_keeper *k, const struct checkpoint_part *written);
/* Takes the place of a word that was not carried out yet; its list and id are copied. */
void ps_keeper_tidy(struct ps_keeper *k, const struct checkpoint_keep *keep);
/* At most CONTROL_MAX_PARTS, newest first: this server's own, and with them the newest of those
 * that others wrote, who tell of theirs. 0: they are not known yet, or there is no memory. *out is
 * malloc'd, and of any checkpoint's. */
int ps_keeper_parts(struct ps_keeper *k, struct net_part **out, int *n);

#endif
