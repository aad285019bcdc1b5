/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files by pattern, sorted or in an order that a seed gives. */
#include "data/dataset.h"

#include <cohort/files.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The library sorts by the host's locale, we by bytes. Drops what matched twice; returns how many
 * there are. */
static size_t
sort_names(char **names, size_t n)
{
    size_t kept = 0;

    qsort(names, n, sizeof(*names), compare_names);
    for (size_t i = 0; i < n; ++i) {
        char *name = names[i];

        if (kept > 0 && strcmp(names[kept - 1], name) == 0)
            continue;
        names[i] = names[kept]; /* all are freed by globfree */
        names[kept++] = name;
    }
    return kept;
}

static bool
match(co_context *ctx, const char *const *patterns, size_t n, glob_t *found)
{
    for (size_t i = 0; i < n; ++i) {
        int status = patterns[i] != NULL
                         ? glob(patterns[i], GLOB_NOSORT | (i > 0 ? GLOB_APPEND : 0), NULL, found)
                         : GLOB_NOMATCH;

        if (status == GLOB_NOSPACE) {
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of files");
            return false;
        }
        if (status != 0 && patterns[i] == NULL) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (patterns): pattern %zu is NULL", i);
            return false;
        }
    }
    if (found->gl_pathc > 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "no file matches %s%s%s%s", n == 0 ? "0 patterns" : "'",
             n == 0 ? "" : patterns[0], n == 0 ? "" : "'",
             n > 1 ? " or the patterns after it" : "");
    return false;
}

co_dataset *
co_dataset_list_files(co_context *ctx, const char *const *patterns, size_t num_patterns,
                      const co_list_files_options *options)
{
    co_list_files_options all = CO_LIST_FILES_OPTIONS_INIT;
    glob_t                found = { 0 };
    co_dataset           *dataset = NULL;

    COI_ENTER(ctx, "dataset_list_files", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4))
        return NULL;
    if (patterns == NULL && num_patterns > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (patterns) is NULL for %zu pattern%s",
                 num_patterns, COI_S(num_patterns));
        return NULL;
    }
    if (match(ctx, patterns, num_patterns, &found)) {
        int64_t n = (int64_t)sort_names(found.gl_pathv, found.gl_pathc);

        dataset = co_dataset_from_tensor_slices(ctx,
                                                co_tensor(ctx, CO_STRING, &n, 1, found.gl_pathv));
        if (all.shuffle) /* a stage, so that it goes behind a shard (DS-SHARD-18) */
            dataset = co_dataset_shuffle(ctx, dataset, n, (int64_t)all.seed, false);
    }
    globfree(&found);
    return dataset;
}
