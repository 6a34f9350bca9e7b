/* cluster/main.c - weir-task: executes ps or worker with the same arguments, depending on the role
 * of this task in the job. So all tasks of a Slurm step or a TFJob can have the same command line,
 * as with a TensorFlow script. --job_name, too, can state the role. It looks for the programs in
 * its own folder, under the names weir-ps and weir-worker (in an installation) or ps and worker (in
 * a build). */
#include "base/flags_impl.h"
#include "base/log.h"
#include "base/program_dir.h"
#include "cluster/cluster.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "Usage: weir-task FLAGS...\n"
    "Becomes Weir's ps or worker, with all flags unchanged: by --job_name if it is set, else by\n"
    "the task's TF_CONFIG, or with --slurm_ps=N by the environment of its Slurm step; without a\n"
    "cluster it is a worker. Both accept each other's flags. See docs/guide/clusters.md and --help\n"
    "of the two. Exits with their status, or with 2 if the program cannot be determined.\n";

/* Returns the last value of a flag, like flags_parse; NULL: it is not set. */
static const char *flag_value(int argc, char **argv, const char *name)
{
    const char *found = NULL;
    for (int i = 1; i < argc; i++) {
        size_t n = strncmp(argv[i], "--", 2) == 0 ? strcspn(argv[i] + 2, "=") : 0;
        if (!n || !flags_name_is(name, argv[i] + 2, n))
            continue;
        found = argv[i][2 + n] ? argv[i] + 3 + n : i + 1 < argc ? argv[i + 1] : "";
    }
    return found;
}

/* Returns the value of a flag; 0: it is not set; -1: it is not a number, which the program itself
 * will report. */
static int64_t flag_number(int argc, char **argv, const char *name, int64_t without)
{
    const char *text = flag_value(argc, argv, name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : 0;
    return !text ? without : end == text || *end || value < 0 || value > 65535 ? -1 : value;
}

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static enum status find_role(int argc, char **argv, enum cluster_role *role)
{
    enum status st = ST_OK;
    struct cluster c = {0};
    const char *job = flag_value(argc, argv, "job_name");
    struct cluster_request r = {.ps_hosts = flag_value(argc, argv, "ps_hosts"),
                                .worker_hosts = flag_value(argc, argv, "worker_hosts"),
                                .slurm_ps = flag_number(argc, argv, "slurm_ps", 0),
                                .slurm_port = flag_number(argc, argv, "slurm_port", 1),
                                .task_index = -1};
    *role = CLUSTER_WORKER;
    if (job) {
        *role = is(job, "ps") ? CLUSTER_PS : CLUSTER_WORKER;
        return ST_OK;
    }
    static const char *const workers[] = {"evaluate", "predict", "list_devices", "self_test"};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
        if (flag_value(argc, argv, workers[i]))
            return ST_OK;
    if (r.slurm_ps < 0 || r.slurm_port < 0)
        return ST_OK; /* the worker will report the fault */
    cluster_environment(&r);
    TRY(cluster_find(&r, &c));
    if (c.source == CLUSTER_FLAGS) {
        LOG_E(
            "--job_name is missing: with lists of hosts, write --job_name=ps or --job_name=worker for each task");
        TRY(ST_INVALID);
    }
    if (c.source != CLUSTER_NONE && c.role == CLUSTER_PS)
        *role = CLUSTER_PS;
done:
    cluster_free(&c);
    return st;
}

/* Finds the program under its installed name, or under its name in a build. In a build the other
 * program must be beside it, because a system folder may contain another program called ps. */
static int find_program(const char *name, char *path, size_t bytes)
{
    char full[40];
    snprintf(full, sizeof full, "weir-%s", name);
    if (program_dir_path(full, path, bytes) == ST_OK && access(path, X_OK) == 0)
        return 1;
    return program_dir_path("worker", path, bytes) == ST_OK && access(path, X_OK) == 0 &&
           program_dir_path(name, path, bytes) == ST_OK && access(path, X_OK) == 0;
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];
    enum cluster_role role;
    log_init("weir-task", -1, LOG_LEVEL_WARN);
    if (argc < 1)
        return EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        if (is(argv[i], "--help"))
            return fputs(HELP, stdout) < 0 || fflush(stdout) != 0 ? EXIT_PERMANENT : 0;
        if (is(argv[i], "--version"))
            return printf("weir-task (Weir) " WEIR_VERSION "\n") < 0 || fflush(stdout) != 0;
    }
    if (find_role(argc, argv, &role) != ST_OK)
        return EXIT_USAGE;
    const char *name = role == CLUSTER_PS ? "ps" : "worker";
    if (!find_program(name, path, sizeof path)) {
        LOG_E("weir-%s is not in the folder of weir-task", name);
        return EXIT_PERMANENT;
    }
    argv[0] = path;
    execv(path, argv);
    LOG_E("%s cannot be started: %s", path, strerror(errno));
    return EXIT_PERMANENT;
}
