/* net/rpc/channel.c - see channel.h. The lock is not held while gRPC is called, so a channel may be
 * replaced while another thread makes a call on it: each user holds a reference. */
#include "net/rpc/channel.h"
#include "base/fork_guard.h"
#include "net/rpc/credentials.h"
#include "net/rpc/peer_sockets.h"
#include "net/security/security.h"
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CONNECT_MS limits an attempt to connect: TCP sends its first packet again after 1 s and after 3
 * s, so two packets may be lost.
 *
 * The other two times allow for a packet that is too large for the path. If tcp_mtu_probing is 1,
 * the kernel sends smaller packets after it has repeated the large packet for 3 s, which is up to 7
 * s after it first sent that packet. KEEPALIVE_ANSWER_MS is longer than these 7 s, because gRPC
 * also uses it as the time for which a packet may stay unacknowledged (TCP_USER_TIMEOUT).
 * CONNECT_TLS_MS is longer than two such delays, because both sides send their certificates when
 * they connect, so each side may cause one. */
enum { CONNECT_MS = 5000, CONNECT_TLS_MS = 15000, KEEPALIVE_ANSWER_MS = 10000 };
enum { RESOLVE_AGAIN_MS = 2000 };

struct attempt {
    _Atomic int refs;
    grpc_channel *channel;
    uint64_t certificate; /* number of the certificate that the channel uses; 0: none */
};

struct net_channel {
    struct fork_guard guard;         /* must be the first field, because leave_to_parent casts */
    struct peer_socket_address peer; /* address of the server; not written while the guard is on */
    char *target;
    int max_receive_bytes;
    pthread_mutex_t lock; /* guards `now` */
    struct attempt *now;
};

static struct attempt *attempt_create(const struct net_channel *c)
{
    const struct grpc_runtime_setting settings[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, c->max_receive_bytes},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, GRPC_RUNTIME_MAX_MESSAGE_BYTES},
        {GRPC_ARG_ENABLE_RETRIES, 0},
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, security_has_tls() ? CONNECT_TLS_MS : CONNECT_MS},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000},
        {GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, RESOLVE_AGAIN_MS},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 10000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_ANSWER_MS},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
    };
    enum { N = sizeof settings / sizeof settings[0] };
    grpc_arg args[N];
    grpc_channel_args list = grpc_runtime_args(settings, N, args);
    struct attempt *a = malloc(sizeof *a);
    if (!a)
        return NULL;
    grpc_channel_credentials *credentials = credentials_channel(&a->certificate);
    a->channel = grpc_channel_create(c->target, credentials, &list);
    grpc_channel_credentials_release(credentials);
    atomic_init(&a->refs, 1);
    return a;
}

static void attempt_unref(struct attempt *a)
{
    if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1)
        return;
    grpc_channel_destroy(a->channel);
    free(a);
}

/* Returns the present attempt, with a reference. */
static struct attempt *attempt_now(struct net_channel *c)
{
    pthread_mutex_lock(&c->lock);
    struct attempt *a = c->now;
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&c->lock);
    return a;
}

/* Returns true if the channel must be replaced: it has failed, or it would connect again with a
 * certificate that is not the newest. */
static bool is_stale(const struct attempt *a)
{
    int state = grpc_channel_check_connectivity_state(a->channel, 0);
    return state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
           (state == GRPC_CHANNEL_IDLE && a->certificate != security_identity_number());
}

/* Replaces a failed attempt, unless another thread has done so. If memory is missing, the channel
 * keeps the failed attempt. */
static void replace(struct net_channel *c, struct attempt *failed)
{
    struct attempt *surplus = attempt_create(c);
    pthread_mutex_lock(&c->lock);
    if (surplus && c->now == failed) {
        c->now = surplus;
        surplus = failed;
    }
    pthread_mutex_unlock(&c->lock);
    attempt_unref(surplus);
}

enum status net_channel_create(const char *addr, int max_receive_bytes, struct net_channel **out)
{
    struct net_channel *c = calloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    c->max_receive_bytes = max_receive_bytes;
    security_warn_plain(addr);
    if (asprintf(&c->target, "dns:///%s", addr) < 0)
        c->target = NULL;
    if (c->target)
        c->now = attempt_create(c);
    if (!c->now) {
        net_channel_destroy(c);
        return ST_NOMEM;
    }
    *out = c;
    return ST_OK;
}

grpc_call *net_channel_call(struct net_channel *c, grpc_completion_queue *queue, const char *method,
                            int64_t deadline_ms)
{
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_REALTIME);
    if (deadline_ms > 0)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    struct attempt *a = attempt_now(c);
    if (is_stale(a)) {
        replace(c, a);
        attempt_unref(a);
        a = attempt_now(c);
    }
    grpc_call *call =
        grpc_channel_create_call(a->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                 grpc_slice_from_static_string(method), NULL, deadline, NULL);
    attempt_unref(a);
    return call;
}

static void leave_to_parent(struct fork_guard *g)
{
    peer_sockets_close(&((struct net_channel *)g)->peer);
}

bool net_channel_answered(struct net_channel *c, grpc_call *call)
{
    char *text = grpc_call_get_peer(call);
    struct peer_socket_address peer;
    bool is_near = false;
    if (text && peer_sockets_read_address(text, &peer)) {
        fork_guard_remove(&c->guard);
        c->peer = peer;
        fork_guard_add(&c->guard, leave_to_parent);
        is_near = peer_sockets_tune(&peer);
    }
    gpr_free(text);
    return is_near;
}

void net_channel_destroy(struct net_channel *c)
{
    if (!c)
        return;
    fork_guard_remove(&c->guard);
    attempt_unref(c->now);
    pthread_mutex_destroy(&c->lock);
    free(c->target);
    free(c);
}
