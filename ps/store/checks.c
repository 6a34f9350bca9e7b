/* ps/store/checks.c - see checks.h. The cheapest check is made first. */
#include "ps/store/checks.h"
#include "net/wire/fragments.h"
#include "net/wire/job_rates.h"
#include "ps/store/answers.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Returns true if the member may send; otherwise *answer contains the reason. */
static bool check_sender(struct store *s, const struct net_frame_head *head,
                         struct store_answer *answer)
{
    if (head->generation != s->cfg.generation) {
        answer->kind = PIECE_REBASE;
        return false;
    }
    if (head->member >= (uint32_t)s->n_members) {
        answer_refuse(answer, "member %" PRIu32 " is out of range: the job has %d members",
                      head->member, s->n_members);
        return false;
    }
    uint64_t known = atomic_load(&s->incarnation[head->member]);
    if (known == 0) {
        answer_refuse(answer, "member %" PRIu32 " has not joined", head->member);
        return false;
    }
    if (head->incarnation != known) {
        answer_refuse(answer, "another process has joined as this worker");
        answer->replaced = 1;
        return false;
    }
    return true;
}

/* Returns the dtype that the payload of this piece must have. */
static enum dtype wanted_dtype(const struct store *s, const struct chunk_state *c,
                               const struct net_piece *piece)
{
    if (piece->kind == PIECE_PUSH)
        return c->sum.dtype;
    int whole = piece->kind != PIECE_PULL || dtype_block(c->version_dtype) > 1;
    return whole || piece->dtype == DTYPE_F32 ? DTYPE_F32 : c->version_dtype;
}

/* Returns true if the piece may have its marks of missing gradients, which are copied to
 * `lacking`, or has no marks; otherwise *answer contains the reason. */
static bool check_lacking(const struct store *s, const struct chunk_state *c,
                          const struct net_piece *piece, uint8_t lacking[LACKING_MAX_BYTES],
                          struct store_answer *answer)
{
    size_t bytes = piece->lacking.bytes;
    bool fits = bytes == lacking_bytes(c->n_params) && bytes <= LACKING_MAX_BYTES;
    if (bytes == 0)
        return true;
    if (fits)
        payload_copy(&piece->lacking, lacking);
    if (!fits || !lacking_is_valid(lacking, c->n_params))
        answer_refuse(answer,
                      "chunk %" PRIu32 ": the marks of missing gradients do not fit %d parameters",
                      piece->chunk, c->n_params);
    else if (piece->kind != PIECE_PUSH || piece->weight == 0)
        answer_refuse(answer,
                      "chunk %" PRIu32 ": only a PUSH with a weight marks missing gradients",
                      piece->chunk);
    else if (c->param->rule == PARAM_AVERAGE && !net_param_is_frozen(c->param))
        answer_refuse(answer,
                      "chunk %" PRIu32
                      ": '%.60s' is a statistic, and has no gradient that can be marked as missing",
                      piece->chunk, c->param->name);
    else if (s->cfg.outer)
        answer_refuse(
            answer, "chunk %" PRIu32 ": a region needs a gradient for every parameter: push zeros",
            piece->chunk);
    return answer->kind == PIECE_NONE;
}

/* Returns true if a piece to a bucket has the kind and counts that it may have; otherwise *answer
 * contains the reason. Finds the parts of its payload. */
static bool check_bucket(const struct store *s, const struct chunk_state *c,
                         const struct net_piece *piece, struct rows_parts *parts,
                         struct store_answer *answer)
{
    const struct net_table *t = c->rows->table;
    const char *no_kind = piece->kind == PIECE_INIT           ? "first values, as it begins empty"
                          : piece->kind == PIECE_PULL_AVERAGE ? "averages"
                                                              : NULL;
    char why[ROWS_WHY_BYTES];
    if (no_kind)
        answer_refuse(answer, "table '%.60s', bucket %d: a bucket has no %s", t->name,
                      c->rows->number, no_kind);
    else if (piece->kind == PIECE_PUSH && t->optimizer.kind == OPTIM_ROWS_FTRL &&
             piece_rate(piece) != 1)
        answer_refuse(
            answer,
            "table '%.60s', bucket %d: factor %g of the learning rate must be 1, as ftrl needs a constant one",
            t->name, c->rows->number, (double)piece_rate(piece));
    else if (rows_split(s->cfg.chunks, piece, parts, why) != ST_OK)
        answer_refuse(answer, "%s", why);
    return answer->kind == PIECE_NONE;
}

/* Returns true if the payload of a piece fits a chunk that has parameters; otherwise *answer
 * contains the reason. lacking: the piece's marks of missing gradients; NULL: none. */
static bool check_dense(const struct store *s, const struct chunk_state *c,
                        const struct net_piece *piece, const uint8_t *lacking,
                        struct store_answer *answer)
{
    bool lacks_all = lacking && lacking_all(lacking, c->n_params);
    bool is_empty = piece->kind == PIECE_PUSH && (piece->weight == 0 || lacks_all);
    bool pulls = piece->kind == PIECE_PULL || piece->kind == PIECE_PULL_AVERAGE;
    size_t want = pulls || is_empty ? 0 : dtype_bytes(piece->dtype, c->n);
    if (piece->rows || piece->reads)
        answer_refuse(answer, "chunk %" PRIu32 " has parameters, which have no keys", piece->chunk);
    else if (piece->payload.bytes != want)
        answer_refuse(answer, "chunk %" PRIu32 ": payload of %zu bytes, not %zu", piece->chunk,
                      piece->payload.bytes, want);
    else if (piece->kind == PIECE_PULL_AVERAGE && s->job.optim.ema_decay <= 0)
        answer_refuse(answer, "chunk %" PRIu32 ": the job has no averages (ema_decay)",
                      piece->chunk);
    return answer->kind == PIECE_NONE;
}

