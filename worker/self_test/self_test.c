/* worker/self_test/self_test.c - tests each device in a child process, see self_test.h. The parent
 * never calls a driver, because its children must find CUDA uninitialised. */
#include "worker/self_test/self_test.h"
#include "base/log.h"
#include "kernels/device_report.h"
#include "worker/device/device_nvml.h"
#include "worker/device/device_scan.h"
#include "worker/device/devices.h"
#include "worker/device/report_json.h"
#include "worker/self_test/self_test_child.h"
#include "worker/self_test/self_test_net.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_SIZE = SELF_TEST_WHY_SIZE, NVML_SECONDS = 20, COPY_BYTES = 32 << 20 };

/* The devices to test. */
struct listing {
    enum status st;
    char error[WHY_SIZE]; /* set if st is not ST_OK */
    int n;
    struct device_info gpu[DEVICE_MAX];
    char why[WHY_SIZE]; /* if n is 0: the reason why there is no GPU */
    char hidden[DEVICE_WHY_SIZE];
    bool is_broken; /* the driver fails */
};

struct task {
    const struct self_test_config *cfg;
    const struct device_info *gpu; /* NULL: the CPU */
};

struct outcome {
    int works;
    char why[WHY_SIZE];   /* reason why it does not work, otherwise the first warning or "" */
    char description[96]; /* backend's description */
    double step_ms;
    uint64_t memory_bytes;
    struct self_test_difference difference;
    bool has_rates;
    struct copy_rates rates; /* set if has_rates is set */
};

/* Keeps the first error; if there is no error, keeps the first warning. Later lines are usually
 * consequences of the first one. */
struct heard {
    enum log_level level;
    char *text; /* [WHY_SIZE] */
};

static void note_line(void *ctx, enum log_level level, const char *text)
{
    struct heard *h = ctx;
    if (level < LOG_LEVEL_WARN || level <= h->level)
        return;
    h->level = level;
    snprintf(h->text, WHY_SIZE, "%s", text);
}

/* ---- code of the child processes ---- */

static void listen_to(struct heard *h)
{
    log_init("worker", -1, LOG_LEVEL_WARN); /* independent of --log_level */
    log_divert(note_line, h);
}

static void list_devices(const void *arg, void *result)
{
    const struct self_test_config *cfg = arg;
    struct listing *l = result;
    struct heard heard = {.text = l->error};
    struct device_scan *s = calloc(1, sizeof *s);
    int chosen[DEVICE_MAX];
    if (s == NULL) {
        l->st = ST_NOMEM;
        snprintf(l->error, sizeof l->error, "out of memory");
        return;
    }
    listen_to(&heard);
    if (strcmp(cfg->gpus, "none") == 0)
        snprintf(s->why, sizeof s->why, "--gpus=none");
    else
        device_scan_open(s);
    l->st = devices_find(cfg->gpus, s, chosen, &l->n);
    for (int i = 0; l->st == ST_OK && i < l->n; i++)
        l->gpu[i] = s->gpu[chosen[i]];
    snprintf(l->why, sizeof l->why, "%s", s->why);
    if (s->n > 0)
        device_scan_hidden(s, l->hidden, sizeof l->hidden);
    l->is_broken = s->is_broken;
}

/* Reads the load from NVML alone, because NVML answers even if CUDA fails. */
static void ask_load(const void *arg, void *result)
{
    struct device_load *load = result;
    struct device_nvml *nvml = device_nvml_open(load->why);
    load->state = DEVICE_LOAD_NO_NVML;
    if (nvml != NULL)
        device_nvml_load(nvml, arg, load);
}

static void compare_values(const struct self_test_net *net, const struct self_test_values *got,
                           struct outcome *out)
{
    struct self_test_values want;
    struct self_test_difference *d = &out->difference;
    if (self_test_net_reference(net, &want) != ST_OK)
        return;
    self_test_net_compare(net, &want, got, d);
    out->works = !d->differs;
    if (d->differs)
        snprintf(out->why, sizeof out->why,
                 "it computes wrongly: the %s is off by %.2g of its largest value (allowed: %.0e)",
                 d->name, d->worst, SELF_TEST_TOLERANCE);
}

/* Measures the copies to and from a GPU. The CPU has none. If the GPU's memory is too small for the
 * measurement, the function logs a warning, and the GPU still counts as working. */
