/* base/flags_print.c - see flags_impl.h. The manual page and the completion list the same flags as
 * --help, without those of another program. bash splits "--flag=value" at '=' before it calls the
 * completion (COMP_WORDBREAKS), and replaces only the value by the completed word. */
#include "base/flags_impl.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Prints a line of n bytes for roff, with flags in bold, and ends it. */
static void put_roff(const char *text, size_t n)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (const char *p = text; p < text + n; p++) {
        int starts_flag = p[0] == '-' && p[1] == '-' && isalpha((unsigned char)p[2]) &&
                          (p == text || !isalnum((unsigned char)p[-1]));
        if (starts_flag) {
            int length = (int)(strspn(p + 2, "abcdefghijklmnopqrstuvwxyz0123456789_"));
            printf("\\fB\\-\\-%.*s\\fR", length, p + 2);
            p += length + 1;
        } else if (*p == '\\') {
            fputs("\\e", stdout);
        } else if (*p == '^' || *p == '~' || *p == '`') {
            fputs(*p == '^' ? "\\(ha" : *p == '~' ? "\\(ti" : "\\(ga", stdout);
        } else {
            putchar(*p);
        }
    }
    putchar('\n');
}

/* Prints the text that follows the list of flags: headlines, "  COMMAND  description", paragraphs.
 */
static void put_commands(const char *text)
{
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        const char *gap = strncmp(text, "  ", 2) == 0 ? strstr(text + 2, "  ") : NULL;
        if (gap && gap < text + n) {
            const char *what = gap + strspn(gap, " ");
            printf(".TP\n.B \"%.*s\"\n", (int)(gap - text - 2), text + 2);
            put_roff(what, (size_t)(text + n - what));
        } else if (n > 0 && text[n - 1] == ':') {
            fputs(".SH ", stdout);
            for (size_t i = 0; i < n - 1; i++)
                putchar(toupper((unsigned char)text[i]));
            putchar('\n');
        } else if (n > 0) {
            puts(".PP");
            put_roff(text, n);
        }
    }
}

const char *flags_print_arg_name(const struct flag *f)
{
    static const char *const names[] = {"TEXT", "N", "X", "BOOL"};
    return f->arg ? f->arg : f->choices ? f->choices : names[f->type];
}

void flags_print_man(const struct flags_program *prog, char *const *help)
{
    size_t n = strcspn(prog->doc, "\v");
    puts(".SH DESCRIPTION");
    put_roff(prog->doc, n);
    if (prog->doc[n])
        put_commands(prog->doc + n + 1);
    puts(".SH OPTIONS");
    for (size_t i = 0; i < prog->n_flags; i++) {
        const struct flag *f = &prog->flags[i];
        if (!f->target)
            continue;
        if (f->group)
            printf(".SS \"%.*s\"\n", (int)strcspn(f->group, ":"), f->group);
        printf(".TP\n\\fB\\-\\-%s\\fR", f->name);
        if (flags_stand_alone(f))
            printf("[=\\fI%s\\fR]\n", flags_print_arg_name(f));
        else
            printf("=\\fI%s\\fR\n", flags_print_arg_name(f));
        put_roff(help[i], strlen(help[i]));
    }
}

/* Prints the branch for this flag in the shell code that completes values. Prints nothing if the
 * flag has no list of values. */
static void put_value_case(const struct flag *f)
{
    const char *arg = f->arg ? f->arg : "";
    if (f->choices) {
        printf("    %s) words='", f->name);
        for (const char *p = f->choices; *p; p++)
            putchar(*p == '|' ? ' ' : *p);
        printf("'%s ;;\n", strncmp(arg, "FILE", 4) == 0 ? " files=-f" : "");
    } else if (f->type == FLAG_BOOL) {
        printf("    %s) words='true false' ;;\n", f->name);
    } else if (strcmp(arg, "DIR") == 0) {
        printf("    %s) files=-d ;;\n", f->name);
    } else if (flags_is_path(f)) {
        printf("    %s) files=-f ;;\n", f->name);
    }
}

/* Prints the literal words of command lines: "add" and "ps" in "  add ps HOST:PORT  ...". */
static void put_command_words(const struct flags_program *prog)
{
    char second[32], last[32] = "", first[32], gap;
    const char *line = prog->words ? strchr(prog->doc, '\v') : NULL;
    fputs("    commands='", stdout);
    for (const char *p = line; p; p = strchr(p + 1, '\n'))
        if (sscanf(p, "%*[\v\n]  %31[a-z-]%c", first, &gap) == 2 && strcmp(first, last) != 0 &&
            strncmp(p + 1, "  ", 2) == 0) {
            printf("%s%s", *last ? " " : "", first);
            strcpy(last, first);
        }
    fputs("'\n", stdout);
    for (const char *p = line; p; p = strchr(p + 1, '\n'))
        if (sscanf(p, "%*[\v\n]  %31[a-z-]%c%31[a-z-]", first, &gap, second) == 3 &&
            strncmp(p + 1 + 2 + strlen(first) + 1, second, strlen(second)) == 0)
            printf("    [[ $before == %s ]] && after+=' %s'\n", first, second);
}

/* Shell code that finds the flag to which a value belongs. The value follows '=', or is a separate
 * word if the flag requires a value. */
static const char find_flag[] =
    "    local cur=${COMP_WORDS[COMP_CWORD]} before= flag= words= files= commands= after=\n"
    "    ((COMP_CWORD > 0)) && before=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then\n"
    "        flag=$before cur=\n"
    "    elif [[ $before == = ]]; then\n"
    "        flag=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    elif [[ $before == --* && $cur != -* && ! ${before//-/_} =~ $alone ]]; then\n"
    "        flag=$before\n"
    "    fi\n"
    "    flag=${flag#--} flag=${flag//-/_}\n";

/* Shell code that completes a word. Dashes and underscores are the same in names. */
static const char complete[] =
    "    if [[ -n $files ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen $files -W \"$words\" -- \"$cur\")\n"
    "    elif [[ -n $flag ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        cur=${cur#-} cur=${cur#-} cur=--${cur//-/_}\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$cur\")\n"
    "        [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *= ]] && compopt -o nospace 2>/dev/null\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"${after:-$commands}\" -- \"$cur\")\n"
    "    fi\n";

void flags_print_bash(const struct flags_program *prog)
{
    const char *name = prog->installed ? prog->installed : prog->name;
    printf("# bash's completion of %s, as %s --help=bash prints it\n", name, name);
    printf("_weir_%s()\n{\n    local alone='^__(help|version", prog->name);
    for (size_t i = 0; i < prog->n_flags; i++)
        if (prog->flags[i].target && flags_stand_alone(&prog->flags[i]))
            printf("|%s", prog->flags[i].name);
    fputs(")$' names='--help --version", stdout);
    for (size_t i = 0; i < prog->n_flags; i++)
        if (prog->flags[i].target)
            printf(" --%s%s", prog->flags[i].name, flags_stand_alone(&prog->flags[i]) ? "" : "=");
    printf("'\n%s    case $flag in\n", find_flag);
    for (size_t i = 0; i < prog->n_flags; i++)
        if (prog->flags[i].target)
            put_value_case(&prog->flags[i]);
    puts("    help) words='bash man' ;;\n    esac");
    put_command_words(prog);
    printf("%s}\ncomplete -F _weir_%s %s\n", complete, prog->name, name);
}
