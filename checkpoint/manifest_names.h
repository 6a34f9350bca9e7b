/* checkpoint/manifest_names.h - words that stand for the values of an enum in a manifest. Private
 * to checkpoint/. */
#ifndef CHECKPOINT_MANIFEST_NAMES_H
#define CHECKPOINT_MANIFEST_NAMES_H
#include <jansson.h>
#include <string.h>

/* Returns the i < n for which name_of(i) is the text of the key; -1: no such i. */
static inline int manifest_names_find(const json_t *o, const char *key, const char *(*name_of)(int),
                                      int n)
{
    const char *name = json_string_value(json_object_get(o, key));
    int i = 0;
    while (name && i < n && strcmp(name, name_of(i)) != 0)
        i++;
    return name && i < n ? i : -1;
}

#endif
