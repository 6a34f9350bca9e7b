/* tests/base_flags_test.c - flags: values, bounds, spelling, and messages for the user. */
#include "base/flags.h"
#include "base/log.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *hosts, *folder, *file;
static int64_t task, steps;
static double rate;
static int sync_on, unsaid, mode, list;

static const struct flag flags[] = {
    {"ps_hosts", FLAG_STRING, &hosts, 0, 0, "HOSTS", NULL, "Servers", "Cluster:"},
    {"task_index", FLAG_INT, &task, 0, 4095, NULL, NULL, "Number of this task", NULL},
    {"train_steps", FLAG_INT, &steps, 1, 1e15, NULL, NULL, "Steps", "Training:"},
    {"learning_rate", FLAG_DOUBLE, &rate, 1e-9, 1e3, NULL, NULL, "Step size", NULL},
    {"sync_replicas", FLAG_BOOL, &sync_on, 0, 0, NULL, NULL, "Together", NULL},
    {"unsaid", FLAG_BOOL, &unsaid, 0, 0, NULL, NULL, "Or not", NULL},
    {"sync_mode", FLAG_INT, NULL, 5, 6, NULL, NULL, "",
     NULL}, /* also in the list of the other program: this program's definition applies */
    {"sync_mode", FLAG_CHOICE, &mode, 0, 0, NULL, "sync|async", "How", NULL},
    {"list", FLAG_MAYBE, &list, 0, 0, NULL, "text|json", "Print", NULL},
    {"folder", FLAG_STRING, &folder, 0, 0, "DIR", NULL, "Where", NULL},
    {"file", FLAG_STRING, &file, 0, 0, "FILE|NAME", NULL, "Which", NULL},
    {"towers", FLAG_INT, NULL, 1, 9, NULL, NULL, "", NULL},
    {"momentum_towers", FLAG_CHOICE, NULL, 0, 0, NULL, "few|many", "", NULL},
    {"soft", FLAG_BOOL, NULL, 0, 0, NULL, NULL, "", NULL},
    {"model", FLAG_STRING, NULL, 0, 0, NULL, NULL, "",
     NULL}, /* similar to --codec, but no suggestion for it */
};
static const struct flag_foreign foreign[] = {{"max_steps", "train_steps", NULL},
                                              {"num_towers", "towers", NULL},
                                              {"train_dir", "checkpoint_dir", "give it to ps"},
                                              {"num_gpus", NULL, "write --gpus"},
                                              {NULL, NULL, NULL}};
static unsigned char given[sizeof flags / sizeof *flags];
static struct flags_program prog = {.name = "worker",
                                    .doc = "Trains.",
                                    .flags = flags,
                                    .n_flags = sizeof flags / sizeof *flags,
                                    .given = given,
                                    .foreign = foreign,
                                    .installed = "weir-worker"};

static char output[16384]; /* output of the last parse on stderr and stdout */
static int exit_now;

static enum status parse(int n, const char *const *args)
{
    char *argv[16] = {(char *)"worker"};
    hosts = "localhost:1";
    folder = file = NULL;
    task = 0;
    steps = 100;
    rate = 0.01;
    sync_on = mode = 0;
    list = unsaid = -1;
    for (int i = 0; i < n; i++)
        argv[i + 1] = (char *)args[i];
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stdout);
    int err = dup(2), out = dup(1);
    dup2(fileno(f), 2);
    dup2(fileno(f), 1);
    enum status st = flags_parse(&prog, n + 1, argv, &exit_now);
    fflush(stdout);
    dup2(err, 2);
    dup2(out, 1);
    close(err);
    close(out);
    rewind(f);
    output[fread(output, 1, sizeof output - 1, f)] = 0;
    fclose(f);
    return st;
}
#define PARSE(...)                                                                                 \
    parse(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *),                             \
          (const char *const[]){__VA_ARGS__})

static void says(const char *text)
{
    if (!strstr(output, text))
        fail_msg("'%s' lacks '%s'", output, text);
}

/* Captures the output of flags_dump. */
static void dump(enum log_level level)
{
    FILE *f = tmpfile();
    int err = dup(2);
    dup2(fileno(f), 2);
    log_init("worker", 7, level);
    flags_dump(&prog);
    log_init("worker", 7, LOG_LEVEL_INFO);
    dup2(err, 2);
    close(err);
    rewind(f);
    output[fread(output, 1, sizeof output - 1, f)] = 0;
    fclose(f);
}

