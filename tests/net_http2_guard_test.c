/* tests/net_http2_guard_test.c - the guard finds frame heads however the bytes are cut, and cuts
 * off a client at its first frame beyond a limit, not earlier. */
#include "base/log.h"
#include "net/security/http2_guard.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_BYTES = 1 << 16, MAX_FRAMES = 4096, ROUNDS = 300, PING = 6 };

static int n_lines;
static char line[LOG_TEXT_BYTES];
static unsigned next_host = 1;

static void keep_line(void *ctx, enum log_level level, const char *text)
{
    n_lines++;
    snprintf(line, sizeof line, "%s", text);
}

static size_t put_head(uint8_t *to, struct http2_frame f)
{
    const uint8_t head[HTTP2_HEAD_BYTES] = {(uint8_t)(f.bytes >> 16),
                                            (uint8_t)(f.bytes >> 8),
                                            (uint8_t)f.bytes,
                                            f.kind,
                                            f.flags,
                                            (uint8_t)(f.stream >> 24),
                                            (uint8_t)(f.stream >> 16),
                                            (uint8_t)(f.stream >> 8),
                                            (uint8_t)f.stream};
    memcpy(to, head, sizeof head);
    return sizeof head;
}

static void assert_frame(const struct http2_frame *got, const struct http2_frame *want)
{
    assert_int_equal(got->bytes, want->bytes);
    assert_int_equal(got->stream, want->stream);
    assert_int_equal(got->kind, want->kind);
    assert_int_equal(got->flags, want->flags);
}

/* Payloads are random bytes: a head that is read at the wrong place fails the test. */
static void frames_in_any_pieces_are_found(void **state)
{
    static uint8_t bytes[STREAM_BYTES];
    static struct http2_frame frames[MAX_FRAMES];
    srand(34);
    for (int round = 0; round < ROUNDS; round++) {
        struct http2_frames walk = {.skip = round % 2 ? HTTP2_PREFACE_BYTES : 0};
        struct http2_frame found;
        size_t n = walk.skip;
        int n_frames = 0, n_found = 0, longest = 1 << rand() % 12;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rand();
        while (n_frames < MAX_FRAMES) {
            struct http2_frame f = {.bytes = (uint32_t)(rand() % longest),
                                    .stream = (uint32_t)rand() & 0x7fffffff,
                                    .kind = (uint8_t)(rand() % 10),
                                    .flags = (uint8_t)rand()};
            if (n + HTTP2_HEAD_BYTES + f.bytes > sizeof bytes)
                break;
            n += put_head(bytes + n, f) + f.bytes;
            frames[n_frames++] = f;
        }
        for (size_t at = 0; at < n;) {
            size_t piece = 1 + (size_t)(rand() % (1 << rand() % 14));
            const uint8_t *from = bytes + at, *end = from + (piece < n - at ? piece : n - at);
            at = (size_t)(end - bytes);
            while (http2_frames_next(&walk, &from, end, &found)) {
                assert_true(n_found < n_frames);
                assert_frame(&found, &frames[n_found++]);
            }
            assert_ptr_equal(from, end);
        }
        assert_int_equal(n_found, n_frames);
    }
}

static struct peer_address address4(unsigned host)
{
    struct peer_address from;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(51234)};
    in.sin_addr.s_addr = htonl(0x0a000000 + host);
    peer_address_set(&from, (const struct sockaddr *)&in, sizeof in);
    return from;
}

/* Writes the client's preface and its first frame. */
static size_t put_begin(uint8_t *to, struct http2_frame first)
{
    memcpy(to, http2_frames_preface, HTTP2_PREFACE_BYTES);
    return HTTP2_PREFACE_BYTES + put_head(to + HTTP2_PREFACE_BYTES, first);
}

static void begin_from(struct http2_guard *g, unsigned host)
{
    uint8_t bytes[HTTP2_PREFACE_BYTES + HTTP2_HEAD_BYTES];
    struct peer_address from = address4(host);
    size_t n = put_begin(bytes, (struct http2_frame){0, 0, HTTP2_SETTINGS, 0});
    http2_guard_begin(g, &from);
    assert_true(http2_guard_received(g, bytes, n));
}

/* Starts a guard for a new host, so that no two tests share a host. */
static void begin(struct http2_guard *g)
{
    http2_guard_init(g);
    begin_from(g, next_host++);
}

