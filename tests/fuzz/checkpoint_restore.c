/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files under the name of a checkpoint: they are restored, wholly or where they fit, or refused.
 * Files of other programs have no checksums, so that any data can come.
 */
#include "files.h"

#include <sys/stat.h>

typedef struct program {
    co_value      *variables;
    co_checkpoint *checkpoint;
    int64_t        step;
    char           folder[64], path[100];
} program;

static void
start(co_context *ctx, program *p)
{
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_variable_options   named = CO_VARIABLE_OPTIONS_INIT;
    co_value             *all[3];

    named.name = "w";
    all[0] = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)), &named);
    all[1] = co_variable(ctx, co_zeros(ctx, CO_BOOL, CO_SHAPE(3)), NULL);
    all[2] = co_variable(ctx, co_zeros(ctx, CO_FLOAT16, CO_SHAPE(0, 2)), NULL);
    snprintf(p->folder, sizeof(p->folder), "/dev/shm/fuzz-checkpoints-%d", (int)getpid());
    FUZZ_REQUIRE(mkdir(p->folder, 0777) == 0);
    snprintf(p->path, sizeof(p->path), "%s/step-1.safetensors", p->folder);
    options.is_reader = options.is_partial = true;
    p->checkpoint = co_checkpoint_open(ctx, p->folder, &options);
    co_checkpoint_add(ctx, p->checkpoint, "v", co_tuple(ctx, all, 3));
    co_checkpoint_add_optimizer(ctx, p->checkpoint, "adam", co_adam(ctx, NULL),
                                co_list(ctx, all, 1));
    co_checkpoint_add_metric(ctx, p->checkpoint, "mean", co_metric_new(ctx, CO_METRIC_MEAN, NULL));
    co_checkpoint_add_metric(ctx, p->checkpoint, "f1",
                             co_metric_new(ctx, CO_METRIC_F1_SCORE, NULL));
    co_checkpoint_add_counter(ctx, p->checkpoint, "step", &p->step);
    FUZZ_REQUIRE(co_ok(ctx));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context    *ctx = fuzz_context();
    static program p;
    FILE          *file;

    CO_BLOCK(ctx) {
        start(ctx, &p);
        file = fopen(p.path, "wb");
        FUZZ_REQUIRE(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
        co_checkpoint_restore(ctx, p.checkpoint, NULL);
        fuzz_clear(ctx, CO_DATA_LOSS, CO_VALUE_ERROR);
        FUZZ_REQUIRE(co_checkpoint_report(ctx, p.checkpoint) != NULL);
        FUZZ_REQUIRE(co_checkpoint_close(ctx, p.checkpoint) == CO_OK);
        unlink(p.path);
        rmdir(p.folder);
    }
    return 0;
}
