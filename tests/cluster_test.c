/* tests/cluster_test.c - the cluster of TF_CONFIG and of a Slurm step, the errors for invalid
 * descriptions, and the priority of the sources. */
#include "cluster/cluster.h"
#include "cluster/slurm.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <string.h>

#define CHIEF_JOB                                                                                  \
    "{\"cluster\":{\"chief\":[\"h0:2222\"],\"ps\":[\"h1:2222\"],"                                  \
    "\"worker\":[\"h2:2222\",\"h3:2222\"],\"evaluator\":[\"h4:2222\"]},\"task\":{\"type\":"
#define SPARSE                                                                                     \
    "{\"sparseCluster\":{\"worker\":{\"3\":\"w3:2222\"},\"ps\":[\"p0:2222\",\"p1:2222\"]},"        \
    "\"task\":{\"type\":"

static void says(const char *text)
{
    if (!strstr(capture_text, text))
        fail_msg("'%s' lacks '%s'", capture_text, text);
    assert_int_equal(capture_lines(), 1);
}

static struct cluster good(const char *config)
{
    struct cluster c = {0};
    if (CAPTURE(cluster_read_tf_config(config, 0, &c)) != ST_OK)
        fail_msg("%s: %s", config, capture_text);
    assert_string_equal(capture_text, "");
    return c;
}

static void is(struct cluster c, enum cluster_role role, int index, int n_ps, int n_workers)
{
    assert_int_equal(c.role, role);
    assert_int_equal(c.index, index);
    assert_int_equal(c.ps.n, n_ps);
    assert_int_equal(c.workers.n, n_workers);
    cluster_free(&c);
}

static void test_tf_config(void **state)
{
    struct cluster c = good(CHIEF_JOB "\"worker\",\"index\":1},\"environment\":\"cloud\"}");
    assert_int_equal(c.source, CLUSTER_TF_CONFIG);
    assert_string_equal(c.self, "h3:2222");
    assert_string_equal(c.named, "worker 1");
    assert_string_equal(c.ps.addr[0], "h1:2222");
    assert_string_equal(c.workers.addr[0], "h0:2222");
    assert_string_equal(c.workers.addr[2], "h3:2222");
    assert_int_equal(c.joins, 0);
    is(c, CLUSTER_WORKER, 2, 1, 3);
    is(good(CHIEF_JOB "\"chief\",\"index\":0}}"), CLUSTER_WORKER, 0, 1, 3);
    is(good(CHIEF_JOB "\"ps\",\"index\":0}}"), CLUSTER_PS, 0, 1, 3);
    is(good(CHIEF_JOB "\"evaluator\",\"index\":0}}"), CLUSTER_EVALUATOR, 0, 1, 3);
    is(good(CHIEF_JOB "\"worker\",\"index\":\"1\"}}"), CLUSTER_WORKER, 2, 1, 3);
    is(good("{\"task\":{\"type\":\"evaluator\",\"index\":0}}"), CLUSTER_EVALUATOR, 0, 0, 0);
    is(good("{\"cluster\":{\"master\":[\"a:1\"],\"worker\":[\"b:1\"],\"ps\":[\"grpc://p:1\"]},"
            "\"task\":{\"type\":\"worker\",\"index\":0}}"),
       CLUSTER_WORKER, 1, 1, 2);
    c = good("{}");
    assert_int_equal(c.source, CLUSTER_NONE);
    c = good("{\"environment\":\"cloud\",\"task\":{\"type\":\"worker\",\"index\":0}}");
    assert_int_equal(c.source, CLUSTER_NONE);
    assert_int_equal(cluster_read_tf_config("{\"cluster\":{\"ps\":[\"p:1\"]}}", 1, &c), ST_OK);
    is(c, CLUSTER_PS, -1, 1, 0);
}

/* The hosts are an object with task numbers as keys. It has all entries or only the one of this
 * task, as with TensorFlow's enableDynamicWorker. */
