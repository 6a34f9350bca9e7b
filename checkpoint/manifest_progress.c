/* checkpoint/manifest_progress.c - see manifest_progress.h. */
#include "checkpoint/manifest_progress.h"
#include "net/wire/control.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool add_parent(json_t *root, const struct checkpoint_parent_version *p)
{
    return json_object_set_new(root, "parent",
                               json_pack("{s:I, s:I, s:I}", "version", (json_int_t)p->version,
                                         "crc32c", (json_int_t)p->crc32c, "slots_since",
                                         (json_int_t)p->slots_since)) == 0;
}

bool manifest_progress_add(json_t *root, const struct checkpoint_progress *p)
{
    json_t *members = json_array(), *servers = json_array(), *contributed = json_array();
    bool failed = 0;
    for (int i = 0; i < p->n_members; i++)
        failed |= json_array_append_new(members, json_integer(p->member[i])) != 0;
    for (int i = 0; i < p->servers.n; i++)
        failed |= json_array_append_new(servers, json_string(p->servers.addr[i])) != 0;
    for (int i = 0; i < p->n_contributed; i++)
        failed |= json_array_append_new(contributed,
                                        json_pack("[i, I, I]", p->contributed[i].member,
                                                  (json_int_t)p->contributed[i].version,
                                                  (json_int_t)p->contributed[i].generation)) != 0;
    failed |= p->parent.known && !add_parent(root, &p->parent);
    if (p->n_contributed)
        failed |= json_object_set(root, "contributed", contributed) != 0;
    json_decref(contributed);
    failed |= json_object_set_new(root, "position", json_integer((json_int_t)p->position)) != 0;
    failed |= json_object_set_new(root, "members", members) != 0;
    failed |= json_object_set_new(root, "servers", servers) != 0;
    return !failed;
}

static enum status members_from_json(const json_t *list, struct checkpoint_progress *p)
{
    size_t n = json_array_size(list);
    if (n < 1 || n > JOB_MAX_WORKERS)
        return ST_CORRUPT;
    p->member = calloc(n, sizeof *p->member);
    if (!p->member)
        return ST_NOMEM;
    p->n_members = (int)n;
    for (int i = 0; i < p->n_members; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        json_int_t index = json_integer_value(o);
        if (!json_is_integer(o) || index >= JOB_MAX_WORKERS ||
            index < (i ? p->member[i - 1] + 1 : 0))
            return ST_CORRUPT;
        p->member[i] = (int)index;
    }
    return ST_OK;
}

static enum status servers_from_json(const json_t *list, struct hosts *servers)
{
    size_t n = json_array_size(list);
    if (n < 1 || n > HOSTS_MAX)
        return ST_CORRUPT;
    servers->addr = calloc(n, sizeof *servers->addr);
    if (!servers->addr)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *addr = json_string_value(json_array_get(list, i));
        if (!addr || strlen(addr) >= CONTROL_TEXT_BYTES)
            return ST_CORRUPT;
        servers->addr[i] = strdup(addr);
        if (!servers->addr[i])
            return ST_NOMEM;
        servers->n++;
    }
    return ST_OK;
}

/* Reads a member's index, a version and its generation, which older files lack, for each entry of
 * the list; NULL if no member has contributed. */
static enum status contributed_from_json(const json_t *list, int64_t step,
                                         struct checkpoint_progress *p)
{
    size_t n = json_array_size(list);
    if (n > JOB_MAX_WORKERS)
        return ST_CORRUPT;
    p->contributed = calloc(n + 1, sizeof *p->contributed);
    if (!p->contributed)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        json_int_t member = json_integer_value(json_array_get(o, 0));
        json_int_t version = json_integer_value(json_array_get(o, 1));
        json_int_t generation = json_integer_value(json_array_get(o, 2));
        if (!json_is_integer(json_array_get(o, 0)) || member >= JOB_MAX_WORKERS || version < 1 ||
            version > step || generation < 0 || member < (i ? p->contributed[i - 1].member + 1 : 0))
            return ST_CORRUPT;
        p->contributed[i] = (struct net_contribution){(int)member, version, (uint64_t)generation};
    }
    p->n_contributed = (int)n;
    return ST_OK;
}

static enum status parent_from_json(const json_t *o, int64_t step,
                                    struct checkpoint_parent_version *p)
{
    const json_t *version = json_object_get(o, "version"), *crc = json_object_get(o, "crc32c");
    const json_t *since = json_object_get(o, "slots_since");
    if (!o)
        return ST_OK;
    if (!json_is_integer(version) || json_integer_value(version) < 0 || !json_is_integer(crc) ||
        json_integer_value(crc) < 0 || json_integer_value(crc) > UINT32_MAX ||
        !json_is_integer(since) || json_integer_value(since) < 0 ||
        json_integer_value(since) > step)
        return ST_CORRUPT;
    *p = (struct checkpoint_parent_version){1, json_integer_value(version),
                                            (uint32_t)json_integer_value(crc),
                                            json_integer_value(since)};
    return ST_OK;
}

enum status manifest_progress_read(const json_t *root, int64_t step, struct checkpoint_progress *p)
{
    const json_t *position = json_object_get(root, "position");
    if (!position)
        return ST_OK;
    if (!json_is_integer(position) || json_integer_value(position) < 0)
        return ST_CORRUPT;
    p->position = (uint64_t)json_integer_value(position);
    enum status st = members_from_json(json_object_get(root, "members"), p);
    if (st == ST_OK)
        st = servers_from_json(json_object_get(root, "servers"), &p->servers);
    if (st == ST_OK)
        st = contributed_from_json(json_object_get(root, "contributed"), step, p);
    if (st == ST_OK)
        st = parent_from_json(json_object_get(root, "parent"), step, &p->parent);
    p->known = st == ST_OK;
    return st;
}

void manifest_progress_free(struct checkpoint_progress *p)
{
    free(p->member);
    hosts_free(&p->servers);
    free(p->contributed);
}
