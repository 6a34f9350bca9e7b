/* worker/data/data_csv_text.c - checks that a CSV file is UTF-8 text. An export writes names and
 * words as JSON, which is always UTF-8: with another encoding, the export would fail at the end of
 * a job. Ignored fields and numbers are not checked. See data_csv_impl.h. */
#include "base/log.h"
#include "base/utf8.h"
#include "worker/data/data_csv_impl.h"
#include <string.h>

#define CONVERT "convert the file with iconv -f %s -t UTF-8 FILE > NEW"

/* Returns the number of the line that contains this byte. */
static long long line_of(const uint8_t *bytes, const uint8_t *byte)
{
    long long line = 1;
    for (const uint8_t *at = bytes; (at = memchr(at, '\n', (size_t)(byte - at))); at++)
        line++;
    return line;
}

/* Logs a zero byte. In UTF-16 text, each ASCII character has a zero byte. */
static void name_zero(const uint8_t *bytes, const uint8_t *zero, const char *path)
{
    if (zero - bytes > 1)
        LOG_E(
            "%s: line %lld: has a byte of value 0, which text never contains; fix or remove the line",
            path, line_of(bytes, zero));
    else
        LOG_E(
            "%s: line 1: has a byte of value 0, which text never contains; if it is UTF-16, " CONVERT,
            path, zero == bytes ? "UTF-16BE" : "UTF-16LE");
}

enum status data_csv_text_check(const uint8_t *bytes, uint64_t n, const char *path)
{
    bool utf16 = n >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0);
    bool utf32 = n >= 4 && memcmp(bytes, "\xff\xfe\0\0", 4) == 0;
    const char *encoding = utf32 ? "UTF-32" : "UTF-16";
    const uint8_t *zero = memchr(bytes, 0, (size_t)n);
    bool cr_alone = n > 0 && memchr(bytes, '\r', n - 1) && !memchr(bytes, '\n', n);
    if (utf16)
        LOG_E("%s: is %s text, which is not supported; " CONVERT, path, encoding, encoding);
    else if (zero)
        name_zero(bytes, zero, path);
    else if (cr_alone)
        LOG_E(
            "%s: its lines end with CR alone, which is not supported; save it with line ends of Unix (LF) or Windows (CR LF)",
            path);
    return utf16 || zero || cr_alone ? ST_CORRUPT : ST_OK;
}

enum status data_csv_text_check_word(const struct csv *c, int64_t column, const char *field,
                                     size_t n)
{
    char shown[DATA_CSV_SHOWN_BYTES];
    if (utf8_is_valid(field, n))
        return ST_OK;
    LOG_E(
        "%s: line %lld, column %lld: '%s' is not UTF-8, as names and words must be; if it is Latin-1, " CONVERT,
        c->path, (long long)c->line, (long long)column + 1, data_csv_show(field, n, shown),
        "LATIN1");
    return ST_CORRUPT;
}

enum status data_csv_text_check_names(const struct csv *c)
{
    enum status st = ST_OK;
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    for (int64_t column = 0; p && column < c->n_columns && st == ST_OK; column++) {
        size_t n;
        const char *field = data_csv_next_field(c, &p, end, &n);
        st = data_csv_text_check_word(c, column, field, n);
    }
    return st;
}
