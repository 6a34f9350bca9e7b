/* net/wire/message_evaluation.c - see message.h: the figures of validation that workers send to
 * ps 0. */
#include "net/wire/message_impl.h"
#include <math.h>
#include <stdbool.h>

static const char no_step[] = "the step of an evaluation is out of bounds";
static const char no_part[] = "the index of an evaluation's part is not below the number of parts";
static const char no_samples[] = "the samples of an evaluation are not valid";

static const char *problem(const void *message)
{
    const Weir__V1__EvaluateRequest *wire = message;
    if (wire->part >= wire->parts)
        return no_part;
    return wire->samples > wire->set_samples || wire->right > wire->samples ? no_samples : NULL;
}

#define OF Weir__V1__EvaluateRequest, struct net_evaluation
static const struct message_row rows[] = {
    ANY(OF, generation, generation),
    ANY(OF, ps0, ps0),
    NUMBER(OF, step, step, 0, MESSAGE_MAX_STEP, no_step),
    ANY(OF, part, part),
    NUMBER(OF, parts, n_parts, 1, JOB_MAX_WORKERS, no_part),
    ANY(OF, samples, n),
    ANY(OF, right, right),
    ANY(OF, loss, loss),
    NUMBER(OF, set_samples, data.n, 1, MESSAGE_MAX_STEP, no_samples),
    ANY(OF, set_samples_crc32c, data.samples),
    ANY(OF, set_labels_crc32c, data.labels),
    NUMBER(OF, eval_every, every, 0, MESSAGE_MAX_STEP, no_step),
    NUMBER(OF, early_stopping, patience, 0, MESSAGE_MAX_STEP, no_step),
    ANY(OF, no_accuracy, no_accuracy),
};
const struct message_type message_evaluation = {MESSAGE_TYPE(OF, evaluate_request, rows),
                                                .problem = problem};
#undef OF

static const char no_reply[] = "the figures of an EvaluateReply are not valid";

static const char *reply_problem(const void *message)
{
    const Weir__V1__EvaluateReply *wire = message;
    return wire->right > wire->samples || !message_evaluation_is_accuracy(wire->best_accuracy)
               ? no_reply
               : NULL;
}

static enum status write_reply(const void *plain, void *message, struct message_room *room)
{
    const struct net_evaluation_reply *reply = plain;
    Weir__V1__EvaluateReply *wire = message;
    if (reply->best.step < 0)
        wire->best_loss = wire->best_accuracy = 0;
    return ST_OK;
}

#define OF Weir__V1__EvaluateReply, struct net_evaluation_reply
static const struct message_row reply_rows[] = {
    ANY(OF, again, again),
    NUMBER(OF, samples, n, 0, MESSAGE_MAX_STEP, no_reply),
    ANY(OF, right, right),
    ANY(OF, loss, loss),
    MORE1(OF, best, best.step, -1, MESSAGE_MAX_STEP - 1, no_reply),
    REAL(OF, best_loss, best.loss, -DBL_MAX, DBL_MAX, no_reply),
    ANY(OF, best_accuracy, best.accuracy),
};
const struct message_type message_evaluation_reply = {
    MESSAGE_TYPE(OF, evaluate_reply, reply_rows), .problem = reply_problem, .write = write_reply};
#undef OF

bool message_evaluation_is_accuracy(double x)
{
    return isnan(x) || (x >= 0 && x <= 1);
}
