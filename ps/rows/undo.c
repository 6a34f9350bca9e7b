/* ps/rows/undo.c - see undo.h. A log is an array of records in ascending order of keys; a record
 * has the layout of a row. The logs join without gaps: each begins at the version at which the next
 * older one ends. For any needed version, the record of a key in the oldest log after it counts.
 *
 * If a row's content has a step after the needed version, an older record of the row exists,
 * because the change in that step recorded it. So the record is not needed, and `drop_repeated`
 * removes it. */
#include "ps/rows/undo.h"
#include <stdbool.h>
#include <stdlib.h>

struct undo_log {
    struct undo_log *older;
    uint64_t from, to; /* the log turns version `to` into version `from` */
    size_t n, capacity;
    bool is_sorted;
    uint64_t cleaned; /* needed version for which drop_repeated ran; ROW_ABSENT: none */
    char records[];
};

static struct row *record_at(const struct undo *u, const struct undo_log *log, size_t i)
{
    return (struct row *)(void *)((char *)log->records + i * u->row_bytes);
}

static struct undo_log *log_create(const struct undo *u, size_t capacity)
{
    struct undo_log *log = malloc(sizeof *log + capacity * u->row_bytes);
    if (log)
        *log = (struct undo_log){.capacity = capacity, .is_sorted = true, .cleaned = ROW_ABSENT};
    return log;
}

void undo_init(struct undo *u, size_t row_bytes)
{
    *u = (struct undo){.row_bytes = row_bytes};
}

/* Frees a log, or keeps it for the next version if its size is similar. */
static void log_free(struct undo *u, struct undo_log *log)
{
    if (u->spare || log->capacity > 2 * u->last_n + 64)
        free(log);
    else
        u->spare = log;
}

static void free_from(struct undo *u, struct undo_log **link)
{
    struct undo_log *next;
    for (struct undo_log *log = *link; log; log = next) {
        next = log->older;
        log_free(u, log);
    }
    *link = NULL;
}

void undo_destroy(struct undo *u)
{
    free_from(u, &u->newest);
    free(u->open);
    free(u->spare);
    undo_init(u, u->row_bytes);
}

enum status undo_begin(struct undo *u, size_t n)
{
    struct undo_log *log = u->spare;
    u->spare = NULL;
    if (!log || log->capacity < n) {
        free(log);
        log = log_create(u, n + n / 4);
        if (!log)
            return ST_NOMEM;
    }
    log->n = 0;
    log->is_sorted = true;
    log->cleaned = ROW_ABSENT;
    u->last_n = n;
    u->open = log;
    return ST_OK;
}

static struct row *append(struct undo *u, uint64_t key)
{
    struct undo_log *log = u->open;
    if (log->n > 0 && record_at(u, log, log->n - 1)->key > key)
        log->is_sorted = false;
    CHECK(log->n < log->capacity);
    return record_at(u, log, log->n++);
}

void undo_record(struct undo *u, const struct row *row)
{
    if (u->open)
        memcpy(append(u, row->key), row, u->row_bytes);
}

void undo_record_absent(struct undo *u, uint64_t key)
{
    if (!u->open)
        return;
    struct row *record = append(u, key);
    record->key = key;
    record->step = ROW_ABSENT;
}

void undo_cancel(struct undo *u)
{
    if (u->open)
        log_free(u, u->open);
    u->open = NULL;
}

/* Removes the records of rows that have an older record since version `needed`. */
static void drop_repeated(const struct undo *u, struct undo_log *log, uint64_t needed)
{
    size_t kept = 0;
    if (log->cleaned == needed)
        return;
    for (size_t i = 0; i < log->n; i++) {
        const struct row *record = record_at(u, log, i);
        if (record->step != ROW_ABSENT && record->step > needed)
            continue;
        if (kept != i)
            memcpy(record_at(u, log, kept), record, u->row_bytes);
        kept++;
    }
    log->n = kept;
    log->cleaned = needed;
}

/* Returns a log with the records of both; if both have a key, the older record stays. NULL: there
 * is no memory, and both are unchanged. */
