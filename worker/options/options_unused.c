/* worker/options/options_unused.c - flags that were given and change nothing: see options_impl.h.
 * Where two contradict each other it is an error. Where one command line is tried alone, or used
 * for inference after training, a line names what has no effect there. */
#include "worker/options/options_impl.h"
#include <stdio.h>
#include <string.h>

/* Of --gpus=auto it is not known yet whether there is a card. */
static enum status check_gpus(const struct options *o)
{
    const void *const those[] = {&options_raw.gpu_memory_fraction, &options_raw.gpu_allow_growth,
                                 &options_raw.towers_per_gpu, &options_raw.cuda_graphs,
                                 &options_raw.gpu_tuning};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++) {
        const char *flag = options_table_given_name(those[i]);
        if (!flag || strcmp(o->gpus, "none") != 0)
            continue;
        LOG_E("--%s is for GPUs, and --gpus=none takes none; leave one of the two out", flag);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status options_unused_check(const struct options *o)
{
    if (o->self_test < 0 && options_table_is_given(&options_raw.self_test_seconds)) {
        LOG_E("--self_test_seconds is for --self_test; give both or leave it out");
        return ST_INVALID;
    }
    return check_gpus(o);
}

/* One line for those of the flags that were given. */
static void warn(const void *const *those, size_t n_those, const char *why)
{
    char text[700] = "";
    size_t n = 0;
    for (size_t i = 0; i < n_those; i++) {
        const char *flag = options_table_given_name(those[i]);
        if (flag && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s--%s", n ? ", " : "", flag);
    }
    if (n > 0)
        LOG_W("%s: no effect %s", text, why);
}

void options_unused_warn(const struct options *o)
{
    const struct options_raw *r = &options_raw;
    const void *const exchange[] = {&r->job.sync_mode,    &r->sync_replicas,
                                    &r->job.replicas,     &r->job.staleness,
                                    &r->job.compensation, &r->job.wire_dtype,
                                    &r->job.wire_step_ms, &r->job.shared_memory,
                                    &r->data_shard,       &r->address,
                                    &r->job.local_steps,  &r->job.outer_optimizer,
                                    &r->job.outer_rate,   &r->job.outer_momentum,
                                    &r->tls_cert,         &r->tls_key,
                                    &r->tls_ca,           &r->token_file};
    const void *const training[] = {&r->train_steps,
                                    &r->epochs,
                                    &r->seed,
                                    &r->job.optimizer,
                                    &r->job.learning_rate,
                                    &r->job.schedule,
                                    &r->job.lr_decay,
                                    &r->job.lr_decay_steps,
                                    &r->job.lr_warmup_steps,
                                    &r->job.lr_boundaries,
                                    &r->job.clip_value,
                                    &r->job.clip_norm,
                                    &r->job.momentum,
                                    &r->job.decay,
                                    &r->job.beta1,
                                    &r->job.beta2,
                                    &r->job.epsilon,
                                    &r->job.weight_decay,
                                    &r->on_nonfinite,
                                    &r->max_nonfinite,
                                    &r->eval_every,
                                    &r->log_every,
                                    &r->job.chunk_bytes,
                                    &r->cuda_graphs,
                                    &r->train_data,
                                    &r->train_labels,
                                    &r->metrics_port,
                                    &r->metrics_bind};
    if (o->ps_hosts.n > 0 || o->list_devices >= 0 || o->self_test >= 0)
        return;
    warn(exchange, sizeof exchange / sizeof *exchange,
         "without --ps_hosts: a worker alone has nobody to exchange gradients with");
    if (o->evaluate || o->predict)
        warn(training, sizeof training / sizeof *training,
             "with --evaluate and --predict, which train nothing");
}
