/* worker/data/data_words.c - a sorted array of words. An insertion moves all later words, which is
 * cheap enough because most words of a file repeat. */
#include "worker/data/data_words.h"
#include "worker/data/dataset.h"
#include <stdlib.h>
#include <string.h>

struct word {
    const char *at;
    size_t n;
    /* number of the word; if words are collected, in the order of their first occurrence */
    int32_t number;
};

struct data_words {
    struct word *word; /* [room] sorted words, n of them in use */
    int64_t n, room;
    int collects;
};

static int compare(const char *a, size_t n, const struct word *b)
{
    int order = memcmp(a, b->at, n < b->n ? n : b->n);
    return order ? order : (n > b->n) - (n < b->n);
}

/* Returns the index of the first word that is not less than this word. */
static int64_t place_of(const struct data_words *w, const char *word, size_t n)
{
    int64_t from = 0, to = w->n;
    while (from < to) {
        int64_t half = from + (to - from) / 2;
        if (compare(word, n, &w->word[half]) > 0)
            from = half + 1;
        else
            to = half;
    }
    return from;
}

static enum status insert(struct data_words *w, int64_t place, const char *word, size_t n)
{
    if (w->n == DATASET_MAX_CLASSES)
        return ST_UNSUPPORTED;
    if (w->n == w->room) {
        int64_t room = w->room ? w->room * 2 : 16;
        struct word *more = realloc(w->word, (size_t)room * sizeof *more);
        if (!more)
            return ST_NOMEM;
        w->word = more;
        w->room = room;
    }
    struct word *at = w->word + place;
    memmove(at + 1, at, (size_t)(w->n - place) * sizeof *at);
    *at = (struct word){word, n, (int32_t)w->n++};
    return ST_OK;
}

enum status data_words_create(const char *given, struct data_words **out)
{
    enum status st = ST_OK;
    struct data_words *w = calloc(1, sizeof *w);
    if (!w)
        return ST_NOMEM;
    w->collects = !given;
    const char *last = given ? given + strlen(given) : NULL;
    for (const char *at = given, *end; at != last; at = end + (end != last)) {
        end = memchr(at, '\n', (size_t)(last - at));
        end = end ? end : last;
        size_t n = (size_t)(end - at);
        TRY(insert(w, place_of(w, at, n), at, n));
    }
    *out = w;
    w = NULL;
done:
    data_words_destroy(w);
    return st;
}

void data_words_destroy(struct data_words *w)
{
    if (!w)
        return;
    free(w->word);
    free(w);
}

enum status data_words_number(struct data_words *w, const char *word, size_t n, int32_t *out)
{
    int64_t place = place_of(w, word, n);
    int there = place < w->n && compare(word, n, &w->word[place]) == 0;
    if (!there && !w->collects) {
        *out = -1;
        return ST_OK;
    }
    enum status st = there ? ST_OK : insert(w, place, word, n);
    if (st == ST_OK)
        *out = w->word[place].number;
    return st;
}

const char *data_words_at(const struct data_words *w, int64_t place, size_t *n)
{
    if (place >= w->n)
        return NULL;
    *n = w->word[place].n;
    return w->word[place].at;
}

enum status data_words_sort(struct data_words *w, int32_t *numbers, int64_t n, char **names)
{
    size_t bytes = 1;
    int32_t *final = malloc(((size_t)w->n + 1) * sizeof *final);
    for (int64_t i = 0; i < w->n; i++)
        bytes += w->word[i].n + 1;
    char *list = malloc(bytes), *at = list;
    if (!final || !list) {
        free(final);
        free(list);
        return ST_NOMEM;
    }
    for (int64_t i = 0; i < w->n; i++) {
        final[w->word[i].number] = (int32_t)i;
        w->word[i].number = (int32_t)i;
        if (i > 0)
            *at++ = '\n';
        memcpy(at, w->word[i].at, w->word[i].n);
        at += w->word[i].n;
    }
    *at = 0;
    for (int64_t i = 0; i < n; i++)
        numbers[i] = final[numbers[i]];
    free(final);
    *names = list;
    return ST_OK;
}

static void show(const char *names, size_t bytes, char dst[DATA_WORDS_TEXT_BYTES])
{
    size_t n = 0;
    for (const char *c = names; bytes > 0; c++, bytes--) {
        if (n + 4 >= DATA_WORDS_TEXT_BYTES) {
            memcpy(dst + n, "...", 3);
            n += 3;
            break;
        }
        dst[n++] = *c == '\n' ? '/' : (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
    }
    dst[n] = 0;
}

const char *data_words_text(const char *names, char dst[DATA_WORDS_TEXT_BYTES])
{
    show(names, names ? strlen(names) : 0, dst);
    return dst;
}

const char *data_words_name(const char *names, int64_t place, char dst[DATA_WORDS_TEXT_BYTES])
{
    for (; names && place > 0; place--) {
        names = strchr(names, '\n');
        names += names != NULL;
    }
    show(names, names ? strcspn(names, "\n") : 0, dst);
    return dst;
}

int64_t data_words_differ(const char *a, const char *b, char in_a[DATA_WORDS_TEXT_BYTES],
                          char in_b[DATA_WORDS_TEXT_BYTES])
{
    for (int64_t place = 0; a || b; place++) {
        size_t n = a ? strcspn(a, "\n") : 0, k = b ? strcspn(b, "\n") : 0;
        if (!a || !b || n != k || memcmp(a, b, n) != 0) {
            show(a, n, in_a);
            show(b, k, in_b);
            return place;
        }
        a = a[n] ? a + n + 1 : NULL;
        b = b[k] ? b + k + 1 : NULL;
    }
    return -1;
}
