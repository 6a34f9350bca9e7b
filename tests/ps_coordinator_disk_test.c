/* tests/ps_coordinator_disk_test.c - the thread that carries out the coordinator's orders to the
 * folder of checkpoints (ps/coordinator/coordinator_disk.c). A checkpoint from which a plan resumes
 * stays until all servers have it. An unreadable checkpoint is reported as unreadable. The tests
 * build the coordinator's state by hand, and read its mailbox. */
#include "base/clock.h"
#include "checkpoint/folder.h"
#include "ps/coordinator/coordinator_impl.h"
#include "ps/coordinator/coordinator_shell_impl.h"
#include "ps/coordinator/plan_applier.h"
#include "ps/service/service.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <sys/stat.h>

enum { N_ELEMS = 8, DEADLINE_MS = 60000 };

static const struct net_param model[] = {{.name = "w", .shape = {1, {N_ELEMS}}}};
static char *addrs[] = {"127.0.0.1:1"};
static const struct hosts servers = {1, addrs};
static char folder[FOLDER_RIG_BYTES], folder_id[FOLDER_ID_BYTES];
static struct coordinator_shell l;
static struct chunks *chunks;
static struct net_job job;
static uint64_t first, second; /* two generations of this ps 0 */

static struct coordinator_state *state_of(void)
{
    return l.state;
}

/* Puts a plan into force. settled: generation in which the stores still are. */
static void put_in_force(uint64_t generation, enum plan_source source, const char *restore,
                         uint64_t settled)
{
    static int member[1], shard[1];
    struct net_plan p = {.generation = generation,
                         .job = job,
                         .chunks = chunks,
                         .n_members = 1,
                         .member = member,
                         .servers = servers,
                         .shard = shard,
                         .source = source};
    struct net_plan *copy = NULL;
    snprintf(p.restore, sizeof p.restore, "%s", restore);
    assert_int_equal(net_plan_copy(&p, &copy), ST_OK);
    net_plan_free(l.kept[0]);
    memmove(l.kept, l.kept + 1, (COORDINATOR_KEPT_PLANS - 1) * sizeof *l.kept);
    l.kept[COORDINATOR_KEPT_PLANS - 1] = copy;
    pthread_mutex_lock(&l.lock);
    l.plan = copy;
    state_of()->generation = generation;
    state_of()->settled = settled;
    pthread_mutex_unlock(&l.lock);
}

static int exists(const char *name)
{
    char path[256];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &s) == 0;
}

