/* ps/service/service_impl.h - shared by service.c (pieces and streams), join.c (joins),
 * membership.c (leaves and the roster), admission.c, wait_lines.c and generation.c (the sequence of
 * runs); private to them.
 *
 * The service's lock guards the members of runs, and is never held over a call into the store's
 * chunks or the net. `change` is held over a whole begin, outside the service's lock. */
#ifndef PS_SERVICE_SERVICE_IMPL_H
#define PS_SERVICE_SERVICE_IMPL_H
#include "base/core_turns.h"
#include "base/log.h"
#include "net/rpc/path.h"
#include "ps/service/join_queue.h"
#include "ps/service/pulse.h"
#include "ps/service/refusals.h"
#include "ps/service/run.h"
#include "ps/service/service.h"
#include "ps/service/stream_table.h"
#include "ps/store/stragglers.h"
#include <pthread.h>
#include <stdbool.h>

/* Number format that a process asks for as a member. */
struct admission_format {
    uint64_t incarnation; /* process that asks; 0: none has asked */
    int64_t heard_ns;
    enum dtype push_dtype, version_dtype;
    /* is_auto: the format depends on the speed of the member's connection; in_lockstep: the job
     * makes all steps together */
    int is_auto, in_lockstep;
};
/* Number formats that members ask for (wire_auto) before there is a job. The job gets the format
 * that a member's flags set, or else the format that the member with the slowest connection asks
 * for. Only the last process of each member counts, while it keeps asking. */
struct admission_formats {
    struct admission_format *asked; /* [n_asked] entries of the members; an entry may be unused */
    int n_asked;
    int64_t since_ns; /* time of the first request; 0: none */
    bool is_logged;   /* a line reported the choice */
    bool fixed;       /* a checkpoint fixes the formats below */
    enum dtype push_dtype, version_dtype;
};

struct service {
    struct service_config cfg; /* copy of the config, always with an address */
    struct stream_table *streams;
    pthread_mutex_t change; /* held while a generation begins: only one at a time */
    pthread_mutex_t lock;   /* guards run, its members, and the fields below up to the ticker */
    pthread_cond_t wake;
    struct run *_Atomic run; /* run in force; NULL before the first plan; written under the lock */
    int stopping;
    uint64_t claim; /* see struct generation_state */
    struct join_queue waiting;
    /* time of the first request to begin a job by a worker other than worker 0; 0: none */
    int64_t first_asked_ns;
    struct refusals refusals;
    struct admission_formats formats; /* requests of members before there is a job */
    /* worker that began the job, or is about to; incarnation 0: none */
    struct join_queue_entry setter;
    uint64_t *removed; /* incarnations of members that the operator removed */
    int n_removed;
    int has_all_steps;       /* see admission_set_all_steps */
    char closed[512];        /* reason why every join is refused; "": joins are open */
    struct late_total *late; /* [n_late] members' totals of the job's earlier generations */
    int n_late;
    struct pulse pulse;
    struct net_path_watch path; /* used by the ticker alone */
    pthread_t ticker;
    int has_ticker;
    struct shard_fetch *gather; /* object that fetches chunks for the generation that begins */
    _Atomic uint64_t received_bytes, sent_bytes;
    struct core_turns turns;         /* counts the members on this host as busy */
    pthread_mutex_t trained_on_lock; /* guards trained_on; a holder locks nothing else */
    char *trained_on;                /* see join_trained_on; trained_on_lock guards it */
};

/* Limit on log lines that honest workers cause: in a large job many workers cause a line at the
 * same time. */
enum { MEMBER_LINES = 1024 };
#define LOG_MEMBER(...)                                                                            \
    do {                                                                                           \
        static struct log_kind kind_ = {.limit = {.burst = MEMBER_LINES}};                         \
        log_write_few(&kind_, LOG_LEVEL_INFO, __VA_ARGS__);                                        \
    } while (0)

void service_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                    const struct store_answer *a);
void service_roster_changed(void *ctx);

/* Functions of the handler in join.c. */
void service_join(void *ctx, const struct net_join *req, const char *peer,
                  struct net_join_reply *reply);

/* Functions of the handler in membership.c. */
void membership_leave(void *ctx, const struct net_leave *leave);
/* Notes that a stream has closed: its member has no stream now. */
void membership_forget_stream(struct service *s, uint64_t stream);
/* Returns true if the operator removed this process (membership_remove). The caller holds the
 * lock. */
bool membership_was_removed(const struct service *s, uint64_t incarnation);

/* Runs the ticker's thread (wait_lines.c). */
void *wait_lines_main(void *arg);

/* Functions of admission.c; the caller holds the lock. */
int admission_max_workers(const struct service *s);
/* Returns true, with a reason in `why`, while no job has begun and this worker must wait for
 * worker 0 to begin it. */
bool admission_waits_for_first(struct service *s, const struct net_join *req, char *why,
                               size_t why_bytes);
/* Notes the number format that the member asks for before a job begins. Returns true, with a
 * reason in `why`, if its job waits for the requests of all members, or if there is no memory. */
bool admission_waits_for_formats(struct service *s, const struct net_join *req, char *why,
                                 size_t why_bytes);
/* Sets the number format of a job with wire_auto from the requests of members of its mode. */
void admission_choose_format(struct service *s, struct net_job *job);
/* Drops all requests for a format. */
void admission_drop_formats(struct service *s);
/* Notes that this worker begins the job; a worker that asks shortly after does not replace it. */
void admission_note_setter(struct service *s, const struct net_join *req, const char *peer);
/* Appends to the reason of a refusal which worker began the job, and a remedy. */
void admission_name_setter(const struct service *s, const struct net_join *req, char *why,
                           size_t why_bytes);
/* Returns WELCOME if the job may have one more worker that is in no plan, RETRY if there may be
 * soon, else REFUSED. */
enum join_answer admission_check_room(const struct service *s, const struct run *r,
                                      const struct net_join *req, char *why, size_t why_bytes);

/* generation.c */
/* Functions of the handler in generation.c. */
void generation_fetch(void *ctx, const struct net_fetch_request *request,
                      struct net_fetch_reply *reply);
void generation_squares(void *ctx, const struct net_squares *squares,
                        struct net_squares_reply *reply);
/* Releases a run and the earlier runs that it keeps. NULL is fine. */
void generation_release_runs(struct run *r);
/* Returns true if all members are done, for the first time. The caller holds the lock. */
bool generation_end_run(struct run *r);
/* Creates the first plan from the request of the first member, if no coordinator makes plans. Also
 * returns ST_OK if a plan exists; otherwise writes a sentence to `why`. */
enum status generation_make_first_plan(struct service *s, const struct net_join *req, char *why,
                                       size_t why_bytes);
/* Logs the end of the job and calls `done`. */
void generation_report_done(struct service *s, struct run *r);

#endif
