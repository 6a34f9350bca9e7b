/* tests/ps_unreadable_test.c - files of checkpoints that cannot be read at present (a stale NFS
 * handle, a failing disk, no descriptors, no memory). They are not damaged: no older checkpoint
 * replaces them, and nothing that belongs to them is removed or forgotten. The program replaces
 * the functions that open, read and allocate for our libraries (--wrap). */
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "files/durable.h"
#include "files/json_text.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { N_ELEMS = 8, FOR_EVER = 1 << 30 };
enum call { CALL_OPEN, CALL_READ };

static const char older[] = "weir-1.1-5.json", newer[] = "weir-1.1-8.json";
static const char older_part[] = "weir-1.1-5-0-of-1.safetensors";
static const char newer_part[] = "weir-1.1-8-0-of-1.safetensors";
static const struct net_param model[] = {{.name = "w", .shape = {1, {N_ELEMS}}}};
static char folder[FOLDER_RIG_BYTES];
static struct chunks *chunks;
static struct net_job job;

/* Calls of this kind for files of this name: `skip` calls succeed, and then `times` calls fail. */
static struct {
    const char *name; /* NULL: no call fails */
    enum call call;
    int err, times, skip;
} fault;
static FILE *read_failed;
static long allocation; /* countdown to the allocation that fails; 0: none */
static int allocation_failed;

static void break_calls(const char *name, enum call call, int err, int times)
{
    fault.name = name;
    fault.call = call;
    fault.err = err;
    fault.times = times;
    fault.skip = 0;
}

static int fails(enum call call, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!fault.name || fault.call != call || fault.times == 0 ||
        strcmp(slash ? slash + 1 : path, fault.name) != 0)
        return 0;
    if (fault.skip > 0) {
        fault.skip--;
        return 0;
    }
    fault.times--;
    errno = fault.err;
    return 1;
}

static int read_fails(int fd)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return fails(CALL_READ, path);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    return fails(CALL_OPEN, path) ? -1 : __real_open(path, flags, mode);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return fails(CALL_OPEN, path) ? NULL : __real_fopen(path, mode);
}

ssize_t __real_pread(int fd, void *dst, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t at)
{
    return read_fails(fd) ? -1 : __real_pread(fd, dst, n, at);
}

size_t __real_fread(void *dst, size_t size, size_t n, FILE *f);
size_t __wrap_fread(void *dst, size_t size, size_t n, FILE *f);
size_t __wrap_fread(void *dst, size_t size, size_t n, FILE *f)
{
    read_failed = NULL;
    if (!read_fails(fileno(f)))
        return __real_fread(dst, size, n, f);
    read_failed = f;
    return 0;
}

int __real_ferror(FILE *f);
int __wrap_ferror(FILE *f);
int __wrap_ferror(FILE *f)
{
    return f == read_failed || __real_ferror(f);
}

static int no_memory(void)
{
    if (allocation == 0 || --allocation > 0)
        return 0;
    allocation_failed = 1;
    errno = ENOMEM;
    return 1;
}

#define MAY_FAIL(name, params, args)                                                               \
    void *__real_##name params;                                                                    \
    void *__wrap_##name params;                                                                    \
    void *__wrap_##name params                                                                     \
    {                                                                                              \
        return no_memory() ? NULL : __real_##name args;                                            \
    }
MAY_FAIL(malloc, (size_t n), (n))
MAY_FAIL(calloc, (size_t n, size_t size), (n, size))
MAY_FAIL(realloc, (void *p, size_t n), (p, n))

static int exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Writes one server's file, in which all values are `step`, and the manifest. own: id of the
 * server's own folder, or NULL. */
