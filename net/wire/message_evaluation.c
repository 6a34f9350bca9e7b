/* net/wire/message_evaluation.c - see message.h: what workers tell ps 0 of the validation data. */
#include "net/wire/message_impl.h"
#include <math.h>

enum status message_evaluation_pack(const struct net_evaluation *v, uint8_t **data, size_t *bytes)
{
    Weir__V1__EvaluateRequest wire = WEIR__V1__EVALUATE_REQUEST__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.generation = v->generation;
    wire.ps0 = v->ps0;
    wire.step = v->step;
    wire.part = (uint32_t)v->part;
    wire.parts = (uint32_t)v->n_parts;
    wire.samples = (uint64_t)v->n;
    wire.right = (uint64_t)v->right;
    wire.loss = v->loss;
    wire.set_samples = (uint64_t)v->data.n;
    wire.set_samples_crc32c = v->data.samples;
    wire.set_labels_crc32c = v->data.labels;
    wire.eval_every = (uint64_t)v->every;
    wire.early_stopping = (uint64_t)v->patience;
    wire.no_accuracy = v->no_accuracy != 0;
    return message_pack(&wire.base, data, bytes);
}

static enum status from_wire(const Weir__V1__EvaluateRequest *wire, struct net_evaluation *out,
                             char why[MESSAGE_WHY_BYTES])
{
    const uint64_t most = (uint64_t)MESSAGE_MAX_STEP;
    if (message_check_protocol(wire->protocol, why) != ST_OK)
        return ST_INVALID;
    if (wire->step < 0 || wire->step > MESSAGE_MAX_STEP || wire->eval_every > most ||
        wire->early_stopping > most)
        return message_invalid(why, "the step of an evaluation is out of bounds");
    if (wire->parts < 1 || wire->parts > JOB_MAX_WORKERS || wire->part >= wire->parts)
        return message_invalid(why, "an evaluation's part is none of its parts");
    if (wire->set_samples < 1 || wire->set_samples > most || wire->samples > wire->set_samples ||
        wire->right > wire->samples)
        return message_invalid(why, "the samples of an evaluation cannot be");
    *out = (struct net_evaluation){
        .generation = wire->generation,
        .ps0 = wire->ps0,
        .step = wire->step,
        .part = (int)wire->part,
        .n_parts = (int)wire->parts,
        .n = (int64_t)wire->samples,
        .right = (int64_t)wire->right,
        .loss = wire->loss,
        .data = {(int64_t)wire->set_samples, wire->set_samples_crc32c, wire->set_labels_crc32c},
        .every = (int64_t)wire->eval_every,
        .patience = (int64_t)wire->early_stopping,
        .no_accuracy = wire->no_accuracy != 0,
    };
    return ST_OK;
}

enum status message_evaluation_unpack(const uint8_t *data, size_t bytes,
                                      struct net_evaluation *evaluation,
                                      char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__EvaluateRequest *wire = weir__v1__evaluate_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the EvaluateRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = from_wire(wire, evaluation, why);
    weir__v1__evaluate_request__free_unpacked(wire, &b.allocator);
    return st;
}

enum status message_evaluation_reply_pack(const struct net_evaluation_reply *reply, uint8_t **data,
                                          size_t *bytes)
{
    Weir__V1__EvaluateReply wire = WEIR__V1__EVALUATE_REPLY__INIT;
    wire.again = reply->again != 0;
    wire.samples = (uint64_t)reply->n;
    wire.right = (uint64_t)reply->right;
    wire.loss = reply->loss;
    message_evaluation_best_to_wire(&reply->best, &wire.best, &wire.best_loss, &wire.best_accuracy);
    return message_pack(&wire.base, data, bytes);
}

enum status message_evaluation_reply_unpack(const uint8_t *data, size_t bytes,
                                            struct net_evaluation_reply *reply,
                                            char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    struct net_best best;
    enum status st = ST_OK;
    message_budget_init(&b);
    Weir__V1__EvaluateReply *wire = weir__v1__evaluate_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the EvaluateReply does not decode");
        return ST_PROTOCOL;
    }
    if (wire->samples > (uint64_t)MESSAGE_MAX_STEP || wire->right > wire->samples ||
        !message_evaluation_best_from_wire(wire->best, wire->best_loss, wire->best_accuracy, &best))
        st = message_invalid(why, "the figures of an EvaluateReply cannot be");
    else
        *reply = (struct net_evaluation_reply){.again = wire->again != 0,
                                               .n = (int64_t)wire->samples,
                                               .right = (int64_t)wire->right,
                                               .loss = wire->loss,
                                               .best = best};
    weir__v1__evaluate_reply__free_unpacked(wire, &b.allocator);
    return st;
}

void message_evaluation_best_to_wire(const struct net_best *from, uint64_t *best, double *loss,
                                     double *accuracy)
{
    *best = (uint64_t)(from->step + 1);
    *loss = from->step >= 0 ? from->loss : 0;
    *accuracy = from->step >= 0 ? from->accuracy : 0;
}

int message_evaluation_best_from_wire(uint64_t best, double loss, double accuracy,
                                      struct net_best *to)
{
    if (best > (uint64_t)MESSAGE_MAX_STEP || !isfinite(loss) ||
        !(isnan(accuracy) || (accuracy >= 0 && accuracy <= 1)))
        return 0;
    *to = (struct net_best){(int64_t)best - 1, loss, accuracy};
    return 1;
}
