/* tests/sim/folder.h - a checkpoint folder and its disk: orders take time, hang, fail; what a
 * process had not finished as it died is not there.
 * Owns: what lies in it, for the run. Threads: one. Errors: in orders. */
#ifndef TESTS_SIM_FOLDER_H
#define TESTS_SIM_FOLDER_H
#include "base/status.h"
#include "net/wire/plan.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

enum { FOLDER_FILES = 256, SIM_SAMPLES = 4 * SIM_WORKERS };
struct sim_file {
    uint64_t generation, bytes;
    int64_t step;
    int server, n;
    uint32_t crc32c;
    int chunk[SIM_CHUNKS];
    struct oracle_state state[SIM_CHUNKS];
    uint64_t samples[SIM_SAMPLES]; /* with the model's first chunk */
    size_t n_samples;
};

struct sim_manifest {
    uint64_t generation, position;
    int64_t step;
    int n_files, n_members;
    const struct sim_file *file[SIM_SERVERS];
    const struct net_plan *plan; /* of its generation */
    int n_contributed;           /* as of the step, as in a plan */
    struct net_contribution contributed[2 * SIM_WORKERS];
    char name[64];
};

struct folder {
    uint64_t epoch;
    int was_lost;
    int n_files, n_manifests;
    const struct sim_file *file[FOLDER_FILES];
    const struct sim_manifest *manifest[FOLDER_FILES];
};

enum disk_what {
    DISK_ORDER_EPOCH,
    DISK_ORDER_FIND,
    DISK_ORDER_MANIFEST,
    DISK_ORDER_SWEEP,
    DISK_ORDER_BEST,
    DISK_ORDER_OWNER,
    DISK_ORDER_FILE
};
struct disk_order {
    enum disk_what what;
    uint32_t op;
    enum status st;
    uint64_t epoch;
    int64_t step;
    const struct sim_manifest *manifest; /* FIND: found; MANIFEST: to be written */
    const struct sim_manifest *before;   /* FIND: an older one is wanted; NULL: the newest */
    const struct sim_file *file;
};

void folders_reset(void);
struct folder *folder_of(int node); /* NULL: it keeps none */
void folder_lose(void);             /* all that is in it */
/* Ends, if its disk does not hang for good, by ops->disk; *o is of the run's memory. */
void disk_begin(int node, struct disk_order *o);
/* Likewise, on a disk of its own, which has its own chance. */
void region_disk_begin(int node, struct sim_random *r, struct disk_order *o);
/* What it does, as it ends. */
void disk_end(struct folder *f, int node, struct disk_order *o);
/* The newest; before: of those older than that one. NULL: there is none. */
const struct sim_manifest *folder_newest(const struct folder *f, const struct sim_manifest *before);
const struct sim_manifest *folder_find(const struct folder *f, const char *name); /* or NULL */

#endif