/* Passes a frame to the guard. Returns false if the client is cut off. */
static bool receive(struct http2_guard *g, int kind, int flags, uint32_t stream, uint32_t bytes)
{
    static uint8_t frame[HTTP2_HEAD_BYTES + HTTP2_MAX_BLOCK_BYTES + 1];
    size_t n = put_head(frame, (struct http2_frame){bytes, stream, (uint8_t)kind, (uint8_t)flags});
    bool is_fine = http2_guard_received(g, frame, n + bytes);
    assert_int_equal(http2_guard_is_cut(g), !is_fine);
    return is_fine;
}

static void send_head(struct http2_guard *g, int kind, int flags, uint32_t stream)
{
    uint8_t frame[HTTP2_HEAD_BYTES];
    size_t n = put_head(frame, (struct http2_frame){0, stream, (uint8_t)kind, (uint8_t)flags});
    http2_guard_sent(g, frame, n);
}

static bool is_http2(const uint8_t *bytes, size_t n, size_t piece)
{
    struct http2_guard g;
    struct peer_address from = address4(1 << 16);
    bool is_fine = true;
    http2_guard_init(&g);
    http2_guard_begin(&g, &from);
    for (size_t at = 0; at < n && is_fine; at += piece)
        is_fine = http2_guard_received(&g, bytes + at, piece < n - at ? piece : n - at);
    assert_int_equal(http2_guard_is_cut(&g), !is_fine);
    http2_guard_free(&g);
    return is_fine;
}

static void client_that_does_not_begin_as_http2_is_cut_off(void **state)
{
    static const struct http2_frame firsts[] = {
        {0, 0, HTTP2_SETTINGS, 0}, {HTTP2_MAX_SETTINGS_BYTES / 6 * 6, 0, HTTP2_SETTINGS, 0},
        {7, 0, HTTP2_SETTINGS, 0}, {HTTP2_MAX_SETTINGS_BYTES / 6 * 6 + 6, 0, HTTP2_SETTINGS, 0},
        {0, 0, HTTP2_SETTINGS, 1}, {0, 1, HTTP2_SETTINGS, 0},
        {0, 1, HTTP2_HEADERS, 0},  {8, 0, PING, 0}};
    uint8_t bytes[HTTP2_PREFACE_BYTES + HTTP2_HEAD_BYTES];
    fake_time_move(200000);
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        size_t n = put_begin(bytes, firsts[i]);
        assert_int_equal(http2_frames_has_begun(bytes, n), i < 2);
        assert_false(http2_frames_has_begun(bytes, n - 1));
        for (size_t piece = 1; piece <= n; piece++)
            assert_int_equal(is_http2(bytes, n, piece), i < 2);
    }
    assert_non_null(strstr(line, "is cut off: it does not speak HTTP/2; "));
    put_begin(bytes, firsts[0]);
    for (size_t i = 0; i < HTTP2_PREFACE_BYTES; i++) {
        bytes[i] ^= 1;
        assert_true(i == 0 || is_http2(bytes, i, i));
        assert_false(is_http2(bytes, i + 1, i + 1));
        assert_false(http2_frames_has_begun(bytes, sizeof bytes));
        bytes[i] ^= 1;
    }
}

/* Opens and ends a connection, with or without a stream. */
static void end_one(struct http2_guard *g, unsigned host, bool has_stream)
{
    begin_from(g, host);
    if (has_stream)
        assert_true(receive(g, HTTP2_HEADERS, HTTP2_END_HEADERS, 1, 30));
    http2_guard_end(g);
}

static void host_with_100_unused_connections_a_second_is_flooding(void **state)
{
    struct http2_guard g;
    struct peer_address honest = address4(next_host++), from = address4(next_host);
    unsigned host = next_host++;
    http2_guard_init(&g);
    fake_time_move(200000);
    n_lines = 0;
    for (int minute = 0; minute < 2; minute++) {
        for (int i = 0; i < HTTP2_MAX_UNUSED; i++) {
            end_one(&g, host, true);
            end_one(&g, host, false);
        }
        assert_false(http2_guard_is_flooding(&from));
        http2_guard_count_unused(&from);
        for (int i = 0; i < 3; i++)
            assert_true(http2_guard_is_flooding(&from));
        assert_false(http2_guard_is_flooding(&honest));
        assert_int_equal(n_lines, minute + 1);
        assert_non_null(strstr(line, "more than 100 of its connections in a second ended without"));
        fake_time_move(1000);
        assert_false(http2_guard_is_flooding(&from));
        fake_time_move(59000);
    }
    http2_guard_free(&g);
}

