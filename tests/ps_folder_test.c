/* tests/ps_folder_test.c - the owner of a folder of checkpoints: claims, fenced owners that
 * continue late, sweeps, checks of files, and a server's own parts. Claims and sweeps end, fail or
 * pause at each of their system calls (tests/fault_io.h). */
#include "base/clock.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "files/durable.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fault_io.h"
#include "tests/folder_rig.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { N_ELEMS = 8, MAX_CALLS = 200 };
#define ALL_WRITTEN ((struct checkpoint_id){0, 0})

static const struct net_param model[] = {{.name = "w", .shape = {1, {N_ELEMS}}}};
static char folder[FOLDER_RIG_BYTES];
static struct chunks *chunks;
static struct net_job job;

static int setup(void **state)
{
    folder_rig_new(folder);
    fault_io_set(folder, FAULT_NONE, 0, 0);
    job = (struct net_job){.n_workers = 1, .train_steps = 100, .seed = 3};
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.total_steps = 100;
    return chunks_create(model, 1, 4096, &chunks) != ST_OK;
}

static int teardown(void **state)
{
    fault_io_set(NULL, FAULT_NONE, 0, 0);
    folder_rig_empty(folder);
    chunks_destroy(chunks);
    return rmdir(folder);
}

static int exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(durable_put(path, text, strlen(text)), ST_OK);
}

static void flip_last(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    int c = getc(f);
    fseek(f, -1, SEEK_END);
    putc(c ^ 4, f);
    fclose(f);
}