/* Writes the file of the only server, and returns the server's report of it. */
static struct coordinator_file write_file(uint64_t generation, int64_t step)
{
    char path[256], name[MANIFEST_NAME_BYTES], text[2][24];
    float values[N_ELEMS] = {0};
    struct safetensors_written w;
    const struct safetensors_tensor t = {.name = "w", .shape = {1, {N_ELEMS}}, .data = values};
    snprintf(text[0], sizeof *text, "%llu", (unsigned long long)generation);
    snprintf(text[1], sizeof *text, "%lld", (long long)step);
    const char *const metadata[][2] = {
        {"generation", text[0]}, {"step", text[1]}, {"server", "0"}, {"servers", "1"}};
    const struct safetensors_content content = {&t, 1, metadata, 4};
    checkpoint_manifest_file_name((struct checkpoint_id){generation, step}, 0, 1, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(safetensors_write(path, &content, &w), ST_OK);
    return (struct coordinator_file){w.bytes, w.crc32c};
}

/* Posts the order, and returns the result that the coordinator receives. */
static struct coordinator_mail carry_out(enum disk_task what)
{
    static uint32_t op;
    const struct coordinator_action a = {.kind = ACT_DISK, .op = ++op, .disk = what, .value = 1};
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    capture_begin();
    coordinator_disk_order(&l, &a);
    pthread_mutex_lock(&l.lock);
    while (l.n_mail == 0 && clock_cond_wait(&l.wake, &l.lock, deadline) == 0)
        ;
    int n = l.n_mail;
    struct coordinator_mail m = n > 0 ? l.mail[0] : (struct coordinator_mail){0};
    l.n_mail = 0;
    pthread_mutex_unlock(&l.lock);
    capture_end();
    assert_int_equal(n, 1);
    assert_int_equal(m.op, op);
    return m;
}

/* Writes the files of all servers, then the manifest, and deletes old checkpoints. */
static void save(uint64_t generation, int64_t step)
{
    struct coordinator_state *c = state_of();
    struct coordinator_file file = write_file(generation, step);
    pthread_mutex_lock(&l.lock);
    c->ckpt.generation = generation;
    c->ckpt.step = step;
    c->ckpt.n_files = 1;
    coordinator_files(c)[0] = file;
    pthread_mutex_unlock(&l.lock);
    struct coordinator_mail m = carry_out(DISK_MANIFEST);
    assert_int_equal(m.st, ST_OK);
    assert_int_equal(m.step, step);
}

static struct service *service; /* without members */

static int setup(void **state)
{
    folder_rig_new(folder);
    job = (struct net_job){.n_workers = 1, .train_steps = 100, .seed = 3};
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.total_steps = 100;
    memset(&l, 0, sizeof l);
    if (checkpoint_folder_id(folder, folder_id) != ST_OK)
        return -1;
    const struct service_config none = {
        .ps_hosts = &servers, .worker_hosts = &servers, .no_ticker = 1};
    if (service_create(&none, &service) != ST_OK)
        return -1;
    l.cfg = (struct coordinator_shell_config){
        .service = service, .folder = folder, .folder_id = folder_id, .hosts = &servers};
    l.cfg.keep = 1;
    l.incarnation = 7;
    memcpy(l.folder_id, folder_id, sizeof l.folder_id);
    l.state = calloc(1, coordinator_bytes(2, 2));
    if (!l.state || chunks_create(model, 1, 4096, &chunks) != ST_OK)
        return -1;
    coordinator_init(l.state, 2, 2);
    pthread_mutex_init(&l.lock, NULL);
    clock_cond_init(&l.wake);
    if (checkpoint_folder_claim(folder, l.incarnation, servers.addr[0], 0, NULL, &l.cfg.lease) !=
        ST_OK)
        return -1;
    l.cfg.is_claimed = 1;
    if (coordinator_disk_create(&l) != ST_OK || coordinator_disk_start(&l) != ST_OK)
        return -1;
    first = checkpoint_term(l.cfg.lease.epoch, 1);
    second = checkpoint_term(l.cfg.lease.epoch, 2);
    return 0;
}

static int teardown(void **state)
{
    coordinator_disk_destroy(&l);
    coordinator_plans_free(&l);
    service_destroy(service);
    coordinator_folders_free(&l.folders);
    free(l.mail);
    free(l.state);
    pthread_cond_destroy(&l.wake);
    pthread_mutex_destroy(&l.lock);
    chunks_destroy(chunks);
    folder_rig_empty(folder);
    return rmdir(folder);
}

static void older_checkpoint_is_deleted(void **state)
{
    put_in_force(first, PLAN_FIRST, "", first);
    save(first, 5);
    save(first, 8);
    assert_true(exists("weir-1.1-8.json") && !exists("weir-1.1-5.json"));
}

/* A server was lost, and all servers go back to step 5. While they read the checkpoint of this
 * step, a late manifest of the previous generation arrives. */
static void resumed_checkpoint_stays_until_its_plan_settles(void **state)
{
    static const char *const marks[] = {"", PLAN_RESTORE_MARK};
    char name[128];
    put_in_force(first, PLAN_FIRST, "", first);
    save(first, 5);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "weir-1.1-5.json%s", marks[i]);
        put_in_force(second, PLAN_CHECKPOINT, name, first);
        save(first, 8 + i);
        assert_true(exists("weir-1.1-5.json") && exists("weir-1.1-5-0-of-1.safetensors"));
    }
    assert_true(exists("weir-1.1-9.json") && !exists("weir-1.1-8.json"));
    put_in_force(second, PLAN_CHECKPOINT, name, second); /* all servers have it in memory */
    save(second, 7);
    assert_true(exists("weir-1.2-7.json"));
    assert_false(exists("weir-1.1-9.json") || exists("weir-1.1-5.json") ||
                 exists("weir-1.1-5-0-of-1.safetensors"));
}

