/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategies under test, one row each, and what is expected of them where they differ. Rules
 * that are the same for all have no column.
 */
#include "suite.h"

static co_strategy *
make_default(co_context *ctx, const suite_row *row)
{
    (void)row;
    return co_default_strategy(ctx);
}

static co_strategy *
make_one_device(co_context *ctx, const suite_row *row)
{
    return co_one_device_strategy(ctx, row->devices[0]);
}

static co_strategy *
make_mirrored(co_context *ctx, const suite_row *row)
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = row->n;
    if (row->weights[0] > 0) {
        options.weights = row->weights;
        options.num_weights = (size_t)row->n;
    }
    return co_mirrored_strategy(ctx, row->devices, (size_t)row->num_devices, &options);
}

static co_strategy *
make_workers(co_context *ctx, const suite_row *row)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.devices = row->devices;
    options.num_devices = (size_t)row->num_devices;
    options.num_replicas = row->n;
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

/* Hooks that do nothing but go on: with them a strategy must be as it is without. */
static co_value *
own_run(co_context *ctx, co_strategy *s, co_fn fn, co_value *args, void *user,
        const co_run_options *options, void *data)
{
    (void)data;
    return co_run_with(ctx, s, fn, args, user, options);
}

static co_value *
own_replica(co_context *ctx, co_strategy *s, co_fn fn, co_value *args, void *user, void *data)
{
    (void)s, (void)data;
    return fn(ctx, args, user);
}

static co_value *
own_variable(co_context *ctx, co_strategy *s, co_value *initial, const co_variable_options *options,
             void *data)
{
    (void)s, (void)data;
    return co_variable(ctx, initial, options);
}

static co_value *
own_reduce(co_context *ctx, co_strategy *s, co_reduce_op op, co_value *value, const int *axes,
           size_t num_axes, void *data)
{
    (void)data;
    return co_reduce(ctx, s, op, value, axes, num_axes);
}

static co_strategy *
make_own(co_context *ctx, const suite_row *row)
{
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;
    co_placement           places = CO_PLACEMENT_INIT;
    const char            *devices[8];

    for (int i = 0; i < row->n; ++i)
        devices[i] = row->devices[i % row->local * row->num_devices / row->local];
    places.num_replicas = row->n;
    places.devices = devices;
    mine.name = row->is->name;
    mine.placement = &places;
    mine.plain = !row->is->selects;
    mine.processes = row->is->between_graph;
    mine.run = own_run;
    mine.replica = own_replica;
    mine.variable = own_variable;
    mine.reduce = own_reduce;
    return co_define_strategy(ctx, &mine);
}

static const suite_family family_default = {
    .name = "DefaultStrategy",
    .same_dataset = true, /* DEF-3 */
    .function_kind = CO_KIND_TENSOR,
    .mixing = CO_OK,        /* DEF-18 */
    .scope_in_step = CO_OK, /* DEF-18 */
    .variable_elsewhere = CO_OK,
    .bundle_as_operand = CO_OK,
    .devices_known = CO_RUNTIME_ERROR, /* DEF-9 */
    .flags_known = CO_UNIMPLEMENTED,   /* DEF-14 */
    .broadcast = CO_UNIMPLEMENTED,     /* DEF-10 */
    .several_steps = CO_UNIMPLEMENTED,
    .no_destination = CO_OK,
    .update_plain = CO_OK,
    .input_per_replica = CO_OK, /* DEF-3: options are ignored */
    .function_per_replica = CO_OK,
    .input_of_others = CO_OK, /* an ordinary dataset belongs to nobody */
    .next_in_step = CO_OK,
    .non_slot = CO_VALUE_ERROR, /* DEF-11 */
    .cluster = CO_KIND_NONE,
};