static void measure_copies(const struct backend *own, int device, struct outcome *out)
{
    if (own->report == NULL)
        return;
    enum status st = own->report->copy_rates(device, COPY_BYTES, &out->rates);
    out->has_rates = st == ST_OK;
    out->works = st == ST_OK || st == ST_NOMEM;
}

static void test_device(const void *arg, void *result)
{
    const struct task *t = arg;
    struct outcome *out = result;
    struct heard heard = {.text = out->why};
    struct self_test_net net;
    struct self_test_values values;
    const struct backend *own;
    listen_to(&heard);
    if (backend_open(t->gpu != NULL ? "cuda" : "cpu", t->cfg->backend_dir, &own) != ST_OK)
        return;
    snprintf(out->description, sizeof out->description, "%s", own->description);
    int device = t->gpu ? t->gpu->ordinal : 0, n = own->n_devices();
    if (device >= n) {
        if (out->why[0] == '\0')
            snprintf(out->why, sizeof out->why,
                     "the backend counts only %d devices, fewer than the driver", n);
        return;
    }
    if (self_test_net_create(&net) != ST_OK || self_test_net_run(&net, own, device, &values))
        return;
    out->step_ms = values.step_ms;
    out->memory_bytes = values.memory_bytes;
    compare_values(&net, &values, out);
    if (out->works)
        measure_copies(own, device, out);
}

/* ---- code of the parent ---- */

static void test_gpu(const struct self_test_config *cfg, const struct device_info *gpu,
                     struct outcome *out)
{
    struct device_load load = {0};
    char idle[DEVICE_WHY_SIZE] = "";
    struct task task = {cfg, gpu};
    *out = (struct outcome){0};
    int asked =
        self_test_child_run(ask_load, gpu, &load, sizeof load, NVML_SECONDS, out->why) == ST_OK;
    if (asked && load.state == DEVICE_LOAD_LOST) {
        snprintf(out->why, sizeof out->why, "the card is lost (%s): reset it, or reboot", load.why);
        return;
    }
    struct outcome tested = {0};
    if (self_test_child_run(test_device, &task, &tested, sizeof tested, cfg->seconds, out->why) ==
        ST_OK)
        *out = tested;
    /* true: the step ran, so the backend and the memory were available */
    int ran = out->memory_bytes > 0;
    if (ran || !asked || load.state != DEVICE_LOAD_KNOWN)
        return;
    size_t n = strlen(out->why);
    device_scan_is_idle(&load, idle);
    snprintf(out->why + n, sizeof out->why - n, " (%.1f of its %.1f GB of memory were in use%s%s)",
             (double)load.used_bytes / 1e9, (double)load.total_bytes / 1e9,
             load.n_processes > 0 ? ", " : "", load.n_processes > 0 ? idle : "");
}

static void test_cpu(const struct self_test_config *cfg, struct outcome *out)
{
    struct task task = {cfg, NULL};
    struct outcome tested = {0};
    *out = (struct outcome){0};
    if (self_test_child_run(test_device, &task, &tested, sizeof tested, cfg->seconds, out->why) ==
        ST_OK)
        *out = tested;
}

static void print_rates(const struct copy_rates *r)
{
    const struct copy_rate *best = r->is_pinned ? &r->pinned : &r->pageable;
    printf("; copies to the card at %.3g GB/s, back at %.3g", best->up, best->down);
    if (r->is_pinned)
        printf(" (%.3g and %.3g if the host's memory is not pinned)", r->pageable.up,
               r->pageable.down);
    else
        printf(", because the host's memory is not pinned");
}

static void print_line(const char *label, const char *type, const struct outcome *o)
{
    if (o->works)
        printf(
            "%s: %s is running! %.3g ms a step, %.3g MB of memory, off by %.1g (%.0e is allowed)",
            label, type, o->step_ms, (double)o->memory_bytes / 1e6, o->difference.worst,
            SELF_TEST_TOLERANCE);
    else
        printf("%s: %s is NOT running: %s", label, type, o->why);
    if (o->has_rates)
        print_rates(&o->rates);
    printf("\n");
    fflush(stdout);
}

static json_t *json_rate(const struct copy_rate *r)
{
    return json_pack("{sf sf}", "to_device", r->up, "to_host", r->down);
}

