/* tests/libweir_rig.c - see the header. */
#include "tests/libweir_rig.h"
#include <poll.h>
#include <stdio.h>

void librig_open_anywhere(struct librig *r, const char *const (*more)[2])
{
    static const char *const settings[][2] = {{"chunk_bytes", "4096"},
                                              {"optimizer", "sgd"},
                                              {"train_steps", "10"},
                                              {"batch_size", "3"},
                                              {NULL, NULL}};
    const int64_t n = MODEL_ELEMS;
    tiny_member_init(&r->m);
    tiny_init(&r->tiny, r->m.chunks, 0, 1);
    tiny_start(&r->tiny);
    r->w = open_with(settings);
    for (; more && (*more)[0]; more++)
        assert_int_equal(weir_set(r->w, (*more)[0], (*more)[1]), WEIR_OK);
    assert_int_equal(
        weir_param(r->w, r->m.chunks->params[0].name, WEIR_FLOAT32, 1, &n, r->m.params), 0);
    r->fd = weir_fd(r->w);
    assert_true(r->fd > 2);
    assert_int_equal(weir_fd(r->w), r->fd);
}

void librig_open(struct librig *r, const char *const (*more)[2])
{
    char addr[32];
    librig_open_anywhere(r, more);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", r->tiny.port);
    assert_int_equal(weir_set(r->w, "ps_hosts", addr), WEIR_OK);
    assert_int_equal(weir_set(r->w, "n_workers", "1"), WEIR_OK);
}

void librig_close(struct librig *r)
{
    weir_close(r->w);
    tiny_free(&r->tiny);
    tiny_member_free(&r->m);
}

void librig_step(struct librig *r, int64_t step)
{
    struct weir_step s;
    assert_int_equal(weir_next(r->w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, step);
    assert_on_pages(r->w, 0, 0);
    assert_int_equal(weir_push(r->w, 0, r->m.gradient, 3), WEIR_OK);
}

void librig_assert_values(struct librig *r, float added)
{
    const float *v = weir_values(r->w, 0);
    assert_non_null(v);
    for (int i = 0; i < MODEL_ELEMS; i++)
        assert_true(v[i] == (float)i + added);
}

/* Polls for the next event. */
struct weir_event librig_next_event(struct librig *r)
{
    struct pollfd readable = {.fd = r->fd, .events = POLLIN};
    struct weir_event e;
    while (weir_next_event(r->w, &e) == WEIR_AGAIN)
        assert_int_equal(poll(&readable, 1, 20000), 1);
    return e;
}
