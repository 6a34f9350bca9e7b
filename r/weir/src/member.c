/* r/weir/src/member.c - weir.h for R's .Call: a member, its parameters, gradients and values.
 * R has no float32, and its arrays are column-major. This file alone converts numbers, in one pass:
 * a gradient into the memory that servers read, and values into an R array. An element has the same
 * indices as in a program with row-major arrays.
 * A call returns libweir's code, or a list with its result. Functions in R raise the errors
 * (R/conditions.R). Only R's thread calls these functions. */
#include "gpu.h"
#include "log.h"
#include <R.h>
#include <R_ext/Rdynload.h>
#include <R_ext/Visibility.h>
#include <Rinternals.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir.h>

enum { MAX_DIMS = 6, SAID_BYTES = 400 };

struct param {
    int n_dims;
    int64_t dims[MAX_DIMS], n_elems;
    int is_here;    /* R may read the values and write the gradient's array */
    int pushed;     /* the parameter was pushed in the current step */
    double samples; /* number of samples of that push */
    double keep; /* 0 or more: statistic that keeps this share of its old value; below 0: trained */
};

struct member {
    struct weir *w;
    pid_t pid; /* process that opened the member; a forked child must not use it */
    int n_params, in_step;
    int counts_no_more; /* the current step no longer counts: pushes in it are dropped */
    int begun;          /* the current step has begun, but R has not received it yet */
    struct weir_step step;
    struct param *params;
    char said[SAID_BYTES]; /* error that this file found; empty: weir_error() has the error */
};

static struct member *member_of(SEXP pointer)
{
    struct member *m =
        TYPEOF(pointer) == EXTPTRSXP ? (struct member *)R_ExternalPtrAddr(pointer) : NULL;
    if (!m || m->pid != getpid()) /* cannot happen: R calls is_open first */
        Rf_error("the member is closed");
    m->said[0] = 0;
    return m;
}

__attribute__((format(printf, 2, 3))) static int fail(struct member *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(m->said, sizeof m->said, fmt, args);
    va_end(args);
    return WEIR_E_INVALID;
}

static void set_here(struct member *m, int is_here)
{
    for (int i = 0; i < m->n_params; i++)
        m->params[i].is_here = is_here;
}

static void close_member(SEXP pointer)
{
    struct member *m = R_ExternalPtrAddr(pointer);
    R_ClearExternalPtr(pointer);
    if (!m)
        return;
    if (m->pid == getpid())
        weir_close(m->w);
    R_Free(m->params);
    R_Free(m);
}

static SEXP r_open(void)
{
    struct weir *w;
    int code = weir_open(&w);
    if (code != WEIR_OK)
        return Rf_ScalarInteger(code);
    struct member *m = R_Calloc(1, struct member);
    m->w = w;
    m->pid = getpid();
    SEXP pointer = PROTECT(R_MakeExternalPtr(m, R_NilValue, R_NilValue));
    R_RegisterCFinalizerEx(pointer, close_member, TRUE);
    UNPROTECT(1);
    return pointer;
}

static SEXP r_close(SEXP pointer)
{
    close_member(pointer);
    return R_NilValue;
}

/* Returns the state of a member: 0 for closed, 1 for open, 2 for a member of another process. */
static SEXP r_is_open(SEXP pointer)
{
    struct member *m = TYPEOF(pointer) == EXTPTRSXP ? R_ExternalPtrAddr(pointer) : NULL;
    return Rf_ScalarInteger(!m ? 0 : m->pid == getpid() ? 1 : 2);
}

/* Returns the message of the last call that failed. code: code that this call returned. */
static SEXP r_error(SEXP pointer, SEXP code)
{
    struct member *m = TYPEOF(pointer) == EXTPTRSXP ? R_ExternalPtrAddr(pointer) : NULL;
    const char *text = weir_code_text(Rf_asInteger(code));
    if (m && m->said[0])
        text = m->said;
    else if (m && weir_error(m->w)[0])
        text = weir_error(m->w);
    return Rf_ScalarString(Rf_mkCharCE(text, CE_UTF8));
}

static SEXP r_version(void)
{
    return Rf_mkString(weir_version());
}

static const char *utf8(SEXP text)
{
    return Rf_translateCharUTF8(STRING_ELT(text, 0));
}

static SEXP r_set(SEXP pointer, SEXP name, SEXP value)
{
    struct member *m = member_of(pointer);
    return Rf_ScalarInteger(weir_set(m->w, utf8(name), utf8(value)));
}

/* Walks over rows in row-major order: index in R's array of the current row's first element (at),
 * its position in each dimension (index), and the strides of R's array. */