static void test_values(void **state)
{
    assert_int_equal(PARSE("--ps_hosts=a:1,b:2", "--task-index", "3", "--learning_rate=2.5e-1",
                           "--sync-replicas", "--sync_mode=async"),
                     ST_OK);
    assert_string_equal(hosts, "a:1,b:2");
    assert_int_equal(task, 3);
    assert_int_equal(steps, 100);
    assert_true(rate == 0.25);
    assert_int_equal(sync_on, 1);
    assert_int_equal(mode, 1);
    assert_int_equal(exit_now, 0);
    assert_string_equal(output, "");
    assert_int_equal(given[0], 1);
    assert_int_equal(given[2], 0); /* steps */
    memset(given, 0, sizeof given);
    assert_int_equal(PARSE("--sync_replicas", "--sync_replicas=false", "--ps_hosts="), ST_OK);
    assert_int_equal(sync_on, 0);
    assert_string_equal(hosts, "");
}

/* A shell does not expand ~ after "=", so the program does. */
static void path_with_tilde_names_the_home_folder(void **state)
{
    assert_int_equal(setenv("HOME", "/home/me", 1), 0);
    assert_int_equal(PARSE("--folder=~/runs", "--file", "~"), ST_OK);
    assert_string_equal(folder, "/home/me/runs");
    assert_string_equal(file, "/home/me");
    assert_int_equal(PARSE("--folder=./~/a", "--file=a~", "--ps_hosts=~/x"), ST_OK);
    assert_string_equal(folder, "./~/a");
    assert_string_equal(file, "a~");
    assert_string_equal(hosts, "~/x");
    assert_int_equal(PARSE("--folder=~you/runs"), ST_INVALID);
    says("--folder=~you/runs: only ~/ at the beginning is replaced");
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(PARSE("--folder=~/runs"), ST_INVALID);
    says("--folder=~/runs: ~ stands for the folder in HOME");
}

static void path_that_is_an_address_is_refused(void **state)
{
    assert_int_equal(PARSE("--folder=gs://bucket/run"), ST_INVALID);
    says("--folder=gs://bucket/run: only paths of this machine");
    says("'gs://' is an address");
    assert_int_equal(PARSE("--file=s3+x://b"), ST_INVALID);
    assert_int_equal(PARSE("--file", "file:///tmp/x"), ST_INVALID);
    assert_int_equal(PARSE("--file=a:/b", "--folder=://c"), ST_OK);
    assert_int_equal(PARSE("--ps_hosts=gs://bucket"), ST_OK);
    assert_string_equal(hosts, "gs://bucket");
}

static void test_value_left_out(void **state)
{
    assert_int_equal(PARSE("--task_index=1"), ST_OK);
    assert_int_equal(list, -1);
    assert_int_equal(PARSE("--list", "--task_index=1"), ST_OK);
    assert_int_equal(list, 0);
    assert_int_equal(task, 1);
    assert_int_equal(PARSE("--list=json"), ST_OK);
    assert_int_equal(list, 1);
    assert_int_equal(PARSE("--list=text"), ST_OK);
    assert_int_equal(list, 0);
}

static void test_bad_values(void **state)
{
    assert_int_equal(PARSE("--task_index=x"), ST_INVALID);
    says("--task_index: 'x' is not a whole number");
    assert_int_equal(PARSE("--task_index="), ST_INVALID);
    assert_int_equal(PARSE("--task_index=1.5"), ST_INVALID);
    assert_int_equal(PARSE("--task_index", "-1"), ST_INVALID);
    says("--task_index: -1 is below 0, the lowest allowed value");
    assert_int_equal(PARSE("--task_index=99999999999999999999"), ST_INVALID);
    says("does not fit");
    assert_int_equal(PARSE("--train_steps=0"), ST_INVALID);
    says("--train_steps: 0 is below 1");
    assert_int_equal(PARSE("--learning_rate=1e4"), ST_INVALID);
    says("--learning_rate: 1e4 is above 1000, the highest allowed value");
    assert_int_equal(PARSE("--learning_rate=nan"), ST_INVALID);
    says("'nan' is not a number");
    assert_int_equal(PARSE("--sync_replicas=maybe"), ST_INVALID);
    says("neither true nor false");
    assert_int_equal(PARSE("--sync_mode=syn"), ST_INVALID);
    says("'syn' is not one of sync|async");
    assert_int_equal(PARSE("--list=xml"), ST_INVALID);
    says("'xml' is not one of text|json");
    assert_int_equal(PARSE("--list", "json"), ST_INVALID);
    assert_int_equal(PARSE("--ps_hosts"), ST_INVALID);
    says("--ps_hosts: a value is missing");
    assert_int_equal(PARSE("--ps_hosts", "--sync_mode=sync"), ST_INVALID);
    says("--ps_hosts: a value is missing");
    assert_int_equal(PARSE("--ps_hosts", "--other=sync"), ST_OK); /* no flag of this program */
}

