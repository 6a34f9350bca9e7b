/* ps/service/service_impl.h - what service.c (pieces and streams), join.c (who joins), membership.c
 * (who leaves, who is there), admission.c, wait_lines.c and generation.c (one run after the other)
 * share; private to them.
 *
 * Locks: the service's guards runs' members and is never held over a call into the store's chunks
 * or the net. `change` is held over a whole begin, outside the service's. */
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

/* What a member's process asks for. */
struct admission_format {
    uint64_t incarnation; /* 0: nobody has asked */
    int64_t heard_ns;
    enum dtype push_dtype, version_dtype;
    int is_auto, in_lockstep; /* its line asks for that; its job's mode */
};
/* Number formats that members ask for (wire_auto) before there is a job: the job has what the
 * thinnest line asks for, or what a member was told to take. Of each member the last process
 * counts, while it asks on. */
struct admission_formats {
    struct admission_format *asked; /* by index, n_asked, of whom some may not have come */
    int n_asked;
    int64_t since_ns; /* the first has; 0: nobody */
    int said;         /* who decided */
    int fixed;        /* a checkpoint says: */
    enum dtype push_dtype, version_dtype;
};

struct service {
    struct service_config cfg; /* with an address */
    struct stream_table *streams;
    pthread_mutex_t change; /* one begin at a time */
    pthread_mutex_t lock;   /* guards run, the members in it, and all below up to the ticker */
    pthread_cond_t wake;
    struct run *_Atomic run; /* NULL before the first plan; written under the lock */
    int stopping;
    uint64_t claim; /* as in struct generation_state */
    struct join_queue waiting;
    int64_t first_asked_ns; /* somebody else than worker 0 wanted to settle a job; 0: nobody */
    struct refusals refusals;
    struct admission_formats formats; /* what members of a job to come ask for */
    struct join_queue_entry setter; /* who settled the job, or is about to; incarnation 0: nobody */
    uint64_t *removed;              /* incarnations of members that somebody had removed */
    int n_removed;
    int has_all_steps;       /* admission_set_all_steps */
    char closed[512];        /* why nobody is let in any more; "": that is not so */
    struct late_total *late; /* of the job's earlier generations, by index */
    int n_late;
    struct pulse pulse;
    struct net_path_watch path; /* the ticker's alone */
    pthread_t ticker;
    int has_ticker;
    struct shard_fetch *gather; /* of the begin under way */
    _Atomic uint64_t received_bytes, sent_bytes;
    struct core_turns turns;   /* busy are members on this host */
    pthread_mutex_t told_lock; /* its holder takes no other lock */
    char *trained_on;          /* join_trained_on; guarded by it */
};

/* Lines that honest workers bring about, in a large job many at once. */
enum { MEMBER_LINES = 1024 };
#define LOG_MEMBER(...)                                                                            \
    do {                                                                                           \
        static struct log_kind kind_ = {.limit = {.burst = MEMBER_LINES}};                         \
        log_write_few(&kind_, LOG_LEVEL_INFO, __VA_ARGS__);                                        \
    } while (0)

/* service.c */
void service_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                    const struct store_answer *a);
void service_roster_changed(void *ctx);

/* join.c: of the handler. */
void service_join(void *ctx, const struct net_join *req, const char *peer,
                  struct net_join_reply *reply);

/* membership.c: of the handler. */
void membership_leave(void *ctx, const struct net_leave *leave);
/* A stream has closed: its member has none now. */
void membership_forget_stream(struct service *s, uint64_t stream);
/* It is refused, as membership_remove has it. Under the lock. */
int membership_was_removed(const struct service *s, uint64_t incarnation);

/* wait_lines.c: the ticker's thread. */
void *wait_lines_main(void *arg);

/* admission.c; all under the lock. */
int admission_max_workers(const struct service *s);
/* 1: no job is settled yet, and this worker has to wait for the one that is to, as `why` says. */
int admission_waits_for_first(struct service *s, const struct net_join *req, char *why,
                              size_t why_bytes);
/* Notes what number format the member asks for. No job is settled yet. 1: its job is to have what
 * all lines ask for, and not all members have come, as `why` says, or there is no memory. */
int admission_waits_for_formats(struct service *s, const struct net_join *req, char *why,
                                size_t why_bytes);
/* The job, if it has wire_auto, gets what is known so far of members of its mode. */
void admission_choose_format(struct service *s, struct net_job *job);
/* Nobody has asked for anything. */
void admission_drop_formats(struct service *s);
/* Its job is to be the one in force; two that come at once do not change places. */
void admission_note_setter(struct service *s, const struct net_join *req, const char *peer);
/* Adds to why another job is refused whose the one in force is, and what can be done. */
void admission_name_setter(const struct service *s, const struct net_join *req, char *why,
                           size_t why_bytes);
/* WELCOME: there is room for one that is in no plan; RETRY: there may be soon. */
enum join_answer admission_check_room(const struct service *s, const struct run *r,
                                      const struct net_join *req, char *why, size_t why_bytes);

/* generation.c */
/* Of the handler. */
void generation_fetch(void *ctx, const struct net_fetch_request *request,
                      struct net_fetch_reply *reply);
void generation_squares(void *ctx, const struct net_squares *squares,
                        struct net_squares_reply *reply);
/* Gives back a reference to a run, and to each that is kept behind it. NULL is fine. */
void generation_release_runs(struct run *r);
/* 1 if all members are done, for the first time. Under the lock. */
int generation_end_run(struct run *r);
/* The first plan, from what the first member brings, where nobody else makes plans. ST_OK also if
 * there is one already; else a sentence in `why`. */
enum status generation_make_first_plan(struct service *s, const struct net_join *req, char *why,
                                       size_t why_bytes);
/* The job is done: its lines, and done. */
void generation_report_done(struct service *s, struct run *r);

#endif
