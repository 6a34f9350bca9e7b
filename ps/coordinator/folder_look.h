/* ps/coordinator/folder_look.h - reads from the checkpoint folder, while ps 0 does not answer,
 * whether the job is over for this server: another ps 0 may have ended the job, or may continue it
 * without the server. A read of the folder may hang, so it runs in a lane (base/lane.h).
 *
 * Owns:    a copy of the question until it is answered.
 * Threads: post from any; the lane's thread calls `end`, with no lock held.
 * Errors:  if the folder cannot be read, all answers are false. */
#ifndef PS_COORDINATOR_FOLDER_LOOK_H
#define PS_COORDINATOR_FOLDER_LOOK_H
#include "base/lane.h"

struct folder_look {
    const char *folder, *address; /* address of this server; both borrowed for ever */
    uint64_t generation;          /* generation of this server's store; 0: it has none */
    /* the newest checkpoint has all steps of its job; if `generation` is not 0, this is true only
     * if the ps 0 of that folder has also ended in order */
    bool has_all_steps;
    bool is_over;     /* has_all_steps is true, and ps 0 has ended in order */
    bool is_left_out; /* a generation newer than the server's runs without it */
    /* called with the answers, but never after the lane is destroyed */
    void (*end)(void *ctx, const struct folder_look *look);
    void *ctx;
};

/* Posts the question to the lane, unless the lane still answers an earlier one. */
void folder_look_post(struct lane *lane, const struct folder_look *question);

#endif
