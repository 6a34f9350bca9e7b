/* ps/coordinator/coordinator_lines.h - log lines about ps 0's decisions, as values: a state machine
 * names the line and its numbers, the shell writes the text.
 * Threads: none; these are values. */
#ifndef PS_COORDINATOR_COORDINATOR_LINES_H
#define PS_COORDINATOR_COORDINATOR_LINES_H
#include <stddef.h>
#include <stdint.h>

/* X(name, level): the texts are in coordinator_lines.c. A line WAIT_... reports why a job makes no
 * steps; its text names the event that ends the wait. */
#define COORDINATOR_LINES(X)                                                                       \
    X(LINE_NONE, 'D')                                                                              \
    X(LINE_WORKER_LATE, 'W')                                                                       \
    X(LINE_WORKER_UNREACHED, 'W')                                                                  \
    X(LINE_WORKER_LEAVES, 'I')                                                                     \
    X(LINE_WORKER_REMOVED, 'I')                                                                    \
    X(LINE_WORKER_JOINS, 'I')                                                                      \
    X(LINE_SERVER_LOST, 'W')                                                                       \
    X(LINE_SERVER_CLAIM, 'W')                                                                      \
    X(LINE_WORKER_CLAIM, 'W')                                                                      \
    X(LINE_JOB_DONE, 'I')                                                                          \
    X(LINE_JOB_DONE_BEFORE, 'I')                                                                   \
    X(LINE_JOB_FAILED, 'E')                                                                        \
    X(LINE_JOB_ANEW, 'W')                                                                          \
    X(LINE_CHECKPOINT_SILENT, 'W')                                                                 \
    X(LINE_CHECKPOINT_FAILED, 'W')                                                                 \
    X(LINE_CHECKPOINT_LOST, 'W')                                                                   \
    X(LINE_CHECKPOINT_UNANSWERED, 'W')                                                             \
    X(LINE_CHECKPOINT_SLOW, 'W')                                                                   \
    X(LINE_CHECKPOINT_MANIFEST, 'W')                                                               \
    X(LINE_CHECKPOINT_ABSENT, 'W')                                                                 \
    X(LINE_CHECKPOINT_UNREAD, 'W')                                                                 \
    X(LINE_CHECKPOINT_NO_VALUES, 'I')                                                              \
    X(LINE_CHECKPOINT_DISK, 'W')                                                                   \
    X(LINE_CHECKPOINT_NO_LAST, 'W')                                                                \
    X(LINE_BEST, 'I')                                                                              \
    X(LINE_BEST_LOST, 'W')                                                                         \
    X(LINE_BEST_OTHER, 'W')                                                                        \
    X(LINE_EARLY_STOP, 'I')                                                                        \
    X(LINE_JOB_STOPPED, 'I')                                                                       \
    X(WAIT_EPOCH, 'W')                                                                             \
    X(WAIT_RAISE, 'W')                                                                             \
    X(WAIT_SERVER_CALLS, 'W')                                                                      \
    X(WAIT_STOP, 'W')                                                                              \
    X(WAIT_LEAVER, 'W')                                                                            \
    X(WAIT_SILENT, 'W')                                                                            \
    X(WAIT_WORKERS, 'W')                                                                           \
    X(WAIT_REACH, 'W')                                                                             \
    X(WAIT_FIND, 'W')                                                                              \
    X(WAIT_FIND_FAILED, 'W')                                                                       \
    X(WAIT_PLAN_FAILED, 'W')                                                                       \
    X(WAIT_BEGIN, 'W')                                                                             \
    X(WAIT_BEGIN_OWN, 'W')                                                                         \
    X(WAIT_LAST_CHECKPOINT, 'W')
enum coordinator_line_id {
#define X(name, level) name,
    COORDINATOR_LINES(X)
#undef X
        COORDINATOR_N_LINES
};

enum { LINE_ENDS = 1 }; /* training makes no step after the checkpoint */

struct coordinator_line {
    enum coordinator_line_id id;
    /* slot of a server, index of a worker; -1: none. In LINE_SERVER_LOST, worker is 1 if the server
     * was restarted, 2 if it was given up. In lines about a checkpoint that was given up, worker
     * may be LINE_ENDS */
    int server, worker;
    int64_t arg[3];
};

struct coordinator_state;
char coordinator_line_level(enum coordinator_line_id id); /* returns D, I, W or E */
/* Writes the text of a line. folder: checkpoint folder to name, NULL: none. The text names
 * addresses, which it reads from the state that produced the line. */
void coordinator_line_text(const struct coordinator_state *c, const struct coordinator_line *l,
                           const char *folder, char *text, size_t bytes);

#endif
