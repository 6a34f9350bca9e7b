/* http/metrics_process.c - reads the metrics of this process in /proc, and writes them under the
 * names that Prometheus' client libraries use. */
#include "http/metrics.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int64_t metrics_resident_bytes(void)
{
    int64_t size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    int n = fscanf(f, "%" SCNd64 " %" SCNd64, &size, &resident);
    fclose(f);
    return n == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

/* Returns when the process started, in seconds since 1970; 0: unknown. */
static double start_seconds(void)
{
    char line[512];
    double boot = 0, ticks = 0;
    FILE *f = fopen("/proc/stat", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "btime ", 6) == 0)
            boot = strtod(line + 6, NULL);
    if (f)
        fclose(f);
    f = fopen("/proc/self/stat", "r");
    const char *at = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    for (int i = 0; at && i < 20; i++) /* the 22nd field; ')' ends the 2nd */
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtod(at, NULL);
    if (f)
        fclose(f);
    return boot > 0 && ticks > 0 ? boot + ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

static int n_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 3; /* without ., .. and the descriptor of the folder itself */
}

void metrics_process(FILE *f, const char *role, int64_t task)
{
    char number[24];
    struct rusage usage;
    struct rlimit most;
    static double start; /* kept: reading /proc/stat is slow, and the value is constant */
    if (start == 0)
        start = start_seconds();
    snprintf(number, sizeof number, "%" PRId64, task);
    const char *const labels[] = {"version", WEIR_VERSION, "role", role, "task", number, NULL};
    metrics_family(f, "weir_build_info", "gauge", "The program; always 1.");
    metrics_value(f, "weir_build_info", labels, 1);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        metrics_counter(f, "process_cpu_seconds_total", "User and system CPU time.",
                        (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                            (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    metrics_gauge(f, "process_resident_memory_bytes", "Resident memory.",
                  (double)metrics_resident_bytes());
    metrics_gauge(f, "process_open_fds", "Open file descriptors.", n_descriptors());
    if (getrlimit(RLIMIT_NOFILE, &most) == 0)
        metrics_gauge(f, "process_max_fds", "Largest allowed number of open file descriptors.",
                      (double)most.rlim_cur);
    metrics_gauge(f, "process_start_time_seconds",
                  "Time at which the process started, in seconds since 1970.", start);
}
