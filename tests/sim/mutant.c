/* tests/sim/mutant.c - faults in production code (--wrap) that a schedule's option `mutant`
 * switches on, to prove that the checks find them. */
#include "net/wire/job.h"
#include "ps/service/stream_table.h"
#include "ps/store/consistency.h"
#include "ps/store/samples.h"
#include "ps/store/store.h"
#include "tests/sim/sim.h"

enum {
    MUTANT_COUNTS_TWICE = 1,
    MUTANT_LOSES_ANSWERS,
    MUTANT_SHIFTS_SAMPLES,
    MUTANT_OLD_SPEAKS,
    MUTANT_READS_TWICE,
    MUTANT_LOSES_BATCHES
};

static bool is(int mutant)
{
    return sim.schedule && opt(OPT_mutant) == mutant;
}

struct verdict __real_consistency_verdict(enum consistency_mode mode,
                                          const struct consistency_push *p);
struct verdict __wrap_consistency_verdict(enum consistency_mode mode,
                                          const struct consistency_push *p);
struct verdict __wrap_consistency_verdict(enum consistency_mode mode,
                                          const struct consistency_push *p)
{
    struct verdict v = __real_consistency_verdict(mode, p);
    if (is(MUTANT_COUNTS_TWICE) && v.kind == VERDICT_DUPLICATE)
        v = (struct verdict){VERDICT_COUNT, 0};
    return v;
}

void __real_stream_table_send(struct stream_table *s, uint64_t number,
                              const struct net_frame_head *head, const struct net_piece *piece,
                              struct buf *payload);
void __wrap_stream_table_send(struct stream_table *s, uint64_t number,
                              const struct net_frame_head *head, const struct net_piece *piece,
                              struct buf *payload);
void __wrap_stream_table_send(struct stream_table *s, uint64_t number,
                              const struct net_frame_head *head, const struct net_piece *piece,
                              struct buf *payload)
{
    if (!is(MUTANT_LOSES_ANSWERS) || sim.marks[MARK_restart] == 0)
        __real_stream_table_send(s, number, head, piece, payload);
}

uint64_t __real_net_plan_position(const struct net_plan *p, int64_t step);
uint64_t __wrap_net_plan_position(const struct net_plan *p, int64_t step);
uint64_t __wrap_net_plan_position(const struct net_plan *p, int64_t step)
{
    return __real_net_plan_position(p, step) + (is(MUTANT_SHIFTS_SAMPLES) && step > 0);
}

void __real_store_admit(struct store *s, int member, uint64_t incarnation);
void __wrap_store_admit(struct store *s, int member, uint64_t incarnation);
void __wrap_store_admit(struct store *s, int member, uint64_t incarnation)
{
    if (!is(MUTANT_OLD_SPEAKS) || sim.marks[MARK_restart] == 0)
        __real_store_admit(s, member, incarnation);
}

void __real_ps_samples_counted(struct ps_samples *s, int member);
void __wrap_ps_samples_counted(struct ps_samples *s, int member);
void __wrap_ps_samples_counted(struct ps_samples *s, int member)
{
    if (!is(MUTANT_READS_TWICE) || sim.marks[MARK_version] % 4 != 3)
        __real_ps_samples_counted(s, member);
}

/* Restores only the end of the assigned samples: the list of batches in flight is lost. */
enum status __real_ps_samples_set(struct ps_samples *s, const uint64_t *list, size_t n);
enum status __wrap_ps_samples_set(struct ps_samples *s, const uint64_t *list, size_t n);
enum status __wrap_ps_samples_set(struct ps_samples *s, const uint64_t *list, size_t n)
{
    return __real_ps_samples_set(s, list, is(MUTANT_LOSES_BATCHES) && n > 1 ? 1 : n);
}
