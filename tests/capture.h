/* tests/capture.h - captures the stderr of one call, for tests of log lines. Stderr is redirected
 * only during the call, so that a failed assertion is visible. One thread. */
#ifndef TESTS_CAPTURE_H
#define TESTS_CAPTURE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char capture_text[16384];
static int capture_saved = -1;
static FILE *capture_file;

static inline void capture_begin(void)
{
    fflush(stderr);
    capture_file = tmpfile();
    capture_saved = dup(STDERR_FILENO);
    if (!capture_file || capture_saved < 0 || dup2(fileno(capture_file), STDERR_FILENO) < 0) {
        perror("capture_begin");
        exit(1);
    }
}

static inline void capture_end(void)
{
    fflush(stderr);
    dup2(capture_saved, STDERR_FILENO);
    close(capture_saved);
    rewind(capture_file);
    size_t n = fread(capture_text, 1, sizeof capture_text - 1, capture_file);
    capture_text[n] = 0;
    fclose(capture_file);
}

/* Returns the number of captured lines. */
static inline int capture_lines(void)
{
    int n = 0;
    for (const char *p = capture_text; *p; p++)
        n += *p == '\n';
    return n;
}

/* Runs the call and returns its value; capture_text then contains its stderr. */
#define CAPTURE(call)                                                                              \
    ({                                                                                             \
        capture_begin();                                                                           \
        __typeof__(call) capture_value_ = (call);                                                  \
        capture_end();                                                                             \
        capture_value_;                                                                            \
    })

#endif