static void save(int64_t step, const char *own)
{
    char path[256], name[MANIFEST_NAME_BYTES], text[24], digest[65], id[1][FOLDER_ID_BYTES];
    const struct checkpoint_id of = {checkpoint_term(1, 1), step};
    float values[N_ELEMS];
    struct safetensors_written file;
    for (int i = 0; i < N_ELEMS; i++)
        values[i] = (float)step;
    const struct safetensors_tensor t = {.name = "w", .shape = {1, {N_ELEMS}}, .data = values};
    snprintf(text, sizeof text, "%lld", (long long)step);
    assert_int_equal(checkpoint_manifest_digest(&job, chunks, digest), ST_OK);
    const char *const metadata[][2] = {{"generation", "16777217"},
                                       {"step", text},
                                       {"server", "0"},
                                       {"servers", "1"},
                                       {"job", digest}};
    const struct safetensors_content content = {&t, 1, metadata, 5};
    checkpoint_manifest_file_name(of, 0, 1, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(safetensors_write(path, &content, &file), ST_OK);
    struct checkpoint_manifest m = {.step = step,
                                    .generation = of.generation,
                                    .job = job,
                                    .chunks = chunks,
                                    .n_files = 1,
                                    .files = &file};
    if (own) {
        snprintf(id[0], sizeof id[0], "%s", own);
        m.folder = id;
    }
    assert_int_equal(checkpoint_manifest_write(folder, &m), ST_OK);
}

static int setup(void **state)
{
    break_calls(NULL, CALL_OPEN, 0, 0);
    folder_rig_new(folder);
    job = (struct net_job){.n_workers = 1, .train_steps = 100, .seed = 3};
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.total_steps = 100;
    if (chunks_create(model, 1, 4096, &chunks) != ST_OK)
        return -1;
    save(5, NULL);
    save(8, NULL);
    return 0;
}

static int teardown(void **state)
{
    break_calls(NULL, CALL_OPEN, 0, 0);
    allocation = 0;
    folder_rig_empty(folder);
    chunks_destroy(chunks);
    return rmdir(folder);
}

/* Returns the step that a job resumes from, or minus the status. Captures the log lines. */
static int64_t found_with(const struct checkpoint_elsewhere *elsewhere)
{
    struct checkpoint_restore *r = NULL;
    capture_begin();
    enum status st = checkpoint_restore_find_with(folder, elsewhere, &r);
    capture_end();
    int64_t step = st == ST_OK ? checkpoint_restore_manifest(r)->step : -(int64_t)st;
    checkpoint_restore_close(st == ST_OK ? r : NULL);
    return step;
}

static int64_t found(void)
{
    return found_with(NULL);
}

/* Checks that one line names the file, the reason and the remedy. */
static void check_line(const char *name, const char *why)
{
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "cannot be read now: "));
    assert_non_null(strstr(capture_text, name));
    assert_non_null(strstr(capture_text, why));
    assert_null(strstr(capture_text, "trying the previous checkpoint"));
}

static void unreadable_checkpoint_is_not_passed_over(void **state)
{
    static const int errs[] = {EIO, ESTALE, EACCES, ETIMEDOUT};
    static const char *const names[] = {newer, newer_part};
    for (size_t i = 0; i < sizeof errs / sizeof *errs; i++)
        for (int k = 0; k < 2; k++)
            for (int call = CALL_OPEN; call <= CALL_READ; call++) {
                break_calls(names[k], (enum call)call, errs[i], FOR_EVER);
                assert_int_equal(found(), -(int64_t)ST_IO);
                check_line(names[k], strerror(errs[i]));
                assert_non_null(strstr(capture_text, "move it away"));
            }
    break_calls(newer_part, CALL_READ, EIO, FOR_EVER); /* a bad sector in its data */
    fault.skip = 3;
    assert_int_equal(found(), -(int64_t)ST_IO);
    /* Damage of older checkpoints has no effect. The operator moves away a file that is lost for
     * good. */
    break_calls(older, CALL_OPEN, EIO, FOR_EVER);
    assert_int_equal(found(), 8);
    break_calls(older_part, CALL_OPEN, EIO, FOR_EVER);
    assert_int_equal(found(), 8);
    break_calls(NULL, CALL_OPEN, 0, 0);
    char from[256], to[256];
    snprintf(from, sizeof from, "%s/%s", folder, newer_part);
    snprintf(to, sizeof to, "%s/%s.away", folder, newer_part);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(found(), 5);
    assert_non_null(strstr(capture_text, "trying the previous checkpoint"));
}

