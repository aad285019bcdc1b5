/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of variables changed by indexed slices: VAR-MIR-8, VAR-SOR-5, and what is refused. */
#include "engine_support.h"

typedef co_value *(*scatter_fn)(co_context *ctx, co_value *variable, co_value *slices);

#define WRAP(name)                                                                                 \
    static co_value *call_##name(co_context *ctx, co_value *variable, co_value *slices)            \
    {                                                                                              \
        return co_##name(ctx, variable, slices);                                                   \
    }
WRAP(scatter_update)
WRAP(scatter_add)
WRAP(scatter_sub)
WRAP(scatter_mul)
WRAP(scatter_div)
WRAP(scatter_min)
WRAP(scatter_max)

enum { UPDATE, ADD, SUB, MUL, DIV, MIN, MAX, NUM_SCATTERS };
static const scatter_fn scatters[NUM_SCATTERS] = { call_scatter_update, call_scatter_add,
                                                   call_scatter_sub,    call_scatter_mul,
                                                   call_scatter_div,    call_scatter_min,
                                                   call_scatter_max };

/* Slices of vectors of numbers. */
static co_value *
slices(co_context *ctx, co_dtype dtype, const double *values, const int64_t *indices, int64_t n)
{
    co_value *rows = co_cast(ctx, co_tensor(ctx, CO_FLOAT64, &n, 1, values), dtype);

    return co_slices(ctx, rows, co_tensor(ctx, CO_INT64, &n, 1, indices), NULL);
}

static co_value *
make(co_context *ctx, co_strategy *strategy, co_dtype dtype, const double *values, int64_t n,
     co_aggregation aggregation)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *initial = co_cast(ctx, co_tensor(ctx, CO_FLOAT64, &n, 1, values), dtype);
    co_value           *v = NULL;

    options.name = "table";
    options.aggregation = aggregation;
    CO_SCOPE(ctx, strategy != NULL ? strategy : co_default_strategy(ctx))
        v = co_variable(ctx, initial, &options);
    return v;
}

static void
expect(co_context *ctx, co_value *value, const double *expected, int64_t n)
{
    double got[8] = { 0 };

    CO_EXPECT_OK(ctx);
    co_value_copy_data(ctx, value, CO_FLOAT64, got, 8);
    CO_EXPECT_OK(ctx);
    for (int64_t i = 0; i < n; ++i)
        CO_EXPECT_CLOSE(got[i], expected[i], 0);
}

static const co_dtype numbers[] = { CO_INT8,    CO_INT16,    CO_INT32,   CO_INT64,
                                    CO_UINT8,   CO_UINT16,   CO_UINT32,  CO_UINT64,
                                    CO_FLOAT16, CO_BFLOAT16, CO_FLOAT32, CO_FLOAT64 };

/* Index 1 comes twice: it is changed twice, in order. */
CO_TEST(every_scatter_of_every_dtype, "VAR-MIR-8")
{
    static const double  initial[4] = { 10, 40, 30, 7 }, values[3] = { 4, 2, 5 };
    static const int64_t indices[3] = { 1, 1, 3 };
    static const double  expected[NUM_SCATTERS][4] = {
         { 10, 2, 30, 5 },   { 10, 46, 30, 12 }, { 10, 34, 30, 2 }, { 10, 64, 30, 35 },
         { 10, 5, 30, 1.4 }, { 10, 2, 30, 5 },   { 10, 40, 30, 7 },
    };

    for (size_t d = 0; d < sizeof(numbers) / sizeof(numbers[0]); ++d)
        for (int op = 0; op < NUM_SCATTERS; ++op) {
            double    start[4] = { 10, op == MUL ? 8 : 40, 30, 7 }, want[4];
            co_value *v = make(ctx, NULL, numbers[d], op == MUL ? start : initial, 4,
                               CO_AGGREGATION_NONE);
            co_value *seen = scatters[op](ctx, v, slices(ctx, numbers[d], values, indices, 3));

            memcpy(want, expected[op], sizeof(want));
            if (op == DIV && !co_dtype_is_floating(numbers[d]))
                want[3] = 1; /* toward zero */
            if (op == DIV && co_dtype_is_floating(numbers[d]))
                want[3] = co_item_float(
                    ctx, co_div(ctx, co_cast(ctx, co_scalar_float(ctx, 7), numbers[d]),
                                co_cast(ctx, co_scalar_float(ctx, 5), numbers[d])));
            expect(ctx, v, want, 4);
            expect(ctx, seen, want, 4);
        }
}

