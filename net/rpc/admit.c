/* net/rpc/admit.c - see admit.h. */
#include "net/rpc/admit.h"
#include "base/log.h"
#include "net/rpc/credentials.h"
#include "net/security/security.h"
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>

/* Value for methods that every caller that can connect may use. A health check reveals only that
 * the server runs. */
enum { ANY_CALLER = ROLE_ALL + 1 };

/* Roles that may call each method; a method without an entry is refused to all. */
static const unsigned needed[N_METHODS] = {
    [METHOD_JOIN] = ROLE_WORKER,     [METHOD_LEAVE] = ROLE_WORKER,
    [METHOD_EXCHANGE] = ROLE_WORKER, [METHOD_EVALUATE] = ROLE_WORKER,
    [METHOD_CONTROL] = ROLE_PS,      [METHOD_FETCH] = ROLE_PS,
    [METHOD_REPORT] = ROLE_WORKER,   [METHOD_SQUARES] = ROLE_PS,
    [METHOD_STATUS] = ROLE_ALL,      [METHOD_COMMAND] = ROLE_ADMIN | ROLE_WORKER,
    [METHOD_CHECK] = ANY_CALLER,     [METHOD_WATCH] = ANY_CALLER,
    [METHOD_GATE] = ROLE_PS,
};

static void log_refusal(const struct server_call *c, const char *why)
{
    static struct log_kind kinds[N_METHODS];
    char *peer = grpc_call_get_peer(c->call);
    log_write_few(&kinds[c->method], LOG_LEVEL_WARN, "%s from %s refused: %s",
                  server_method_paths[c->method], peer, why);
    gpr_free(peer);
}

grpc_status_code admit_call(struct server_call *c, char why[ADMIT_WHY_BYTES])
{
    return admit_roles(c, needed[c->method], why);
}

grpc_status_code admit_roles(struct server_call *c, unsigned want, char why[ADMIT_WHY_BYTES])
{
    char want_text[ROLES_TEXT_BYTES], has_text[ROLES_TEXT_BYTES];
    struct caller caller;
    grpc_status_code code = GRPC_STATUS_OK;
    if (want == ANY_CALLER || !(security_has_tls() || security_has_token()))
        return code;
    credentials_read_caller(c->call, &c->metadata, &caller);
    const char *word = strrchr(server_method_paths[c->method], '/') + 1;
    roles_text(want, want_text);
    if (!(caller.certificate & want)) {
        code = GRPC_STATUS_PERMISSION_DENIED;
        snprintf(why, ADMIT_WHY_BYTES,
                 "%s is for the role %s; the caller's certificate (CN=%s) is for the role %s", word,
                 want_text, caller.name, roles_text(caller.certificate, has_text));
    } else if (!caller.token) {
        code = GRPC_STATUS_UNAUTHENTICATED;
        snprintf(
            why, ADMIT_WHY_BYTES,
            caller.has_token
                ? "the caller's token differs from this server's; set the same token by --token_file on both sides"
                : "the caller shows no token; set its --token_file");
    } else if (!(caller.token & want)) {
        code = GRPC_STATUS_PERMISSION_DENIED;
        snprintf(why, ADMIT_WHY_BYTES,
                 "%s is for the role %s; the caller's token is for the role %s", word, want_text,
                 roles_text(caller.token, has_text));
    }
    if (code != GRPC_STATUS_OK)
        log_refusal(c, why);
    return code;
}
