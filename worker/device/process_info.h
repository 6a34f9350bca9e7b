/* worker/device/process_info.h - whom to ask about a process: its program and its user, as /proc
 * tells them.
 * Threads: any. Errors: none; what is not told is empty. */
#ifndef WORKER_DEVICE_PROCESS_INFO_H
#define WORKER_DEVICE_PROCESS_INFO_H
#include <stddef.h>
#include <sys/types.h>

enum { PROCESS_INFO_NAME_SIZE = 64 };

struct process_info {
    char program[PROCESS_INFO_NAME_SIZE];
    char user[PROCESS_INFO_NAME_SIZE]; /* a number where it has no name here */
};

void process_info(int pid, struct process_info *out);
void process_info_user(uid_t uid, char out[PROCESS_INFO_NAME_SIZE]);
/* "1234 (python3 of anna)"; what is not told is left out. */
void process_info_text(int pid, char *out, size_t size);

#endif