CO_TEST(integers_wrap_and_divide_toward_zero, "VAR-MIR-8")
{
    static const struct {
        int64_t start, with, expected;
        int     op;
    } cases[] = {
        { -128, -1, -128, DIV }, { -7, 2, -3, DIV },    { 7, -2, -3, DIV },  { -128, 1, 127, SUB },
        { 100, 3, 44, MUL },     { 127, 1, -128, ADD }, { -5, -6, -6, MIN }, { -5, -6, -5, MAX },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        double        start = (double)cases[i].start, with = (double)cases[i].with;
        const int64_t zero = 0;
        co_value     *v = make(ctx, NULL, CO_INT8, &start, 1, CO_AGGREGATION_NONE);

        scatters[cases[i].op](ctx, v, slices(ctx, CO_INT8, &with, &zero, 1));
        expect(ctx, v, (double[]){ (double)cases[i].expected }, 1);
    }
    {
        const int64_t least = INT64_MIN, minus = -1, zero = 0, one = 1;
        co_value     *v = co_variable(ctx, co_tensor(ctx, CO_INT64, &one, 1, &least), NULL);

        co_scatter_div(ctx, v,
                       co_slices(ctx, co_tensor(ctx, CO_INT64, &one, 1, &minus),
                                 co_tensor(ctx, CO_INT64, &one, 1, &zero), NULL));
        CO_EXPECT_TRUE(co_item_int(ctx, v) == INT64_MIN);
    }
}

/* Rows of a matrix longer than what is converted at once, int32 indices, and what was read before
 * stays. */
CO_TEST(rows_of_a_matrix_are_changed_and_earlier_reads_stay, "VAR-MIR-8 VAR-MIR-1")
{
    enum { WIDTH = 300 };
    co_value *v = co_variable(ctx, co_ones(ctx, CO_INT16, CO_SHAPE(3, WIDTH)), NULL);
    co_value *rows = co_ones(ctx, CO_INT16, CO_SHAPE(2, WIDTH));
    co_value *at = co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ 2, 2 });
    co_value *before = co_variable_read(ctx, v);
    int64_t   sum = 0;
    int16_t   data[3 * WIDTH];

    co_scatter_sub(ctx, v, co_slices(ctx, rows, at, NULL));
    CO_EXPECT_CODE(co_value_copy_data(ctx, v, CO_INT16, data, 3 * WIDTH), CO_OK);
    for (int i = 0; i < 3 * WIDTH; ++i)
        sum += data[i];
    CO_EXPECT_INT(sum, WIDTH); /* 1 + 1 - 1 */
    CO_EXPECT_INT(data[3 * WIDTH - 1], -1);
    CO_EXPECT_INT(((const int16_t *)co_value_data(ctx, before))[3 * WIDTH - 1], 1);
    for (int i = 0; i < 3; ++i) /* in place from the second on */
        CO_BLOCK(ctx)
            co_scatter_add(ctx, v, co_slices(ctx, rows, at, NULL));
    CO_EXPECT_CODE(co_value_copy_data(ctx, v, CO_INT16, data, 3 * WIDTH), CO_OK);
    CO_EXPECT_INT(data[2 * WIDTH], 5);
    CO_EXPECT_INT(data[0], 1);
}

CO_TEST(texts_and_bools_can_be_replaced_alone, "VAR-MIR-8")
{
    const char *before[] = { "a", "bb", "ccc" }, *with[] = { "new", "" };
    co_value   *v = co_variable(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(3), before), NULL);
    co_value   *at = co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ 2, 0 });
    co_value   *s = co_slices(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(2), with), at, NULL), *now;
    co_value   *b = co_variable(ctx, co_tensor(ctx, CO_BOOL, CO_SHAPE(3), "\0\0\0"), NULL);
    size_t      length = 9;

    co_scatter_update(ctx, v, s);
    now = co_variable_read(ctx, v);
    CO_EXPECT_STR(co_string_at(ctx, now, 0, &length), "");
    CO_EXPECT_INT(length, 0);
    CO_EXPECT_STR(co_string_at(ctx, now, 1, NULL), "bb");
    CO_EXPECT_STR(co_string_at(ctx, now, 2, NULL), "new");
    CO_EXPECT_NULL(co_scatter_add(ctx, v, s));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "co_scatter_update");
    s = co_slices(ctx, co_tensor(ctx, CO_BOOL, CO_SHAPE(2), "\1\1"), at, NULL);
    co_scatter_update(ctx, b, s);
    expect(ctx, b, (double[]){ 1, 0, 1 }, 3);
    CO_EXPECT_NULL(co_scatter_max(ctx, b, s));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bool");
    /* Nothing to do is no error. */
    s = co_slices(ctx, co_zeros(ctx, CO_BOOL, CO_SHAPE(0)), co_zeros(ctx, CO_INT32, CO_SHAPE(0)),
                  NULL);
    CO_EXPECT_NOT_NULL(co_scatter_update(ctx, b, s));
    v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 0)), NULL);
    s = co_slices(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1, 0)),
                  co_zeros(ctx, CO_INT32, CO_SHAPE(1)), NULL);
    CO_EXPECT_NOT_NULL(co_scatter_add(ctx, v, s));
    v = co_variable(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(0), before), NULL);
    s = co_slices(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(0), before),
                  co_zeros(ctx, CO_INT32, CO_SHAPE(0)), NULL);
    CO_EXPECT_NOT_NULL(co_scatter_update(ctx, v, s));
}

