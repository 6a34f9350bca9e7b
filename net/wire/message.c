/* net/wire/message.c - see message.h and message_rows.h: writes and reads all messages. While a
 * message is written, the memory that it points to belongs to a struct message_room, and all blocks
 * of that struct are freed together. A message that is read points to copies, which message_release
 * frees if a later row is refused. */
#include "net/wire/message.h"
#include "base/flags.h"
#include "base/hosts.h"
#include "base/utf8.h"
#include "net/wire/health.pb-c.h"
#include "net/wire/message_impl.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct message_room {
    struct block {
        struct block *before;
        max_align_t data[];
    } * last;
};

void *message_alloc(struct message_room *room, size_t n, size_t bytes)
{
    struct block *b = n > (SIZE_MAX - sizeof *b) / bytes ? NULL : calloc(1, sizeof *b + n * bytes);
    if (!b)
        return NULL;
    b->before = room->last;
    room->last = b;
    return b->data;
}

static void free_room(struct message_room *room)
{
    for (struct block *b = room->last, *before; b; b = before) {
        before = b->before;
        free(b);
    }
}

static void *budget_alloc(void *ctx, size_t bytes)
{
    struct budget *b = ctx;
    size_t cost = bytes + 32; /* upper bound of malloc's own overhead */
    if (bytes > b->left || cost > b->left)
        return NULL;
    b->left -= cost;
    return malloc(bytes);
}

static void budget_free(void *ctx, void *data)
{
    free(data);
}

void *message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t bytes,
                     struct budget *b, char why[MESSAGE_WHY_BYTES])
{
    *b = (struct budget){{budget_alloc, budget_free, b}, MESSAGE_MAX_MEMORY};
    void *wire = protobuf_c_message_unpack(type, &b->allocator, bytes, data);
    if (!wire)
        snprintf(why, MESSAGE_WHY_BYTES, "the %s does not decode", type->short_name);
    return wire;
}

enum status message_encode(const void *wire, uint8_t **data, size_t *bytes)
{
    size_t n = protobuf_c_message_get_packed_size(wire);
    uint8_t *out = malloc(n ? n : 1);
    if (!out)
        return ST_NOMEM;
    *bytes = protobuf_c_message_pack(wire, out);
    *data = out;
    return ST_OK;
}

enum status message_invalid(char why[MESSAGE_WHY_BYTES], const char *text)
{
    snprintf(why, MESSAGE_WHY_BYTES, "%s", text);
    return ST_INVALID;
}

/* Copies a peer's text for terminals and JSON: replaces each byte that is not printable UTF-8 by
 * '?', and cuts the text to fit, between two characters. */
static void copy_printable(const char *from, char *to, size_t room)
{
    size_t n = 0;
    for (size_t left = strlen(from), bytes; left > 0; left -= bytes, from += bytes, n += bytes) {
        bool is_kept = (bytes = utf8_printable(from, left)) > 0;
        bytes = is_kept ? bytes : 1;
        if (n + bytes >= room)
            break;
        memcpy(to + n, is_kept ? from : "?", bytes);
    }
    to[n] = 0;
}

static int64_t load(enum message_number type, const void *at)
{
    bool b;
    int i;
    unsigned u;
    int64_t x;
    switch (type) {
    case IS_BOOL:
        return memcpy(&b, at, sizeof b), b;
    case IS_INT:
        return memcpy(&i, at, sizeof i), i;
    case IS_UINT:
        return memcpy(&u, at, sizeof u), u;
    default:
        return memcpy(&x, at, sizeof x), x;
    }
}

static void store(enum message_number type, int64_t x, void *at)
{
    bool b = x != 0;
    uint32_t u = (uint32_t)x;
    if (type == IS_BOOL)
        memcpy(at, &b, sizeof b);
    else if (type == IS_INT || type == IS_UINT)
        memcpy(at, &u, sizeof u);
    else
        memcpy(at, &x, sizeof x);
}

static void *load_pointer(const void *at)
{
    void *p;
    memcpy(&p, at, sizeof p);
    return p;
}