/* Writes the file of server k of n: its share of the values, each equal to `step`. */
static enum status write_part(struct checkpoint_id id, int k, int n, const char *addresses,
                              struct safetensors_written *out)
{
    char path[256], name[MANIFEST_NAME_BYTES], tensor[64], text[4][32];
    float values[N_ELEMS];
    int begin = N_ELEMS * k / n, end = N_ELEMS * (k + 1) / n;
    for (int i = 0; i < N_ELEMS; i++)
        values[i] = (float)id.step;
    snprintf(tensor, sizeof tensor, n == 1 ? "w" : "w [%d:%d]", begin, end);
    const struct safetensors_tensor t = {
        .name = tensor, .shape = {1, {end - begin}}, .data = values};
    snprintf(text[0], sizeof *text, "%llu", (unsigned long long)id.generation);
    snprintf(text[1], sizeof *text, "%lld", (long long)id.step);
    snprintf(text[2], sizeof *text, "%d", k);
    snprintf(text[3], sizeof *text, "%d", n);
    char digest[65];
    assert_int_equal(checkpoint_manifest_digest(&job, chunks, digest), ST_OK);
    const char *const metadata[][2] = {{"generation", text[0]}, {"step", text[1]},
                                       {"server", text[2]},     {"servers", text[3]},
                                       {"job", digest},         {"addresses", addresses}};
    const struct safetensors_content content = {&t, 1, metadata, addresses ? 6 : 5};
    checkpoint_manifest_file_name(id, k, n, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return safetensors_write(path, &content, out);
}

static struct checkpoint_manifest manifest_of(struct checkpoint_id id, int n,
                                              struct safetensors_written *files)
{
    return (struct checkpoint_manifest){.step = id.step,
                                        .generation = id.generation,
                                        .job = job,
                                        .chunks = chunks,
                                        .n_files = n,
                                        .files = files};
}

static enum status save(uint64_t generation, int64_t step)
{
    struct checkpoint_id id = {generation, step};
    struct safetensors_written files[2];
    enum status st = ST_OK;
    for (int k = 0; k < 2; k++)
        TRY(write_part(id, k, 2, NULL, &files[k]));
    struct checkpoint_manifest m = manifest_of(id, 2, files);
    TRY(checkpoint_manifest_write(folder, &m));
done:
    return st;
}

/* Finds the newest complete checkpoint, and compares its values. Returns its id; step -1: no
 * checkpoint. */
static struct checkpoint_id newest(void)
{
    struct checkpoint_restore *r = NULL;
    struct checkpoint_id id = {0, -1};
    float values[N_ELEMS];
    int64_t version;
    capture_begin();
    enum status st = checkpoint_restore_find(folder, &r);
    capture_end();
    if (st != ST_OK)
        return id;
    id.generation = checkpoint_restore_manifest(r)->generation;
    id.step = checkpoint_restore_manifest(r)->step;
    assert_int_equal(checkpoint_restore_read(r, 0, N_ELEMS, values, NULL, &version), ST_OK);
    for (int i = 0; i < N_ELEMS; i++)
        assert_true(values[i] == (float)id.step);
    checkpoint_restore_close(r);
    return id;
}

static struct checkpoint_lease claim(uint64_t incarnation)
{
    struct checkpoint_lease l;
    assert_int_equal(checkpoint_folder_claim(folder, incarnation, "10.0.0.7:2220", 0, NULL, &l),
                     ST_OK);
    return l;
}

static enum status sweep(const struct checkpoint_lease *owner, int keep,
                         struct checkpoint_id writing)
{
    return checkpoint_retention_sweep(
        folder, &(struct checkpoint_sweep){.owner = owner, .keep = keep, .writing = writing});
}

static void names_are_read_back(void **state)
{
    static const char *const others[] = {"weir-notes.txt",
                                         "weir-1.json.tmp",
                                         "weir-01.json",
                                         "weir--1.json",
                                         "weir-+1.json",
                                         "weir- 1.json",
                                         "weir-0.3-5.json",
                                         "weir-3.1-.json",
                                         "weir-16777216.1-5.json",
                                         "weir-1.16777216-5.json",
                                         "weir-5-0-of-2",
                                         "weir-5--1-of-2.safetensors",
                                         "old-weir-5-0-of-2.safetensors",
                                         "weir-5-0-of-2.safetensors.aside",
                                         "weir-3.1-5-0-of-02.safetensors",
                                         "lease-3",
                                         "checkpoint",
                                         "old-checkpoint",
                                         "weir-99999999999999999999.json",
                                         "weir-5-x-of-2.safetensors"};
    static const struct checkpoint_id ids[] = {
        {0, 0}, {0, 40}, {1ULL << 24 | 7, 40}, {(1ULL << 48) - 1, 999999999999999999}};
    char name[MANIFEST_NAME_BYTES], tmp[MANIFEST_NAME_BYTES + 32];
    struct checkpoint_name is;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        checkpoint_manifest_name(ids[i], name);
        checkpoint_name_parse(name, &is);
        assert_true(is.kind == CHECKPOINT_NAME_MANIFEST && !is.old && is.server == -1);
        assert_int_equal(checkpoint_names_compare(is.id, ids[i]), 0);
        checkpoint_manifest_old_name(ids[i], name);
        checkpoint_name_parse(name, &is);
        assert_true(is.kind == CHECKPOINT_NAME_MANIFEST && is.old);
        assert_int_equal(checkpoint_names_compare(is.id, ids[i]), 0);
        checkpoint_manifest_file_name(ids[i], 4095, 4096, name);
        checkpoint_name_parse(name, &is);
        assert_true(is.kind == CHECKPOINT_NAME_FILE && is.server == 4095 && is.n_servers == 4096);
        assert_int_equal(checkpoint_names_compare(is.id, ids[i]), 0);
        snprintf(tmp, sizeof tmp, "%s.12-0a.tmp", name);
        checkpoint_name_parse(tmp, &is);
        assert_true(is.kind == CHECKPOINT_NAME_TEMPORARY && is.id.step == ids[i].step);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        checkpoint_name_parse(others[i], &is);
        if (is.kind != CHECKPOINT_NAME_OTHER)
            fail_msg("%s is taken for a checkpoint's", others[i]);
    }
    checkpoint_name_parse("servers.9-1.tmp", &is);
    assert_int_equal(is.kind, CHECKPOINT_NAME_TEMPORARY_OF);
}