CO_TEST_WITH(bad_slices_change_nothing, "VAR-MIR-8 GEN-ERR-1", "cpus=2")
{
    static const double  initial[3] = { 1, 2, 3 }, values[2] = { 5, 6 };
    static const int64_t high[2] = { 0, 3 }, low[2] = { 0, -1 }, fine[2] = { 0, 1 };
    co_strategy         *m = test_mirrored(ctx, 2, -1);
    co_strategy         *owners[2] = { NULL, m };

    for (int k = 0; k < 2; ++k) {
        co_value *v = make(ctx, owners[k], CO_FLOAT32, initial, 3, CO_AGGREGATION_NONE);
        co_value *i = make(ctx, owners[k], CO_INT32, initial, 3, CO_AGGREGATION_NONE);
        co_value *scalar = co_variable(ctx, co_float(ctx, 1), NULL);

        CO_EXPECT_NULL(co_scatter_add(ctx, v, slices(ctx, CO_FLOAT32, values, high, 2)));
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "'table' (made at ");
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "now under the default strategy");
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                        "indices[1] of the slices is 3; it must be in [0, 3)");
        CO_EXPECT_NULL(co_scatter_update(ctx, v, slices(ctx, CO_FLOAT32, values, low, 2)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "is -1");
        CO_EXPECT_NULL(co_scatter_add(ctx, v, slices(ctx, CO_FLOAT64, values, fine, 2)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "float64");
        CO_EXPECT_NULL(co_scatter_add(ctx, v,
                                      co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 2)),
                                                co_zeros(ctx, CO_INT32, CO_SHAPE(2)), NULL)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[2,2]");
        CO_EXPECT_NULL(co_scatter_add(ctx, scalar, slices(ctx, CO_FLOAT32, values, fine, 2)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "float32 []");
        CO_EXPECT_NULL(co_scatter_add(ctx, v, co_float(ctx, 1)));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_slices");
        CO_EXPECT_NULL(co_scatter_div(ctx, i, slices(ctx, CO_INT32, (double[]){ 2, 0 }, fine, 2)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "by 0");
        CO_EXPECT_NULL(co_scatter_add(ctx, v, NULL));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "slices");
        CO_EXPECT_NULL(
            co_scatter_add(ctx, co_float(ctx, 1), slices(ctx, CO_FLOAT32, values, fine, 2)));
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
        expect(ctx, v, initial, 3);
        expect(ctx, i, initial, 3);
    }
}

/* What a step scatters: values [1, id + 1] at [0, 2]. */
typedef struct work {
    co_value *v;
    int       op, other_op; /* of replica 0, of the others */
    co_value *shared;       /* given instead, by all */
} work;

static co_value *
scatter_in_step(co_context *ctx, co_value *args, void *user)
{
    const work   *w = user;
    double        values[2] = { 1, co_replica_id(ctx) + 1 };
    const int64_t indices[2] = { 0, 2 };
    co_value     *s = w->shared != NULL ? w->shared : slices(ctx, CO_FLOAT32, values, indices, 2);

    (void)args;
    return scatters[co_replica_id(ctx) == 0 ? w->op : w->other_op](ctx, w->v, s);
}

