/* member/process_info.c - reads /proc/PID/comm and the owner of /proc/PID. */
#include "member/process_info.h"
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void process_info_user(uid_t uid, char out[PROCESS_INFO_NAME_SIZE])
{
    struct passwd user, *found = NULL;
    char buffer[1024];
    getpwuid_r(uid, &user, buffer, sizeof buffer, &found);
    if (found != NULL)
        snprintf(out, PROCESS_INFO_NAME_SIZE, "%.32s", user.pw_name);
    else
        snprintf(out, PROCESS_INFO_NAME_SIZE, "%lu", (unsigned long)uid);
}

void process_info(int pid, struct process_info *out)
{
    char path[64];
    struct stat st;
    *out = (struct process_info){.program = ""};
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return;
    if (fgets(out->program, sizeof out->program, f) != NULL)
        out->program[strcspn(out->program, "\n")] = '\0';
    if (fstat(fileno(f), &st) == 0)
        process_info_user(st.st_uid, out->user);
    fclose(f);
}

void process_info_text(int pid, char *out, size_t size)
{
    struct process_info who;
    process_info(pid, &who);
    if (who.program[0] == '\0')
        snprintf(out, size, "%d", pid);
    else if (who.user[0] == '\0')
        snprintf(out, size, "%d (%s)", pid, who.program);
    else
        snprintf(out, size, "%d (%s of %s)", pid, who.program, who.user);
}
