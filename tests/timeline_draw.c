/* tests/timeline_draw.c - draws a timeline as SVG: one row for each of the card's engines, and for
 * the parts of an exchange. All pictures have the same scale. */
#include "tests/check.h"
#include "tests/timeline_rig.h"
#include <stdio.h>

enum {
    LEFT = 150,
    TOP = 46,
    ROW = 34,
    BAR = 22,
    WIDTH = 1220,
    LARGE_BYTES = 1 << 17,
    TICK_US = 500
};
static const double px_per_us = 0.25, before_us = 40;

enum row { ROW_KERNELS, ROW_TO_HOST, ROW_PUSHES, ROW_UPDATES, ROW_ANSWERS, ROW_TO_CARD, N_ROWS };
static const char *const row_names[] = {"card: kernels",   "card to host",    "worker: pushes",
                                        "server: updates", "worker: answers", "host to card"};

static double x_of(const struct timeline *t, double us)
{
    return LEFT + (us - t->begin_us + before_us) * px_per_us;
}

static void draw_bar(FILE *f, const struct timeline *t, enum row row, const char *color,
                     const double us[2], const char *title)
{
    double width = (us[1] - us[0]) * px_per_us;
    if (us[1] < t->begin_us - before_us || x_of(t, us[1]) > WIDTH)
        return;
    fprintf(f,
            "<rect x='%.1f' y='%d' width='%.1f' height='%d' fill='%s' stroke='white' "
            "stroke-width='0.4'><title>%s, %.0f to %.0f us</title></rect>\n",
            x_of(t, us[0]), TOP + (int)row * ROW, width < 1 ? 1 : width, BAR, color, title,
            us[0] - t->begin_us, us[1] - t->begin_us);
}

static void draw_spans(FILE *f, const struct timeline *t)
{
    for (int i = 0; i < t->n_spans; i++) {
        const struct emulation_span *s = &t->spans[i];
        int is_kernel = s->engine == ENGINE_KERNEL, is_large = s->bytes >= LARGE_BYTES;
        enum row row = is_kernel                     ? ROW_KERNELS
                       : s->engine == ENGINE_TO_HOST ? ROW_TO_HOST
                                                     : ROW_TO_CARD;
        char title[120];
        snprintf(title, sizeof title, is_kernel ? "%s" : "%s%zu bytes", s->name, s->bytes);
        draw_bar(f, t, row,
                 is_kernel  ? "#4a7a4a"
                 : is_large ? "#2f6fab"
                            : "#8fb6d9",
                 (double[]){s->begin_us, s->end_us}, title);
    }
}

static void draw_chunks(FILE *f, const struct timeline *t)
{
    for (int i = 0; i < t->n_chunks; i++) {
        const struct timeline_chunk *c = &t->chunk[i];
        int is_large = c->bytes >= LARGE_BYTES;
        const char *color = is_large ? "#b5651d" : "#dfb48c";
        char title[80];
        snprintf(title, sizeof title, "chunk %d, %zu bytes", i, c->bytes);
        draw_bar(f, t, ROW_PUSHES, color, (double[]){c->push_us, c->push_us + 8}, title);
        draw_bar(f, t, ROW_UPDATES, color, (double[]){c->update_us, c->updated_us}, title);
        draw_bar(f, t, ROW_ANSWERS, color, (double[]){c->copy_us, c->copied_us}, title);
    }
}

static void draw_text(FILE *f, double x, int y, const char *text)
{
    fprintf(f, "<text x='%.1f' y='%d'>%s</text>\n", x, y, text);
}

void timeline_draw(const struct timeline *t, const char *title, const char *path)
{
    int height = TOP + N_ROWS * ROW + 26;
    char text[80];
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' "
            "font-family='sans-serif' font-size='13'>\n"
            "<rect width='%d' height='%d' fill='white'/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    draw_text(f, 10, 20, title);
    for (int row = 0; row < N_ROWS; row++)
        draw_text(f, 10, TOP + row * ROW + BAR - 6, row_names[row]);
    for (int us = 0; x_of(t, t->begin_us + us) < WIDTH - 50; us += TICK_US) {
        double x = x_of(t, t->begin_us + us);
        fprintf(f, "<path d='M%.1f %d V%d' stroke='#dddddd'/>\n", x, TOP - 8, TOP + N_ROWS * ROW);
        snprintf(text, sizeof text, "%.1f ms", us / 1000.0);
        draw_text(f, x - 16, TOP + N_ROWS * ROW + 16, text);
    }
    draw_spans(f, t);
    draw_chunks(f, t);
    const double ends[] = {t->begin_us, t->end_us};
    for (int i = 0; i < 2; i++)
        fprintf(f, "<path d='M%.1f %d V%d' stroke='#cc0000' stroke-dasharray='4 3'/>\n",
                x_of(t, ends[i]), TOP - 12, TOP + N_ROWS * ROW);
    fputs("</svg>\n", f);
    assert_int_equal(fclose(f), 0);
}
