/* tests/sim/memory.c - malloc for a process of one thread (--wrap), with a free list for each size.
 * Production code makes and frees some thousand small objects in a run. The C library allocates
 * larger objects, and all that it needs itself. Not used under a sanitizer, which watches
 * malloc. */
#include "tests/sim/sim.h"
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef WEIR_SIM_LIBC_MALLOC
enum { UNIT = 16, SIZES = 1024, ARENA_BYTES = 64 << 20 };

struct object { /* a free object; the unit before it contains its size */
    struct object *next;
};

static struct object *free_objects[SIZES];
static char *arena, *unused;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void __real_free(void *p);
void __wrap_free(void *p);

static bool is_ours(const void *p)
{
    return (const char *)p >= arena && (const char *)p < arena + ARENA_BYTES && arena;
}

static uint64_t *size_of(void *p)
{
    return (uint64_t *)((char *)p - UNIT);
}

static void *take_object(size_t size)
{
    struct object *o = free_objects[size];
    if (o) {
        free_objects[size] = o->next;
        return o;
    }
    if (!arena)
        arena = unused = __real_malloc(ARENA_BYTES);
    if (!arena || unused + (size + 1) * UNIT > arena + ARENA_BYTES)
        return NULL;
    void *p = unused + UNIT;
    unused += (size + 1) * UNIT;
    *size_of(p) = size;
    return p;
}

void *__wrap_malloc(size_t bytes)
{
    size_t size = (bytes + UNIT - 1) / UNIT;
    void *p = size > 0 && size < SIZES ? take_object(size) : NULL;
    return p ? p : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    if (n == 0 || bytes == 0 || n * bytes >= (size_t)SIZES * UNIT || n > SIZES * UNIT)
        return __real_calloc(n, bytes);
    void *p = __wrap_malloc(n * bytes);
    return p ? memset(p, 0, n * bytes) : NULL;
}

void *__wrap_realloc(void *p, size_t bytes)
{
    if (!p || !is_ours(p))
        return p ? __real_realloc(p, bytes) : __wrap_malloc(bytes);
    size_t before = *size_of(p) * UNIT;
    if (bytes <= before)
        return p;
    void *grown = __wrap_malloc(bytes);
    if (grown) {
        memcpy(grown, p, before);
        __wrap_free(p);
    }
    return grown;
}

void __wrap_free(void *p)
{
    if (!p || !is_ours(p)) {
        __real_free(p);
        return;
    }
    struct object *o = p;
    o->next = free_objects[*size_of(p)];
    free_objects[*size_of(p)] = o;
}

__attribute__((constructor)) static void set_jansson(void)
{
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
}
#endif