static void checkpoint_readable_at_the_next_try_is_used(void **state)
{
    static const char *const names[] = {newer, newer_part};
    for (int k = 0; k < 2; k++)
        for (int call = CALL_OPEN; call <= CALL_READ; call++) {
            break_calls(names[k], (enum call)call, ESTALE, 2);
            assert_int_equal(found(), 8);
            assert_int_equal(capture_lines(), 0);
            assert_int_equal(fault.times, 0);
        }
}

static void lack_of_descriptors_is_no_damage(void **state)
{
    static const int errs[] = {EMFILE, ENFILE, ENOMEM};
    static const char *const names[] = {newer, newer_part, older};
    for (size_t i = 0; i < sizeof errs / sizeof *errs; i++)
        for (int k = 0; k < 3; k++) {
            break_calls(names[k], CALL_OPEN, errs[i], FOR_EVER);
            assert_int_equal(found(), -(int64_t)ST_NOMEM);
            assert_int_equal(fault.times, FOR_EVER - 1); /* without a retry */
            check_line(names[k], strerror(errs[i]));
            assert_null(strstr(capture_text, "move it away"));
            if (errs[i] == EMFILE)
                assert_non_null(strstr(capture_text, "ulimit -n"));
        }
}

static void lack_of_memory_is_no_damage(void **state)
{
    int64_t step = 0;
    long n = 0, n_refused = 0;
    for (; step != 8 || allocation_failed; n++) {
        allocation_failed = 0;
        allocation = n + 1;
        capture_begin();
        struct checkpoint_restore *r = NULL;
        enum status st = checkpoint_restore_find(folder, &r);
        allocation = 0;
        capture_end();
        step = st == ST_OK ? checkpoint_restore_manifest(r)->step : -(int64_t)st;
        checkpoint_restore_close(st == ST_OK ? r : NULL);
        if (step != 8 && step != -(int64_t)ST_NOMEM)
            fail_msg("allocation %ld failed: %lld\n%s", n + 1, (long long)step, capture_text);
        n_refused += step == -(int64_t)ST_NOMEM;
        if (step < 0)
            assert_int_equal(capture_lines(), 1);
    }
    assert_true(n > 50 && n_refused > n / 2);
}

static void damaged_checkpoint_is_passed_over(void **state)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, newer_part);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(found(), 5);
    assert_non_null(strstr(capture_text, "trying the previous checkpoint"));
    assert_int_equal(unlink(path), 0); /* a missing checkpoint is passed over, too */
    assert_int_equal(found(), 5);
}

static enum status is_nowhere(void *ctx, const struct checkpoint_manifest *m, int file,
                              char why[MANIFEST_WHY_BYTES])
{
    ++*(int *)ctx;
    snprintf(why, MANIFEST_WHY_BYTES, "nobody has it");
    return ST_NOT_FOUND;
}

/* The file belongs to another folder, but a copy lies in this one. */
static void unreadable_file_is_not_searched_elsewhere(void **state)
{
    int n_asked = 0;
    const struct checkpoint_elsewhere elsewhere = {is_nowhere, &n_asked};
    save(8, "0123456789abcdef0123456789abcdef");
    assert_int_equal(found_with(&elsewhere), 8);
    break_calls(newer_part, CALL_OPEN, ESTALE, 2);
    assert_int_equal(found_with(&elsewhere), 8);
    break_calls(newer_part, CALL_OPEN, ESTALE, FOR_EVER);
    assert_int_equal(found_with(&elsewhere), -(int64_t)ST_IO);
    check_line(newer_part, strerror(ESTALE));
    break_calls(newer_part, CALL_OPEN, ENOMEM, FOR_EVER);
    assert_int_equal(found_with(&elsewhere), -(int64_t)ST_NOMEM);
    assert_int_equal(n_asked, 0);
}

/* A plan names this checkpoint. The caller retries, and does not restore a server's own part
 * instead. */
