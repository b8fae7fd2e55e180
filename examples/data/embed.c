/* embed.c - writes files as C arrays, at build time.
 *
 *     embed OUT.c OUT.h NAME FILE [NAME FILE ...]
 * gives, for each pair, `const unsigned char NAME[]` and `const size_t NAME_bytes`. Runs on the build machine. */
#include <stdio.h>
#include <string.h>

static int fail(const char *what, const char *name) {
    fprintf(stderr, "embed: %s: %s\n", name, what);
    return 1;
}

static int embed(FILE *source, FILE *header, const char *name, const char *path) {
    FILE *in = fopen(path, "rb");
    if (in == NULL) return fail("cannot be opened", path);
    unsigned long count = 0;
    fprintf(source, "const unsigned char %s[] = {", name);
    for (int byte; (byte = getc(in)) != EOF; count++) fprintf(source, "%s%d,", count % 24 == 0 ? "\n" : "", byte);
    fprintf(source, "\n};\nconst size_t %s_bytes = %lu;\n", name, count);
    fprintf(header, "extern const unsigned char %s[]; /* %lu bytes */\nextern const size_t %s_bytes;\n", name, count,
            name);
    int bad = ferror(in);
    fclose(in);
    if (bad || count == 0) return fail(bad ? "cannot be read" : "is empty", path);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 5 || argc % 2 == 0) return fail("use: embed OUT.c OUT.h NAME FILE [NAME FILE ...]", "arguments");
    FILE *source = fopen(argv[1], "w"), *header = fopen(argv[2], "w");
    if (source == NULL || header == NULL) return fail("cannot be written", source == NULL ? argv[1] : argv[2]);
    const char *slash = strrchr(argv[2], '/');
    fprintf(source, "/* Made by embed. */\n#include \"%s\"\n", slash != NULL ? slash + 1 : argv[2]);
    fprintf(header, "/* Made by embed. */\n#pragma once\n#include <stddef.h>\n");
    int bad = 0;
    for (int i = 3; i < argc && !bad; i += 2) bad = embed(source, header, argv[i], argv[i + 1]);
    if (fclose(source) != 0 || fclose(header) != 0) bad = fail("cannot be written", argv[1]);
    return bad;
}