static void store_pointer(const void *p, void *at)
{
    memcpy(at, &p, sizeof p);
}

/* Returns word i of names, for example "a|b|c"; "?" if names has fewer words. */
static char *choice_word(const char *names, int64_t i, struct message_room *room)
{
    for (; i > 0; i--)
        names = strchr(names, '|') ? strchr(names, '|') + 1 : "?";
    size_t n = strcspn(names, "|");
    char *word = message_alloc(room, n + 1, 1);
    return word ? memcpy(word, names, n) : NULL;
}

static enum status write_list(const struct message_row *r, const void *plain, size_t n,
                              struct message_room *room, void *wire)
{
    const char *from = load_pointer(plain);
    void **list = message_alloc(room, n + 1, sizeof *list);
    enum status st = list ? ST_OK : ST_NOMEM;
    for (size_t i = 0; st == ST_OK && i < n; i++)
        st = message_write(r->type, from + i * r->type->bytes, room, &list[i]);
    store_pointer(list, wire);
    return st;
}

static enum status write_row(const struct message_row *r, const char *plain,
                             struct message_room *room, char *wire)
{
    const char *from = plain + r->plain;
    void *to = wire + r->wire, *made;
    uint64_t x;
    size_t n = 0;
    enum status st = ST_OK;
    if (r->wire_count) {
        n = (size_t)load(IS_INT, plain + r->plain_count);
        memcpy(wire + r->wire_count, &n, sizeof n);
    }
    switch (r->kind) {
    case ROW_NUMBER:
        x = (uint64_t)load(r->plain_number, from) + (uint64_t)r->more;
        store(r->wire_number, (int64_t)x, to);
        break;
    case ROW_REAL:
        memcpy(to, from, r->bytes);
        break;
    case ROW_CHOICE:
        store_pointer(made = choice_word(r->names, load(IS_INT, from), room), to);
        return made ? ST_OK : ST_NOMEM;
    case ROW_STRING:
    case ROW_ARRAY:
        store_pointer(r->is_inside ? from : load_pointer(from), to);
        break;
    case ROW_TEXT:
        store_pointer(from, to);
        break;
    case ROW_PART:
        TRY(message_write(r->type, from, room, &made));
        store_pointer(made, to);
        break;
    case ROW_LIST:
        return write_list(r, from, n, room, to);
    case ROW_HOSTS:
        store_pointer(((const struct hosts *)(const void *)from)->addr, to);
    }
done:
    return st;
}

enum status message_fill(const struct message_type *type, const void *plain,
                         struct message_room *room, void *wire)
{
    enum status st = ST_OK;
    for (size_t i = 0; i < type->n_rows; i++)
        TRY(write_row(&type->rows[i], plain, room, wire));
    if (type->write)
        st = type->write(plain, wire, room);
done:
    return st;
}

enum status message_write(const struct message_type *type, const void *plain,
                          struct message_room *room, void **wire)
{
    const ProtobufCFieldDescriptor *protocol =
        protobuf_c_message_descriptor_get_field_by_name(type->wire, "protocol");
    char *to = message_alloc(room, 1, type->wire->sizeof_message);
    if (!to)
        return ST_NOMEM;
    type->wire->message_init((void *)to);
    if (protocol)
        store(IS_UINT, MESSAGE_PROTOCOL, to + protocol->offset);
    *wire = to;
    return message_fill(type, plain, room, to);
}

enum status message_pack(const struct message_type *type, const void *plain, uint8_t **data,
                         size_t *bytes)
{
    struct message_room room = {NULL};
    void *wire;
    enum status st = message_write(type, plain, &room, &wire);
    if (st == ST_OK)
        st = message_encode(wire, data, bytes);
    free_room(&room);
    return st;
}

static bool is_within(const struct message_row *r, const void *wire)
{
    float f;
    double x;
    memcpy(&f, wire, sizeof f);
    if (r->bytes == sizeof x)
        memcpy(&x, wire, sizeof x);
    else
        x = f;
    return x >= r->low && x <= r->high;
}

