/* ps/coordinator/coordinator_shell_impl.h - shared by the shell's files: coordinator_shell.c
 * (thread, mailbox), coordinator_plans.c (plans as data), coordinator_disk.c (files). Private. */
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
#define OWN_CALLS ((uint64_t)1 << 62) /* numbers of ps 0's calls to itself start here */

/* A queued event. */
struct coordinator_mail {
    enum coordinator_event_kind kind;
    uint64_t call, epoch;
    struct net_control *control; /* CONTROL: owned */
    enum coordinator_command_kind what;
    int index;
    uint32_t op;
    enum status st;
    int64_t step;
    struct net_evaluation evaluation;
};

struct coordinator_disk_request {
    uint32_t op;
    enum disk_task what; /* only the task MANIFEST uses the fields marked MANIFEST, and so on */
    uint64_t epoch;
    struct net_plan *plan; /* MANIFEST: plan of the checkpoint; owned, like `files` */
    struct safetensors_written *files;
    char (*own)[FOLDER_ID_BYTES]; /* id of each server's own folder; "": none */
    int n_files;
    struct checkpoint_parent_version parent;
    struct checkpoint_lineage lineage; /* MANIFEST: restores before the plan */
    char *trained_on; /* MANIFEST: description of the training data, owned; NULL: unknown */
    int64_t step;
    uint64_t generation;                /* SWEEP: generation and `step` of the failed order */
    struct coordinator_folders folders; /* FIND: folders of the next generation's servers; owned */
    struct checkpoint_id before;        /* FIND: checkpoints older than this; generation 0: all */
    struct checkpoint_history history;  /* FIND: see struct checkpoint_restore_query */
    struct best_evaluation best;        /* BEST */
    int lists, searches; /* also list the kept checkpoints; search for a first job's checkpoint */
};

/* Checkpoints that are complete or may become so; newest first. */
struct coordinator_saved {
    int known, older_stay, n; /* older_stay: checkpoints older than these are kept, too */
    struct net_kept list[CONTROL_MAX_KEPT];
};

struct coordinator_disk;

struct coordinator_shell {
    struct coordinator_shell_config cfg;
    uint64_t incarnation;            /* number of this process */
    struct coordinator_state *state; /* changed by the thread, under the lock */
    struct hosts servers;            /* servers at a job's start */
    pthread_t thread, disk_thread;
    int has_thread, has_disk_thread;
    struct coordinator_disk *disk;

    /* The fields that the thread alone uses. */
    struct net_plan *kept[COORDINATOR_KEPT_PLANS];             /* recent plans; newest last */
    struct checkpoint_lineage lineage[COORDINATOR_KEPT_PLANS]; /* restores before these plans */
    int64_t held_ns; /* time since which drained servers must stay; 0: none must */

    /* guards all fields below; the thread, which alone sets `plan`, reads it without the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    char folder_id[FOLDER_ID_BYTES]; /* id of the folder; empty: none, or not read yet */
    struct net_plan *plan;           /* plan in force, the last of `kept`; NULL: none */
    int64_t wake_ns;
    int news, changed, stopping, finished;
    struct coordinator_mail *mail;
    int n_mail, mail_room;
    uint64_t requested; /* checkpoints requested */
    int has_job;        /* `first` and `job` describe a first job, which waits */
    struct net_plan *first;
    __typeof__(((struct coordinator_event *)0)->job) job;
    struct {
        uint64_t call, n; /* call: number of ps 0's call to itself, 0: none; n: calls so far */
        int answered, cancelled;
        struct net_control_reply reply;
    } own;
    struct coordinator_folders folders; /* [slots] servers' folders; only the thread changes it */
    struct coordinator_saved saved;
    int searches;         /* the disk must search for a first job's checkpoint */
    uint64_t searched;    /* 1 + folders.version of the last search; 0: none */
    int64_t next_line_ns; /* earliest time of the next line about a first job's wait */
    struct checkpoint_restore *disk_found; /* checkpoint found by FIND, for the plan that follows */
    char disk_name[CONTROL_TEXT_BYTES];    /* name of that checkpoint in the plan */
};

/* Queues an event, and may wait for memory. Only the shell's end can lose it. */
void coordinator_shell_post(struct coordinator_shell *l, const struct coordinator_mail *m)
    REQUIRES(l->lock);

/* Creates the plan that the state requires (coordinator_plans.c; only the thread calls these
 * functions). ST_NOMEM and other errors are not logged. */
enum status coordinator_plan_make(struct coordinator_shell *l, struct net_plan **out);
void coordinator_plan_publish(struct coordinator_shell *l, struct net_plan *next); /* owns it */
const struct net_plan *coordinator_plan_of(const struct coordinator_shell *l, uint64_t generation);
/* Returns the checkpoint from which the generation's plan resumes. Its generation is 0 if no
 * checkpoint is used, or the file of --restore. */
struct checkpoint_id coordinator_plan_checkpoint(const struct coordinator_shell *l,
                                                 uint64_t generation);
/* Returns the restores before a plan. */
struct checkpoint_lineage coordinator_plan_lineage(const struct coordinator_shell *l,
                                                   uint64_t generation);
void coordinator_plans_free(struct coordinator_shell *l);

/* Functions of coordinator_folders.c, which only the thread calls, except can_restore. */
void coordinator_folders_note(struct coordinator_shell *l, const struct net_control *c);
/* Copies the folder records of the servers that a plan made now would have, except ps 0's. */
enum status coordinator_folders_copy(const struct coordinator_shell *l,
                                     struct coordinator_folders *out);
void coordinator_folders_keep(struct coordinator_shell *l, uint64_t generation, int64_t step);
/* Fills a reply with the list of kept checkpoints, which is stored in `room`. */
void coordinator_folders_fill_reply(struct coordinator_shell *l, struct net_control_reply *reply,
                                    struct coordinator_saved *room);
/* Returns false, with the reason, while a first job must wait for servers' reports of their
 * folders. The caller holds the lock. */
bool coordinator_folders_can_restore(struct coordinator_shell *l, char *why, size_t why_bytes);

/* Reads the best evaluation from the folder (coordinator_evaluation.c). */
enum status coordinator_evaluation_find_best(const struct coordinator_shell *l,
                                             struct best_evaluation *out);
/* Records the best evaluation; the disk's thread calls it. */
enum status coordinator_evaluation_record_best(const char *folder,
                                               const struct best_evaluation *best);

/* Functions of coordinator_disk.c. */
void coordinator_disk_search(struct coordinator_shell *l);
enum status coordinator_disk_create(struct coordinator_shell *l);
/* Starts the thread. No order is carried out before this call: only the process that has the port
 * may claim the folder. */
enum status coordinator_disk_start(struct coordinator_shell *l);
void coordinator_disk_destroy(struct coordinator_shell *l);
void coordinator_disk_servers(struct coordinator_shell *l, const struct hosts *servers);
/* Begins an order; its result is posted. */
void coordinator_disk_order(struct coordinator_shell *l, const struct coordinator_action *a);
/* Returns true while the newest list of servers is not in the folder yet: the server at `drained`,
 * which it lacks, must stay. Logs a wait of some seconds. Only the thread calls it. */
bool coordinator_disk_records_servers(struct coordinator_shell *l, const char *drained);

#endif