struct walk {
    int64_t at, index[MAX_DIMS], stride[MAX_DIMS], n_row;
};

static struct walk walk_begin(const struct param *p)
{
    struct walk k = {0};
    int64_t stride = 1;
    for (int d = 0; d < p->n_dims; d++) {
        k.stride[d] = stride;
        stride *= p->dims[d];
    }
    k.n_row = p->n_dims > 0 ? p->dims[p->n_dims - 1] : 1;
    return k;
}

static void walk_next(struct walk *k, const struct param *p)
{
    for (int d = p->n_dims - 2; d >= 0; d--) {
        k->at += k->stride[d];
        if (++k->index[d] < p->dims[d])
            return;
        k->at -= k->stride[d] * p->dims[d];
        k->index[d] = 0;
    }
}

/* Converts R's array to row-major float32. Returns the index, from 1, of the first element that is
 * not a finite float32, or 0. */
static int64_t to_floats(const struct param *p, const double *from, float *to)
{
    struct walk k = walk_begin(p);
    int64_t step = p->n_dims > 0 ? k.stride[p->n_dims - 1] : 1, bad = 0;
    for (int64_t done = 0; done < p->n_elems; done += k.n_row) {
        for (int64_t i = 0; i < k.n_row; i++) {
            to[done + i] = (float)from[k.at + i * step];
            if (!bad && !isfinite(to[done + i]))
                bad = k.at + i * step + 1;
        }
        walk_next(&k, p);
    }
    return bad;
}

static void to_doubles(const struct param *p, const float *from, double *to)
{
    struct walk k = walk_begin(p);
    int64_t step = p->n_dims > 0 ? k.stride[p->n_dims - 1] : 1;
    for (int64_t done = 0; done < p->n_elems; done += k.n_row) {
        for (int64_t i = 0; i < k.n_row; i++)
            to[k.at + i * step] = from[done + i];
        walk_next(&k, p);
    }
}

static int no_float(struct member *m, const char *what, int64_t bad, double value)
{
    return fail(
        m,
        "%s: element %lld is %g, which is not a finite float32; correct it, or contribute nothing: weir_push(member, samples = 0)",
        what, (long long)bad, value);
}

/* Makes the parameter a statistic, or sets its factors of the learning rate and the weight decay.
 */
static int set_rule(struct member *m, int number, const double factors[2])
{
    double keep = m->params[number].keep;
    if (keep >= 0)
        return weir_param_average(m->w, number, keep);
    if (factors[0] == 1 && factors[1] == 1)
        return WEIR_OK;
    return weir_param_factors(m->w, number, factors[0], factors[1]);
}

/* Adds a parameter: values are doubles in R's order with these dims. Returns its number or a code.
 */
static SEXP r_param(SEXP pointer, SEXP name, SEXP dims, SEXP values, SEXP keep, SEXP factors)
{
    struct member *m = member_of(pointer);
    struct param p = {.n_dims = LENGTH(dims), .n_elems = 1, .keep = Rf_asReal(keep)};
    if (p.n_dims > MAX_DIMS)
        return Rf_ScalarInteger(fail(m, "parameter '%.255s' has %d dimensions, at most %d",
                                     utf8(name), p.n_dims, MAX_DIMS));
    for (int d = 0; d < p.n_dims; d++)
        p.n_elems *= p.dims[d] = (int64_t)REAL(dims)[d];
    if (p.n_elems != XLENGTH(values) || p.n_elems < 1)
        return Rf_ScalarInteger(fail(m, "parameter '%.255s' has no elements", utf8(name)));
    float *first = (float *)R_alloc((size_t)p.n_elems, sizeof *first);
    int64_t bad = to_floats(&p, REAL(values), first);
    if (bad > 0)
        return Rf_ScalarInteger(no_float(m, utf8(name), bad, REAL(values)[bad - 1]));
    m->params = R_Realloc(m->params, m->n_params + 1, struct param);
    int number = weir_param(m->w, utf8(name), WEIR_FLOAT32, p.n_dims, p.dims, first);
    if (number < 0)
        return Rf_ScalarInteger(number);
    m->params[m->n_params++] = p;
    int code = set_rule(m, number, REAL(factors));
    return Rf_ScalarInteger(code < 0 ? code : number);
}