static void claim_fences_the_previous_owner(void **state)
{
    struct checkpoint_lease a, b, c, l;
    assert_int_equal(checkpoint_folder_lease(folder, &l), ST_OK);
    assert_true(l.epoch == 0);
    a = claim(11);
    assert_true(a.epoch == 1);
    assert_int_equal(checkpoint_folder_still_owner(folder, &a), ST_OK);
    b = claim(
        11); /* this process claims again; its earlier claim may have failed after its lease */
    assert_int_equal(checkpoint_folder_still_owner(folder, &a), ST_OK);
    assert_int_equal(checkpoint_folder_still_owner(folder, &b), ST_OK);
    assert_int_equal(checkpoint_folder_claim(folder, 22, "[::1]:9", 0, NULL, &b), ST_OK);
    assert_true(b.epoch == 3);
    assert_int_equal(CAPTURE(checkpoint_folder_still_owner(folder, &a)), ST_REFUSED);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "[::1]:9 has since claimed this folder (term 3"));
    assert_int_equal(checkpoint_folder_still_owner(folder, &b), ST_OK);
    put("weir-1.1-1-0-of-2.safetensors", "an orphan");
    assert_int_equal(CAPTURE(sweep(&a, 1, ALL_WRITTEN)), ST_REFUSED);
    assert_true(exists("weir-1.1-1-0-of-2.safetensors"));
    assert_int_equal(checkpoint_folder_lease(folder, &l), ST_OK);
    assert_true(l.epoch == 3 && l.incarnation == 22);
    assert_string_equal(l.address, "[::1]:9");
    assert_false(exists("lease-1") || exists("lease-2"));
    /* An epoch that servers, file names or earlier versions mention is not used again. */
    assert_int_equal(checkpoint_folder_claim(folder, 33, "a:1", 40, NULL, &c), ST_OK);
    assert_true(c.epoch == 41);
    put("weir-50.1-3.json", "x");
    assert_true(claim(1).epoch == 51);
    put("generation", "1023410180\n"); /* 61 << 24 | 4 */
    assert_true(claim(1).epoch == 62);
    /* the epoch of a damaged lease is not used again */
    put("lease-62", "{");
    c = claim(1);
    assert_true(c.epoch == 63);
    put("lease-63", "");
    assert_int_equal(checkpoint_folder_still_owner(folder, &c), ST_OK);
    put("lease-16777215", "");
    assert_int_equal(CAPTURE(checkpoint_folder_claim(folder, 1, "a:1", 0, NULL, &l)), ST_RANGE);
    assert_non_null(strstr(capture_text, "another --checkpoint_dir"));
}

static void emptied_folder_keeps_its_owner(void **state)
{
    struct checkpoint_lease a = claim(1);
    for (int i = 0; i < 4; i++)
        a = claim(11);
    folder_rig_empty(folder);
    assert_int_equal(CAPTURE(checkpoint_folder_still_owner(folder, &a)), ST_OK);
    assert_true(exists("lease-5"));
    /* The process is no longer the owner if another process has claimed the folder since. The other
     * claim has a lower epoch, but its lease exists. */
    folder_rig_empty(folder);
    struct checkpoint_lease b = claim(22);
    assert_true(b.epoch == 1);
    assert_int_equal(CAPTURE(checkpoint_folder_still_owner(folder, &a)), ST_REFUSED);
    assert_int_equal(checkpoint_folder_still_owner(folder, &b), ST_OK);
    folder_rig_empty(folder);
    for (int i = 0; i < 5; i++)
        b = claim(22);
    assert_int_equal(CAPTURE(checkpoint_folder_still_owner(folder, &a)),
                     ST_REFUSED); /* both claims have epoch 5 */
    assert_int_equal(checkpoint_folder_still_owner(folder, &b), ST_OK);
}

/* Runs f in a child with the fault. Returns the child's number. */
static pid_t start_child(enum status (*f)(void), enum fault_kind kind, int at)
{
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        fault_io_set(folder, kind, at, ENOSPC);
        enum status st = f();
        _exit(at > fault_io_count() ? 100 : (int)st);
    }
    assert_true(pid > 0);
    return pid;
}

/* Returns the child's exit status; -1: it has stopped itself. */
static int wait_child(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status))
        return -1;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static enum status claim_in_child(void)
{
    struct checkpoint_lease l;
    enum status st = checkpoint_folder_claim(folder, 77, "child:1", 0, NULL, &l);
    if (st == ST_OK)
        st = save(checkpoint_term(l.epoch, 1), 9);
    if (st == ST_OK)
        st = checkpoint_retention_sweep(folder, &(struct checkpoint_sweep){.owner = &l, .keep = 1});
    return st;
}

static struct checkpoint_lease before; /* owner of the folder when the child began */

static void fill_folder(void)
{
    folder_rig_empty(folder);
    assert_int_equal(save(5, 3), ST_OK); /* written by a version before epochs */
    before = claim(11);
    assert_int_equal(save(checkpoint_term(before.epoch, 2), 4), ST_OK);
}

/* Each system call of an owner fails, or ends the process. After that the folder can still be
 * claimed, no epoch is used twice, and the newest checkpoint is found. */
