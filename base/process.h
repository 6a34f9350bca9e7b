/* base/process.h - what a program of ours sets for its whole process, which is its own. libweir is
 * a guest in another's and sets none of it (weir.h says what it does there). Threads: main, before
 * others start; process_is_ours: any. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

/* Each program calls it first. A write beyond the limit on a file's size fails with EFBIG from now
 * on, where SIGXFSZ would end the process; malloc keeps what is freed. */
void process_set_up(void);
/* 1: process_set_up was called: what is common to all of the process may be set. */
int process_is_ours(void);

#endif
