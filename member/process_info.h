/* member/process_info.h - program and user of a process, from /proc.
 * Threads: any. Errors: none; unknown parts are empty. */
#ifndef MEMBER_PROCESS_INFO_H
#define MEMBER_PROCESS_INFO_H
#include <stddef.h>
#include <sys/types.h>

enum { PROCESS_INFO_NAME_SIZE = 64 };

struct process_info {
    char program[PROCESS_INFO_NAME_SIZE];
    char user[PROCESS_INFO_NAME_SIZE]; /* a number if the user has no name here */
};

void process_info(int pid, struct process_info *out);
void process_info_user(uid_t uid, char out[PROCESS_INFO_NAME_SIZE]);
/* Writes "1234 (python3 of anna)", without unknown parts. */
void process_info_text(int pid, char *out, size_t size);

#endif