#define PLAIN                                                                                      \
    .is_current = true, .cluster = CO_KIND_NONE, .function_kind = CO_KIND_TENSOR, /* S-VFF-3 */    \
        .mixing = CO_RUNTIME_ERROR, .scope_in_step = CO_RUNTIME_ERROR,                             \
    .variable_elsewhere = CO_OK,                        /* OD-SCOPE-1: ordinary variables */       \
        .bundle_as_operand = CO_OK, .broadcast = CO_OK, /* OD-EXT-3 */                             \
        .no_destination = CO_OK,                        /* OD-EXT-1 */                             \
        .update_plain = CO_OK,                          /* OD-EXT-4 */                             \
        .input_per_replica = CO_UNIMPLEMENTED,                                                     \
    .function_per_replica = CO_UNIMPLEMENTED, /* OD-FN-2 */                                        \
        .input_of_others = CO_RUNTIME_ERROR, .next_in_step = CO_VALUE_ERROR

static const suite_family family_one_device = { .name = "OneDeviceStrategy", PLAIN };
static const suite_family family_own_plain = { .name = "PlainOwn", PLAIN };

/* Mirrored and MultiWorker agree on nearly everything. */
#define SEVERAL_REPLICAS                                                                           \
    .is_current = true, .selects = true, .handle_in_cross = CO_VALUE_ERROR,                        \
    .scatter_max = CO_UNIMPLEMENTED, .scatter_on_read = CO_UNIMPLEMENTED, .spreads = true,         \
    .function_kind = CO_KIND_PER_REPLICA, .mixing = CO_RUNTIME_ERROR,                              \
    .scope_in_step = CO_RUNTIME_ERROR, .variable_elsewhere = CO_RUNTIME_ERROR,                     \
    .bundle_as_operand = CO_VALUE_ERROR, .bundle_arithmetic = CO_TYPE_ERROR,                       \
    .foreign_bundle = CO_VALUE_ERROR, .no_destination = CO_VALUE_ERROR,                            \
    .update_plain = CO_ASSERTION_ERROR, .sync_none = CO_VALUE_ERROR,                               \
    .mean_integer = CO_VALUE_ERROR, .read_no_sum = CO_VALUE_ERROR, .add_to_sum = CO_VALUE_ERROR,   \
    .assign_bundle = CO_TYPE_ERROR, .input_per_replica = CO_UNIMPLEMENTED,                         \
    .input_of_others = CO_RUNTIME_ERROR, .next_in_step = CO_VALUE_ERROR

static const suite_family family_mirrored = {
    .name = "MirroredStrategy",
    SEVERAL_REPLICAS,
    .cluster = CO_KIND_NONE,
};

static const suite_family family_workers = {
    .name = "MultiWorkerMirroredStrategy",
    SEVERAL_REPLICAS,
    .between_graph = true,
    .cluster = CO_KIND_NAMED_TUPLE,
    .function_per_replica = CO_UNIMPLEMENTED, /* MW-15 */
};

static const suite_family family_own = { .name = "Own", SEVERAL_REPLICAS, .cluster = CO_KIND_NONE };
static const suite_family family_own_workers = {
    .name = "OwnWorkers",
    SEVERAL_REPLICAS,
    .between_graph = true,
    .cluster = CO_KIND_NAMED_TUPLE,
    .function_per_replica = CO_UNIMPLEMENTED,
};

/* One replica: nothing is wrapped, combined, split or checked across replicas. */
#define ALONE                                                                                      \
    .n = 1, .local = 1, .workers = 1, .job = "/job:localhost", .result_kind = CO_KIND_TENSOR,      \
    .element_kind = CO_KIND_TENSOR, .reduced_to_device = CO_KIND_TENSOR,                           \
    .reduced_to_variable = CO_KIND_TENSOR, .keeps_dtype = true

