/* libweir/steps.h - calls within a step of a member, for the other files of libweir/.
 * Owns:    nothing.
 * Threads: any, except that only one thread at a time begins steps.
 * Errors:  codes of weir.h. */
#ifndef LIBWEIR_STEPS_H
#define LIBWEIR_STEPS_H
#include "libweir/weir_impl.h"
#include <stdbool.h>

/* Returns the deadline (clock.h) of this timeout; -1: no timeout. */
int64_t weir_steps_deadline(int timeout_ms);
struct within {
    int64_t step;
    int invalid;
};
/* Enters a call within a step. Returns 0 if there is no step; otherwise the caller must call
 * weir_steps_exit. */
int weir_steps_enter(struct weir *w, struct within *in);
void weir_steps_exit(struct weir *w);
/* Enters the call of a public function within a step. After OK the caller must call
 * weir_steps_exit. */
int weir_steps_enter_call(struct weir *w, struct within *in);
/* Enters the call of a public function for a parameter, like weir_steps_enter_call. */
int weir_steps_enter_for(struct weir *w, int param, struct within *in);
/* Returns the code with which a wait ends. An error stops the handle. invalid: if the generation
 * has ended, the current step no longer counts. */
int weir_steps_code_of_wait(struct weir *w, enum status st, int invalid);
/* Returns OK if the parameter's values are here, else AGAIN or the code of a wait. */
int weir_steps_param_ready(struct weir *w, int param, int64_t step);
/* Returns true if the parameter's values of this step or a later one have arrived; does not
 * wait. */
bool weir_steps_is_here(struct weir *w, int param, int64_t step);
/* Returns OK if the generation and the handle continue, else the code of a wait. */
int weir_steps_check(struct weir *w);

#endif
