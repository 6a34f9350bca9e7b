/* ctl/main.c - weirctl: shows the state of a running job, and sends it commands. Each call, except
 * export, is one request to ps 0, over the port that workers use. If ps 0 cannot be reached,
 * another server of --ps_hosts answers questions about the job with the data that it has. Exit
 * codes: 0 done, 1 refused or failed (also for certificates), 2 usage, 3 export has no patch, 138
 * try again (no server was reached in time, or there is no job yet). */
#include "base/descriptors.h"
#include "base/flags.h"
#include "base/hosts.h"
#include "base/log.h"
#include "base/process.h"
#include "ctl/add.h"
#include "ctl/export.h"
#include "ctl/names.h"
#include "ctl/report.h"
#include "ctl/tables.h"
#include "kernels/vector/row_settings.h"
#include "net/exchange/status_client.h"
#include "net/rpc/environment.h"
#include "net/security/security.h"
#include "net/security/tls_client.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    EXIT_REFUSED = 1,
    WAIT_MS = 600000, /* timeout of checkpoint --wait */
    ASK_MS = 200,     /* interval between the requests of checkpoint --wait */
};

static const char *opt_ps_hosts = "";
static int64_t opt_timeout_s = 10, opt_watch_s = 0;
static const char *opt_folder = "", *opt_output = "", *opt_since = NULL;
static int opt_json = 0, opt_wait = 0, opt_log_level = LOG_LEVEL_INFO, opt_quiet = 0;
static int opt_row_dtype = -1;

static struct security_config opt_security = {.role = ROLE_ADMIN};

static const struct flag flags[] = {
    {"ps_hosts", FLAG_STRING, &opt_ps_hosts, 0, 0, "HOST:PORT,...", NULL,
     "The servers of the job, ps 0 first; ps 0 alone is enough", NULL},
    {"json", FLAG_BOOL, &opt_json, 0, 0, NULL, NULL, "Print one JSON document", NULL},
    {"wait", FLAG_BOOL, &opt_wait, 0, 0, NULL, NULL,
     "With checkpoint: wait until the checkpoint is complete, at most 10 minutes", NULL},
    {"watch", FLAG_INT, &opt_watch_s, 0, 86400, "S", NULL,
     "With status, members, servers, who-is-late, tables: print the answer again every S seconds (0: once)",
     NULL},
    {"checkpoint_dir", FLAG_STRING, &opt_folder, 0, 0, "DIR", NULL,
     "With export: the folder of the job's checkpoints, as for ps; no server is asked", NULL},
    {"output", FLAG_STRING, &opt_output, 0, 0, "FILE", NULL,
     "With export: the safetensors file to write", NULL},
    {"since", FLAG_STRING, &opt_since, 0, 0, "STEP", NULL,
     "With export: write only what changed since the checkpoint of this step, or since the one with this id, such as 1.2-300",
     NULL},
    {"row_dtype", FLAG_CHOICE, &opt_row_dtype, 0, 0, NULL, ROW_DTYPE_NAMES,
     "With export: the format of the rows in the file; bf16 rounds them, and needs half the bytes",
     NULL},
    {"timeout_s", FLAG_INT, &opt_timeout_s, 1, 3600, "S", NULL, "Seconds to wait for an answer",
     NULL},
    {"tls_cert", FLAG_STRING, &opt_security.cert, 0, 0, "FILE", NULL,
     "Your certificate, in PEM, if the job uses TLS (docs/guide/security.md); commands need a certificate for the role admin",
     NULL},
    {"tls_key", FLAG_STRING, &opt_security.key, 0, 0, "FILE", NULL, "The private key of --tls_cert",
     NULL},
    {"tls_ca", FLAG_STRING, &opt_security.ca, 0, 0, "FILE", NULL,
     "The CAs that sign the certificates of the job's programs", NULL},
    {"token_file", FLAG_STRING, &opt_security.token_file, 0, 0, "FILE", NULL,
     "File with the line admin TOKEN, if the job uses tokens", NULL},
    {"log_level", FLAG_CHOICE, &opt_log_level, 0, 0, NULL, "debug|info|warn|error",
     "What is logged on stderr", NULL},
    {"quiet", FLAG_BOOL, &opt_quiet, 0, 0, NULL, NULL,
     "Log warnings and errors alone, as --log_level=warn", NULL},
};
/* Commands that an operator typed as flags. */
#define AS_FLAG(name, command)                                                                     \
    {                                                                                              \
        name, NULL, "a command has no dashes; write weirctl --ps_hosts=HOST:PORT,... " command     \
    }
