/* tests/folder_rig.h - folders for tests, below /tmp, and files in them. Owns: nothing; the caller
 * that creates a folder deletes it. Threads: any. Errors: the test fails. */
#ifndef TESTS_FOLDER_RIG_H
#define TESTS_FOLDER_RIG_H
#include <stddef.h>

enum { FOLDER_RIG_BYTES = 32 }; /* room for the path of a folder */

/* Makes a folder and writes its path. */
void folder_rig_new(char path[FOLDER_RIG_BYTES]);
/* Deletes all files in a folder that has no folders in it. */
void folder_rig_empty(const char *path);
/* Deletes a folder with all that is in it. Returns 0, or the status of rm. */
int folder_rig_delete(const char *path);
/* Writes a file with these contents. */
void folder_rig_save(const char *path, const void *data, size_t n);

extern char folder_rig[FOLDER_RIG_BYTES]; /* path of the group's folder, after folder_rig_make() */

/* Creates the group's folder, for RUN_GROUP. */
int folder_rig_make(void **state);
int folder_rig_remove(void **state);

#endif
