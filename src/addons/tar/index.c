/* index.c - see index.h.
 *
 * A shard is plain tar, as WebDataset writes it: "key.jpg" beside "key.cls", the text of whose number is the label, or
 * images in folders without one. libarchive reads the headers, whatever dialect they are in; only the place of the data
 * is kept, so that an image is one read at an offset. */
#include "addons/tar/index.h"

#include <frugal/addon.h>
#include <frugal/files.h>
#include <frugal/try.h>

#include <archive.h>
#include <archive_entry.h>
#include <cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, CLASS_TEXT = 32, INDEX_BYTES_MAX = 1 << 30 };
static const char format[] = "frugal tar index 1";

void fri_tar_index_free(fri_tar_index *x) {
    for (int64_t i = 0; i < x->count; i++) free(x->image[i].name);
    free(x->image);
    *x = (fri_tar_index){0};
}

static fr_status add_entry(fri_tar_index *x, const char *name, int64_t offset, int64_t bytes, int64_t label) {
    FRI_TRY(FRI_ROOM(x->image, x->count, "tar index"));
    char *copy = strdup(name);
    if (copy == NULL) return fr_fail(FR_ENOMEM, "tar index: no memory for a name");
    x->image[x->count++] = (fri_tar_image){copy, offset, bytes, label};
    return FR_OK;
}

/* ---- a shard's own headers --------------------------------------------------------------------------------- */

static const char *const names[] = {
    "archive_read_new",       "archive_read_support_format_tar",
    "archive_read_open_fd",   "archive_read_next_header",
    "archive_read_data",      "archive_read_free",
    "archive_error_string",   "archive_filter_bytes",
    "archive_entry_size",     "archive_entry_sparse_count",
    "archive_entry_hardlink", "archive_entry_pathname",
    "archive_entry_filetype",
};
enum { FUNCTIONS = sizeof names / sizeof *names };
static union {
    void *function[FUNCTIONS];
    struct {
        __typeof__(archive_read_new) *read_new;
        __typeof__(archive_read_support_format_tar) *support_format_tar;
        __typeof__(archive_read_open_fd) *open_fd;
        __typeof__(archive_read_next_header) *next_header;
        __typeof__(archive_read_data) *data;
        __typeof__(archive_read_free) *read_free;
        __typeof__(archive_error_string) *error_string;
        __typeof__(archive_filter_bytes) *filter_bytes;
        __typeof__(archive_entry_size) *size;
        __typeof__(archive_entry_sparse_count) *sparse_count;
        __typeof__(archive_entry_hardlink) *hardlink;
        __typeof__(archive_entry_pathname) *pathname;
        __typeof__(archive_entry_filetype) *filetype;
    } call;
} library;

/* WebDataset's key: the path up to the first dot of the last part. */
static size_t key_length(const char *name) {
    const char *slash = strrchr(name, '/'), *last = slash != NULL ? slash + 1 : name;
    return (size_t)(last - name) + strcspn(last, ".");
}

static bool same_key(const char *a, const char *b) {
    size_t n = key_length(a);
    return n == key_length(b) && memcmp(a, b, n) == 0;
}

typedef struct scan {
    struct archive *archive;
    const char *path;
    fri_tar_index *out;
    int64_t first;   /* image of the current key */
    char *labelled;  /* name of the last .cls file */
    int64_t label;   /* the label file's number */
    const char *now; /* the entry's name */
    struct archive_entry *entry;
} scan;

/* True for hidden files, and files in hidden folders, which folders of images leave out, too: macOS's "._0001.png". */
static bool is_hidden(const char *name) {
    for (const char *part = name;; part++) {
        const size_t n = strcspn(part, "/");
        if (part[0] == '.' && n > strspn(part, ".")) return true;
        part += n;
        if (*part == '\0') return false;
    }
}

static fr_status fail_archive(const scan *c) {
    const char *why = library.call.error_string(c->archive);
    return fr_fail(FR_EFORMAT, "%s: is not a complete tar file: %s; a shard is plain tar, not compressed", c->path,
                   why != NULL ? why : "it is truncated");
}

/* The images of a key get the label before or after. */
static void give_label(scan *c) {
    fri_tar_index *x = c->out;
    for (int64_t i = x->count - 1; i >= c->first && same_key(x->image[i].name, c->labelled); i--)
        x->image[i].label = c->label;
}

static fr_status read_class(scan *c) {
    char text[CLASS_TEXT + 1] = "", *end = NULL;
    la_ssize_t n = library.call.data(c->archive, text, CLASS_TEXT);
    if (n < 0) return fail_archive(c);
    long long label = strtoll(text, &end, 10);
    if (end != text) end += strspn(end, " \r\n");
    if (end == text || end != text + n || label < 0 || label > FRI_TAR_LABEL_MAX)
        return fr_fail(FR_EFORMAT, "%s: %s holds '%.*s', not a class in 0..%d", c->path, c->now,
                       (int)strcspn(text, "\r\n"), text, FRI_TAR_LABEL_MAX);
    if (c->labelled != NULL && same_key(c->labelled, c->now) && c->label != label)
        return fr_fail(FR_EFORMAT,
                       "%s: %s says class %lld and %s class %lld; a key, the name up to its first dot, has one",
                       c->path, c->labelled, (long long)c->label, c->now, label);
    free(c->labelled);
    c->labelled = strdup(c->now);
    if (c->labelled == NULL) return fr_fail(FR_ENOMEM, "%s: no memory for a name", c->path);
    c->label = label;
    give_label(c);
    return FR_OK;
}

