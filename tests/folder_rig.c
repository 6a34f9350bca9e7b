/* tests/folder_rig.c - see folder_rig.h. */
#include "tests/folder_rig.h"
#include <stdio.h>
#include <stdlib.h>

char folder_rig[] = "/tmp/weir_test.XXXXXX";

int folder_rig_make(void **state)
{
    (void)state;
    return mkdtemp(folder_rig) ? 0 : -1;
}

int folder_rig_remove(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder_rig);
    return system(command);
}
