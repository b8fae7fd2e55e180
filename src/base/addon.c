/* addon.c - add-ons by name. */
#include "base/status.h"

#include <frugal/addon.h>

#include <string.h>

const fr_addon *fr_addon_find(const char *name) {
    const fr_addon *const *a = fr_addons();
    if (name == NULL) return NULL;
    while (*a != NULL && strcmp((*a)->name, name) != 0) a++;
    return *a;
}

fr_status fr_addon_missing(const char *what, const char *name) {
    FRI_NOT_NULL(what, name);
    return fr_fail(FR_EUNSUPPORTED, "%s needs the add-on %s: build with -D%s=enabled", what, name, name);
}