static SEXP step_list(const struct weir_step *s)
{
    static const char *const names[] = {"step",      "train_steps", "position", "n_samples",
                                        "stride",    "generation",  "member",   "rank",
                                        "n_members", "n_regions"};
    const int64_t values[] = {s->step,      s->train_steps, s->position, s->n_samples,
                              s->stride,    s->generation,  s->member,   s->rank,
                              s->n_members, s->n_regions};
    enum { N = sizeof values / sizeof *values };
    SEXP list = PROTECT(Rf_allocVector(VECSXP, N + 1));
    SEXP titles = PROTECT(Rf_allocVector(STRSXP, N + 1));
    for (int i = 0; i < N; i++) {
        SET_VECTOR_ELT(list, i, Rf_ScalarReal((double)values[i]));
        SET_STRING_ELT(titles, i, Rf_mkChar(names[i]));
    }
    SET_VECTOR_ELT(list, N, Rf_ScalarLogical(s->began != 0));
    SET_STRING_ELT(titles, N, Rf_mkChar("began"));
    Rf_setAttrib(list, R_NamesSymbol, titles);
    UNPROTECT(2);
    return list;
}

static int wait_for(struct member *m, int i, int timeout_ms)
{
    int code = weir_wait(m->w, i, timeout_ms);
    if (code == WEIR_OK)
        m->params[i].is_here = 1;
    m->counts_no_more |= code == WEIR_REBASED && !m->params[i].pushed;
    return code;
}

/* Waits until the values of all parameters that were not pushed have arrived. */
static int wait_for_all(struct member *m, int timeout_ms)
{
    int code = WEIR_OK;
    for (int i = 0; code == WEIR_OK && m->in_step && i < m->n_params; i++)
        if (!m->params[i].pushed && !m->params[i].is_here)
            code = wait_for(m, i, timeout_ms);
    return code;
}

/* Returns the step, or a code. R calls it in short turns, and between two turns R handles an
 * interrupt here. An interrupt or a message handler may end R's call before R has the step, so this
 * function returns the same step until R confirms it. */
static SEXP r_next(SEXP pointer, SEXP early, SEXP timeout_ms)
{
    struct member *m = member_of(pointer);
    R_CheckUserInterrupt();
    int is_early = Rf_asLogical(early), ms = Rf_asInteger(timeout_ms);
    if (m->begun) {
        int code = is_early ? WEIR_OK : wait_for_all(m, ms);
        if (code != WEIR_REBASED)
            return code == WEIR_OK ? step_list(&m->step) : Rf_ScalarInteger(code);
    }
    m->begun = 0;
    int (*call)(struct weir *, int, struct weir_step *) = is_early ? weir_next_early : weir_next;
    int code = call(m->w, ms, &m->step);
    if (code == WEIR_DONE || code == WEIR_LEFT)
        set_here(m, 1);
    if (code < 0 || code == WEIR_AGAIN)
        return Rf_ScalarInteger(code);
    m->in_step = m->begun = code == WEIR_OK;
    m->counts_no_more = 0;
    if (code != WEIR_OK)
        return Rf_ScalarInteger(code);
    set_here(m, !is_early);
    for (int i = 0; i < m->n_params; i++)
        m->params[i].pushed = 0;
    return step_list(&m->step);
}

static SEXP r_got(SEXP pointer)
{
    member_of(pointer)->begun = 0;
    return R_NilValue;
}

static struct param *find(struct member *m, SEXP number)
{
    int i = Rf_asInteger(number);
    return i >= 0 && i < m->n_params ? &m->params[i] : NULL;
}

static SEXP r_wait(SEXP pointer, SEXP number, SEXP timeout_ms)
{
    struct member *m = member_of(pointer);
    R_CheckUserInterrupt();
    if (!find(m, number))
        return Rf_ScalarInteger(WEIR_E_INVALID);
    return Rf_ScalarInteger(wait_for(m, Rf_asInteger(number), Rf_asInteger(timeout_ms)));
}

static SEXP r_pull(SEXP pointer, SEXP number)
{
    struct member *m = member_of(pointer);
    struct param *p = find(m, number);
    int code = weir_pull(m->w, Rf_asInteger(number));
    if (p && code == WEIR_OK)
        p->is_here = 0;
    return Rf_ScalarInteger(code);
}

/* Returns the values as doubles in R's order; or a code. */
static SEXP r_values(SEXP pointer, SEXP number)
{
    struct member *m = member_of(pointer);
    struct param *p = find(m, number);
    const float *from = weir_values(m->w, Rf_asInteger(number));
    if (!p || !from)
        return Rf_ScalarInteger(WEIR_E_INVALID);
    if (!p->is_here)
        return Rf_ScalarInteger(fail(
            m,
            "its values are still being received: call weir_wait, or weir_next, before you read them"));
    SEXP out = PROTECT(Rf_allocVector(REALSXP, (R_xlen_t)p->n_elems));
    to_doubles(p, from, REAL(out));
    UNPROTECT(1);
    return out;
}

