/* tests/fuzz_libweir.c - libFuzzer target: calls functions of a libweir handle without servers.
 * Names, numbers, shapes and sizes out of bounds must be errors, and no step, push or sample may
 * read or write outside its memory. A job with tables ends at its first step, since it needs
 * servers. */
#include "libweir/weir_tables.h"
#include "member/dataset_order.h"
#include "tests/fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMS = 1 << 16, MOST_CALLS = 64, MOST_KEYS = 16 };
static const double TOO_MANY = 0x1p41; /* elements; smaller tensors would really be allocated */

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

/* Returns a small number or, rarely, one near the ends of its type. */
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
    static const char *const names[] = {
        "train_steps",    "batch_size",      "seed",
        "chunk_bytes",    "optimizer",       "momentum",
        "sync_mode",      "staleness",       "lr_boundaries",
        "wire_dtype",     "n_workers",       "task_index",
        "local_steps",    "clip_value",      "data_samples",
        "lr_schedule",    "lr_decay",        "lr_decay_steps",
        "outer_momentum", "own_local_steps", "replicas_to_aggregate"};
    char name[24], value[24];
    text(name, sizeof name);
    text(value, sizeof value);
    size_t i = byte();
    weir_set(w, i < sizeof names / sizeof *names ? names[i] : name, value);
}

static int write_first(void *ctx, int param, float *values)
{
    values[0] = (float)param;
    return ctx != NULL;
}

static void describe(struct weir *w)
{
    int64_t dims[6];
    double n = 1;
    char name[8];
    text(name, sizeof name);
    int n_dims = (int8_t)byte() % 9;
    for (int i = 0; i < 6; i++) {
        dims[i] = number();
        if (i < n_dims)
            n *= (double)dims[i];
    }
    if (n < MOST_ELEMS || n > TOO_MANY)
        weir_param(w, name, byte() % 8 == 7, n_dims, dims, NULL);
    weir_param_average(w, (int)number(), (double)byte() / 200);
    weir_param_first_values(w, byte() % 8 - 1, write_first, byte() == 1 ? w : NULL);
    weir_param_factors(w, byte() % 8 - 1, (double)byte() / 100 - 0.1, (double)byte() / 100 - 0.1);
}

static void add_table(struct weir *w)
{
    static const char *const names[] = {
        "buckets",     "step_rows",       "optimizer",     "learning_rate", "momentum",
        "beta1",       "epsilon",         "ftrl_beta",     "clip_value",    "lr_schedule",
        "lr_decay",    "lr_warmup_steps", "lr_boundaries", "init",          "init_scale",
        "admit_after", "evict_after",     "when_full",     "row_dtype"};
    char name[24], value[24];
    text(name, sizeof name);
    weir_table(w, name, (int)number(), number());
    for (int i = byte() % 4; i > 0; i--) {
        text(name, sizeof name);
        text(value, sizeof value);
        size_t k = byte();
        weir_table_set(w, byte() % 4 - 1, k < sizeof names / sizeof *names ? names[k] : name,
                       value);
    }
}

static void use_table(struct weir *w, float *rows)
{
    uint64_t keys[MOST_KEYS];
    int table = byte() % 4 - 1;
    int64_t n = number();
    for (int i = 0; i < MOST_KEYS; i++)
        keys[i] = weir_key(&i, byte() % 2 ? 0 : (int)sizeof i);
    if (n > MOST_KEYS && n <= INT32_MAX)
        return;
    switch (byte() % 3) {
    case 0:
        weir_lookup(w, table, keys, n, rows, 0);
        break;
    case 1:
        weir_next_keys(w, table, keys, n);
        break;
    default:
        weir_push_rows(w, table, keys, n, byte() % 2 ? rows : NULL, byte());
    }
}

/* Calls, rarely, a function after which most other calls return errors. */
static void end(struct weir *w)
{
    switch (byte()) {
    case 1:
        weir_goodbye(w);
        break;
    case 2:
        weir_cancel(w);
        break;
    case 3:
        weir_leave_failed(w, "an error");
        break;
    case 4:
        weir_fd(w);
        break;
    default:
        break;
    }
}

static void use(struct weir *w, float *gradient)
{
    struct weir_step s;
    struct weir_event e;
    int param = byte() % 16 > 0 ? byte() % 8 - 1 : (int)number();
    double samples = byte() < 200 ? byte() % 4 : (double)number();
    int64_t items = number();
    switch (byte() % 16) {
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
        if (items < MOST_ELEMS || items > DATASET_MAX_ITEMS)
            weir_sample(w, items, number());
        break;
    case 7:
        weir_next_event(w, &e);
        break;
    case 8:
        weir_push_values(w, param, gradient, samples);
        break;
    case 9:
        weir_push(w, param, NULL, samples);
        break;
    case 10:
        weir_leave_soon(w, 0);
        break;
    case 11:
        weir_step_rate(w, (double)byte() / 100 - 0.1);
        break;
    case 12:
        use_table(w, gradient);
        break;
    default:
        end(w);
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
    for (int i = byte() % 16 == 1 ? byte() % 4 : 0; i > 0; i--)
        add_table(w);
    struct weir_step s;
    weir_next(w, 1000, &s);
    for (int i = 0; i < MOST_CALLS && input.n > 0; i++)
        use(w, gradient);
    require(strlen(weir_error(w)) < 1024);
    weir_close(w);
    return 0;
}