enum { NAME_BYTES = 96 };

/* Writes the name of a chunk for a refusal, and returns it. */
static const char *name_of(const struct chunk_state *c, char text[NAME_BYTES])
{
    if (c->rows)
        snprintf(text, NAME_BYTES, "table '%.60s', bucket %d", c->rows->table->name,
                 c->rows->number);
    else
        snprintf(text, NAME_BYTES, "chunk %d", c->chunk);
    return text;
}

/* Returns true if the kind of the piece, and the dtype of its payload, fit the chunk; otherwise
 * *answer contains the reason. */
static bool check_kind(const struct store *s, const struct chunk_state *c,
                       const struct net_piece *piece, struct store_answer *answer)
{
    enum dtype dtype = wanted_dtype(s, c, piece);
    char name[NAME_BYTES];
    if (piece->kind != PIECE_PULL && piece->kind != PIECE_PULL_AVERAGE &&
        piece->kind != PIECE_PUSH && piece->kind != PIECE_INIT)
        answer_refuse(answer, "unknown kind of piece: %d; there are push, pull and init",
                      (int)piece->kind);
    else if (piece->dtype != dtype)
        answer_refuse(answer, "%s: dtype %d, not %s", name_of(c, name), (int)piece->dtype,
                      dtype_name(dtype));
    return answer->kind == PIECE_NONE;
}

/* Returns true if the other fields of the piece are valid; otherwise *answer contains the reason.
 */
static bool check_fields(const struct store *s, const struct chunk_state *c,
                         const struct net_piece *piece, struct store_answer *answer)
{
    char name[NAME_BYTES];
    const char *no_rate = job_rates_step_problem(&s->job, s->cfg.outer != NULL);
    if (piece->step > INT64_MAX)
        answer_refuse(answer, "%s: step %" PRIu64 " is too large", name_of(c, name), piece->step);
    else if (piece->kind == PIECE_PUSH && piece->weight != 0 &&
             /* not a positive normal number, by which the mean could be divided */
             !(isnormal(piece->weight) && piece->weight > 0))
        answer_refuse(answer, "%s: weight %g must be 0, or finite and at least %g",
                      name_of(c, name), (double)piece->weight, (double)FLT_MIN);
    else if (piece->kind == PIECE_PUSH && !optim_factor_ok(piece_rate(piece)))
        answer_refuse(answer, "%s: factor %g of the learning rate must be 0 or above",
                      name_of(c, name), (double)piece_rate(piece));
    else if (piece->kind == PIECE_PUSH && no_rate && piece_rate(piece) != 1)
        answer_refuse(answer, "%s: %s", name_of(c, name), no_rate);
    else if (piece->weight != 0 && piece->kind == PIECE_PUSH &&
             !fragments_turn(&s->job, s->fragment, c->chunk, (int64_t)piece->step))
        answer_refuse(answer, "%s is not due at step %" PRIu64 ": its weight must be 0",
                      name_of(c, name), piece->step);
    else if (piece->payload.bytes && !piece->unsummed &&
             payload_crc32c(&piece->payload) != piece->crc32c)
        answer_refuse(answer, "%s: payload does not match its crc32c", name_of(c, name));
    return answer->kind == PIECE_NONE;
}

struct chunk_state *check_piece(struct store *s, const struct net_frame_head *head,
                                const struct net_piece *piece, uint8_t lacking[LACKING_MAX_BYTES],
                                struct rows_parts *parts, struct store_answer *answer)
{
    if (!check_sender(s, head, answer))
        return NULL;
    if (piece->chunk >= (uint32_t)s->cfg.chunks->n_chunks) {
        answer_refuse(answer, "chunk %" PRIu32 " is out of range: the model has %d chunks",
                      piece->chunk, s->cfg.chunks->n_chunks);
        return NULL;
    }
    if (s->shelf_of[piece->chunk] < 0) {
        answer->kind = PIECE_WRONG_SHARD;
        return NULL;
    }
    struct chunk_state *c = &s->owned[s->shelf_of[piece->chunk]];
    if (!check_lacking(s, c, piece, lacking, answer) || !check_kind(s, c, piece, answer))
        return NULL;
    const uint8_t *marks = piece->lacking.bytes ? lacking : NULL;
    bool fits = c->rows ? check_bucket(s, c, piece, parts, answer)
                        : check_dense(s, c, piece, marks, answer);
    return fits && check_fields(s, c, piece, answer) ? c : NULL;
}

bool check_zeros(const struct store *s, const struct chunk_state *c, const struct net_piece *piece,
                 const uint8_t *lacking, struct store_answer *answer)
{
    if (!lacking || piece->payload.bytes == 0)
        return true;
    int k = lacking_first_filled(s->cfg.chunks, c->chunk, lacking, &piece->payload, piece->dtype);
    if (k >= 0)
        answer_refuse(answer,
                      "chunk %" PRIu32
                      ": the gradient of '%.60s' is marked as missing, but is not 0 in the payload",
                      piece->chunk, c->param[k].name);
    return k < 0;
}
