/* cluster/tf_config.c - reads TF_CONFIG as TensorFlow and Kubeflow's TFJob write it:
 *     {"cluster": {"chief": ["h0:2222"], "ps": ["h1:2222"], "worker": ["h2:2222", "h3:2222"]},
 *      "task": {"type": "worker", "index": 1}, "environment": "cloud"}
 * A job's addresses may also be an object by number, {"3": "h:2222"}. If enableDynamicWorker is
 * set, TFJob writes "sparseCluster" instead of "cluster": for a worker it lists that worker and the
 * servers, for a server only that server. Other keys are ignored, as in TensorFlow. */
#include "base/log.h"
#include "cluster/cluster.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PLACE_BYTES = 200 };

/* TensorFlow's "job" of the cluster: the tasks of one role, by their numbers. */
struct job {
    const char *name;
    int there;
    int n;             /* largest task number plus 1 */
    int n_known;       /* number of addresses; fewer than n if some are not named */
    const char **addr; /* [n], borrowed from the JSON; NULL: not named */
};

enum { PS, CHIEF, MASTER, WORKER, EVALUATOR, N_JOBS };

struct config {
    const char *key; /* "cluster" */
    struct job jobs[N_JOBS];
    const char *type; /* role of this task, as TF_CONFIG names it */
    int index;
};

static enum status log_wrong(const char *place, const char *wrong)
{
    LOG_E("TF_CONFIG: %.200s %s", place, wrong);
    return ST_INVALID;
}

static enum status keep_address(struct job *job, int index, const json_t *value, const char *place)
{
    const char *addr = json_string_value(value);
    if (!addr)
        return log_wrong(place, "is not a string; write host:port");
    if (strncmp(addr, "grpc://", 7) == 0)
        addr += 7;
    const char *problem = hosts_problem(addr);
    if (problem) {
        LOG_E("TF_CONFIG: %.200s '%.100s' %s", place, addr, problem);
        return ST_INVALID;
    }
    job->addr[index] = addr;
    job->n_known++;
    return ST_OK;
}

/* Returns the number that the key of an object spells; -1: it is not a number. */
static int key_number(const char *key)
{
    size_t n = strspn(key, "0123456789");
    if (!n || key[n] || n > 4 || (n > 1 && *key == '0'))
        return -1;
    int number = atoi(key);
    return number < HOSTS_MAX ? number : -1;
}

static enum status read_object(const struct config *c, struct job *job, json_t *of)
{
    enum status st = ST_OK;
    char place[PLACE_BYTES];
    const char *key;
    json_t *value;
    json_object_foreach(of, key, value)
    {
        int number = key_number(key);
        snprintf(place, sizeof place, "%s.%s[\"%.40s\"]", c->key, job->name, key);
        if (number < 0)
            return log_wrong(place, "is not a task number from 0 to 4095");
        TRY(keep_address(job, number, value, place));
        if (number >= job->n)
            job->n = number + 1;
    }
done:
    return st;
}

static enum status read_array(const struct config *c, struct job *job, const json_t *of)
{
    enum status st = ST_OK;
    char place[PLACE_BYTES];
    snprintf(place, sizeof place, "%s.%s", c->key, job->name);
    if (json_array_size(of) > HOSTS_MAX)
        return log_wrong(place, "has more than 4096 entries");
    for (; (size_t)job->n < json_array_size(of); job->n++) {
        snprintf(place, sizeof place, "%s.%s[%d]", c->key, job->name, job->n);
        TRY(keep_address(job, job->n, json_array_get(of, (size_t)job->n), place));
    }
done:
    return st;
}

static enum status read_jobs(struct config *c, json_t *cluster)
{
    static const char *const names[N_JOBS] = {"ps", "chief", "master", "worker", "evaluator"};
    enum status st = ST_OK;
    char place[PLACE_BYTES];
    const char *key;
    json_t *value;
    if (!json_is_object(cluster))
        return log_wrong(c->key,
                         "is not an object such as {\"ps\": [\"host:port\"], \"worker\": [...]}");
    json_object_foreach(cluster, key, value)
    {
        int i = 0;
        while (i < N_JOBS && strcmp(key, names[i]))
            i++;
        snprintf(place, sizeof place, "%s.%.60s", c->key, key);
        if (i == N_JOBS)
            return log_wrong(place, "is not one of ps, worker, chief, master and evaluator");
        struct job *job = &c->jobs[i];
        job->name = names[i];
        job->there = 1;
        job->addr = calloc(HOSTS_MAX, sizeof *job->addr);
        if (!job->addr)
            return ST_NOMEM;
        if (!json_is_array(value) && !json_is_object(value))
            return log_wrong(place, "is neither a list nor an object with task numbers as keys");
        TRY(json_is_array(value) ? read_array(c, job, value) : read_object(c, job, value));
    }
done:
    return st;
}