static void header_above_64_KB_is_cut_off(void **state)
{
    struct http2_guard g;
    begin(&g);
    assert_true(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, 1, HTTP2_MAX_BLOCK_BYTES));
    assert_true(receive(&g, HTTP2_HEADERS, 0, 3, HTTP2_MAX_BLOCK_BYTES - 1));
    assert_true(receive(&g, HTTP2_CONTINUATION, 0, 3, 1));
    assert_true(receive(&g, HTTP2_CONTINUATION, HTTP2_END_HEADERS, 3, 0));
    assert_true(receive(&g, HTTP2_DATA, 0, 3, HTTP2_MAX_BLOCK_BYTES));
    assert_true(receive(&g, HTTP2_HEADERS, 0, 5, HTTP2_MAX_BLOCK_BYTES - 1));
    assert_false(receive(&g, HTTP2_CONTINUATION, 0, 5, 2));
    http2_guard_free(&g);
}

/* The announced length in the frame's head is enough: the guard does not wait for the payload. */
static void header_announced_above_64_KB_is_cut_off(void **state)
{
    struct http2_guard g;
    uint8_t head[HTTP2_HEAD_BYTES];
    begin(&g);
    put_head(head, (struct http2_frame){HTTP2_MAX_BLOCK_BYTES + 1, 1, HTTP2_HEADERS, 0});
    assert_true(http2_guard_received(&g, head, sizeof head - 1));
    assert_false(http2_guard_received(&g, head + sizeof head - 1, 1));
    http2_guard_free(&g);
}

static void header_of_many_frames_is_cut_off(void **state)
{
    struct http2_guard g;
    begin(&g);
    for (uint32_t stream = 1; stream < 4; stream += 2) {
        assert_true(receive(&g, HTTP2_HEADERS, 0, stream, 0));
        for (int i = 1; i < HTTP2_MAX_BLOCK_FRAMES; i++)
            assert_true(receive(&g, HTTP2_CONTINUATION, 0, stream, 0));
    }
    assert_false(receive(&g, HTTP2_CONTINUATION, 0, 3, 0));
    http2_guard_free(&g);
}

/* Opens and resets up to `most` calls. Returns the number of the call at which the client is cut
 * off, or 0. */
static int calls_until_cut(struct http2_guard *g, uint32_t first, int most)
{
    for (int i = 0; i < most; i++) {
        uint32_t stream = first + 2 * (uint32_t)i;
        if (!receive(g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream, 30) ||
            !receive(g, HTTP2_RST_STREAM, 0, stream, 4))
            return i + 1;
    }
    return 0;
}

static void resets_above_100_a_second_are_cut_off(void **state)
{
    struct http2_guard g;
    begin(&g);
    for (uint32_t second = 0; second < 5; second++) {
        assert_int_equal(calls_until_cut(&g, 1 + 200 * second, HTTP2_MAX_RESETS), 0);
        fake_time_move(1000);
    }
    assert_int_equal(calls_until_cut(&g, 1001, 1000), HTTP2_MAX_RESETS + 1);
    assert_false(receive(&g, HTTP2_RST_STREAM, 0, 1, 4));
    http2_guard_free(&g);
}

static void resets_that_a_client_provokes_count(void **state)
{
    struct http2_guard g;
    begin(&g);
    for (int i = 0; i <= HTTP2_MAX_RESETS; i++) {
        uint32_t stream = 1 + 2 * (uint32_t)i;
        assert_true(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream, 30));
        send_head(&g, HTTP2_RST_STREAM, 0, stream);
        assert_int_equal(http2_guard_is_cut(&g), i == HTTP2_MAX_RESETS);
    }
    http2_guard_free(&g);
}

/* A gRPC server ends a refused call with a reset before the client has sent everything. */
static void calls_that_the_server_ends_count_as_no_resets(void **state)
{
    struct http2_guard g;
    begin(&g);
    for (uint32_t stream = 1; stream < 20 * HTTP2_MAX_STREAMS; stream += 2) {
        assert_true(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream, 30));
        send_head(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream);
        send_head(&g, HTTP2_DATA, 0, stream);
        send_head(&g, HTTP2_HEADERS, HTTP2_END_HEADERS | HTTP2_END_STREAM, stream);
        send_head(&g, HTTP2_RST_STREAM, 0, stream);
        assert_false(http2_guard_is_cut(&g));
    }
    http2_guard_free(&g);
}