static void test_unknown(void **state)
{
    assert_int_equal(PARSE("--task_idx=1"), ST_INVALID);
    says("unknown flag --task_idx; did you mean --task_index?");
    assert_int_equal(PARSE("--tsak-index=1"), ST_INVALID);
    says("did you mean --task_index?");
    assert_int_equal(PARSE("--frobnicate"), ST_INVALID);
    says("unknown flag --frobnicate; --help");
    assert_null(strstr(output, "did you mean"));
    assert_int_equal(PARSE("--train"), ST_INVALID); /* no abbreviations */
    assert_int_equal(PARSE("-x"), ST_INVALID);
    says("unknown flag -x; flags begin with two dashes, --help lists all\n");
    assert_int_equal(PARSE("stray"), ST_INVALID);
    says("'stray' is not a flag; write a value with");
    assert_int_equal(PARSE("--ps_hosts=a:1,", "b:2"), ST_INVALID);
    says("'b:2' is not a flag; a list must be one word");
    assert_int_equal(PARSE("--ps_hosts=a:1", ",b:2"), ST_INVALID);
    says("',b:2' is not a flag; a list must be one word");
    assert_int_equal(PARSE("--", "stray"), ST_INVALID);
    assert_int_equal(PARSE("--sync_replicas", "false"), ST_INVALID);
    says("'false' is not a flag");
}

/* Suggestions are only for typing errors, and name a single flag. */
static void typing_errors_get_a_suggestion(void **state)
{
    static const char *const none[] = {"--codec=x", "--tsk", "--yes", "--train_rate=1", "--synced"};
    assert_int_equal(PARSE("--lsit"), ST_INVALID);
    says("did you mean --list?");
    assert_int_equal(PARSE("--modle=x"), ST_INVALID);
    says("did you mean --model?");
    assert_int_equal(PARSE("--unsayd"), ST_INVALID);
    says("did you mean --unsaid?");
    assert_int_equal(PARSE("--learning-rates=1"), ST_INVALID);
    says("did you mean --learning_rate?");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(PARSE(none[i]), ST_INVALID);
        says("; --help lists all");
    }
}

static void assert_says(const char *arg, const char *text)
{
    assert_int_equal(PARSE(arg), ST_INVALID);
    says(text);
}

static void test_names_of_other_trainers_are_translated(void **state)
{
    assert_says("--lr=0.1", "unknown flag --lr; did you mean --learning_rate?\n");
    assert_says("--rank=1", "unknown flag --rank; did you mean --task_index?\n");
    assert_says("--steps=9", "unknown flag --steps; did you mean --train_steps?\n");
    assert_says("--img_size=32", "unknown flag --img_size: samples keep the size that");
    /* a flag that this program does not have */
    assert_says(
        "--bs=3",
        "unknown flag --bs; it looks like the worker's --batch_size, which this program does not have; --help lists all\n");
}

static void test_one_dash_is_explained(void **state)
{
    assert_says("-h", "unknown flag -h; did you mean --help?\n");
    assert_says("-help", "unknown flag -help; did you mean --help?\n");
    assert_says("-lr=0.1", "unknown flag -lr; did you mean --learning_rate?\n");
    assert_says("-task_index=3", "unknown flag -task_index; did you mean --task_index?\n");
    assert_says("-task-idx=3", "unknown flag -task-idx; did you mean --task_index?\n");
    assert_int_equal(PARSE("-lr", "0.1"), ST_INVALID);
    assert_null(strstr(output, "'0.1'"));
}

static void test_all_unknown_at_once(void **state)
{
    assert_int_equal(
        PARSE("--frob", "1", "--task_idx=1", "--sync_replicas", "false", "--num-gpus", "2"),
        ST_INVALID);
    says("unknown flag --frob; --help");
    says("unknown flag --task_idx; did you mean --task_index?");
    says("'false' is not a flag");
    says("unknown flag --num-gpus: write --gpus\n");
    assert_null(strstr(output, "'1'"));
    assert_null(strstr(output, "'2'"));
}

static void test_foreign_names(void **state)
{
    assert_int_equal(PARSE("--max-steps", "7"), ST_OK);
    assert_int_equal(steps, 7);
    assert_int_equal(PARSE("--max_steps=0"), ST_INVALID);
    says("--train_steps: 0 is below 1");
    assert_int_equal(PARSE("--num_towers=3"), ST_OK);
    dump(LOG_LEVEL_INFO);
    says("workers: --towers\n");
    assert_int_equal(PARSE("--train_dir=x"), ST_INVALID);
    says("unknown flag --train_dir: give it to ps");
}

/* A program that accepts words collects them at any position between the flags; the value of a flag
 * is not such a word. */
