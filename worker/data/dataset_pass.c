/* worker/data/dataset_pass.c - advises the system about the pages of a set that is read once, in
 * order: the pages of the next block are needed soon, and the pages of the previous block are not
 * needed any more. */
#include "worker/data/dataset_pass.h"
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK_BYTES = 8 << 20 };

/* Advises about the pages of samples first .. end - 1, which the file stores in this order. The
 * advice also affects pages that contain other samples too; this only changes the time at which the
 * system reads these samples from the disk. */
static void advise(const struct dataset *d, int64_t first, int64_t end, int advice)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
    if (!d->in_file || first >= end)
        return;
    uintptr_t from = (uintptr_t)dataset_place(d, first, &bytes);
    uintptr_t to = (uintptr_t)dataset_place(d, end - 1, &bytes) + bytes;
    from -= from % page;
    (void)madvise((void *)from, to - from, advice);
}

static int64_t sample_bytes(const struct dataset *d)
{
    return shape_elems(&d->sample) * (d->bytes ? 1 : (int64_t)sizeof(float));
}

void dataset_pass_begin(struct dataset_pass *p, const struct dataset *d, const char *what)
{
    p->d = d;
    p->first = p->end = 0;
    p->step = BLOCK_BYTES / sample_bytes(d) + 1;
    reading_begin(&p->reading, d->progress, d->path, what, "GB");
    advise(d, 0, d->n, MADV_SEQUENTIAL);
}

int dataset_pass_next(struct dataset_pass *p)
{
    double gb = (double)sample_bytes(p->d) / 1e9;
    advise(p->d, p->first, p->end, MADV_DONTNEED);
    if (p->end > 0)
        reading_at(&p->reading, (double)p->end * gb, (double)p->d->n * gb);
    p->first = p->end;
    p->end = p->d->n - p->first < p->step ? p->d->n : p->first + p->step;
    return p->first < p->end;
}

void dataset_pass_end(struct dataset_pass *p)
{
    advise(p->d, p->first, p->end, MADV_DONTNEED);
    advise(p->d, 0, p->d->n, MADV_NORMAL);
    reading_end(&p->reading);
}
