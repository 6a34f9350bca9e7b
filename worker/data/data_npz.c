/* worker/data/data_npz.c - reads a member of an npz, which is a zip archive: see data_array.h.
 * Members are found by the list at the archive's end. A stored member is read in place, a deflated
 * one is unpacked to memory. The checksum is checked in both cases, so even a stored member is read
 * once in full. A name that two members have is refused, because programs do not agree on which of
 * them it means. Sizes are read from the list, and limited by the bytes that the packed data can
 * produce.
 *
 * end (at least 22 bytes)
 *     "PK\5\6" .. u16 entries at 10, u32 bytes of the list at 12, u32 offset of the list at 16
 * zip64 locator (20 bytes, before the end)
 *     "PK\6\7" .. u64 offset of "PK\6\6" at 8
 * zip64 end
 *     "PK\6\6" .. u64 entries at 32, u64 bytes of the list at 40, u64 offset of the list at 48
 * entry (at least 46 bytes)
 *     "PK\1\2" .. u16 method at 10, u32 crc at 16, u32 packed bytes at 20, u32 bytes at 24,
 *     u16 bytes of name, extra, comment at 28, 30, 32, u32 offset at 42 | name | extra | comment
 *     0xffffffff: the u64 is in the extra field of kind 1, in the order bytes, packed, offset
 * member (at least 30 bytes)
 *     "PK\3\4" .. u16 bytes of name, extra at 26, 28 | name | extra | data */
#include "base/log.h"
#include "worker/data/data_array.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46, MEMBER = 30, MAX_COMMENT = 65535 };
enum { STORED = 0, DEFLATED = 8, DEFLATE_MAX_RATIO = 1032, PIECE_BYTES = 1 << 30 };

struct zip {
    const uint8_t *bytes;
    uint64_t n;
    const char *label;
    uint64_t list, list_bytes; /* offset and length of the list of members in `bytes` */
};

struct member {
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, unpacked, place;
};

