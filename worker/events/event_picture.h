/* worker/events/event_picture.h - samples side by side in one picture. Each sample has a frame,
 * green if the network is right and red if it is wrong. The predicted class is written below the
 * sample; if it is wrong, a slash and the label follow: 7/9. Small samples are enlarged, and of
 * large samples only some rows and columns are drawn, both by whole factors. One channel is drawn
 * grey, three as red, green, blue; of any other number of channels only the first is drawn.
 * Owns:    the pixels.
 * Threads: one. Errors: ST_NOMEM (not logged). */
#ifndef WORKER_EVENTS_EVENT_PICTURE_H
#define WORKER_EVENTS_EVENT_PICTURE_H
#include "base/shape.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct event_picture;
/* Creates a picture for n samples of a shape (C,H,W). ST_UNSUPPORTED: samples of one row or one
 * column are not drawn. */
enum status event_picture_create(const struct shape *sample, int n, struct event_picture **out);
void event_picture_destroy(struct event_picture *p); /* NULL is fine */
/* Draws the k-th sample. pixels: (C,H,W), with values from 0 to 1. If a value is outside this
 * range, all values are scaled: the smallest becomes 0 and the largest 1. named: predicted class;
 * named or label below 0: unknown. */
void event_picture_set(struct event_picture *p, int k, const float *pixels, int named, int label);
int event_picture_width(const struct event_picture *p);
int event_picture_height(const struct event_picture *p);
/* Returns a PNG file, malloc'd. */
enum status event_picture_png(const struct event_picture *p, uint8_t **data, size_t *n);

#endif
