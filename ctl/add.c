/* ctl/add.c - see add.h. */
#include "ctl/add.h"
#include "base/log.h"
#include "base/program_dir.h"
#include "net/security/security.h"
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* Writes a word that a server sent, quoted so that a shell reads it as one word. */
static void write_word(FILE *f, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:@%+[]";
    int quote = word[strspn(word, plain)] != 0;
    if (quote)
        putc('\'', f);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", f);
        else
            putc(*word, f);
    if (quote)
        putc('\'', f);
}

/* Writes the path of the program beside this one, under its name in a build folder or in an
 * installation. If neither file exists, it writes the installed name. */
static void write_program(FILE *f, const char *name)
{
    const char *const before[] = {"", "weir-"};
    char file[32], path[PATH_MAX];
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        snprintf(file, sizeof file, "%s%s", before[i], name);
        if (program_dir_path(file, path, sizeof path) == ST_OK && access(path, X_OK) == 0) {
            write_word(f, path);
            return;
        }
    }
    fputs(file, f);
}

/* Returns whether the first worker's data are in one folder whose name is known. Otherwise it logs
 * which flags the new worker's command line needs in addition. */
static bool has_folder(const struct job_data *d)
{
    int cut_off = d->n_train && d->name[0] != '/';
    if (d->own)
        LOG_W("each worker of this job has its own data: add --data_dir=DIR for the new worker");
    else if (d->files)
        LOG_W("the first worker reads files (%s): add --train_data=FILE%s, and the files of labels",
              d->name, d->n_test > 0 ? " --test_data=FILE" : "");
    else if (cut_off)
        LOG_W(
            "only a part of the path of the first worker's data is known (%s): add --data_dir=DIR",
            d->name);
    return d->n_train && !d->own && !d->files && !cut_off;
}

/* Returns whether the name of the checkpoint folder is known. Otherwise it logs which flag the
 * command line needs in addition. */
static bool has_checkpoint_folder(const struct net_status_checkpoints *c)
{
    /* true: the name was cut off, perhaps within a character of several bytes, or is not UTF-8 */
    bool cut_off = strlen(c->folder) + 4 >= sizeof c->folder || strchr(c->folder, '?');
    if (cut_off)
        LOG_W(
            "only a part of the path of ps:0's checkpoints is known (%s): add --checkpoint_dir=DIR",
            c->folder);
    return c->folder[0] && !cut_off;
}

static void write_line(FILE *f, const struct net_status *s, const char *addr)
{
    const char *before = " --join --ps_hosts=";
    write_program(f, addr ? "ps" : "worker");
    for (int i = 0; i < s->n_servers; i++)
        if (s->servers[i].server >= 0 && s->servers[i].state != SERVER_JOINING) {
            fputs(before, f);
            write_word(f, s->servers[i].address);
            before = ",";
        }
    if (!addr && has_folder(&s->job.data)) {
        fputs(" --data_dir=", f);
        write_word(f, s->job.data.name);
    }
    if (addr)
        fprintf(f, " --address=%s", addr);
    if (addr && has_checkpoint_folder(&s->checkpoints)) {
        fputs(" --checkpoint_dir=", f);
        write_word(f, s->checkpoints.folder);
    }
}

/* Logs which credentials the command line needs in addition. weirctl does not print the
 * credentials that it uses itself, since they belong to its operator. */
static void log_security(const char *who)
{
    if (security_has_tls())
        LOG_W(
            "the job uses TLS: add --tls_cert, --tls_key and --tls_ca, with a certificate for the role %s",
            who);
    if (security_has_token())
        LOG_W("the job uses tokens: add --token_file, with one for the role %s", who);
}

void ctl_add_write(FILE *f, const struct net_status *s, const char *addr)
{
    write_line(f, s, addr);
    log_security(addr ? "ps" : "worker");
}
