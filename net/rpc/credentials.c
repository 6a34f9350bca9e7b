/* net/rpc/credentials.c - see credentials.h. For each connection a server checks whether there is a
 * new certificate. A client's channel always uses the certificate that it was created with, so the
 * client creates a new channel when there is a new certificate (channel.c). */
#include "net/rpc/credentials.h"
#include "base/log.h"
#include "net/security/certificate.h"
#include "net/security/security.h"
#include "net/security/tls_client.h"
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char token_key[] = "authorization", token_scheme[] = "Bearer ";

/* Passes a new certificate to gRPC, if there is one. *number: number of the certificate that the
 * server uses. For each listener, gRPC makes one such call at a time. */
static grpc_ssl_certificate_config_reload_status fetch(void *number,
                                                       grpc_ssl_server_certificate_config **out)
{
    _Atomic uint64_t *used = number;
    const struct security_identity *i = security_identity_now();
    bool is_new = i && i->number != *used;
    if (is_new) {
        const grpc_ssl_pem_key_cert_pair pair = {i->key, i->cert};
        *out = grpc_ssl_server_certificate_config_create(i->ca, &pair, 1);
        *used = i->number;
    }
    security_identity_unref(i);
    return is_new ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                  : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
}

grpc_server_credentials *credentials_server(_Atomic uint64_t *number)
{
    if (!security_has_tls())
        return grpc_insecure_server_credentials_create();
    *number = 0;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, number));
}

/* Returns 0 if the certificate of the server at `target` has the role ps. gRPC calls this after it
 * has verified the certificate. */
static int check_server(const char *target, const char *pem, void *ctx)
{
    if (!tls_client_called()) {
        LOG_FEW(
            "%s is refused: this gRPC does not use the same OpenSSL as this program, so the version of TLS cannot be checked",
            target);
        return 1;
    }
    BIO *b = BIO_new_mem_buf(pem, -1);
    X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
    bool is_server = x && (certificate_roles(x) & ROLE_PS);
    X509_free(x);
    BIO_free(b);
    if (!is_server)
        LOG_FEW("%s is refused: its certificate is not for the role ps", target);
    return !is_server;
}

grpc_channel_credentials *credentials_channel(uint64_t *number)
{
    static const grpc_ssl_verify_peer_options options = {.verify_peer_callback = check_server};
    const struct security_identity *i = security_identity_now();
    *number = i ? i->number : 0;
    if (!i)
        return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {i->key, i->client_cert};
    grpc_channel_credentials *c = grpc_ssl_credentials_create_ex(i->ca, &pair, &options, NULL);
    security_identity_unref(i);
    return c;
}

void credentials_explain(char *text, size_t room)
{
    static const char before[] = "Peer name ", after[] = " is not in peer certificate";
    const char *ours = security_has_tls() ? tls_client_words(text) : NULL;
    const char *name = strstr(text, before), *end = name ? strstr(name, after) : NULL;
    const char *hint = NULL;
    char copy[256];
    if (strstr(text, "failed to connect") && !security_has_tls() && strstr(text, "Socket closed"))
        hint = "does it use TLS (--tls_cert), or has it no descriptor left (see its log)?";
    else if (strstr(text, "failed to connect") && strstr(text, "ead failed") && security_has_tls())
        hint = "if it refuses this program's certificate, a log line above has the reason";
    if (ours) {
        snprintf(text, room, "%s", ours);
    } else if (end) {
        name += sizeof before - 1;
        snprintf(copy, sizeof copy, "%.*s", (int)(end - name), name);
        snprintf(
            text, room,
            "the server's certificate does not name %s; make one with it among its subject alternative names (DNS: or IP:)",
            copy);
    } else if (hint) {
        snprintf(copy, sizeof copy, "%s", text);
        snprintf(text, room, "%s; %s", copy, hint);
    }
}

void credentials_metadata_init(struct credentials_metadata *m)
{
    char *token = security_token_copy(), *text = NULL;
    *m = (struct credentials_metadata){.n = 0};
    if (token && asprintf(&text, "%s%s", token_scheme, token) > 0) {
        m->entry.key = grpc_slice_from_static_string(token_key);
        m->entry.value = grpc_slice_from_copied_string(text);
        m->n = 1;
    }
    free(token);
    free(text);
}

void credentials_metadata_free(struct credentials_metadata *m)
{
    if (m->n)
        grpc_slice_unref(m->entry.value);
    m->n = 0;
}

/* Reads the roles in the certificate's names, and its subject. */
static void read_certificate(grpc_call *call, struct caller *out)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    const grpc_auth_property *p;
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(context, GRPC_PEER_URI_PROPERTY_NAME);
    while ((p = grpc_auth_property_iterator_next(&it)))
        out->certificate |= roles_of_uri(p->value, p->value_length);
    it = grpc_auth_context_find_properties_by_name(context, GRPC_X509_CN_PROPERTY_NAME);
    if ((p = grpc_auth_property_iterator_next(&it))) {
        grpc_slice name = grpc_slice_from_copied_buffer(p->value, p->value_length);
        grpc_runtime_status_text(name, out->name, sizeof out->name);
    }
    grpc_auth_context_release(context);
}

static void read_token(const grpc_metadata_array *metadata, struct caller *out)
{
    size_t skip = sizeof token_scheme - 1;
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *m = &metadata->metadata[i];
        const char *value = (const char *)GRPC_SLICE_START_PTR(m->value);
        size_t n = GRPC_SLICE_LENGTH(m->value);
        if (grpc_slice_str_cmp(m->key, token_key) != 0 || n < skip ||
            memcmp(value, token_scheme, skip) != 0)
            continue;
        out->has_token = 1;
        out->token |= security_token_roles(value + skip, n - skip);
    }
}

void credentials_read_caller(grpc_call *call, const grpc_metadata_array *metadata,
                             struct caller *out)
{
    *out = (struct caller){.certificate = security_has_tls() ? 0 : ROLE_ALL,
                           .token = security_has_token() ? 0 : ROLE_ALL};
    if (security_has_tls())
        read_certificate(call, out);
    if (security_has_token())
        read_token(metadata, out);
}
