/* tests/sim/lineage.c - see lineage.h. */
#include "tests/sim/lineage.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracle.h"
#include "tests/sim/patches.h"

enum { MOST_SEEN = 256 };

static struct checkpoint_id seen[MOST_SEEN];
static int n_seen;
static int n_losses; /* losses of the folder before `seen` */

void lineage_reset(void)
{
    n_seen = 0;
    n_losses = 0;
}

static bool is_seen(struct checkpoint_id id)
{
    for (int i = 0; i < n_seen; i++)
        if (checkpoint_names_compare(seen[i], id) == 0)
            return true;
    return false;
}

/* Adds the folder's checkpoints. In a folder that was lost, terms begin again, so that ids of the
 * old folder do not identify checkpoints. */
static void look(void)
{
    struct checkpoint_name is;
    int at = 0;
    if (disk_n_losses() > n_losses)
        n_seen = 0;
    n_losses = disk_n_losses();
    for (const char *text; (text = disk_next_name(&at));) {
        checkpoint_name_parse(text, &is);
        if (is.kind != CHECKPOINT_NAME_MANIFEST || is_seen(is.id))
            continue;
        if (n_seen == MOST_SEEN)
            sim_fail("bound", "more checkpoints than a run can have");
        seen[n_seen++] = is.id;
    }
}

void lineage_check(const struct checkpoint_manifest *m, uint64_t ps0)
{
    const struct checkpoint_id id = {m->generation, m->step};
    look();
    for (int i = 0; i < n_seen; i++) {
        if (checkpoint_names_compare(seen[i], id) >= 0)
            continue;
        bool has = checkpoint_lineage_has(&m->lineage, seen[i], id);
        bool continues = oracle_continues(m->generation, ps0, seen[i]);
        /* a full list, or one that begins again because the folder was lost, may lack restores */
        bool is_whole = m->lineage.n < LINEAGE_MOST && n_losses == 0;
        oracle_count_check();
        if (has != continues && (has || is_whole))
            sim_fail(
                "line",
                "by its manifest the checkpoint of step %lld, generation %llx, %s that of step %lld, generation %llx",
                (long long)id.step, (unsigned long long)id.generation,
                has ? "continues" : "does not continue", (long long)seen[i].step,
                (unsigned long long)seen[i].generation);
        if (has)
            patches_check(seen[i], id);
    }
}