static int push(struct member *m, int i, const float *data, double samples, int is_values)
{
    struct param *p = &m->params[i];
    int code =
        is_values ? weir_push_values(m->w, i, data, samples) : weir_push(m->w, i, data, samples);
    if (code >= 0) {
        p->pushed = 1;
        p->samples = samples;
        p->is_here = 0;
    }
    return code;
}

/* Checks that the parameter may be pushed without a gradient. */
static int check_lacking(struct member *m, const struct param *p)
{
    if (p->keep >= 0 && p->keep < 1)
        return fail(m, "it is a statistic, which has no gradient: push its value");
    if (m->step.n_regions > 0)
        return fail(m, "servers of a region need a gradient: push zeros");
    return WEIR_OK;
}

/* Converts doubles in R's order into the gradient array, or with is_values (the program's own local
 * steps) into memory for this call: *room. R's NULL: there is no gradient, and *room is NULL. */
static int fill(struct member *m, int i, SEXP values, int is_values, float **room)
{
    struct param *p = &m->params[i];
    *room = weir_gradient(m->w, i);
    if (!*room)
        return WEIR_E_INVALID;
    if (!p->is_here || p->pushed || !m->in_step)
        return fail(
            m,
            "it was already pushed in this step, or is still being received: call weir_next or weir_wait before the next push");
    if (values == R_NilValue) {
        *room = NULL;
        return check_lacking(m, p);
    }
    if (is_values)
        *room = (float *)R_alloc((size_t)p->n_elems, sizeof **room);
    int64_t bad = to_floats(p, REAL(values), *room);
    return bad == 0 ? WEIR_OK
                    : no_float(m, is_values ? "values" : "gradient", bad, REAL(values)[bad - 1]);
}

/* Pushes arrays of doubles in R's order (NULL: no gradient) for the parameters with these numbers.
 * Sends no array before it has checked all. If one is not valid, *at is its position in the list,
 * from 0. */
static int push_list(struct member *m, SEXP numbers, SEXP list, double samples, int is_values,
                     int *at)
{
    int n = LENGTH(numbers), code = WEIR_OK;
    float **rooms = (float **)R_alloc((size_t)n, sizeof *rooms);
    for (*at = 0; *at < n; ++*at) {
        code = fill(m, INTEGER(numbers)[*at], VECTOR_ELT(list, *at), is_values, &rooms[*at]);
        if (code < 0)
            return code;
    }
    for (*at = 0; *at < n; ++*at) {
        code = push(m, INTEGER(numbers)[*at], rooms[*at], samples, is_values);
        if (code < 0)
            return code;
    }
    return WEIR_OK;
}

/* Returns WEIR_OK, or c(code, position in the list, from 1, of the array that is not valid). */
static SEXP r_push(SEXP pointer, SEXP numbers, SEXP list, SEXP samples, SEXP is_values)
{
    struct member *m = member_of(pointer);
    int at = 0;
    for (int i = 0; i < LENGTH(numbers); i++)
        if (INTEGER(numbers)[i] < 0 || INTEGER(numbers)[i] >= m->n_params)
            return Rf_ScalarInteger(WEIR_E_INVALID);
    m->begun = 0;
    if (m->counts_no_more)
        return Rf_ScalarInteger(WEIR_OK);
    int code = push_list(m, numbers, list, Rf_asReal(samples), Rf_asLogical(is_values), &at);
    if (code >= 0)
        return Rf_ScalarInteger(WEIR_OK);
    SEXP out = Rf_allocVector(INTSXP, 2);
    INTEGER(out)[0] = code;
    INTEGER(out)[1] = at + 1;
    return out;
}

/* Pushes a contribution for `samples` samples that does not change the parameter. In a region
 * the contribution is a gradient of zeros. */
static int push_no_change(struct member *m, int i, double samples, int is_values)
{
    struct param *p = &m->params[i];
    float *room = weir_gradient(m->w, i);
    bool is_region = m->step.n_regions > 0;
    if (p->keep < 0 && !is_region)
        return push(m, i, NULL, samples, is_values);
    if (p->keep >= 0 || is_values)
        return push(m, i, weir_values(m->w, i), samples, is_values);
    memset(room, 0, (size_t)p->n_elems * sizeof *room);
    return push(m, i, room, samples, 0);
}

/* Pushes nothing for a parameter. Small parameters with successive numbers share a message, and the
 * message has one number of samples. So if another parameter of the message was pushed, this
 * function pushes a contribution without change for as many samples. */
