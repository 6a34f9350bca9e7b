/* cluster/step.c - derives a cluster from the tasks of a Slurm step. The tasks with the lowest
 * numbers are servers, and the following tasks are workers. A task's address is that of its node,
 * with a port that depends on its position among the tasks of that node. Every task computes the
 * cluster by itself, from variables that are equal in all tasks. So Slurm must distribute tasks by
 * blocks (srun's default) or in turns (cyclic), and each task checks that it runs on the node that
 * it has computed. */
#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/slurm.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spot {
    int node, local;
};

static enum status read_number(const char *name, const char *text, int64_t below, int64_t *out)
{
    int64_t value = 0;
    if (!text) {
        LOG_E(
            "%s is not in the environment: --slurm_ps is for the tasks of a Slurm step; start them with srun",
            name);
        return ST_INVALID;
    }
    const char *p = text;
    for (; isdigit((unsigned char)*p) && value < below; p++)
        value = value * 10 + (*p - '0');
    if (p == text || *p || value >= below) {
        LOG_E("%s: '%.40s' is not a number below %" PRId64, name, text, below);
        return ST_INVALID;
    }
    *out = value;
    return ST_OK;
}

/* Computes, for each of n tasks, its node and its position among the tasks of that node. */
static void spread(const int *counts, int n_nodes, int in_turns, struct spot *out, int n)
{
    int at = 0, most = 0;
    for (int i = 0; i < n_nodes; i++)
        most = counts[i] > most ? counts[i] : most;
    for (int i = 0; i < n_nodes && !in_turns; i++)
        for (int j = 0; j < counts[i] && at < n; j++)
            out[at++] = (struct spot){i, j};
    for (int j = 0; j < most && in_turns; j++)
        for (int i = 0; i < n_nodes; i++)
            if (j < counts[i] && at < n)
                out[at++] = (struct spot){i, j};
}

/* Returns how Slurm distributes tasks, from a text such as "block" or "cyclic:block": in turns
 * (1), by blocks (0), or in another way (-1). */
static int turns(const char *distribution)
{
    size_t n = distribution ? strcspn(distribution, ":,") : 0;
    if (!n || (n == 1 && *distribution == '*') || (n == 5 && !strncmp(distribution, "block", n)))
        return 0;
    return n == 6 && strncmp(distribution, "cyclic", n) == 0 ? 1 : -1;
}

static enum status check_own(const struct cluster_step *s, struct spot own)
{
    const struct {
        const char *name, *text;
        int is;
    } told[] = {{"SLURM_NODEID", s->node, own.node}, {"SLURM_LOCALID", s->local, own.local}};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        int64_t value;
        if (!told[i].text)
            continue;
        if (read_number(told[i].name, told[i].text, HOSTS_MAX, &value) != ST_OK)
            return ST_INVALID;
        if (value == told[i].is)
            continue;
        LOG_E(
            "%s is %" PRId64
            ", but %d follows from the Slurm step's nodes and tasks: start them with srun --distribution=block",
            told[i].name, value, told[i].is);
        return ST_INVALID;
    }
    return ST_OK;
}

static enum status fill(const struct hosts *nodes, const struct spot *spots, int64_t port,
                        struct hosts *out, int n)
{
    enum status st = ST_OK;
    char(*text)[300] = calloc((size_t)n + 1, sizeof *text);
    const char **addr = calloc((size_t)n + 1, sizeof *addr);
    if (!text || !addr)
        TRY(ST_NOMEM);
    for (int i = 0; i < n; i++) {
        snprintf(text[i], sizeof text[i], "%s:%" PRId64, nodes->addr[spots[i].node],
                 port + spots[i].local);
        addr[i] = text[i];
        const char *problem = hosts_problem(text[i]);
        if (!problem)
            continue;
        LOG_E("--slurm_port=%" PRId64 ": task %d at '%.100s' %s", port, i, text[i], problem);
        TRY(ST_INVALID);
    }
    st = hosts_copy(addr, (size_t)n, out);
    if (st == ST_INVALID)
        LOG_E("Slurm's list of nodes contains a node twice");
done:
    free(text);
    free(addr);
    return st;
}

