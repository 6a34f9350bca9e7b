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
/* SIZES: room for the largest objects of a server, which are made at each of its starts */
enum { UNIT = 16, LINE = 64, SIZES = 8192, ARENA_BYTES = 64 << 20 };

struct object { /* a free object; the unit before it contains its list */
    struct object *next;
};

/* lists of free objects: one for each size, then one for each size on a cache line */
static struct object *free_objects[2 * SIZES];
static char *arena, *unused;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
void __real_free(void *p);
void __wrap_free(void *p);

static bool is_ours(const void *p)
{
    return (const char *)p >= arena && (const char *)p < arena + ARENA_BYTES && arena;
}

static uint64_t *list_of(void *p)
{
    return (uint64_t *)((char *)p - UNIT);
}

/* Returns new memory for an object of `size` units; NULL: the arena is full. */
static void *take_new(size_t size, size_t alignment)
{
    if (!arena)
        arena = unused = __real_aligned_alloc(LINE, ARENA_BYTES);
    size_t at = (size_t)(unused - arena) + UNIT;
    at = (at + alignment - 1) & ~(alignment - 1);
    if (!arena || at + size * UNIT > ARENA_BYTES)
        return NULL;
    unused = arena + at + size * UNIT;
    return arena + at;
}

static void *take_object(size_t size, size_t alignment)
{
    size_t list = alignment == LINE ? SIZES + size : size;
    struct object *o = free_objects[list];
    if (o) {
        free_objects[list] = o->next;
        __builtin_prefetch(o->next); /* probably the next object to return */
        return o;
    }
    o = take_new(size, alignment);
    if (o)
        *list_of(o) = list;
    return o;
}

static size_t size_for(size_t bytes)
{
    return bytes / UNIT + (bytes % UNIT > 0);
}

void *__wrap_malloc(size_t bytes)
{
    size_t size = size_for(bytes);
    void *p = size > 0 && size < SIZES ? take_object(size, UNIT) : NULL;
    return p ? p : __real_malloc(bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    size_t size = size_for(bytes);
    bool is_ours = alignment == LINE && size > 0 && size < SIZES;
    void *p = is_ours ? take_object(size, LINE) : NULL;
    return p ? p : __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strndup(const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    char *copy = __wrap_malloc(n + 1);
    if (copy) {
        memcpy(copy, text, n);
        copy[n] = 0;
    }
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
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
    size_t before = *list_of(p) % SIZES * UNIT;
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
    o->next = free_objects[*list_of(p)];
    free_objects[*list_of(p)] = o;
}

__attribute__((constructor)) static void set_jansson(void)
{
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
}
#endif
