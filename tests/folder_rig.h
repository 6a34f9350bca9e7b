/* tests/folder_rig.h - a folder for the length of a program of tests.
 * Owns: the folder, and all in it. Threads: the main one. Errors: the group's set-up fails. */
#ifndef TESTS_FOLDER_RIG_H
#define TESTS_FOLDER_RIG_H

extern char folder_rig[]; /* its path, once made */

/* For cmocka_run_group_tests. */
int folder_rig_make(void **state);
int folder_rig_remove(void **state);

#endif
