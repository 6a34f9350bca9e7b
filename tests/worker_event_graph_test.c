/* tests/worker_event_graph_test.c - the graph of a model with keys in event files: the nodes, their
 * inputs and devices. */
#include "tests/check.h"
#include "worker/events/event_graph.h"
#include <stdio.h>
#include <string.h>

enum { GRAPH_BYTES = 1 << 16, TEXT_BYTES = 1 << 12 };

static const char text[] =
    "{\"inputs\": {\"fields\": {\"type\": \"keys\", \"columns\": 2}}, \"classes\": 1, \"layers\": ["
    "{\"type\": \"embedding_bag\", \"name\": \"deep\", \"units\": 3, \"max_rows\": 9},"
    "{\"type\": \"flatten\", \"name\": \"flat\"},"
    "{\"type\": \"dense\", \"name\": \"fc\", \"bias\": false, \"units\": 1},"
    "{\"type\": \"sigmoid_cross_entropy\", \"name\": \"loss\"}]}";

static uint64_t read_varint(const uint8_t **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**at & 127) << shift;
        if (*(*at)++ < 128)
            return value;
    }
}

/* Appends a node's texts: its name, operation, inputs and device. */
static void append_node(const uint8_t *at, const uint8_t *end, char *out)
{
    while (at < end) {
        uint64_t field = read_varint(&at) >> 3, n = read_varint(&at);
        if (field <= 4)
            snprintf(out + strlen(out), TEXT_BYTES - strlen(out), "%.*s ", (int)n,
                     (const char *)at);
        at += n;
    }
    strcat(out, "\n");
}

static void keys_and_tables_are_on_the_host(void **state)
{
    static uint8_t data[GRAPH_BYTES];
    static char shown[TEXT_BYTES];
    static const struct device_info gpu = {.ordinal = 0};
    struct event_buf b = {.data = data, .cap = sizeof data};
    struct tower_plan towers = {.n = 1, .tower = {{.own = {.gpu = &gpu}, .n = 7}}};
    struct model *m = NULL;
    assert_int_equal(model_parse(text, sizeof text - 1, "test.json", 0, &m), ST_OK);
    const struct event_graph_source source = {.model = m, .towers = &towers, .n_servers = 1};
    event_graph_put(&source, &b);
    assert_false(b.overflow);
    for (const uint8_t *at = data; at < data + b.n;) {
        uint64_t field = read_varint(&at) >> 3, n = read_varint(&at);
        if (field == 1)
            append_node(at, at + n, shown);
        at += n;
    }
    assert_string_equal(shown,
                        "fc/weights VariableV2 /job:ps/task:0/device:CPU:0 \n"
                        "inputs/fields Placeholder /job:worker/task:0/device:CPU:0 \n"
                        "deep embedding_bag /job:worker/task:0/device:CPU:0 inputs/fields \n"
                        "flat flatten /job:worker/task:0/device:GPU:0 deep \n"
                        "fc/dense dense /job:worker/task:0/device:GPU:0 flat fc/weights \n"
                        "loss sigmoid_cross_entropy /job:worker/task:0/device:GPU:0 fc/dense \n");
    model_destroy(m);
}

int main(void)
{
    return RUN_TESTS(keys_and_tables_are_on_the_host);
}