static void words_beside_flags_collected(void **state)
{
    int n;
    prog.words = "COMMAND";
    assert_int_equal(PARSE("status", "--train_steps", "7", "drain", "--sync_replicas", "3"), ST_OK);
    const char *const *words = flags_words(&n);
    assert_int_equal(n, 3);
    assert_string_equal(words[0], "status");
    assert_string_equal(words[1], "drain");
    assert_string_equal(words[2], "3");
    assert_int_equal(steps, 7);
    assert_int_equal(PARSE("status", "-x"), ST_INVALID);
    says("unknown flag -x");
    assert_int_equal(PARSE("--help"), ST_OK);
    says("COMMAND");
    prog.words = NULL;
    assert_int_equal(PARSE("--sync_replicas"), ST_OK);
    flags_words(&n);
    assert_int_equal(n, 0);
}

static void test_help(void **state)
{
    assert_int_equal(PARSE("--help"), ST_OK);
    assert_int_equal(exit_now, 1);
    says("Cluster:");
    says("Training:");
    says("--ps_hosts=HOSTS");
    says("Number of this task [0]");
    says("--sync_mode=sync|async");
    says("--list[=text|json]");
    assert_non_null(strstr(output, "Or not\n")); /* without the default -1 */
    assert_int_equal(PARSE("--version"), ST_OK);
    assert_int_equal(exit_now, 1);
    assert_int_equal(strncmp(output, "worker (Weir) ", 14), 0);
}

/* The manual page and the completion for bash list the same flags as --help. */
static void test_help_for_others(void **state)
{
    assert_int_equal(PARSE("--help=man"), ST_OK);
    assert_int_equal(exit_now, 1);
    says(".SH DESCRIPTION\nTrains.\n.SH OPTIONS\n.SS \"Cluster\"\n"
         ".TP\n\\fB\\-\\-ps_hosts\\fR=\\fIHOSTS\\fR\nServers [localhost:1]\n");
    says("\\fB\\-\\-list\\fR[=\\fItext|json\\fR]");
    assert_null(strstr(output, "towers"));
    assert_int_equal(PARSE("--help=bash"), ST_OK);
    assert_int_equal(exit_now, 1);
    says(
        " --ps_hosts= --task_index= --train_steps= --learning_rate= --sync_replicas --unsaid --sync_mode= --list --folder= --file='\n");
    says("    sync_mode) words='sync async' ;;\n");
    says("\ncomplete -F _weir_worker weir-worker\n");
    assert_null(strstr(output, "towers"));
    assert_int_equal(PARSE("--help=html"), ST_INVALID);
    says("--help: 'html' is not one of man|bash; --help alone lists all flags");
}

static void test_dump(void **state)
{
    assert_int_equal(PARSE("--task_index=7"), ST_OK);
    dump(LOG_LEVEL_DEBUG);
    says("--task_index=7");
    assert_null(strstr(output, "train_steps"));
}

/* The program checks the flags of another program and names them in one log line, but --help does
 * not list them. */
static void flags_of_other_program_logged_once(void **state)
{
    assert_int_equal(PARSE("--momentum-towers", "many", "--task_index=7", "--towers=2", "--soft",
                           "--towers=3", "--sync_mode=async"),
                     ST_OK);
    assert_int_equal(task, 7);
    assert_int_equal(mode, 1);
    assert_string_equal(output, "");
    dump(LOG_LEVEL_INFO);
    says("not used by worker");
    says("serve ps and workers: --momentum_towers --towers --soft\n");
    assert_null(strstr(strstr(output, "not used") + 1, "not used"));
    assert_int_equal(PARSE("--towers=0"), ST_INVALID);
    says("--towers: 0 is below 1");
    assert_int_equal(PARSE("--momentum_towers=none"), ST_INVALID);
    says("'none' is not one of few|many");
    assert_int_equal(PARSE("--soft=maybe"), ST_INVALID);
    assert_int_equal(PARSE("--towers"), ST_INVALID);
    says("--towers: a value is missing");
    assert_int_equal(PARSE("--help"), ST_OK);
    assert_null(strstr(output, "towers"));
    assert_int_equal(PARSE("--task_index=7"), ST_OK);
    dump(LOG_LEVEL_INFO);
    assert_string_equal(output, "");
}

int main(void)
{
    return RUN_TESTS(test_values, test_bad_values, test_unknown, test_help, test_help_for_others,
                     test_dump, path_with_tilde_names_the_home_folder,
                     path_that_is_an_address_is_refused, test_value_left_out,
                     words_beside_flags_collected, flags_of_other_program_logged_once,
                     typing_errors_get_a_suggestion, test_names_of_other_trainers_are_translated,
                     test_one_dash_is_explained, test_all_unknown_at_once, test_foreign_names);
}
