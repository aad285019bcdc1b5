/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training program that can be killed: kills_train FOLDER PLACE HOW. It goes on from the last
 * checkpoint of FOLDER and prints a hash of all of its state at the end:
 *
 *     rank 0: from step 12 to 30: hash 0123456789abcdef
 *
 * PLACE is `one` (a device), `mirrored` (two) or `processes` (of the launcher), HOW is `eager` or
 * `captured`. `kills_train FOLDER PLACE check` reads every checkpoint of FOLDER instead, and fails
 * if one of them is not whole.
 */
#include <cohort/cohort.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST = 30, EVERY = 2, EXAMPLES = 50, BATCH = 8, WIDTH = 6, WIDE = 40000 };

typedef struct program {
    co_context    *ctx;
    co_strategy   *strategy;
    int            worker;
    co_value      *weights, *total, *ballast, *generator, *model;
    co_optimizer  *adam;
    co_metric     *mean;
    co_dataset    *dataset;
    co_iterator   *input;
    co_function   *captured; /* NULL: eager */
    int64_t        step;
    co_checkpoint *checkpoint;
} program;

static co_value *
step_fn(co_context *ctx, co_value *args, void *user)
{
    program  *p = user;
    co_value *x = co_dropout(ctx, co_at(ctx, args, 0), 0.25), *losses;

    x = co_add(ctx, x, co_generator_normal(ctx, p->generator, CO_FLOAT32, CO_SHAPE(WIDTH), NULL));
    co_tape_begin(ctx);
    losses = co_reduce_mean(
        ctx, co_squared_difference(ctx, co_mul(ctx, x, p->weights), co_float(ctx, 1)),
        (const int[]){ 1 }, 1, false);
    co_minimize(ctx, p->adam, co_average_loss(ctx, losses));
    co_assign_add(ctx, p->total, co_reduce_sum(ctx, losses, CO_ALL_AXES, false));
    co_metric_update(ctx, p->mean, losses, NULL, NULL);
    return losses;
}

static co_strategy *
make_strategy(co_context *ctx, const char *place)
{
    static const char *const         two[] = { "/cpu:0", "/cpu:1" };
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.deadline_ms = 20000;
    if (strcmp(place, "processes") == 0)
        return co_multi_worker_mirrored_strategy(ctx, &options);
    return strcmp(place, "mirrored") == 0 ? co_mirrored_strategy(ctx, two, 2, NULL)
                                          : co_one_device_strategy(ctx, "/cpu:0");
}

/* In the scope of the strategy. */
static void
make_state(program *p)
{
    static const char *const keys[] = { "ballast", "generator", "total", "weights" };
    co_context              *ctx = p->ctx;
    co_variable_options      named = CO_VARIABLE_OPTIONS_INIT, summed = CO_VARIABLE_OPTIONS_INIT;
    co_optimizer_options     options = CO_OPTIMIZER_OPTIONS_INIT;

    named.name = "weights";
    summed.name = "total";
    summed.synchronization = CO_SYNC_ON_READ;
    summed.aggregation = CO_AGGREGATION_SUM;
    p->weights = co_variable(ctx, co_fill(ctx, CO_SHAPE(WIDTH), co_float(ctx, 0.1)), &named);
    p->total = co_variable(ctx, co_to_tensor(ctx, co_float(ctx, 0), CO_FLOAT32), &summed);
    named.name = "ballast"; /* so that there is something to write */
    p->ballast = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(WIDE)), &named);
    p->generator = co_generator(ctx, 5);
    p->model = co_dict(ctx, keys, (co_value *[]){ p->ballast, p->generator, p->total, p->weights },
                       4);
    p->mean = co_metric_new(ctx, CO_METRIC_MEAN, NULL);
    p->adam = co_adam(ctx, NULL);
    options.accumulation_steps = 3;
    options.ema_momentum = 0.75;
    co_optimizer_configure(ctx, p->adam, &options);
}

static void
make_input(program *p)
{
    co_context *ctx = p->ctx;
    float       data[EXAMPLES * WIDTH];
    co_dataset *dataset;

    for (int i = 0; i < EXAMPLES * WIDTH; ++i)
        data[i] = (float)((i * 7919) % 101 - 50) * 0.02f;
    dataset = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32,
                                                           CO_SHAPE(EXAMPLES, WIDTH), data));
    dataset = co_dataset_shuffle(ctx, dataset, EXAMPLES, 11, true);
    dataset = co_dataset_batch(ctx, dataset, BATCH, false);
    dataset = co_dataset_repeat(ctx, dataset, -1);
    p->dataset = co_distribute_dataset(ctx, p->strategy, dataset, NULL);
    p->input = co_iterate(ctx, p->dataset);
}

static void
open_folder(program *p, const char *folder, bool reads)
{
    co_context           *ctx = p->ctx;
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;

    options.keep_last = 3;
    options.is_reader = reads;
    CO_SCOPE(ctx, p->strategy) {
        p->checkpoint = co_checkpoint_open(ctx, folder, &options);
    }
    co_checkpoint_add(ctx, p->checkpoint, "model", p->model);
    co_checkpoint_add_optimizer(ctx, p->checkpoint, "adam", p->adam, co_list(ctx, &p->weights, 1));
    co_checkpoint_add_metric(ctx, p->checkpoint, "mean", p->mean);
    co_checkpoint_add_iterator(ctx, p->checkpoint, "input", p->dataset, &p->input);
    co_checkpoint_add_counter(ctx, p->checkpoint, "step", &p->step);
}

