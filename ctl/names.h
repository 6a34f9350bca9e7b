/* ctl/names.h - words for what a status says, the same for people and in JSON. Threads: any.
 * Errors: none. */
#ifndef CTL_NAMES_H
#define CTL_NAMES_H
#include "net/wire/status.h"

const char *ctl_answer_name(enum command_answer answer);
/* Sorts members: those first that were waited for longest, in all. */
void ctl_sort_by_lateness(struct net_status *s);

#endif
