/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plug-ins: shared objects of the library that it loads when they are needed, and where they are
 * looked for.
 */
#ifndef COI_BASE_PLUGIN_H
#define COI_BASE_PLUGIN_H

#include "base/text.h"

#include <limits.h>

/* One search. Where a plug-in was found, `handle` and `path` are its own. */
typedef struct coi_plugin_search {
    void     *handle;
    char      path[PATH_MAX];
    char      why[400]; /* the first file that exists and could not be loaded; "" for none */
    char      tried[500];
    coi_prose folders; /* into tried: where no plug-in is */
} coi_plugin_search;

/*
 * A variable of the environment, NULL when it is not set or empty, and in a program with raised
 * privileges: it must not choose what such a program loads.
 */
const char *coi_plugin_variable(const char *name);
/*
 * Load a plug-in: `file` and no other where that is not NULL, else `library` from the folder of
 * COHORT_PLUGIN_PATH, beside the file that holds this code, beside a program in bin/, from the
 * search path of the program (a static link writes the folder there), from where the library was to
 * be installed. It stays loaded: MPI and drivers do not survive unloading. False: `why` or `tried`
 * has the reason.
 */
bool coi_plugin_load(coi_plugin_search *search, const char *library, const char *file);

#endif