static const struct flag_foreign foreign[] = {
    AS_FLAG("status", "status"),
    AS_FLAG("members", "members"),
    AS_FLAG("servers", "servers"),
    AS_FLAG("who_is_late", "who-is-late"),
    AS_FLAG("tables", "tables"),
    AS_FLAG("checkpoint",
            "checkpoint; with export, --checkpoint_dir=DIR is the folder of the job's checkpoints"),
    AS_FLAG("remove_worker", "remove-worker INDEX"),
    AS_FLAG("drain", "drain INDEX"),
    AS_FLAG("stop", "stop"),
    AS_FLAG("add", "add worker"),
    {"export", NULL,
     "a command has no dashes; write weirctl --checkpoint_dir=DIR --output=FILE export"},
    {"out out_file outfile output_file output_path o file to export_file export_path", NULL,
     "write --output=FILE for the file that export writes"},
    {"from base since_step since_id since_checkpoint step patch", NULL,
     "write --since=STEP to export only what changed since the checkpoint of that step"},
    {"full", NULL, "an export is full without --since; remove the flag"},
    {"table table_name", NULL, "an export has all tables; remove the flag"},
    {"format", NULL, "an export is a safetensors file; remove the flag"},
    {"force overwrite", NULL, "an export replaces an older file; remove the flag"},
    {"checkpoints checkpoint_path ckpt ckpts dir folder model_dir save_dir saved", NULL,
     "write --checkpoint_dir=DIR for the folder of the job's checkpoints"},
    {"dtype rows_dtype bf16", NULL, "write --row_dtype=bf16 to round the exported rows"},
    {NULL, NULL, NULL},
};
static const struct flags_program program = {
    .name = "weirctl",
    .doc = "Weir's control client: shows the state of a running job, and sends it commands.\v"
           "Commands:\n"
           "  status               step, pace, workers, servers, checkpoints\n"
           "  members              the workers\n"
           "  servers              the parameter servers\n"
           "  who-is-late          how long steps waited for each worker\n"
           "  tables               the sparse tables: rows, memory and keys of each server\n"
           "  checkpoint           writes a checkpoint now; --wait: until it is complete\n"
           "  remove-worker INDEX  removes that worker at one of the next steps\n"
           "  drain INDEX          moves that server's parameters to others, then ends it\n"
           "  stop                 ends the job at its present step: a last checkpoint is\n"
           "                       written, then all workers and servers exit with 0\n"
           "  add worker           prints the command line with which a worker joins the job\n"
           "  add ps HOST:PORT     prints that of a server that is to listen there\n"
           "  export               writes the newest checkpoint to one file, --output, for\n"
           "                       programs that only read; --since: only what changed\n\n"
           "Exit status: 0 done, 1 refused or failed, 2 usage, 3 export has no patch since that "
           "step, 138 no server was reached (a job that has ended has none), or there is no job or "
           "no newer checkpoint yet.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
    .words = "COMMAND",
    .foreign = foreign,
};

static int64_t timeout_ms(void)
{
    return opt_timeout_s * 1000;
}

/* Returns the exit code for a status. gRPC reports a refused certificate as an unreachable server,
 * but a retry would fail too. */
