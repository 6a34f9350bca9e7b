/* tests/worker_devices_test.c - chooses and reserves GPUs, on machines that fakes of the driver's
 * two libraries show (tests/fake_driver). Processes that compete are forked. */
#include "base/clock.h"
#include "base/log.h"
#include "member/device_lock.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include "tests/folder_rig.h"
#include "worker/device/device_scan.h"
#include "worker/device/devices.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MAX_CARDS = 8, FASTEST = 5 };

static char dir[64], lock_dir[80], state_path[80];

struct card {
    int used_mb, busy, lost, gone;
    const char *procs; /* NULL: none */
    const char *migs;  /* additional lines; NULL: none */
};

/* Card i is named by eight digits i and sits on bus 0x10 + i. Card 5 is the fastest, so CUDA
 * numbers the cards in the order 5, 0, 1, 2, 3, 4, 6, 7. */
static void machine(const struct card *cards, int n)
{
    char path[128];
    snprintf(path, sizeof path, "%s.new", state_path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++) {
        if (cards[i].gone)
            continue;
        fprintf(
            f,
            "gpu uuid=GPU-%d%d%d%d%d%d%d%d-0000-4000-8000-000000000000 pci=0000:%02x:00.0 name=NVIDIA_H200 cc=9.0 total=143771 used=%d busy=%d speed=%d lost=%d procs=%s\n",
            i, i, i, i, i, i, i, i, 0x10 + i, cards[i].used_mb, cards[i].busy, i == FASTEST,
            cards[i].lost, cards[i].procs ? cards[i].procs : "");
        if (cards[i].migs)
            fputs(cards[i].migs, f);
    }
    fclose(f);
    assert_int_equal(rename(path, state_path), 0);
}

static void idle_machine(int n)
{
    struct card cards[MAX_CARDS] = {{0}};
    machine(cards, n);
}

/* Returns the card (not CUDA's number) of a device. */
static int card_of(const struct device_info *d)
{
    return d->uuid[4] - '0';
}

static struct devices got;
static int wait_seconds;
static const uint8_t *named;
static int (*pausing)(void *ctx, int ms);

static enum status choose(const char *gpus)
{
    struct devices_request r = {.gpus = gpus,
                                .named = named,
                                .lock_dir = lock_dir,
                                .wait_seconds = wait_seconds,
                                .pause = pausing};
    devices_release(&got);
    return CAPTURE(devices_choose(&r, &got));
}

static void says(const char *text)
{
    if (!strstr(capture_text, text))
        fail_msg("'%s' is not in:\n%s", text, capture_text);
}

/* Checks that the chosen cards are those of a list like "5,0", in this order. */
static void expect_cards(const char *expected)
{
    char text[64] = "";
    for (int i = 0; i < got.n; i++)
        sprintf(text + strlen(text), "%s%d", i ? "," : "", card_of(&got.gpu[i]));
    if (strcmp(text, expected) != 0)
        fail_msg("cards '%s', expected '%s'; log:\n%s", text, expected, capture_text);
}

