/* tests/sim/job.h - the job of a run: a table of tiny chunks, and gradients whose sums are exact.
 * A sample's gradient is a small integer drawn from the sample and the bits of the version that it
 * is computed on; batches are powers of two. So bits change if a sample is read twice, is missing,
 * or counts in another step or on another version; the order of a sum changes none.
 * Owns: the table, for the run. Threads: one. Errors: none. */
#ifndef TESTS_SIM_JOB_H
#define TESTS_SIM_JOB_H
#include "net/wire/job.h"
#include "net/wire/plan.h"
#include "tests/sim/sim.h"

/* SIM_CHUNKS: chunks of parameters; SIM_BUCKETS: buckets of tables, which follow (tables.h) */
enum { SIM_CHUNKS = 4, SIM_BUCKETS = 6, SIM_PIECES = SIM_CHUNKS + SIM_BUCKETS };
enum { SIM_ELEMS = 3, SIM_SLOTS = 2 * SIM_ELEMS };
enum { MODE_SYNC, MODE_ASYNC, MODE_SSP, MODE_BACKUP };

extern struct chunks *sim_chunks;
extern struct net_job sim_job;
extern struct hosts sim_ps_hosts, sim_worker_hosts;
extern char sim_address[SIM_NODES][24];
/* Job that each region trains, in schedules with regions. sim_job is then the job of the parent
 * group. */
extern struct net_job sim_region_job;
extern struct hosts sim_group_hosts;
const struct hosts *sim_region_hosts(int index); /* servers of that region */
int64_t sim_overlap(void);
int sim_fragments(void);
void sim_job_reset(void);
void sim_job_finish(void);
void sim_keep_plan(struct net_plan *p); /* keeps the plan, and frees it at the run's end */
int sim_server_at(const char *address); /* server with this address; -1: none */
/* Computes the mean gradient of the batch whose first sample is at `position`. */
void sim_gradient(int chunk, uint64_t position, int batch, const float *version, float *out);
/* Returns true if the member with the batch at `position` has no gradient for the chunk. */
bool sim_lacks(int chunk, uint64_t position);
void sim_first_value(int chunk, float *out);
/* Returns the factor of the learning rate for a step. In modes other than lockstep, `step` is the
 * position of the batch. If the job permits no such factor, returns 1. */
float sim_rate(uint64_t step);

#endif