static json_t *json_outcome(const char *type, const char *product, const struct outcome *o)
{
    json_t *d = json_pack("{ss ss ss sb}", "device_type", type, "product", product, "backend",
                          o->description, "running", o->works);
    if (d == NULL)
        return NULL;
    json_object_set_new(d, "why", o->works ? json_null() : json_string(o->why));
    if (o->works) {
        json_object_set_new(d, "step_ms", json_real(o->step_ms));
        json_object_set_new(d, "memory_bytes", json_integer((json_int_t)o->memory_bytes));
        json_object_set_new(d, "difference", json_real(o->difference.worst));
        json_object_set_new(d, "difference_allowed", json_real(SELF_TEST_TOLERANCE));
        json_object_set_new(d, "warning", o->why[0] ? json_string(o->why) : json_null());
    }
    if (o->has_rates)
        json_object_set_new(
            d, "copies_gb_per_second",
            json_pack("{so so}", "pinned",
                      o->rates.is_pinned ? json_rate(&o->rates.pinned) : json_null(), "pageable",
                      json_rate(&o->rates.pageable)));
    return d;
}

static json_t *json_gpu(const struct device_info *gpu, const struct outcome *o)
{
    char capability[32];
    json_t *d = json_outcome("GPU", gpu->name, o);
    snprintf(capability, sizeof capability, "%d.%d", gpu->capability[0], gpu->capability[1]);
    if (d != NULL) {
        json_object_set_new(d, "gpu", json_integer(gpu->ordinal));
        json_object_set_new(d, "uuid", json_string(gpu->uuid));
        json_object_set_new(d, "pci_bus_id", json_string(gpu->pci));
        json_object_set_new(d, "compute_capability", json_string(capability));
    }
    return d;
}

static enum status print_json(json_t *devices, const struct listing *l, int passed)
{
    json_t *all = json_pack("{sO sb so}", "devices", devices, "passed", passed, "why_no_gpu",
                            l->n > 0 ? json_null() : json_string(l->why));
    return report_json_print_free(all);
}

/* Prints the outcome as text, or appends `json`, the outcome as JSON, to `devices`. */
static void report(const struct self_test_config *cfg, const char *label, const char *type,
                   const struct outcome *o, json_t *json, json_t *devices)
{
    if (o->works && o->why[0] != '\0')
        LOG_W("%s: %s", label, o->why);
    if (cfg->as_json)
        json_array_append(devices, json);
    else
        print_line(label, type, o);
    json_decref(json);
}

/* Returns the number of devices that do not work. */
static int test_all(const struct self_test_config *cfg, const struct listing *l, json_t *devices)
{
    struct outcome o;
    char label[DEVICE_LABEL_SIZE];
    test_cpu(cfg, &o);
    int broken = !o.works;
    snprintf(label, sizeof label, o.description[0] ? "CPU (%s)" : "CPU", o.description);
    report(cfg, label, "CPU", &o, json_outcome("CPU", "CPU", &o), devices);
    for (int i = 0; i < l->n; i++) {
        test_gpu(cfg, &l->gpu[i], &o);
        broken += !o.works;
        device_scan_label(&l->gpu[i], label, sizeof label);
        report(cfg, label, "GPU", &o, json_gpu(&l->gpu[i], &o), devices);
    }
    if (l->n == 0 && !cfg->as_json)
        printf("no GPU: %s\n", l->why);
    else if (l->hidden[0] && !cfg->as_json)
        printf("not tested%s\n", l->hidden);
    return broken + (l->n == 0 && l->is_broken);
}

enum status self_test_print(const struct self_test_config *cfg)
{
    enum status st = ST_OK;
    json_t *devices = json_array();
    struct listing *l = calloc(1, sizeof *l);
    if (l == NULL || devices == NULL) {
        LOG_E("out of memory");
        TRY(ST_NOMEM);
    }
    st = self_test_child_run(list_devices, cfg, l, sizeof *l, cfg->seconds, l->error);
    if (st != ST_OK) {
        LOG_E("self test: cannot list the driver's devices: %s", l->error);
        goto done;
    }
    if (l->st != ST_OK) {
        LOG_E("self test: %s", l->error);
        TRY(l->st);
    }
    if (l->error[0] != '\0')
        LOG_W("%s", l->error);
    int broken = test_all(cfg, l, devices);
    if (cfg->as_json)
        TRY(print_json(devices, l, broken == 0));
    if (fflush(stdout) != 0) {
        LOG_E("cannot write the results: %s", strerror(errno));
        TRY(ST_IO);
    }
    st = broken ? ST_NOT_FOUND : ST_OK;
done:
    json_decref(devices);
    free(l);
    return st;
}
