/* tests/sim/disk.c - see disk.h. Descriptors and directory streams of the simulated folder are
 * entries of tables here; all other paths, descriptors and streams use the real calls. Only a fiber
 * waits for the disk: calls from the world itself, as in a handler, return at once. */
#include "tests/sim/disk.h"
#include "checkpoint/names.h"
#include "tests/sim/fiber.h"
#include "tests/sim/server.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MAX_NAMES = 1024, NAME_BYTES = 160, MAX_FILES = 256, MAX_DIRS = 32, FIRST_FD = 1 << 20 };

struct inode {
    char *data;
    size_t bytes, room, synced;
    int writer; /* node that wrote to the file last */
};

struct name {
    char text[NAME_BYTES]; /* empty: the entry is free */
    struct inode *inode;
};

struct open_file {
    struct inode *inode; /* NULL: the folder itself */
    bool in_use;
    size_t at;
};

struct open_dir {
    bool in_use;
    int at;
    struct dirent entry;
};

static struct name names[MAX_NAMES];
static int n_names;
static bool is_made;
static int n_losses;
static struct open_file files[MAX_FILES];
static struct open_dir dirs[MAX_DIRS];
static struct sim_random chances[SIM_SERVERS];

void disk_reset(void)
{
    n_names = 0;
    is_made = false;
    n_losses = 0;
    memset(files, 0, sizeof files);
    memset(dirs, 0, sizeof dirs);
    for (int i = 0; i < SIM_SERVERS; i++)
        chances[i] = sim_random_of(sim.schedule->seed, STREAM_DISK, (uint64_t)i);
}

void disk_lose_unsynced(int node)
{
    for (int i = 0; i < n_names; i++) {
        struct inode *f = names[i].text[0] ? names[i].inode : NULL;
        if (f && f->writer == node && f->synced < f->bytes)
            f->bytes = f->synced;
    }
}

void disk_lose_folder(void)
{
    n_names = 0;
    is_made = false;
    n_losses++;
}

int disk_n_losses(void)
{
    return n_losses;
}

const char *disk_next_name(int *at)
{
    while (*at < n_names && !names[*at].text[0])
        ++*at;
    return *at < n_names ? names[(*at)++].text : NULL;
}

/* Returns the name in the folder; "" for the folder itself, or for the root, which contains the
 * folder; NULL for a path of the real file system. */