static fr_status read_image(scan *c) {
    const int64_t bytes = library.call.size(c->entry), offset = library.call.filter_bytes(c->archive, 0);
    if (library.call.sparse_count(c->entry) > 0)
        return fr_fail(FR_EFORMAT, "%s: %s is stored as a sparse file; its bytes are not in one place", c->path,
                       c->now);
    fri_tar_index *x = c->out;
    if (x->count == c->first || !same_key(x->image[x->count - 1].name, c->now)) c->first = x->count;
    const bool labelled = c->labelled != NULL && same_key(c->labelled, c->now);
    return add_entry(x, c->now, offset, bytes, labelled ? c->label : FRI_TAR_NO_LABEL);
}

static bool is_class(const char *name) {
    const size_t n = strlen(name);
    return n > 4 && strcasecmp(name + n - 4, ".cls") == 0;
}

static fr_status read_entries(scan *c) {
    for (;;) {
        int got = library.call.next_header(c->archive, &c->entry);
        if (got == ARCHIVE_EOF) return FR_OK;
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return fail_archive(c);
        c->now = library.call.pathname(c->entry);
        const bool link = library.call.hardlink(c->entry) != NULL || library.call.filetype(c->entry) == AE_IFLNK;
        if (c->now == NULL || is_hidden(c->now) || (!link && library.call.filetype(c->entry) != AE_IFREG)) continue;
        size_t n = strlen(c->now);
        if (link && (is_class(c->now) || fr_image_has_name(c->now)))
            return fr_fail(FR_EFORMAT,
                           "%s: %s is stored as a link to another file; `tar --hard-dereference "
                           "--dereference` stores the file itself",
                           c->path, c->now);
        if (n >= FRI_TAR_PATH)
            return fr_fail(FR_EFORMAT, "%s: a name has %zu bytes, at most %d", c->path, n, FRI_TAR_PATH);
        if (is_class(c->now))
            FRI_TRY(read_class(c));
        else if (fr_image_has_name(c->now))
            FRI_TRY(read_image(c));
    }
    return FR_OK;
}

static fr_status scan_shard(const char *path, int fd, fri_tar_index *out) {
    scan c = {.path = path, .out = out};
    fr_status s = fr_library_load("libarchive.so.13", "libarchive13", names, library.function, FUNCTIONS);
    if (s < 0) return fr_fail_prefix(s, "%s: has no index that fits it: ", path);
    c.archive = library.call.read_new();
    if (c.archive == NULL) return fr_fail(FR_ENOMEM, "%s: no memory to read a tar file", path);
    library.call.support_format_tar(c.archive);
    s = library.call.open_fd(c.archive, fd, READ_BYTES) == ARCHIVE_OK ? read_entries(&c) : fail_archive(&c);
    free(c.labelled);
    library.call.read_free(c.archive);
    return s;
}

/* ---- the index file ----------------------------------------------------------------------------------- */

static fr_status bad_index(const char *name, int64_t at) {
    if (at < 0) return fr_fail(FR_EFORMAT, "%s: is not a tar index; remove it to build it again", name);
    return fr_fail(FR_EFORMAT,
                   "%s: image %lld is not [offset, bytes, class, name] within the shard; remove the index "
                   "to build it again",
                   name, (long long)at);
}

