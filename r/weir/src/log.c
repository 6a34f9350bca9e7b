/* r/weir/src/log.c - see log.h. */
#include "log.h"
#include <Rinternals.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <weir.h>

enum { LINES = 64, LINE_BYTES = 400 };

/* Keeps lines of the library's threads until R requests them; the oldest are dropped first. */
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES][LINE_BYTES];
static int lines_level[LINES], n_lines, least_level;

static void keep_line(void *ctx, int level, const char *text)
{
    (void)ctx;
    pthread_mutex_lock(&lines_lock);
    if (level >= least_level) {
        snprintf(lines[n_lines % LINES], LINE_BYTES, "%s", text);
        lines_level[n_lines++ % LINES] = level;
        n_lines -= n_lines == 2 * LINES ? LINES : 0; /* drops the oldest, which R never requested */
    }
    pthread_mutex_unlock(&lines_lock);
}

SEXP r_log(SEXP level)
{
    int least = Rf_asInteger(level);
    pthread_mutex_lock(&lines_lock);
    least_level = least;
    pthread_mutex_unlock(&lines_lock);
    weir_log(least > WEIR_LOG_ERROR ? NULL : keep_line, NULL);
    return R_NilValue;
}

SEXP r_lines(void)
{
    /* The lines are copied, and the lock is released before R's functions are called, because
     * these may jump out of this function. */
    static char copy[LINES][LINE_BYTES];
    int level[LINES];
    pthread_mutex_lock(&lines_lock);
    int n = n_lines < LINES ? n_lines : LINES;
    for (int i = 0; i < n; i++) {
        int at = (n_lines - n + i) % LINES;
        memcpy(copy[i], lines[at], LINE_BYTES);
        level[i] = lines_level[at];
    }
    n_lines = 0;
    pthread_mutex_unlock(&lines_lock);
    if (n == 0)
        return R_NilValue;
    SEXP text = PROTECT(Rf_allocVector(STRSXP, n));
    SEXP levels = PROTECT(Rf_allocVector(INTSXP, n));
    for (int i = 0; i < n; i++) {
        SET_STRING_ELT(text, i, Rf_mkCharCE(copy[i], CE_UTF8));
        INTEGER(levels)[i] = level[i];
    }
    Rf_setAttrib(text, Rf_install("level"), levels);
    UNPROTECT(2);
    return text;
}
