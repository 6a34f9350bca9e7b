/* weir.h - libweir: makes a program with its own training loop a member of a job of Weir's servers.
 * docs/guide/own-model.md is the manual, examples/own_trainer.c a complete program.
 * A handle is one member of one job; a process may have several. Functions return a weir_code. A
 * negative code is an error, and weir_error returns its sentence. Parameters are numbered from 0.
 * Strings are UTF-8.
 *
 * Memory: the library borrows arguments for the call only, except gradients. A gradient buffer
 * stays borrowed until weir_wait() for its parameter, or the following weir_next(), returns
 * WEIR_OK; after weir_next_early() only weir_wait() ends the loan. weir_goodbye() ends all loans.
 * The handle owns the arrays of weir_values() and weir_gradient() until weir_close(). The program
 * may read a parameter's values after weir_wait() (or weir_next()) until it pushes the parameter,
 * and may write to the array of weir_gradient() in the same interval.
 * Threads: any number of threads may at the same time call weir_push, _push_values, _wait, _pull,
 * _values, _gradient, _leave_soon, _cancel, _error and _next_event. Only one thread at a time may
 * call the other functions; weir_goodbye and weir_close only after all other calls have returned.
 * The library has its own threads, in which all signals are blocked.
 * Process: the library changes no signal's action, allocator, locale or environment, and prints on
 * stderr only as described at weir_log. gRPC's threads end with the last handle; two descriptors of
 * gRPC stay open. A forked process cannot use a handle: weir_close and weir_goodbye return at once,
 * other functions fail. */
#ifndef WEIR_H
#define WEIR_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum weir_code {
    WEIR_OK = 0,
    WEIR_DONE = 1,       /* the job made its last step, and all values are final */
    WEIR_LEFT = 2,       /* this member left on request; the job continues without it */
    WEIR_AGAIN = 3,      /* the timeout passed, or there is no event; call again */
    WEIR_REBASED = 4,    /* the step no longer counts; weir_next returns the step to resume at */
    WEIR_OVER = 5,       /* the job ended before this member joined: there are no values */
    WEIR_E_INVALID = -1, /* wrong argument or setting, or a call at the wrong time */
    WEIR_E_REFUSED = -2, /* the servers refuse this member, for example for another model */
    WEIR_E_UNAVAILABLE = -3, /* the servers lost the parameters, or a host cannot be reached */
    WEIR_E_CANCELLED = -4,   /* weir_cancel was called */
    WEIR_E_NOMEM = -5,       /* out of memory, threads or descriptors */
    WEIR_E_UNSUPPORTED = -6, /* this build of the library cannot do that */
    WEIR_E_PROTOCOL = -7,    /* a server violated the protocol */
    WEIR_E_IO = -8,          /* cannot read a file of certificates or a token */
    WEIR_E_INTERNAL = -9
};
enum { WEIR_FLOAT32 = 0 };
enum { WEIR_LOG_DEBUG, WEIR_LOG_INFO, WEIR_LOG_WARN, WEIR_LOG_ERROR };

struct weir;
const char *weir_version(void);       /* returns the library's version, "0.1.0" */
const char *weir_code_text(int code); /* returns a few words for any code; static */
int weir_open(struct weir **out);     /* creates a handle */
/* Ends this member and frees the handle. After WEIR_DONE or WEIR_LEFT it sends the servers a leave
 * message. Otherwise the servers treat the member like a killed one: they wait for it, at most
 * ps --worker_timeout, and a new process may replace it. w may be NULL. */
void weir_close(struct weir *w);
/* Ends this member, but keeps all memory until weir_close. A program calls it while it still reads
 * the last values, since the servers wait for the leave message. It cancels a handle that has not
 * stopped. w may be NULL. */
int weir_goodbye(struct weir *w);
/* Returns one sentence with the cause of the handle's last failed call. It is valid until the
 * thread's next call of weir_error. */
const char *weir_error(struct weir *w);
/* Sets the function `line`, which receives the log lines of all handles, one at a time. Any thread
 * may call `line`, with locks held. So `line` may call weir_error, _version, _code_text and
 * weir_log only: other functions return WEIR_E_INVALID (NULL, -1) there. It must not wait for
 * another thread's call. line NULL: lines are dropped. Before the first call of weir_log, warnings
 * are printed on stderr: in a wait for servers or members the first after 3 s, then few. */
