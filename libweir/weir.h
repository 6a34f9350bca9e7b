/* weir.h - libweir: a program with a training loop of its own takes part in a job of Weir's
 * servers. docs/guide/own-model.md is its manual, examples/own_trainer.c a whole program.
 * A handle is one member of one job; a process may have several. Functions return a weir_code:
 * below 0 is an error, and weir_error has the sentence. Parameters count from 0. Strings are UTF-8.
 *
 * Memory: what is given is borrowed for the call, a gradient until a wait for its parameter returns
 * WEIR_OK or weir_next has returned the next step (not _early), where all ends until weir_goodbye.
 * What weir_values and weir_gradient return is the handle's, until weir_close, and is lent: values
 * from a wait to the next push of the parameter, which gives them back; likewise the room.
 * Threads: any, at once: weir_push, _push_values, _wait, _pull, _values, _gradient, _leave_soon,
 * _cancel, _error, _next_event. All else: one at a time; _goodbye, _close when all are back. None
 * of the caller's is needed: the library has its own, with all signals blocked.
 * Process: the library changes no signal's action, allocator, locale or environment, and prints on
 * stderr as weir_log says. gRPC's threads end with the last handle; two descriptors of its stay. In
 * a forked process a handle is of no use: weir_close and _goodbye return at once, others fail. */
#ifndef WEIR_H
#define WEIR_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum weir_code {
    WEIR_OK = 0,
    WEIR_DONE = 1,           /* the job has made its last step: all values are its last */
    WEIR_LEFT = 2,           /* as was asked for: the job goes on without this member */
    WEIR_AGAIN = 3,          /* not yet: the time is over, or there is no event; call again */
    WEIR_REBASED = 4,        /* this step counts no more; weir_next says where it goes on */
    WEIR_OVER = 5,           /* the job had ended before this member came: there are no values */
    WEIR_E_INVALID = -1,     /* an argument, a setting, or a call that is not for now */
    WEIR_E_REFUSED = -2,     /* by the servers: their job is another, as the sentence says */
    WEIR_E_UNAVAILABLE = -3, /* the servers have lost the parameters, or a host is not there */
    WEIR_E_CANCELLED = -4,   /* by weir_cancel */
    WEIR_E_NOMEM = -5,       /* of memory, threads or descriptors */
    WEIR_E_UNSUPPORTED = -6, /* this library cannot do that */
    WEIR_E_PROTOCOL = -7,    /* a server says what it must not */
    WEIR_E_IO = -8,          /* a file, of certificates or a token */
    WEIR_E_INTERNAL = -9
};
enum { WEIR_FLOAT32 = 0 };
enum { WEIR_LOG_DEBUG, WEIR_LOG_INFO, WEIR_LOG_WARN, WEIR_LOG_ERROR };

struct weir;
const char *weir_version(void);       /* of the library, "0.1.0" */
const char *weir_code_text(int code); /* a few words for any code; static */
int weir_open(struct weir **out);
/* The end of this member, and of the memory. After WEIR_DONE or WEIR_LEFT the servers are told
 * goodbye. Else it is missed like one that was killed: they wait for it, for ps --worker_timeout,
 * and its place is there for a new process. NULL is fine. */
void weir_close(struct weir *w);
/* Likewise, but all memory stays until weir_close: for who still reads the last values, while the
 * servers wait for this goodbye. A handle that has not stopped is cancelled. NULL is fine. */
int weir_goodbye(struct weir *w);
/* Why the handle's last call that failed did, one sentence; valid for the thread until its next
 * call of this. */
const char *weir_error(struct weir *w);
/* Lines of the library, of all handles, one at a time, to one function of the process; from any
 * thread, with locks held: it may call weir_error, _version, _code_text and this one. Other calls
 * do nothing and return WEIR_E_INVALID (NULL, -1), and waiting for another thread's may be without
 * end. NULL: none. Before its first call, warnings are printed on stderr: of a wait for servers or
 * other members one after 3 s, and then, rarely, one more. */
void weir_log(void (*line)(void *ctx, int level, const char *text), void *ctx);

/* Before the first weir_next. Settings are weir-worker's flags by name, values as text:
 * docs/reference/weir-h.md lists them. All members of a job give the same. */
int weir_set(struct weir *w, const char *name, const char *value);
/* One more parameter; returns its number. name: up to 255 printable characters without spaces, once
 * in a model. dtype: WEIR_FLOAT32. n_dims: 0 to 6. values: the first ones, row-major, copied; NULL:
 * zeros. Those of the member that comes first count, others are given its. All members name the
 * same parameters in the same order. */
int weir_param(struct weir *w, const char *name, int dtype, int n_dims, const int64_t *dims,
               const float *values);