static void folder_can_be_claimed_after_any_fault(void **state)
{
    for (enum fault_kind kind = FAULT_FULL; kind <= FAULT_POWER_2; kind++) {
        if (kind == FAULT_PAUSED)
            continue;
        int seen_old = 0, seen_new = 0;
        for (int at = 1;; at++) {
            assert_in_range(at, 1, MAX_CALLS);
            fill_folder();
            int code = wait_child(start_child(claim_in_child, kind, at));
            struct checkpoint_id id = newest();
            uint64_t child = checkpoint_term_epoch(id.generation);
            assert_true((id.step == 4 && child == 1) || (id.step == 9 && child == 2));
            assert_true(code != ST_OK || id.step == 9);
            seen_old |= id.step == 4;
            seen_new |= id.step == 9;
            struct checkpoint_lease l;
            assert_int_equal(CAPTURE(checkpoint_folder_claim(folder, 5, "next:1", 0, NULL, &l)),
                             ST_OK);
            assert_true(l.epoch > child && l.epoch >= 2);
            assert_int_equal(checkpoint_names_compare(newest(), id), 0);
            assert_int_equal(save(checkpoint_term(l.epoch, 1), 6), ST_OK);
            assert_int_equal(sweep(&l, 1, ALL_WRITTEN), ST_OK);
            assert_int_equal(newest().step, 6);
            assert_false(exists("weir-3.json") || exists("weir-3-0-of-2.safetensors") ||
                         exists("old-weir-3.json") || exists("weir-1.2-4.json") ||
                         exists("weir-1.2-4-1-of-2.safetensors") || exists("weir-2.1-9.json"));
            if (code == 100)
                break;
        }
        assert_true(seen_old && seen_new);
    }
}

static enum status sweep_in_child(void)
{
    return checkpoint_retention_sweep(folder,
                                      &(struct checkpoint_sweep){.owner = &before, .keep = 1});
}

static enum status save_in_child(void)
{
    enum status st = save(checkpoint_term(before.epoch, 3), 8);
    return st == ST_OK ? sweep_in_child() : st;
}

/* Pauses the owner before each of its calls. Another process claims the folder and chooses a
 * checkpoint to resume from, and the paused owner continues. keep_damaged: the checkpoint that the
 * first owner would have kept is damaged, so the second owner resumes from a checkpoint that the
 * first owner was about to delete. */
static void pause_owner(enum status (*f)(void), int keep_damaged)
{
    int n_refused = 0, n_older = 0;
    for (int at = 1;; at++) {
        assert_in_range(at, 1, MAX_CALLS);
        fill_folder();
        assert_int_equal(save(checkpoint_term(before.epoch, 2), 7), ST_OK);
        pid_t pid = start_child(f, FAULT_PAUSED, at);
        int code = wait_child(pid);
        if (code >= 0) {
            assert_int_equal(code, 100);
            break;
        }
        if (keep_damaged)
            flip_last("weir-1.2-7-1-of-2.safetensors");
        struct checkpoint_lease l;
        assert_int_equal(CAPTURE(checkpoint_folder_claim(folder, 5, "next:1", 0, NULL, &l)), ST_OK);
        struct checkpoint_id base = newest();
        assert_true(keep_damaged || base.step == 7 || base.step == 8);
        n_older += base.step == 4;
        if (at % 2 && base.step > 0) { /* the second owner may have made a checkpoint */
            assert_int_equal(save(checkpoint_term(l.epoch, 1), 5), ST_OK);
            struct checkpoint_sweep what = {.owner = &l, .keep = 3, .base = base};
            assert_int_equal(checkpoint_retention_sweep(folder, &what), ST_OK);
        }
        assert_int_equal(kill(pid, SIGCONT), 0);
        code = wait_child(pid);
        n_refused += code == ST_REFUSED;
        struct checkpoint_restore *r = NULL;
        char name[MANIFEST_NAME_BYTES];
        checkpoint_manifest_name(base, name);
        if (base.step >= 0) { /* the second owner's checkpoint still exists */
            struct checkpoint_restore_query q = {.folder = folder, .name = name, .whole = 1};
            assert_int_equal(checkpoint_restore_open(&q, &r), ST_OK);
            checkpoint_restore_close(r);
        }
        if (at % 2 && base.step > 0)
            assert_int_equal(newest().step, 5);
        assert_int_equal(checkpoint_folder_still_owner(folder, &l), ST_OK);
        assert_int_equal(sweep(&l, 1, ALL_WRITTEN), ST_OK);
    }
    assert_true(n_refused > 0);
    assert_true(!keep_damaged || n_older > 0);
}

static void paused_owner_does_no_harm(void **state)
{
    pause_owner(sweep_in_child, 0);
    pause_owner(sweep_in_child, 1);
    pause_owner(save_in_child, 0);
}

