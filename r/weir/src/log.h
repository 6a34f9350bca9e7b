/* r/weir/src/log.h - the library's log lines for R. Threads of the library write the lines, and
 * log.c keeps them until R requests them. member.c registers these calls. */
#ifndef R_WEIR_SRC_LOG_H
#define R_WEIR_SRC_LOG_H

struct SEXPREC; /* R declares SEXP as a pointer to it */

/* Sets the lowest level of the lines that are kept; at a level above WEIR_LOG_ERROR no line is
 * kept. */
struct SEXPREC *r_log(struct SEXPREC *level);
/* Returns the lines since the last call; the attribute `level` has their levels. */
struct SEXPREC *r_lines(void);

#endif
