/* tests/base_test.c - tests host lists, digests, buffers, random numbers, log lines, names and exit
 * codes of statuses, and the statuses for values of errno. */
#include "base/buf.h"
#include "base/digest.h"
#include "base/float_text.h"
#include "base/hosts.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/shape.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/skip.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static void good_hosts(const char *text, int n)
{
    struct hosts h;
    assert_int_equal(hosts_parse(text, "ps_hosts", &h), ST_OK);
    assert_int_equal(h.n, n);
    hosts_free(&h);
}

static void bad_hosts(const char *text)
{
    struct hosts h;
    assert_int_equal(hosts_parse(text, "ps_hosts", &h), ST_INVALID);
}

static void test_float_text(void **state)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {{0.01f, "0.01"},        {0.999f, "0.999"},
                 {1e-8f, "1e-08"},       {0, "0"},
                 {-2.5f, "-2.5"},        {1.0f / 3, "0.33333334"},
                 {120, "120"},           {-6e4f, "-60000"},
                 {1e6f, "1e+06"},        {0.00012f, "0.00012"},
                 {16777216, "16777216"}, {3.4028235e38f, "3.4028235e+38"}};
    char out[FLOAT_TEXT_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(float_text(cases[i].value, out), cases[i].text);
        assert_true((float)float_text_to_double(cases[i].value) == cases[i].value);
    }
    assert_true(float_text_to_double(0.01f) == 0.01);
    assert_string_equal(float_text_double(0.1, out), "0.1");
    assert_string_equal(float_text_double(1.0 / 3, out), "0.3333333333333333");
    assert_string_equal(float_text_double(0.1 + 0.2, out), "0.30000000000000004");
}

static void test_hosts(void **state)
{
    good_hosts("", 0);
    good_hosts(NULL, 0);
    good_hosts("a:1", 1);
    good_hosts("192.168.1.6:2221,worker-1.example.org:65535,[::1]:2223", 3);
    good_hosts("a:1,a:2", 2);
    good_hosts(" a:1 , b:2\t,c:3 ", 3);
    struct hosts h;
    assert_int_equal(hosts_parse("LocalHost:1,[FE80::A]:2", "ps_hosts", &h), ST_OK);
    assert_int_equal(hosts_find(&h, "localhost:1"), 0);
    assert_int_equal(hosts_find(&h, "[fe80::a]:2"), 1);
    hosts_free(&h);
    assert_int_equal(hosts_parse("gpu1:1,GPU1:1", "worker_hosts", &h), ST_INVALID);
    assert_int_equal(hosts_parse("grpc://a:1, grpc://b:2,\tc:3", "ps_hosts", &h), ST_OK);
    assert_int_equal(h.n, 3);
    assert_string_equal(h.addr[0], "a:1");
    assert_string_equal(h.addr[1], "b:2");
    assert_string_equal(h.addr[2], "c:3");
    hosts_free(&h);
    bad_hosts("a:1;b:2");
    bad_hosts("http://a:1");
    bad_hosts("a:1, ,b:2");
    bad_hosts("grpc://");
    assert_string_equal(hosts_problem("a:1;b:2"),
                        "has a semicolon; write a comma between the entries");
    assert_string_equal(hosts_problem("http://a:1"), "has a scheme; write host:port alone");
    assert_string_equal(hosts_problem(""), "is empty; a list with spaces needs quotes");
    bad_hosts("a");
    bad_hosts("a:");
    bad_hosts(":1");
    bad_hosts("a:0");
    bad_hosts("a:65536");
    bad_hosts("a:99999999999999999999");
    bad_hosts("a:1x");
    bad_hosts("a:-1");
    bad_hosts("a:1,");
    bad_hosts(",a:1");
    bad_hosts("a:1,,b:1");
    bad_hosts("::1:2221");
    bad_hosts("[]:1");
    bad_hosts("a:1,b:1,a:1");
    assert_int_equal(hosts_is_loopback("127.0.0.1:1"), 1);
    assert_int_equal(hosts_is_loopback("localhost:1"), 1);
    assert_int_equal(hosts_is_loopback("LocalHost:1"), 1);
    assert_int_equal(hosts_is_loopback("[::1]:1"), 1);
    assert_int_equal(hosts_is_loopback("10.0.0.1:1"), 0);
    assert_int_equal(hosts_is_loopback("localhosts:1"), 0);
}

static void on_same(const char *text, int i, int want)
{
    struct hosts h = {0};
    if (text)
        assert_int_equal(hosts_parse(text, "worker_hosts", &h), ST_OK);
    assert_int_equal(hosts_on_same(&h, i), want);
    hosts_free(&h);
}