static void unreadable_named_checkpoint_has_a_reason(void **state)
{
    const struct checkpoint_restore_query q = {.folder = folder, .name = newer};
    struct checkpoint_restore *r = NULL;
    break_calls(newer_part, CALL_OPEN, ESTALE, FOR_EVER);
    assert_int_equal(CAPTURE(checkpoint_restore_open(&q, &r)), ST_IO);
    assert_non_null(strstr(capture_text, newer_part));
    break_calls(newer_part, CALL_OPEN, EMFILE, FOR_EVER);
    assert_int_equal(CAPTURE(checkpoint_restore_open(&q, &r)), ST_NOMEM);
    struct checkpoint_id id = {checkpoint_term(1, 1), 8};
    break_calls(newer_part, CALL_OPEN, EIO, FOR_EVER);
    assert_int_equal(CAPTURE(checkpoint_restore_open_own(folder, id, &job, chunks, &r)), ST_IO);
    break_calls(NULL, CALL_OPEN, 0, 0);
    id.step = 7;
    assert_int_equal(CAPTURE(checkpoint_restore_open_own(folder, id, &job, chunks, &r)),
                     ST_NOT_FOUND);
    assert_int_equal(checkpoint_restore_open(&q, &r), ST_OK);
    checkpoint_restore_close(r);
}

static int pointer_names(const char *name)
{
    char path[256], text[1024] = "";
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    FILE *f = __real_fopen(path, "r");
    if (f) {
        text[__real_fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
    }
    return strstr(text, name) != NULL;
}

static void retention_keeps_unreadable_checkpoints(void **state)
{
    struct checkpoint_manifest_place *list = NULL;
    int n = 0;
    const struct checkpoint_sweep one = {.keep = 1};
    save(9, NULL);
    break_calls("weir-1.1-9.json", CALL_OPEN, ESTALE, FOR_EVER);
    assert_int_equal(checkpoint_retention_list(folder, &list, &n), ST_OK);
    assert_true(n == 3 && list[0].id.step == 9 && list[0].unread && !list[0].readable);
    free(list);
    assert_int_equal(CAPTURE(checkpoint_retention_sweep(folder, &one)), ST_OK);
    assert_true(exists("weir-1.1-9.json") && exists("weir-1.1-9-0-of-1.safetensors"));
    assert_true(exists(newer) && exists(newer_part));   /* the newest readable checkpoint */
    assert_false(exists(older) || exists(older_part));  /* never one of the newest */
    assert_true(pointer_names("path: \"weir-1.1-9\"")); /* the unreadable one is listed */
    break_calls("weir-1.1-9.json", CALL_OPEN, EMFILE, FOR_EVER);
    assert_int_equal(CAPTURE(checkpoint_retention_list(folder, &list, &n)), ST_NOMEM);
    check_line("weir-1.1-9.json", "ulimit -n");
    assert_int_equal(CAPTURE(checkpoint_retention_sweep(folder, &one)), ST_NOMEM);
    assert_true(exists(newer) && exists("weir-1.1-9.json"));
    break_calls(NULL, CALL_OPEN, 0, 0);
    assert_int_equal(checkpoint_retention_sweep(folder, &one), ST_OK);
    assert_true(exists("weir-1.1-9.json") && !exists(newer) && !exists(newer_part));
}

/* A server with its own folder also keeps unreadable parts. */
static void server_keeps_unreadable_parts(void **state)
{
    struct checkpoint_part *list = NULL;
    int n = 0, n_unread = 0;
    const struct checkpoint_id kept[] = {{checkpoint_term(1, 1), 8}};
    const struct checkpoint_keep keep = {
        .kept = kept, .n_kept = 1, .generation = checkpoint_term(1, 2)};
    break_calls(older_part, CALL_OPEN, ESTALE, FOR_EVER);
    assert_int_equal(CAPTURE(checkpoint_parts_list(folder, NULL, &list, &n, &n_unread)), ST_OK);
    assert_true(n == 1 && n_unread == 1);
    free(list);
    assert_int_equal(CAPTURE(checkpoint_parts_clean(folder, "a:1", &keep)), ST_OK);
    assert_true(exists(older_part));
    break_calls(older_part, CALL_OPEN, EMFILE, FOR_EVER);
    assert_int_equal(CAPTURE(checkpoint_parts_list(folder, NULL, &list, &n, &n_unread)), ST_NOMEM);
    check_line(older_part, "ulimit -n");
    assert_int_equal(CAPTURE(checkpoint_parts_clean(folder, "a:1", &keep)), ST_NOMEM);
    assert_true(exists(older_part));
}

static bool wait_once(void *ctx, int64_t until_ns)
{
    ++*(int *)ctx;
    return false;
}

/* A file is checked before its manifest is written. If the file cannot be read, the check waits. */
static void unreadable_file_is_awaited(void **state)
{
    static const int errs[] = {ESTALE, EMFILE, ENOMEM};
    char path[256], why[MANIFEST_WHY_BYTES];
    struct checkpoint_manifest *m = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, newer);
    assert_int_equal(checkpoint_manifest_read(path, &m, why), ST_OK);
    for (int i = 0; i < 3; i++) {
        int n_waits = 0;
        const struct checkpoint_folder_check check = {
            .deadline_ns = INT64_MAX, .wait = wait_once, .ctx = &n_waits};
        break_calls(newer_part, CALL_OPEN, errs[i], 4);
        assert_int_equal(checkpoint_folder_check_files(folder, m, &check, why), ST_OK);
        assert_int_equal(n_waits, 4);
    }
    checkpoint_manifest_free(m);
}

