/* tests/ps_owner_test.c - checks whether the process that claimed a folder of checkpoints is alive:
 * each answer of the program at its address, and each state of its lock. */
#include "base/clock.h"
#include "checkpoint/folder.h"
#include "checkpoint/owner.h"
#include "files/durable.h"
#include "net/rpc/server.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { OWNER = 77, NOBODY = 65534 };
static char folder[64];
static struct checkpoint_lease looked_at;

static int setup(void **state)
{
    folder_rig_new(folder);
    return chmod(folder, 0755);
}

static int teardown(void **state)
{
    return folder_rig_delete(folder);
}

static uint64_t claim(const char *address)
{
    struct checkpoint_lease l;
    assert_int_equal(checkpoint_folder_claim(folder, OWNER, address, 0, NULL, &l), ST_OK);
    return l.epoch;
}

/* Writes a lease as if another machine had claimed the folder. */
static void claim_elsewhere(const char *address)
{
    char path[128], text[256];
    snprintf(path, sizeof path, "%s/lease-%d", folder, (int)claim(address));
    snprintf(text, sizeof text,
             "{\"epoch\":1,\"incarnation\":\"%016x\",\"address\":\"%s\",\"host\":\"elsewhere\"}",
             OWNER, address);
    assert_int_equal(durable_put(path, text, strlen(text)), ST_OK);
}

/* Checks that a claim of the folder is refused, with these words, unless --take_over is set. */
static void assert_refused(const char *address, const char *words)
{
    assert_int_equal(CAPTURE(checkpoint_owner_check(folder, address, false, &looked_at)),
                     ST_REFUSED);
    assert_non_null(strstr(capture_text, words));
    assert_non_null(strstr(capture_text, "--take_over"));
    assert_int_equal(CAPTURE(checkpoint_owner_check(folder, address, true, &looked_at)), ST_OK);
    assert_non_null(strstr(capture_text, "--take_over: "));
}

static void assert_free(const char *address)
{
    assert_int_equal(checkpoint_owner_check(folder, address, false, &looked_at), ST_OK);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the server's answer */

static enum status on_status(void *ctx, int with_model, struct net_status *out)
{
    const struct net_status *s = ctx;
    pthread_mutex_lock(&lock);
    *out = *s;
    pthread_mutex_unlock(&lock);
    return ST_OK;
}

static void say(struct net_status *s, const struct net_status *is)
{
    pthread_mutex_lock(&lock);
    *s = *is;
    pthread_mutex_unlock(&lock);
}

static struct net_server *serve(struct net_status *s, char address[64])
{
    struct net_server *server;
    const struct net_server_config cfg = {.addr = "127.0.0.1:0",
                                          .admin = {.status = on_status, .ctx = s}};
    assert_int_equal(net_server_create(&cfg, &server), ST_OK);
    snprintf(address, 64, "127.0.0.1:%d", net_server_port(server));
    return server;
}

static void only_the_claimed_incarnation_is_alive(void **state)
{
    char address[64];
    struct net_status is = {.step = -1, .checkpoints = {.folder = "/c", .owner = OWNER}}, s = is;
    struct net_server *server = serve(&s, address);
    claim(address);
    assert_refused("a:1", "belongs to a running job, whose ps:0 answers at 127.0.0.1:");
    assert_free(address);
    is.checkpoints.is_ending = true;
    say(&s, &is);
    assert_int_equal(CAPTURE(checkpoint_owner_check(folder, "a:1", false, &looked_at)),
                     ST_BUSY); /* retry */
    assert_non_null(strstr(capture_text, "is shutting down: start this program again when"));
    is.checkpoints.owner = OWNER + 1; /* another job has the port now */
    say(&s, &is);
    assert_free("a:1");
    is.checkpoints.owner = 0; /* an earlier version does not report an owner */
    say(&s, &is);
    assert_refused("a:1", "whether that process is running (the ps:0 there does not report");
    is.checkpoints.folder[0] = 0; /* a server without a folder, or not the first of its job */
    say(&s, &is);
    assert_free("a:1");
    net_server_stop(server, 0);
    net_server_destroy(server);
    assert_free("a:1");
}

/* The program at that address uses TLS, and this program does not. */
static void program_without_an_answer_may_be_the_owner(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    char address[64];
    int status, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(a.sin_port));
    claim(address);
    pid_t pid = fork();
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed assertion leaves no child behind */
    while (pid == 0) {                    /* sends an alert, and closes the connection */
        int peer = accept(fd, NULL, NULL);
        if (write(peer, "\25\3\1\0\2\2\12", 7) < 0 || close(peer) < 0)
            _exit(1);
    }
    assert_refused("a:1", "it is unknown whether that process is running (");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(fd);
    assert_free("a:1");
}

static void loopback_address_of_another_machine_is_another(void **state)
{
    claim("localhost:1");
    assert_free("localhost:1");
    claim_elsewhere("localhost:1");
    assert_refused("localhost:1", "this address belongs to the machine elsewhere, not to this one");
    assert_refused("a:1", "this address belongs to the machine elsewhere, not to this one");
    claim_elsewhere("a:1"); /* this name now belongs to this machine */
    assert_free("A:1");
}

static void lock_shows_a_running_worker(void **state)
{
    char path[128];
    int status;
    snprintf(path, sizeof path, "%s/%s", folder, OWNER_LOCK_NAME);
    claim(OWNER_ALONE_PREFIX "h:1");
    assert_free(NULL);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_free(NULL);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_refused(NULL, "belongs to a running worker without servers (worker-alone@h:1)");
    pid_t pid = fork();
    if (pid == 0 && geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
        _exit(1);
    if (pid == 0 && geteuid() != NOBODY && chmod(path, 0) != 0)
        _exit(2);
    if (pid == 0) {
        assert_refused(NULL, "is running (its lock, worker-lock in that folder, cannot be opened");
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
}

/* Two programs look at a free folder, then both claim it. */
static void claim_made_after_the_look_is_kept(void **state)
{
    struct checkpoint_lease before, first, other;
    assert_free("a:1");
    assert_int_equal(looked_at.epoch, 0);
    before = looked_at;
    assert_int_equal(checkpoint_folder_claim(folder, OWNER, "b:1", 0, &looked_at, &first), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_folder_claim(folder, OWNER + 1, "a:1", 0, &before, &other)),
                     ST_BUSY);
    assert_non_null(strstr(capture_text, "b:1 claimed this folder at the same moment (term 1)"));
    assert_int_equal(checkpoint_folder_still_owner(folder, &first), ST_OK);
    assert_int_equal(checkpoint_folder_lease(folder, &other), ST_OK);
    assert_true(other.epoch == 1 && other.incarnation == OWNER);
    /* a restart at the same address sees that lease, and claims the folder */
    assert_free("b:1");
    assert_int_equal(checkpoint_folder_claim(folder, OWNER + 2, "b:1", 0, &looked_at, &other),
                     ST_OK);
    assert_true(other.epoch == 2);
    /* An own lease of an earlier, failed claim is not another program's lease. */
    assert_int_equal(checkpoint_folder_claim(folder, OWNER + 2, "b:1", 0, &looked_at, &other),
                     ST_OK);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(only_the_claimed_incarnation_is_alive),
        TEST(program_without_an_answer_may_be_the_owner),
        TEST(loopback_address_of_another_machine_is_another),
        TEST(lock_shows_a_running_worker),
        TEST(claim_made_after_the_look_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
