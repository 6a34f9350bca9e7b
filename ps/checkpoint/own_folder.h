/* ps/checkpoint/own_folder.h - a server's folder that is its own: which parts of checkpoints lie
 * whole in it, and the removal of those that ps 0 does not keep. A folder that ps 0 has, too, is
 * ps 0's to tidy: there this module is never begun, and does nothing.
 *
 * Parts that lie there as it begins are read once, whole; what this process writes later it knows
 * to be whole.
 *
 * Owns:    one thread, which alone waits for the disk; a list of parts.
 * Threads: any; `changed` comes from its own thread, with no lock held.
 * Errors:  ST_NOMEM; what goes wrong with the folder is logged, and tried again. */
#ifndef PS_CHECKPOINT_OWN_FOLDER_H
#define PS_CHECKPOINT_OWN_FOLDER_H
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"
#include "net/wire/control.h"

struct own_folder_config {
    const char *folder, *address; /* of this server; borrowed for ever */
    const char *folder_id;        /* likewise, as it begins; empty: it has none */
    int again_ms;                 /* after what lies there could not be read; 0: as is usual */
    void (*changed)(void *ctx);   /* other parts are known than before */
    void *ctx;
};

struct own_folder;
enum status own_folder_create(const struct own_folder_config *cfg, struct own_folder **out);
/* What was to be removed is, unless the disk does not answer before the deadline: then the thread
 * is left to the process' end. NULL is fine. */
void own_folder_destroy(struct own_folder *k, int64_t deadline_ns);
void own_folder_begin(struct own_folder *k); /* the folder is this server's own; once or more */
/* Reads the folder's id again; `changed` comes after it. With another id its parts are looked at
 * anew. */
void own_folder_reread_id(struct own_folder *k);
/* 0: it is being read; until then the parts are not known, either. */
int own_folder_id(struct own_folder *k, char id[FOLDER_ID_BYTES]);
/* Before it is ordered: a word that was given earlier and is being carried out removes nothing of
 * it. */
void own_folder_note_order(struct own_folder *k, struct checkpoint_id ordered);
void own_folder_add(struct own_folder *k, const struct checkpoint_part *written);
/* Takes the place of a word that was not carried out yet; its list and id are copied. */
void own_folder_sweep(struct own_folder *k, const struct checkpoint_keep *keep);
/* At most CONTROL_MAX_PARTS, newest first: this server's own, and with them the newest of those
 * that others wrote, who tell of theirs. 0: they are not known yet, or there is no memory. *out is
 * malloc'd, and of any checkpoint's. */
int own_folder_parts(struct own_folder *k, struct net_part **out, int *n);

#endif