static int push_nothing(struct member *m, int i, int is_values)
{
    int code = push(m, i, NULL, 0, is_values), above = i + 1;
    while (above < m->n_params && !m->params[above].pushed)
        above++;
    if (code == WEIR_E_INVALID && i > 0)
        code = push_no_change(m, i, m->params[i - 1].samples, is_values);
    if (code == WEIR_E_INVALID && above < m->n_params)
        code = push_no_change(m, i, m->params[above].samples, is_values);
    return code;
}

/* Pushes nothing for all parameters that were not pushed in the current step. Returns AGAIN if
 * their values have not arrived yet. */
static SEXP r_push_nothing(SEXP pointer, SEXP is_values, SEXP timeout_ms)
{
    struct member *m = member_of(pointer);
    R_CheckUserInterrupt();
    int code = m->counts_no_more ? WEIR_REBASED : wait_for_all(m, Rf_asInteger(timeout_ms));
    if (code == WEIR_AGAIN)
        return Rf_ScalarInteger(code);
    m->begun = 0;
    for (int i = 0; m->in_step && code == WEIR_OK && i < m->n_params; i++)
        if (!m->params[i].pushed)
            code = push_nothing(m, i, Rf_asLogical(is_values));
    return Rf_ScalarInteger(code < 0 ? code : WEIR_OK);
}

/* Returns the samples at these positions, as numbers from 1 to n; or a code. */
static SEXP r_samples(SEXP pointer, SEXP n, SEXP positions)
{
    struct member *m = member_of(pointer);
    R_xlen_t count = XLENGTH(positions);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, count));
    for (R_xlen_t i = 0; i < count; i++) {
        int64_t found = weir_sample(m->w, (int64_t)Rf_asReal(n), (int64_t)REAL(positions)[i]);
        if (found < 0) {
            UNPROTECT(1);
            return Rf_ScalarInteger((int)found);
        }
        REAL(out)[i] = (double)found + 1;
    }
    UNPROTECT(1);
    return out;
}

static SEXP r_step_rate(SEXP pointer, SEXP factor)
{
    struct member *m = member_of(pointer);
    return Rf_ScalarInteger(weir_step_rate(m->w, Rf_asReal(factor)));
}

static SEXP r_leave_soon(SEXP pointer, SEXP timeout_ms)
{
    struct member *m = member_of(pointer);
    R_CheckUserInterrupt();
    return Rf_ScalarInteger(weir_leave_soon(m->w, Rf_asInteger(timeout_ms)));
}

static SEXP r_leave_failed(SEXP pointer, SEXP why)
{
    struct member *m = member_of(pointer);
    return Rf_ScalarInteger(weir_leave_failed(m->w, utf8(why)));
}

/* Returns (kind, step, generation, param, code), or NULL without an event. */
static SEXP r_event(SEXP pointer)
{
    struct member *m = member_of(pointer);
    struct weir_event e;
    if (weir_next_event(m->w, &e) != WEIR_OK)
        return R_NilValue;
    SEXP out = PROTECT(Rf_allocVector(REALSXP, 5));
    const int64_t values[] = {e.kind, e.step, e.generation, e.param, e.code};
    for (int i = 0; i < 5; i++)
        REAL(out)[i] = (double)values[i];
    UNPROTECT(1);
    return out;
}

#define CALL(name, n)                                                                              \
    {                                                                                              \
        "C_" #name, (DL_FUNC)&r_##name, n                                                          \
    }
static const R_CallMethodDef calls[] = {
    CALL(open, 0),         CALL(close, 1),        CALL(is_open, 1),     CALL(error, 2),
    CALL(version, 0),      CALL(set, 3),          CALL(param, 6),       CALL(next, 3),
    CALL(wait, 3),         CALL(pull, 2),         CALL(values, 2),      CALL(push, 5),
    CALL(push_nothing, 3), CALL(got, 1),          CALL(samples, 3),     CALL(leave_soon, 2),
    CALL(step_rate, 2),    CALL(leave_failed, 2), CALL(event, 1),       CALL(log, 1),
    CALL(lines, 0),        CALL(gpu_reserve, 3),  CALL(gpu_release, 1), {NULL, NULL, 0}};

attribute_visible void R_init_weir(DllInfo *dll)
{
    R_registerRoutines(dll, NULL, calls, NULL, NULL);
    R_useDynamicSymbols(dll, FALSE);
    R_forceSymbols(dll, TRUE);
}

/* Stops the library from calling this code for log lines before the code is unloaded. */
attribute_visible void R_unload_weir(DllInfo *dll)
{
    (void)dll;
    weir_log(NULL, NULL);
}