CO_TEST_WITH(scatters_in_a_step_are_aggregated, "VAR-MIR-8 VAR-MIR-4 VAR-MIR-5 VAR-MIR-6", "cpus=2")
{
    enum { NONE, SUM, MEAN, FIRST };
    static const struct {
        int     aggregation, op;
        double  a[3], b[3];
        co_code code;
    } cases[] = {
        { NONE, ADD, { 11, 10, 11 }, { 11, 10, 12 }, CO_OK },
        { SUM, ADD, { 12, 10, 13 }, { 12, 10, 13 }, CO_OK },
        { MEAN, ADD, { 11, 10, 11.5 }, { 11, 10, 11.5 }, CO_OK },
        { FIRST, ADD, { 11, 10, 11 }, { 11, 10, 11 }, CO_OK },
        { SUM, SUB, { 8, 10, 7 }, { 8, 10, 7 }, CO_OK },
        { SUM, MUL, { 10, 10, 20 }, { 10, 10, 20 }, CO_OK },
        { SUM, DIV, { 10, 10, 5 }, { 10, 10, 5 }, CO_OK },
        { MEAN, MUL, { 2.5, 10, 5 }, { 2.5, 10, 5 }, CO_OK }, /* each value is halved first */
        { NONE, UPDATE, { 1, 10, 1 }, { 1, 10, 2 }, CO_OK },
        { FIRST, UPDATE, { 1, 10, 1 }, { 1, 10, 1 }, CO_OK },
        { NONE, MIN, { 1, 10, 1 }, { 1, 10, 2 }, CO_OK },
        { FIRST, MAX, { 10, 10, 10 }, { 10, 10, 10 }, CO_OK },
        { SUM, UPDATE, { 10, 10, 10 }, { 10, 10, 10 }, CO_UNIMPLEMENTED },
        { MEAN, MIN, { 10, 10, 10 }, { 10, 10, 10 }, CO_UNIMPLEMENTED },
        { SUM, MAX, { 10, 10, 10 }, { 10, 10, 10 }, CO_UNIMPLEMENTED },
    };
    static const double initial[3] = { 10, 10, 10 };
    co_strategy        *m = test_mirrored(ctx, 2, -1);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        work      w = { make(ctx, m, CO_FLOAT32, initial, 3, (co_aggregation)cases[i].aggregation),
                        cases[i].op, cases[i].op, NULL };
        co_value *parts;

        co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
        CO_EXPECT_CODE(co_error(ctx)->code, cases[i].code);
        co_clear(ctx);
        parts = co_local_results(ctx, m, w.v);
        expect(ctx, co_at(ctx, parts, 0), cases[i].a, 3);
        expect(ctx, co_at(ctx, parts, 1), cases[i].b, 3);
    }
}

CO_TEST_WITH(what_replicas_cannot_scatter_together, "VAR-MIR-6 VAR-MIR-8", "cpus=2")
{
    static const double  initial[3] = { 10, 10, 10 }, values[1] = { 2 };
    static const int64_t index[1] = { 1 }, outside[1] = { 5 };
    co_strategy         *m = test_mirrored(ctx, 2, -1);
    work                 w = { make(ctx, m, CO_FLOAT32, initial, 3, CO_AGGREGATION_SUM), ADD, ADD,
                               slices(ctx, CO_FLOAT32, values, index, 1) };

    co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not defined");
    w.v = make(ctx, m, CO_FLOAT32, initial, 3, CO_AGGREGATION_MEAN);
    co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
    expect(ctx, w.v, (double[]){ 10, 12, 10 }, 3);
    w.other_op = SUB;
    w.shared = NULL;
    co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "scatter-subtracts from variable 'table'");
    w.other_op = ADD;
    w.shared = slices(ctx, CO_FLOAT32, values, outside, 1);
    co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
    CO_EXPECT_CONTAINS(co_error(ctx)->message, "in a step of MirroredStrategy");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "is 5");
    w.shared = co_scalar_float(ctx, 1);
    co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "a tensor");
    expect(ctx, w.v, (double[]){ 10, 12, 10 }, 3);
}

static co_value *
scatter_component(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)variable;
    return co_scatter_add(ctx, user, co_at(ctx, args, 0)); /* the container acts as the component */
}

