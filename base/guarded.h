/* Annotations of locks that clang checks (-Wthread-safety); for gcc they expand to nothing.
 * CMakeLists.txt includes this header into every C file when the compiler is clang: clang then
 * reports a lock that a function acquires and does not release on every path, a release of a lock
 * that is not held, a wait without its lock, and a call of a REQUIRES function without the lock. In
 * C, clang 14 cannot name a field's lock from another field of the same struct, so GUARDED_BY is
 * only for a file's variables. A comment states which fields a lock in a struct guards. Errors:
 * none at run time; this header generates no code. */
#pragma once

#include <pthread.h>

#if defined(__clang__) && !defined(__cplusplus)
/* The C library's type, declared as a capability. It stays the same type, so that the declarations
 * below agree with the C library's own. */
typedef pthread_mutex_t __attribute__((capability("mutex"))) weir_mutex;
#define pthread_mutex_t weir_mutex

/* The variable may only be read or written while `lock`, a variable of the same file, is held. */
#define GUARDED_BY(lock) __attribute__((guarded_by(lock)))
/* The caller of the function holds the lock, such as s->lock for its parameter s. */
#define REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
/* The function returns with the lock held, or releases the lock that its caller holds. */
#define ACQUIRES(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define RELEASES(...) __attribute__((release_capability(__VA_ARGS__)))
/* clang cannot follow the function's locks; a comment beside it states the reason. */
#define UNCHECKED_LOCKS __attribute__((no_thread_safety_analysis))

extern int pthread_mutex_lock(pthread_mutex_t *lock) ACQUIRES(*lock);
extern int pthread_mutex_unlock(pthread_mutex_t *lock) RELEASES(*lock);
extern int pthread_mutex_trylock(pthread_mutex_t *lock)
    __attribute__((try_acquire_capability(0, *lock)));
extern int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock) REQUIRES(*lock);
extern int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until) REQUIRES(*lock);
#else
#define GUARDED_BY(lock)
#define REQUIRES(...)
#define ACQUIRES(...)
#define RELEASES(...)
#define UNCHECKED_LOCKS
#endif