static void test_sparse(void **state)
{
    struct cluster c = good(SPARSE "\"worker\",\"index\":3}}");
    assert_int_equal(c.joins, 1);
    assert_string_equal(c.self, "w3:2222");
    is(c, CLUSTER_WORKER, 3, 2, 0);
    c = good("{\"sparseCluster\":{\"worker\":{\"0\":\"w0:1\"},\"ps\":[\"p0:1\"]},"
             "\"task\":{\"type\":\"worker\",\"index\":0}}");
    assert_int_equal(c.joins, 0);
    is(c, CLUSTER_WORKER, 0, 1, 0);
    is(good("{\"sparseCluster\":{\"worker\":{},\"ps\":[\"p0:1\"]},"
            "\"task\":{\"type\":\"ps\",\"index\":0}}"),
       CLUSTER_PS, 0, 1, 0);
    c = good("{\"cluster\":{\"worker\":{\"3\":\"w3:1\"},\"ps\":{\"1\":\"b:1\",\"0\":\"a:1\"}},"
             "\"task\":{\"type\":\"worker\",\"index\":3}}");
    assert_int_equal(c.joins, 1);
    assert_string_equal(c.ps.addr[0], "a:1");
    is(c, CLUSTER_WORKER, 3, 2, 0);
    c = good("{\"cluster\":{\"worker\":{\"1\":\"w1:1\",\"0\":\"w0:1\"},\"ps\":[\"p:1\"]},"
             "\"task\":{\"type\":\"worker\",\"index\":1}}");
    assert_int_equal(c.joins, 0);
    is(c, CLUSTER_WORKER, 1, 1, 2);
}

static void bad(const char *config, const char *text)
{
    struct cluster c = {0};
    assert_int_equal(CAPTURE(cluster_read_tf_config(config, 0, &c)), ST_INVALID);
    says(text);
    assert_null(c.ps.addr);
}

static void test_tf_config_wrong(void **state)
{
    bad("{\"cluster\":\n {\"ps\": [,]}}", "TF_CONFIG is not JSON: line 2, column 10: unexpected");
    bad(" ", "TF_CONFIG is not JSON: line 1");
    bad("{\"a\":1,\"a\":2}", "duplicate");
    bad("[]", "TF_CONFIG: the text is not an object");
    bad("{\"cluster\":[]}", "cluster is not an object");
    bad("{\"cluster\":{\"workers\":[]}}", "cluster.workers is not one of ps, worker");
    bad("{\"cluster\":{\"ps\":\"a:1\"}}", "cluster.ps is neither a list nor an object");
    bad("{\"cluster\":{\"ps\":[\"a:1\",7]}}", "cluster.ps[1] is not a string");
    bad("{\"cluster\":{\"ps\":[\"a:1\",\"b\"]}}", "cluster.ps[1] 'b' has no port");
    bad("{\"cluster\":{\"worker\":{\"01\":\"a:1\"}}}",
        "cluster.worker[\"01\"] is not a task number");
    bad("{\"cluster\":{\"worker\":{\"4096\":\"a:1\"}}}",
        "cluster.worker[\"4096\"] is not a task number");
    bad("{\"cluster\":{\"worker\":{\"-1\":\"a:1\"}}}",
        "cluster.worker[\"-1\"] is not a task number");
    bad("{\"cluster\":{\"ps\":[\"a:1\"]}}", "task is missing");
    bad("{\"task\":7}", "task is not an object");
    bad("{\"task\":{\"type\":\"ps\",\"index\":0}}", "cluster is missing");
    bad("{\"Cluster\":{},\"task\":{\"type\":\"worker\",\"index\":1}}", "cluster is missing");
    bad("{\"cluster\":{\"chief\":[\"c:1\"],\"ps\":[\"p:1\"],\"worker\":{\"4095\":\"w:1\"}},"
        "\"task\":{\"type\":\"worker\",\"index\":4095}}",
        "task.index is too large");
    bad("{\"task\":{\"index\":0}}", "task.type is missing");
    bad("{\"task\":{\"type\":\"ps\"}}", "task.index is missing");
    bad("{\"task\":{\"type\":\"ps\",\"index\":\"a\"}}", "task.index is not a number");
    bad("{\"task\":{\"type\":\"ps\",\"index\":\"\"}}", "task.index is not a number");
    bad("{\"task\":{\"type\":\"ps\",\"index\":\"-1\"}}", "task.index is not a number");
    bad("{\"task\":{\"type\":\"ps\",\"index\":1.5}}", "task.index is not a number");
    bad("{\"task\":{\"type\":\"ps\",\"index\":-1}}", "task.index is not a number");
    bad("{\"task\":{\"type\":\"ps\",\"index\":99999999999}}", "task.index is not a number");
    bad(CHIEF_JOB "\"server\",\"index\":0}}", "task.type 'server' is not one of");
    bad(CHIEF_JOB "\"worker\",\"index\":2}}", "task is worker 2, but cluster.worker has no entry");
    bad(CHIEF_JOB "\"master\",\"index\":0}}", "cluster.master has no entry");
    bad(SPARSE "\"worker\",\"index\":1}}", "sparseCluster.worker has no entry");
    bad("{\"sparseCluster\":{\"ps\":[\"p1:1\"]},\"task\":{\"type\":\"ps\",\"index\":1}}",
        "start servers with the complete --ps_hosts");
    bad("{\"cluster\":{\"ps\":{\"1\":\"p1:1\"}},\"task\":{\"type\":\"ps\",\"index\":1}}",
        "does not list every ps");
    bad("{\"cluster\":{\"chief\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":\"chief\",\"index\":1}}",
        "more than one chief");
    bad("{\"cluster\":{\"chief\":[\"a:1\"],\"master\":[\"b:1\"]},"
        "\"task\":{\"type\":\"chief\",\"index\":0}}",
        "a chief and a master");
    bad("{\"cluster\":{\"chief\":[\"a:1\"],\"worker\":[\"a:1\"]},"
        "\"task\":{\"type\":\"chief\",\"index\":0}}",
        "the address 'a:1' is listed twice");
}