static enum status only_claim_in_child(void)
{
    struct checkpoint_lease l;
    return checkpoint_folder_claim(folder, 77, "child:1", 0, NULL, &l);
}

/* The owner sweeps while a claim is paused before each of its calls: the sweep deletes unfinished
 * files, and the claim makes them again. */
static void sweep_does_not_disturb_a_claim(void **state)
{
    int code = -1;
    for (int at = 1; code != 100; at++) {
        fill_folder();
        pid_t pid = start_child(only_claim_in_child, FAULT_PAUSED, at);
        if ((code = wait_child(pid)) >= 0)
            continue;
        CAPTURE(sweep_in_child());
        assert_int_equal(kill(pid, SIGCONT), 0);
        assert_int_equal(wait_child(pid), ST_OK);
    }
}

/* Sweeps delete orphans of any process, except files of the checkpoint in progress. */
static void sweep_spares_the_checkpoint_in_progress(void **state)
{
    struct safetensors_written w;
    struct checkpoint_lease l = claim(1);
    struct checkpoint_id now = {checkpoint_term(l.epoch, 4), 12};
    assert_int_equal(save(checkpoint_term(l.epoch, 3), 10), ST_OK);
    assert_int_equal(
        write_part((struct checkpoint_id){checkpoint_term(l.epoch, 3), 11}, 1, 2, NULL, &w), ST_OK);
    assert_int_equal(write_part(now, 1, 2, NULL, &w), ST_OK);
    put("weir-1.4-12-0-of-2.safetensors.7-1.tmp", "half");
    put("weir-1.4-11-0-of-2.safetensors.7-1.tmp", "half");
    put("weir-1.4-60-1-of-2.safetensors.7-1.tmp", "half"); /* written by a server without chunks */
    put("weir-2.1-11-0-of-2.safetensors.7-1.tmp", "half");
    put("weir-9-0-of-2.safetensors.7.tmp", "half");
    put("weir-1.3-10.json.7-1.tmp", "half");
    put("checkpoint.7-1.tmp", "half");
    put("weir-2.1-13-0-of-1.safetensors", "of a later epoch");
    put("old-weir-2.1-14.json", "likewise");
    put("weir-notes.txt", "mine");
    const struct checkpoint_sweep late = {
        .owner = &l, .given_up = {checkpoint_term(l.epoch, 4), 11}, .writing = now};
    assert_int_equal(checkpoint_retention_sweep(folder, &late), ST_OK);
    assert_false(exists("weir-1.3-11-1-of-2.safetensors"));
    assert_true(exists("weir-1.4-11-0-of-2.safetensors.7-1.tmp")); /* its writer may not have
                                                                      received the order yet */
    assert_int_equal(sweep(&l, 5, now), ST_OK);
    assert_true(exists("weir-1.4-60-1-of-2.safetensors.7-1.tmp"));
    assert_false(exists("weir-1.4-11-0-of-2.safetensors.7-1.tmp"));
    assert_false(exists("weir-9-0-of-2.safetensors.7.tmp"));
    assert_false(exists("weir-1.3-10.json.7-1.tmp") || exists("checkpoint.7-1.tmp"));
    assert_true(exists("weir-1.4-12-1-of-2.safetensors"));
    assert_true(exists("weir-1.4-12-0-of-2.safetensors.7-1.tmp"));
    assert_true(exists("weir-2.1-11-0-of-2.safetensors.7-1.tmp"));
    assert_true(exists("old-weir-2.1-14.json"));
    assert_true(exists("weir-2.1-13-0-of-1.safetensors") && exists("weir-notes.txt"));
    assert_int_equal(newest().step, 10);
    assert_int_equal(sweep(&l, 5, (struct checkpoint_id){checkpoint_term(l.epoch, 5), 12}), ST_OK);
    assert_false(exists("weir-1.4-60-1-of-2.safetensors.7-1.tmp"));
}

