/* net/wire/message_rows.h - messages as tables of fields. Private to the message*.c.
 *
 * A message has two forms: the struct that protobuf-c decodes ("wire") and the struct that the
 * programs use ("plain"). A table has one row for each field: its offsets in both structs, its
 * bounds, and the sentence that refuses a value outside these bounds. message.c walks the rows in
 * both directions; hooks of the type add rules that a row cannot express.
 *
 *     #define OF Weir__V1__LeaveRequest, struct net_leave
 *     static const struct message_row leave_rows[] = {
 *         NUMBER(OF, member, member, 0, JOB_MAX_WORKERS - 1, "the member's number is ..."),
 *         ANY(OF, generation, generation),
 *     };
 *     const struct message_type message_leave = {MESSAGE_TYPE(OF, leave_request, leave_rows)};
 *
 * A field `protocol` needs no row: message_pack writes it, and message_unpack checks it first. */
#ifndef NET_WIRE_MESSAGE_ROWS_H
#define NET_WIRE_MESSAGE_ROWS_H
#include "base/status.h"
#include <float.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Type of a number in a struct. A float is copied bit by bit, as the integer of its size. For
 * bounds, a uint64 beyond the largest int64 is negative, and so outside bounds that start at 0. */
enum message_number { IS_BOOL, IS_INT, IS_UINT, IS_INT64 };
/* clang-format off */
#define MESSAGE_NUMBER(T, field)                                                                   \
    _Generic(((T *)0)->field, bool: IS_BOOL, int: IS_INT, float: IS_INT, unsigned: IS_UINT,        \
             int64_t: IS_INT64, double: IS_INT64, uint64_t: IS_INT64)
/* clang-format on */

struct message_row {
    enum message_row_kind {
        ROW_NUMBER,
        ROW_REAL,
        ROW_CHOICE,
        ROW_TEXT,
        ROW_STRING,
        ROW_PART,
        ROW_LIST,
        ROW_ARRAY,
        ROW_HOSTS
    } kind;
    enum message_number wire_number, plain_number;
    size_t wire, plain;             /* offsets */
    size_t wire_count, plain_count; /* offsets of a list's length: size_t (wire), int (plain) */
    size_t bytes;        /* size of a text's array, of one number in a list, or of a real number */
    int64_t more;        /* number on the wire minus the number in the plain struct */
    int64_t least, most; /* bounds of the number in the plain struct, or of a length */
    double low, high;    /* bounds of a real number */
    const char *why;     /* sentence of a refusal; NULL: accept any value, cut a text to fit */
    const char *names;   /* words of a choice, separated by | */
    bool is_option;      /* the word of a choice may be empty, which then means the first word */
    bool is_quoted;      /* the refusal of a choice quotes the word, and lists the valid ones */
    bool is_printable;   /* bytes of a text that are not printable are replaced */
    bool is_inside;      /* an array is part of the struct; otherwise it is malloc'd */
    const struct message_type *type; /* type of an inner message, or of a list's elements */
};

struct message_room; /* memory that a message points to until it is packed */

struct message_type {
    const ProtobufCMessageDescriptor *wire;
    size_t bytes; /* size of the plain struct */
    const struct message_row *rows;
    size_t n_rows;
    /* Hooks; NULL: none. `problem` is called before rows are read; it returns a sentence, or
     * NULL. */
    const char *(*problem)(const void *wire);
    /* `read` is called after the rows are read. ST_INVALID (with a sentence), ST_CORRUPT,
     * ST_NOMEM. */
    enum status (*read)(const void *wire, void *plain, char *why);
    enum status (*write)(const void *plain, void *wire, struct message_room *room);
    void (*release)(void *plain); /* frees memory that `read` has allocated */
};
#define MESSAGE_TYPE(...) MESSAGE_TYPE_(__VA_ARGS__)
#define MESSAGE_TYPE_(W, P, name, list)                                                            \
    .wire = &weir__v1__##name##__descriptor, .bytes = sizeof(P), .rows = list,                     \
    .n_rows = sizeof(list) / sizeof *(list)

/* Macros for rows. OF is the pair of structs; w and p are the field's names in them. */
#define MESSAGE_ROW(k, W, P, w, p, ...)                                                            \
    {                                                                                              \
        .kind = k, .wire = offsetof(W, w), .plain = offsetof(P, p), __VA_ARGS__                    \
    }
#define MORE(...) MORE_(__VA_ARGS__)
#define MORE_(W, P, w, p, plus, min, max, text)                                                    \
    MESSAGE_ROW(ROW_NUMBER, W, P, w, p, .wire_number = MESSAGE_NUMBER(W, w),                       \
                .plain_number = MESSAGE_NUMBER(P, p), .more = plus, .least = min, .most = max,     \
                .why = text)
