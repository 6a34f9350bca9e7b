/* tests/sim/job.c - see job.h. All processes share one table of chunks, which chunks_create() and
 * chunks_copy() return (--wrap). So chunks may be smaller than those that production code packs. A
 * run computes the digest of a job with this table once (--wrap). */
#include "tests/sim/job.h"
#include "net/wire/job_rates.h"
#include "ps/region/region.h"
#include "tests/sim/tables.h"
#include <string.h>

struct chunks *sim_chunks;
struct net_job sim_job;
struct net_job sim_region_job;
struct hosts sim_ps_hosts, sim_worker_hosts, sim_group_hosts;
static struct hosts region_hosts[SIM_WORKERS];
static char *region_addresses[SIM_WORKERS][2];

static struct chunks table;
static struct net_job digested; /* job whose digest with the table is `digest`; "": none */
static char digest[65];
static struct net_param params[SIM_CHUNKS];
static struct net_chunk chunk[SIM_PIECES];
static char *addresses[SIM_NODES];
char sim_address[SIM_NODES][24];
enum { MAX_PLANS = 2048 };
static struct net_plan *plans[MAX_PLANS];
static int n_plans;

enum status __wrap_chunks_create(const struct net_param *p, int n, int64_t bytes,
                                 struct chunks **out);
enum status __wrap_chunks_copy(const struct chunks *from, struct chunks **out);
void __wrap_chunks_destroy(struct chunks *c);

enum status __wrap_chunks_create(const struct net_param *p, int n, int64_t bytes,
                                 struct chunks **out)
{
    *out = sim_chunks;
    return ST_OK;
}

enum status __wrap_chunks_copy(const struct chunks *from, struct chunks **out)
{
    *out = sim_chunks;
    return ST_OK;
}

void __wrap_chunks_destroy(struct chunks *c)
{
}

enum status __real_checkpoint_manifest_digest(const struct net_job *job,
                                              const struct chunks *chunks, char hex[65]);
enum status __wrap_checkpoint_manifest_digest(const struct net_job *job,
                                              const struct chunks *chunks, char hex[65]);
enum status __wrap_checkpoint_manifest_digest(const struct net_job *job,
                                              const struct chunks *chunks, char hex[65])
{
    CHECK(chunks == &table);
    /* The bytes are compared, so a job that differs only in padding causes one more computation. */
    if (!digest[0] || memcmp(job, &digested, sizeof digested) != 0) { // NOLINT
        enum status st = __real_checkpoint_manifest_digest(job, chunks, digest);
        if (st != ST_OK)
            return st;
        memcpy(&digested, job, sizeof digested);
    }
    memcpy(hex, digest, sizeof digest);
    return ST_OK;
}

/* Returns the factors of a chunk's parameter: powers of two, so that sums stay exact. */
static struct optim_factors factors_of(int chunk)
{
    static const struct optim_factors factors[SIM_CHUNKS] = {{1, 1}, {0.5f, 0}, {1, 2}, {2, 1}};
    return opt(OPT_regions) ? factors[0] : factors[chunk];
}

float sim_rate(uint64_t step)
{
    static const float rates[] = {1, 0.5f, 2, 1};
    bool has_rates = job_rates_step_problem(&sim_job, opt(OPT_regions) != 0) == NULL;
    return has_rates ? rates[step % (sizeof rates / sizeof *rates)] : 1;
}

static void make_table(void)
{
    static const char *const names[SIM_CHUNKS] = {"a", "b", "c", "d"};
    int n = (int)opt(OPT_chunks);
    int64_t elems = opt(OPT_elems);
    for (int i = 0; i < n; i++) {
        params[i] = (struct net_param){.name = names[i],
                                       .shape = {.n_dims = 1, .dim = {elems}},
                                       .rule = PARAM_TRAINED,
                                       .factors = factors_of(i),
                                       .n_elems = elems,
                                       .first = i * elems,
                                       .first_chunk = i,
                                       .n_chunks = 1};
        chunk[i] = (struct net_chunk){.param = i, .first = i * elems, .n_elems = elems};
    }
    table = (struct chunks){.n_params = n,
                            .params = params,
                            .n_chunks = n,
                            .n_dense = n,
                            .chunks = chunk,
                            .n_elems = n * elems,
                            .chunk_bytes = CHUNKS_MIN_BYTES};
    tables_make(&table);
    sim_chunks = &table;
}

const struct hosts *sim_region_hosts(int index)
{
    return &region_hosts[index];
}

int64_t sim_overlap(void)
{
    int64_t most = opt(OPT_region_steps) - 1, o = opt(OPT_overlap);
    o = o < most ? o : most;
    return o < opt(OPT_steps) ? o : opt(OPT_steps) - 1;
}