static struct undo_log *join(struct undo *u, struct undo_log *older, struct undo_log *newer)
{
    struct undo_log *log = log_create(u, older->n + newer->n);
    size_t i = 0, k = 0;
    if (!log)
        return NULL;
    while (i < older->n || k < newer->n) {
        const struct row *a = i < older->n ? record_at(u, older, i) : NULL;
        const struct row *b = k < newer->n ? record_at(u, newer, k) : NULL;
        bool takes_older = a && (!b || a->key <= b->key);
        if (a && b && a->key == b->key)
            k++;
        memcpy(record_at(u, log, log->n++), takes_older ? a : b, u->row_bytes);
        if (takes_older)
            i++;
        else
            k++;
    }
    log->from = older->from;
    log->to = newer->to;
    log->older = older->older;
    log->cleaned = newer->cleaned;
    log_free(u, older);
    log_free(u, newer);
    return log;
}

void undo_settle(struct undo *u, const uint64_t *needed, int n_needed)
{
    struct undo_log **link = &u->newest;
    while (*link && n_needed > 0 && (*link)->from >= needed[0])
        link = &(*link)->older;
    free_from(u, link);
    int k = n_needed - 1; /* the last needed version that is not after the log's begin */
    for (link = &u->newest; *link && (*link)->older;) {
        struct undo_log *log = *link, *joined = NULL;
        while (needed[k] > log->from)
            k--;
        if (needed[k] != log->from) {
            drop_repeated(u, log, needed[k]);
            if (log->older->n <= 2 * log->n || log->n == 0)
                joined = join(u, log->older, log);
        }
        if (joined)
            *link = joined;
        else
            link = &log->older;
    }
}

void undo_end(struct undo *u, uint64_t version, const uint64_t *needed, int n_needed)
{
    struct undo_log *log = u->open;
    if (!log)
        return;
    if (!log->is_sorted)
        qsort(log->records, log->n, u->row_bytes, row_table_compare_keys);
    log->from = version - 1;
    log->to = version;
    log->older = u->newest;
    u->newest = log;
    u->open = NULL;
    undo_settle(u, needed, n_needed);
}

/* Returns the place of the first record from `at` on whose key is not below `key`. */
static size_t search(const struct undo *u, const struct undo_log *log, size_t at, uint64_t key)
{
    size_t step = 1, end = at;
    while (end < log->n && record_at(u, log, end)->key < key) {
        at = end + 1;
        end += step;
        step *= 2;
    }
    end = end < log->n ? end : log->n;
    while (at < end) {
        size_t middle = at + (end - at) / 2;
        if (record_at(u, log, middle)->key < key)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

void undo_find(const struct undo *u, uint64_t version, const void *keys, size_t n,
               struct row **rows)
{
    for (const struct undo_log *log = u->newest; log && log->from >= version; log = log->older) {
        size_t at = 0;
        for (size_t i = 0; i < n && at < log->n; i++) {
            at = search(u, log, at, row_key_at(keys, i));
            if (at < log->n && record_at(u, log, at)->key == row_key_at(keys, i))
                rows[i] = record_at(u, log, at);
        }
    }
}

static void restore_row(const struct undo *u, const struct row *record, struct row_table *rows)
{
    struct row *row;
    row_table_find(rows, &record->key, 1, &row);
    if (record->step == ROW_ABSENT) {
        if (row)
            row_table_remove(rows, row);
        return;
    }
    if (!row)
        row = row_table_add(rows, record->key);
    memcpy(row, record, u->row_bytes);
}

void undo_rewind(struct undo *u, uint64_t version, struct row_table *rows)
{
    while (u->newest && u->newest->from >= version) {
        struct undo_log *log = u->newest;
        for (size_t i = 0; i < log->n; i++)
            restore_row(u, record_at(u, log, i), rows);
        u->newest = log->older;
        log_free(u, log);
    }
}

size_t undo_keys(const struct undo *u, uint64_t version, uint64_t *keys)
{
    size_t n = 0;
    for (const struct undo_log *log = u->newest; log && log->from >= version; log = log->older)
        for (size_t i = 0; i < log->n; i++, n++)
            if (keys)
                keys[n] = record_at(u, log, i)->key;
    return n;
}

size_t undo_bytes(const struct undo *u)
{
    size_t bytes = 0;
    for (const struct undo_log *log = u->newest; log; log = log->older)
        bytes += sizeof *log + log->capacity * u->row_bytes;
    if (u->spare)
        bytes += sizeof *u->spare + u->spare->capacity * u->row_bytes;
    return bytes;
}