/* A manifest arrives when FIND has found a checkpoint, but no plan resumes from it yet. */
static void found_checkpoint_stays_until_it_is_planned(void **state)
{
    put_in_force(first, PLAN_FIRST, "", first);
    save(first, 5);
    assert_int_equal(carry_out(DISK_FIND).st, ST_OK);
    assert_string_equal(l.disk_name, "weir-1.1-5.json");
    save(first, 8);
    assert_true(exists("weir-1.1-5.json") && exists("weir-1.1-5-0-of-1.safetensors"));
    pthread_mutex_lock(&l.lock);
    struct checkpoint_restore *found = l.disk_found;
    assert_true(checkpoint_restore_is_home(found));
    l.disk_found = NULL; /* coordinator_plan_publish does the same */
    pthread_mutex_unlock(&l.lock);
    checkpoint_restore_close(found);
    put_in_force(second, PLAN_CHECKPOINT, "weir-1.1-5.json", first);
    save(first, 9);
    assert_true(exists("weir-1.1-5.json") && !exists("weir-1.1-8.json"));
}

/* A name without a generation, as earlier versions of Weir wrote it, does not identify one
 * checkpoint. So no manifest is deleted while a plan resumes from such a name. */
static void checkpoint_of_an_earlier_version_stays(void **state)
{
    put_in_force(7, PLAN_FIRST, "", 7); /* epoch 0 */
    save(7, 5);
    assert_true(exists("weir-5.json"));
    put_in_force(first, PLAN_FIRST, "", first);
    put_in_force(second, PLAN_CHECKPOINT, "weir-5.json", first);
    save(first, 8);
    assert_true(exists("weir-5.json") && exists("weir-5-0-of-1.safetensors"));
    assert_true(exists("weir-1.1-8.json"));
    put_in_force(second, PLAN_CHECKPOINT, "weir-5.json", second);
    save(second, 9);
    assert_false(exists("weir-5.json") || exists("weir-1.1-8.json"));
}

/* Replaces a file by a link to itself: the link exists, and cannot be opened. */
static void make_unreadable(const char *name)
{
    char path[256], away[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(away, sizeof away, "%s/%s.away", folder, name);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(symlink(name, path), 0);
}

static void make_readable(const char *name)
{
    char path[256], away[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(away, sizeof away, "%s/%s.away", folder, name);
    assert_int_equal(rename(away, path), 0);
}

static void unreadable_checkpoint_is_searched_again(void **state)
{
    static const char part[] = "weir-1.1-8-0-of-1.safetensors";
    put_in_force(first, PLAN_FIRST, "", first);
    save(first, 8);
    make_unreadable(part);
    assert_int_equal(carry_out(DISK_FIND).st, ST_IO);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, part));
    assert_null(l.disk_found);
    /* The search is not repeated at once. Otherwise it would read a folder of many GB, and log a
     * line, every second. */
    assert_int_equal(carry_out(DISK_FIND).st, ST_IO);
    assert_int_equal(capture_lines(), 0);
    make_readable(part);
    l.folders.version++; /* the folders have changed, or 10 s have passed */
    struct coordinator_mail m = carry_out(DISK_FIND);
    assert_int_equal(m.st, ST_OK);
    assert_int_equal(m.step, 8);
}

/* An unmounted folder proves nothing about the checkpoints in it, so the job does not begin
 * again. */
static void unmounted_folder_does_not_restart_the_job(void **state)
{
    char aside[80];
    put_in_force(first, PLAN_FIRST, "", first);
    save(first, 8);
    snprintf(aside, sizeof aside, "%s-aside", folder);
    assert_int_equal(rename(folder, aside), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(carry_out(DISK_FIND).st, ST_IO);
    assert_non_null(strstr(capture_text, "the checkpoints that this folder had are missing"));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rename(aside, folder), 0);
    l.folders.version++;
    assert_int_equal(carry_out(DISK_FIND).step, 8);
}