int sim_fragments(void)
{
    return (int)(opt(OPT_fragments) < opt(OPT_chunks) ? opt(OPT_fragments) : opt(OPT_chunks));
}

/* Makes sim_job the job of each region, and then the parent's, whose steps are the rounds. */
static void make_parent_job(void)
{
    static char *const group[] = {"g0:1", "g1:1"};
    const struct ps_region_config cfg = {.steps = opt(OPT_region_steps), .overlap = sim_overlap()};
    sim_region_job = sim_job;
    sim_region_job.n_workers = (int)opt(OPT_region_workers);
    sim_region_job.optim.learning_rate = 0.125f;
    sim_group_hosts = (struct hosts){sim_region_job.n_workers, (char **)group};
    sim_job.train_steps = ps_region_gates(&cfg, opt(OPT_steps), opt(OPT_steps));
    sim_job.batch = 0;
    optim_outer_defaults((enum optim_kind)(opt(OPT_optimizer) % 3), sim_chunks->n_elems,
                         &sim_job.optim);
    sim_job.optim.total_steps = (uint64_t)sim_job.train_steps;
    for (int i = 0; i < SIM_WORKERS; i++) {
        char **list = region_addresses[i];
        list[0] = addresses[SIM_SERVERS + i];
        list[1] = addresses[SIM_SERVERS + (i + SIM_WORKERS / 2) % SIM_WORKERS];
        region_hosts[i] = (struct hosts){(int)opt(OPT_region_servers), list};
    }
}

void sim_job_reset(void)
{
    int mode = (int)opt(OPT_mode), workers = (int)opt(OPT_workers);
    make_table();
    digest[0] = 0;
    sim_job = (struct net_job){.n_workers = workers,
                               .sync_mode = mode == MODE_ASYNC ? JOB_ASYNC
                                            : mode == MODE_SSP ? JOB_SSP
                                                               : JOB_SYNC,
                               .train_steps = opt(OPT_steps),
                               .seed = 1,
                               .staleness = mode == MODE_SSP ? opt(OPT_staleness) : 0,
                               .batch = (int)opt(OPT_batch)};
    if (mode == MODE_BACKUP && workers > 1)
        sim_job.aggregate = workers - 1;
    if (sim_job.batch == 3)
        sim_job.batch = 4;
    optim_defaults((enum optim_kind)opt(OPT_optimizer), &sim_job.optim);
    if (opt(OPT_clip) && mode == MODE_SYNC)
        sim_job.optim.clip_norm = 8; /* gradients have at most 16 in each element */
    for (int i = 0; i < SIM_NODES; i++) {
        addresses[i] = sim_address[i];
        snprintf(sim_address[i], sizeof sim_address[i], "%s%d:2222", sim_is_server(i) ? "s" : "w",
                 sim_is_server(i) ? i : i - SIM_SERVERS);
        snprintf(sim.node[i].name, sizeof sim.node[i].name, "%s %d",
                 sim_is_server(i)   ? "ps"
                 : opt(OPT_regions) ? "region"
                                    : "worker",
                 sim_is_server(i) ? i : i - SIM_SERVERS);
    }
    sim_ps_hosts = (struct hosts){(int)opt(OPT_servers), addresses};
    sim_worker_hosts = (struct hosts){workers, addresses + SIM_SERVERS};
    if (opt(OPT_regions))
        make_parent_job();
}

int sim_server_at(const char *a)
{
    for (int i = 0; i < SIM_SERVERS; i++)
        if (!strcmp(a, sim_address[i]))
            return i;
    return -1;
}

void sim_gradient(int c, uint64_t position, int batch, const float *version, float *out)
{
    for (int e = 0; e < table.chunks[c].n_elems; e++) {
        uint32_t bits;
        int64_t sum = 0;
        memcpy(&bits, &version[e], sizeof bits);
        for (int k = 0; k < batch; k++) {
            uint64_t u = rng_mix(rng_mix(position + (uint64_t)k) ^ bits ^
                                 (uint64_t)(c * SIM_ELEMS + e) << 40);
            sum += (int64_t)(u % 33) - 16;
        }
        out[e] = (float)sum / (float)batch;
    }
}

bool sim_lacks(int c, uint64_t position)
{
    return opt(OPT_lacks) && rng_mix(position ^ (uint64_t)(c + 1) << 40) % 2;
}

void sim_first_value(int c, float *out)
{
    for (int e = 0; e < table.chunks[c].n_elems; e++)
        out[e] = (float)(c + 1) + (float)e * 0.25f;
}

void sim_keep_plan(struct net_plan *p)
{
    if (n_plans == MAX_PLANS)
        sim_fail("bound", "more plans than a run can have");
    plans[n_plans++] = p;
}

void sim_job_finish(void)
{
    for (int i = 0; i < n_plans; i++)
        net_plan_free(plans[i]);
    n_plans = 0;
}