void weir_log(void (*line)(void *ctx, int level, const char *text), void *ctx);

/* Sets a setting before the first weir_next. Settings have the names of weir-worker's flags, and
 * their values are texts (docs/reference/weir-h.md). All members of a job must set the same. */
int weir_set(struct weir *w, const char *name, const char *value);
/* Adds a parameter and returns its number. name: up to 255 printable characters without spaces,
 * unique in the model. dtype: WEIR_FLOAT32. n_dims: 0 to 6. values: initial values, row-major,
 * copied; NULL: zeros. The job starts with the values of the member that joins first, and the other
 * members receive them. All members add the same parameters in the same order. */
int weir_param(struct weir *w, const char *name, int dtype, int n_dims, const int64_t *dims,
               const float *values);
/* Makes the parameter a statistic, which is not trained. In each step its new value is keep (0 to
 * 1) times the old value plus (1 - keep) times the mean of the pushed values. keep 1: constant. */
int weir_param_average(struct weir *w, int param, double keep);
/* Sets a function that writes the parameter's initial values, the same at each call; the library
 * keeps no copy. Any thread may call it when the job starts at its beginning. Answers wait for its
 * end. A result other than 0 stops the handle. It may call what weir_log's `line` may. */
int weir_param_first_values(struct weir *w, int param,
                            int (*write)(void *ctx, int param, float *values), void *ctx);
/* Sets the factors, finite and 0 or above, by which the job's learning rate and weight decay are
 * multiplied for this parameter; both are 1 at first. All members must set the same. Local steps
 * (setting local_steps) use them, too; with own_local_steps they are refused. */
int weir_param_factors(struct weir *w, int param, double rate, double decay);

struct weir_step {
    int64_t step;        /* counts from 0; in modes other than sync it counts this member's steps */
    int64_t train_steps; /* number of steps of the job */
    int64_t position;    /* position of the first sample of this member's batch */
    int64_t n_samples;   /* size of the batch */
    int64_t stride;      /* distance between the batch's samples: 1, larger in regions */
    int64_t generation;  /* number of the servers' generation; 0: there are no servers */
    int64_t member;      /* permanent number of this member, --task_index */
    int64_t rank, n_members; /* place of this member in the generation: 0 .. n_members - 1 */
    int64_t began;     /* not 0: first step after a start; values may differ from the last step's */
    int64_t n_regions; /* number of the job's regions; 0: the servers have no parent */
    int64_t reserved[5];
};
/* Begins the next step: waits until its values are here, and resumes in each new generation. The
 * program must have pushed all parameters of the step before, and these calls must have returned:
 * otherwise WEIR_E_INVALID, and nothing changes.
 * timeout_ms -1: no timeout. Other codes: DONE, LEFT, OVER, AGAIN. */
int weir_next(struct weir *w, int timeout_ms, struct weir_step *out);
/* Sets a factor, finite and 0 or above, of the learning rate for the updates by this step; it is 1
 * in each new step. Call it before the step's first push. In sync all members must set the same
 * factor in a step: servers refuse a member with another one. A repeated step needs the call again,
 * so the factor should follow from the step's number alone. In async and ssp the factor is for this
 * member's contributions. Refused with local_steps, backup workers and in regions. */
int weir_step_rate(struct weir *w, double factor);
/* Begins the next step without waiting for values. Before the program reads a parameter, it must
 * call weir_wait for that parameter. */
int weir_next_early(struct weir *w, int timeout_ms, struct weir_step *out);
/* Returns which of n samples (1 to 2^26) lies at a position. Each pass has every sample once, in an
 * order that depends on the setting `seed` and the pass. -1: the position is negative, or the
 * setting `join` is on and no step has begun, so the job's seed has not arrived yet. */
int64_t weir_sample(struct weir *w, int64_t n, int64_t position);
/* Returns the parameter's values, row-major. NULL: weir_next has not returned WEIR_OK yet, or
 * own_local_steps is set and the answer to the push is not here. All values lie one after another,
 * in pages without other memory; so do the arrays of weir_gradient. So a program with a GPU may pin
 * both ranges, rounded to whole pages. */
const float *weir_values(struct weir *w, int param);
/* Returns an array for the gradient, zeros at first, which servers on this host read without a
 * copy. Other memory may be pushed too. NULL until weir_next has returned WEIR_OK once. */
