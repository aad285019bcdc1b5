/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of pipelines by name: pipeline.c makes stages of them, pipeline_functions.c holds
 * them. */
#ifndef GOLDEN_PIPELINE_H
#define GOLDEN_PIPELINE_H

#include "golden.h"

/* Each fails the case for a name that it does not know and gives NULL. */
co_dataset     *golden_map(golden_case *c, co_context *ctx, co_dataset *input, const char *name);
co_predicate_fn golden_predicate(golden_case *c, const char *name);
co_fold_fn      golden_scan(golden_case *c, const char *name);
co_inner_fn     golden_inner(golden_case *c, const char *name, bool *opens_files);
/* The spec of what it gives; NULL: as the input. */
co_value *golden_inner_spec(co_context *ctx, co_dataset *input, const char *name);

#endif