/* A client that obeys gRPC's SETTINGS cannot open so many calls. */
static void calls_above_512_at_once_are_cut_off(void **state)
{
    struct http2_guard g;
    uint32_t stream = 1;
    begin(&g);
    for (int i = 0; i < HTTP2_MAX_OPEN; i++, stream += 2)
        assert_true(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream, 30));
    send_head(&g, HTTP2_HEADERS, HTTP2_END_HEADERS | HTTP2_END_STREAM, 7);
    assert_true(receive(&g, HTTP2_RST_STREAM, 0, 101, 4));
    for (int i = 0; i < 2; i++, stream += 2)
        assert_true(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream, 30));
    assert_true(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS | HTTP2_END_STREAM, 9, 30));
    assert_true(receive(&g, HTTP2_DATA, HTTP2_END_STREAM, 11, 30));
    assert_true(receive(&g, PING, 0, 0, 8));
    assert_false(receive(&g, HTTP2_HEADERS, HTTP2_END_HEADERS, stream, 30));
    assert_non_null(strstr(line, "it opened more than 512 calls at once on one connection"));
    http2_guard_free(&g);
}

/* Successive connections of one host share that host's limit. Another host has its own limit. */
static void new_connections_bring_no_new_resets(void **state)
{
    struct http2_guard g;
    unsigned host = next_host++;
    http2_guard_init(&g);
    for (int i = 0; i < HTTP2_MAX_HOST_RESETS / 50; i++) {
        begin_from(&g, host);
        assert_int_equal(calls_until_cut(&g, 1, 50), 0);
    }
    begin_from(&g, host);
    assert_int_equal(calls_until_cut(&g, 1, 50), HTTP2_SPARED_RESETS + 1);
    begin_from(&g, next_host++);
    assert_int_equal(calls_until_cut(&g, 1, 50), 0);
    fake_time_move(1000);
    begin_from(&g, host);
    assert_int_equal(calls_until_cut(&g, 1, 50), 0);
    http2_guard_free(&g);
}

static void line_is_written_once_a_minute_for_each_host(void **state)
{
    struct http2_guard g;
    unsigned host = next_host++;
    char want[64];
    http2_guard_init(&g);
    fake_time_move(200000); /* lines that earlier tests have written do not count any more */
    n_lines = 0;
    for (int i = 0; i < 3; i++) {
        begin_from(&g, host);
        assert_false(receive(&g, HTTP2_HEADERS, 0, 1, HTTP2_MAX_BLOCK_BYTES + 1));
    }
    assert_int_equal(n_lines, 1);
    snprintf(want, sizeof want, "the client at 10.0.0.%u:51234 is cut off: it sent a header", host);
    assert_non_null(strstr(line, want));
    begin_from(&g, next_host++);
    assert_false(receive(&g, HTTP2_HEADERS, 0, 1, HTTP2_MAX_BLOCK_BYTES + 1));
    assert_int_equal(n_lines, 2);
    fake_time_move(60000);
    begin_from(&g, host);
    assert_false(receive(&g, HTTP2_HEADERS, 0, 1, HTTP2_MAX_BLOCK_BYTES + 1));
    assert_int_equal(n_lines, 3);
    http2_guard_free(&g);
}

static struct peer_address address6(const char *text)
{
    struct peer_address a;
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
    assert_int_equal(inet_pton(AF_INET6, text, &in.sin6_addr), 1);
    peer_address_set(&a, (const struct sockaddr *)&in, sizeof in);
    return a;
}

static void addresses_of_one_ipv6_network_are_one_host(void **state)
{
    struct peer_address in4, a = address6("2001:db8::1"), b = address6("2001:db8::ffff:2"),
                             c = address6("2001:db8:0:1::1"), mapped = address6("::ffff:10.0.0.7");
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
    in.sin_addr.s_addr = htonl(0x0a000007);
    peer_address_set(&in4, (const struct sockaddr *)&in, sizeof in);
    assert_string_equal(a.text, "[2001:db8::1]:80");
    assert_string_equal(mapped.text, "10.0.0.7:80");
    assert_string_equal(in4.text, "10.0.0.7:80");
    assert_true(a.host == b.host && a.host != c.host && mapped.host == in4.host);
}

static int set_up(void **state)
{
    log_divert(keep_line, NULL);
    fake_time_stop();
    return 0;
}

static int tear_down(void **state)
{
    fake_time_release();
    log_divert(NULL, NULL);
    return 0;
}

int main(void)
{
    return RUN_GROUP(
        set_up, tear_down, frames_in_any_pieces_are_found,
        client_that_does_not_begin_as_http2_is_cut_off,
        host_with_100_unused_connections_a_second_is_flooding, header_above_64_KB_is_cut_off,
        header_announced_above_64_KB_is_cut_off, header_of_many_frames_is_cut_off,
        resets_above_100_a_second_are_cut_off, resets_that_a_client_provokes_count,
        calls_that_the_server_ends_count_as_no_resets, calls_above_512_at_once_are_cut_off,
        new_connections_bring_no_new_resets, line_is_written_once_a_minute_for_each_host,
        addresses_of_one_ipv6_network_are_one_host);
}
