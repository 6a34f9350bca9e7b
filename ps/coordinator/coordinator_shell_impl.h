/* ps/coordinator/coordinator_shell_impl.h - what the shell's files share: coordinator_shell.c (the
 * thread, the mailbox), coordinator_plans.c (plans as data), coordinator_disk.c (files). Private.
 */
#ifndef PS_COORDINATOR_COORDINATOR_SHELL_IMPL_H
#define PS_COORDINATOR_COORDINATOR_SHELL_IMPL_H
#include "base/guarded.h"
#include "checkpoint/folder.h"
#include "ps/coordinator/coordinator_folders.h"
#include "ps/coordinator/coordinator_shell.h"
#include "ps/service/run.h"
#include "ps/service/service.h"
#include <pthread.h>

enum { COORDINATOR_KEPT_PLANS = 8, COORDINATOR_MAX_MAIL = 8192, COORDINATOR_DISK_ORDERS = 16 };
#define OWN_CALLS ((uint64_t)1 << 62) /* numbers of ps 0's calls to itself; no other is so high */

/* An event that waits. */
struct coordinator_mail {
    enum coordinator_event_kind kind;
    uint64_t call;
    struct net_control *control; /* CONTROL: owned */
    enum coordinator_command_kind what;
    int index;
    uint32_t op;
    enum status st;
    int64_t step;
    uint64_t epoch;
    struct net_evaluation evaluation;
};

struct coordinator_disk_request {
    uint32_t op;
    enum disk_task what;
    uint64_t epoch;
    struct net_plan *plan; /* MANIFEST: owned, as the next */
    struct safetensors_written *files;
    char (*own)[FOLDER_ID_BYTES]; /* of each file's server, where its folder is its own; else "" */
    int n_files;
    struct checkpoint_parent_version parent;
    char *trained_on; /* MANIFEST: owned; NULL: not known */
    int64_t step;
    uint64_t generation;                /* SWEEP, with `step`: of the order that came to nothing */
    struct coordinator_folders folders; /* FIND: of the next generation's servers; owned */
    struct checkpoint_id before;        /* FIND: an older one is wanted; generation 0: the newest */
    struct best_evaluation best;        /* BEST */
    int lists;    /* what is kept is wanted, for those with folders of their own */
    int searches; /* no order of the coordinator's: what a first job can resume from */
};

/* Checkpoints that are whole, or may become so; newest first. */
struct coordinator_saved {
    int known, older_stay, n; /* older_stay: there are more */
    struct net_kept list[CONTROL_MAX_KEPT];
};

struct coordinator_disk;

struct coordinator_shell {
    struct coordinator_shell_config cfg;
    uint64_t incarnation;            /* of this process */
    struct coordinator_state *state; /* changed by the thread, under the lock */
    struct hosts servers;            /* as a job begins */
    pthread_t thread, disk_thread;
    int has_thread, has_disk_thread;
    struct coordinator_disk *disk;

    /* The thread's own. */
    struct net_plan *kept[COORDINATOR_KEPT_PLANS]; /* the newest last; plans in force before */
    int64_t held_ns; /* time since which drained servers have to stay; 0: none has to */

    pthread_mutex_t lock; /* guards all below, and `plan` where it is changed */
    pthread_cond_t wake;
    char folder_id[FOLDER_ID_BYTES]; /* empty: the folder has none, or it could not be read yet */
    struct net_plan *plan;           /* in force: the last of `kept`; NULL */
    int64_t wake_ns;
    int news, changed, stopping, finished;
    int n_mail, mail_room;
    struct coordinator_mail *mail;
    uint64_t requested; /* checkpoints */
    int has_job;        /* `first` waits to be taken */
    struct net_plan *first;
    __typeof__(((struct coordinator_event *)0)->job) job;
    struct {
        uint64_t call, n; /* ps 0's call to itself; 0: none is under way */
        int answered, cancelled;
        struct net_control_reply reply;
    } own;
    struct coordinator_folders folders; /* by slot; changed by the thread alone */
    struct coordinator_saved saved;
    int searches;      /* the disk is to look for what a first job can resume from, */
    uint64_t searched; /* as it last did when folders.version was one less */
    int64_t said_ns;   /* when the wait for it may be told of again */
    struct checkpoint_restore *disk_found; /* by FIND, for the plan that follows; */
    char disk_name[CONTROL_TEXT_BYTES];    /* its name in the plan */
};

/* coordinator_shell.c; under the lock, which is released while there is no memory for it. What it
 * tells is waited for: it is lost only where all ends. */
void coordinator_shell_post(struct coordinator_shell *l, const struct coordinator_mail *m)
    REQUIRES(l->lock);

/* coordinator_plans.c, by the thread */
/* What the state asks for. ST_NOMEM and the like; not logged. */
enum status coordinator_plan_make(struct coordinator_shell *l, struct net_plan **out);
void coordinator_plan_publish(struct coordinator_shell *l, struct net_plan *next); /* given */
const struct net_plan *coordinator_plan_of(const struct coordinator_shell *l, uint64_t generation);
/* Returns the checkpoint that its plan goes on from; generation 0: none is, or --restore's file. */
struct checkpoint_id coordinator_plan_checkpoint(const struct coordinator_shell *l,
                                                 uint64_t generation);
void coordinator_plans_free(struct coordinator_shell *l);

/* coordinator_folders.c, by the thread but for can_restore */
void coordinator_folders_note(struct coordinator_shell *l, const struct net_control *c);
/* Of the servers that a plan made now would have, but for ps 0. */
enum status coordinator_folders_copy(const struct coordinator_shell *l,
                                     struct coordinator_folders *out);
void coordinator_folders_keep(struct coordinator_shell *l, uint64_t generation, int64_t step);
/* The reply borrows `room`. */
void coordinator_folders_fill_reply(struct coordinator_shell *l, struct net_control_reply *reply,
                                    struct coordinator_saved *room);
/* 0: a first job has to wait until servers have said what they have; why. Under the lock. */
int coordinator_folders_can_restore(struct coordinator_shell *l, char *why, size_t why_bytes);

/* coordinator_evaluation.c */
/* What the folder says of the best evaluation. */
enum status coordinator_evaluation_find_best(const struct coordinator_shell *l,
                                             struct best_evaluation *out);
/* By the disk's thread. */
enum status coordinator_evaluation_record_best(const char *folder,
                                               const struct best_evaluation *best);

/* coordinator_disk.c */
void coordinator_disk_search(struct coordinator_shell *l);
enum status coordinator_disk_create(struct coordinator_shell *l);
/* Until then nothing that is ordered is done: the folder is claimed by who has the port alone. */
enum status coordinator_disk_start(struct coordinator_shell *l);
void coordinator_disk_destroy(struct coordinator_shell *l);
/* Begins it; its end is posted. */
void coordinator_disk_order(struct coordinator_shell *l, const struct coordinator_action *a);
void coordinator_disk_servers(struct coordinator_shell *l, const struct hosts *servers);
/* Returns 1 while the newest list of servers is not in the folder yet: `drained`, the address of a
 * server that the list lacks, has to stay. Logs that once it has lasted a few seconds. By the
 * thread. */
int coordinator_disk_records_servers(struct coordinator_shell *l, const char *drained);

#endif