/* n replicas, several of them here. */
#define SEVERAL_HERE                                                                               \
    .result_kind = CO_KIND_PER_REPLICA, .element_kind = CO_KIND_PER_REPLICA,                       \
    .mirrored_sum = CO_ASSERTION_ERROR, .shapes_differ = CO_INVALID_ARGUMENT,                      \
    .structures_differ = CO_ASSERTION_ERROR, .structures_reduced = CO_ASSERTION_ERROR,             \
    .left_alone = CO_RUNTIME_ERROR, .left_others = CO_RUNTIME_ERROR,                               \
    .merge_missed = CO_RUNTIME_ERROR, .names_differ = CO_RUNTIME_ERROR,                            \
    .gather_axis = CO_VALUE_ERROR, .unbatched = CO_VALUE_ERROR

/* All of them here. */
#define TOGETHER SEVERAL_HERE, .plain_sum = CO_VALUE_ERROR

/* Several here and others elsewhere: nobody knows that a value is the same everywhere, so there is
 * none that has no sum. */
#define SPREAD SEVERAL_HERE, .plain_sum = CO_OK

/* n replicas, one in each process: its results are not wrapped, its plain values are its component,
 * and nobody here can see that structures of other processes differ but where they are combined. */
#define APART                                                                                      \
    .result_kind = CO_KIND_TENSOR, .element_kind = CO_KIND_PER_REPLICA, .plain_sum = CO_OK,        \
    .mirrored_sum = CO_ASSERTION_ERROR, .shapes_differ = CO_INVALID_ARGUMENT,                      \
    .structures_differ = CO_OK, .structures_reduced = CO_ASSERTION_ERROR,                          \
    .left_alone = CO_RUNTIME_ERROR, .left_others = CO_OK, .gather_axis = CO_VALUE_ERROR,           \
    .unbatched = CO_VALUE_ERROR

#define MIRRORED(name_, n_, settings_, kind_, ...)                                                 \
    {                                                                                              \
        .row = name_, .is = &family_mirrored, .settings = settings_, .devices = { __VA_ARGS__ },   \
        .num_devices = (int)LENGTH(((const char *[]){ __VA_ARGS__ })), .n = n_, .local = n_,       \
        .workers = 1, .job = "/job:localhost", .reduced_to_device = CO_KIND_TENSOR,                \
        .reduced_to_variable = kind_, .make = make_mirrored, TOGETHER                              \
    }

#define WORKERS(name_, workers_, local_, settings_, job_, kind_, how_, ...)                        \
    {                                                                                              \
        .row = name_, .is = &family_workers, .settings = settings_, .devices = { __VA_ARGS__ },    \
        .num_devices = (int)LENGTH(((const char *[]){ __VA_ARGS__ })), .n = workers_ * local_,     \
        .local = local_, .workers = workers_, .job = job_, .reduced_to_device = CO_KIND_TENSOR,    \
        .reduced_to_variable = kind_, .make = make_workers, how_                                   \
    }

