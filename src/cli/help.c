/* help.c - --help (the most useful flags) and --help all (a manual page), both generated from the table of flags. */
#include "cli/shell.h"

#include <frugal/number.h>

#include <string.h>
#include <unistd.h>

const fri_command fri_commands[] = {
    {"summary", "--summary", NULL, "Print a line per layer; nothing is trained.", "Print a line per layer"},
    {"plan", "--plan", NULL, "Print the exact memory that training would need; nothing is trained.",
     "Print the memory it would need, to the byte"},
    {"predict", "--predict", "IMAGE...", "Print the likeliest classes of image files; nothing is trained.",
     "Print the likeliest classes of images"},
    {"train", NULL, NULL, "Train; without a command, too.", "Train; so does no command"},
    {"export", "--export", "FILE", "Train, and write the weights at the end.",
     "Train, and write the weights at the end"},
    {NULL},
};

static const char *const group_names[FR_GROUP_COUNT] = {"Model",           "Data",  "Training", "Device and threads",
                                                        "Memory switches", "Files", "Output"};

enum { COLUMNS = 80, INDENT = 7, DEEP = 14, NAMES = 23 };

typedef struct page {
    FILE *out;
    bool bold;
    int column;
} page;

static void print_heading(page *g, const char *text) {
    fprintf(g->out, g->bold ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
    g->column = 0;
}

/* Prints words with line breaks at COLUMNS and `indent` spaces in front of each line. */
static void print_words(page *g, int indent, const char *text) {
    while (*text != '\0') {
        int n = (int)strcspn(text, " ");
        if (n > 0 && g->column > indent && g->column + 1 + n > COLUMNS) {
            fputc('\n', g->out);
            g->column = 0;
        }
        if (n > 0) {
            if (g->column == 0)
                g->column = fprintf(g->out, "%*s", indent, "");
            else if (g->column > indent)
                g->column += fprintf(g->out, " ");
            g->column += fprintf(g->out, "%.*s", n, text);
        }
        text += n;
        text += strspn(text, " ");
    }
}

static void line_end(page *g) {
    if (g->column > 0) fputc('\n', g->out);
    g->column = 0;
}

/* Prints a command line, broken with backslashes. A flag and its value stay on one line. */
static void print_command(page *g, const char *program, const char *flags) {
    g->column = fprintf(g->out, "%*s%s", DEEP, "", program);
    while (*flags != '\0') {
        const char *next = strstr(flags + 1, " --");
        int n = next != NULL ? (int)(next - flags) : (int)strlen(flags);
        if (g->column + 1 + n > COLUMNS - 2) g->column = fprintf(g->out, " \\\n%*s", DEEP + 3, "") - 3;
        g->column += fprintf(g->out, " %.*s", n, flags);
        flags += n + (next != NULL);
    }
    line_end(g);
}

static void flag_name(page *g, const fr_flag *f) {
    const char *on = g->bold ? "\033[1m" : "", *off = g->bold ? "\033[0m" : "";
    fprintf(g->out, "%*s%s--%s%s", INDENT, "", on, f->name, off);
    if (f->kind == FR_FLAG_BOOL) fprintf(g->out, ", %s--no-%s%s", on, f->name, off);
    if (f->implied != NULL)
        fprintf(g->out, "[=%s]", f->value);
    else if (f->value != NULL)
        fprintf(g->out, " %s", f->value);
    fputc('\n', g->out);
}

static bool is_depth(const fr_flag *f) {
    return f->own == NULL && f->kind == FR_FLAG_INT && f->offset == offsetof(fr_train_opts, model.depth);
}

/* False for fields without a flag, and for --depth if the program has only one network. */
static bool is_listed(const fr_train_program *p, const fr_flag *f) {
    return f->help != NULL && (!is_depth(f) || p->depths != NULL);
}

/* The flag's default; "": none, as for --dataset of a program without digits. */
static const char *default_of(const fr_train_program *p, const fr_flag *f, char buf[FR_FLAG_TEXT_BYTES]) {
    const char *value = fr_flag_text(f, &p->defaults, buf);
    return p->digits == NULL && strcmp(f->name, "dataset") == 0 && strcmp(value, "digits") == 0 ? "" : value;
}

/* Prints the allowed values of a choice or of --depth. */
static void print_allowed(page *g, const fr_train_program *p, const fr_flag *f) {
    char text[256] = "";
    size_t at = 0;
    if (f->kind == FR_FLAG_CHOICE) {
        for (const fr_flag_choice *c = f->choices; c->name != NULL && at < sizeof text; c++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at > 0 ? ", " : "One of ", c->name);
    } else if (is_depth(f)) {
        at = (size_t)snprintf(text, sizeof text, "One of %s", p->depths);
    }
    if (at == 0 || at + 1 >= sizeof text) return;
    text[at] = '.';
    text[at + 1] = '\0';
    print_words(g, DEEP, text);
}

static void print_flag(page *g, const fr_train_program *p, const fr_flag *f) {
    char buf[FR_FLAG_TEXT_BYTES], text[256] = "";
    flag_name(g, f);
    print_words(g, DEEP, f->help);
    print_allowed(g, p, f);
    const char *value = default_of(p, f, buf);
    if (f->offset == offsetof(fr_train_opts, optim.lr) && f->kind == FR_FLAG_REAL && value[0] == '\0')
        fr_snprintf(text, sizeof text, "Default: %g with sgd, 0.001 with the others.", p->sgd_lr);
    else if (value[0] != '\0' && f->kind != FR_FLAG_SET)
        snprintf(text, sizeof text, "Default: %s.", value);
    else if (f->unset != NULL)
        snprintf(text, sizeof text, "Default: %s.", f->unset);
    print_words(g, DEEP, text);
    line_end(g);
}

void fri_help_print(const fr_train_program *p, FILE *out) {
    page g = {.out = out, .bold = isatty(fileno(out)) == 1};
    print_heading(&g, "NAME");
    fprintf(out, "%*s%s - %s\n", INDENT, "", p->name, p->summary);
    print_heading(&g, "SYNOPSIS");
    fprintf(out, "%*s%s [COMMAND] [--flag VALUE | --flag=VALUE | --switch |\n%*s--no-switch]...\n", INDENT, "", p->name,
            DEEP, "");
    print_heading(&g, "DESCRIPTION");
    print_words(&g, INDENT, p->description);
    line_end(&g);
    fputc('\n', out);
    print_words(
        &g, INDENT,
        "A live line shows the progress on a terminal, plain lines elsewhere. The last line gives the accuracy on the "
        "test images, the time, and the peak of memory. Ctrl-C ends the run cleanly after the "
        "step. Flags are read from left to right; of two that contradict each other the later wins.");
    line_end(&g);
    print_heading(&g, "COMMANDS");
    for (const fri_command *c = fri_commands; c->name != NULL; c++) {
        fprintf(out, "%*s%s%s%s\n", INDENT, "", c->name, c->operand != NULL ? " " : "",
                c->operand != NULL ? c->operand : "");
        print_words(&g, DEEP, c->help);
        line_end(&g);
    }
    for (int group = 0; group < FR_GROUP_COUNT; group++) {
        if (group == 0) print_heading(&g, "OPTIONS");
        fprintf(out, "%s   %s\n", group > 0 ? "\n" : "", group_names[group]);
        for (const fr_flag *f = fr_flag_next(p, NULL); f != NULL; f = fr_flag_next(p, f))
            if ((int)f->group == group && is_listed(p, f)) print_flag(&g, p, f);
    }
    fprintf(out, "%*s--help, --help all, --version\n", INDENT, "");
    print_words(&g, DEEP, "Print the flags that one needs first, this page, or the version, and do nothing else.");
    line_end(&g);
    print_heading(&g, "EXAMPLES");
    for (const char *const *e = p->examples; e != NULL && e[0] != NULL && e[1] != NULL; e += 2) {
        print_words(&g, INDENT, e[1]);
        line_end(&g);
        print_command(&g, p->name, e[0]);
    }
    print_heading(&g, "EXIT STATUS");
    fprintf(out, "%*s0    the run is complete\n", INDENT, "");
    fprintf(out, "%*s1    it failed: one sentence on standard error says what and where\n", INDENT, "");
    fprintf(out, "%*s2    a flag is wrong: the sentence names it and its value\n", INDENT, "");
    fprintf(out, "%*s130  ended by Ctrl-C after a step; 143 by SIGTERM\n", INDENT, "");
    print_heading(&g, "SEE ALSO");
    fprintf(out, "%*sdocs/train.md, docs/memory.md, docs/env.md\n", INDENT, "");
}

/* Prints a line such as "  --epochs N      Passes over the training images (15)". */
static void brief_line(FILE *out, const fr_train_program *p, const fr_flag *f) {
    char name[64], buf[FR_FLAG_TEXT_BYTES];
    const char *value = default_of(p, f, buf);
    const bool valued = f->kind != FR_FLAG_SET && f->kind != FR_FLAG_BOOL;
    const char *no = f->kind == FR_FLAG_BOOL && strcmp(value, "on") == 0 ? "no-" : "";
    snprintf(name, sizeof name, f->implied != NULL ? "--%s%s[=%s]" : "--%s%s %s", no, f->name, valued ? f->value : "");
    fprintf(out, "  %-*s  %s%s", NAMES, name, is_depth(f) ? "One of " : "", is_depth(f) ? p->depths : f->brief);
    if (value[0] != '\0' && valued && f->implied == NULL) fprintf(out, " (%s)", value);
    fputc('\n', out);
}

/* Flags for training in little memory, which come first in --help. */
static const char *const mission[] =
    {"memory-budget", "checkpoint-segments", "amp", "accumulate", "inplace", "plan", NULL};

static bool is_mission(const fr_flag *f) {
    for (const char *const *name = mission; *name != NULL; name++)
        if (strcmp(*name, f->name) == 0) return true;
    return false;
}

void fri_help_brief(const fr_train_program *p, FILE *out) {
    bool no = false;
    fprintf(out, "%s - %s\n\nusage: %s [COMMAND] [--flag VALUE]...\n\n", p->name, p->summary, p->name);
    for (const fri_command *c = fri_commands; c->name != NULL; c++) {
        char name[64];
        snprintf(name, sizeof name, "%s %s", c->name, c->operand != NULL ? c->operand : "");
        fprintf(out, "  %-*s  %s\n", NAMES, name, c->brief);
    }
    fputs("\nMemory, with an example each\n", out);
    for (const char *const *name = mission; *name != NULL; name++)
        brief_line(out, p, fr_flag_named(p, *name, strlen(*name), &no));
    for (int group = 0; group < FR_GROUP_COUNT; group++) {
        bool headed = false;
        for (const fr_flag *f = fr_flag_next(p, NULL); f != NULL; f = fr_flag_next(p, f)) {
            if ((int)f->group != group || f->brief == NULL || is_mission(f) || !is_listed(p, f)) continue;
            if (!headed) fprintf(out, "\n%s\n", group_names[group]);
            headed = true;
            brief_line(out, p, f);
        }
    }
    fprintf(out, "\n'%s --help all' has every flag with its default, and examples.\n", p->name);
}
