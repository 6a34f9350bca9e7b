/* libweir/weir_impl.h - a handle. Only the files of libweir/ and its tests use it.
 *
 *   settings.c  the settings of weir_set, and the job that follows from them
 *   params.c    names and chunks of the parameters; arrays.c: their arrays; rates.c: their factors
 *   tables.c    sparse tables, and the other files of tables.h
 *   begin.c     the cluster, the chunks and the exchange; each generation's start, in a thread
 *   steps.c     weir_next, _wait; pushes.c: _push, _pull
 *   events.c    the descriptor and the events
 *   errors.c    error codes, error texts, the log
 *   weir.c      open, close, leaving
 * A chunk is sent when all its parameters are pushed. A chunk of one large parameter is read from
 * the pushed gradient; gradients of small parameters that share a chunk are first copied to
 * `contributions`. The handle's lock is never held while the exchange is called. */
#ifndef LIBWEIR_WEIR_IMPL_H
#define LIBWEIR_WEIR_IMPL_H
#include "checkpoint/job_over.h"
#include "libweir/settings.h"
#include "libweir/weir.h"
#include "member/dataset_order.h"
#include "member/identity.h"
#include "member/updates.h"
#include "member/waiting.h"
#include <pthread.h>

enum {
    WEIR_ERROR_BYTES = 1024,
    WEIR_SILENT_MS = 3000, /* time until a start that waits for servers prints its first line */
};

enum weir_state {
    HANDLE_NEW,      /* the program adds settings and parameters */
    HANDLE_STARTING, /* the starter runs, or has ended (start_over) */
    HANDLE_RUNNING,
    HANDLE_STOPPED /* the reason is in `code` */
};

struct param {
    char *name;
    struct shape shape;
    double keep; /* 0 or more: a statistic that keeps this share of its value; below 0: trained */
    struct optim_factors factors; /* factors of the optimizer, at first 1 */
    int64_t first;                /* offset of the first element in the flat block */
    float *first_values; /* kept in case the job starts from step 0; NULL: written by write_first */
    int (*write_first)(void *ctx, int param, float *values);
    void *first_ctx;
    int64_t pushed; /* 1 + step of the last push; 0: not pushed in this generation */
    int awaited;    /* an event will report that its values are here */
};

/* State of a chunk that several parameters share, or of a parameter's first chunk. */
struct gather {
    int n_params, n_missing;  /* numbers of parameters: in the chunk, not pushed in this step */
    double samples;           /* weight of the pushed parameters; below 0: none was pushed */
    int n_pushing, n_pulling; /* pushes and pulls of its parameters that have not returned */
};

struct weir {
    pid_t pid; /* process that opened the handle */
    struct settings set;
    int n_params, params_room;
    struct param *params;
    int64_t n_elems;
    int n_tables;
    struct row_table **tables; /* [TABLES_MAX] tables.h; NULL: there are none */

    struct cluster cluster; /* begin.c sets this field and those below, before RUNNING */
    struct net_status joined;
    struct net_job job;
    struct net_join joins_with;
    struct job_over over; /* state of is_over() of begin.c, which the exchange calls at its start */
    int is_over;
    char host[MEMBER_IDENTITY_ADDRESS_BYTES]; /* host and process, the member's name*/
    struct chunks *chunks;
    float *values, *gradients, *contributions; /* [n_elems]; contributions: one of the first two */
    void *own_values, *own_gradients; /* memory of values, gradients; NULL: in the segment */
    struct segment *segment;
    struct updates updates;
    struct updates watched;  /* `updates` as `waiting` uses them (waits.c) */
    struct waiting *waiting; /* NULL: there are no servers */
    int own_pace, n_local, batch;
    struct gather *gather; /* [n_chunks] */
    uint8_t *lacking;      /* marks of the gradients that this step lacks (net/wire/lacking.h) */
    int event_fd;          /* -1: none */

    pthread_mutex_t lock; /* guards the fields below, params' pushed and awaited, gather, lacking */
    pthread_cond_t changed;
    enum weir_state state;
    int code, cancelled; /* code: reason of STOPPED: DONE, LEFT, OVER, or an error */
    int made;            /* the exchange exists, so weir_cancel can cancel it */
    int known;           /* `job` is valid */
    int goodbye;         /* the leave message was sent */
    int leaves;          /* weir_leave_soon was called */
    pthread_t starter;
    int starter_runs, start_over;
    int start_code; /* result of the start; LEFT: this member left; OVER: the job is over */
    struct net_start start;
    int64_t step, train_steps;
    int in_step, n_unpushed; /* inside a step; number of parameters and tables not pushed in it */
    int64_t generation;      /* generation of the last start that weir_next adopted */
    int ended;               /* the generation has ended */
    int64_t ended_generation;
    int invalid, began; /* invalid: this step no longer counts; began: next step follows a start */
    int collecting;     /* the last values have been requested */
    int n_within, n_pushing; /* calls in progress that use the exchange; pushes in progress */
    int begun;               /* a start has succeeded */
    int tell_began, tell_rebased, tell_stopped; /* events that are due: BEGAN, REBASED, STOPPED */
    int look_at;                                /* parameter at which the next search begins */
    char error[WEIR_ERROR_BYTES];

    struct dataset_order *order; /* order of n_order samples, shuffled with order_seed */
    int64_t n_order;
    uint64_t order_seed;
};

enum status weir_watch_waits(struct weir *w); /* waits.c: logs the handle's waits */
/* errors.c: sets a failure's error text, and returns its code. */
int weir_errors_fail(struct weir *w, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns a failure's code; its error text is the error logged since weir_errors_listen. */
int weir_errors_fail_st(struct weir *w, enum status st);
void weir_errors_listen(void);
void weir_errors_divert(void); /* sends log lines only to the library's log from now on */
/* Stops the handle with DONE, LEFT, OVER, or the error of weir_errors_fail(). Returns code. */
int weir_errors_stop(struct weir *w, int code);
int weir_errors_code_of(enum status st);
/* Returns true, with the error set, if a public function must refuse its call: the function of
 * weir_log called it, or the process is a fork. Each public function calls this first. */
int weir_errors_refuses(struct weir *w);
int weir_errors_stopped(struct weir *w); /* returns the code of a STOPPED handle, else 0 */
void weir_events_signal(struct weir *w); /* events.c: signals the descriptor; under any lock */

const struct param *weir_params_find(struct weir *w, int param); /* NULL: none; logged */
void weir_params_free(struct weir *w);
enum status weir_params_make_chunks(struct weir *w, int64_t chunk_bytes);

/* Waits in STARTING until the start ends (begin.c). Returns OK, AGAIN, LEFT, or an error. */
int weir_begin(struct weir *w, int64_t deadline_ns);
void weir_begin_end_starter(struct weir *w);

#endif
