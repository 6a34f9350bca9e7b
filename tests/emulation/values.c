/* tests/emulation/values.c - see the header. */
#include "tests/emulation/values.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/machine.h"

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer would record each byte that memset() writes, as in an allocation. So this loop
 * fills the words. */
void emulation_fill_nan(void *at, size_t bytes)
{
    volatile uint64_t *word = at;
    size_t n = bytes / sizeof *word;
    for (size_t i = 0; i < n; i++)
        word[i] = UINT64_MAX;
    memset((char *)at + n * sizeof *word, 0xff, bytes - n * sizeof *word);
}
#else
void emulation_fill_nan(void *at, size_t bytes)
{
    memset(at, 0xff, bytes);
}
#endif

void emulation_handle_init(struct emulation_handle *h)
{
    int major, minor;
    h->device = emulation_device();
    emulation_capability(h->device, &major, &minor);
    h->sees_bf16 = major >= 8;
}

void emulation_handle_begin(struct emulation_handle *h)
{
    if (h->device != emulation_device())
        emulation_fail("a library's handle of another device than the current one");
    if (h->stream == NULL || emulation_stream_device(h->stream) != h->device)
        emulation_fail("a library's handle without a stream of its device");
    if (h->busy++ != 0)
        emulation_fail("a library's handle used by two threads at once");
}

void emulation_handle_end(struct emulation_handle *h)
{
    h->busy--;
}

double emulation_soundness(void)
{
    return emulation_is_wrong(emulation_device()) ? 1.001 : 1.0;
}

void emulation_check_scale(const void *alpha, const void *beta)
{
    if (*(const float *)alpha != 1.0f || *(const float *)beta != 0.0f)
        emulation_fail("a factor that is not 1 and 0");
}

enum { WORK_FILLED_BYTES = 1 << 16 }; /* at both ends, since the ends show a wrong position */

static void work_begin(const void *args)
{
    const struct emulation_work *w = args;
    size_t n = w->bytes < WORK_FILLED_BYTES ? w->bytes : WORK_FILLED_BYTES;
    emulation_fill_nan(w->at, n);
    emulation_fill_nan((char *)w->at + w->bytes - n, n);
    if (w->bytes >= sizeof w->mark)
        memcpy(w->at, &w->mark, sizeof w->mark);
}

void emulation_work_queue(cudaStream_t s, void *at, size_t bytes, struct emulation_work *out)
{
    static _Atomic uint64_t n_marks;
    *out = (struct emulation_work){at, bytes, ++n_marks};
    if (bytes > 0)
        emulation_do_more(s, work_begin, out, sizeof *out);
}

void emulation_work_check(const struct emulation_work *w)
{
    if (w->bytes >= sizeof w->mark && memcmp(w->at, &w->mark, sizeof w->mark) != 0)
        emulation_fail("two products have one workspace at the same time");
}