/* Integer, enum or bool. NUMBER: with bounds; ANY: without; MORE1: larger by 1 on the wire. */
#define NUMBER(of, w, p, min, max, text) MORE(of, w, p, 0, min, max, text)
#define ANY(of, w, p) MORE(of, w, p, 0, 0, 0, NULL)
#define MORE1(of, w, p, min, max, text) MORE(of, w, p, 1, min, max, text)
#define REAL(...) REAL_(__VA_ARGS__)
#define REAL_(W, P, w, p, min, max, text)                                                          \
    MESSAGE_ROW(ROW_REAL, W, P, w, p, .bytes = sizeof(((P *)0)->p), .low = min, .high = max,       \
                .why = text)
/* A word of `list` on the wire, its index in the plain struct. Further fields of the row follow. */
#define CHOICE(...) CHOICE_(__VA_ARGS__)
#define CHOICE_(W, P, w, p, list, text, ...)                                                       \
    MESSAGE_ROW(ROW_CHOICE, W, P, w, p, .names = list, .why = text, __VA_ARGS__)
/* char[]. TEXT: made printable and cut to fit; CUT: cut to fit; FIT: refused if it does not fit. */
#define TEXT(of, w, p) RAW_(of, w, p, NULL, true)
#define CUT(of, w, p) RAW_(of, w, p, NULL, false)
#define FIT(of, w, p, text) RAW_(of, w, p, text, false)
#define RAW_(...) RAW__(__VA_ARGS__)
#define RAW__(W, P, w, p, text, clean)                                                             \
    MESSAGE_ROW(ROW_TEXT, W, P, w, p, .bytes = sizeof(((P *)0)->p), .why = text,                   \
                .is_printable = clean)
/* malloc'd text; NULL if the text on the wire is empty. */
#define STRING(...) STRING_(__VA_ARGS__)
#define STRING_(W, P, w, p, max, text) MESSAGE_ROW(ROW_STRING, W, P, w, p, .most = max, .why = text)
/* A message inside the message; if it is absent, nothing is read. FLAT: its fields are stored in
 * the outer struct. */
#define PART(...) PART_(__VA_ARGS__)
#define PART_(W, P, w, p, t) MESSAGE_ROW(ROW_PART, W, P, w, p, .type = t)
#define FLAT(...) FLAT_(__VA_ARGS__)
#define FLAT_(W, P, w, t)                                                                          \
    {                                                                                              \
        .kind = ROW_PART, .wire = offsetof(W, w), .type = t                                        \
    }
/* List of messages or numbers: a length n, a malloc'd array; INSIDE: the array is in the struct. */
#define LIST(...) LIST_(__VA_ARGS__)
#define LIST_(W, P, w, n, p, t, min, max, text)                                                    \
    MESSAGE_ROW(ROW_LIST, W, P, w, p, .wire_count = offsetof(W, n_##w), .type = t,                 \
                .plain_count = offsetof(P, n), .least = min, .most = max, .why = text)
#define ARRAY(...) ARRAY_(__VA_ARGS__)
#define ARRAY_(W, P, w, n, p, min, max, text)                                                      \
    MESSAGE_ROW(ROW_ARRAY, W, P, w, p, .wire_count = offsetof(W, n_##w),                           \
                .plain_count = offsetof(P, n), .bytes = sizeof *((P *)0)->p, .least = min,         \
                .most = max, .why = text)
#define INSIDE(...) INSIDE_(__VA_ARGS__)
#define INSIDE_(W, P, w, n, p, max, text)                                                          \
    MESSAGE_ROW(ROW_ARRAY, W, P, w, p, .wire_count = offsetof(W, n_##w), .is_inside = true,        \
                .plain_count = offsetof(P, n), .bytes = sizeof *((P *)0)->p, .most = max,          \
                .why = text)
#define BYTES(...) BYTES_(__VA_ARGS__)
#define BYTES_(W, P, w, n, p, max, text)                                                           \
    MESSAGE_ROW(ROW_ARRAY, W, P, w.data, p, .wire_count = offsetof(W, w.len), .bytes = 1,          \
                .plain_count = offsetof(P, n), .most = max, .why = text, .is_inside = true)
/* Addresses without duplicates; in the plain struct a struct hosts. */
#define HOSTS(...) HOSTS_(__VA_ARGS__)
#define HOSTS_(W, P, w, p)                                                                         \
    MESSAGE_ROW(ROW_HOSTS, W, P, w, p, .wire_count = offsetof(W, n_##w),                           \
                .plain_count = offsetof(P, p.n))

#endif
