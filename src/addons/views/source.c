/* source.c - see source.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "addons/views/source.h"

#include <frugal/addon.h>
#include <frugal/try.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FRI_LIBDW
#include <elfutils/libdwfl.h>
#else
typedef struct Dwfl Dwfl;
typedef int Dwfl_Callbacks;
typedef uint64_t Dwarf_Addr;
#endif

struct fri_sources {
    const void *base; /* of frugal's object */
    char *own;        /* prefix of the source files, up to "addons/views/source.c"; NULL: unknown */
    Dwfl_Callbacks callbacks;
    Dwfl *dwfl;
};

static const char this_file[] = "addons/views/source.c";

/* ---- the library ------------------------------------------------------------------------------------------------- */

#ifdef FRI_LIBDW
static const char *const names[] = {"dwfl_begin",
                                    "dwfl_end",
                                    "dwfl_linux_proc_report",
                                    "dwfl_report_end",
                                    "dwfl_addrmodule",
                                    "dwfl_module_getsrc",
                                    "dwfl_lineinfo",
                                    "dwfl_line_comp_dir",
                                    "dwfl_module_addrname",
                                    "dwfl_linux_proc_find_elf",
                                    "dwfl_build_id_find_debuginfo"};
enum { FUNCTIONS = sizeof names / sizeof *names };
static union {
    void *function[FUNCTIONS];
    struct {
        __typeof__(dwfl_begin) *begin;
        __typeof__(dwfl_end) *end;
        __typeof__(dwfl_linux_proc_report) *proc_report;
        __typeof__(dwfl_report_end) *report_end;
        __typeof__(dwfl_addrmodule) *addrmodule;
        __typeof__(dwfl_module_getsrc) *getsrc;
        __typeof__(dwfl_lineinfo) *lineinfo;
        __typeof__(dwfl_line_comp_dir) *line_comp_dir;
        __typeof__(dwfl_module_addrname) *addrname;
        __typeof__(dwfl_linux_proc_find_elf) *find_elf;
        __typeof__(dwfl_build_id_find_debuginfo) *find_debuginfo;
    } call;
} dw;

/* Separate debug files are looked for on disk, never fetched. */
static fr_status open_dwfl(fri_sources *s) {
    FRI_TRY(fr_library_load("libdw.so.1", "libdw1", names, dw.function, FUNCTIONS));
    s->callbacks = (Dwfl_Callbacks){.find_elf = dw.call.find_elf, .find_debuginfo = dw.call.find_debuginfo};
    s->dwfl = dw.call.begin(&s->callbacks);
    if (s->dwfl == NULL) return FR_OK;
    if (dw.call.proc_report(s->dwfl, getpid()) == 0 && dw.call.report_end(s->dwfl, NULL, NULL) == 0) return FR_OK;
    dw.call.end(s->dwfl);
    s->dwfl = NULL;
    return FR_OK;
}

static void close_dwfl(fri_sources *s) {
    if (s->dwfl != NULL) dw.call.end(s->dwfl);
}

static void find_dwfl(fri_sources *s, Dwarf_Addr pc, fri_source_line *out) {
    Dwfl_Module *m = s->dwfl != NULL ? dw.call.addrmodule(s->dwfl, pc) : NULL;
    Dwfl_Line *line = m != NULL ? dw.call.getsrc(m, pc) : NULL;
    if (m == NULL) return;
    if (line != NULL) {
        out->file = dw.call.lineinfo(line, NULL, &out->line, NULL, NULL, NULL);
        out->folder = dw.call.line_comp_dir(line);
    }
    const char *name = dw.call.addrname(m, pc);
    if (name != NULL) out->name = name;
}
#else
static fr_status open_dwfl(fri_sources *s) {
    (void)s;
    return fr_fail(FR_EUNSUPPORTED, "lines: this build has no libdw: install libdw-dev and build with -Dviews=enabled");
}

static void close_dwfl(fri_sources *s) {
    (void)s;
}

static void find_dwfl(fri_sources *s, Dwarf_Addr pc, fri_source_line *out) {
    (void)s, (void)pc, (void)out;
}
#endif

/* ---- owner of the line
 * -------------------------------------------------------------------------------------------- */

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void classify_line(const fri_sources *s, const void *base, fri_source_line *f) {
    if (f->file == NULL) { /* names of the library's calls mark the floors of memory */
        f->library = base == s->base;
        f->memory = f->library && (f->name == NULL || !begins(f->name, "fr_") || begins(f->name, "fr_tensor_"));
    } else if (s->own != NULL && begins(f->file, s->own)) {
        const char *folder = f->file + strlen(s->own);
        f->library = true;
        f->memory = begins(folder, "memory/") || begins(folder, "tensor/") || begins(folder, "addons/views/");
    } else {
        f->library = strstr(f->file, "frugal/frugal.hpp") != NULL;
    }
}

fri_source_line fri_sources_find(fri_sources *s, const void *address) {
    const char *pc = (const char *)address - 1;
    fri_source_line f = {0};
    Dl_info at = {0};
    if (dladdr(pc, &at) != 0) f.name = at.dli_sname != NULL ? at.dli_sname : at.dli_fname;
    find_dwfl(s, (Dwarf_Addr)(uintptr_t)pc, &f);
    classify_line(s, at.dli_fbase, &f);
    return f;
}

fr_status fri_sources_open(fri_sources **out) {
    Dl_info at = {0};
    fri_source_line self = {0};
    fri_sources *s = calloc(1, sizeof *s);
    if (s == NULL) return fr_fail(FR_ENOMEM, "lines: out of host memory");
    *out = s;
    FRI_TRY(open_dwfl(s));
    if (dladdr(this_file, &at) != 0) s->base = at.dli_fbase;
    find_dwfl(s, (Dwarf_Addr)(uintptr_t)fri_sources_open, &self);
    size_t end = self.file != NULL ? strlen(self.file) : 0;
    if (end >= sizeof this_file && strcmp(self.file + end - (sizeof this_file - 1), this_file) == 0)
        s->own = strndup(self.file, end - (sizeof this_file - 1));
    return FR_OK;
}

void fri_sources_close(fri_sources **s) {
    if (*s != NULL) {
        close_dwfl(*s);
        free((*s)->own);
    }
    free(*s);
    *s = NULL;
}
