/* tests/base_utf8_test.c - base/utf8.h: valid characters, printed characters, and texts that are
 * not UTF-8. */
#include "base/utf8.h"
#include "tests/check.h"
#include <string.h>

static void characters_have_their_length(void **state)
{
    static const struct {
        const char *text;
        size_t bytes, printable;
    } list[] = {
        {"a", 1, 1},
        {"\x7f", 1, 0},
        {"\x1b", 1, 0},
        {"\xc3\xbc", 2, 2},
        {"\xc2\x9b", 2, 0}, /* C1 control */
        {"\xc2\xa0", 2, 2},
        {"\xe2\x82\xac", 3, 3},
        {"\xed\x9f\xbf", 3, 3},
        {"\xee\x80\x80", 3, 3},
        {"\xf0\x90\x80\x80", 4, 4},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"\xed\xa0\x80", 0, 0},     /* first surrogate */
        {"\xed\xbf\xbf", 0, 0},     /* last surrogate */
        {"\xc0\x80", 0, 0},         /* overlong, two bytes */
        {"\xc1\xbf", 0, 0},         /* overlong, two bytes */
        {"\xe0\x9f\xbf", 0, 0},     /* overlong, three bytes */
        {"\xf0\x8f\xbf\xbf", 0, 0}, /* overlong, four bytes */
        {"\xf4\x90\x80\x80", 0, 0}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0, 0}, /* above U+10FFFF */
        {"\x80", 0, 0},             /* not a first byte */
        {"\xff", 0, 0},             /* never valid */
        {"\xc3(", 0, 0},            /* invalid second byte */
        {"\xe2\x82(", 0, 0},        /* invalid third byte */
        {"\xf0\x90\x80(", 0, 0},    /* invalid fourth byte */
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const char *text = list[i].text;
        size_t n = strlen(text);
        if (utf8_character(text, n) != list[i].bytes)
            fail_msg("entry %zu has %zu bytes", i, utf8_character(text, n));
        if (utf8_printable(text, n) != list[i].printable)
            fail_msg("entry %zu is printed as %zu bytes", i, utf8_printable(text, n));
        for (size_t cut = 1; cut < list[i].bytes; cut++)
            assert_int_equal(utf8_character(text, cut), 0);
    }
}

static void masked(const char *from, const char *want)
{
    char text[32];
    strcpy(text, from);
    utf8_mask(text);
    assert_string_equal(text, want);
}

static void text_not_utf8_is_masked(void **state)
{
    masked("", "");
    masked("a\x1b \xc3\xbc\xe2\x82\xac", "a\x1b \xc3\xbc\xe2\x82\xac");
    masked("a\xff\x62", "a?b");
    masked("\xc3\xbc\xff\xc3\xbc", "?????"); /* an invalid byte masks the whole text */
    masked("b\xe2\x82", "b??");
}

static void text_is_valid_if_its_characters_are_whole(void **state)
{
    assert_true(utf8_is_valid("", 0));
    assert_true(utf8_is_valid("a\x1b \xc3\xbc\xe2\x82\xac", 8));
    assert_false(utf8_is_valid("b\xe2\x82\xac", 3)); /* the last character is cut */
    assert_false(utf8_is_valid("\xff", 1));
    assert_false(utf8_is_valid("s\xfc\xdf", 3));
}

static void copied(const char *from, size_t to_bytes, const char *want)
{
    char text[64];
    memset(text, 'X', sizeof text);
    assert_int_equal(utf8_copy_words(text, to_bytes, from), strlen(want));
    assert_string_equal(text, want);
    assert_int_equal(text[to_bytes], 'X');
}

static void copy_is_cut_behind_a_whole_word(void **state)
{
    copied("", 4, "");
    copied("another job", 12, "another job");
    copied("another job", 11, "another...");
    copied("another job: --seed", 16, "another job...");
    copied("another", 6, "an...");
    /* a long word is cut after a whole character: 2 bytes each */
    copied("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 7, "\xc3\xbc...");
    copied("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 8, "\xc3\xbc\xc3\xbc...");
    copied("\xff\xff\xff\xff\xff\xff", 6, "\xff\xff...");
    copied("word", 4, "...");
}

int main(void)
{
    return RUN_TESTS(characters_have_their_length, text_not_utf8_is_masked,
                     text_is_valid_if_its_characters_are_whole, copy_is_cut_behind_a_whole_word);
}