/* On a full disk not even the file `checkpoint` can be written, but the sweep frees space. */
static void sweep_frees_a_full_disk(void **state)
{
    struct safetensors_written w;
    struct checkpoint_lease l = claim(1);
    struct checkpoint_id orphan = {checkpoint_term(1, 1), 9};
    for (int64_t step = 1; step <= 4; step++)
        assert_int_equal(save(checkpoint_term(1, 1), step), ST_OK);
    assert_int_equal(write_part(orphan, 0, 2, NULL, &w), ST_OK);
    fault_io_set(folder, FAULT_FULL, 1, ENOSPC);
    enum status st = CAPTURE(sweep(&l, 2, ALL_WRITTEN));
    fault_io_set(folder, FAULT_NONE, 0, 0);
    assert_int_equal(st, ST_FULL); /* status of `checkpoint` */
    assert_non_null(strstr(capture_text, "No space left"));
    assert_false(exists("weir-1.1-9-0-of-2.safetensors") || exists("weir-1.1-2.json"));
    assert_false(exists("weir-1.1-1-0-of-2.safetensors") ||
                 exists("weir-1.1-2-1-of-2.safetensors"));
    assert_true(exists("weir-1.1-3.json") && exists("weir-1.1-4.json"));
    assert_int_equal(newest().step, 4);
    assert_int_equal(sweep(&l, 2, ALL_WRITTEN), ST_OK);
    assert_true(exists("checkpoint"));
}

/* The checkpoints with the newest terms stay, whatever their steps. The checkpoint that training
 * resumed from stays as well. */
static void resumed_checkpoint_is_kept(void **state)
{
    assert_int_equal(save(7, 90), ST_OK); /* epoch 0 */
    struct checkpoint_lease l = claim(1);
    assert_int_equal(save(checkpoint_term(1, 1), 50), ST_OK);
    assert_int_equal(save(checkpoint_term(1, 2), 20), ST_OK);
    assert_int_equal(newest().step, 20);
    struct checkpoint_sweep what = {.owner = &l, .keep = 1, .base = {7, 90}};
    assert_int_equal(checkpoint_retention_sweep(folder, &what), ST_OK);
    assert_true(exists("weir-90.json") && exists("weir-90-1-of-2.safetensors"));
    assert_false(exists("weir-1.1-50.json") || exists("weir-1.1-50-0-of-2.safetensors"));
    /* A fenced owner may leave the checkpoint under its other name: it is found and renamed. */
    char from[128], to[128];
    snprintf(from, sizeof from, "%s/weir-90.json", folder);
    snprintf(to, sizeof to, "%s/old-weir-90.json", folder);
    assert_int_equal(rename(from, to), 0);
    struct checkpoint_restore *r;
    assert_int_equal(checkpoint_restore_find(from, &r), ST_OK);
    checkpoint_restore_close(r);
    struct checkpoint_restore_query q = {.folder = folder, .before = {checkpoint_term(1, 2), 20}};
    assert_int_equal(checkpoint_restore_open(&q, &r), ST_OK);
    assert_true(checkpoint_restore_manifest(r)->step == 90);
    checkpoint_restore_close(r);
    assert_int_equal(checkpoint_retention_sweep(folder, &what), ST_OK);
    assert_true(exists("weir-90.json"));
    what.base.generation = 0;
    assert_int_equal(checkpoint_retention_sweep(folder, &what), ST_OK);
    assert_false(exists("weir-90.json") || exists("old-weir-90.json") ||
                 exists("weir-90-1-of-2.safetensors"));
}

struct late {
    struct checkpoint_id id;
    struct safetensors_written *file;
    int n_waits, cancel_at, appear_at;
};

static bool wait_late(void *ctx, int64_t until_ns)
{
    struct late *l = ctx;
    assert_true(until_ns > 0);
    l->n_waits++;
    if (l->n_waits == l->appear_at) {
        struct safetensors_written w;
        assert_int_equal(write_part(l->id, 1, 2, NULL, &w), ST_OK);
    }
    return l->n_waits == l->cancel_at;
}

