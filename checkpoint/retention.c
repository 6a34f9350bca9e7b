/* checkpoint/retention.c - lists the files of a checkpoint folder (checkpoint_retention_list), and
 * removes old ones (checkpoint_retention_sweep). A sweep touches only files that it listed before
 * it checked the owner. It removes a manifest in two steps, and its files afterwards (folder.h). If
 * one file cannot be removed, it still removes the other files, because a full disk must get its
 * space back. */
#include "base/log.h"
#include "checkpoint/best.h"
#include "checkpoint/folder.h"
#include "files/durable.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Generation that is assumed for a manifest whose name contains no generation: such names are of
 * epoch 0, and this is the highest generation of that epoch. */
#define LAST_OF_EPOCH_0 (checkpoint_term(1, 0) - 1)

struct entry {
    struct checkpoint_name is;
    bool tried; /* the sweep has tried to remove the file */
    char name[NAME_MAX + 1];
};

struct listing {
    const char *folder;
    struct entry *entries; /* all names of checkpoint files */
    int n_entries;
    struct checkpoint_manifest_place *places; /* newest first */
    int n_places;
    unsigned char *keeps; /* [n_places] true: the manifest stays */
};

static bool join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    return (size_t)snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static int newest_first(const void *a, const void *b)
{
    const struct checkpoint_manifest_place *x = a, *y = b;
    return checkpoint_names_compare(y->id, x->id);
}

/* Returns true if the name can belong to the checkpoint. A name in epoch 0 contains no
 * generation, so only its step is compared. */
static bool is_of(const struct checkpoint_name *name, struct checkpoint_id id)
{
    return name->id.step == id.step && id.generation > 0 &&
           (name->id.generation == id.generation ||
            (name->id.generation == 0 && checkpoint_term_epoch(id.generation) == 0));
}

/* Reads an entry's manifest, and fills in *place, with `why`. ST_NOMEM: neither this entry nor the
 * other entries can be judged. */
static enum status look_at(const char *folder, const struct entry *e,
                           struct checkpoint_manifest_place *place)
{
    char path[PATH_MAX];
    struct checkpoint_manifest *m = NULL;
    *place = (struct checkpoint_manifest_place){.id = e->is.id, .old = e->is.old};
    if (place->id.generation == 0)
        place->id.generation = LAST_OF_EPOCH_0;
    enum status st = join_path(path, folder, e->name)
                         ? checkpoint_manifest_read(path, &m, place->why)
                         : ST_INVALID;
    place->unread = st == ST_IO;
    if (st != ST_OK)
        return st == ST_NOMEM ? st : ST_OK;
    struct checkpoint_id id = {m->generation, m->step};
    place->readable = is_of(&e->is, id);
    if (place->readable) {
        place->id = id;
        place->n_files = m->n_files;
    } else {
        snprintf(place->why, sizeof place->why,
                 "is the renamed manifest of step %" PRId64 ", generation %" PRIu64, m->step,
                 m->generation);
    }
    checkpoint_manifest_free(m);
    return ST_OK;
}

static enum status read_names(struct listing *l, DIR *dir)
{
    struct entry *grown;
    struct checkpoint_name is;
    for (struct dirent *e; dir && (errno = 0, e = readdir(dir));) {
        checkpoint_name_parse(e->d_name, &is);
        if (is.kind == CHECKPOINT_NAME_OTHER)
            continue;
        int n = l->n_entries;
        if ((n & (n - 1)) == 0) {
            grown = realloc(l->entries, (n ? 2 * (size_t)n : 1) * sizeof *l->entries);
            if (!grown)
                return ST_NOMEM;
            l->entries = grown;
        }
        l->entries[n] = (struct entry){.is = is};
        snprintf(l->entries[n].name, sizeof l->entries[n].name, "%s", e->d_name);
        l->n_entries++;
    }
    if (!dir || errno == 0)
        return ST_OK;
    enum status st = status_of_errno(errno);
    LOG_E("%s: cannot be read to its end: %s", l->folder, strerror(errno));
    return st;
}

static void free_listing(struct listing *l)
{
    free(l->entries);
    free(l->places);
    free(l->keeps);
}

