/* tests/sim/folder.c - see folder.h. */
#include "tests/sim/folder.h"
#include "base/term.h"
#include <string.h>

static struct folder shared;
static struct sim_random random[SIM_SERVERS];

void folders_reset(void)
{
    memset(&shared, 0, sizeof shared);
    for (int i = 0; i < SIM_SERVERS; i++)
        random[i] = sim_random_of(sim.schedule->seed, STREAM_DISK, (uint64_t)i);
}

struct folder *folder_of(int node)
{
    return opt(OPT_folder) ? &shared : NULL;
}

void folder_lose(void)
{
    shared = (struct folder){.was_lost = 1};
}

void disk_begin(int node, struct disk_order *o)
{
    region_disk_begin(node, &random[node], o);
}

void region_disk_begin(int node, struct sim_random *r, struct disk_order *o)
{
    struct sim_node *n = &sim.node[node];
    int64_t took = sim_between(r, 100, 20000) * 1000;
    if (sim_chance(r, 5)) /* others use it, too */
        took *= 100;
    if (n->disk_until > sim.now + took && !sim.calm)
        took = n->disk_until - sim.now;
    sim_mark(MARK_disk);
    if (n->disk_stuck == n->life)
        return;
    sim_post(took, EV_DISK, node)->p = o;
}

/* Terms come first: a checkpoint of a replaced ps 0 that was late is not the newest. */
static int is_newer(const struct sim_manifest *a, const struct sim_manifest *b)
{
    return a->generation > b->generation || (a->generation == b->generation && a->step > b->step);
}

const struct sim_manifest *folder_newest(const struct folder *f, const struct sim_manifest *before)
{
    const struct sim_manifest *best = NULL;
    for (int i = 0; i < f->n_manifests; i++) {
        const struct sim_manifest *m = f->manifest[i];
        if ((!before || is_newer(before, m)) && (!best || is_newer(m, best)))
            best = m;
    }
    return best;
}

const struct sim_manifest *folder_find(const struct folder *f, const char *name)
{
    for (int i = 0; i < f->n_manifests; i++)
        if (!strcmp(f->manifest[i]->name, name))
            return f->manifest[i];
    return NULL;
}

/* It has a file of each server of its generation's plan, with that server's chunks. */
static void check_manifest(const struct sim_manifest *m)
{
    const struct net_plan *p = m->plan;
    int n = 0;
    if (!p)
        return; /* it is not kept any more */
    if (m->n_files != p->servers.n)
        sim_fail("manifest", "%s names %d files, its generation has %d servers", m->name,
                 m->n_files, p->servers.n);
    for (int i = 0; i < m->n_files; i++)
        for (int k = 0; k < m->file[i]->n; k++, n++)
            if (m->file[i]->server != i || p->shard[m->file[i]->chunk[k]] != i)
                sim_fail("manifest", "%s: file %d has chunk %d, which is another server's", m->name,
                         i, m->file[i]->chunk[k]);
    if (n != p->chunks->n_chunks)
        sim_fail("manifest", "%s names files of %d chunks", m->name, n);
}

static enum status put_manifest(struct folder *f, const struct sim_manifest *m)
{
    check_manifest(m);
    for (int i = 0; i < m->n_files; i++) {
        int found = 0;
        for (int k = 0; k < f->n_files; k++)
            found |= f->file[k]->generation == m->generation && f->file[k]->step == m->step &&
                     f->file[k]->server == i && f->file[k]->crc32c == m->file[i]->crc32c;
        if (!found)
            return ST_NOT_FOUND;
    }
    if (f->n_manifests < FOLDER_FILES)
        f->manifest[f->n_manifests++] = m;
    STORY("checkpoint %s is whole", m->name);
    sim_mark(MARK_manifest);
    return ST_OK;
}

void disk_end(struct folder *f, int node, struct disk_order *o)
{
    if (o->what == DISK_ORDER_EPOCH && f && o->epoch < f->epoch)
        sim_fail("term", "epoch %llu is recorded over %llu", (unsigned long long)o->epoch,
                 (unsigned long long)f->epoch);
    if (!f) {
        o->st = o->what == DISK_ORDER_EPOCH ? ST_OK : ST_NOT_FOUND;
    } else if (o->what == DISK_ORDER_FIND) {
        o->manifest = folder_newest(f, o->before);
        o->step = o->manifest ? o->manifest->step : -1;
        o->st = o->manifest ? ST_OK : o->before ? ST_IO : ST_NOT_FOUND;
    } else if (o->what == DISK_ORDER_OWNER) { /* a full disk can be read */
        o->st = f->epoch > o->epoch ? ST_REFUSED : ST_OK;
    } else if (sim.node[node].disk_full) {
        o->st = ST_IO;
    } else if (o->what == DISK_ORDER_EPOCH) {
        f->epoch = o->epoch;
    } else if (o->what == DISK_ORDER_FILE) {
        if (f->n_files < FOLDER_FILES)
            f->file[f->n_files++] = o->file;
        o->st = ST_OK;
    } else if (o->what == DISK_ORDER_SWEEP || o->what == DISK_ORDER_BEST) {
        o->st = ST_OK;
    } else {
        o->st = put_manifest(f, o->manifest);
    }
}
