/* SPDX-License-Identifier: Apache-2.0 */
#include "base/plugin.h"

#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOW = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

const char *
coi_plugin_variable(const char *name)
{
    const char *text = secure_getenv(name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Try a file, "folder/between/name". */
static bool
try_file(coi_plugin_search *s, const char *folder, size_t length, const char *between,
         const char *name)
{
    const char *slash;
    int         n = snprintf(s->path, sizeof(s->path), "%.*s%s%s%s", (int)length, folder,
                     length > 0 ? "/" : "", between, name);

    if (n < 0 || (size_t)n >= sizeof(s->path))
        return false;
    s->handle = dlopen(s->path, HOW);
    if (s->handle != NULL)
        return true;
    /* A missing file is not reported; a file that exists and does not load is. */
    if (s->why[0] == '\0' && access(s->path, F_OK) == 0)
        coi_text_line(s->why, sizeof(s->why), "%s", dlerror());
    slash = strrchr(s->path, '/');
    coi_put(&s->folders, "%s%.*s", s->folders.at > 0 ? ", " : "",
            (int)(slash != NULL ? slash - s->path : 0), s->path);
    return false;
}

/* Beside the file that holds this code: the shared library, or a program with the static one. */
static bool
try_beside(coi_plugin_search *s, const char *library)
{
    Dl_info info;
    char    real[PATH_MAX];
    size_t  length;

    if (dladdr((void *)(uintptr_t)coi_plugin_load, &info) == 0 ||
        realpath(info.dli_fname, real) == NULL)
        return false;
    length = (size_t)(strrchr(real, '/') - real); /* such a path begins with one */
    /* The second: a program in bin/ or in a build tree, beside lib/. */
    return try_file(s, real, length, COI_PLUGIN_SUBDIR "/", library) ||
           try_file(s, real, length, "../lib/" COI_PLUGIN_SUBDIR "/", library);
}

static bool
try_search_path(coi_plugin_search *s, const char *library)
{
    s->handle = dlopen(library, HOW);
    if (s->handle != NULL)
        snprintf(s->path, sizeof(s->path), "%s", library);
    return s->handle != NULL;
}

bool
coi_plugin_load(coi_plugin_search *s, const char *library, const char *file)
{
    const char *folder = coi_plugin_variable("COHORT_PLUGIN_PATH");

    s->handle = NULL;
    s->path[0] = s->why[0] = s->tried[0] = '\0';
    s->folders = (coi_prose){ s->tried, sizeof(s->tried), 0 };
    if (file != NULL)
        return try_file(s, "", 0, "", file);
    if ((folder != NULL && try_file(s, folder, strlen(folder), "", library)) ||
        try_beside(s, library) || try_search_path(s, library) ||
        try_file(s, COI_PLUGIN_DIR, strlen(COI_PLUGIN_DIR), "", library))
        return true;
    coi_put_end(&s->folders);
    return false;
}
