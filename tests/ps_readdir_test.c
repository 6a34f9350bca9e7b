/* tests/ps_readdir_test.c - a folder of checkpoints whose listing fails before its end (EIO, or
 * ESTALE of NFS): an entry that was not listed does not count as deleted. */
#include "checkpoint/folder.h"
#include "checkpoint/parts.h"
#include "tests/check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char manifest[] = "weir-1.1-8.json", shard[] = "weir-1.1-8-0-of-1.safetensors";
static int fails; /* nonzero: the listing fails before its last entry, the manifest */

struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d)
{
    struct dirent *e = __real_readdir(d);
    while (fails && e && !strcmp(e->d_name, manifest))
        e = __real_readdir(d);
    if (!e && fails)
        errno = EIO;
    return e;
}

static void put(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0666);
    assert_true(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
}

static void incomplete_listing_removes_nothing(void **state)
{
    char folder[] = "/tmp/weir_readdir_XXXXXX", path[256], other[256];
    const struct checkpoint_sweep sweep = {.keep = 5};
    struct checkpoint_manifest_place *list = NULL;
    int n = 0;
    assert_non_null(mkdtemp(folder));
    put(folder, manifest);
    put(folder, shard);
    snprintf(path, sizeof path, "%s/%s", folder, shard);
    snprintf(other, sizeof other, "%s/%s", folder, manifest);
    assert_int_equal(checkpoint_retention_sweep(folder, &sweep), ST_OK);
    assert_int_equal(access(path, F_OK), 0); /* the manifest keeps it, whatever its content */
    fails = 1;
    assert_int_equal(checkpoint_retention_sweep(folder, &sweep), ST_IO);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(checkpoint_retention_list(folder, &list, &n), ST_IO);
    fails = 0;
    assert_int_equal(checkpoint_retention_list(folder, &list, &n), ST_OK);
    assert_int_equal(n, 1);
    free(list);
    unlink(path);
    unlink(other);
    rmdir(folder);
}

int main(void)
{
    return RUN_TESTS(incomplete_listing_removes_nothing);
}