static enum status read_choice(const struct message_row *r, const char *word, void *to, char *why)
{
    int choice = r->is_option && !word[0] ? 0 : flags_choice_find(r->names, word);
    if (choice >= 0) {
        store(IS_INT, choice, to);
        return ST_OK;
    }
    if (!r->is_quoted)
        return message_invalid(why, r->why);
    snprintf(why, MESSAGE_WHY_BYTES, "%s '%.40s'; this server supports %s", r->why, word, r->names);
    return ST_INVALID;
}

static enum status read_text(const struct message_row *r, const char *text, void *to, char *why)
{
    if (r->is_printable)
        copy_printable(text, to, r->bytes);
    else if (r->why && strlen(text) >= r->bytes)
        return message_invalid(why, r->why);
    else
        snprintf(to, r->bytes, "%s", text);
    return ST_OK;
}

static enum status read_string(const struct message_row *r, const char *text, void *to, char *why)
{
    size_t n = strlen(text);
    char *copy = n > 0 && n <= (size_t)r->most ? strdup(text) : NULL;
    if (n > (size_t)r->most)
        return message_invalid(why, r->why);
    store_pointer(copy, to);
    return n > 0 && !copy ? ST_NOMEM : ST_OK;
}

/* Copies a list whose length was checked. The count grows with each element, so that
 * message_release frees the elements that were read. */
static enum status read_list(const struct message_row *r, const void *wire, size_t n, void *plain,
                             void *count, char *why)
{
    size_t bytes = r->type ? r->type->bytes : r->bytes;
    void *const *messages = wire;
    char *list = r->is_inside ? plain : NULL;
    enum status st = ST_OK;
    if (n == 0)
        return ST_OK;
    if (!list)
        store_pointer(list = calloc(n, bytes), plain);
    if (!list)
        return ST_NOMEM;
    if (!r->type)
        memcpy(list, wire, n * bytes);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        store(IS_INT, (int64_t)i + 1, count);
        if (r->type)
            st = message_read(r->type, messages[i], list + i * bytes, why);
    }
    return st;
}

static enum status read_hosts(char *const *from, size_t n, struct hosts *out, char *why)
{
    struct hosts h = {0};
    enum status st = hosts_copy((const char *const *)from, n, &h);
    for (int i = 0; st == ST_OK && i < h.n; i++)
        if (strlen(h.addr[i]) >= CONTROL_TEXT_BYTES)
            st = ST_INVALID;
    if (st == ST_INVALID)
        message_invalid(
            why,
            "the list of servers is too long, or has an entry that is not host:port or is duplicated");
    if (st == ST_OK)
        *out = h;
    else
        hosts_free(&h);
    return st;
}

static enum status read_row(const struct message_row *r, const char *wire, char *plain, char *why)
{
    const void *from = wire + r->wire;
    void *to = plain + r->plain;
    size_t n = 0;
    int64_t x = 0;
    if (r->wire_count)
        memcpy(&n, wire + r->wire_count, sizeof n);
    switch (r->kind) {
    case ROW_NUMBER:
        x = (int64_t)((uint64_t)load(r->wire_number, from) - (uint64_t)r->more);
        if (r->why && (x < r->least || x > r->most))
            return message_invalid(why, r->why);
        store(r->plain_number, x, to);
        return ST_OK;
    case ROW_REAL:
        if (!is_within(r, from))
            return message_invalid(why, r->why);
        memcpy(to, from, r->bytes);
        return ST_OK;
    case ROW_CHOICE:
        return read_choice(r, load_pointer(from), to, why);
    case ROW_TEXT:
        return read_text(r, load_pointer(from), to, why);
    case ROW_STRING:
        return read_string(r, load_pointer(from), to, why);
    case ROW_PART:
        from = load_pointer(from);
        return from ? message_read(r->type, from, to, why) : ST_OK;
    case ROW_LIST:
    case ROW_ARRAY:
        if (n < (size_t)r->least || n > (size_t)r->most)
            return message_invalid(why, r->why);
        return read_list(r, load_pointer(from), n, to, plain + r->plain_count, why);
    case ROW_HOSTS:
        return read_hosts(load_pointer(from), n, to, why);
    }
    return ST_OK;
}

