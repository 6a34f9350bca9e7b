/* checkpoint/manifest_lineage.c - see manifest_lineage.h. */
#include "checkpoint/manifest_lineage.h"

bool manifest_lineage_add(json_t *root, const struct checkpoint_lineage *l)
{
    if (l->n == 0)
        return true;
    json_t *list = json_array();
    bool failed = !list;
    for (int i = 0; i < l->n; i++)
        failed |= json_array_append_new(list, json_pack("[I, I, I]", (json_int_t)l->entry[i].since,
                                                        (json_int_t)l->entry[i].resumed.generation,
                                                        (json_int_t)l->entry[i].resumed.step)) != 0;
    failed |= json_object_set_new(root, "history", list) != 0;
    return !failed;
}

static bool read_entry(const json_t *o, struct checkpoint_history *e)
{
    int64_t number[3];
    for (size_t i = 0; i < 3; i++) {
        const json_t *at = json_array_get(o, i);
        number[i] = json_integer_value(at);
        if (!json_is_integer(at) || number[i] < 0)
            return false;
    }
    *e = (struct checkpoint_history){{(uint64_t)number[1], number[2]}, (uint64_t)number[0]};
    return json_array_size(o) == 3;
}

enum status manifest_lineage_read(const json_t *root, uint64_t generation,
                                  struct checkpoint_lineage *l)
{
    const json_t *list = json_object_get(root, "history");
    size_t n = json_array_size(list);
    *l = (struct checkpoint_lineage){.n = 0};
    if (!list)
        return ST_OK;
    if (n < 1 || n > LINEAGE_MOST)
        return ST_CORRUPT;
    for (size_t i = 0; i < n; i++)
        if (!read_entry(json_array_get(list, i), &l->entry[i]))
            return ST_CORRUPT;
    l->n = (int)n;
    return checkpoint_lineage_is_valid(l, generation) ? ST_OK : ST_CORRUPT;
}