/* Returns a task's number, which may be written as a text ("0"), as TensorFlow does. Returns 0 for
 * value NULL, and -1 if it is no number. */
static json_int_t index_of(const json_t *value)
{
    const char *text = json_string_value(value);
    size_t n = text ? strlen(text) : 0;
    if (text && n >= 1 && n <= 4 && strspn(text, "0123456789") == n)
        return strtol(text, NULL, 10);
    return !value ? 0 : json_is_integer(value) ? json_integer_value(value) : -1;
}

static enum status read_task(struct config *c, const json_t *task)
{
    const json_t *type = json_object_get(task, "type"), *index = json_object_get(task, "index");
    if (!json_is_object(task))
        return log_wrong("task", "is not an object such as {\"type\": \"worker\", \"index\": 0}");
    c->type = json_string_value(type);
    if (!c->type)
        return log_wrong("task.type", "is missing, or no string");
    if (!index && strcmp(c->type, "evaluator") != 0)
        return log_wrong("task.index", "is missing");
    json_int_t n = index_of(index);
    if (n < 0 || n >= HOSTS_MAX)
        return log_wrong("task.index", "is not a number from 0 to 4095");
    c->index = (int)n;
    return ST_OK;
}

/* Checks the jobs of the cluster; it must name each server. */
static enum status check_jobs(const struct config *c)
{
    const struct job *jobs = c->jobs;
    const char *place = NULL, *wrong = NULL;
    if (jobs[CHIEF].there && jobs[MASTER].there)
        place = c->key, wrong = "has a chief and a master, which are the same; name one of them";
    else if (jobs[CHIEF].n > 1 || jobs[MASTER].n > 1)
        place = c->key, wrong = "has more than one chief; list the other chiefs as workers";
    else if (jobs[PS].n_known < jobs[PS].n)
        place = c->key,
        wrong = "does not list every ps, but each task needs the addresses of all of them";
    return wrong ? log_wrong(place, wrong) : ST_OK;
}

static void log_twice(const char *const *addr, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (strcasecmp(addr[i], addr[j]) == 0) {
                LOG_E("TF_CONFIG: the address '%.100s' is listed twice; each task needs its own",
                      addr[i]);
                return;
            }
}

static enum status copy_jobs(const struct job *a, const struct job *b, struct hosts *out)
{
    const size_t n = (size_t)a->n, more = b ? (size_t)b->n : 0;
    const char **all = calloc(n + more + 1, sizeof *all);
    enum status st = all ? ST_OK : ST_NOMEM;
    TRY(st);
    for (size_t i = 0; i < n + more; i++)
        all[i] = i < n ? a->addr[i] : b->addr[i - n];
    if (n + more > HOSTS_MAX) {
        LOG_E("TF_CONFIG: chief and workers have %zu addresses, more than %d", n + more, HOSTS_MAX);
        TRY(ST_INVALID);
    }
    st = hosts_copy(all, n + more, out);
    if (st == ST_INVALID)
        log_twice(all, n + more);
done:
    free(all);
    return st;
}