/* The time to parse deep JSON and many entries is bounded. */
static void test_tf_config_hostile(void **state)
{
    enum { N = 100000 };
    static char text[N + 64];
    memset(text, '[', N);
    bad(text, "TF_CONFIG is not JSON");
    char *p = text + sprintf(text, "{\"cluster\":{\"ps\":[");
    for (int i = 0; i < 5000; i++)
        p += sprintf(p, "\"h:%d\",", i + 1);
    sprintf(p - 1, "]}}");
    bad(text, "cluster.ps has more than 4096 entries");
    p = text + sprintf(text, "{\"cluster\":{\"chief\":[\"c:1\"],\"worker\":[");
    for (int i = 0; i < HOSTS_MAX; i++)
        p += sprintf(p, "\"h:%d\",", i + 1);
    sprintf(p - 1, "]},\"task\":{\"type\":\"chief\",\"index\":0}}");
    bad(text, "chief and workers have 4097 addresses, more than 4096");
}

static void nodes(const char *text, const char *want)
{
    struct hosts h = {0};
    char got[400] = "";
    if (CAPTURE(slurm_nodes_expand(text, &h)) != ST_OK)
        fail_msg("%s: %s", text, capture_text);
    for (int i = 0; i < h.n; i++)
        sprintf(got + strlen(got), "%s%s", i ? " " : "", h.addr[i]);
    assert_string_equal(got, want);
    hosts_free(&h);
}

static void bad_nodes(const char *text, const char *why)
{
    struct hosts h = {0};
    assert_int_equal(CAPTURE(slurm_nodes_expand(text, &h)), ST_INVALID);
    says(why);
    assert_null(h.addr);
}

