/* worker/events/event.c - encodes events. The numbers of fields are those in TensorBoard's
 * event.proto, summary.proto, tensor.proto and the plugins' plugin_data.proto. */
#include "worker/events/event.h"
#include "base/digest.h"
#include "base/utf8.h"
#include <string.h>

enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_FILE_VERSION, EVENT_GRAPH, EVENT_SUMMARY };
enum { EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_IMAGE = 4, VALUE_HISTOGRAM = 5, VALUE_TENSOR = 8 };
enum { VALUE_METADATA = 9, METADATA_PLUGIN = 1, METADATA_CLASS = 4, CLASS_TENSOR = 2 };
enum { PLUGIN_NAME = 1, PLUGIN_CONTENT };
enum { HEAD_BYTES = 12, LENGTH_BYTES = 8, CRC_BYTES = 4 };

uint32_t event_masked_crc(const void *data, size_t n)
{
    uint32_t crc = digest_crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_little(uint8_t *to, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

struct event event_begin(struct event_buf *b, double wall_time, int64_t step)
{
    const uint8_t head[HEAD_BYTES] = {0};
    struct event e = {b, b->n, 0};
    event_buf_raw(b, head, sizeof head);
    event_buf_double(b, EVENT_WALL_TIME, wall_time);
    event_buf_int(b, EVENT_STEP, step);
    return e;
}

bool event_end(struct event *e)
{
    struct event_buf *b = e->b;
    uint8_t crc[CRC_BYTES] = {0};
    if (e->summary)
        event_buf_end(b, e->summary);
    event_buf_raw(b, crc, sizeof crc); /* reserves room */
    if (b->overflow) {
        b->n = e->record;
        b->overflow = 0;
        return false;
    }
    uint8_t *head = b->data + e->record, *tail = b->data + b->n - CRC_BYTES;
    put_little(head, (uint64_t)(tail - head) - HEAD_BYTES, LENGTH_BYTES);
    put_little(head + LENGTH_BYTES, event_masked_crc(head, LENGTH_BYTES), CRC_BYTES);
    put_little(tail, event_masked_crc(head + HEAD_BYTES, (size_t)(tail - head) - HEAD_BYTES),
               CRC_BYTES);
    return true;
}

void event_file_version(struct event *e)
{
    event_buf_text(e->b, EVENT_FILE_VERSION, "brain.Event:2");
}

void event_session_start(struct event *e)
{
    enum { STATUS = 1, START = 1 };
    size_t log = event_buf_begin(e->b, EVENT_SESSION_LOG);
    event_buf_int(e->b, STATUS, START);
    event_buf_end(e->b, log);
}

void event_graph(struct event *e, const uint8_t *graph, size_t n)
{
    event_buf_bytes(e->b, EVENT_GRAPH, graph, n);
}

static void put_text(struct event_buf *b, int field, const char *text)
{
    size_t begun = event_buf_begin(b, field);
    for (size_t left = strlen(text), n; left > 0; text += n ? n : 1, left -= n ? n : 1) {
        unsigned char c = (unsigned char)*text;
        const unsigned char latin[2] = {(unsigned char)(0xc0 | c >> 6),
                                        (unsigned char)(0x80 | (c & 0x3f))};
        n = utf8_character(text, left);
        event_buf_raw(b, n ? (const void *)text : latin, n ? n : 2);
    }
    event_buf_end(b, begun);
}

static size_t begin_value(struct event *e, const char *tag)
{
    if (!e->summary)
        e->summary = event_buf_begin(e->b, EVENT_SUMMARY);
    size_t value = event_buf_begin(e->b, SUMMARY_VALUE);
    put_text(e->b, VALUE_TAG, tag);
    return value;
}

void event_scalar(struct event *e, const char *tag, double value)
{
    size_t begun = begin_value(e, tag);
    event_buf_float(e->b, VALUE_SIMPLE, (float)value);
    event_buf_end(e->b, begun);
}

void event_histogram(struct event *e, const char *tag, const struct event_histogram *h)
{
    enum { MIN = 1, MAX, NUM, SUM, SUM_SQUARES, LIMIT, COUNT };
    size_t begun = begin_value(e, tag), histogram = event_buf_begin(e->b, VALUE_HISTOGRAM);
    double limit[EVENT_HISTOGRAM_BUCKETS], count[EVENT_HISTOGRAM_BUCKETS];
    int n = event_histogram_buckets(h, limit, count);
    event_buf_double(e->b, MIN, h->min);
    event_buf_double(e->b, MAX, h->max);
    event_buf_double(e->b, NUM, (double)h->n);
    event_buf_double(e->b, SUM, h->sum);
    event_buf_double(e->b, SUM_SQUARES, h->sum_squares);
    event_buf_doubles(e->b, LIMIT, limit, n);
    event_buf_doubles(e->b, COUNT, count, n);
    event_buf_end(e->b, histogram);
    event_buf_end(e->b, begun);
}

void event_image(struct event *e, const char *tag, const struct event_png *png)
{
    enum { HEIGHT = 1, WIDTH, COLORSPACE, ENCODED, RGB = 3 };
    size_t begun = begin_value(e, tag), image = event_buf_begin(e->b, VALUE_IMAGE);
    event_buf_int(e->b, HEIGHT, png->height);
    event_buf_int(e->b, WIDTH, png->width);
    event_buf_int(e->b, COLORSPACE, RGB);
    event_buf_bytes(e->b, ENCODED, png->data, png->n);
    event_buf_end(e->b, image);
    event_buf_end(e->b, begun);
}

/* Writes the plugin that shows a value. data_cl 0: no data class is written. */
static void put_metadata(struct event_buf *b, const char *plugin, const struct event_buf *content,
                         int data_class)
{
    size_t metadata = event_buf_begin(b, VALUE_METADATA);
    size_t data = event_buf_begin(b, METADATA_PLUGIN);
    event_buf_text(b, PLUGIN_NAME, plugin);
    if (content)
        event_buf_bytes(b, PLUGIN_CONTENT, content->data, content->n);
    event_buf_end(b, data);
    if (data_class)
        event_buf_int(b, METADATA_CLASS, data_class);
    event_buf_end(b, metadata);
}

void event_markdown(struct event *e, const char *tag, const char *text)
{
    enum { DTYPE = 1, SHAPE, STRING_VALUE = 8, DTYPE_STRING = 7 };
    size_t begun = begin_value(e, tag);
    put_metadata(e->b, "text", NULL, CLASS_TENSOR);
    size_t tensor = event_buf_begin(e->b, VALUE_TENSOR);
    event_buf_int(e->b, DTYPE, DTYPE_STRING);
    event_buf_bytes(e->b, SHAPE, NULL, 0); /* shape of a scalar: no dimensions */
    put_text(e->b, STRING_VALUE, text);
    event_buf_end(e->b, tensor);
    event_buf_end(e->b, begun);
}

/* Fields of the data of TensorBoard's hparams plugin. HPARAMS_START contains the settings of a run;
 * HPARAMS_END records that the run has ended, without any value. */
enum { HPARAMS_VERSION = 1, HPARAMS_START = 3, HPARAMS_END = 4, HPARAMS_BYTES = 16384 };

static void put_hparams(struct event *e, const char *tag, const struct event_buf *content)
{
    size_t begun = begin_value(e, tag);
    put_metadata(e->b, "hparams", content, 0);
    event_buf_end(e->b, begun);
}

void event_hparams_start(struct event *e, const struct event_hparam *list, int n)
{
    enum { MAP = 1, START_TIME = 5, KEY = 1, VALUE = 2, NUMBER = 2, TEXT = 3 };
    uint8_t room[HPARAMS_BYTES];
    struct event_buf c = {room, 0, sizeof room, 0};
    event_buf_int(&c, HPARAMS_VERSION, 0);
    size_t start = event_buf_begin(&c, HPARAMS_START);
    for (int i = 0; i < n; i++) {
        size_t entry = event_buf_begin(&c, MAP);
        put_text(&c, KEY, list[i].name);
        size_t value = event_buf_begin(&c, VALUE);
        if (list[i].text)
            put_text(&c, TEXT, list[i].text);
        else
            event_buf_double(&c, NUMBER, list[i].number);
        event_buf_end(&c, value);
        event_buf_end(&c, entry);
    }
    event_buf_end(&c, start);
    e->b->overflow |= c.overflow;
    put_hparams(e, "_hparams_/session_start_info", &c);
}

void event_hparams_end(struct event *e, int failed)
{
    enum { STATUS = 1, SUCCESS = 1, FAILURE = 2 };
    uint8_t room[64];
    struct event_buf c = {room, 0, sizeof room, 0};
    event_buf_int(&c, HPARAMS_VERSION, 0);
    size_t end = event_buf_begin(&c, HPARAMS_END);
    event_buf_int(&c, STATUS, failed ? FAILURE : SUCCESS);
    event_buf_end(&c, end);
    put_hparams(e, "_hparams_/session_end_info", &c);
}