static int exit_code_of(enum status st)
{
    int unreached = st == ST_UNAVAILABLE || st == ST_DEADLINE || st == ST_CANCELLED;
    return st == ST_OK                          ? 0
           : st == ST_NOMEM                     ? EXIT_RETRY
           : unreached && !tls_client_refused() ? EXIT_RETRY
                                                : EXIT_REFUSED;
}

/* Returns the exit code for a command line that could not be read. */
static int usage_exit_code(enum status st)
{
    return st == ST_NOMEM ? EXIT_RETRY : EXIT_USAGE;
}

/* Logs that a server did not answer. If no server is left to ask, it adds that the job may have
 * ended: its servers have then exited. */
static void log_unreached(const struct hosts *ps, int server, bool is_last, enum status st,
                          const char *why)
{
    const char *over = "";
    if (is_last && st == ST_UNAVAILABLE && status_client_is_refused(why))
        over =
            "; if the job has ended, it has no servers any more: the log of ps 0 has its last step, and the folder of --checkpoint_dir its checkpoints";
    if (st == ST_NOMEM)
        LOG_E("ps:%d (%s): out of memory for its answer", server, ps->addr[server]);
    else if (st == ST_DEADLINE)
        LOG_E("ps:%d (%s) did not answer within %" PRId64 " s", server, ps->addr[server],
              opt_timeout_s);
    else
        LOG_E("ps:%d (%s): %s: %s%s", server, ps->addr[server],
              st == ST_UNAVAILABLE ? "not reachable" : status_text(st), why, over);
}

/* Requests the status from the servers, ps 0 first, until one of them answers. */
static enum status ask_servers(const struct hosts *ps, struct net_status *out)
{
    enum status st = ST_INVALID;
    for (int i = 0; st != ST_OK && i < ps->n; i++) {
        char why[CONTROL_TEXT_BYTES] = "";
        st = status_client_ask(ps->addr[i], 0, timeout_ms(), out, why);
        if (st != ST_OK)
            log_unreached(ps, i, i + 1 == ps->n, st, why);
        else if (out->server != 0)
            LOG_W("%s answers only for itself, since it is not ps:0", ps->addr[i]);
    }
    return st;
}

