/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that calls about files share. Each records the error in ctx. */
#ifndef COI_IO_OPTIONS_H
#define COI_IO_OPTIONS_H

#include <cohort/files.h>

#include "context/context.h"

/* Not NULL, not empty. */
bool coi_check_path(co_context *ctx, const char *path, int position);
/* Options of the user over the defaults in `all`. */
bool coi_take_file_options(co_context *ctx, co_file_options *all, const co_file_options *options,
                           int position);

#endif