float *weir_gradient(struct weir *w, int param);
/* Pushes the parameter's gradient of this step, the mean over `samples` samples; samples is also
 * its weight. If samples is 0, the push counts and adds nothing, and gradient may be NULL. If
 * samples is above 0, NULL means that this member has no gradient for the parameter in this step,
 * and the push counts as zeros. If no member has a gradient, the parameter and the optimizer's
 * state of it stay, and Adam does not count the step for it. NULL is refused for a statistic that
 * changes, and in a region (n_regions above 0); it may set the array of weir_gradient() to zeros.
 * Small parameters that are sent together need the same `samples`. After WEIR_E_INVALID nothing was
 * pushed. WEIR_OK: the gradient is queued, or the generation has ended. */
int weir_push(struct weir *w, int param, const float *gradient, double samples);
/* Pushes the values that this member's own local steps led to (setting own_local_steps); they may
 * be in the array of weir_gradient(). NULL with samples above 0: these steps had no gradient. */
int weir_push_values(struct weir *w, int param, const float *values, double samples);
/* Requests newer values without a contribution; weir_wait waits for them. */
int weir_pull(struct weir *w, int param);
/* Waits for the answer to the parameter's push or pull. Before the push, the values are those of
 * the step that weir_next began; after the push, those of the next step. Small parameters are sent
 * together: push all of them before a wait for one. Other codes: AGAIN, REBASED. */
int weir_wait(struct weir *w, int param, int timeout_ms);

/* Requests that ps 0 continue without this member. The program calls weir_next until it returns
 * WEIR_LEFT. Allowed after the first weir_next; with the setting join, after a server has answered.
 * AGAIN: ps 0 was not reached in time; the library keeps trying. */
int weir_leave_soon(struct weir *w, int timeout_ms);
/* Stops the job: after a last checkpoint weir_next returns WEIR_DONE to each member, and the
 * servers exit with 0. Without servers this step is the last one. AGAIN: ps 0 was not reached. */
int weir_stop_job(struct weir *w, int timeout_ms);
/* Ends this member for good and sends the servers its error (one line), so that they do not wait
 * for it. Also works after an error, whose code and sentence stay, and during a start, which then
 * ends. */
int weir_leave_failed(struct weir *w, const char *error);
/* Ends each wait with WEIR_E_CANCELLED, and stops the handle. Not for signal handlers. */
void weir_cancel(struct weir *w);

enum weir_event_kind {
    WEIR_EVENT_BEGAN = 1, /* `generation` has begun at `step`: weir_next returns it */
    WEIR_EVENT_READY,     /* the values that answer a push of `param` are here */
    WEIR_EVENT_REBASED,   /* `generation` has ended: weir_next resumes in the next one */
    WEIR_EVENT_STOPPED    /* the handle stopped with `code`: DONE, LEFT, OVER, or an error */
};
struct weir_event {
    int64_t kind, step, generation, param, code;
    int64_t reserved[3];
};
/* Returns a descriptor to poll, which is readable while there may be events; a negative code on
 * error. Call it before the first weir_next. The handle owns it: do not read or close it. */
int weir_fd(struct weir *w);
int weir_next_event(struct weir *w, struct weir_event *out); /* WEIR_AGAIN: no event */

struct weir_gpu; /* a reservation */
/* Reserves a GPU, or a part of its memory, for this process and until its end, beside weir-worker's
 * reservations (docs/guide/gpus.md). uuid: "GPU-..." or "MIG-...", in full. memory_fraction: up to
 * 1; 0: the whole GPU. lock_dir: the workers' --gpu_lock_dir; NULL: its default. The call waits for
 * a few seconds at most, needs no handle, and neither checks nor initialises CUDA. AGAIN: other
 * processes hold the GPU. After another code than OK, why[size] has one sentence, which names these
 * processes. A child of fork must call weir_gpu_release: otherwise the reservation lasts until the
 * child's end, too. */
int weir_gpu_reserve(const char *uuid, double memory_fraction, const char *lock_dir,
                     struct weir_gpu **out, char *why, int size);
/* Ends the reservation. In a child of fork it closes only the child's copy. gpu may be NULL. */
void weir_gpu_release(struct weir_gpu *gpu);

#ifdef __cplusplus
}
#endif
#endif
