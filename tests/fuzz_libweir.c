/* tests/fuzz_libweir.c - whatever a program asks of libweir's handle, alone: names, numbers, shapes
 * and sizes out of bounds are errors, and no step, push or sample reads or writes where it must
 * not. */
#include "libweir/weir.h"
#include "tests/fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMS = 1 << 16, MOST_CALLS = 64 };

static struct {
    const uint8_t *at;
    size_t n;
} input;

static uint8_t byte(void)
{
    if (input.n == 0)
        return 0;
    input.n--;
    return *input.at++;
}

/* Small ones, and some near the ends of their type. */
static int64_t number(void)
{
    int64_t v = (int8_t)byte();
    return byte() < 240 ? v : v < 0 ? INT64_MIN - v : INT64_MAX - v;
}

static void text(char *to, size_t room)
{
    size_t n = byte() % room;
    for (size_t i = 0; i < n; i++)
        to[i] = (char)byte();
    to[n] = 0;
}

static void tell(struct weir *w)
{
    static const char *const names[] = {"train_steps",   "batch_size", "seed",        "chunk_bytes",
                                        "optimizer",     "momentum",   "sync_mode",   "staleness",
                                        "lr_boundaries", "wire_dtype", "n_workers",   "task_index",
                                        "local_steps",   "clip_value", "data_samples"};
    char name[24], value[24];
    text(name, sizeof name);
    text(value, sizeof value);
    size_t i = byte();
    weir_set(w, i < sizeof names / sizeof *names ? names[i] : name, value);
}

static void describe(struct weir *w)
{
    int64_t dims[6], n = 1;
    char name[8];
    text(name, sizeof name);
    int n_dims = (int8_t)byte() % 9;
    for (int i = 0; i < 6; i++) {
        dims[i] = number();
        if (i < n_dims && dims[i] > 0 && n < MOST_ELEMS)
            n *= dims[i] < MOST_ELEMS ? dims[i] : MOST_ELEMS;
    }
    if (n < MOST_ELEMS) /* else it takes memory for nothing */
        weir_param(w, name, byte() % 8 == 7, n_dims, dims, NULL);
    weir_param_average(w, (int)number(), (double)byte() / 200);
}

static void use(struct weir *w, float *gradient)
{
    struct weir_step s;
    struct weir_event e;
    int param = byte() % 8 - 1;
    double samples = byte() < 200 ? byte() % 4 : (double)number();
    switch (byte() % 8) {
    case 0:
        weir_next(w, 0, &s);
        break;
    case 1:
        weir_next_early(w, 1000, &s);
        break;
    case 2:
        weir_push(w, param, gradient, samples);
        break;
    case 3:
        weir_push(w, param, weir_gradient(w, param), samples);
        break;
    case 4:
        weir_wait(w, param, 0);
        break;
    case 5:
        weir_pull(w, param);
        break;
    case 6:
        weir_sample(w, byte(), number());
        break;
    case 7:
        weir_next_event(w, &e);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float *gradient;
    struct weir *w;
    if (!gradient)
        gradient = calloc(MOST_ELEMS, sizeof *gradient);
    if (!gradient || weir_open(&w) != WEIR_OK)
        abort();
    input.at = data;
    input.n = size;
    for (int i = byte() % 4; i > 0; i--)
        tell(w);
    for (int i = byte() % 8; i > 0; i--)
        describe(w);
    struct weir_step s;
    weir_next(w, 1000, &s);
    for (int i = 0; i < MOST_CALLS && input.n > 0; i++)
        use(w, gradient);
    require(strlen(weir_error(w)) < 1024);
    weir_close(w);
    return 0;
}