enum status message_read(const struct message_type *type, const void *wire, void *plain, char *why)
{
    enum status st = ST_OK;
    const char *wrong = type->problem ? type->problem(wire) : NULL;
    if (wrong)
        return message_invalid(why, wrong);
    for (size_t i = 0; i < type->n_rows; i++)
        TRY(read_row(&type->rows[i], wire, plain, why));
    if (type->read)
        st = type->read(wire, plain, why);
done:
    return st;
}

static enum status check_protocol(const ProtobufCMessage *wire, char why[MESSAGE_WHY_BYTES])
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(wire->descriptor, "protocol");
    int64_t theirs = field ? load(IS_UINT, (const char *)wire + field->offset) : MESSAGE_PROTOCOL;
    if (theirs == MESSAGE_PROTOCOL)
        return ST_OK;
    snprintf(why, MESSAGE_WHY_BYTES,
             "the caller speaks protocol %" PRId64
             ", this server protocol %d; run the same version of all programs",
             theirs, MESSAGE_PROTOCOL);
    return ST_INVALID;
}

enum status message_unpack(const struct message_type *type, const uint8_t *data, size_t bytes,
                           void *plain, char why[MESSAGE_WHY_BYTES])
{
    struct budget b;
    void *wire = message_decode(type->wire, data, bytes, &b, why), *made = NULL;
    if (!wire)
        return ST_PROTOCOL;
    enum status st = check_protocol(wire, why);
    if (st == ST_OK && !(made = calloc(1, type->bytes)))
        st = ST_NOMEM;
    if (st == ST_OK)
        st = message_read(type, wire, made, why);
    protobuf_c_message_free_unpacked(wire, &b.allocator);
    if (st == ST_OK)
        memcpy(plain, made, type->bytes);
    else if (made)
        message_release(type, made);
    if (st == ST_NOMEM)
        snprintf(why, MESSAGE_WHY_BYTES, "out of memory");
    free(made);
    return st;
}

static void release_row(const struct message_row *r, char *plain)
{
    void *at = plain + r->plain;
    if (r->kind == ROW_NUMBER || r->kind == ROW_REAL || r->kind == ROW_CHOICE ||
        r->kind == ROW_TEXT)
        return; /* most rows */
    if (r->kind == ROW_PART)
        message_release(r->type, at);
    if (r->kind == ROW_HOSTS)
        hosts_free(at);
    if (r->is_inside || (r->kind != ROW_STRING && r->kind != ROW_LIST && r->kind != ROW_ARRAY))
        return;
    char *list = load_pointer(at);
    for (int64_t i = 0; r->kind == ROW_LIST && i < load(IS_INT, plain + r->plain_count); i++)
        message_release(r->type, list + (size_t)i * r->type->bytes);
    free(list);
    store_pointer(NULL, at);
    if (r->kind != ROW_STRING)
        store(IS_INT, 0, plain + r->plain_count);
}

void message_release(const struct message_type *type, void *plain)
{
    if (type->release)
        type->release(plain);
    for (size_t i = 0; i < type->n_rows; i++)
        release_row(&type->rows[i], plain);
}

enum status message_health_unpack(const uint8_t *data, size_t bytes, char *service, size_t room)
{
    struct budget b;
    char why[MESSAGE_WHY_BYTES];
    Grpc__Health__V1__HealthCheckRequest *wire =
        message_decode(&grpc__health__v1__health_check_request__descriptor, data, bytes, &b, why);
    if (!wire)
        return ST_PROTOCOL;
    snprintf(service, room, "%s", wire->service);
    protobuf_c_message_free_unpacked(&wire->base, &b.allocator);
    return ST_OK;
}

enum status message_health_pack(enum health_status status, uint8_t **data, size_t *bytes)
{
    Grpc__Health__V1__HealthCheckResponse wire = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    wire.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    return message_encode(&wire, data, bytes);
}
