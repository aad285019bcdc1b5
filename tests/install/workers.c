/* SPDX-License-Identifier: Apache-2.0 */
/* Does a program of somebody who has installed the library find the plug-in for MPI? Built by
 * scripts/check-install, with the static library too. */
#include <cohort/cohort.h>
#include <stdio.h>

int
main(void)
{
    co_context                      *ctx = co_open(NULL);
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_strategy                     *strategy;

    options.transport = "mpi";
    strategy = co_multi_worker_mirrored_strategy(ctx, &options);
    printf("%d\n", co_num_workers(ctx, strategy));
    return (int)co_close(ctx);
}
