/* worker/place/placement_rules.h - syntax of placements: devices, and the rules of --placement.
 *
 *     cpu  cpu:0  /cpu:0  /device:CPU:0     the machine's only CPU, number 0
 *     gpu  /gpu  /device:GPU                the tower's own GPU
 *     gpu:1  /gpu:1  /device:GPU:1          the second of the GPUs that --gpus chose
 *     round_robin                           each GPU of the worker in turn, layer by layer
 *
 * A device may be preceded by a process in TensorFlow's form: "/job:localhost/replica:0/task:0" or
 * "/job:worker/task:3", "/replica:0/task:0". Devices ignore case. Rules are 'PATTERN=DEVICE,...'
 * with patterns like the shell's: * ? [a-c]. A pattern matches names of layers; if it begins with
 * "type:", types of layers; if it contains a '/', names of parameters, as in "fc?/weights".
 *
 * Owns:    the rules' text. Threads: immutable once read.
 * Errors:  ST_INVALID, logged with the invalid part; ST_NOMEM. */
#ifndef WORKER_PLACE_PLACEMENT_RULES_H
#define WORKER_PLACE_PLACEMENT_RULES_H
#include "base/status.h"
#include <stdbool.h>

enum {
    PLACEMENT_MAX_INDEX = 9999,  /* highest number of a device in a rule */
    PLACEMENT_MAX_TEXT = 1 << 16 /* limit on the bytes of --placement */
};

enum placement_kind {
    PLACEMENT_ANYWHERE, /* no rule requests a device */
    PLACEMENT_ON_CPU,
    PLACEMENT_ON_OWN_GPU,
    PLACEMENT_ON_GPU,
    PLACEMENT_ROUND_ROBIN,
};

struct placement_target {
    enum placement_kind kind;
    int index; /* number of the CPU or GPU; for other kinds 0 */
    int task;  /* index of the worker that the rule names; -1: none */
};

enum placement_subject { PLACEMENT_OF_LAYERS, PLACEMENT_OF_TYPES, PLACEMENT_OF_PARAMS };

struct placement_rule {
    const char *pattern, *device; /* texts of the pattern and the device as written in the rule */
    enum placement_subject of;
    struct placement_target want;
};

struct placement_rules {
    int n;
    struct placement_rule *rule;
    char *text;
};

/* Parses the device that a text requests. Returns false if the text is invalid. */
bool placement_rules_read_target(const char *device, struct placement_target *out);
/* Parses the rules. text NULL: no rules. */
enum status placement_rules_read(const char *text, struct placement_rules *out);
void placement_rules_free(struct placement_rules *r);
/* Returns the first rule that matches a layer of this name and type, or -1. */
int placement_rules_find(const struct placement_rules *r, const char *name, const char *type);
/* Returns the first rule that matches a parameter, such as "fc1/weights"; -1: none. */
int placement_rules_find_param(const struct placement_rules *r, const char *name);
/* Returns true if this rule matches the layer or the parameter, whether or not an earlier rule
 * matches it too. */
bool placement_rule_fits(const struct placement_rule *rule, const char *name, const char *type);
bool placement_rule_fits_param(const struct placement_rule *rule, const char *name);

#define PLACEMENT_SPELLINGS                                                                        \
    "cpu, gpu, gpu:K, /device:GPU:K, /job:localhost/replica:0/task:0/gpu:K or round_robin"

#endif