static const char *name_of(const char *path)
{
    const size_t n = sizeof SIM_FOLDER - 1;
    if (sim.schedule && strcmp(path, "/") == 0)
        return "";
    if (!sim.schedule || strncmp(path, SIM_FOLDER, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path[n] ? path + n + 1 : path + n;
}

static struct name *find(const char *text)
{
    for (int i = 0; i < n_names; i++)
        if (strcmp(names[i].text, text) == 0)
            return &names[i];
    return NULL;
}

const char *disk_peek(const char *name, size_t *bytes)
{
    const struct name *n = find(name);
    *bytes = n ? n->inode->bytes : 0;
    return n ? n->inode->data : NULL;
}

static struct name *add(const char *text, struct inode *inode)
{
    int i = 0;
    while (i < n_names && names[i].text[0])
        i++;
    if (i == MAX_NAMES || strlen(text) >= NAME_BYTES)
        sim_fail("bound", "no room for the file %s", text);
    n_names += i == n_names;
    memcpy(names[i].text, text, strlen(text) + 1);
    names[i].inode = inode;
    return &names[i];
}

static int fail(int error)
{
    errno = error;
    return -1;
}

static bool refuse(int error)
{
    errno = error;
    return false;
}

static bool is_dead(int node)
{
    return node < 0 || !sim_server(node) || sim_server(node)->is_dying;
}

static bool hangs(const struct sim_node *n)
{
    return n->disk_stuck == n->life || (n->disk_until > sim.now && !sim.is_calm);
}

/* Begins a call of the running node: waits as long as its disk hangs. Returns false, with errno
 * set, if the call fails. */
static bool enter(bool writes)
{
    int node = sim.running;
    const struct sim_node *n = node >= 0 ? &sim.node[node] : NULL;
    while (!is_dead(node) && hangs(n) && fiber_is_running())
        fiber_wait(n, n->disk_stuck == n->life ? INT64_MAX : n->disk_until);
    if (is_dead(node))
        return refuse(EIO);
    return writes && n->disk_full ? refuse(ENOSPC) : true;
}

/* Waits as long as the disk reads or writes. Returns false, with errno set, if the call fails. */
static bool spend_time(bool writes)
{
    int node = sim.running;
    if (!enter(writes))
        return false;
    if (!fiber_is_running() || node >= SIM_SERVERS)
        return true;
    int64_t ns = sim_between(&chances[node], 50, 6000) * 1000;
    if (sim_chance(&chances[node], 3)) /* other hosts load the disk */
        ns *= 100;
    fiber_wait(&chances[node], sim.now + ns);
    return enter(writes);
}

static struct open_file *file_of(int fd)
{
    int i = fd - FIRST_FD;
    return sim.schedule && i >= 0 && i < MAX_FILES && files[i].in_use ? &files[i] : NULL;
}

static int open_inode(struct inode *inode)
{
    for (int i = 0; i < MAX_FILES; i++) {
        if (files[i].in_use)
            continue;
        files[i] = (struct open_file){.inode = inode, .in_use = true};
        return FIRST_FD + i;
    }
    return fail(EMFILE);
}

static int open_name(const char *text, int flags)
{
    struct name *n = find(text);
    if (!enter(false))
        return -1;
    if (!is_made)
        return fail(ENOENT);
    if (!text[0])
        return open_inode(NULL);
    if (n && (flags & O_CREAT) && (flags & O_EXCL))
        return fail(EEXIST);
    if (!n && !(flags & O_CREAT))
        return fail(ENOENT);
    if (!n)
        n = add(text, sim_alloc(sizeof *n->inode));
    if (flags & O_TRUNC)
        n->inode->bytes = n->inode->synced = 0;
    return open_inode(n->inode);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    const char *text = name_of(path);
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    return text ? open_name(text, flags) : __real_open(path, flags, mode);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct open_file *f = file_of(fd);
    if (!f)
        return __real_close(fd);
    f->in_use = false;
    return 0;
}

static ssize_t read_at(const struct open_file *f, void *to, size_t bytes, size_t at)
{
    if (!enter(false))
        return -1;
    size_t there = f->inode && at < f->inode->bytes ? f->inode->bytes - at : 0;
    size_t n = bytes < there ? bytes : there;
    if (n > 0)
        memcpy(to, f->inode->data + at, n);
    return (ssize_t)n;
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at)
{
    struct open_file *f = file_of(fd);
    return f ? read_at(f, to, bytes, (size_t)at) : __real_pread(fd, to, bytes, at);
}

static void append_bytes(struct inode *f, const void *from, size_t bytes)
{
    if (f->bytes + bytes > f->room) {
        char *grown = sim_alloc(2 * (f->bytes + bytes));
        if (f->bytes)
            memcpy(grown, f->data, f->bytes);
        f->data = grown;
        f->room = 2 * (f->bytes + bytes);
    }
    memcpy(f->data + f->bytes, from, bytes);
    f->bytes += bytes;
    f->writer = sim.running;
}

ssize_t __real_write(int fd, const void *from, size_t bytes);
ssize_t __wrap_write(int fd, const void *from, size_t bytes);
ssize_t __wrap_write(int fd, const void *from, size_t bytes)
{
    struct open_file *f = file_of(fd);
    if (!f)
        return __real_write(fd, from, bytes);
    if (!enter(true))
        return -1;
    append_bytes(f->inode, from, bytes);
    return (ssize_t)bytes;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct open_file *f = file_of(fd);
    if (!f)
        return __real_fsync(fd);
    if (f->inode && !is_dead(sim.running))
        sim_mark(MARK_disk);
    if (!spend_time(false))
        return -1;
    if (f->inode)
        f->inode->synced = f->inode->bytes;
    return 0;
}

int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
    va_list ap;
    va_start(ap, what);
    long arg = va_arg(ap, long);
    va_end(ap);
    return file_of(fd) ? 0 : __real_fcntl(fd, what, arg);
}

static void fill_stat(const struct inode *f, struct stat *out)
{
    *out = (struct stat){.st_mode = f ? S_IFREG | 0666 : S_IFDIR | 0777, .st_nlink = 1};
    out->st_size = f ? (off_t)f->bytes : 0;
}

int __real_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out)
{
    struct open_file *f = file_of(fd);
    if (!f)
        return __real_fstat(fd, out);
    fill_stat(f->inode, out);
    return 0;
}

