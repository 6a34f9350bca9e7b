/* tests/wan/link.c - a long line between two network namespaces, for tests and benchmarks: a TUN
 * device in each, and between the devices delay, jitter, loss and a rate per direction (shaper.h).
 * It serves kernels without netem, and its losses are the same in every run.
 *
 * One process with one thread reads packets, keeps each packet until it is due, and writes it, to
 * the nanosecond if the kernel wakes the thread in time. The figures contain the thread's delay.
 * The process reads commands on stdin, one per line, and answers each one by a line with its
 * figures as JSON:
 *   stats    only prints the figures
 *   cut      drops new packets from now on; packets in flight still arrive
 *   heal     ends the cut
 * It prints "ready" on stdout when both devices exist. They are down and have no address: the
 * caller sets them up. The process ends when its stdin is closed, and the devices end with it. */
#include "base/clock.h"
#include "base/flags.h"
#include "base/log.h"
#include "tests/wan/shaper.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    BATCH = 64,             /* packets to read before due ones are written */
    MOST_PACKETS = 1 << 19, /* packets in flight in one direction */
    TUN_PACKETS = 4096,     /* packets in the kernel's queue before a read */
    IP_BYTES = 65535,
};

struct packet {
    int64_t due_ns;
    uint64_t number; /* order of packets with the same due time */
    int n_bytes;
    unsigned char bytes[];
};

/* One direction of the line. */
struct lane {
    struct shaper shaper;
    int from, to;         /* TUN devices */
    struct packet **heap; /* [MOST_PACKETS] packets, the earliest due time first */
    size_t n;
    uint64_t n_read, n_lost, n_full, n_cut, n_refused, n_out;
    uint64_t bytes_read, bytes_out;
    int64_t late_sum_ns, late_most_ns;
};

static struct {
    const char *space_a, *space_b, *name_a, *name_b;
    double rtt_ms, jitter_ms, loss_percent, rate_mbit;
    int64_t queue_kb, mtu, seed;
} opt = {.name_a = "wan", .name_b = "wan", .mtu = 1500, .seed = 1};

#define ROW(name, type, target, min, max, arg, help)                                               \
    {                                                                                              \
        name, type, target, min, max, arg, NULL, help, NULL                                        \
    }
static const struct flag flags[] = {
    ROW("a", FLAG_STRING, &opt.space_a, 0, 0, "PATH", "One end's namespace: /proc/PID/ns/net."),
    ROW("b", FLAG_STRING, &opt.space_b, 0, 0, "PATH", "The other's."),
    ROW("name_a", FLAG_STRING, &opt.name_a, 0, 0, "NAME", "The device there."),
    ROW("name_b", FLAG_STRING, &opt.name_b, 0, 0, "NAME", "Likewise."),
    ROW("rtt_ms", FLAG_DOUBLE, &opt.rtt_ms, 0, 1e4, "MS", "There and back; half of it each way."),
    ROW("jitter_ms", FLAG_DOUBLE, &opt.jitter_ms, 0, 1e4, "MS",
        "Each way takes up to so much more or less; packets overtake each other."),
    ROW("loss_percent", FLAG_DOUBLE, &opt.loss_percent, 0, 100, "P", "Lost, each way."),
    ROW("rate_mbit", FLAG_DOUBLE, &opt.rate_mbit, 0, 1e6, "R", "Mbit/s each way; 0: no limit."),
    ROW("queue_kb", FLAG_INT, &opt.queue_kb, 0, 1 << 20, "KB",
        "What may wait for the rate; 0: what one rtt carries, 256 at least."),
    ROW("mtu", FLAG_INT, &opt.mtu, 576, IP_BYTES, "BYTES", "Of both devices."),
    ROW("seed", FLAG_INT, &opt.seed, 0, 1e9, "N", "Of losses and jitter."),
};

/* Opens a TUN device in the namespace that the file `space` names. Returns its descriptor; -1:
 * failed, and logged. */
