/* worker/events/event_picture.h - samples side by side in one picture. Each has a frame, green if
 * the network is right and red if it is wrong. Below it is the predicted class and, if that is
 * wrong, behind a slash the label: 7/9. Small samples are enlarged, large ones lose rows and
 * columns, both by whole factors. One channel is grey, three are red, green, blue; of other numbers
 * only the first is drawn.
 * Owns:    the pixels.
 * Threads: one. Errors: ST_NOMEM (not logged). */
#ifndef WORKER_EVENTS_EVENT_PICTURE_H
#define WORKER_EVENTS_EVENT_PICTURE_H
#include "base/shape.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct event_picture;
/* Creates room for n samples of a shape (C,H,W). ST_UNSUPPORTED: one row or column is no
 * picture. */
enum status event_picture_create(const struct shape *sample, int n, struct event_picture **out);
void event_picture_destroy(struct event_picture *p); /* NULL is fine */
/* Draws the k-th sample; pixels (C,H,W), 0 to 1; if any is outside, scaled from the smallest to the
 * largest. named, label: below 0: unknown. */
void event_picture_set(struct event_picture *p, int k, const float *pixels, int named, int label);
int event_picture_width(const struct event_picture *p);
int event_picture_height(const struct event_picture *p);
/* Returns a PNG file, malloc'd. */
enum status event_picture_png(const struct event_picture *p, uint8_t **data, size_t *n);

#endif