static uint64_t little_endian(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static enum status log_corrupt(const struct zip *z, uint64_t at, const char *what)
{
    LOG_E("%s: byte %llu: %s; save it again with numpy.savez", z->label, (unsigned long long)at,
          what);
    return ST_CORRUPT;
}

static bool has_bytes(const struct zip *z, uint64_t at, uint64_t bytes, const char *magic)
{
    return at <= z->n && bytes <= z->n - at && memcmp(z->bytes + at, magic, 4) == 0;
}

static enum status find_list(struct zip *z)
{
    uint64_t at = z->n >= END ? z->n - END : 0;
    uint64_t last = at > MAX_COMMENT ? at - MAX_COMMENT : 0;
    while (at > last && !has_bytes(z, at, END, "PK\5\6"))
        at--;
    if (!has_bytes(z, at, END, "PK\5\6"))
        return log_corrupt(z, z->n,
                           "truncated: the list of members at the end of an npz is missing");
    z->list_bytes = little_endian(z->bytes + at + 12, 4);
    z->list = little_endian(z->bytes + at + 16, 4);
    if (at >= LOCATOR && has_bytes(z, at - LOCATOR, LOCATOR, "PK\6\7")) {
        uint64_t end = little_endian(z->bytes + at - LOCATOR + 8, 8);
        if (!has_bytes(z, end, END64, "PK\6\6"))
            return log_corrupt(z, at - LOCATOR, "the zip64 record is not at its listed position");
        z->list_bytes = little_endian(z->bytes + end + 40, 8);
        z->list = little_endian(z->bytes + end + 48, 8);
    }
    if (z->list > z->n || z->list_bytes > z->n - z->list)
        return log_corrupt(z, at, "the list of members is beyond the file's end");
    return ST_OK;
}

/* Reads the values that the entry has in its zip64 extra field. Returns false if they are
 * missing. */
static bool read_extra(const uint8_t *extra, uint64_t n, struct member *m)
{
    uint64_t *const wanted[3] = {&m->unpacked, &m->packed, &m->place};
    if (m->unpacked != UINT32_MAX && m->packed != UINT32_MAX && m->place != UINT32_MAX)
        return true;
    for (uint64_t at = 0; n - at >= 4;) {
        uint64_t kind = little_endian(extra + at, 2), bytes = little_endian(extra + at + 2, 2);
        at += 4;
        if (bytes > n - at)
            return false;
        for (int i = 0; kind == 1 && i < 3; i++) {
            if (*wanted[i] != UINT32_MAX)
                continue;
            if (bytes < 8)
                return false;
            *wanted[i] = little_endian(extra + at, 8);
            at += 8;
            bytes -= 8;
        }
        if (kind == 1)
            return true;
        at += bytes;
    }
    return false;
}

enum { THERE_BYTES = 300 };

static enum status read_entry(const struct zip *z, uint64_t at, struct member *out)
{
    const uint8_t *e = z->bytes + at;
    uint64_t n = little_endian(e + 28, 2), extra = little_endian(e + 30, 2);
    *out = (struct member){.flags = (unsigned)little_endian(e + 8, 2),
                           .method = (unsigned)little_endian(e + 10, 2),
                           .crc = (uint32_t)little_endian(e + 16, 4),
                           .packed = little_endian(e + 20, 4),
                           .unpacked = little_endian(e + 24, 4),
                           .place = little_endian(e + 42, 4)};
    return read_extra(e + ENTRY + n, extra, out)
               ? ST_OK
               : log_corrupt(z, at, "a member's zip64 sizes are missing");
}

/* Appends the n bytes of a name, and a blank. */
static void append_name(char there[THERE_BYTES], const uint8_t *name, uint64_t n)
{
    size_t shown = strlen(there);
    for (uint64_t i = 0; i < n && shown + 4 < THERE_BYTES; i++) {
        char c = (char)name[i];
        there[shown++] = c >= ' ' && c <= '~' ? c : '?';
    }
    if (shown + 4 < THERE_BYTES)
        there[shown++] = ' ';
    there[shown] = 0;
}

/* Finds a member. there: receives the names of all other members; ST_NOT_FOUND: not logged. */
static enum status find_member(const struct zip *z, const char *name, char there[THERE_BYTES],
                               struct member *out)
{
    char file[DATA_MAX_NAME + 8];
    size_t wanted = (size_t)snprintf(file, sizeof file, "%s.npy", name);
    bool is_found = false;
    there[0] = 0;
    if (wanted >= sizeof file) {
        LOG_E("%.60s...: a member's name has at most %d characters", name, DATA_MAX_NAME - 1);
        return ST_INVALID;
    }
    for (uint64_t at = z->list, end = z->list + z->list_bytes; at < end;) {
        if (end - at < ENTRY || !has_bytes(z, at, ENTRY, "PK\1\2"))
            return log_corrupt(z, at, "the list of members is damaged");
        const uint8_t *e = z->bytes + at;
        uint64_t n = little_endian(e + 28, 2), extra = little_endian(e + 30, 2),
                 comment = little_endian(e + 32, 2);
        if (n + extra + comment > end - at - ENTRY)
            return log_corrupt(z, at, "an entry of the list of members is too long");
        if (n == wanted && memcmp(e + ENTRY, file, n) == 0) {
            if (is_found) {
                LOG_E("%s: has two members '%s'; save it again with one of them", z->label, file);
                return ST_CORRUPT;
            }
            enum status st = read_entry(z, at, out);
            if (st != ST_OK)
                return st;
            is_found = true;
        } else {
            append_name(there, e + ENTRY, n);
        }
        at += ENTRY + n + extra + comment;
    }
    return is_found ? ST_OK : ST_NOT_FOUND;
}

enum status data_npz_find(const uint8_t *bytes, uint64_t n, const char *label, const char *name,
                          int *found)
{
    struct zip z = {.bytes = bytes, .n = n, .label = label};
    struct member m;
    char there[THERE_BYTES];
    enum status st = find_list(&z);
    if (st == ST_OK)
        st = find_member(&z, name, there, &m);
    *found = st == ST_OK;
    return st == ST_NOT_FOUND ? ST_OK : st;
}

static enum status check_crc(const struct zip *z, const struct member *m, const uint8_t *bytes)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0; at < m->unpacked;) {
        uint64_t left = m->unpacked - at, n = left < PIECE_BYTES ? left : PIECE_BYTES;
        crc = crc32(crc, bytes + at, (uInt)n);
        at += n;
    }
    return crc == m->crc ? ST_OK
                         : log_corrupt(z, m->place, "the member does not match its checksum");
}