static int tun_open(const char *space, const char *name)
{
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int space_fd = open(space, O_RDONLY | O_CLOEXEC), fd = -1, sock = -1, good = 0;
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    if (space_fd < 0 || setns(space_fd, CLONE_NEWNET) != 0) {
        LOG_E("%s: not a network namespace that can be entered: %s", space, strerror(errno));
        goto done;
    }
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) != 0) {
        LOG_E("no TUN device %s in %s: %s", name, space, strerror(errno));
        goto done;
    }
    sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    r.ifr_mtu = (int)opt.mtu;
    good = ioctl(sock, SIOCSIFMTU, &r) == 0;
    r.ifr_qlen = TUN_PACKETS;
    good = good && ioctl(sock, SIOCSIFTXQLEN, &r) == 0;
    if (!good)
        LOG_E("%s: no MTU of %d or queue of %d: %s", name, (int)opt.mtu, TUN_PACKETS,
              strerror(errno));
done:
    if (sock >= 0)
        close(sock);
    if (space_fd >= 0)
        close(space_fd);
    if (!good && fd >= 0)
        close(fd);
    return good ? fd : -1;
}

static int before(const struct packet *a, const struct packet *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void heap_put(struct lane *l, struct packet *p)
{
    size_t i = l->n++;
    for (; i > 0 && before(p, l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = p;
}

static struct packet *heap_take(struct lane *l)
{
    struct packet *first = l->heap[0], *last = l->heap[--l->n];
    size_t i = 0, next;
    while ((next = 2 * i + 1) < l->n) {
        next += next + 1 < l->n && before(l->heap[next + 1], l->heap[next]);
        if (!before(l->heap[next], last))
            break;
        l->heap[i] = l->heap[next];
        i = next;
    }
    l->heap[i] = last;
    return first;
}

static void lane_accept(struct lane *l, const unsigned char *bytes, int n, int is_cut)
{
    int64_t due_ns;
    l->n_read++;
    l->bytes_read += (uint64_t)n;
    if (is_cut) {
        l->n_cut++;
        return;
    }
    enum shaper_verdict v = SHAPER_FULL;
    if (l->n < MOST_PACKETS)
        v = shaper_put(&l->shaper, clock_now_ns(), n, &due_ns);
    struct packet *p = v == SHAPER_SENT ? malloc(sizeof *p + (size_t)n) : NULL;
    if (!p) {
        l->n_lost += v == SHAPER_LOST;
        l->n_full += v != SHAPER_LOST;
        return;
    }
    p->due_ns = due_ns;
    p->number = l->n_read;
    p->n_bytes = n;
    memcpy(p->bytes, bytes, (size_t)n);
    heap_put(l, p);
}

static void lane_read(struct lane *l, int is_cut)
{
    static unsigned char bytes[IP_BYTES];
    for (int i = 0; i < BATCH; i++) {
        ssize_t n = read(l->from, bytes, sizeof bytes);
        if (n <= 0)
            return;
        lane_accept(l, bytes, (int)n, is_cut);
    }
}

/* Writes due packets. Returns the next due time, INT64_MAX if no packet is left. */
static int64_t lane_write(struct lane *l)
{
    while (l->n > 0) {
        int64_t late_ns = clock_now_ns() - l->heap[0]->due_ns;
        if (late_ns < 0)
            return l->heap[0]->due_ns;
        struct packet *p = heap_take(l);
        if (write(l->to, p->bytes, (size_t)p->n_bytes) == p->n_bytes) {
            l->n_out++;
            l->bytes_out += (uint64_t)p->n_bytes;
            l->late_sum_ns += late_ns;
            l->late_most_ns = late_ns > l->late_most_ns ? late_ns : l->late_most_ns;
        } else { /* the device of the other end is down */
            l->n_refused++;
        }
        free(p);
    }
    return INT64_MAX;
}

static void lane_tell(const struct lane *l, const char *name)
{
    printf(
        "\"%s\": {\"read\": %llu, \"read_bytes\": %llu, \"out\": %llu, \"out_bytes\": %llu, \"lost\": %llu, \"full\": %llu, \"cut\": %llu, \"refused\": %llu, \"waiting\": %zu, \"late_us\": %.1f, \"late_us_most\": %.1f}",
        name, (unsigned long long)l->n_read, (unsigned long long)l->bytes_read,
        (unsigned long long)l->n_out, (unsigned long long)l->bytes_out,
        (unsigned long long)l->n_lost, (unsigned long long)l->n_full, (unsigned long long)l->n_cut,
        (unsigned long long)l->n_refused, l->n,
        l->n_out ? (double)l->late_sum_ns * 1e-3 / (double)l->n_out : 0,
        (double)l->late_most_ns * 1e-3);
}

/* Runs one command. Returns 0 if stdin has ended. */
static int obey(const struct lane lanes[2], int *is_cut)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        return 0;
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, "cut") == 0)
        *is_cut = 1;
    else if (strcmp(line, "heal") == 0)
        *is_cut = 0;
    else if (strcmp(line, "stats") != 0)
        LOG_W("\"%s\" is none of: stats cut heal", line);
    printf("{");
    lane_tell(&lanes[0], "a_to_b");
    printf(", ");
    lane_tell(&lanes[1], "b_to_a");
    printf(", \"cut\": %s}\n", *is_cut ? "true" : "false");
    fflush(stdout);
    return 1;
}

