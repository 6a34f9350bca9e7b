/* base/fork_guard.h - releases in a forked child the resources that the child must not keep. These
 * are connections, because a peer cannot detect the end of the parent while any process keeps them
 * open, and memory that is shared with peers. A program that forks without exec (PyTorch's
 * DataLoader) passes both to its children.
 * Owns:    nothing: a guard is a field of the object that it protects.
 * Threads: any. `in_child` runs in the child of fork(), which has one thread and holds no lock of
 *          the object. `in_child` may only call functions of the operating system.
 * Errors:  none; if pthread_atfork() runs out of memory, no child calls `in_child`. */
#ifndef BASE_FORK_GUARD_H
#define BASE_FORK_GUARD_H

struct fork_guard {
    void (*in_child)(struct fork_guard *g);
    struct fork_guard *next, **link; /* neighbours in the list of all guards */
};

/* Adds the guard: from now on each forked child first calls g->in_child, once for each fork. */
void fork_guard_add(struct fork_guard *g, void (*in_child)(struct fork_guard *g));
/* Removes the guard. Does nothing for a guard that was never added (all zeros). */
void fork_guard_remove(struct fork_guard *g);

#endif