/* The parameter is a statistic, not trained: keep of the old value (0 to 1) is kept in each step,
 * and the rest is the mean of what is pushed. 1: nothing changes it. */
int weir_param_average(struct weir *w, int param, double keep);

struct weir_step {
    int64_t step;        /* from 0 on; where members go each at its own pace, this one's count */
    int64_t train_steps; /* where the job ends */
    int64_t position;    /* of the first sample of this member's batch, */
    int64_t n_samples;   /* which has so many, */
    int64_t stride;      /* each so far from the one before (1, but in regions) */
    int64_t generation;  /* of the servers; 0: there are none */
    int64_t member;      /* its number for life, --task_index */
    int64_t rank, n_members; /* in this generation */
    int64_t began;           /* 1: values need not be those that the step before led to */
    int64_t reserved[6];
};
/* The next step, once its values are there: begins, and goes on in each new generation, by itself.
 * All parameters of the step before have been pushed. timeout_ms: -1: without end. Other codes:
 * DONE, LEFT, OVER, AGAIN. */
int weir_next(struct weir *w, int timeout_ms, struct weir_step *out);
/* The same without waiting for values: weir_wait is called for a parameter before it is read. */
int weir_next_early(struct weir *w, int timeout_ms, struct weir_step *out);
/* Which of n samples (1 to 2^26) lies at a position: each pass has all of them once, shuffled by
 * the setting `seed` and the pass. -1: there is no such position; with `join`, before the first
 * step: the seed is the job's. */
int64_t weir_sample(struct weir *w, int64_t n, int64_t position);

/* The parameter's values, row-major; NULL before the first weir_next has returned WEIR_OK. */
const float *weir_values(struct weir *w, int param);
/* Room for its gradient, from which servers on this host read it without a copy; zeros at first.
 * Other memory may be pushed as well. NULL as above. */
float *weir_gradient(struct weir *w, int param);
/* Gives the step's gradient away, the mean over `samples` (its weight, above 0). samples 0: it
 * counts and adds nothing, and gradient may be NULL. Small parameters that are sent together have
 * the same `samples`. One that is refused with WEIR_E_INVALID was not pushed. Returns at once, as
 * soon as it is on its way; WEIR_OK also where the generation has ended. */
int weir_push(struct weir *w, int param, const float *gradient, double samples);
/* With the setting own_local_steps: what this member's own steps have made of them; borrowed. */
int weir_push_values(struct weir *w, int param, const float *values, double samples);
/* Asks for newer values than those here, without a contribution; weir_wait has them. */
int weir_pull(struct weir *w, int param);
/* Waits for what was pushed or asked for of the parameter: its values are those of the step that
 * weir_next has begun, or, once it is pushed, of the next. Small ones are sent together: then all
 * of those are pushed before. AGAIN, REBASED. */
int weir_wait(struct weir *w, int param, int timeout_ms);

/* Asks ps 0 to go on without this member: weir_next is called until it returns WEIR_LEFT. From the
 * first weir_next on; with the setting join, from when a server has answered. AGAIN: ps 0 was not
 * reached in time, but will be told. */
int weir_leave_soon(struct weir *w, int timeout_ms);
/* Ends the job where it is: after a last checkpoint each member's weir_next returns WEIR_DONE, and
 * the servers exit with 0. Alone: this step is the last. AGAIN: ps 0 was not reached. */
int weir_stop_job(struct weir *w, int timeout_ms);
/* This member ends for good with this error (one line): the servers are told, and do not wait. Also
 * after an error, whose code and sentence stay, and while a start is under way, which ends. */
int weir_leave_failed(struct weir *w, const char *error);
/* Each wait ends with WEIR_E_CANCELLED, and the handle goes on no more. Not for signal handlers. */
void weir_cancel(struct weir *w);

enum weir_event_kind {
    WEIR_EVENT_BEGAN = 1, /* at `step`, in `generation`: weir_next returns it */
    WEIR_EVENT_READY,     /* the values of `param` that a push is answered by */
    WEIR_EVENT_REBASED,   /* `generation` has ended: weir_next goes on in the next */
    WEIR_EVENT_STOPPED    /* `code`: DONE, LEFT, OVER, or the error that the handle stopped with */
};
struct weir_event {
    int64_t kind, step, generation, param, code;
    int64_t reserved[3];
};
/* To be polled, readable while there may be events; before the first weir_next. Below 0: an
 * error. The handle's: do not read, do not close. */
int weir_fd(struct weir *w);
int weir_next_event(struct weir *w, struct weir_event *out); /* WEIR_AGAIN: there is none */

#ifdef __cplusplus
}
#endif
#endif