static void run(struct lane lanes[2])
{
    int is_cut = 0;
    for (;;) {
        int64_t a = lane_write(&lanes[0]), b = lane_write(&lanes[1]), next = a < b ? a : b;
        int64_t left = next - clock_now_ns();
        left = left > 0 ? left : 0;
        struct timespec wait = {left / 1000000000, left % 1000000000};
        struct pollfd fds[] = {
            {.fd = lanes[0].from, .events = POLLIN},
            {.fd = lanes[1].from, .events = POLLIN},
            {.fd = STDIN_FILENO, .events = POLLIN},
        };
        if (ppoll(fds, 3, next == INT64_MAX ? NULL : &wait, NULL) < 0)
            continue; /* EINTR */
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents)
                lane_read(&lanes[i], is_cut);
        }
        if (fds[2].revents && !obey(lanes, &is_cut))
            return;
    }
}

static int lane_init(struct lane *l, int from, int to, uint64_t seed)
{
    int64_t rate = (int64_t)(opt.rate_mbit * 1e6),
            a_trip = (int64_t)(opt.rtt_ms * opt.rate_mbit * 125);
    struct shaper_config cfg = {
        .delay_ns = (int64_t)(opt.rtt_ms * 5e5),
        .jitter_ns = (int64_t)(opt.jitter_ms * 1e6),
        .loss = opt.loss_percent / 100,
        .rate_bits = rate,
        .queue_bytes = opt.queue_kb      ? opt.queue_kb * 1000
                       : a_trip > 256000 ? a_trip
                                         : 256000,
        /* Bytes of a millisecond may leave at once, since a packet may be read late. */
        .burst_bytes = rate / 8000 + 2 * opt.mtu,
        .seed = seed,
    };
    *l = (struct lane){.from = from, .to = to, .heap = calloc(MOST_PACKETS, sizeof *l->heap)};
    shaper_init(&l->shaper, &cfg);
    return l->heap != NULL;
}

/* Raises this process's priority over the programs that use the line. One call is for kernels that
 * schedule by nice alone, another one for kernels that share cores between sessions. */
static void come_first(void)
{
    prctl(PR_SET_TIMERSLACK, 1);
    setsid();
    setpriority(PRIO_PROCESS, 0, -10);
    int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "-10", 3) != 3)
        LOG_D("this session comes no sooner than others: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    const struct flags_program program = {
        .name = "wan_link",
        .doc = "A long line between two network namespaces: see the top of tests/wan/link.c.",
        .flags = flags,
        .n_flags = sizeof flags / sizeof *flags,
    };
    struct lane lanes[2];
    int exit_now = 0;
    log_init("wan_link", -1, LOG_LEVEL_INFO);
    if (flags_parse(&program, argc, argv, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    if (!opt.space_a || !opt.space_b || opt.jitter_ms > opt.rtt_ms / 2) {
        LOG_E("needs --a and --b, and a --jitter_ms of at most half of --rtt_ms");
        return EXIT_USAGE;
    }
    int a = tun_open(opt.space_a, opt.name_a), b = a < 0 ? -1 : tun_open(opt.space_b, opt.name_b);
    if (b < 0 || !lane_init(&lanes[0], a, b, (uint64_t)opt.seed) ||
        !lane_init(&lanes[1], b, a, ~(uint64_t)opt.seed))
        return EXIT_PERMANENT;
    come_first();
    setvbuf(stdin, NULL, _IONBF, 0); /* otherwise poll would not see the bytes in stdio's buffer */
    printf("ready\n");
    fflush(stdout);
    run(lanes);
    return 0;
}
