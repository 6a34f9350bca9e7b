/* ps/rows/bucket_versions.c - holds of older versions, and changes of rows (bucket.h). */
#include "ps/rows/bucket.h"

/* Writes the versions before `present` that must stay readable, ascending, and returns their
 * number. */
static int needed_versions(const struct bucket *b, uint64_t present,
                           uint64_t needed[BUCKET_MAX_HOLDS + 1])
{
    int n = 0, k = 0;
    bool has_previous = b->config.keeps_previous && present > 0;
    for (; k < b->n_holds && (!has_previous || b->holds[k] < present - 1); k++)
        if (n == 0 || needed[n - 1] != b->holds[k])
            needed[n++] = b->holds[k];
    if (has_previous)
        needed[n++] = present - 1;
    for (; k < b->n_holds; k++)
        if (n == 0 || needed[n - 1] != b->holds[k])
            needed[n++] = b->holds[k];
    return n;
}

bool bucket_is_readable(const struct bucket *b, uint64_t version)
{
    if (version == b->version)
        return true;
    if (b->config.keeps_previous && version + 1 == b->version && version >= b->first)
        return true;
    for (int i = 0; i < b->n_holds; i++)
        if (b->holds[i] == version)
            return true;
    return false;
}

enum status bucket_hold(struct bucket *b, uint64_t version)
{
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    if (b->n_holds == BUCKET_MAX_HOLDS)
        return ST_BUSY;
    int at = b->n_holds++;
    for (; at > 0 && b->holds[at - 1] > version; at--)
        b->holds[at] = b->holds[at - 1];
    b->holds[at] = version;
    return ST_OK;
}

void bucket_release(struct bucket *b, uint64_t version)
{
    uint64_t needed[BUCKET_MAX_HOLDS + 1];
    int at = 0;
    while (at < b->n_holds && b->holds[at] != version)
        at++;
    CHECK(at < b->n_holds);
    for (b->n_holds--; at < b->n_holds; at++)
        b->holds[at] = b->holds[at + 1];
    int n = needed_versions(b, b->version, needed);
    undo_settle(&b->undo, needed, n);
    undo_settle(&b->undo_pending, needed, n);
}

uint64_t bucket_oldest(const struct bucket *b)
{
    uint64_t needed[BUCKET_MAX_HOLDS + 1];
    return needed_versions(b, b->version, needed) > 0 ? needed[0] : b->version;
}

enum status bucket_rewind(struct bucket *b, uint64_t version)
{
    enum status st = ST_OK;
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    if (b->n_holds > 0 && b->holds[b->n_holds - 1] > version)
        return ST_BUSY;
    TRY(row_table_reserve(&b->rows, undo_keys(&b->undo, version, NULL)));
    TRY(row_table_reserve(&b->pending, undo_keys(&b->undo_pending, version, NULL)));
    undo_rewind(&b->undo, version, &b->rows);
    undo_rewind(&b->undo_pending, version, &b->pending);
    b->version = b->first = version;
done:
    return st;
}

static bool has_older(const struct bucket *b)
{
    return b->config.keeps_previous || b->n_holds > 0;
}

enum status bucket_begin(struct bucket *b, size_t n_changes, size_t n_new)
{
    enum status st = row_table_reserve(&b->rows, n_new);
    if (st == ST_OK && has_older(b))
        st = undo_begin(&b->undo, n_changes);
    return st;
}

enum status bucket_begin_pending(struct bucket *b, size_t n_changes, size_t n_new)
{
    enum status st = row_table_reserve(&b->pending, n_new);
    if (st == ST_OK && has_older(b))
        st = undo_begin(&b->undo_pending, n_changes);
    if (st != ST_OK)
        undo_cancel(&b->undo);
    return st;
}

struct row *bucket_change(struct bucket *b, uint64_t key, struct row *row)
{
    bool is_new = !row || bucket_is_expired(&b->config, row->step, b->version);
    if (row) {
        undo_record(&b->undo, row);
    } else {
        undo_record_absent(&b->undo, key);
        row = row_table_add(&b->rows, key);
    }
    if (is_new) {
        float room[OPTIM_ROWS_MAX_DIM];
        bool is_float = b->config.dtype == DTYPE_F32;
        bucket_initial(&b->config, key, is_float ? row->data : room);
        if (!is_float)
            bucket_set_values(b, row, room);
        memset(bucket_slots(b, row), 0, b->n_slots * sizeof *row->data);
    }
    row->step = b->version + 1;
    return row;
}

void bucket_remove(struct bucket *b, struct row *row)
{
    undo_record(&b->undo, row);
    row_table_remove(&b->rows, row);
    b->n_removed++;
}

uint64_t bucket_pending_count(const struct row *entry)
{
    uint64_t count;
    memcpy(&count, entry->data, sizeof count);
    return count;
}

void bucket_count_pending(struct bucket *b, uint64_t key, struct row *entry)
{
    uint64_t count = 1;
    if (entry) {
        undo_record(&b->undo_pending, entry);
        if (!bucket_is_expired(&b->config, entry->step, b->version))
            count += bucket_pending_count(entry);
    } else {
        undo_record_absent(&b->undo_pending, key);
        entry = row_table_add(&b->pending, key);
    }
    memcpy(entry->data, &count, sizeof count);
    entry->step = b->version + 1;
}

void bucket_remove_pending(struct bucket *b, struct row *entry)
{
    undo_record(&b->undo_pending, entry);
    row_table_remove(&b->pending, entry);
}

void bucket_end(struct bucket *b)
{
    uint64_t needed[BUCKET_MAX_HOLDS + 1];
    b->version++;
    int n = needed_versions(b, b->version, needed);
    undo_end(&b->undo, b->version, needed, n);
    undo_end(&b->undo_pending, b->version, needed, n);
}