static void files_are_checked(void **state)
{
    struct checkpoint_id id = {checkpoint_term(1, 1), 6}, other = {checkpoint_term(1, 2), 6};
    struct safetensors_written files[2], w;
    char why[MANIFEST_WHY_BYTES], from[160], to[160];
    const unsigned char here[2] = {1, 0};
    struct checkpoint_manifest m = manifest_of(id, 2, files);
    for (int k = 0; k < 2; k++)
        assert_int_equal(write_part(id, k, 2, NULL, &files[k]), ST_OK);
    struct checkpoint_folder_check now = {.deadline_ns = 0};
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &now, why), ST_OK);
    snprintf(to, sizeof to, "%s/weir-1.1-6-1-of-2.safetensors", folder);
    assert_int_equal(truncate(to, (off_t)files[1].bytes - 1), 0);
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &now, why), ST_CORRUPT);
    assert_non_null(strstr(why, "weir-1.1-6-1-of-2.safetensors"));
    assert_int_equal(unlink(to), 0);
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &now, why), ST_NOT_FOUND);
    struct checkpoint_folder_check own = {.here = here};
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &own, why), ST_OK);
    /* The file appears late, like a file that another machine writes into a network folder. */
    struct late late = {.id = id, .appear_at = 3};
    struct checkpoint_folder_check again = {
        .deadline_ns = clock_deadline_ns(600000), .wait = wait_late, .ctx = &late};
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &again, why), ST_OK);
    assert_int_equal(late.n_waits, 3);
    assert_int_equal(unlink(to), 0);
    late = (struct late){.id = id, .cancel_at = 2};
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &again, why), ST_CANCELLED);
    /* The check does not wait if the name belongs to a file of another generation. */
    assert_int_equal(write_part(other, 1, 2, NULL, &w), ST_OK);
    snprintf(from, sizeof from, "%s/weir-1.2-6-1-of-2.safetensors", folder);
    assert_int_equal(rename(from, to), 0);
    files[1] = w;
    late = (struct late){.id = id};
    assert_int_equal(checkpoint_folder_check_files(folder, &m, &again, why), ST_CORRUPT);
    assert_int_equal(late.n_waits, 0);
    assert_non_null(strstr(why, "another generation"));
}

/* Processes that make an id at the same time agree on one id. */
static void folder_has_one_id(void **state)
{
    enum { N = 8 };
    for (int round = 0; round < 5; round++) {
        int go[2], back[2];
        char id[FOLDER_ID_BYTES], ids[N][FOLDER_ID_BYTES];
        folder_rig_empty(folder);
        assert_true(pipe(go) == 0 && pipe(back) == 0);
        for (int i = 0; i < N; i++) {
            if (fork() != 0)
                continue;
            close(go[1]);
            int ok = read(go[0], id, 1) == 0 && checkpoint_folder_id(folder, id) == ST_OK;
            _exit(!(ok && write(back[1], id, sizeof id) == sizeof id));
        }
        close(go[0]);
        close(go[1]); /* all at once */
        for (int i = 0; i < N; i++)
            assert_int_equal(read(back[0], ids[i], sizeof *ids), sizeof *ids);
        for (int i = 0, status; i < N; i++)
            assert_true(wait(&status) > 0 && status == 0);
        close(back[0]);
        close(back[1]);
        assert_int_equal(checkpoint_folder_id(folder, id), ST_OK);
        assert_int_equal(strlen(id), FOLDER_ID_BYTES - 1);
        for (int i = 0; i < N; i++)
            assert_string_equal(ids[i], id);
    }
    put("folder-id", "nothing");
    char id[FOLDER_ID_BYTES];
    assert_int_equal(CAPTURE(checkpoint_folder_id(folder, id)), ST_INVALID);
    assert_non_null(strstr(capture_text, "remove the file"));
}

/* An empty mount point, or a folder that was made again, has no valid list of kept checkpoints. */
static void emptied_folder_has_no_list_of_kept_checkpoints(void **state)
{
    const struct checkpoint_sweep sweep = {
        .owner = &(struct checkpoint_lease){.epoch = 1, .incarnation = 7}};
    char id[FOLDER_ID_BYTES], away[80];
    struct checkpoint_manifest_place *list = NULL;
    int n = -1;
    assert_int_equal(checkpoint_folder_id(folder, id), ST_OK);
    assert_int_equal(checkpoint_retention_list_of(folder, id, &list, &n), ST_OK);
    assert_int_equal(n, 0);
    free(list);
    snprintf(away, sizeof away, "%s-away", folder);
    assert_int_equal(rename(folder, away), 0); /* not mounted: no folder, then an empty one */
    assert_int_equal(CAPTURE(checkpoint_retention_list_of(folder, id, &list, &n)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "is not the same folder as before"));
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(CAPTURE(checkpoint_retention_list_of(folder, id, &list, &n)), ST_NOT_FOUND);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rename(away, folder), 0);
    folder_rig_empty(folder);
    assert_int_equal(CAPTURE(checkpoint_retention_sweep(folder, &sweep)),
                     ST_OK); /* its lease exists */
    assert_true(exists("lease-1"));
    assert_int_equal(CAPTURE(checkpoint_retention_list_of(folder, id, &list, &n)), ST_NOT_FOUND);
    assert_int_equal(checkpoint_folder_id(folder, (char[FOLDER_ID_BYTES]){0}), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_retention_list_of(folder, id, &list, &n)), ST_NOT_FOUND);
}

