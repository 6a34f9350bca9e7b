/* worker/place/placement_rules.h - how placements are spelt: devices, and the rules of --placement.
 *
 *     cpu  cpu:0  /cpu:0  /device:CPU:0     the machine's CPU; there is but one, number 0
 *     gpu  /gpu  /device:GPU                the tower's own GPU
 *     gpu:1  /gpu:1  /device:GPU:1          the second of the GPUs that --gpus chose
 *     round_robin                           each GPU of the worker in turn, layer by layer
 *
 * Before a device TensorFlow's names may say which process: "/job:localhost/replica:0/task:0" or
 * "/job:worker/task:3", "/replica:0/task:0". Case does not count in devices. Rules are
 * 'PATTERN=DEVICE,...', patterns as the shell's: * ? [a-c]. A pattern is matched with layers'
 * names; behind "type:" with their types, and with a '/' in it with parameters' names, as in
 * "fc?/weights".
 *
 * Owns:    the rules' text.
 * Threads: immutable once read.
 * Errors:  ST_INVALID, logged with the piece that is wrong; ST_NOMEM. */
#ifndef WORKER_PLACE_PLACEMENT_RULES_H
#define WORKER_PLACE_PLACEMENT_RULES_H
#include "base/status.h"

enum {
    PLACEMENT_MAX_INDEX = 9999,  /* of a device in a rule */
    PLACEMENT_MAX_TEXT = 1 << 16 /* bytes of --placement */
};

enum placement_kind {
    PLACEMENT_ANYWHERE, /* nothing is said */
    PLACEMENT_ON_CPU,
    PLACEMENT_ON_OWN_GPU,
    PLACEMENT_ON_GPU,
    PLACEMENT_ROUND_ROBIN,
};

struct placement_target {
    enum placement_kind kind;
    int index; /* of the CPU or GPU, else 0 */
    int task;  /* the worker that is named; -1: none */
};

enum placement_subject { PLACEMENT_OF_LAYERS, PLACEMENT_OF_TYPES, PLACEMENT_OF_PARAMS };

struct placement_rule {
    const char *pattern, *device; /* both as they were written */
    enum placement_subject of;
    struct placement_target want;
};

struct placement_rules {
    int n;
    struct placement_rule *rule;
    char *text;
};

/* What `device` asks for; 0 if it cannot be read. */
int placement_rules_read_target(const char *device, struct placement_target *out);
/* text NULL: no rules. */
enum status placement_rules_read(const char *text, struct placement_rules *out);
void placement_rules_free(struct placement_rules *r);
/* The first rule that fits a layer of this name and type, else -1. */
int placement_rules_find(const struct placement_rules *r, const char *name, const char *type);
/* The first rule that fits a parameter, "fc1/weights", else -1. */
int placement_rules_find_param(const struct placement_rules *r, const char *name);
/* Does this rule fit the layer, or the parameter, whatever stands before it? */
int placement_rule_fits(const struct placement_rule *rule, const char *name, const char *type);
int placement_rule_fits_param(const struct placement_rule *rule, const char *name);

#define PLACEMENT_SPELLINGS                                                                        \
    "cpu, gpu, gpu:K, /device:GPU:K, /job:localhost/replica:0/task:0/gpu:K or round_robin"

#endif