const suite_row suite_rows[] = {
    { .row = "default", .is = &family_default, .make = make_default, ALONE },
    { .row = "one-device",
      .is = &family_one_device,
      .settings = "cpus=2",
      .devices = { "/cpu:1" },
      .num_devices = 1,
      .make = make_one_device,
      ALONE },
    { .row = "mirrored-1",
      .is = &family_mirrored,
      .settings = "cpus=2",
      .devices = { "/cpu:1" },
      .num_devices = 1,
      .make = make_mirrored,
      ALONE },
    MIRRORED("mirrored-2", 2, "cpus=2", CO_KIND_MIRRORED, "/cpu:0", "/cpu:1"),
    MIRRORED("mirrored-3", 3, "cpus=3", CO_KIND_MIRRORED, "/cpu:0", "/cpu:1", "/cpu:2"),
    MIRRORED("mirrored-4", 4, "cpus=4", CO_KIND_MIRRORED, "/cpu:3", "/cpu:1", "/cpu:2", "/cpu:0"),
    MIRRORED("mirrored-gpu-2", 2, "devices=GPU:2", CO_KIND_MIRRORED, "/gpu:0", "/gpu:1"),
    /* Devices whose memory the host cannot touch (tests/backend). */
    { .row = "one-device-test",
      .is = &family_one_device,
      .settings = "devices=TEST:1",
      .devices = { "/device:TEST:0" },
      .num_devices = 1,
      .make = make_one_device,
      ALONE },
    MIRRORED("mirrored-test-2", 2, "devices=TEST:2", CO_KIND_MIRRORED, "/device:TEST:0",
             "/device:TEST:1"),
    MIRRORED("mirrored-test-3-on-2", 3, "devices=TEST:2", CO_KIND_MIRRORED, "/device:TEST:0",
             "/device:TEST:1"),
    /* More replicas than cores. */
    MIRRORED("mirrored-8", 8, "cpus=8", CO_KIND_MIRRORED, "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3",
             "/cpu:4", "/cpu:5", "/cpu:6", "/cpu:7"),
    /* Several replicas per device. */
    MIRRORED("mirrored-3-on-1", 3, "cpus=1", CO_KIND_TENSOR, "/cpu:0"),
    MIRRORED("mirrored-4-on-2", 4, "cpus=2", CO_KIND_MIRRORED, "/cpu:0", "/cpu:1"),
    /* Replicas that get unequal shares of every batch. */
    { .row = "mirrored-3-weighted",
      .is = &family_mirrored,
      .settings = "cpus=3",
      .devices = { "/cpu:0", "/cpu:1", "/cpu:2" },
      .num_devices = 3,
      .n = 3,
      .local = 3,
      .workers = 1,
      .job = "/job:localhost",
      .reduced_to_device = CO_KIND_TENSOR,
      .reduced_to_variable = CO_KIND_MIRRORED,
      .weights = { 3, 1, 2 },
      .make = make_mirrored,
      TOGETHER },
    /* Processes; where there are several, scripts/mpirun-here starts them. */
    WORKERS("workers-1x2", 1, 2, "cpus=2", "/job:localhost", CO_KIND_MIRRORED, TOGETHER, "/cpu:0",
            "/cpu:1"),
    WORKERS("workers-2x1", 2, 1, NULL, "/job:worker", CO_KIND_TENSOR, APART, "/cpu:0"),
    WORKERS("workers-2x2", 2, 2, "cpus=2", "/job:worker", CO_KIND_MIRRORED, SPREAD, "/cpu:0",
            "/cpu:1"),
    WORKERS("workers-3x1", 3, 1, NULL, "/job:worker", CO_KIND_TENSOR, APART, "/cpu:0"),
    /* Strategies that are defined with the public headers: see custom_strategy.h. */
    { .row = "own-plain",
      .is = &family_own_plain,
      .settings = "cpus=2",
      .devices = { "/cpu:1" },
      .num_devices = 1,
      .make = make_own,
      ALONE },
    { .row = "own-3-on-2",
      .is = &family_own,
      .settings = "cpus=2",
      .devices = { "/cpu:0", "/cpu:1" },
      .num_devices = 2,
      .n = 3,
      .local = 3,
      .workers = 1,
      .job = "/job:localhost",
      .reduced_to_device = CO_KIND_TENSOR,
      .reduced_to_variable = CO_KIND_MIRRORED,
      .make = make_own,
      TOGETHER },
    { .row = "workers-2x2-own",
      .is = &family_own_workers,
      .settings = "cpus=2",
      .devices = { "/cpu:0", "/cpu:1" },
      .num_devices = 2,
      .n = 4,
      .local = 2,
      .workers = 2,
      .job = "/job:worker",
      .reduced_to_device = CO_KIND_TENSOR,
      .reduced_to_variable = CO_KIND_MIRRORED,
      .make = make_own,
      SPREAD },
    WORKERS("workers-3x2", 3, 2, "cpus=2", "/job:worker", CO_KIND_MIRRORED, SPREAD, "/cpu:0",
            "/cpu:1"),
};
const size_t suite_num_rows = LENGTH(suite_rows);