/* Two servers share a disk. Server 1 finds a part of server 0 and unfinished files there. */
static void server_deletes_only_its_own_parts(void **state)
{
    static const char both[] = "a:1,b:2";
    struct safetensors_written w;
    struct checkpoint_part *list;
    int n;
    assert_int_equal(checkpoint_parts_list("/nonexistent/folder", "b:2", &list, &n, NULL), ST_OK);
    assert_int_equal(n, 0);
    free(list);
    for (int64_t step = 1; step <= 5; step++)
        assert_int_equal(
            write_part((struct checkpoint_id){checkpoint_term(step < 3 ? 1 : 2, 1), step}, 1, 2,
                       both, &w),
            ST_OK);
    assert_int_equal(write_part((struct checkpoint_id){checkpoint_term(2, 1), 3}, 0, 2, both, &w),
                     ST_OK);
    assert_int_equal(write_part((struct checkpoint_id){7, 3}, 1, 2, NULL, &w), ST_OK);
    put("weir-2.1-4-1-of-2.safetensors.1-1.tmp", "half");
    put("weir-2.1-5-0-of-2.safetensors.1-1.tmp", "half");
    flip_last("weir-2.1-3-1-of-2.safetensors"); /* damages the data, which only a read detects */
    assert_int_equal(
        truncate(strcat(strcpy((char[160]){0}, folder), "/weir-2.1-4-1-of-2.safetensors"), 100), 0);
    assert_int_equal(CAPTURE(checkpoint_parts_list(folder, "b:2", &list, &n, NULL)), ST_OK);
    assert_non_null(strstr(capture_text, "weir-2.1-4-1-of-2.safetensors: skipped"));
    assert_int_equal(n, 5);
    static const int64_t steps[] = {5, 3, 2, 1, 3};
    for (int i = 0; i < n; i++)
        assert_true(list[i].id.step == steps[i] && list[i].server == 1 && list[i].n_servers == 2);
    assert_true(list[4].id.generation == 7 && list[0].file.bytes > 0);
    free(list);
    /* Before ps 0 of this epoch has made a checkpoint, earlier ones stay. */
    struct checkpoint_keep keep = {.generation = checkpoint_term(2, 1),
                                   .writing = {checkpoint_term(2, 1), 5}};
    assert_int_equal(CAPTURE(checkpoint_parts_clean(folder, "b:2", &keep)), ST_OK);
    assert_true(exists("weir-1.1-1-1-of-2.safetensors") && exists("weir-3-1-of-2.safetensors"));
    assert_true(exists("weir-2.1-5-1-of-2.safetensors"));
    assert_true(exists("weir-2.1-5-0-of-2.safetensors.1-1.tmp"));
    assert_true(exists("weir-2.1-3-0-of-2.safetensors")); /* part of the other server */
    assert_false(exists("weir-2.1-3-1-of-2.safetensors") ||
                 exists("weir-2.1-4-1-of-2.safetensors") ||
                 exists("weir-2.1-4-1-of-2.safetensors.1-1.tmp"));
    const struct checkpoint_id kept[] = {{checkpoint_term(2, 1), 5}, {checkpoint_term(1, 1), 2}};
    keep = (struct checkpoint_keep){
        .kept = kept + 1, .n_kept = 1, .generation = checkpoint_term(1, 9)};
    assert_int_equal(checkpoint_parts_clean(folder, "b:2", &keep),
                     ST_OK); /* the list of a fenced ps 0 */
    assert_true(exists("weir-2.1-5-1-of-2.safetensors"));
    assert_false(exists("weir-1.1-1-1-of-2.safetensors"));
    keep = (struct checkpoint_keep){.kept = kept, .n_kept = 2, .generation = checkpoint_term(3, 1)};
    assert_int_equal(checkpoint_parts_clean(folder, "b:2", &keep), ST_OK);
    assert_true(exists("weir-2.1-5-1-of-2.safetensors") && exists("weir-1.1-2-1-of-2.safetensors"));
    assert_false(exists("weir-3-1-of-2.safetensors"));
}

int main(void)
{
    return RUN_EACH(setup, teardown, names_are_read_back, claim_fences_the_previous_owner,
                    emptied_folder_keeps_its_owner, folder_can_be_claimed_after_any_fault,
                    paused_owner_does_no_harm, sweep_does_not_disturb_a_claim,
                    sweep_spares_the_checkpoint_in_progress, sweep_frees_a_full_disk,
                    resumed_checkpoint_is_kept, files_are_checked, folder_has_one_id,
                    emptied_folder_has_no_list_of_kept_checkpoints,
                    server_deletes_only_its_own_parts);
}
