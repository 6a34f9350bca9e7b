/* tests/sim/text.c - parses each JSON text once (--wrap), because a server reads the same
 * manifests, leases and headers of shards again and again. The caller receives the tree of the
 * first parse, which no code changes. Also prints with snprintf, in a tenth of the C library's
 * instructions, the conversions that most calls use. Not used under a sanitizer, which watches each
 * tree and each text. */
#include "base/digest.h"
#include "tests/sim/sim.h"
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#ifndef WEIR_SIM_LIBC_MALLOC
/* number of kept texts, about as many as in one run; later texts replace earlier ones */
enum { MAX_TEXTS = 64 };

struct text {
    char *bytes; /* bytes of the text; NULL: the place is free */
    size_t n;
    json_t *root;
};
static struct text texts[MAX_TEXTS];

json_t *__real_json_loadb(const char *bytes, size_t n, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *bytes, size_t n, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *bytes, size_t n, size_t flags, json_error_t *error)
{
    if (!sim.schedule || error || flags != JSON_REJECT_DUPLICATES)
        return __real_json_loadb(bytes, n, flags, error);
    struct text *t = &texts[digest_crc32c(0, bytes, n) % MAX_TEXTS];
    if (t->bytes && t->n == n && memcmp(t->bytes, bytes, n) == 0)
        return json_incref(t->root);
    json_t *root = __real_json_loadb(bytes, n, flags, NULL);
    char *copy = root ? malloc(n) : NULL;
    if (copy) {
        json_decref(t->root);
        free(t->bytes);
        *t = (struct text){memcpy(copy, bytes, n), n, json_incref(root)};
    }
    return root;
}

json_t *__real_json_loads(const char *text, size_t flags, json_error_t *error);
json_t *__wrap_json_loads(const char *text, size_t flags, json_error_t *error);
json_t *__wrap_json_loads(const char *text, size_t flags, json_error_t *error)
{
    return __wrap_json_loadb(text, strlen(text), flags, error);
}

/* A text that is printed. `length` also counts the bytes that have no room. */
struct printed {
    char *to;
    size_t room, length;
};

static void put(struct printed *p, const char *bytes, size_t n)
{
    size_t left = p->length < p->room ? p->room - p->length : 0;
    memcpy(p->to + (left ? p->length : 0), bytes, n < left ? n : left);
    p->length += n;
}

static void put_number(struct printed *p, uint64_t value, bool is_signed)
{
    char digits[24], *first = digits + sizeof digits;
    bool is_negative = is_signed && (int64_t)value < 0;
    for (uint64_t left = is_negative ? -value : value; left > 0 || first == digits + sizeof digits;
         left /= 10)
        *--first = (char)('0' + left % 10);
    if (is_negative)
        *--first = '-';
    put(p, first, (size_t)(digits + sizeof digits - first));
}

/* Prints the conversion at *at, and moves *at behind it. Returns false for all conversions but %s,
 * %d and the long integers. */
static bool put_conversion(struct printed *p, const char **at, va_list *ap)
{
    const char *c = *at + 1, *text;
    bool is_long = *c == 'l';
    while (*c == 'l')
        c++;
    *at = c + 1;
    if (is_long && (*c == 'd' || *c == 'u')) {
        put_number(p, va_arg(*ap, uint64_t), *c == 'd');
    } else if (!is_long && *c == 'd') {
        put_number(p, (uint64_t)va_arg(*ap, int), true);
    } else {
        text = !is_long && *c == 's' ? va_arg(*ap, const char *) : NULL;
        if (!text)
            return false;
        put(p, text, strlen(text));
    }
    return true;
}

static bool print_simple(struct printed *p, const char *format, va_list *ap)
{
    for (const char *at = format; *at;) {
        if (*at == '%') {
            if (!put_conversion(p, &at, ap))
                return false;
            continue;
        }
        size_t n = (size_t)(strchrnul(at, '%') - at);
        put(p, at, n);
        at += n;
    }
    if (p->room > 0)
        p->to[p->length < p->room ? p->length : p->room - 1] = 0;
    return true;
}

int __real_snprintf(char *to, size_t room, const char *format, ...);
int __wrap_snprintf(char *to, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int __wrap_snprintf(char *to, size_t room, const char *format, ...)
{
    struct printed p = {to, room, 0};
    va_list ap;
    va_start(ap, format);
    bool is_simple = print_simple(&p, format, &ap);
    va_end(ap);
    if (is_simple)
        return (int)p.length;
    va_start(ap, format);
    int n = vsnprintf(to, room, format, ap);
    va_end(ap);
    return n;
}
#endif