static int stat_name(const char *text, struct stat *out)
{
    const struct name *n = text[0] ? find(text) : NULL;
    if (!enter(false))
        return -1;
    if (!is_made || (text[0] && !n))
        return fail(ENOENT);
    fill_stat(n ? n->inode : NULL, out);
    return 0;
}

int __real_stat(const char *path, struct stat *out);
int __wrap_stat(const char *path, struct stat *out);
int __wrap_stat(const char *path, struct stat *out)
{
    const char *text = name_of(path);
    return text ? stat_name(text, out) : __real_stat(path, out);
}

int __real_lstat(const char *path, struct stat *out);
int __wrap_lstat(const char *path, struct stat *out);
int __wrap_lstat(const char *path, struct stat *out)
{
    const char *text = name_of(path);
    return text ? stat_name(text, out) : __real_lstat(path, out);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    struct stat s;
    const char *text = name_of(path);
    return text ? stat_name(text, &s) : __real_access(path, mode);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    const char *text = name_of(path);
    if (!text)
        return __real_mkdir(path, mode);
    if (!enter(false))
        return -1;
    if (is_made)
        return fail(EEXIST);
    is_made = true;
    return 0;
}

static bool is_manifest(const char *text)
{
    struct checkpoint_name is;
    checkpoint_name_parse(text, &is);
    return is.kind == CHECKPOINT_NAME_MANIFEST && !is.old;
}

static void note_manifest(const char *text)
{
    if (!is_manifest(text))
        return;
    STORY("checkpoint %s is whole", text);
    sim_mark(MARK_manifest);
}

struct disk_rename {
    char from[NAME_BYTES], to[NAME_BYTES];
};

/* Leaves the rename of a killed process to the file server, which carries it out later. Until then
 * the calls of the process that is started in its place hang, too. */
static void leave_rename(const char *from, const char *to)
{
    struct sim_node *n = &sim.node[sim.running];
    struct sim_random *r = &chances[sim.running];
    struct disk_rename *left = sim_alloc(sizeof *left);
    int64_t hang_ns = sim_below(r, 2 * SIM_S);
    if (n->disk_until < sim.now + hang_ns)
        n->disk_until = sim.now + hang_ns;
    snprintf(left->from, NAME_BYTES, "%s", from);
    snprintf(left->to, NAME_BYTES, "%s", to);
    sim_post(n->disk_until - sim.now + sim_below(r, 20 * SIM_MS), EV_RENAME, -1)->p = left;
}

/* Waits as long as a rename lasts. Returns false if the process was killed during it, as by
 * FAULT_late. */
static bool await_rename(const char *from, const char *to)
{
    int node = sim.running;
    bool was_alive = !is_dead(node);
    if (was_alive && sim.node[node].is_late && is_manifest(to)) {
        sim.node[node].is_late = false;
        sim_timer(node, 0, TIMER_KILL, 0);
        while (!is_dead(node))
            fiber_wait(to, INT64_MAX);
    }
    if (spend_time(false))
        return true;
    if (was_alive && is_dead(node))
        leave_rename(from, to);
    return false;
}