/* Lists the folder. A folder that does not exist counts as empty. */
static enum status read_listing(const char *folder, struct listing *l)
{
    *l = (struct listing){.folder = folder};
    DIR *dir = opendir(folder);
    if (!dir && errno != ENOENT) {
        enum status st = status_of_errno(errno);
        LOG_E("%s: cannot be read: %s", folder, strerror(errno));
        return st;
    }
    enum status st = read_names(l, dir);
    if (dir)
        closedir(dir);
    l->places = st == ST_OK ? calloc((size_t)l->n_entries + 1, sizeof *l->places) : NULL;
    l->keeps = l->places ? calloc((size_t)l->n_entries + 1, 1) : NULL;
    if (!l->keeps) {
        if (st == ST_OK || st == ST_NOMEM)
            LOG_E("%s: out of memory for its %d files", folder, l->n_entries);
        free_listing(l);
        return st == ST_OK ? ST_NOMEM : st;
    }
    for (int i = 0; i < l->n_entries; i++) {
        if (l->entries[i].is.kind != CHECKPOINT_NAME_MANIFEST)
            continue;
        struct checkpoint_manifest_place *place = &l->places[l->n_places++];
        st = look_at(folder, &l->entries[i], place);
        if (st != ST_OK) {
            LOG_E("%s/%s: cannot be read now: %s; nothing is restored or removed", folder,
                  l->entries[i].name, place->why);
            free_listing(l);
            return st;
        }
    }
    if (l->n_places > 0)
        qsort(l->places, (size_t)l->n_places, sizeof *l->places, newest_first);
    return ST_OK;
}

enum status checkpoint_retention_list(const char *folder, struct checkpoint_manifest_place **out,
                                      int *n)
{
    struct listing l;
    enum status st = read_listing(folder, &l);
    if (st != ST_OK)
        return st;
    *out = l.places;
    *n = l.n_places;
    l.places = NULL;
    free_listing(&l);
    return ST_OK;
}

enum status checkpoint_retention_list_of(const char *folder, const char *id,
                                         struct checkpoint_manifest_place **out, int *n)
{
    struct checkpoint_manifest_place *list = NULL;
    enum status st = checkpoint_retention_list(folder, &list, n);
    if (st == ST_OK)
        /* the id is compared after the listing: an empty list may mean that this is another
         * folder */
        st = checkpoint_folder_is(folder, id);
    if (st == ST_OK)
        *out = list;
    else
        free(list);
    return st;
}

static bool is_above(uint64_t generation, const struct checkpoint_sweep *what)
{
    return what->owner && checkpoint_term_epoch(generation) > what->owner->epoch;
}

static bool is_spared(struct checkpoint_id id, const struct checkpoint_sweep *what)
{
    return is_above(id.generation, what) || !checkpoint_names_compare(id, what->base) ||
           !checkpoint_names_compare(id, what->found) ||
           !checkpoint_names_compare(id, what->writing) ||
           !checkpoint_names_compare(id, what->best);
}

/* Chooses the manifests that stay. A manifest that cannot be read must not be removed. */
static void choose_kept(struct listing *l, const struct checkpoint_sweep *what)
{
    int n_readable = 0;
    for (int i = 0; i < l->n_places; i++) {
        const struct checkpoint_manifest_place *p = &l->places[i];
        n_readable += p->readable;
        l->keeps[i] =
            !p->readable || what->keep <= 0 || n_readable <= what->keep || is_spared(p->id, what);
    }
}

/* Returns true if the file `checkpoint` is to name the manifest. A manifest that could not be read
 * now may be complete, so it is named, too. */
static bool is_named(const struct listing *l, int i)
{
    return l->keeps[i] && (l->places[i].readable || l->places[i].unread);
}

/* Returns the text in TensorFlow's format, malloc'd: it names the newest checkpoint, then lists all
 * checkpoints from the oldest to the newest. NULL: no checkpoint to name, or no memory (logged). */
static char *pointer_text(const struct listing *l)
{
    char *text = NULL, name[MANIFEST_NAME_BYTES];
    size_t bytes = 0;
    int newest = 0;
    while (newest < l->n_places && !is_named(l, newest))
        newest++;
    if (newest == l->n_places)
        return NULL;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = l->n_places; f && i >= newest; i--) {
        int at = i == l->n_places ? newest : i;
        if (!is_named(l, at))
            continue;
        checkpoint_manifest_name(l->places[at].id, name);
        name[strlen(name) - strlen(".json")] = 0;
        fprintf(f, "%s: \"%s\"\n",
                i == l->n_places ? "model_checkpoint_path" : "all_model_checkpoint_paths", name);
    }
    if (f && fclose(f) == 0)
        return text;
    LOG_E("%s/checkpoint: out of memory", l->folder);
    free(text);
    return NULL;
}

static bool has_text(const char *path, const char *text)
{
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "re");
    bool same = f && getdelim(&line, &room, 0, f) >= 0 && strcmp(line, text) == 0;
    free(line);
    if (f)
        fclose(f);
    return same;
}

static enum status write_pointer(const struct listing *l)
{
    char path[PATH_MAX], *text = pointer_text(l);
    enum status st = ST_OK;
    if (text && join_path(path, l->folder, "checkpoint") && !has_text(path, text))
        st = durable_put(path, text, strlen(text));
    free(text);
    return st;
}