/* The job has resumed from an older checkpoint, or from its first step. Then a file server shows a
 * newer checkpoint late, or a damaged file becomes readable. */
static void checkpoint_of_an_abandoned_history_is_skipped(void **state)
{
    const struct {
        struct checkpoint_history history;
        int64_t step; /* step of the checkpoint that is found; -1: none */
    } cases[] = {{{{term_of(1, 1), 5}, term_of(2, 1)}, 5},
                 {{{term_of(1, 1), 5}, term_of(1, 2)}, 5},
                 {{{0, 0}, term_of(2, 1)}, -1},
                 {{{term_of(1, 1), 8}, term_of(2, 1)}, 8},
                 {{{term_of(1, 1), 5}, term_of(1, 1)}, 8},
                 {{{0, 0}, 0}, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct checkpoint_restore_query query = {.folder = folder,
                                                       .history = cases[i].history};
        struct checkpoint_restore *r = NULL;
        enum status st = checkpoint_restore_open(&query, &r);
        assert_int_equal(st, cases[i].step < 0 ? ST_NOT_FOUND : ST_OK);
        assert_int_equal(r ? checkpoint_restore_manifest(r)->step : -1, cases[i].step);
        checkpoint_restore_close(r);
    }
}

static void recorded_history_is_used(void **state)
{
    const struct checkpoint_history left = {{term_of(1, 1), 5}, term_of(2, 1)};
    char path[256];
    snprintf(path, sizeof path, "%s/servers", folder);
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "a:1,b:1\na:1,b:1\n");
        if (i == 1)
            checkpoint_history_print(&left, f);
        if (i == 2)
            fprintf(f, "history 12 of\n");
        fclose(f);
        assert_int_equal(found(), i == 1 ? 5 : 8);
    }
}

int main(void)
{
    json_text_set_up(); /* it reports a lack of memory */
    return RUN_EACH(setup, teardown, unreadable_checkpoint_is_not_passed_over,
                    checkpoint_readable_at_the_next_try_is_used, lack_of_descriptors_is_no_damage,
                    lack_of_memory_is_no_damage, damaged_checkpoint_is_passed_over,
                    unreadable_file_is_not_searched_elsewhere,
                    unreadable_named_checkpoint_has_a_reason,
                    retention_keeps_unreadable_checkpoints, server_keeps_unreadable_parts,
                    unreadable_file_is_awaited, checkpoint_of_an_abandoned_history_is_skipped,
                    recorded_history_is_used);
}
