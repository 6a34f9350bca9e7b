/* tests/store_rig.c - see store_rig.h. */
#include "tests/store_rig.h"
#include "base/digest.h"
#include "base/rng.h"
#include "tests/check.h"
#include <stdio.h>
#include <string.h>

static void drop(void *ctx, const struct net_frame_head *head, uint64_t from,
                 const struct store_answer *answer)
{
}

struct store *store_rig_open(const struct store_config *cfg, int n_members, uint64_t incarnation)
{
    struct store_config c = *cfg;
    struct store *s;
    if (c.max_bytes == 0)
        c.max_bytes = 1 << 20;
    if (c.answer == NULL)
        c.answer = drop;
    assert_int_equal(store_create(&c, &s), ST_OK);
    for (int m = 0; m < n_members; m++)
        store_admit(s, m, incarnation + (uint64_t)m);
    return s;
}

float store_rig_number(int member, int64_t step, int64_t elem)
{
    return rng_uniform(rng_key((uint64_t)member, RNG_TEST, (uint64_t)step), (uint64_t)elem) - 0.5f;
}

struct store_answer store_rig_send(struct store *s, const struct net_frame_head *head,
                                   struct net_piece piece, const void *data, int64_t now_ns)
{
    const size_t bytes = piece.payload.bytes, cut = bytes ? bytes / 2 | 1 : 0;
    const struct net_span spans[2] = {{data, cut}, {(const uint8_t *)data + cut, bytes - cut}};
    struct store_answer a;
    piece.payload = (struct net_payload){spans, 0, bytes};
    if (!piece.unsummed)
        piece.crc32c = digest_crc32c(0, data, bytes);
    store_piece(s, head, &piece, 1 + (uint64_t)head->member, now_ns, &a);
    if (a.kind == PIECE_REFUSED && a.why != a.text)
        snprintf(a.text, sizeof a.text, "%s", a.why);
    a.why = NULL; /* it would point to a local variable */
    return a;
}

enum piece_kind store_rig_act(struct store *s, const struct net_frame_head *head,
                              struct net_piece piece, const void *data, int64_t now_ns)
{
    struct store_answer a = store_rig_send(s, head, piece, data, now_ns);
    buf_unref(a.payload);
    return a.kind;
}

void store_rig_read(struct store *s, const struct net_chunk *chunk, int number, int64_t version,
                    float *out)
{
    int64_t v = -1;
    struct buf *b = store_read(s, number, &v);
    assert_non_null(b);
    assert_int_equal(v, version);
    assert_int_equal(b->bytes, (size_t)chunk->n_elems * sizeof *out);
    memcpy(out, b->data, b->bytes);
    buf_unref(b);
}

void store_rig_read_all(struct store *s, const struct chunks *chunks, int64_t version, float *out)
{
    for (int c = 0; c < chunks->n_chunks; c++)
        store_rig_read(s, &chunks->chunks[c], c, version, out + chunks->chunks[c].first);
}
