/* net/channel.c - see rt.h: how a client's connections behave, wherever they go. */
#include "net/rt.h"
#include <grpc/grpc_security.h>
#include <stdint.h>
#include <stdio.h>

grpc_channel *net_channel_create(const char *addr, int max_receive_bytes)
{
    const struct net_setting settings[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_receive_bytes},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, RT_MAX_MESSAGE_BYTES},
        {GRPC_ARG_ENABLE_RETRIES, 0},
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 10000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
    };
    enum { N = sizeof settings / sizeof settings[0] };
    grpc_arg args[N];
    grpc_channel_args list = net_rt_args(settings, N, args);
    char target[512];
    snprintf(target, sizeof target, "dns:///%s", addr);
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, plain, &list);
    grpc_channel_credentials_release(plain);
    return channel;
}