CO_TEST_WITH(scatters_across_replicas_reach_all_components, "VAR-MIR-8 VAR-MIR-2 VAR-MIR-9",
             "cpus=2")
{
    static const double  initial[2] = { 1, 2 };
    static const int64_t index[1] = { 1 };
    co_strategy         *m = test_mirrored(ctx, 2, -1);
    co_value *v = make(ctx, m, CO_FLOAT32, initial, 2, CO_AGGREGATION_SUM), *r = NULL, *parts;
    co_value *each[2] = { slices(ctx, CO_FLOAT32, (double[]){ 10 }, index, 1),
                          slices(ctx, CO_FLOAT32, (double[]){ 20 }, index, 1) };
    co_value *plain = make(ctx, NULL, CO_FLOAT32, initial, 2, CO_AGGREGATION_NONE);

    CO_SCOPE(ctx, m)
        r = co_scatter_add(ctx, v, each[0]);
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_MIRRORED);
    expect(ctx, v, (double[]){ 1, 12 }, 2);
    co_scatter_add(ctx, v, co_per_replica_value(ctx, each, 2));
    CO_SCOPE(ctx, m)
        co_update(ctx, m, v, scatter_component, co_args(ctx, each[0]), v, NULL);
    parts = co_local_results(ctx, m, v);
    expect(ctx, co_at(ctx, parts, 0), (double[]){ 1, 32 }, 2);
    expect(ctx, co_at(ctx, parts, 1), (double[]){ 1, 42 }, 2);
    co_scatter_add(ctx, plain, co_mirrored_value(ctx, each, 2)); /* the first of equals */
    expect(ctx, plain, (double[]){ 1, 12 }, 2);
    CO_EXPECT_NULL(co_scatter_add(ctx, plain, co_per_replica_value(ctx, each, 2)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "per-replica");
    CO_EXPECT_NULL(co_scatter_add(ctx, v, co_per_replica_value(ctx, each, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    CO_SCOPE(ctx, co_one_device_strategy(ctx, NULL))
        CO_EXPECT_NULL(co_scatter_add(ctx, v, each[0]));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
}

static co_value *
scatter_captured(co_context *ctx, co_value *args, void *user)
{
    co_value **both = user;

    (void)args;
    return co_scatter_add(ctx, both[0], both[1]);
}

CO_TEST_WITH(one_device_and_captured_ordinary_variables, "OD-VAR-1 VAR-MIR-8 S-RUN-7", "cpus=2")
{
    static const double  initial[2] = { 1, 2 };
    static const int64_t index[1] = { 1 };
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:1"), *m = test_mirrored(ctx, 2, -1);
    co_value    *each[2] = { slices(ctx, CO_FLOAT32, (double[]){ 10 }, index, 1),
                             slices(ctx, CO_FLOAT32, (double[]){ 20 }, index, 1) };
    co_value    *both[2] = { make(ctx, one, CO_FLOAT32, initial, 2, CO_AGGREGATION_SUM), each[0] };

    co_run(ctx, one, scatter_captured, co_no_args(ctx), both);
    expect(ctx, both[0], (double[]){ 1, 12 }, 2);
    CO_EXPECT_NOT_NULL(co_scatter_update(ctx, both[0], each[1])); /* aggregation has no effect */
    expect(ctx, both[0], (double[]){ 1, 20 }, 2);
    both[0] = make(ctx, NULL, CO_FLOAT32, initial, 2, CO_AGGREGATION_NONE);
    both[1] = co_per_replica_value(ctx, each, 2); /* each replica its own, on one variable */
    co_run(ctx, m, scatter_captured, co_no_args(ctx), both);
    expect(ctx, both[0], (double[]){ 1, 32 }, 2);
}

CO_TEST_WITH(variables_synchronised_on_read_do_not_scatter, "VAR-SOR-5", "cpus=2")
{
    static const double  values[1] = { 1 };
    static const int64_t index[1] = { 0 };
    co_strategy         *m = test_mirrored(ctx, 2, -1);
    co_variable_options  options = CO_VARIABLE_OPTIONS_INIT;
    work                 w = { NULL, ADD, ADD, slices(ctx, CO_FLOAT32, values, index, 1) };

    options.synchronization = CO_SYNC_ON_READ;
    CO_SCOPE(ctx, m)
        w.v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)), &options);
    for (w.op = 0; w.op < NUM_SCATTERS; ++w.op) {
        CO_EXPECT_NULL(scatters[w.op](ctx, w.v, w.shared));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "synchronised on read");
        w.other_op = w.op;
        CO_EXPECT_NULL(co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "synchronised on read");
    }
}

static bool
scatter_everywhere(co_context *ctx)
{
    static const double  initial[40] = { 1 }, values[1] = { 1 };
    static const int64_t index[1] = { 39 };
    const char          *before[] = { "a", "bb" };
    co_strategy         *m = test_mirrored(ctx, 2, -1);
    work      w = { make(ctx, m, CO_FLOAT32, initial, 40, CO_AGGREGATION_NONE), ADD, ADD, NULL };
    co_value *t = co_variable(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(2), before), NULL);
    co_value *s = slices(ctx, CO_FLOAT32, values, index, 1);

    co_scatter_add(ctx, w.v, s);
    co_scatter_mul(ctx, w.v, s);
    co_scatter_update(ctx, t,
                      co_slices(ctx, co_variable_read(ctx, t),
                                co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ 1, 0 }), NULL));
    w.v = make(ctx, m, CO_FLOAT32, initial, 40, CO_AGGREGATION_SUM);
    co_run(ctx, m, scatter_in_step, co_no_args(ctx), &w);
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_memory_leaves_rows_alone, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", scatter_everywhere);
}