static int setup(void **unused)
{
    folder_rig_new(dir);
    assert_int_equal(chmod(dir, 0755), 0);
    snprintf(lock_dir, sizeof lock_dir, "%s/locks", dir);
    snprintf(state_path, sizeof state_path, "%s/state", dir);
    mkdir(lock_dir, 0777);
    chmod(lock_dir, 01777);
    setenv("WEIR_FAKE_GPUS", state_path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    wait_seconds = 0;
    pausing = NULL;
    named = NULL;
    return 0;
}

static int teardown(void **unused)
{
    devices_release(&got);
    return folder_rig_delete(dir);
}

/* Placement names GPUs by CUDA's numbers, which begin with card 5 here. */
static void named_by_placement(void **unused)
{
    struct card cards[7] = {{0}};
    named = (const uint8_t[DEVICE_MAX]){[1] = 1, [3] = 1};
    machine(cards, 7);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("0,2");
    assert_true(got.by_number);
    assert_null(strstr(capture_text, "does not use"));
    cards[0].procs = "11";
    machine(cards, 7);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("2");
    says("1 of the 2 requested GPUs are free: GPU 1: process 11 ");
    setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3", 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("0,2");
    says("GPU 1 (");
    says("is shared: CUDA_VISIBLE_DEVICES='0,1,2,3' names it");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(choose("auto:2"), ST_OK);
    expect_cards("5,1");
    assert_false(got.by_number);
    assert_int_equal(choose("2"), ST_OK);
    expect_cards("1");
    named = (const uint8_t[DEVICE_MAX]){[9] = 1};
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("5");
    assert_false(got.by_number);
    /* If the flag names no GPU, a line names the value that would use more of the free GPUs. */
    named = NULL;
    assert_int_equal(choose("auto"), ST_OK);
    says(
        "GPU 2, 3, 4, 5, 6 are free, but this worker does not use them; with --gpus=auto:6 it trains "
        "on them, too, with one tower on each GPU");
    cards[1].procs = cards[2].procs = cards[3].procs = cards[4].procs = "12";
    machine(cards, 7);
    assert_int_equal(choose("auto"), ST_OK);
    says("GPU 6 is free, but this worker does not use it; with --gpus=auto:2 it trains on it, too");
    assert_int_equal(choose("auto:1"), ST_OK);
    assert_null(strstr(capture_text, "does not use"));
}

static void forms_of_the_flag(void **unused)
{
    static const char *const good[] = {
        "auto", "auto:1",    "auto:64",           "all", "none",           "0",
        "0,2",  "GPU-89,11", "GPU-8932F937-d72c", "3,1", "MIG-8932f937-d7"};
    static const char *const bad[] = {
        "",     "auto:",  "auto:0", "auto:65", "auto:x", "auto:-1",  "-1",  "0,",         ",0",
        "0,,1", " 0",     "0 ,1",   "gpu",     "GPU-",   "GPU-xyz",  "All", "12345",      "0x1",
        "1.5",  "none,0", "all,0",  "GPU",     "0;1",    "auto:1,2", "+1",  "GPU-../../x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (CAPTURE(devices_check(good[i], 0)) != ST_OK)
            fail_msg("'%s' refused: %s", good[i], capture_text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (CAPTURE(devices_check(bad[i], 0)) != ST_INVALID)
            fail_msg("'%s' accepted", bad[i]);
        assert_int_equal(capture_lines(), 1);
    }
    assert_int_equal(CAPTURE(devices_check("auto:2", 9)), ST_OK);
    assert_int_equal(CAPTURE(devices_check("all", 9)), ST_INVALID);
    says("--gpu_wait");
}

static void load_decides_whether_card_is_idle(void **unused)
{
    char why[DEVICE_WHY_SIZE];
    const uint64_t mb = 1 << 20;
    struct device_load l = {.total_bytes = 24000 * mb, .used_bytes = 1024 * mb, .percent = 10};
    assert_true(device_scan_is_idle(&l, why));
    l.used_bytes++;
    assert_false(device_scan_is_idle(&l, why));
    assert_non_null(strstr(why, "memory"));
    l.total_bytes = 100000 * mb; /* 2 % of it are more than 1024 MB */
    assert_true(device_scan_is_idle(&l, why));
    l.percent = 11;
    assert_false(device_scan_is_idle(&l, why));
    assert_non_null(strstr(why, "11 %"));
    l.percent = -1;
    l.n_processes = -1;
    assert_true(device_scan_is_idle(&l, why));
    l.n_processes = 1;
    l.n_pids = 1;
    l.pid[0] = getpid();
    assert_false(device_scan_is_idle(&l, why));
    assert_non_null(strstr(why, "(worker_devices"));
    l = (struct device_load){.state = DEVICE_LOAD_NO_NVML};
    assert_true(device_scan_is_idle(&l, why));
    l.state = DEVICE_LOAD_UNKNOWN;
    assert_false(device_scan_is_idle(&l, why));
    l.state = DEVICE_LOAD_LOST;
    assert_false(device_scan_is_idle(&l, why));
}

/* Cards 2, 4 and 7 are idle. NVML's number of a card never equals CUDA's here, except 6 and 7. */
static void mixed_load(void **unused)
{
    struct card cards[8] = {
        {.procs = "11", .used_mb = 30000, .busy = 97},
        {.procs = "12,13", .used_mb = 900},
        {.used_mb = 620},
        {.used_mb = 9000}, /* a process that the container hides */
        {.used_mb = 620, .busy = 3},
        {.used_mb = 620, .busy = 60},
        {.lost = 1},
        {.used_mb = 0},
    };
    machine(cards, 8);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("2");
    assert_int_equal(got.gpu[0].ordinal, 3);
    assert_string_equal(got.gpu[0].pci, "0000:12:00.0");
    assert_int_equal(choose("auto:2"), ST_OK);
    expect_cards("2,4");
    assert_int_equal(choose("auto:5"), ST_OK);
    expect_cards("2,4,7");
    says("3 of the 5");
    says("GPU 0: it is busy for 60 %");
    says("GPU 2: 2 processes compute on it");
    says("GPU 4: 9.4 of its 150.8 GB");
    says("GPU 6: it is lost");
    assert_int_equal(choose("all"), ST_NOT_FOUND);
    says("GPU is lost");
    assert_int_equal(choose("none"), ST_OK);
    expect_cards("");
    assert_int_equal(capture_lines(), 0);
    cards[2].busy = cards[4].busy = cards[7].busy = 99;
    machine(cards, 8);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("");
    assert_int_equal(capture_lines(), 1);
    says("no GPU is free, training on the CPU");
}

/* A process that chooses when the last writer of the pipe `start` closes it, reports its cards, and
 * holds them until it is signalled. */
struct rival {
    pid_t pid;
    int result, hold;
};

struct result {
    int n, card[MAX_CARDS];
};

static struct rival rival_start(const char *gpus, int start, int start_end)
{
    int result[2], hold[2];
    char byte;
    assert_int_equal(pipe2(result, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    struct rival r = {.pid = fork(), .result = result[0], .hold = hold[1]};
    assert_true(r.pid >= 0);
    if (r.pid == 0) {
        struct result out = {0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(hold[1]);
        if (start_end >= 0)
            close(start_end);
        if (start >= 0 && read(start, &byte, 1) != 0)
            _exit(2);
        if (choose(gpus) != ST_OK)
            _exit(3);
        for (out.n = 0; out.n < got.n; out.n++)
            out.card[out.n] = card_of(&got.gpu[out.n]);
        if (write(result[1], &out, sizeof out) != sizeof out || read(hold[0], &byte, 1) != 1)
            _exit(4);
        _exit(0);
    }
    close(result[1]);
    close(hold[0]);
    return r;
}

static struct result rival_result(struct rival *r)
{
    struct result out = {0};
    assert_int_equal(read(r->result, &out, sizeof out), sizeof out);
    return out;
}

static void rival_end(struct rival *r, int sig)
{
    int status = 0;
    if (sig)
        kill(r->pid, sig);
    else
        assert_int_equal(write(r->hold, "", 1), 1);
    close(r->hold);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    close(r->result);
    if (sig)
        assert_true(WIFSIGNALED(status));
    else
        assert_int_equal(status, 0);
}

/* Runs n processes that request `gpus` at the same moment. Counts how often each card was chosen,
 * and how many cards each process got. */
static void race(const char *gpus, int n, int *given, int *totals)
{
    int start[2];
    struct rival r[MAX_CARDS];
    assert_int_equal(pipe2(start, O_CLOEXEC), 0);
    for (int i = 0; i < n; i++)
        r[i] = rival_start(gpus, start[0], start[1]);
    memset(given, 0, MAX_CARDS * sizeof *given);
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < n; i++) {
        struct result out = rival_result(&r[i]);
        totals[i] = out.n;
        for (int k = 0; k < out.n; k++)
            given[out.card[k]]++;
    }
    for (int i = 0; i < n; i++)
        rival_end(&r[i], 0);
}

static void racing_processes_share_cards_fairly(void **unused)
{
    int given[MAX_CARDS], totals[MAX_CARDS];
    idle_machine(1);
    for (int round = 0; round < 20; round++) {
        race("auto", 2, given, totals);
        assert_int_equal(given[0], 1);
        race("auto", 8, given, totals);
        assert_int_equal(given[0], 1);
    }
    idle_machine(8);
    for (int round = 0; round < 5; round++) {
        race("auto", 8, given, totals);
        for (int i = 0; i < 8; i++)
            assert_int_equal(given[i], 1);
    }
    /* One process gets three cards and the other gets one, since they choose one after the
     * other. */
    idle_machine(4);
    for (int round = 0; round < 20; round++) {
        race("auto:3", 2, given, totals);
        assert_int_equal(totals[0] + totals[1], 4);
        assert_int_equal(totals[0] * totals[1], 3);
    }
}

static void crash_frees_card(void **unused)
{
    idle_machine(1);
    struct rival r = rival_start("auto", -1, -1);
    assert_int_equal(rival_result(&r).n, 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("");
    char text[64];
    snprintf(text, sizeof text, "process %d has reserved it", (int)r.pid);
    says(text);
    /* A named card that is reserved is used, with a warning. */
    assert_int_equal(choose("0"), ST_OK);
    expect_cards("0");
    says(text);
    assert_int_equal(got.claim[0].lock, -1);
    rival_end(&r, SIGKILL);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("0");
    /* A named card is reserved, too. */
    assert_int_equal(choose("GPU-0"), ST_OK);
    r = rival_start("auto", -1, -1);
    assert_int_equal(rival_result(&r).n, 0);
    rival_end(&r, 0);
}

static int n_pauses;

/* Card 1 falls off the bus, then card 2 becomes idle. */
static int change_machine(void *ctx, int ms)
{
    assert_true(ms > 0 && ms <= 500);
    struct card cards[3] = {{.procs = "11"}, {.procs = "12"}, {.procs = "13"}};
    n_pauses++;
    cards[1].lost = n_pauses >= 1;
    if (n_pauses >= 2)
        cards[2].procs = NULL;
    machine(cards, 3);
    return n_pauses > 50;
}

static int time_passes(void *ctx, int ms)
{
    n_pauses++;
    fake_time_move(ms);
    return 0;
}

static int give_up(void *ctx, int ms)
{
    return 1;
}

static void gpu_wait_uses_cards_that_become_free(void **unused)
{
    struct card cards[3] = {{.procs = "11"}, {.procs = "12"}, {.procs = "13"}};
    n_pauses = 0;
    wait_seconds = 600;
    pausing = change_machine;
    machine(cards, 3);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("2");
    assert_int_equal(n_pauses, 2);
    says("waiting for 1 more GPU, at most 600 s: GPU 0: process 11");
    pausing = give_up;
    machine(cards, 3);
    assert_int_equal(choose("auto"), ST_CANCELLED);
    /* The wait ends on time at its deadline, with the CPU. */
    wait_seconds = 90;
    pausing = time_passes;
    n_pauses = 0;
    fake_time_stop();
    int64_t begin = clock_now_ns();
    assert_int_equal(choose("auto"), ST_OK);
    int64_t ms = (clock_now_ns() - begin) / 1000000;
    fake_time_release();
    expect_cards("");
    says("no GPU is free");
    assert_in_range(ms, 90000, 90001);
    assert_in_range(n_pauses, 2, 90000);
    /* The wait also ends without a pause function, after its own pauses. */
    wait_seconds = 1;
    pausing = NULL;
    begin = clock_now_ns();
    assert_int_equal(choose("auto"), ST_OK);
    assert_true(clock_now_ns() - begin >= 1000000000);
    expect_cards("");
    /* On a machine without GPUs none can become free. */
    machine(cards, 0);
    pausing = give_up;
    assert_int_equal(choose("auto"), ST_OK);
    says("training on the CPU: CUDA shows no GPU (cuInit: 100");
    assert_int_equal(capture_lines(), 1);
}

static struct card moment[2]; /* the machine after a pause */
static int moment_n, paused_ms, first_was_kept;

static int a_moment_passes(void *ctx, int ms)
{
    char why[DEVICE_WHY_SIZE];
    int lock;
    n_pauses++;
    paused_ms += ms;
    first_was_kept = device_lock_acquire(lock_dir, "GPU-00000000-0000-4000-8000-000000000000",
                                         &lock, why) == ST_BUSY;
    if (!first_was_kept)
        device_lock_release(lock);
    machine(moment, moment_n);
    return 0;
}

/* Checks the choice on a machine that changes after a pause, and the number of pauses. */
static void expect_after(const char *gpus, const struct card *now, const struct card *later, int n,
                         int pauses, const char *cards)
{
    machine(now, n);
    memcpy(moment, later, (size_t)n * sizeof *later);
    moment_n = n;
    n_pauses = paused_ms = 0;
    pausing = a_moment_passes;
    assert_int_equal(choose(gpus), ST_OK);
    expect_cards(cards);
    assert_int_equal(n_pauses, pauses);
}

/* NVML's utilisation may still be that of a job that has just ended, so a second look follows. */
static void busy_a_moment_ago(void **unused)
{
    const struct card full = {.busy = 97, .used_mb = 620}, idle = {.used_mb = 620},
                      half = {.busy = 11}, taken = {.busy = 97, .procs = "11"},
                      large = {.busy = 97, .used_mb = 30000};
    expect_after("auto", &full, &idle, 1, 1, "0");
    assert_true(paused_ms >= 1000 && !first_was_kept);
    assert_null(strstr(capture_text, "CPU"));
    expect_after("auto", &full, &half, 1, 1, "");
    says("no GPU is free, training on the CPU: GPU 0: it is busy for 11 % of the time");
    /* If a card is busy for another reason, no second look follows. A card may get a process during
     * the pause. */
    expect_after("auto", &taken, &idle, 1, 0, "");
    expect_after("auto", &large, &idle, 1, 0, "");
    expect_after("auto", &full, &taken, 1, 1, "");
    says("process 11 ");
    /* A card that is free at once is kept. The choice does not wait for a card that it does not
     * need. */
    const struct card one[2] = {idle, full}, both[2] = {idle, idle};
    expect_after("auto:2", one, both, 2, 1, "0,1");
    assert_true(first_was_kept);
    expect_after("auto", one, both, 2, 0, "0");
    /* A wait by --gpu_wait includes the additional looks. */
    wait_seconds = 600;
    expect_after("auto", &full, &idle, 1, 1, "0");
    wait_seconds = 0;
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    expect_after("auto", &full, &idle, 1, 1, "0");
    assert_null(strstr(capture_text, "shared"));
    expect_after("auto", &full, &full, 1, 1, "0");
    says("names it, so it is used, but it is busy for 97 %");
    unsetenv("CUDA_VISIBLE_DEVICES");
    pausing = give_up;
    assert_int_equal(choose("auto"), ST_CANCELLED);
}

static void names_and_numbers_find_cards(void **unused)
{
    idle_machine(8);
    assert_int_equal(choose("0,2"), ST_OK);
    expect_cards("5,1");
    assert_int_equal(choose("GPU-33,gPU-0"), ST_INVALID);
    assert_int_equal(choose("GPU-77777777-0000-4000,GPU-3,0"), ST_OK);
    expect_cards("7,3,5");
    assert_int_equal(choose("8"), ST_NOT_FOUND);
    assert_int_equal(capture_lines(), 1);
    says(
        "'8' is not a GPU that CUDA shows; CUDA shows GPU 0 (NVIDIA H200, GPU-55555555-0000-4000-8000-000000000000, 0000:15:00.0), GPU 1 (");
    assert_int_equal(choose("0,0"), ST_INVALID);
    assert_int_equal(choose("1,GPU-00"), ST_INVALID);
    says("names GPU 1 a second time");
    assert_int_equal(choose("GPU-9"), ST_NOT_FOUND);
    setenv("CUDA_VISIBLE_DEVICES", "2,3", 1);
    assert_int_equal(choose("2"), ST_NOT_FOUND);
    says("CUDA_VISIBLE_DEVICES='2,3' shows 2 of this machine's 8");
    unsetenv("CUDA_VISIBLE_DEVICES");
    struct card twins[2] = {{0}};
    machine(twins, 2);
    FILE *f = fopen(state_path, "a");
    fputs("gpu uuid=GPU-00000000-1111-4000-8000-000000000000 pci=0000:20:00.0 name=X cc=9.0 "
          "total=1000\n",
          f);
    fclose(f);
    assert_int_equal(choose("GPU-0000"), ST_NOT_FOUND);
    says("beginning of several");
    assert_int_equal(choose("GPU-00000000-1"), ST_OK);
    machine(twins, 0);
    assert_int_equal(choose("all"), ST_NOT_FOUND);
    says("there is no GPU, only the CPU");
    assert_int_equal(choose("0"), ST_NOT_FOUND);
}

static void visible_devices(void **unused)
{
    static const struct {
        const char *visible, *order, *cards;
    } forms[] = {
        {NULL, NULL, "5,0,1,2,3,4,6,7"},
        {NULL, "FASTEST_FIRST", "5,0,1,2,3,4,6,7"},
        {NULL, "PCI_BUS_ID", "0,1,2,3,4,5,6,7"},
        {"", NULL, ""},
        {"-1", NULL, ""},
        {"NoDevFiles", NULL, ""},
        {"0", NULL, "5"},
        {"0", "PCI_BUS_ID", "0"},
        {"2,1", NULL, "1,0"},
        {" 2, 1", NULL, "1,0"},
        {"0,2,-1,1", NULL, "5,1"},
        {"1,8,2", NULL, "0"},
        {"8", NULL, ""},
        {"1,1", NULL, ""},
        {"0,1,0", NULL, ""},
        {"1gpu,2", NULL, "0,1"},
        {"GPU-33333333-0000-4000-8000-000000000000", NULL, "3"},
        {"GPU-33,GPU-7", NULL, "3,7"},
        {"GPU-7,GPU-33", "PCI_BUS_ID", "7,3"},
        {"GPU-7,GPU-9,GPU-3", NULL, "7"},
        {"GPU-7,2", NULL, "7"},
        {"2,GPU-7", NULL, "1"},
        {"GPU-3,GPU-33", NULL, ""},
        {"GPU-", NULL, ""},
        {"MIG-1", NULL, ""},
    };
    idle_machine(8);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        unsetenv("CUDA_VISIBLE_DEVICES");
        unsetenv("CUDA_DEVICE_ORDER");
        if (forms[i].visible)
            setenv("CUDA_VISIBLE_DEVICES", forms[i].visible, 1);
        if (forms[i].order)
            setenv("CUDA_DEVICE_ORDER", forms[i].order, 1);
        assert_int_equal(choose("auto:64"), ST_OK);
        expect_cards(forms[i].cards);
        assert_int_equal(choose("all"), forms[i].cards[0] ? ST_OK : ST_NOT_FOUND);
        if (forms[i].cards[0])
            expect_cards(forms[i].cards);
    }
    setenv("CUDA_VISIBLE_DEVICES", "1,8,2", 1);
    unsetenv("CUDA_DEVICE_ORDER");
    assert_int_equal(choose("auto"), ST_OK);
    says("CUDA_VISIBLE_DEVICES='1,8,2' has 3 entries, CUDA shows 1 GPU:");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    assert_int_equal(choose("auto"), ST_OK);
    says("CUDA_VISIBLE_DEVICES='' shows 0 of this machine's 8");
    assert_int_equal(capture_lines(), 1);
}

/* Cards in CUDA_VISIBLE_DEVICES are used even if they are busy, but free cards are used first. */
static void visible_and_busy(void **unused)
{
    struct card cards[4] = {{.procs = "11", .used_mb = 30000}, {0}, {.busy = 60}, {.lost = 1}};
    machine(cards, 4);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("0");
    says(" worker GPU 0 (NVIDIA H200, GPU-00000000-");
    says(") is shared: CUDA_VISIBLE_DEVICES='0' names it, so it is used, but process 11 ");
    assert_true(got.claim[0].lock >= 0);
    assert_int_equal(capture_lines(), 2);
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("1");
    assert_null(strstr(capture_text, "shared"));
    says(
        "CUDA_VISIBLE_DEVICES also names GPU 0, which is busy; with --gpus=auto:2 this worker shares it ");
    assert_int_equal(choose("auto:2"), ST_OK);
    expect_cards("1,0");
    setenv("CUDA_VISIBLE_DEVICES", "0,3,2,1", 1); /* a lost card is among them */
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("1");
    says(
        "CUDA_VISIBLE_DEVICES also names GPU 0, 2, which are busy; with --gpus=auto:3 this worker shares them ");
    assert_int_equal(choose("auto:4"), ST_OK);
    expect_cards("1,0,2");
    says(" worker GPU 2 (");
    says("it is busy for 60 %");
    says("1 of the 4 requested GPUs are free: ");
    /* A card that another worker has reserved is used last. */
    devices_release(&got);
    struct rival r = rival_start("GPU-0", -1, -1);
    assert_int_equal(rival_result(&r).n, 1);
    setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("2");
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("0");
    char text[64];
    snprintf(text, sizeof text, "so it is used, but process %d has reserved it", (int)r.pid);
    says(text);
    assert_int_equal(got.claim[0].lock, -1);
    rival_end(&r, 0);
    /* A lost card is never used. */
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("");
    says("no GPU is free, training on the CPU: GPU 0: it is lost");
    /* The user named no cards: busy ones are not used. */
    unsetenv("CUDA_VISIBLE_DEVICES");
    cards[1].procs = "12";
    machine(cards, 4);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("");
}

#define MIG_A "MIG-aaaaaaaa-0000-4000-8000-000000000000"
#define MIG_B "MIG-bbbbbbbb-0000-4000-8000-000000000000"

static void mig_instances_chosen_separately(void **unused)
{
    struct card cards[2] = {{.used_mb = 50000,
                             .migs = "mig uuid=" MIG_A " total=18000 used=9000 procs=21\n"
                                     "mig uuid=" MIG_B " total=18000 used=10\n"}};
    machine(cards, 1);
    assert_int_equal(choose("auto"), ST_OK);
    assert_int_equal(got.n, 0);
    says("GPU 0: process 21 ");
    setenv("CUDA_VISIBLE_DEVICES", MIG_B, 1);
    assert_int_equal(choose("auto"), ST_OK);
    assert_int_equal(got.n, 1);
    assert_string_equal(got.gpu[0].uuid, MIG_B);
    assert_true(got.gpu[0].is_mig);
    assert_int_equal(got.gpu[0].memory_bytes, 18000ULL << 20);
    /* A reservation of one instance does not affect the other. */
    cards[0].migs = "mig uuid=" MIG_A " total=18000 used=10\nmig uuid=" MIG_B " total=18000\n";
    machine(cards, 1);
    setenv("CUDA_VISIBLE_DEVICES", "MIG-aaaa", 1);
    struct rival r = rival_start("auto", -1, -1);
    assert_int_equal(rival_result(&r).n, 1);
    rival_end(&r, 0);
    setenv("CUDA_VISIBLE_DEVICES", "MIG-b", 1);
    struct device_info mine = got.gpu[0];
    int fd;
    char why[DEVICE_WHY_SIZE];
    assert_int_equal(device_lock_acquire(lock_dir, mine.uuid, &fd, why), ST_BUSY);
    assert_int_equal(choose("MIG-bbbb"), ST_OK);
    assert_int_equal(got.n, 1);
}

/* If nothing can be reserved in the folder, auto uses no GPU, and a named GPU is used. */
static void folder_that_does_not_serve(void **unused)
{
    idle_machine(1);
    snprintf(lock_dir, sizeof lock_dir, "%s/nowhere", dir);
    assert_int_equal(choose("auto"), ST_OK);
    expect_cards("");
    says("GPU 0: it cannot be reserved");
    assert_int_equal(choose("0"), ST_OK);
    expect_cards("0");
    says("W ");
}

int main(void)
{
    log_init("worker", -1, LOG_LEVEL_INFO);
    /* The calls of dlopen() in the tested code then find these libraries by their sonames. */
    if (!dlopen(WEIR_TEST_FAKES_DIR "/fake_cuda/libcuda.so.1", RTLD_NOW | RTLD_LOCAL) ||
        !dlopen(WEIR_TEST_FAKES_DIR "/fake_nvml/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(named_by_placement),
        TEST(forms_of_the_flag),
        TEST(load_decides_whether_card_is_idle),
        TEST(mixed_load),
        TEST(racing_processes_share_cards_fairly),
        TEST(crash_frees_card),
        TEST(gpu_wait_uses_cards_that_become_free),
        TEST(busy_a_moment_ago),
        TEST(names_and_numbers_find_cards),
        TEST(visible_devices),
        TEST(visible_and_busy),
        TEST(mig_instances_chosen_separately),
        TEST(folder_that_does_not_serve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
