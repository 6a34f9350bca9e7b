/* tests/libweir_open.h - a handle with settings, and a check of its errors, for tests of libweir.
 * Threads: the test's. */
#ifndef TESTS_LIBWEIR_OPEN_H
#define TESTS_LIBWEIR_OPEN_H
#include "libweir/weir.h"
#include "tests/check.h"
#include <stdint.h>
#include <string.h>

static inline struct weir *open_with(const char *const (*settings)[2])
{
    struct weir *w = NULL;
    assert_int_equal(weir_open(&w), WEIR_OK);
    for (; (*settings)[0]; settings++)
        assert_int_equal(weir_set(w, (*settings)[0], (*settings)[1]), WEIR_OK);
    return w;
}

/* Checks that a call returned `code`, and that the sentence of weir_error contains `word`. */
static inline void assert_error(struct weir *w, int got, int code, const char *word)
{
    if (got != code || !strstr(weir_error(w), word))
        fail_msg("%d, not %d; '%s' is not in '%s'", got, code, word, weir_error(w));
}

/* Checks that the blocks of values and of gradients begin with a page (of the smallest size), and
 * that n_before elements lie before those of `param`. */
static inline void assert_on_pages(struct weir *w, int param, int n_before)
{
    const uintptr_t page = 4096;
    assert_int_equal((uintptr_t)weir_values(w, 0) % page, 0);
    assert_int_equal((uintptr_t)weir_gradient(w, 0) % page, 0);
    assert_ptr_equal(weir_values(w, param), weir_values(w, 0) + n_before);
    assert_ptr_equal(weir_gradient(w, param), weir_gradient(w, 0) + n_before);
}

#endif
