/* net/wire/message_report.c - see report.h. */
#include "net/wire/message_impl.h"
#include "net/wire/report.h"
#include "net/wire/report.pb-c.h"
#include <float.h>
#include <math.h>

enum status message_report_pack(const struct net_report *report, uint8_t **data, size_t *bytes)
{
    Weir__V1__ReportRequest wire = WEIR__V1__REPORT_REQUEST__INIT;
    wire.protocol = MESSAGE_PROTOCOL;
    wire.member = (uint32_t)report->member;
    wire.life = report->life;
    wire.step = report->step;
    wire.steps = (uint64_t)report->steps;
    wire.images = (uint64_t)report->images;
    wire.losses = (uint32_t)report->n_losses;
    wire.loss_sum = report->loss_sum;
    wire.nonfinite_since = report->nonfinite_since;
    wire.ms = (uint64_t)report->ms;
    wire.memory_bytes = (uint64_t)report->memory_bytes;
    return message_pack(&wire.base, data, bytes);
}

static enum status from_wire(const Weir__V1__ReportRequest *wire, struct net_report *out,
                             char why[MESSAGE_WHY_BYTES])
{
    const uint64_t most = (uint64_t)MESSAGE_MAX_STEP;
    if (message_check_protocol(wire->protocol, why) != ST_OK)
        return ST_INVALID;
    if (wire->member >= JOB_MAX_WORKERS || wire->life == 0)
        return message_invalid(why, "a report is of no worker");
    if (wire->step < 0 || wire->step > MESSAGE_MAX_STEP || wire->steps > most ||
        wire->images > most || wire->ms > most || wire->memory_bytes > most ||
        wire->nonfinite_since < 0 || wire->nonfinite_since > MESSAGE_MAX_STEP)
        return message_invalid(why, "the figures of a report cannot be");
    if (wire->losses > REPORT_MAX_LOSSES ||
        !(fabs(wire->loss_sum) <= (double)wire->losses * (double)FLT_MAX))
        return message_invalid(why, "the figures of a report cannot be");
    *out = (struct net_report){
        .member = (int)wire->member,
        .life = wire->life,
        .step = wire->step,
        .steps = (int64_t)wire->steps,
        .images = (int64_t)wire->images,
        .n_losses = wire->losses,
        .loss_sum = wire->loss_sum,
        .nonfinite_since = wire->nonfinite_since,
        .ms = (int64_t)wire->ms,
        .memory_bytes = (int64_t)wire->memory_bytes,
    };
    return ST_OK;
}

enum status message_report_unpack(const uint8_t *data, size_t bytes, struct net_report *report,
                                  char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    message_budget_init(&b);
    Weir__V1__ReportRequest *wire = weir__v1__report_request__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the ReportRequest does not decode");
        return ST_PROTOCOL;
    }
    enum status st = from_wire(wire, report, why);
    weir__v1__report_request__free_unpacked(wire, &b.allocator);
    return st;
}

enum status message_report_reply_pack(int next_ms, uint8_t **data, size_t *bytes)
{
    Weir__V1__ReportReply wire = WEIR__V1__REPORT_REPLY__INIT;
    wire.next_ms = (uint32_t)next_ms;
    return message_pack(&wire.base, data, bytes);
}

enum status message_report_reply_unpack(const uint8_t *data, size_t bytes, int *next_ms,
                                        char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    enum status st = ST_OK;
    message_budget_init(&b);
    Weir__V1__ReportReply *wire = weir__v1__report_reply__unpack(&b.allocator, bytes, data);
    if (!wire) {
        message_invalid(why, "the ReportReply does not decode");
        return ST_PROTOCOL;
    }
    if (wire->next_ms > REPORT_MAX_NEXT_MS)
        st = message_invalid(why, "a report is asked for in too long a time");
    else
        *next_ms = (int)wire->next_ms;
    weir__v1__report_reply__free_unpacked(wire, &b.allocator);
    return st;
}
