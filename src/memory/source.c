/* source.c - see source.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "memory/source.h"

#include "base/status.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FRI_LIBDW
#include <elfutils/libdwfl.h>
#endif

struct fri_sources {
    const void *base; /* of the object that holds frugal */
    char *own;        /* what the names of its files begin with, up to "memory/source.c"; NULL: not known */
#ifdef FRI_LIBDW
    Dwfl *dwfl;
#endif
};

static const char this_file[] = "memory/source.c";

#ifdef FRI_LIBDW
/* Separate debug files are looked for on disk, never fetched. */
static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                         .find_debuginfo = dwfl_build_id_find_debuginfo};

static void open_dwfl(fri_sources *s) {
    s->dwfl = dwfl_begin(&callbacks);
    if (s->dwfl == NULL) return;
    if (dwfl_linux_proc_report(s->dwfl, getpid()) == 0 && dwfl_report_end(s->dwfl, NULL, NULL) == 0) return;
    dwfl_end(s->dwfl);
    s->dwfl = NULL;
}

static void find_dwfl(fri_sources *s, Dwarf_Addr pc, fri_source *out) {
    Dwfl_Module *m = s->dwfl != NULL ? dwfl_addrmodule(s->dwfl, pc) : NULL;
    Dwfl_Line *line = m != NULL ? dwfl_module_getsrc(m, pc) : NULL;
    if (m == NULL) return;
    if (line != NULL) {
        out->file = dwfl_lineinfo(line, NULL, &out->line, NULL, NULL, NULL);
        out->folder = dwfl_line_comp_dir(line);
    }
    const char *name = dwfl_module_addrname(m, pc);
    if (name != NULL) out->name = name;
}
#endif

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void classify(const fri_sources *s, const void *base, fri_source *f) {
    if (f->file == NULL) { /* the floors of memory are told from others by the names of the library's calls */
        f->library = base == s->base;
        f->memory = f->library && (f->name == NULL || !begins(f->name, "fr_") || begins(f->name, "fr_tensor_"));
    } else if (s->own != NULL && begins(f->file, s->own)) {
        const char *folder = f->file + strlen(s->own);
        f->library = true;
        f->memory = begins(folder, "memory/") || begins(folder, "tensor/");
    } else {
        f->library = strstr(f->file, "frugal/frugal.hpp") != NULL;
    }
}

fri_source fri_sources_find(fri_sources *s, const void *address) {
    const char *pc = (const char *)address - 1;
    fri_source f = {0};
    Dl_info at = {0};
    if (dladdr(pc, &at) != 0) f.name = at.dli_sname != NULL ? at.dli_sname : at.dli_fname;
#ifdef FRI_LIBDW
    find_dwfl(s, (Dwarf_Addr)(uintptr_t)pc, &f);
#endif
    classify(s, at.dli_fbase, &f);
    return f;
}

fr_status fri_sources_open(fri_sources **out) {
    Dl_info at = {0};
    fri_sources *s = calloc(1, sizeof *s);
    if (s == NULL) return fr_fail(FR_ENOMEM, "lines: out of host memory");
    if (dladdr(this_file, &at) != 0) s->base = at.dli_fbase;
#ifdef FRI_LIBDW
    open_dwfl(s);
    fri_source self = {0};
    find_dwfl(s, (Dwarf_Addr)(uintptr_t)fri_sources_open, &self);
    size_t end = self.file != NULL ? strlen(self.file) : 0;
    if (end >= sizeof this_file && strcmp(self.file + end - (sizeof this_file - 1), this_file) == 0)
        s->own = strndup(self.file, end - (sizeof this_file - 1));
#endif
    *out = s;
    return FR_OK;
}

void fri_sources_close(fri_sources **s) {
    if (*s != NULL) {
#ifdef FRI_LIBDW
        if ((*s)->dwfl != NULL) dwfl_end((*s)->dwfl);
#endif
        free((*s)->own);
    }
    free(*s);
    *s = NULL;
}