static void test_nodes(void **state)
{
    struct hosts h = {0};
    nodes("localhost", "localhost");
    nodes("n[1-2],m5,o[3-4,6]", "n1 n2 m5 o3 o4 o6");
    nodes("node[001-003,007]", "node001 node002 node003 node007");
    nodes("n[8-11]", "n8 n9 n10 n11");
    nodes("n[098-101]", "n098 n099 n100 n101");
    nodes("gpu-a[1-2]-b[01-02]", "gpu-a1-b01 gpu-a1-b02 gpu-a2-b01 gpu-a2-b02");
    nodes("a[1].example.org,b", "a1.example.org b");
    nodes("[1-2]", "1 2");
    assert_int_equal(slurm_nodes_expand("n[0-4095]", &h), ST_OK);
    assert_int_equal(h.n, 4096);
    hosts_free(&h);
    bad_nodes("", "has an empty name");
    bad_nodes("a,", "has an empty name");
    bad_nodes("a,,b", "has an empty name");
    bad_nodes("a b", "has a character that is not allowed in the name of a node");
    for (const char *const *p =
             (const char *const[]){"n[", "n[]", "n[1", "n[1-", "n[1-]", "n[1,]", "n[,1]", "n[-1]",
                                   "n[2-1]", "n[a]", "n]", "n[1[2]]", "n[1-2-3]", "n[1234567890]",
                                   "n[1][1][1][1][1][1][1][1][1]", NULL};
         *p; p++)
        bad_nodes(*p, "has wrong brackets");
    bad_nodes("n[0-4096]", "too many nodes");
    bad_nodes("n[0-999999999]", "too many nodes");
    bad_nodes("n[0-99][0-99]", "too many nodes");
    char name[400] = "n[1-2]";
    memset(name + 6, 'x', 300);
    bad_nodes(name, "a name that is too long");
}

static void test_counts(void **state)
{
    int n[5] = {[4] = -7}; /* the last entry must not change */
    assert_int_equal(slurm_counts_expand("2(x3),1", n, 4), ST_OK);
    assert_memory_equal(n, ((int[]){2, 2, 2, 1, -7}), sizeof n);
    assert_int_equal(slurm_counts_expand("3,2(x2),1", n, 4), ST_OK);
    assert_memory_equal(n, ((int[]){3, 2, 2, 1, -7}), sizeof n);
    for (const char *const *p =
             (const char *const[]){"", "1", "2(x4),1", "2(x5)", "1(x99999999)", "1,1,1,1,1",
                                   "1,1,1,", ",1,1,1,1", "0,1,1,1", "1(x0),1(x4)", "1(x4",
                                   "1(x)(x4)", "-1(x4)", "1;1,1,1", "4096,1,1,1",
                                   "9999999999,1(x3)", NULL};
         *p; p++) {
        assert_int_equal(CAPTURE(slurm_counts_expand(*p, n, 4)), ST_INVALID);
        says("do not fit the 4 nodes of the Slurm step");
        assert_int_equal(n[4], -7);
    }
}

static const struct cluster_step step = {.step_id = "0",
                                         .nodes = "n[01-02],m",
                                         .tasks_per_node = "2(x2),1",
                                         .n_tasks = "5",
                                         .task = "2",
                                         .node = "1",
                                         .local = "0"};

static void test_step(void **state)
{
    struct cluster c;
    struct cluster_step s = step;
    assert_int_equal(cluster_read_step(&s, 1, 8888, &c), ST_OK);
    assert_string_equal(c.ps.addr[0], "n01:8888");
    assert_string_equal(c.workers.addr[0], "n01:8889");
    assert_string_equal(c.workers.addr[2], "n02:8889");
    assert_string_equal(c.workers.addr[3], "m:8888");
    assert_string_equal(c.self, "n02:8888");
    is(c, CLUSTER_WORKER, 1, 1, 4);
    assert_int_equal(cluster_read_step(&s, 3, 8888, &c), ST_OK);
    is(c, CLUSTER_PS, 2, 3, 2);
    s.distribution = "cyclic:block";
    s.node = "2";
    assert_int_equal(cluster_read_step(&s, 2, 100, &c), ST_OK);
    assert_string_equal(c.ps.addr[1], "n02:100");
    assert_string_equal(c.workers.addr[0], "m:100");
    assert_string_equal(c.workers.addr[1], "n01:101");
    is(c, CLUSTER_WORKER, 0, 2, 3);
}

static void bad_step(struct cluster_step s, int n_ps, int port, const char *text)
{
    struct cluster c = {0};
    assert_int_equal(CAPTURE(cluster_read_step(&s, n_ps, port, &c)), ST_INVALID);
    says(text);
    assert_null(c.ps.addr);
}

#define BUT(field, value) ((void)(s = step), s.field = (value), s)

