/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of arguments that calls about files share. */
#include "io/options.h"

bool
coi_check_path(co_context *ctx, const char *path, int position)
{
    if (path != NULL && path[0] != '\0')
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (path) is %s; give the name of a file",
             position, path == NULL ? "NULL" : "empty");
    return false;
}

bool
coi_take_file_options(co_context *ctx, co_file_options *all, const co_file_options *options,
                      int position)
{
    if (!coi_take_options(ctx, all, sizeof(*all), options, position))
        return false;
    if ((unsigned)all->compression <= CO_COMPRESSION_ZLIB)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "argument %d (options): compression is %d; it is one of CO_COMPRESSION_NONE, GZIP, "
             "ZLIB",
             position, (int)all->compression);
    return false;
}