static enum status show_view(const struct net_status *s, enum ctl_view view)
{
    if (view == VIEW_TABLES)
        return ctl_tables_show(s, timeout_ms(), opt_json);
    return opt_json ? ctl_report_json(s, view) : ctl_report_table(s, view);
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

/* Returns 0, or the exit code for a server that has no job. */
static int lacks_job(const struct net_status *s)
{
    if (s->generation != 0)
        return 0;
    LOG_E("no job yet: the first worker has not joined");
    return EXIT_RETRY;
}

static int run_view(const struct hosts *ps, enum ctl_view view)
{
    for (;;) {
        struct net_status s = {.chunks = NULL};
        enum status st = ask_servers(ps, &s);
        int code = exit_code_of(st);
        if (st == ST_OK && (view == VIEW_MEMBERS || view == VIEW_LATE || view == VIEW_TABLES))
            code = lacks_job(&s);
        if (view == VIEW_LATE)
            ctl_sort_by_lateness(&s);
        if (st == ST_OK && (view == VIEW_STATUS || view == VIEW_SERVERS))
            code = exit_code_of(ctl_tables_add_bytes(&s));
        if (st == ST_OK && code == 0)
            code = exit_code_of(show_view(&s, view));
        net_status_free(&s);
        if (opt_watch_s == 0)
            return code;
        pause_ms(opt_watch_s * 1000);
        if (!opt_json)
            putchar('\n');
    }
}

static enum status send_command(const struct hosts *ps, const struct net_command *command,
                                struct net_command_reply *reply)
{
    char why[CONTROL_TEXT_BYTES] = "";
    enum status st = status_client_send_command(ps->addr[0], command, timeout_ms(), reply, why);
    if (st != ST_OK)
        log_unreached(ps, 0, true, st, why);
    return st;
}

static int print_reply(const struct net_command_reply *reply)
{
    if (opt_json && ctl_report_reply_json(reply) != ST_OK)
        return EXIT_REFUSED;
    if (reply->answer == COMMAND_REFUSED)
        LOG_E("refused: %s", reply->text);
    else if (!opt_json)
        printf("%s: %s\n", ctl_answer_name(reply->answer), reply->text);
    return reply->answer == COMMAND_REFUSED ? EXIT_REFUSED : 0;
}

/* Waits until the ordered checkpoint is in the folder, or ps 0 has cancelled it. before: step of
 * the last checkpoint before the order. */
static enum status await_checkpoint(const struct hosts *ps, int64_t before,
                                    struct net_command_reply *reply)
{
    for (int64_t waited = 0; waited < WAIT_MS; waited += ASK_MS) {
        struct net_status s = {.chunks = NULL};
        char why[CONTROL_TEXT_BYTES] = "";
        enum status st = status_client_ask(ps->addr[0], 0, timeout_ms(), &s, why);
        struct net_status_checkpoints c = s.checkpoints;
        int stands = s.step == c.last && c.last >= 0;
        net_status_free(&s);
        if (st != ST_OK) {
            log_unreached(ps, 0, true, st, why);
            return st;
        }
        if (c.given >= reply->wanted) {
            int made = c.last != before || stands;
            reply->answer = made ? COMMAND_DONE : COMMAND_REFUSED;
            if (made)
                snprintf(reply->text, sizeof reply->text, "checkpoint at step %" PRId64 ": %.200s",
                         c.last, c.folder);
            else
                snprintf(reply->text, sizeof reply->text,
                         "ps:0 cancelled the checkpoint; its log has the reason");
            return ST_OK;
        }
        pause_ms(ASK_MS);
    }
    LOG_E("the checkpoint is not finished after %d s; the servers are still writing it",
          WAIT_MS / 1000);
    return ST_DEADLINE;
}

static int run_checkpoint(const struct hosts *ps, const char *operand)
{
    const struct net_command command = {COMMAND_CHECKPOINT, 0};
    struct net_command_reply reply;
    struct net_status s = {.chunks = NULL};
    char why[CONTROL_TEXT_BYTES] = "";
    enum status st = status_client_ask(ps->addr[0], 0, timeout_ms(), &s, why);
    int64_t before = s.checkpoints.last;
    if (st != ST_OK)
        log_unreached(ps, 0, true, st, why);
    int code = st == ST_OK ? lacks_job(&s) : exit_code_of(st);
    net_status_free(&s);
    if (code != 0)
        return code;
    st = send_command(ps, &command, &reply);
    if (st == ST_OK && opt_wait && reply.answer == COMMAND_ACCEPTED)
        st = await_checkpoint(ps, before, &reply);
    return st == ST_OK ? print_reply(&reply) : exit_code_of(st);
}

static int run_stop(const struct hosts *ps, const char *operand)
{
    const struct net_command command = {COMMAND_STOP_JOB, 0};
    struct net_command_reply reply;
    enum status st = send_command(ps, &command, &reply);
    return st == ST_OK ? print_reply(&reply) : exit_code_of(st);
}

static int run_change(const struct hosts *ps, enum command_kind kind, const char *name,
                      const char *word)
{
    char *end;
    long index = strtol(word, &end, 10);
    if (end == word || *end || index < 0 || index >= JOB_MAX_WORKERS) {
        LOG_E("%s: '%.40s' is not an index; write a number from 0 to %d", name, word,
              JOB_MAX_WORKERS - 1);
        return EXIT_USAGE;
    }
    const struct net_command command = {kind, (int)index};
    struct net_command_reply reply;
    enum status st = send_command(ps, &command, &reply);
    return st == ST_OK ? print_reply(&reply) : exit_code_of(st);
}

/* Prints the command line for a server at `addr`, or, with addr NULL, for a worker. */
static int run_add(const struct hosts *ps, const char *addr)
{
    struct net_status s = {.chunks = NULL};
    struct hosts one = {0};
    char *line = NULL;
    size_t bytes = 0;
    if (addr && (hosts_parse(addr, "add ps", &one) != ST_OK || one.n != 1)) {
        hosts_free(&one);
        return EXIT_USAGE;
    }
    enum status st = ask_servers(ps, &s);
    int code = st == ST_OK ? lacks_job(&s) : exit_code_of(st);
    FILE *f = code == 0 ? open_memstream(&line, &bytes) : NULL;
    if (f)
        ctl_add_write(f, &s, addr);
    if (code == 0 && (!f || fclose(f) != 0))
        code = exit_code_of(ST_NOMEM);
    if (code == 0 && opt_json)
        code = exit_code_of(ctl_report_line_json(line));
    else if (code == 0)
        puts(line);
    free(line);
    net_status_free(&s);
    hosts_free(&one);
    return code;
}

static int run_status(const struct hosts *ps, const char *operand)
{
    return run_view(ps, VIEW_STATUS);
}

static int run_members(const struct hosts *ps, const char *operand)
{
    return run_view(ps, VIEW_MEMBERS);
}

static int run_servers(const struct hosts *ps, const char *operand)
{
    return run_view(ps, VIEW_SERVERS);
}

static int run_who_is_late(const struct hosts *ps, const char *operand)
{
    return run_view(ps, VIEW_LATE);
}

static int run_tables(const struct hosts *ps, const char *operand)
{
    return run_view(ps, VIEW_TABLES);
}

static int run_remove_worker(const struct hosts *ps, const char *operand)
{
    return run_change(ps, COMMAND_REMOVE_WORKER, "remove-worker", operand);
}

static int run_drain(const struct hosts *ps, const char *operand)
{
    return run_change(ps, COMMAND_DRAIN_SERVER, "drain", operand);
}

static int run_export(const struct hosts *ps, const char *operand)
{
    return ctl_export_run(
        &(struct ctl_export){opt_folder, opt_output, opt_since, opt_row_dtype, opt_json != 0});
}

static const struct command {
    const char *name;    /* words of the command line, one or two */
    const char *operand; /* name of the operand; NULL: the command has no operand */
    const char *meaning; /* meaning of the operand */
    int (*run)(const struct hosts *ps, const char *operand);
} commands[] = {
    {"status", NULL, NULL, run_status},
    {"members", NULL, NULL, run_members},
    {"servers", NULL, NULL, run_servers},
    {"who-is-late", NULL, NULL, run_who_is_late},
    {"tables", NULL, NULL, run_tables},
    {"checkpoint", NULL, NULL, run_checkpoint},
    {"remove-worker", "INDEX", "the worker's number, which 'weirctl members' shows",
     run_remove_worker},
    {"drain", "INDEX", "the server's number, which 'weirctl servers' shows", run_drain},
    {"stop", NULL, NULL, run_stop},
    {"export", NULL, NULL, run_export},
    {"add worker", NULL, NULL, run_add},
    {"add ps", "HOST:PORT", "the address at which the new server is to listen", run_add},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* Returns how many of the words are the command's name; 0: they name another command. */
static int words_of_name(const struct command *c, const char *const *word, int n)
{
    const char *second = strchr(c->name, ' ');
    size_t first = second ? (size_t)(second - c->name) : strlen(c->name);
    if (n < 1 || strlen(word[0]) != first || memcmp(word[0], c->name, first) != 0)
        return 0;
    return !second ? 1 : n > 1 && strcmp(word[1], second + 1) == 0 ? 2 : 0;
}

static void log_unknown(const char *const *word, int n)
{
    char list[256] = "";
    for (size_t i = 0, at = 0; i < N_COMMANDS && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s%s%s", i > 0 ? ", " : "",
                               commands[i].name, commands[i].operand ? " " : "",
                               commands[i].operand ? commands[i].operand : "");
    if (n == 0)
        LOG_E("a command is missing: %s", list);
    else if (strcmp(word[0], "add") != 0)
        LOG_E("'%.40s' is not a command; the commands are %s", word[0], list);
    else if (n == 1)
        LOG_E("add: an operand is missing; write 'add worker' or 'add ps HOST:PORT'");
    else
        LOG_E("add: '%.40s' is not 'worker' or 'ps'; write 'add worker' or 'add ps HOST:PORT'",
              word[1]);
}

static bool is_known(const char *const *word, int n)
{
    bool known = false;
    for (size_t i = 0; i < N_COMMANDS; i++)
        known |= words_of_name(&commands[i], word, n) > 0;
    return known;
}

static int run_words(const struct hosts *ps, const char *const *word, int n)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct command *c = &commands[i];
        int n_name = words_of_name(c, word, n), n_wanted = c->operand ? 1 : 0;
        if (n_name == 0)
            continue;
        if (n - n_name < n_wanted)
            LOG_E("%s: %s is missing: %s", c->name, c->operand, c->meaning);
        else if (n - n_name > n_wanted && !c->operand)
            LOG_E("%s needs no operand; remove '%.40s'", c->name, word[n_name]);
        else if (n - n_name > n_wanted)
            LOG_E("%s needs only one operand, %s; remove '%.40s'", c->name, c->operand,
                  word[n_name + 1]);
        else
            return c->run(ps, c->operand ? word[n_name] : NULL);
        return EXIT_USAGE;
    }
    log_unknown(word, n);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct hosts ps = {0};
    int exit_now = 0, exit_code = EXIT_USAGE, n_words;
    process_set_up();
    log_init("weirctl", -1, LOG_LEVEL_INFO);
    enum status st = flags_parse(&program, argc, argv, &exit_now);
    if (st != ST_OK)
        return usage_exit_code(st);
    if (exit_now)
        return 0;
    if (opt_quiet && opt_log_level < LOG_LEVEL_WARN)
        opt_log_level = LOG_LEVEL_WARN;
    log_init("weirctl", -1, (enum log_level)opt_log_level);
    const char *const *words = flags_words(&n_words);
    bool is_export = n_words > 0 && strcmp(words[0], "export") == 0;
    st = net_environment_check();
    if (st == ST_OK)
        st = hosts_parse(opt_ps_hosts, "ps_hosts", &ps);
    if (st != ST_OK)
        return usage_exit_code(st);
    bool has_room = is_export || descriptors_reserve(NET_GRPC_DESCRIPTORS + 1) == ST_OK;
    if (!has_room || (!is_export && security_start(&opt_security) != ST_OK)) {
        hosts_free(&ps);
        return has_room ? EXIT_USAGE : EXIT_RETRY;
    }
    bool has_export_flag = opt_folder[0] || opt_output[0] || opt_since || opt_row_dtype >= 0;
    if (n_words > 0 && !is_known(words, n_words))
        exit_code = run_words(&ps, words, n_words);
    else if (is_export && (ps.n > 0 || opt_wait || opt_watch_s > 0))
        LOG_E("export asks no server; remove --%s", ps.n > 0   ? "ps_hosts"
                                                    : opt_wait ? "wait"
                                                               : "watch");
    else if (n_words == 0 && has_export_flag)
        LOG_E("a command is missing; write weirctl --checkpoint_dir=DIR --output=FILE export");
    else if (!is_export && has_export_flag)
        LOG_E(
            "--checkpoint_dir, --output, --since and --row_dtype are only for the command export");
    else if (!is_export && ps.n == 0)
        LOG_E("--ps_hosts is missing; write the address of ps 0, as in --ps_hosts=localhost:2221");
    else
        exit_code = run_words(&ps, words, n_words);
    hosts_free(&ps);
    if (exit_code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        LOG_E("the output could not be written: %s", status_errno_text(errno));
        exit_code = EXIT_REFUSED;
    }
    return exit_code;
}