/* Reads the variables that are equal in all tasks. The caller frees *counts, even after an error.
 */
static enum status read_layout(const struct cluster_step *s, int64_t *n, struct hosts *nodes,
                               int **counts)
{
    enum status st = ST_OK;
    int64_t id;
    int sum = 0;
    TRY(read_number("SLURM_STEP_ID", s->step_id, INT64_C(1) << 32, &id));
    TRY(read_number("SLURM_NTASKS", s->n_tasks, HOSTS_MAX + 1, n));
    if (!s->nodes || !s->tasks_per_node) {
        LOG_E(
            "SLURM_STEP_NODELIST or SLURM_STEP_TASKS_PER_NODE is not in the environment: --slurm_ps is for the tasks of a Slurm step; start them with srun");
        TRY(ST_INVALID);
    }
    TRY(slurm_nodes_expand(s->nodes, nodes));
    *counts = calloc((size_t)nodes->n, sizeof **counts);
    TRY(*counts ? ST_OK : ST_NOMEM);
    TRY(slurm_counts_expand(s->tasks_per_node, *counts, nodes->n));
    for (int i = 0; i < nodes->n; i++)
        sum += (*counts)[i];
    if (sum != *n) {
        LOG_E("SLURM_NTASKS is %" PRId64 ", but the nodes have %d tasks ('%.100s')", *n, sum,
              s->tasks_per_node);
        st = ST_INVALID;
    }
done:
    return st;
}

static enum status check_numbers(const struct cluster_step *s, int64_t n_ps, int64_t n)
{
    if (n_ps >= n) {
        LOG_E("--slurm_ps=%" PRId64 ": the Slurm step has %" PRId64
              " %s, so no task is left for a worker",
              n_ps, n, n == 1 ? "task" : "tasks");
        return ST_INVALID;
    }
    if (turns(s->distribution) < 0) {
        LOG_E(
            "SLURM_DISTRIBUTION is '%.40s': only for block and cyclic can Weir determine the node of each task; start the tasks with srun --distribution=block",
            s->distribution);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status cluster_read_step(const struct cluster_step *s, int64_t n_ps, int64_t port,
                              struct cluster *out)
{
    enum status st = ST_OK;
    struct cluster c = {.source = CLUSTER_SLURM};
    struct hosts nodes = {0}, all = {0};
    int *counts = NULL;
    struct spot *spots = NULL;
    int64_t n = 0, task = 0;
    TRY(read_layout(s, &n, &nodes, &counts));
    TRY(read_number("SLURM_PROCID", s->task, n, &task));
    TRY(check_numbers(s, n_ps, n));
    spots = calloc((size_t)n, sizeof *spots);
    TRY(spots ? ST_OK : ST_NOMEM);
    spread(counts, nodes.n, turns(s->distribution), spots, (int)n);
    TRY(check_own(s, spots[task]));
    TRY(fill(&nodes, spots, port, &all, (int)n));
    TRY(hosts_copy((const char *const *)all.addr, (size_t)n_ps, &c.ps));
    TRY(hosts_copy((const char *const *)all.addr + n_ps, (size_t)(n - n_ps), &c.workers));
    c.role = task < n_ps ? CLUSTER_PS : CLUSTER_WORKER;
    c.index = (int)(task < n_ps ? task : task - n_ps);
    snprintf(c.self, sizeof c.self, "%s", all.addr[task]);
    snprintf(c.named, sizeof c.named, "task %" PRId64, task);
done:
    free(spots);
    free(counts);
    hosts_free(&nodes);
    hosts_free(&all);
    if (st == ST_OK)
        *out = c;
    else
        cluster_free(&c);
    return st;
}