static void
train(program *p)
{
    co_context *ctx = p->ctx;
    int64_t     begin;

    co_checkpoint_restore(ctx, p->checkpoint, NULL);
    begin = p->step;
    while (co_ok(ctx) && p->step < LAST) {
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, co_next(ctx, p->input));

            if (p->captured != NULL)
                co_run(ctx, p->strategy, co_captured, args, p->captured);
            else
                co_run(ctx, p->strategy, step_fn, args, p);
            co_assign_add(ctx, p->ballast, co_fill(ctx, CO_SHAPE(WIDE), co_float(ctx, 1)));
        }
        if (++p->step % EVERY == 0)
            co_checkpoint_save(ctx, p->checkpoint, p->step, NULL);
    }
    co_checkpoint_close(ctx, p->checkpoint);
    if (co_ok(ctx))
        printf("rank %d: from step %lld to %lld: ", p->worker, (long long)begin,
               (long long)p->step);
}

/* --- the hash --- */

static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t
hash_tensor(co_context *ctx, uint64_t hash, co_value *tensor)
{
    const void *data = co_value_data(ctx, tensor);
    size_t      n = (size_t)co_value_num_elements(ctx, tensor);

    return data != NULL ? hash_bytes(hash, data, n * co_dtype_size(co_value_dtype(ctx, tensor)))
                        : 0;
}

/* Variables with what each replica of this process has of them, numbers, and structures of them. */
static uint64_t
hash_state(program *p, uint64_t hash, co_value *state)
{
    co_context *ctx = p->ctx;

    if (co_value_kind(state) == CO_KIND_VARIABLE) {
        co_value *here = co_local_results(ctx, p->strategy, state);

        hash = hash_tensor(ctx, hash, co_variable_save(ctx, state));
        for (size_t i = 0; i < co_num_items(ctx, here); ++i)
            hash = hash_tensor(ctx, hash, co_variable_read(ctx, co_at(ctx, here, i)));
        return hash;
    }
    if (co_value_kind(state) == CO_KIND_TENSOR)
        return hash_tensor(ctx, hash, state);
    for (size_t i = 0; i < co_num_items(ctx, state); ++i)
        hash = hash_state(p, hash, co_at(ctx, state, i));
    return hash;
}

static uint64_t
hash_all(program *p)
{
    co_context *ctx = p->ctx;
    uint64_t    hash = UINT64_C(14695981039346656037);
    size_t      n;
    const char *bytes;

    hash = hash_state(p, hash, p->model);
    hash = hash_state(p, hash, co_optimizer_state(ctx, p->adam));
    hash = hash_state(p, hash, co_metric_variables(ctx, p->mean));
    hash = hash_tensor(ctx, hash, co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(4), 0, 1));
    bytes = co_string_at(ctx, co_iterator_save(ctx, p->input), 0, &n);
    if (bytes != NULL)
        hash = hash_bytes(hash, bytes, n);
    return hash_bytes(hash, &p->step, sizeof(p->step));
}

/* --- what a killed program left --- */

static void
check_folder(program *p)
{
    co_context    *ctx = p->ctx;
    co_value      *steps = co_checkpoint_steps(ctx, p->checkpoint);
    const int64_t *at = co_value_data(ctx, steps);
    int64_t        n = co_value_num_elements(ctx, steps);

    for (int64_t i = 0; co_ok(ctx) && i < n; ++i) {
        co_checkpoint_restore_options which = CO_CHECKPOINT_RESTORE_OPTIONS_INIT;

        which.step = at[i];
        co_checkpoint_restore(ctx, p->checkpoint, &which);
        if (co_ok(ctx) && p->step != at[i])
            co_fail(ctx, CO_DATA_LOSS, "checkpoint %lld is that of step %lld", (long long)at[i],
                    (long long)p->step);
    }
    if (co_ok(ctx))
        printf("rank %d: %lld checkpoints are whole\n", p->worker, (long long)n);
}

int
main(int argc, char **argv)
{
    program     p = { 0 };
    co_context *ctx = co_open("cpus=2,threads=1");
    bool        checks = argc > 3 && strcmp(argv[3], "check") == 0;

    if (argc < 4) {
        fprintf(stderr, "usage: kills_train FOLDER one|mirrored|processes eager|captured|check\n");
        return 2;
    }
    p.ctx = ctx;
    co_set_seed(ctx, 3);
    p.strategy = make_strategy(ctx, argv[2]);
    p.worker = co_worker_id(ctx, p.strategy);
    CO_SCOPE(ctx, p.strategy) {
        make_state(&p);
    }
    make_input(&p);
    if (strcmp(argv[3], "captured") == 0)
        p.captured = co_function_of(ctx, step_fn, &p, NULL);
    open_folder(&p, argv[1], checks);
    if (checks)
        check_folder(&p);
    else
        train(&p);
    if (co_ok(ctx) && !checks) {
        uint64_t hash = hash_all(&p);

        if (co_ok(ctx))
            printf("hash %016llx\n", (unsigned long long)hash);
    }
    if (!co_ok(ctx))
        fprintf(stderr, "rank %d: %s in %s: %s\n", p.worker, co_code_name(co_error(ctx)->code),
                co_error(ctx)->call, co_error(ctx)->message);
    return co_close(ctx) == CO_OK ? 0 : 1;
}
