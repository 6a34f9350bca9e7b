/* tests/ps_region_mail_test.c - messages between a region's servers: over a slow line, at the end
 * of a generation, and after a refusal. Functions of this test replace the line and the receiver
 * (--wrap, tests/CMakeLists.txt). */
#include "base/clock.h"
#include "net/exchange/peer_client.h"
#include "ps/region/mail.h"
#include "tests/check.h"
#include <pthread.h>
#include <stdlib.h>

enum { N_LETTERS = 16, LONG_S = 30 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t item_ms; /* time for each letter; < 0: the call lasts until it is cancelled */
    enum squares_answer answer;
    int closed; /* nonzero: calls wait until the line opens */
    int n_calls, n_accepted, most, cancelled, n_refused;
    uint64_t generation; /* generation of the last call */
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct peer_client {
    char unused;
};

enum status __wrap_peer_client_create(const char *addr, struct peer_client **out);
void __wrap_peer_client_destroy(struct peer_client *c);
enum status __wrap_peer_client_gate(struct peer_client *c, const struct net_gate *gate,
                                    int64_t deadline_ms, struct net_squares_reply *reply,
                                    char why[CONTROL_TEXT_BYTES]);
void __wrap_peer_client_cancel(struct peer_client *c);

enum status __wrap_peer_client_create(const char *addr, struct peer_client **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? ST_OK : ST_NOMEM;
}

void __wrap_peer_client_destroy(struct peer_client *c)
{
    free(c);
}

void __wrap_peer_client_cancel(struct peer_client *c)
{
    pthread_mutex_lock(&line.lock);
    line.cancelled = 1;
    pthread_cond_broadcast(&line.changed);
    pthread_mutex_unlock(&line.lock);
}

enum status __wrap_peer_client_gate(struct peer_client *c, const struct net_gate *gate,
                                    int64_t deadline_ms, struct net_squares_reply *reply,
                                    char why[CONTROL_TEXT_BYTES])
{
    enum status st = ST_OK;
    int64_t end_ns = clock_deadline_ns(LONG_S * 1000);
    pthread_mutex_lock(&line.lock);
    line.n_calls++;
    line.generation = gate->generation;
    pthread_cond_broadcast(&line.changed);
    while ((line.item_ms < 0 || line.closed) && !line.cancelled &&
           clock_cond_wait(&line.changed, &line.lock, end_ns) == 0)
        ;
    if (line.cancelled)
        st = ST_CANCELLED;
    else if (line.item_ms * gate->n > deadline_ms)
        st = ST_DEADLINE;
    line.cancelled = 0;
    if (st == ST_OK) {
        line.n_accepted += gate->n;
        line.most = gate->n > line.most ? gate->n : line.most;
        reply->answer = line.answer;
    }
    pthread_mutex_unlock(&line.lock);
    return st;
}

static void refused(void *ctx)
{
    pthread_mutex_lock(&line.lock);
    line.n_refused++;
    pthread_mutex_unlock(&line.lock);
}

static char *addrs[] = {"10.0.0.1:1", "10.0.0.2:1"};

static void put(struct mail *m, uint64_t generation, int n)
{
    const struct net_plan plan = {
        .generation = generation, .ps0 = 1, .servers = {.n = 2, .addr = addrs}};
    for (int i = 0; i < n; i++) {
        const struct net_gate_item item = {.kind = GATE_OWN, .chunk = i};
        assert_int_equal(mail_put(m, &plan, 0, 1, &item), ST_OK);
    }
}

static struct mail *begin(int64_t item_ms, enum squares_answer answer)
{
    static const struct mail_config cfg = {refused, NULL};
    struct mail *m;
    line.item_ms = item_ms;
    line.answer = answer;
    line.n_calls = line.n_accepted = line.most = line.cancelled = line.n_refused = 0;
    clock_cond_init(&line.changed);
    assert_int_equal(mail_create(&cfg, &m), ST_OK);
    mail_begin(m, 1);
    return m;
}

static void await_empty(struct mail *m, uint64_t generation)
{
    int64_t end_ns = clock_deadline_ns(LONG_S * 1000);
    while (!mail_is_empty(m, generation) && clock_now_ns() < end_ns)
        clock_sleep_ms(1);
    assert_true(mail_is_empty(m, generation));
}

static void close_line(int closed)
{
    pthread_mutex_lock(&line.lock);
    line.closed = closed;
    pthread_cond_broadcast(&line.changed);
    pthread_mutex_unlock(&line.lock);
}

static void slow_line_gets_fewer_letters_at_a_time(void **state)
{
    for (int64_t item_ms = 2500; item_ms <= 55000; item_ms += 52500) {
        struct mail *m = begin(item_ms, SQUARES_TAKEN);
        put(m, 1, N_LETTERS);
        assert_int_equal(mail_start(m), ST_OK);
        await_empty(m, 1);
        assert_int_equal(line.n_accepted, N_LETTERS);
        assert_true(line.most < N_LETTERS);
        pthread_mutex_lock(&line.lock);
        line.item_ms = 0; /* the line has recovered */
        line.n_accepted = line.most = 0;
        pthread_mutex_unlock(&line.lock);
        for (int i = 0; i < 8; i++) {
            close_line(1); /* lets the letters wait together */
            put(m, 1, N_LETTERS);
            close_line(0);
            await_empty(m, 1);
        }
        assert_int_equal(line.n_accepted, 8 * N_LETTERS);
        assert_true(line.most > 1);
        mail_destroy(m);
    }
}

/* A call in progress for a generation that is over ends at once. */
static void call_ends_with_its_generation(void **state)
{
    struct mail *m = begin(-1, SQUARES_TAKEN);
    put(m, 1, 1);
    assert_int_equal(mail_start(m), ST_OK);
    pthread_mutex_lock(&line.lock);
    while (line.n_calls == 0)
        pthread_cond_wait(&line.changed, &line.lock);
    pthread_mutex_unlock(&line.lock);
    int64_t since_ns = clock_now_ns();
    mail_begin(m, 2);
    await_empty(m, 1);
    pthread_mutex_lock(&line.lock);
    line.item_ms = 0;
    pthread_mutex_unlock(&line.lock);
    put(m, 1, 1); /* too late */
    put(m, 2, 1);
    await_empty(m, 1);
    await_empty(m, 2);
    assert_true(clock_now_ns() - since_ns < LONG_S * INT64_C(500000000));
    assert_int_equal(line.n_accepted, 1);
    assert_int_equal(line.generation, 2);
    mail_destroy(m);
}

/* If a receiver requests one value again and again, only a few copies of it are queued. */
static void repeated_requests_queue_few_letters(void **state)
{
    const struct net_plan plan = {.generation = 1, .ps0 = 1, .servers = {.n = 2, .addr = addrs}};
    struct mail *m = begin(0, SQUARES_TAKEN);
    for (int i = 0; i < 1000; i++)
        for (int chunk = 0; chunk < 2; chunk++) {
            const struct net_gate_item item = {.kind = GATE_VALUE, .chunk = chunk, .version = i};
            assert_int_equal(mail_put(m, &plan, 0, 1, &item), ST_OK);
        }
    put(m, 1, 100);
    assert_int_equal(mail_start(m), ST_OK);
    await_empty(m, 1);
    assert_int_equal(line.n_accepted, 2 * 8 + 100);
    mail_destroy(m);
}

static void refused_letter_ends_the_process(void **state)
{
    struct mail *m = begin(0, SQUARES_REFUSED);
    put(m, 1, 1);
    assert_int_equal(mail_start(m), ST_OK);
    await_empty(m, 1);
    mail_destroy(m);
    assert_int_equal(line.n_refused, 1);
}

int main(void)
{
    return RUN_TESTS(slow_line_gets_fewer_letters_at_a_time, call_ends_with_its_generation,
                     repeated_requests_queue_few_letters, refused_letter_ends_the_process);
}