/* Sets the role and index of the task: the chief is worker 0, and workers follow it. */
static enum status place_task(const struct config *c, struct cluster *out)
{
    static const struct {
        const char *type;
        int job;
    } types[] = {{"ps", PS}, {"chief", CHIEF}, {"master", MASTER}, {"worker", WORKER}};
    size_t i = 0;
    snprintf(out->named, sizeof out->named, "%.60s %d", c->type, c->index);
    out->index = c->index;
    out->role = CLUSTER_EVALUATOR;
    if (strcmp(c->type, "evaluator") == 0)
        return ST_OK;
    while (i < sizeof types / sizeof *types && strcmp(types[i].type, c->type))
        i++;
    if (i == sizeof types / sizeof *types) {
        LOG_E("TF_CONFIG: task.type '%.100s' is not one of ps, worker, chief, master and evaluator",
              c->type);
        return ST_INVALID;
    }
    const struct job *job = &c->jobs[types[i].job];
    const struct job *chief = &c->jobs[c->jobs[MASTER].there ? MASTER : CHIEF];
    if (c->index >= job->n || !job->addr[c->index]) {
        LOG_E(
            "TF_CONFIG: task is %s, but %s.%s %s", out->named, c->key, c->type,
            job->there && types[i].job == PS && strcmp(c->key, "sparseCluster") == 0
                ? "names this server alone; with enableDynamicWorker start servers with the complete --ps_hosts"
                : "has no entry for it");
        return ST_INVALID;
    }
    snprintf(out->self, sizeof out->self, "%s", job->addr[c->index]);
    out->role = types[i].job == PS ? CLUSTER_PS : CLUSTER_WORKER;
    out->index += types[i].job == WORKER ? chief->n : 0;
    return out->index < HOSTS_MAX
               ? ST_OK
               : log_wrong("task.index", "is too large, because the chief is worker 0");
}

/* Sets the task of a sparse cluster, in which a worker has no list of workers. The first worker
 * begins the job alone, later workers join it, and servers receive the number of workers from the
 * first worker. */
static void place_sparse(const struct config *c, struct cluster *out)
{
    if (out->role == CLUSTER_WORKER)
        out->joins = out->index > 0;
    if (out->role == CLUSTER_WORKER && out->index > 0)
        snprintf(out->named, sizeof out->named, "%.60s %d, which joins", c->type, c->index);
}

static enum status read_cluster(struct config *c, const json_t *root, int no_task,
                                struct cluster *out)
{
    enum status st = ST_OK;
    const json_t *task = json_object_get(root, "task");
    json_t *cluster = json_object_get(root, "cluster");
    c->key = "cluster";
    if (!cluster && (cluster = json_object_get(root, "sparseCluster")))
        c->key = "sparseCluster";
    if (!json_is_object(root))
        return log_wrong("the text",
                         "is not an object such as {\"cluster\": {...}, \"task\": {...}}");
    if (task && !no_task)
        TRY(read_task(c, task));
    int evaluates = c->type && strcmp(c->type, "evaluator") == 0;
    if (!cluster && c->type && !evaluates && (c->index > 0 || strcmp(c->type, "ps") == 0))
        return log_wrong("cluster", "is missing, but this task needs a cluster");
    if (!cluster && !evaluates)
        return ST_OK; /* {}, or only a task 0: the text describes no cluster */
    if (cluster)
        TRY(read_jobs(c, cluster));
    if (cluster && !task && !no_task)
        return log_wrong("task",
                         "is missing: it must state which task of the cluster this process is");
    TRY(check_jobs(c));
    out->source = CLUSTER_TF_CONFIG;
    TRY(copy_jobs(&c->jobs[PS], NULL, &out->ps));
    if (c->type)
        TRY(place_task(c, out));
    const struct job *chief = &c->jobs[c->jobs[MASTER].there ? MASTER : CHIEF];
    const struct job *worker = &c->jobs[WORKER];
    if (worker->n_known < worker->n || strcmp(c->key, "sparseCluster") == 0)
        place_sparse(c, out);
    else
        TRY(copy_jobs(chief, worker, &out->workers));
done:
    return st;
}

enum status cluster_read_tf_config(const char *text, int no_task, struct cluster *out)
{
    enum status st = ST_OK;
    struct cluster found = {.index = -1};
    struct config config = {.key = NULL};
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        LOG_E("TF_CONFIG is not JSON: line %d, column %d: %s", error.line, error.column,
              error.text);
        TRY(ST_INVALID);
    }
    TRY(read_cluster(&config, root, no_task, &found));
done:
    for (int i = 0; i < N_JOBS; i++)
        free(config.jobs[i].addr);
    json_decref(root);
    if (st == ST_OK)
        *out = found;
    else
        cluster_free(&found);
    return st;
}
