/* ps/checkpoint/own_folder.h - a server's folder that no other server manages: records the complete
 * parts of checkpoints in it (a part is one server's file of a checkpoint), and removes the parts
 * that ps 0 does not keep. If ps 0 uses the folder too, ps 0 removes the parts: then this module is
 * never begun, and does nothing.
 *
 * When the module begins, it reads all data of the present parts. Parts that this process writes
 * later count as complete without a check.
 *
 * Owns:    one thread, which alone waits for the disk; a list of parts.
 * Threads: any; `changed` is called by its own thread, with no lock held.
 * Errors:  ST_NOMEM; errors of the folder are logged, and the operation is retried. */
#ifndef PS_CHECKPOINT_OWN_FOLDER_H
#define PS_CHECKPOINT_OWN_FOLDER_H
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"
#include "net/wire/control.h"
#include <stdbool.h>

struct own_folder_config {
    const char *folder, *address; /* address of this server; both borrowed to the program's end */
    const char *folder_id;        /* id of the folder at the start; borrowed too; empty: none */
    int again_ms;                 /* pause after a failed read of the parts; 0: default */
    void (*changed)(void *ctx);   /* called when the list of parts has changed */
    void *ctx;
};

struct own_folder;
enum status own_folder_create(const struct own_folder_config *cfg, struct own_folder **out);
/* Removes the parts whose removal is pending, unless the disk does not answer before the deadline:
 * then the thread continues until the process exits. NULL is fine. */
void own_folder_destroy(struct own_folder *k, int64_t deadline_ns);
/* Starts the work: the folder belongs to this server alone. Further calls do nothing. */
void own_folder_begin(struct own_folder *k);
/* Reads the folder's id again; `changed` follows. If the id has changed, the parts are read
 * again. */
void own_folder_reread_id(struct own_folder *k);
/* Returns false while the id is being read; during this time the parts are unknown, too. */
bool own_folder_id(struct own_folder *k, char id[FOLDER_ID_BYTES]);
/* Notes an order before it is carried out. A sweep that was requested earlier, and is still in
 * progress, then removes no file of this order. */
void own_folder_note_order(struct own_folder *k, struct checkpoint_id ordered);
void own_folder_add(struct own_folder *k, const struct checkpoint_part *written);
/* Requests the removal of the parts that `keep` does not list; replaces a request that is still
 * pending. The list and the id are copied. */
void own_folder_sweep(struct own_folder *k, const struct checkpoint_keep *keep);
/* Copies at most CONTROL_MAX_PARTS parts of any checkpoint, newest first: the parts that this
 * server wrote, then those of other servers (which report their own parts themselves). The caller
 * frees *out. Returns false if the parts are not known yet, or if memory is lacking. */
bool own_folder_parts(struct own_folder *k, struct net_part **out, int *n);

#endif
