/* tests/sim/lineage.h - checks the restores that ps 0 records in manifests (checkpoint/lineage.h)
 * against the chain of plans: which older checkpoints the new one continues.
 * Owns: the ids of the checkpoints of a run. Threads: one. Errors: sim_fail line. */
#ifndef TESTS_SIM_LINEAGE_H
#define TESTS_SIM_LINEAGE_H
#include "checkpoint/manifest.h"

void lineage_reset(void);
/* Checks a manifest that this ps 0 is about to write, for each complete checkpoint that the folder
 * has, or has had at an earlier call. */
void lineage_check(const struct checkpoint_manifest *m, uint64_t ps0);

#endif