static void test_hosts_on_same(void **state)
{
    on_same(NULL, 0, 0);
    on_same("a:1", 0, 1);
    on_same("a:1", 1, 0);
    on_same("a:1", -1, 0);
    on_same("a:1,b:1,A:2,a.b:1,a:31", 0, 3);
    on_same("a:1,b:1,a:2,ab:1", 1, 1);
    on_same("a:1,b:1,a:2,ab:1", 3, 1);
    on_same("[fe80::1]:1,[fe80::1]:2,[fe80::2]:1", 1, 2);
    on_same("localhost:1,127.0.0.1:2,[::1]:3,c:1", 2, 3);
}

static void test_digest(void **state)
{
    char hex[65];
    struct digest_sha256 *d;
    assert_int_equal(digest_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(digest_crc32c(digest_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    assert_int_equal(digest_crc32c(0, "", 0), 0);
    /* RFC 3720 B.4: 32 bytes of zeros */
    assert_int_equal(digest_crc32c(0, (char[32]){0}, 32), 0x8a9136aau);
    assert_int_equal(digest_sha256_create(&d), ST_OK);
    digest_sha256_update(d, "a", 1);
    digest_sha256_update(d, "bc", 2);
    digest_sha256_hex(d, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    digest_sha256_destroy(d);
}

#ifdef __x86_64__
/* Returns the result of XGETBV with 1: a bit is set if a part of the registers does not have its
 * initial value. */
static unsigned registers_in_use(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low;
}

enum { UPPER_HALVES = 1 << 2 | 1 << 6 };

/* On some processors vzeroupper does not change the result of XGETBV. */
static int vzeroupper_clears(void)
{
    if (!__builtin_cpu_supports("avx"))
        return 0;
    __asm__ volatile("vcmpps $15, %%ymm0, %%ymm0, %%ymm0" ::: "xmm0"); /* all ones */
    unsigned before = registers_in_use();
    __asm__ volatile("vzeroupper" ::: "xmm0");
    return (before & UPPER_HALVES) && !(registers_in_use() & UPPER_HALVES);
}

/* A digest must clear the upper halves of the vector registers that it uses, because otherwise each
 * later scalar operation is slow. */
static void test_digest_cleans_up(void **state)
{
    static unsigned char zeros[1 << 16];
    unsigned a, b, c, d;
    if (!__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 1 << 2))
        skip_because("this processor does not say which registers are in use");
    if (!vzeroupper_clears())
        skip_because("on this processor vzeroupper does not change which registers are in use");
    unsigned crc = digest_crc32c(0, zeros, sizeof zeros), in_use = registers_in_use();
    assert_int_equal(crc, digest_crc32c(digest_crc32c(0, zeros, 1000), zeros, sizeof zeros - 1000));
    assert_int_equal(in_use & UPPER_HALVES, 0);
}
#endif

static void count_recycled(struct buf *b, void *ctx)
{
    ++*(int *)ctx;
    buf_free(b);
}

static void test_buf(void **state)
{
    struct buf *b;
    int recycled = 0;
    assert_int_equal(buf_create(0, &b), ST_OK);
    buf_unref(b);
    buf_unref(NULL);
    assert_int_equal(buf_create(100, &b), ST_OK);
    assert_int_equal((uintptr_t)b->data % 64, 0);
    memset(b->data, 1, b->bytes);
    b->recycle = count_recycled;
    b->recycle_ctx = &recycled;
    buf_unref(buf_ref(b));
    assert_int_equal(recycled, 0);
    buf_unref(b);
    assert_int_equal(recycled, 1);
    assert_int_equal(buf_create(SIZE_MAX, &b), ST_NOMEM);
}

static void test_rng(void **state)
{
    /* splitmix64 with seed 0 begins with this number */
    assert_true(rng_mix(0) == 0xe220a8397b1dcdafu);
    uint64_t key = rng_key(1, RNG_TEST, 0);
    double sum = 0;
    int counts[10] = {0};
    for (uint64_t i = 0; i < 100000; i++) {
        float u = rng_uniform(key, i);
        assert_true(u >= 0 && u < 1);
        sum += (double)u;
        counts[rng_below(key, i, 10)]++;
    }
    assert_true(sum / 100000 > 0.495 && sum / 100000 < 0.505);
    for (int i = 0; i < 10; i++)
        assert_in_range(counts[i], 9500, 10500);
    assert_true(rng_key(1, RNG_TEST, 0) != rng_key(1, RNG_INIT, 0));
    assert_true(rng_key(1, RNG_TEST, 0) != rng_key(2, RNG_TEST, 0));
    assert_true(rng_u64(key, 5) == rng_u64(key, 5));
}

static int hook_before, hook_after;

static void hook(void *ctx, int before)
{
    if (before)
        hook_before++;
    else
        hook_after++;
}

static void keep_line(void *ctx, enum log_level level, const char *text)
{
    snprintf(ctx, 64, "%d %s", (int)level, text);
}

static void test_log_diverted(void **state)
{
    char kept[64] = "";
    log_divert(keep_line, kept);
    capture_begin();
    LOG_E("layer '%s'\n is gone", "conv1");
    LOG_D("below the threshold");
    capture_end();
    log_divert(NULL, NULL);
    assert_string_equal(capture_text, "");
    assert_string_equal(kept, "3 layer 'conv1'? is gone");
}

static void test_log(void **state)
{
    static char text[4096];
    FILE *f = tmpfile();
    assert_non_null(f);
    int err = dup(2);
    dup2(fileno(f), 2);
    log_init("worker", 3, LOG_LEVEL_INFO);
    log_set_hook(hook, NULL);
    LOG_D("not shown");
    LOG_I("one\ntwo\033[1m %d", 42);
    static char flood[3000];
    memset(flood, 'x', sizeof flood - 1);
    LOG_W("%s", flood);
    log_set_hook(NULL, NULL);
    log_init("weir", -1, LOG_LEVEL_INFO);
    dup2(err, 2);
    close(err);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_null(strstr(text, "not shown"));
    assert_non_null(strstr(text, " worker:3 one?two?[1m 42\n"));
    assert_int_equal(text[0], 'I');
    char *second = strchr(text, '\n') + 1;
    assert_int_equal(second[0], 'W');
    assert_true(strlen(second) <= 1024);
    assert_string_equal(strchr(second, '\n'), "\n");
    assert_int_equal(hook_before, 2);
    assert_int_equal(hook_after, 2);
}

static void test_shape_and_status(void **state)
{
    assert_int_equal(shape_elems(&(struct shape){0, {0}}), 1);
    assert_int_equal(shape_elems(&(struct shape){3, {2, 3, 4}}), 24);
    assert_int_equal(shape_elems(&(struct shape){2, {0, 4}}), 0);
    assert_int_equal(shape_elems(&(struct shape){2, {-1, 4}}), -1);
    assert_int_equal(shape_elems(&(struct shape){2, {(int64_t)1 << 40, 2}}), -1);
    assert_int_equal(shape_elems(&(struct shape){1, {INT64_MAX}}), -1);
    assert_string_equal(status_name(ST_OK), "ST_OK");
    assert_string_equal(status_name(ST_INTERNAL), "ST_INTERNAL");
    assert_string_equal(status_text(ST_BUSY), "in use");
    assert_string_equal(status_name((enum status)99), "ST_?");
}

/* Only an operator can correct the error of a path, so a restart would not help. */
static void test_errno(void **state)
{
    static const int stays[] = {ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, EROFS, ENAMETOOLONG, ELOOP};
    static const int passes[] = {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, EAGAIN, ESTALE, ENOMEM};
    for (size_t i = 0; i < sizeof stays / sizeof *stays; i++)
        assert_int_equal(status_exit_code(status_of_errno(stays[i])), EXIT_PERMANENT);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        assert_int_equal(status_exit_code(status_of_errno(passes[i])), EXIT_RETRY);
    assert_int_equal(status_of_errno(ENOMEM), ST_NOMEM);
    assert_int_equal(status_exit_code(ST_RANGE), EXIT_PERMANENT);
    static const int lacks[] = {ENOMEM, EMFILE, ENFILE};
    assert_int_equal(status_of_writing(ENOSPC), ST_FULL);
    assert_int_equal(status_of_writing(EDQUOT), ST_FULL);
    assert_int_equal(status_of_writing(EIO), ST_IO);
    assert_int_equal(status_exit_code(ST_FULL), EXIT_RETRY);
    static const int unread[] = {EIO, ESTALE, EACCES, ELOOP, ETIMEDOUT, EAGAIN};
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        assert_int_equal(status_of_reading(lacks[i]), ST_NOMEM);
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        assert_int_equal(status_of_reading(unread[i]), ST_IO);
    assert_int_equal(status_of_reading(ENOENT), ST_NOT_FOUND);
    assert_non_null(strstr(status_errno_text(EMFILE), "ulimit -n"));
    assert_non_null(strstr(status_errno_text(EFBIG), "ulimit -f"));
    assert_string_equal(status_errno_text(EIO), strerror(EIO));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_hosts_on_same),
        cmocka_unit_test(test_float_text),
        cmocka_unit_test(test_digest),
#ifdef __x86_64__
        cmocka_unit_test(test_digest_cleans_up),
#endif
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_rng),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_diverted),
        cmocka_unit_test(test_shape_and_status),
        cmocka_unit_test(test_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