static enum status rename_manifest(const struct listing *l, struct checkpoint_id id, int to_old)
{
    char plain[MANIFEST_NAME_BYTES], old[MANIFEST_NAME_BYTES], from[PATH_MAX], to[PATH_MAX];
    checkpoint_manifest_name(id, plain);
    checkpoint_manifest_old_name(id, old);
    if (!join_path(from, l->folder, to_old ? plain : old) ||
        !join_path(to, l->folder, to_old ? old : plain))
        return ST_IO;
    enum status st = durable_rename(from, to);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* Renames the manifests that are to be removed to old-..., which is the first half of their
 * removal, and renames back those that stay. */
static enum status mark_manifests(struct listing *l, const struct checkpoint_sweep *what)
{
    enum status st = ST_OK;
    for (int i = l->n_places - 1; i >= 0 && st == ST_OK; i--)
        if (l->keeps[i] == l->places[i].old && !is_above(l->places[i].id.generation, what))
            st = rename_manifest(l, l->places[i].id, !l->keeps[i]);
    return st;
}

/* Removes the renamed manifests, which is the second half of their removal. A manifest that does
 * not exist any more under this name was renamed back, and stays. */
static enum status remove_marked(struct listing *l)
{
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES];
    enum status st = ST_OK, one;
    for (int i = l->n_places - 1; i >= 0; i--) {
        if (l->keeps[i])
            continue;
        checkpoint_manifest_old_name(l->places[i].id, name);
        one = join_path(path, l->folder, name) ? durable_take_away(path) : ST_IO;
        l->keeps[i] = one != ST_OK;
        if (one != ST_OK && one != ST_NOT_FOUND)
            st = one;
    }
    return st;
}

/* Returns true for a file of a later order. A server without chunks writes its file of a new
 * order at once, even while an earlier checkpoint is being made. */
static bool is_ahead(const struct checkpoint_name *is, const struct checkpoint_sweep *what)
{
    return is->id.generation && is->id.generation == what->writing.generation &&
           is->id.step > what->writing.step;
}

/* Returns true if the file belongs to a checkpoint that stays, or may stay. */
static bool is_needed(const struct listing *l, const struct checkpoint_name *is,
                      const struct checkpoint_sweep *what)
{
    if (is_above(is->id.generation, what) || is_of(is, what->writing) ||
        (is->kind == CHECKPOINT_NAME_TEMPORARY &&
         (is_of(is, what->given_up) || is_ahead(is, what))))
        return true;
    for (int i = 0; i < l->n_places && is->kind == CHECKPOINT_NAME_FILE; i++)
        if (l->keeps[i] && is_of(is, l->places[i].id))
            return true;
    return is->kind == CHECKPOINT_NAME_FILE && (is_of(is, what->base) || is_of(is, what->found));
}

static enum status remove_orphans(struct listing *l, const struct checkpoint_sweep *what)
{
    char path[PATH_MAX];
    enum status st = ST_OK, one;
    for (int i = 0; i < l->n_entries; i++) {
        struct entry *e = &l->entries[i];
        if (e->tried || e->is.kind == CHECKPOINT_NAME_MANIFEST || is_needed(l, &e->is, what) ||
            !join_path(path, l->folder, e->name))
            continue;
        e->tried = true;
        one = durable_remove(path);
        st = one != ST_OK ? one : st;
    }
    return st;
}

/* Adds the best checkpoint to those that stay. While the file `best` cannot be read, all stay; if
 * it names no checkpoint (logged), it protects none, so that the disk does not fill up. */
static void spare_best(const char *folder, struct checkpoint_sweep *what)
{
    struct checkpoint_best best;
    enum status st = checkpoint_best_read(folder, &best);
    if (st == ST_OK)
        what->best = best.id;
    else if (st != ST_NOT_FOUND && st != ST_CORRUPT)
        what->keep = 0;
}

enum status checkpoint_retention_sweep(const char *folder, const struct checkpoint_sweep *wish)
{
    struct listing l;
    struct checkpoint_sweep with = *wish;
    const struct checkpoint_sweep *what = &with;
    spare_best(folder, &with);
    enum status st = read_listing(folder, &l), st_pointer, st_orphans;
    if (st != ST_OK)
        return st;
    if (what->owner)
        TRY(checkpoint_folder_still_owner(folder, what->owner));
    memset(l.keeps, 1, (size_t)l.n_places);
    st_orphans = remove_orphans(&l, what); /* frees space before the manifests are changed */
    choose_kept(&l, what);
    st_pointer = write_pointer(&l);
    TRY(mark_manifests(&l, what));
    if (what->owner)
        TRY(checkpoint_folder_still_owner(folder, what->owner));
    TRY(remove_marked(&l));
    st_orphans = remove_orphans(&l, what); /* removes the files of the removed manifests */
    st = st_pointer == ST_OK ? st_orphans : write_pointer(&l);
done:
    free_listing(&l);
    return st;
}