/* A whole number in least..most. */
static bool whole_number(const cJSON *j, double least, double most, int64_t *out) {
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= least && j->valuedouble <= most)) return false;
    *out = (int64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

static fr_status parse_image(const char *name, const cJSON *row, fri_tar_index *x) {
    const cJSON *offset = cJSON_IsArray(row) ? row->child : NULL, *bytes = offset != NULL ? offset->next : NULL;
    const cJSON *label = bytes != NULL ? bytes->next : NULL, *text = label != NULL ? label->next : NULL;
    int64_t at = 0, n = 0, of = 0;
    const double end = (double)x->shard_bytes;
    if (!cJSON_IsString(text) || text->next != NULL || text->valuestring[0] == '\0' ||
        strlen(text->valuestring) >= FRI_TAR_PATH || !whole_number(offset, FRI_TAR_BLOCK, end, &at) ||
        !whole_number(bytes, 0, end - (double)at, &n) || !whole_number(label, FRI_TAR_NO_LABEL, FRI_TAR_LABEL_MAX, &of))
        return bad_index(name, x->count);
    return is_hidden(text->valuestring) ? FR_OK : add_entry(x, text->valuestring, at, n, of);
}

fr_status fri_tar_index_parse(const char *name, const char *text, size_t bytes, const fri_tar_stamp *shard,
                              fri_tar_index *out, bool *other) {
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(root, "format"), *row = NULL;
    const cJSON *images = cJSON_GetObjectItemCaseSensitive(root, "images");
    const cJSON *changed = cJSON_GetObjectItemCaseSensitive(root, "changed"); /* NULL: of an older version */
    int64_t size = 0;
    fr_status s = FR_OK;
    *other = false;
    *out = (fri_tar_index){.shard_bytes = shard->bytes};
    if (!cJSON_IsString(kind) || strcmp(kind->valuestring, format) != 0 || !cJSON_IsArray(images) ||
        !whole_number(cJSON_GetObjectItemCaseSensitive(root, "bytes"), 0, 9e15, &size)) {
        s = bad_index(name, -1);
        goto done;
    }
    *other =
        (uint64_t)size != shard->bytes || !cJSON_IsString(changed) || strcmp(changed->valuestring, shard->changed) != 0;
    if (*other) goto done;
    cJSON_ArrayForEach(row, images) FR_TRY(s, parse_image(name, row, out));
done:
    cJSON_Delete(root);
    if (s < 0) fri_tar_index_free(out);
    return s;
}

/* FR_END: no index, or of a changed shard. */
static fr_status read_index(const char *path, const fri_tar_stamp *shard, fri_tar_index *out) {
    uint64_t bytes = 0;
    FRI_OWNED(fri_free) char *text = NULL;
    bool other = false;
    int fd = -1;
    fr_status s = FR_OK;
    if (access(path, F_OK) != 0) return FR_END;
    FR_TRY(s, fr_file_open(path, &fd, &bytes));
    if (bytes > INDEX_BYTES_MAX) {
        s = fr_fail(FR_EFORMAT, "has %llu bytes, a tar index has at most %d", (unsigned long long)bytes,
                    INDEX_BYTES_MAX);
        goto done;
    }
    text = malloc((size_t)bytes + 1);
    if (text == NULL) {
        s = fr_fail(FR_ENOMEM, "no memory for its %llu bytes", (unsigned long long)bytes);
        goto done;
    }
    FR_TRY(s, fr_file_read(fd, text, (size_t)bytes, 0));
    close(fd);
    s = fri_tar_index_parse(path, text, (size_t)bytes, shard, out, &other);
    return s == FR_OK && other ? FR_END : s;
done:
    if (fd >= 0) close(fd);
    return fr_fail_prefix(s, "%s: ", path);
}

static cJSON *index_json(const fri_tar_index *x, const fri_tar_stamp *shard) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "format", format);
    cJSON_AddNumberToObject(root, "bytes", (double)shard->bytes);
    cJSON_AddStringToObject(root, "changed", shard->changed);
    cJSON *images = cJSON_AddArrayToObject(root, "images");
    for (int64_t i = 0; i < x->count; i++) {
        const fri_tar_image *m = &x->image[i];
        cJSON *row = cJSON_CreateArray();
        cJSON_AddItemToArray(row, cJSON_CreateNumber((double)m->offset));
        cJSON_AddItemToArray(row, cJSON_CreateNumber((double)m->bytes));
        cJSON_AddItemToArray(row, cJSON_CreateNumber((double)m->label));
        cJSON_AddItemToArray(row, cJSON_CreateString(m->name));
        cJSON_AddItemToArray(images, row);
    }
    return root;
}

/* Writes the index. In a read-only folder the shard is read again each time. */
static void write_index(const char *path, const fri_tar_index *x, const fri_tar_stamp *shard) {
    fr_atomic_file f = FR_ATOMIC_FILE_CLOSED;
    cJSON *root = index_json(x, shard);
    char *text = cJSON_PrintUnformatted(root);
    if (text != NULL && fr_atomic_open(path, 0666, &f) == FR_OK && fr_atomic_put(&f, text, strlen(text)) == FR_OK)
        (void)fr_atomic_commit(&f);
    fr_atomic_abandon(&f);
    cJSON_free(text);
    cJSON_Delete(root);
}

fr_status fri_tar_index_open(const char *path, fri_tar_index *out) {
    char beside[FRI_TAR_PATH];
    int fd = -1, n = snprintf(beside, sizeof beside, "%s.index", path);
    fr_status s = FR_OK;
    *out = (fri_tar_index){0};
    if (n < 0 || n >= FRI_TAR_PATH) return fr_fail(FR_EIO, "%s: the path is longer than %d bytes", path, FRI_TAR_PATH);
    fri_tar_stamp shard = {0};
    struct stat file = {0};
    s = fr_file_open(path, &fd, &shard.bytes);
    if (s < 0) return fr_fail_prefix(s, "%s: ", path);
    (void)fstat(fd, &file);
    snprintf(shard.changed, sizeof shard.changed, "%lld.%09ld", (long long)file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
    s = read_index(beside, &shard, out);
    if (s == FR_END) {
        out->shard_bytes = shard.bytes;
        s = scan_shard(path, fd, out);
        if (s == FR_OK) write_index(beside, out, &shard);
    }
    close(fd);
    if (s < 0) fri_tar_index_free(out);
    return s;
}