static void test_step_wrong(void **state)
{
    struct cluster_step s;
    bad_step((struct cluster_step){0}, 1, 8888, "SLURM_STEP_ID is not in the environment");
    bad_step(BUT(nodes, NULL), 1, 8888, "start them with srun");
    bad_step(BUT(n_tasks, NULL), 1, 8888, "SLURM_NTASKS is not in the environment");
    bad_step(BUT(n_tasks, "5000"), 1, 8888, "'5000' is not a number below 4097");
    bad_step(BUT(n_tasks, "4"), 1, 8888, "SLURM_NTASKS is 4, but the nodes have 5 tasks");
    bad_step(BUT(task, "5"), 1, 8888, "SLURM_PROCID: '5' is not a number below 5");
    bad_step(BUT(task, "-1"), 1, 8888, "SLURM_PROCID: '-1' is not a number");
    bad_step(BUT(task, ""), 1, 8888, "SLURM_PROCID: '' is not a number");
    bad_step(BUT(local, "1"), 1, 8888, "SLURM_LOCALID is 1, but 0 follows");
    bad_step(BUT(node, "0"), 1, 8888, "SLURM_NODEID is 0, but 1 follows");
    bad_step(BUT(distribution, "plane=2"), 1, 8888, "SLURM_DISTRIBUTION is 'plane=2'");
    bad_step(BUT(distribution, "arbitrary"), 1, 8888, "SLURM_DISTRIBUTION is 'arbitrary'");
    bad_step(BUT(nodes, "a,a,b"), 1, 8888, "contains a node twice");
    bad_step(BUT(tasks_per_node, "5"), 1, 8888, "do not fit the 3 nodes");
    bad_step(step, 5, 8888, "the Slurm step has 5 tasks, so no task is left for a worker");
    bad_step(step, 1, 65535, "has a port that is not a number from 1 to 65535");
}

static void test_order(void **state)
{
    struct cluster c;
    struct cluster_request r = {.ps_hosts = "f:1",
                                .slurm_port = 8888,
                                .task_index = -1,
                                .tf_config = CHIEF_JOB "\"worker\",\"index\":1}}",
                                .step = step};
    assert_int_equal(CAPTURE(cluster_find(&r, &c)), ST_OK);
    assert_string_equal(capture_text, "");
    capture_begin();
    cluster_log(&c);
    capture_end();
    assert_non_null(strstr(capture_text, "TF_CONFIG in the environment is ignored: the list"));
    assert_int_equal(c.source, CLUSTER_FLAGS);
    cluster_free(&c);
    r.ps_hosts = "";
    assert_int_equal(cluster_find(&r, &c), ST_OK);
    assert_int_equal(c.source, CLUSTER_TF_CONFIG);
    assert_int_equal(CAPTURE(cluster_check_role(&c, CLUSTER_PS)), ST_INVALID);
    says("TF_CONFIG: worker 1 must be a worker, but this program is ps: start worker");
    cluster_free(&c);
    r.task_index = 1;
    assert_int_equal(CAPTURE(cluster_find(&r, &c)), ST_INVALID);
    says("--task_index=1, but TF_CONFIG makes this program worker 2");
    r.task_index = -1;
    r.job_name = "ps";
    assert_int_equal(CAPTURE(cluster_find(&r, &c)), ST_INVALID);
    says("--job_name=ps, but TF_CONFIG (worker 1) makes this program worker 2; leave the flag out");
    r.job_name = "chief"; /* a chief is a worker, too; its number decides which worker */
    assert_int_equal(cluster_find(&r, &c), ST_OK);
    cluster_free(&c);
    r.job_name = NULL;
    r.tf_config = "";
    assert_int_equal(cluster_find(&r, &c), ST_OK); /* without slurm_ps the step is ignored */
    assert_int_equal(c.source, CLUSTER_NONE);
    r.slurm_ps = 1;
    assert_int_equal(cluster_find(&r, &c), ST_OK);
    assert_int_equal(c.source, CLUSTER_SLURM);
    cluster_free(&c);
    r.worker_hosts = "f:1";
    assert_int_equal(CAPTURE(cluster_find(&r, &c)), ST_INVALID);
    says("--worker_hosts is set too");
}

int main(void)
{
    return RUN_TESTS(test_tf_config, test_sparse, test_tf_config_wrong, test_tf_config_hostile,
                     test_nodes, test_counts, test_step, test_step_wrong, test_order);
}
