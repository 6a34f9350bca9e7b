/* worker/place/placement_rules.c - see placement_rules.h. */
#include "worker/place/placement_rules.h"
#include "base/log.h"
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Digits alone, up to PLACEMENT_MAX_INDEX; -1: they are not. */
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

int placement_want_read(const char *device, struct placement_want *out)
{
    static const char long_form[] = "/device:";
    const char *s = device;
    if (strcasecmp(s, "round_robin") == 0) {
        *out = (struct placement_want){PLACEMENT_ROUND_ROBIN, 0};
        return 1;
    }
    if (strncasecmp(s, long_form, sizeof long_form - 1) == 0)
        s += sizeof long_form - 1;
    else if (*s == '/')
        s++;
    int is_gpu = strncasecmp(s, "gpu", 3) == 0;
    if (!is_gpu && strncasecmp(s, "cpu", 3) != 0)
        return 0;
    s += 3;
    int index = *s == ':' ? index_read(s + 1) : 0;
    if ((*s != '\0' && *s != ':') || index < 0)
        return 0;
    out->kind = !is_gpu ? PLACEMENT_ON_CPU : *s ? PLACEMENT_ON_GPU : PLACEMENT_ON_OWN_GPU;
    out->index = index;
    return 1;
}

/* Without the spaces around it. */
static char *trimmed(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    for (size_t n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
        s[n - 1] = '\0';
    return s;
}

static enum status rule_read(char *piece, struct placement_rule *out)
{
    char *shown = trimmed(piece);
    char *equals = strchr(shown, '=');
    if (!equals || equals == shown) {
        LOG_E("--placement: '%.60s' is no rule; rules are PATTERN=DEVICE with commas between them, "
              "as in 'fc*=cpu:0,conv*=gpu:1'",
              shown);
        return ST_INVALID;
    }
    *equals = '\0';
    *out = (struct placement_rule){.pattern = trimmed(shown), .device = trimmed(equals + 1)};
    if (placement_want_read(out->device, &out->want))
        return ST_OK;
    LOG_E("--placement: '%.60s' in the rule for '%.60s' is no device; write " PLACEMENT_SPELLINGS,
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
        LOG_E("--placement: %zu bytes; it has at most %d", strlen(text), PLACEMENT_MAX_TEXT);
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

int placement_rule_fits(const struct placement_rule *rule, const char *name)
{
    return fnmatch(rule->pattern, name, 0) == 0;
}

int placement_rules_find(const struct placement_rules *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (placement_rule_fits(&r->rule[i], name))
            return i;
    return -1;
}