/* Adds a name to an inode; removes the old one if `moves`. */
static int link_name(const char *from, const char *to, bool moves)
{
    struct name *a = find(from), *b = find(to);
    if (!a)
        return fail(ENOENT);
    if (b && !moves)
        return fail(EEXIST);
    struct inode *inode = a->inode;
    if (moves)
        a->text[0] = 0;
    if (b && b != a)
        b->inode = inode;
    else
        add(to, inode);
    note_manifest(to);
    return 0;
}

void disk_rename_late(const struct disk_rename *r)
{
    if (find(r->from)) {
        STORY("the file server carries out a late rename to %s", r->to);
        link_name(r->from, r->to, true);
    }
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    const char *a = name_of(from), *b = name_of(to);
    if (!a || !b)
        return __real_rename(from, to);
    return await_rename(a, b) ? link_name(a, b, true) : -1;
}

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    const char *a = name_of(from), *b = name_of(to);
    if (!a || !b)
        return __real_link(from, to);
    return enter(false) ? link_name(a, b, false) : -1;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    const char *text = name_of(path);
    if (!text)
        return __real_unlink(path);
    if (!enter(false))
        return -1;
    struct name *n = find(text);
    if (!n)
        return fail(ENOENT);
    n->text[0] = 0;
    return 0;
}

static struct open_dir *dir_of(DIR *d)
{
    struct open_dir *o = (struct open_dir *)d;
    return o >= dirs && o < dirs + MAX_DIRS ? o : NULL;
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    if (!name_of(path))
        return __real_opendir(path);
    if (!enter(false))
        return NULL;
    errno = is_made ? EMFILE : ENOENT;
    for (int i = 0; i < MAX_DIRS && is_made; i++) {
        if (dirs[i].in_use)
            continue;
        dirs[i].in_use = true;
        dirs[i].at = 0;
        return (DIR *)&dirs[i];
    }
    return NULL;
}

struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d)
{
    struct open_dir *o = dir_of(d);
    if (!o)
        return __real_readdir(d);
    if (!enter(false))
        return NULL;
    const char *text = disk_next_name(&o->at);
    if (!text)
        return NULL;
    memcpy(o->entry.d_name, text, strlen(text) + 1);
    return &o->entry;
}

int __real_closedir(DIR *d);
int __wrap_closedir(DIR *d);
int __wrap_closedir(DIR *d)
{
    struct open_dir *o = dir_of(d);
    if (!o)
        return __real_closedir(d);
    o->in_use = false;
    return 0;
}

/* Functions of a stream over a simulated descriptor. */
static ssize_t stream_read(void *cookie, char *to, size_t bytes)
{
    struct open_file *f = cookie;
    ssize_t n = read_at(f, to, bytes, f->at);
    f->at += n > 0 ? (size_t)n : 0;
    return n;
}

static int stream_seek(void *cookie, off64_t *to, int whence)
{
    struct open_file *f = cookie;
    size_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f->at : f->inode->bytes;
    f->at = from + (size_t)*to;
    *to = (off64_t)f->at;
    return 0;
}

static int stream_close(void *cookie)
{
    ((struct open_file *)cookie)->in_use = false;
    return 0;
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    const cookie_io_functions_t calls = {stream_read, NULL, stream_seek, stream_close};
    const char *text = name_of(path);
    if (!text)
        return __real_fopen(path, mode);
    int fd = open_name(text, O_RDONLY);
    FILE *f = fd < 0 ? NULL : fopencookie(&files[fd - FIRST_FD], "r", calls);
    if (f)
        f->_fileno = fd; /* so that fstat(fileno(f)) finds the descriptor */
    return f;
}

ssize_t __real_getrandom(void *to, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags)
{
    if (!sim.schedule)
        return __real_getrandom(to, bytes, flags);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = (unsigned char)sim_draw(&sim.identity);
    return (ssize_t)bytes;
}
