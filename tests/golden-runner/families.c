/* SPDX-License-Identifier: Apache-2.0 */
/* The table of families, in the order of the data's README. A family that the library cannot serve
 * yet says so. */
#include "golden.h"

#include <string.h>

#include "families.h"

static void
run_tensorboard(golden_case *c)
{
    golden_missing(c, "event files");
}

const golden_family golden_families[] = {
    { "context", golden_run_context },
    { "reduce", golden_run_reduce },
    { "variables", golden_run_variables },
    { "distribute_input", golden_run_distribute_input },
    { "datasets", golden_run_datasets },
    { "ops", golden_run_ops },
    { "optimizers", golden_run_optimizers },
    { "records", golden_run_records },
    { "train", golden_run_train },
    { "tensorboard", run_tensorboard },
    { "v1", golden_run_v1 },
    { "numpy_dataset", golden_run_numpy_dataset },
    { "config", golden_run_config },
    { "tpu", golden_run_tpu },
    { "seeds", golden_run_seeds },
    { "functions", golden_run_functions },
    { "losses", golden_run_losses },
    { "metrics", golden_run_metrics },
    { "checkpoints", golden_run_checkpoints },
};
const size_t golden_num_families = sizeof(golden_families) / sizeof(golden_families[0]);

const golden_family *
golden_family_find(const char *name)
{
    for (size_t i = 0; i < golden_num_families; ++i)
        if (strcmp(golden_families[i].name, name) == 0)
            return &golden_families[i];
    return NULL;
}
