/* tests/check.h - cmocka, with the standard headers that it expects to be included first. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after its needs */
#include <cmocka.h>
#endif
