/* bench/pingpong.c - measures the lower bound of every exchange on one machine: two processes send
 * a message of --bytes back and forth over a plain TCP connection on loopback, with blocking calls.
 * The child answers after it has received the whole message.
 *
 * Prints one line of JSON: median and 99th percentile of a round trip, bytes both ways per second,
 * and CPU seconds per GB over both processes. */
#include "base/clock.h"
#include "base/flags.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TRIPS = 4 << 20, WARMUP = 20, PEER_LIMIT_S = 10 };

static int64_t opt_bytes = 4;
static double opt_seconds = 1;
static int opt_apart = 0;

static const struct flag flags[] = {
    {"bytes", FLAG_INT, &opt_bytes, 1, 1 << 30, NULL, NULL, "Size of a message, both ways", NULL},
    {"seconds", FLAG_DOUBLE, &opt_seconds, 0.01, 3600, NULL, NULL, "How long to measure", NULL},
    {"apart", FLAG_BOOL, &opt_apart, 0, 0, NULL, NULL,
     "Hold the two processes on two cores; else the kernel may put both on one", NULL},
};
static const struct flags_program program = {
    .name = "bench_pingpong",
    .doc = "Round trips of a message over a plain TCP connection on loopback.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
};

static enum status failed(const char *what)
{
    LOG_E("%s: %s", what, errno ? strerror(errno) : "the other process has gone");
    return ST_IO;
}

static enum status send_all(int fd, const char *data, int64_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, (size_t)n, MSG_NOSIGNAL);
        if (sent < 0)
            return failed("send");
        data += sent;
        n -= sent;
    }
    return ST_OK;
}

/* Receives n bytes. ST_NOT_FOUND: the peer has closed before the first byte. */
static enum status receive_all(int fd, char *data, int64_t n)
{
    for (int64_t left = n; left > 0;) {
        errno = 0;
        ssize_t got = recv(fd, data, (size_t)left, 0);
        if (got == 0 && left == n)
            return ST_NOT_FOUND;
        if (got <= 0)
            return failed("recv");
        data += got;
        left -= got;
    }
    return ST_OK;
}

/* Limits each send and receive to PEER_LIMIT_S, and sends small messages at once. */
static void prepare(int fd)
{
    const int one = 1;
    const struct timeval limit = {.tv_sec = PEER_LIMIT_S};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Pins this process to the first allowed core, or to the last one if `last`; for --apart. */
static enum status pin(int last)
{
    cpu_set_t allowed, one;
    int core = -1;
    if (!opt_apart)
        return ST_OK;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return failed("sched_getaffinity");
    for (int i = 0; i < CPU_SETSIZE && (last || core < 0); i++)
        if (CPU_ISSET(i, &allowed))
            core = i;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0)
        return failed("sched_setaffinity");
    return ST_OK;
}

/* Runs the child until the parent closes the connection. */
static int answer(const struct sockaddr_in *addr, char *buffer)
{
    enum status st = ST_OK;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)addr, sizeof *addr) < 0) {
        st = failed("connect");
        goto done;
    }
    TRY(pin(1));
    prepare(fd);
    for (;;) {
        TRY(receive_all(fd, buffer, opt_bytes));
        TRY(send_all(fd, buffer, opt_bytes));
    }
done:
    if (fd >= 0)
        close(fd);
    return st == ST_NOT_FOUND ? 0 : EXIT_PERMANENT;
}

static int compare_ns(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t cpu_ns(clockid_t child)
{
    struct timespec a = {0}, b = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    clock_gettime(child, &b);
    return (int64_t)(a.tv_sec + b.tv_sec) * 1000000000 + a.tv_nsec + b.tv_nsec;
}

static enum status ask(int fd, pid_t child, char *buffer, int64_t *trip_ns)
{
    enum status st = ST_OK;
    clockid_t child_clock;
    int64_t n = 0, begin = 0, now = 0, cpu = 0;
    if (clock_getcpuclockid(child, &child_clock) != 0)
        return failed("clock_getcpuclockid");
    for (int64_t i = -WARMUP; i < MAX_TRIPS; i++) {
        if (i == 0) {
            cpu = cpu_ns(child_clock);
            begin = now = clock_now_ns();
        }
        TRY(send_all(fd, buffer, opt_bytes));
        st = receive_all(fd, buffer, opt_bytes);
        if (st == ST_NOT_FOUND)
            st = failed("recv");
        if (st != ST_OK)
            goto done;
        if (i < 0)
            continue;
        int64_t before = now;
        now = clock_now_ns();
        trip_ns[n++] = now - before;
        if ((double)(now - begin) > opt_seconds * 1e9)
            break;
    }
    cpu = cpu_ns(child_clock) - cpu;
    const double seconds = (double)(now - begin) * 1e-9, gb = 2e-9 * (double)(n * opt_bytes);
    qsort(trip_ns, (size_t)n, sizeof *trip_ns, compare_ns);
    printf("{\"bytes\": %" PRId64 ", \"trips\": %" PRId64
           ", \"p50_us\": %.2f, \"p99_us\": %.2f, \"gb_per_s\": %.6f, \"cpu_s_per_gb\": %.6f}\n",
           opt_bytes, n, (double)trip_ns[n / 2] * 1e-3, (double)trip_ns[n * 99 / 100] * 1e-3,
           gb / seconds, (double)cpu * 1e-9 / gb);
done:
    return st;
}

static enum status listen_on_loopback(int *fd, struct sockaddr_in *addr)
{
    socklen_t length = sizeof *addr;
    *addr =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)addr, sizeof *addr) < 0 || listen(*fd, 1) < 0 ||
        getsockname(*fd, (struct sockaddr *)addr, &length) < 0)
        return failed("listen on 127.0.0.1");
    prepare(*fd); /* the time limit also applies to accept() */
    return ST_OK;
}

static enum status run(void)
{
    enum status st = ST_OK;
    int listener = -1, fd = -1, code = 0;
    pid_t child = -1;
    struct sockaddr_in addr;
    char *buffer = malloc((size_t)opt_bytes);
    int64_t *trip_ns = malloc(MAX_TRIPS * sizeof *trip_ns);
    if (!buffer || !trip_ns) {
        st = failed("malloc");
        goto done;
    }
    memset(buffer, 1, (size_t)opt_bytes);
    TRY(listen_on_loopback(&listener, &addr));
    child = fork();
    if (child == 0)
        _exit(answer(&addr, buffer));
    fd = child < 0 ? -1 : accept(listener, NULL, NULL);
    if (fd < 0) {
        st = failed(child < 0 ? "fork" : "accept");
        goto done;
    }
    prepare(fd);
    TRY(pin(0));
    TRY(ask(fd, child, buffer, trip_ns));
done:
    if (fd >= 0)
        close(fd);
    if (listener >= 0)
        close(listener);
    if (child > 0 && (waitpid(child, &code, 0) < 0 || code != 0) && st == ST_OK)
        st = failed("the answering process");
    free(buffer);
    free(trip_ns);
    return st;
}

int main(int argc, char **argv)
{
    int exit_now = 0;
    log_init("pingpong", -1, LOG_LEVEL_INFO);
    if (flags_parse(&program, argc, argv, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    return run() == ST_OK ? 0 : EXIT_PERMANENT;
}
