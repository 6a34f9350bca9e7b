/* worker/place/placement_rules.c - parses devices and rules, see placement_rules.h. */
#include "worker/place/placement_rules.h"
#include "base/log.h"
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Parses digits, up to PLACEMENT_MAX_INDEX; -1: invalid. */
static int index_read(const char *s)
{
    int v = 0;
    if (*s == '\0')
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        v = v * 10 + (*s - '0');
        if (v > PLACEMENT_MAX_INDEX)
            return -1;
    }
    return v;
}

/* Parses a part such as "/task:12" if *s begins with it, and moves *s to after that part. Returns
 * false if the number is invalid. */
static bool part_read(const char **s, const char *part, int *out)
{
    size_t n = strlen(part);
    char number[8];
    if (strncasecmp(*s, part, n) != 0)
        return true;
    size_t digits = strspn(*s + n, "0123456789");
    if (digits == 0 || digits >= sizeof number)
        return false;
    memcpy(number, *s + n, digits);
    number[digits] = '\0';
    *out = index_read(number);
    *s += n + digits;
    return *out >= 0 && **s == '/';
}

/* Parses TensorFlow's name of a process, such as "/job:worker/task:3", if *s begins with one.
 * *task: index of the worker; -1: not named. */
static bool process_read(const char **s, int *task)
{
    static const char job[] = "/job:", here[] = "localhost", worker[] = "worker";
    int replica = 0, number = -1, is_worker = 0;
    if (strncasecmp(*s, job, sizeof job - 1) == 0) {
        const char *name = *s + sizeof job - 1;
        size_t n = strcspn(name, "/");
        is_worker = n == sizeof worker - 1 && strncmp(name, worker, n) == 0;
        if (!is_worker && !(n == sizeof here - 1 && strncmp(name, here, n) == 0))
            return false;
        if (name[n] != '/')
            return false;
        *s = name + n;
    }
    if (!part_read(s, "/replica:", &replica) || replica != 0 || !part_read(s, "/task:", &number))
        return false;
    *task = is_worker ? number : -1;
    return is_worker || number <= 0;
}

bool placement_rules_read_target(const char *device, struct placement_target *out)
{
    static const char long_form[] = "/device:";
    const char *s = device;
    int task;
    if (strcasecmp(s, "round_robin") == 0) {
        *out = (struct placement_target){PLACEMENT_ROUND_ROBIN, 0, -1};
        return true;
    }
    if (!process_read(&s, &task))
        return false;
    if (strncasecmp(s, long_form, sizeof long_form - 1) == 0)
        s += sizeof long_form - 1;
    else if (*s == '/')
        s++;
    int is_gpu = strncasecmp(s, "gpu", 3) == 0;
    if (!is_gpu && strncasecmp(s, "cpu", 3) != 0)
        return false;
    s += 3;
    int index = *s == ':' ? index_read(s + 1) : 0;
    if ((*s != '\0' && *s != ':') || index < 0)
        return false;
    out->kind = !is_gpu ? PLACEMENT_ON_CPU : *s ? PLACEMENT_ON_GPU : PLACEMENT_ON_OWN_GPU;
    out->index = index;
    out->task = task;
    return true;
}

/* Returns the text without the spaces around it. */
static char *trimmed(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    for (size_t n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
        s[n - 1] = '\0';
    return s;
}

static const char type_prefix[] = "type:";

static enum status rule_read(char *piece, struct placement_rule *out)
{
    char *shown = trimmed(piece);
    char *equals = strchr(shown, '=');
    if (!equals || equals == shown) {
        LOG_E(
            "--placement: '%.60s' is not a rule; rules are PATTERN=DEVICE with commas between them, for example 'fc*=cpu:0,conv*=gpu:1'",
            shown);
        return ST_INVALID;
    }
    *equals = '\0';
    *out = (struct placement_rule){.pattern = trimmed(shown), .device = trimmed(equals + 1)};
    out->of = strncmp(out->pattern, type_prefix, sizeof type_prefix - 1) == 0 ? PLACEMENT_OF_TYPES
              : strchr(out->pattern, '/')                                     ? PLACEMENT_OF_PARAMS
                                                                              : PLACEMENT_OF_LAYERS;
    if (placement_rules_read_target(out->device, &out->want)) {
        if (out->of != PLACEMENT_OF_PARAMS || out->want.kind != PLACEMENT_ROUND_ROBIN)
            return ST_OK;
        LOG_E(
            "--placement: '%.60s=%.60s' is for parameters, which are stored on cpu or gpu; round_robin is for layers",
            out->pattern, out->device);
        return ST_INVALID;
    }
    LOG_E(
        "--placement: '%.60s' in the rule for '%.60s' is not a device; write " PLACEMENT_SPELLINGS,
        out->device, out->pattern);
    return ST_INVALID;
}

enum status placement_rules_read(const char *text, struct placement_rules *out)
{
    enum status st = ST_OK;
    struct placement_rules r = {0};
    if (!text)
        goto done;
    if (strlen(text) > PLACEMENT_MAX_TEXT) {
        LOG_E("--placement has %zu bytes; at most %d are allowed", strlen(text),
              PLACEMENT_MAX_TEXT);
        return ST_INVALID;
    }
    size_t n = 1;
    for (const char *s = text; *s; s++)
        n += *s == ',';
    r.text = strdup(text);
    r.rule = calloc(n, sizeof *r.rule);
    if (!r.text || !r.rule) {
        LOG_E("out of memory for %zu rules of --placement", n);
        TRY(ST_NOMEM);
    }
    for (char *s = r.text, *next; s; s = next) {
        next = strchr(s, ',');
        if (next)
            *next++ = '\0';
        TRY(rule_read(s, &r.rule[r.n]));
        r.n++;
    }
done:
    if (st == ST_OK)
        *out = r;
    else
        placement_rules_free(&r);
    return st;
}

void placement_rules_free(struct placement_rules *r)
{
    free(r->rule);
    free(r->text);
    *r = (struct placement_rules){0};
}

bool placement_rule_fits(const struct placement_rule *rule, const char *name, const char *type)
{
    if (rule->of == PLACEMENT_OF_TYPES)
        return fnmatch(rule->pattern + sizeof type_prefix - 1, type, 0) == 0;
    return rule->of == PLACEMENT_OF_LAYERS && fnmatch(rule->pattern, name, 0) == 0;
}

bool placement_rule_fits_param(const struct placement_rule *rule, const char *name)
{
    return rule->of == PLACEMENT_OF_PARAMS && fnmatch(rule->pattern, name, 0) == 0;
}

int placement_rules_find(const struct placement_rules *r, const char *name, const char *type)
{
    for (int i = 0; i < r->n; i++)
        if (placement_rule_fits(&r->rule[i], name, type))
            return i;
    return -1;
}

int placement_rules_find_param(const struct placement_rules *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (placement_rule_fits_param(&r->rule[i], name))
            return i;
    return -1;
}
