/* tests/fuzz_frame.c - libFuzzer target: runs frame_decode and the payload readers on any bytes,
 * cut into spans at a position that the input chooses, and the search for values of gradients that
 * are marked as missing. A frame that can be decoded must have the same contents if its bytes are
 * in one span. */
#include "net/wire/frame.h"
#include "net/wire/lacking.h"
#include "net/wire/rows.h"
#include "tests/fuzz.h"
#include <stdlib.h>
#include <string.h>

struct digest {
    uint64_t sum;
    size_t runs;
};

static void add_run(void *ctx, size_t first, const void *src, size_t n)
{
    struct digest *d = ctx;
    const uint8_t *p = src;
    for (size_t i = 0; i < n * sizeof(float); i++)
        d->sum = d->sum * 31 + p[i];
    d->runs = first + n;
}

/* Returns the result of the search in a chunk of three parameters. */
static int first_filled(const struct net_piece *piece)
{
    size_t n = piece->payload.bytes / dtype_bytes(piece->dtype, 1);
    struct net_param params[] = {
        {.first = 0}, {.first = (int64_t)(n / 3)}, {.first = (int64_t)(2 * (n / 3))}};
    struct net_chunk chunk = {.n_elems = (int64_t)n};
    const struct chunks chunks = {
        .n_chunks = 1, .n_dense = 1, .chunks = &chunk, .n_params = 3, .params = params};
    uint8_t marks;
    payload_copy(&piece->lacking, &marks);
    return lacking_first_filled(&chunks, 0, &marks, &piece->payload, piece->dtype);
}

/* Splits the piece as one to the bucket of a table of rows with two floats. Returns a digest of the
 * parts, or of the refusal. */
static uint64_t split(struct net_piece piece)
{
    struct net_table table = {
        .name = "t", .dim = 2, .n_buckets = 1, .max_rows = 1000, .step_rows = 1000};
    struct net_chunk bucket = {.param = -1};
    const struct chunks chunks = {
        .n_chunks = 1, .chunks = &bucket, .n_tables = 1, .tables = &table};
    struct rows_parts parts;
    char why[ROWS_WHY_BYTES];
    piece.chunk = 0;
    if (rows_split(&chunks, &piece, &parts, why) != ST_OK)
        return strlen(why);
    if (parts.keys.bytes + parts.reads.bytes + parts.values.bytes != piece.payload.bytes)
        abort();
    return payload_crc32c(&parts.keys) * (uint64_t)31 + payload_crc32c(&parts.reads) * 7 +
           payload_crc32c(&parts.values);
}

static enum status on_piece(void *ctx, const struct net_frame_head *head,
                            const struct net_piece *piece)
{
    struct digest *d = ctx;
    d->sum = d->sum * 31 + (uint64_t)piece->kind + piece->chunk + piece->step + piece->crc32c;
    d->sum = d->sum * 31 + payload_crc32c(&piece->payload) + strlen(piece->why);
    d->sum = d->sum * 31 + piece->shared_offset + piece->shared_bytes + (uint64_t)piece->shared +
             piece->shared_stamp + (uint64_t)piece->placed;
    float rate = piece_rate(piece);
    uint32_t rate_bits;
    memcpy(&rate_bits, &rate, sizeof rate_bits);
    d->sum = d->sum * 31 + rate_bits;
    d->sum = d->sum * 31 + payload_crc32c(&piece->lacking) + piece->lacking.bytes;
    d->sum = d->sum * 31 + piece->rows + piece->reads;
    if (piece->dtype < DTYPE_INT8)
        d->sum = d->sum * 31 + split(*piece);
    if (piece->dtype < DTYPE_INT8 && piece->lacking.bytes == 1 && piece->payload.bytes >= 12 &&
        piece->payload.bytes % 4 == 0)
        d->sum = d->sum * 31 + (uint64_t)first_filled(piece);
    if (piece->payload.bytes % sizeof(float) == 0) {
        payload_each_run(&piece->payload, DTYPE_F32, piece->payload.bytes / sizeof(float), 1,
                         add_run, d);
        if (d->runs != piece->payload.bytes / sizeof(float) && piece->payload.bytes > 0)
            abort();
        void *copy = malloc(piece->payload.bytes + 1);
        if (copy)
            payload_copy(&piece->payload, copy);
        free(copy);
    }
    return ST_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    size_t cut = (size_t)data[0] * (bytes - 2) / 255;
    size_t step = data[1] % 17;
    data += 2;
    bytes -= 2;
    struct net_span whole = {data, bytes}, spans[64];
    size_t n = 0, at = 0;
    spans[n++] = (struct net_span){data, at = cut};
    while (n < 63 && step > 0 && at + step < bytes) {
        spans[n++] = (struct net_span){data + at, step};
        at += step;
    }
    spans[n++] = (struct net_span){data + at, bytes - at};
    struct net_frame_head h1 = {0, 0, 0}, h2 = {0, 0, 0};
    struct digest d1 = {0, 0}, d2 = {0, 0};
    char why[128];
    enum status a = frame_decode(&whole, 1, &h1, on_piece, &d1, why, sizeof why);
    enum status b = frame_decode(spans, n, &h2, on_piece, &d2, why, sizeof why);
    if (a != b || (a == ST_OK && (d1.sum != d2.sum || h1.incarnation != h2.incarnation)))
        abort();
    return 0;
}