static enum status inflate_member(const struct zip *z, const struct member *m, const uint8_t *from,
                                  uint8_t *to)
{
    z_stream s = {0};
    uint64_t in = m->packed, room = m->unpacked;
    int code = Z_OK;
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return ST_NOMEM;
    s.next_in = (uint8_t *)(uintptr_t)from;
    s.next_out = to;
    while (code == Z_OK) {
        uInt i = (uInt)(in < PIECE_BYTES ? in : PIECE_BYTES);
        uInt o = (uInt)(room < PIECE_BYTES ? room : PIECE_BYTES);
        s.avail_in = i;
        s.avail_out = o;
        code = inflate(&s, Z_NO_FLUSH);
        in -= i - s.avail_in;
        room -= o - s.avail_out;
    }
    inflateEnd(&s);
    if (code != Z_STREAM_END || room > 0 || in > 0)
        return log_corrupt(z, m->place, "the member's deflated data are damaged");
    return check_crc(z, m, to);
}

/* Returns the member's bytes. *memory: the memory of unpacked bytes, or NULL. */
static enum status open_member(const struct zip *z, const struct member *m, const uint8_t **out,
                               uint8_t **memory)
{
    enum status st = ST_OK;
    if (!has_bytes(z, m->place, MEMBER, "PK\3\4"))
        return log_corrupt(z, m->place, "the member is not at its listed position");
    const uint8_t *head = z->bytes + m->place;
    uint64_t at = m->place + MEMBER + little_endian(head + 26, 2) + little_endian(head + 28, 2);
    if (at > z->n || m->packed > z->n - at)
        return log_corrupt(z, m->place, "the member is truncated");
    if (m->method == STORED && m->packed == m->unpacked && !(m->flags & 1)) {
        *out = z->bytes + at;
        return check_crc(z, m, *out);
    }
    if (m->method != DEFLATED || (m->flags & 1)) {
        LOG_E(
            "%s: a member is packed by method %u or encrypted; save it with numpy.savez or savez_compressed",
            z->label, m->method);
        return ST_UNSUPPORTED;
    }
    if (m->unpacked / DEFLATE_MAX_RATIO > m->packed)
        return log_corrupt(z, m->place,
                           "the member states a larger size than its packed bytes can hold");
    *memory = malloc(m->unpacked ? (size_t)m->unpacked : 1);
    if (!*memory) {
        LOG_E(
            "%s: no memory for %llu unpacked bytes; numpy.savez (not savez_compressed) saves it without compression",
            z->label, (unsigned long long)m->unpacked);
        return ST_NOMEM;
    }
    TRY(inflate_member(z, m, z->bytes + at, *memory));
    *out = *memory;
done:
    return st;
}

enum status data_npz_decode(const uint8_t *bytes, uint64_t n, const char *label, const char *name,
                            struct data_array *out)
{
    enum status st = ST_OK;
    struct zip z = {.bytes = bytes, .n = n, .label = label};
    struct member m;
    struct data_array a;
    /* NULL, because some compilers do not see that open_member sets it */
    const uint8_t *npy = NULL;
    uint8_t *memory = NULL;
    char shown[2 * DATA_MAX_NAME], there[THERE_BYTES];
    TRY(find_list(&z));
    st = find_member(&z, name, there, &m);
    if (st == ST_NOT_FOUND)
        LOG_E(
            "%s: has no member '%s.npy' (it has: %s); name the array of samples with --images_name, or each input of a model file with --input_names, and that of labels with --labels_name",
            label, name, *there ? there : "none");
    TRY(st);
    TRY(open_member(&z, &m, &npy, &memory));
    snprintf(shown, sizeof shown, "%.250s, member '%.200s.npy'", label, name);
    TRY(data_npy_decode(npy, m.unpacked, shown, &a));
    if (!memory)
        a.offset += (uint64_t)(npy - bytes);
    a.unpacked = memory;
    memory = NULL;
    *out = a;
done:
    free(memory);
    return st;
}
