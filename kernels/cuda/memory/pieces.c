/* kernels/cuda/memory/pieces.c - computes with ranges of host memory: whole pages, joined ranges,
 * and the head, middle and tail of a tensor. */
#include "kernels/cuda/memory/pieces.h"
#include <stdlib.h>

struct gpu_range gpu_pieces_whole_pages(struct gpu_range r, uintptr_t page_bytes)
{
    struct gpu_range in = {(r.first + page_bytes - 1) / page_bytes * page_bytes,
                           r.end / page_bytes * page_bytes};
    if (in.end <= in.first)
        in.first = in.end = 0;
    return in;
}

static int by_first(const void *a, const void *b)
{
    uintptr_t x = ((const struct gpu_range *)a)->first, y = ((const struct gpu_range *)b)->first;
    return x < y ? -1 : x > y;
}

int gpu_pieces_join_ranges(struct gpu_range *r, int n, uintptr_t gap)
{
    int kept = 0;
    if (n == 0)
        return 0;
    qsort(r, (size_t)n, sizeof *r, by_first);
    for (int i = 1; i < n; i++) {
        if (r[i].first <= r[kept].end || r[i].first - r[kept].end <= gap)
            r[kept].end = r[i].end > r[kept].end ? r[i].end : r[kept].end;
        else
            r[++kept] = r[i];
    }
    return kept + 1;
}

struct gpu_pieces gpu_pieces_of(const void *host, int64_t elems, size_t size,
                                struct gpu_range pinned)
{
    uintptr_t first = (uintptr_t)host, end = first + (uintptr_t)elems * size;
    uintptr_t from = pinned.first > first ? pinned.first : first;
    uintptr_t to = pinned.end < end ? pinned.end : end;
    if (to <= from)
        return (struct gpu_pieces){elems, 0, 0};
    struct gpu_pieces p;
    p.head = (int64_t)((from - first) / size);
    p.middle = (int64_t)((to - from) / size);
    p.tail = elems - p.head - p.middle;
    return p;
}
