/* ctl/names.h - words for the values of a status, the same in tables and in JSON. Threads: any.
 * Errors: none. */
#ifndef CTL_NAMES_H
#define CTL_NAMES_H
#include "net/wire/status.h"

const char *ctl_answer_name(enum command_answer answer);
/* Sorts members by the total time that steps waited for them, the longest first. */
void ctl_sort_by_lateness(struct net_status *s);

#endif
