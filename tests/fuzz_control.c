/* tests/fuzz_control.c - libFuzzer target: any bytes as each of the control messages (join, its
 * reply, leave, coordinate, its reply); what decodes is within its bounds, and encodes again.
 * Corpus: tests/corpus/control. */
#include "base/log.h"
#include "net/message.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    log_init("fuzz", -1, LOG_LEVEL_ERROR + 1);
    return 0;
}

static void require(int cond)
{
    if (!cond)
        abort();
}

static void read_join(const uint8_t *data, size_t size)
{
    char why[MESSAGE_WHY_BYTES];
    struct net_join join;
    struct net_join_reply reply = {.server = NULL};
    struct net_leave leave;
    struct chunks *chunks = NULL;
    if (message_unpack_join(data, size, &join, &chunks, why) == ST_OK)
        require(join.member < join.job.n_workers && chunks->n_params > 0 && join.incarnation);
    chunks_destroy(chunks);
    if (message_unpack_reply(data, size, &reply, why) == ST_OK)
        require(memchr(reply.why, 0, sizeof reply.why) != NULL);
    free(reply.server);
    message_unpack_leave(data, size, &leave, why);
}

static void read_control(const uint8_t *data, size_t size)
{
    char why[MESSAGE_WHY_BYTES];
    struct net_control control, again;
    struct net_control_reply reply;
    uint8_t *bytes;
    size_t n;
    if (message_unpack_control(data, size, &control, why) == ST_OK) {
        require(control.server >= 0 && control.server < control.n_servers);
        require(control.phase >= 0 && control.phase < CONTROL_N_PHASES);
        require(message_pack_control(&control, &bytes, &n) == ST_OK);
        require(message_unpack_control(bytes, n, &again, why) == ST_OK);
        require(again.order == control.order && again.bytes == control.bytes);
        free(bytes);
    }
    if (message_unpack_control_reply(data, size, &reply, why) == ST_OK)
        require(strlen(reply.restore) < sizeof reply.restore && !strchr(reply.restore, '/'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_join(data, size);
    read_control(data, size);
    return 0;
}