/* Moves the folder away and makes an empty one of its name, like a mount point. */
static void unmount(char aside[80])
{
    snprintf(aside, 80, "%s-aside", folder);
    assert_int_equal(rename(folder, aside), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void mount_again(const char *aside)
{
    assert_int_equal(rmdir(folder), 0); /* nothing was written there */
    assert_int_equal(rename(aside, folder), 0);
}

/* Another ps 0 may own the folder that is not mounted here. */
static void owner_of_an_unmounted_folder_is_not_verified(void **state)
{
    char aside[80];
    assert_int_equal(carry_out(DISK_OWNER).st, ST_OK);
    unmount(aside);
    assert_int_equal(carry_out(DISK_OWNER).st, ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "is not the same folder as before"));
    mount_again(aside);
    assert_int_equal(carry_out(DISK_OWNER).st, ST_OK);
}

/* Checks that the folder's list of servers has these two lines. */
static void check_list(const char *expected)
{
    char path[256], text[256] = "";
    snprintf(path, sizeof path, "%s/servers", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, expected);
}

static void wait_until_recorded(void)
{
    int64_t deadline = clock_deadline_ns(DEADLINE_MS);
    while (coordinator_disk_records_servers(&l, "127.0.0.1:3") && clock_now_ns() < deadline)
        clock_sleep_ms(1);
    assert_false(coordinator_disk_records_servers(&l, "127.0.0.1:3"));
}

static char *two_addrs[] = {"127.0.0.1:1", "127.0.0.1:2"};
static const struct hosts two_servers = {2, two_addrs};

/* A drained server must not exit before the list is recorded: otherwise a restarted ps 0 would wait
 * for this server. */
static void failed_list_of_servers_is_retried(void **state)
{
    char path[256];
    snprintf(path, sizeof path, "%s/servers", folder);
    assert_int_equal(mkdir(path, 0700), 0); /* a file cannot replace a folder */
    coordinator_disk_servers(&l, &two_servers);
    carry_out(DISK_OWNER); /* is carried out after the list */
    assert_true(coordinator_disk_records_servers(&l, "127.0.0.1:3"));
    carry_out(DISK_OWNER); /* is carried out before the retry of the list */
    assert_int_equal(rmdir(path), 0);
    wait_until_recorded();
    check_list("127.0.0.1:1\n127.0.0.1:1,127.0.0.1:2\n");
}

static void newer_list_of_servers_replaces_a_failed_one(void **state)
{
    char aside[80];
    unmount(aside);
    coordinator_disk_servers(&l, &two_servers);
    carry_out(DISK_OWNER);
    assert_true(coordinator_disk_records_servers(&l, "127.0.0.1:3"));
    mount_again(aside);
    coordinator_disk_servers(&l, &servers);
    carry_out(DISK_OWNER); /* the newer list does not wait for the retry */
    assert_false(coordinator_disk_records_servers(&l, "127.0.0.1:3"));
    check_list("127.0.0.1:1\n127.0.0.1:1\n");
}

static int n_failing_streams;

FILE *__real_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes)
{
    return n_failing_streams-- > 0 ? NULL : __real_open_memstream(text, bytes);
}

static void servers_are_recorded_after_a_failed_allocation(void **state)
{
    n_failing_streams = 2;
    capture_begin();
    coordinator_disk_servers(&l, &servers);
    capture_end();
    assert_non_null(strstr(capture_text, "out of memory for the list of servers; retrying"));
    wait_until_recorded();
    check_list("127.0.0.1:1\n127.0.0.1:1\n");
}

/* Before its first plan ps 0 searches for a checkpoint to resume from. */
static void failed_search_is_repeated(void **state)
{
    static const char part[] = "weir-1.1-5-0-of-1.safetensors";
    put_in_force(first, PLAN_FIRST, "", first);
    save(first, 5);
    l.plan = NULL;
    make_unreadable(part);
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            make_readable(part);
        l.folders.version += i == 2;
        l.searched = l.folders.version + 1; /* coordinator_folders_can_restore() sets it, too */
        coordinator_disk_search(&l);
        assert_int_equal(carry_out(DISK_SWEEP).st, ST_OK); /* is carried out after the search */
        assert_int_equal(l.searched, i < 2 ? 0 : l.folders.version + 1);
        assert_int_equal(l.cfg.restore != NULL, i == 2);
    }
    assert_int_equal(checkpoint_restore_manifest(l.cfg.restore)->step, 5);
    assert_true(checkpoint_restore_is_home(l.cfg.restore));
    checkpoint_restore_close(l.cfg.restore);
}

int main(void)
{
    return RUN_EACH(
        setup, teardown, older_checkpoint_is_deleted, unmounted_folder_does_not_restart_the_job,
        owner_of_an_unmounted_folder_is_not_verified, failed_list_of_servers_is_retried,
        newer_list_of_servers_replaces_a_failed_one, servers_are_recorded_after_a_failed_allocation,
        resumed_checkpoint_stays_until_its_plan_settles, found_checkpoint_stays_until_it_is_planned,
        checkpoint_of_an_earlier_version_stays, unreadable_checkpoint_is_searched_again,
        failed_search_is_repeated);
}
