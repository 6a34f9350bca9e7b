/* base/lane.h - a thread for work that may hang, such as a call of a disk or of a name server. The
 * caller posts jobs and continues; the lane runs them one after the other. If work hangs when the
 * lane is destroyed, the thread is left behind until the process ends. So a job must own all memory
 * that its work accesses, or borrow memory that is never freed.
 *
 * Owns:    one thread, and the jobs that wait.
 * Threads: any thread may post; one thread creates and destroys.
 * Errors:  ST_NOMEM from create, logged; ST_BUSY from post. */
#ifndef BASE_LANE_H
#define BASE_LANE_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct lane;
struct lane_job {
    /* Runs in the lane's thread, without a lock. */
    void (*work)(struct lane_job *job);
    /* Ends the job, and frees it. is_left: the lane was destroyed, and this function must access
     * nothing but the job. Called once for each posted job, by the lane's thread or by
     * lane_destroy(). */
    void (*end)(struct lane_job *job, bool is_left);
};

/* Starts a lane. purpose: text for the error "the thread that PURPOSE cannot be started". */
enum status lane_create(const char *purpose, struct lane **out);
/* Queues the job. ST_BUSY: another job waits already, and the caller keeps this one. */
enum status lane_post(struct lane *l, struct lane_job *job);
/* Waits for the running job, at most until the deadline (base/clock.h). Returns false if the job's
 * work hangs: the thread is left behind. NULL is fine: true. */
bool lane_destroy(struct lane *l, int64_t deadline_ns);

#endif
