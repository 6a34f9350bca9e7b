/* net/wire/message_report.c - see report.h. */
#include "net/wire/message_impl.h"
#include "net/wire/report.h"
#include "net/wire/report.pb-c.h"
#include <math.h>

static const char no_worker[] = "the sender of a report is not a worker of the job";
static const char no_figures[] = "the figures of a report are not valid";

static const char *problem(const void *message)
{
    const Weir__V1__ReportRequest *wire = message;
    if (wire->life == 0)
        return no_worker;
    return fabs(wire->loss_sum) <= (double)wire->losses * (double)FLT_MAX ? NULL : no_figures;
}

#define OF Weir__V1__ReportRequest, struct net_report
static const struct message_row rows[] = {
    NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, no_worker),
    ANY(OF, life, life),
    NUMBER(OF, step, step, 0, MESSAGE_MAX_STEP, no_figures),
    NUMBER(OF, steps, steps, 0, MESSAGE_MAX_STEP, no_figures),
    NUMBER(OF, images, images, 0, MESSAGE_MAX_STEP, no_figures),
    NUMBER(OF, losses, n_losses, 0, REPORT_MAX_LOSSES, no_figures),
    ANY(OF, loss_sum, loss_sum),
    NUMBER(OF, nonfinite_since, nonfinite_since, 0, MESSAGE_MAX_STEP, no_figures),
    NUMBER(OF, ms, ms, 0, MESSAGE_MAX_STEP, no_figures),
    NUMBER(OF, memory_bytes, memory_bytes, 0, MESSAGE_MAX_STEP, no_figures),
};
const struct message_type message_report = {MESSAGE_TYPE(OF, report_request, rows),
                                            .problem = problem};
#undef OF

#define OF Weir__V1__ReportReply, struct net_report_reply
static const struct message_row reply_rows[] = {
    NUMBER(OF, next_ms, next_ms, 0, REPORT_MAX_NEXT_MS, "the next report is requested too late"),
};
const struct message_type message_report_reply = {MESSAGE_TYPE(OF, report_reply, reply_rows)};
