/* tests/folder_rig.c - see folder_rig.h. */
#include "tests/folder_rig.h"
#include "tests/check.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char folder_rig[FOLDER_RIG_BYTES];

void folder_rig_new(char path[FOLDER_RIG_BYTES])
{
    strcpy(path, "/tmp/weir_test.XXXXXX");
    assert_non_null(mkdtemp(path));
}

void folder_rig_empty(const char *path)
{
    char name[512];
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            assert_int_equal(unlink(name), 0);
    }
    closedir(d);
}

int folder_rig_delete(const char *path)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    return system(command);
}

void folder_rig_save(const char *path, const void *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

int folder_rig_make(void **state)
{
    folder_rig_new(folder_rig);
    return 0;
}

int folder_rig_remove(void **state)
{
    return folder_rig_delete(folder_rig);
}
