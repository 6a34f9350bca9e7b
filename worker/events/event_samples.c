/* worker/events/event_samples.c - collects samples and their outputs from the batches of an
 * evaluation. */
#include "worker/events/event_samples.h"
#include "worker/data/data_words.h"
#include "worker/events/event.h"
#include "worker/events/event_picture.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_BYTES = 64 + 2 * DATA_WORDS_TEXT_BYTES, NAME_BYTES = 32 };

void event_samples_clear(struct event_samples *s)
{
    s->set = s->running = NULL;
    s->next = 0;
    for (int k = 0; k < EVENT_SAMPLES; k++)
        s->sample[k].item = -1;
}

static int64_t item_of(const struct dataset *set, int k)
{
    return set->n >= EVENT_SAMPLES ? set->n * k / EVENT_SAMPLES : k;
}

static void copy_sample(struct event_sample *s, int64_t item, const float *output, int classes)
{
    s->item = item;
    s->named = evaluate_class(output, classes);
    if (classes > 1)
        s->output = output[s->named];
    else
        s->output = s->named == 1 ? output[0] : 1.0f - output[0];
}

void event_samples_collect(struct event_samples *s, struct tower *e, int64_t first, int n)
{
    const struct dataset *set = e->cfg->test;
    if (s->running != set ||
        s->next != first) /* another evaluation has begun, and the earlier one was not completed */
        event_samples_clear(s);
    s->running = set;
    s->next = first + n;
    int classes = e->cfg->model->classes, n_taken = 0, which[EVENT_SAMPLES];
    for (int k = 0; k < EVENT_SAMPLES && set->labels && !s->unsupported; k++) {
        int64_t item = item_of(set, k);
        if (item >= first && item < first + n)
            which[n_taken++] = k;
    }
    float *output = n_taken > 0 ? malloc((size_t)n * (size_t)classes * sizeof *output) : NULL;
    if (!output)
        return;
    s->unsupported = split_tower_output(e->stages, output) != ST_OK;
    for (int i = 0; i < n_taken && !s->unsupported; i++) {
        int64_t item = item_of(set, which[i]);
        copy_sample(&s->sample[which[i]], item, output + (item - first) * classes, classes);
        s->set = set;
    }
    free(output);
}

static void put_picture(const struct event_samples *s, struct event *e, const char *tag)
{
    struct event_picture *p = NULL;
    struct event_png png = {0};
    uint8_t *data = NULL;
    float *pixels = NULL;
    if (event_picture_create(&s->set->sample, EVENT_SAMPLES, &p) != ST_OK)
        return;
    pixels = malloc((size_t)shape_elems(&s->set->sample) * sizeof *pixels);
    for (int k = 0; k < EVENT_SAMPLES && pixels; k++) {
        const struct event_sample *one = &s->sample[k];
        if (one->item >= 0 && one->item < s->set->n &&
            dataset_plain(s->set, one->item, pixels) == ST_OK)
            event_picture_set(p, k, pixels, one->named, dataset_label(s->set, one->item));
    }
    if (pixels && event_picture_png(p, &data, &png.n) == ST_OK) {
        png.data = data;
        png.width = event_picture_width(p);
        png.height = event_picture_height(p);
        event_image(e, tag, &png);
    }
    free(data);
    free(pixels);
    event_picture_destroy(p);
}

/* Writes a text such as "7" or "7 (ankle boot)", without characters that would end a cell of the
 * table. */
static void name_class(const struct dataset *set, int number, char text[DATA_WORDS_TEXT_BYTES + 16])
{
    char name[DATA_WORDS_TEXT_BYTES] = "";
    if (set->class_names)
        data_words_name(set->class_names, number, name);
    for (char *c = name; *c; c++)
        *c = *c == '|' || *c == '\n' ? ' ' : *c;
    snprintf(text, DATA_WORDS_TEXT_BYTES + 16, name[0] ? "%d (%s)" : "%d", number, name);
}

static void put_table(const struct event_samples *s, struct event *e, const char *tag)
{
    char *table = malloc((EVENT_SAMPLES + 2) * LINE_BYTES);
    char label[DATA_WORDS_TEXT_BYTES + 16], named[DATA_WORDS_TEXT_BYTES + 16];
    if (!table)
        return;
    int n = sprintf(table, "sample | label | prediction | its output\n---|---|---|---\n");
    for (int k = 0; k < EVENT_SAMPLES; k++) {
        const struct event_sample *one = &s->sample[k];
        if (one->item < 0 || one->item >= s->set->n)
            continue;
        int right = one->named == dataset_label(s->set, one->item);
        name_class(s->set, dataset_label(s->set, one->item), label);
        name_class(s->set, one->named, named);
        n += snprintf(table + n, LINE_BYTES, "%" PRId64 " | %s | %s%s%s | %.3f\n", one->item, label,
                      right ? "" : "**", named, right ? "" : "**", (double)one->output);
    }
    event_markdown(e, tag, table);
    free(table);
}

void event_samples_put(const struct event_samples *s, struct event_buf *b, double wall_time,
                       int64_t step, const char *what)
{
    char tag[NAME_BYTES];
    if (!s->set)
        return;
    snprintf(tag, sizeof tag, "%s/samples", what);
    struct event e = event_begin(b, wall_time, step);
    put_picture(s, &e, tag);
    event_end(&e);
    snprintf(tag, sizeof tag, "%s/predictions", what);
    e = event_begin(b, wall_time, step);
    put_table(s, &e, tag);
    event_end(&e);
}
