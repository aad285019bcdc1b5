/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator that has an optimised kernel against its plain one, results and gradients, over
 * random shapes of sizes that hurt: nothing, one, primes, one past a vector, a panel or a tile.
 * What one kernel refuses the other refuses too. Sizes are capital letters
 * in the text of a call: "r[A,B] r[B,C]".
 */
#include "ops_rows.h"

#include "ops/engine/op.h"

enum { NUM_DRAWS = 12, NUM_LETTERS = 5, MOST_ELEMENTS = 20000, MOST_TEXT = 200 };

static bool
has_kernels(const co_op_info *info)
{
    return coi_op_find(info->name)->run != NULL;
}

/* A letter by itself, not one of a word. */
static bool
is_size(const char *text, const char *at)
{
    char before = at == text ? ' ' : at[-1];

    return *at >= 'A' && *at < 'A' + NUM_LETTERS && strchr("[,=ij", before) != NULL &&
           !(at[1] >= 'A' && at[1] <= 'Z');
}

static void
fill_in(const char *text, const int64_t *sizes, char *out)
{
    size_t used = 0;

    for (const char *at = text; *at != '\0'; ++at)
        if (is_size(text, at))
            used += (size_t)snprintf(out + used, MOST_TEXT - used, "%lld",
                                     (long long)sizes[*at - 'A']);
        else
            out[used++] = *at;
    out[used] = '\0';
}

/* Letters are drawn anew until no input or result has too many elements for plain kernels. */
static void
draw_sizes(ops_random *random, int64_t *sizes)
{
    static const int64_t hurting[] = { 0,  1,  2,  3,  5,  6,  7,  8,  9,  13, 15, 16,
                                       17, 24, 25, 31, 33, 48, 49, 64, 65, 73, 97, 129 };
    int64_t              product;

    do {
        product = 1;
        for (int i = 0; i < NUM_LETTERS; ++i) {
            int64_t n = (int64_t)(sizeof(hurting) / sizeof(hurting[0])) / (i < 3 ? 1 : 3);

            sizes[i] = hurting[ops_below(random, n)];
            product *= i < 3 && sizes[i] > 0 ? sizes[i] : 1;
        }
    } while (product > MOST_ELEMENTS);
}

typedef struct outcome {
    co_value *results, *gradients; /* tuples; NULL where there is none */
    co_code   code, gradient_code;
} outcome;

static outcome
run_row(co_context *ctx, const ops_row *row, const ops_row_call *call, bool is_reference)
{
    outcome   out = { NULL, NULL, CO_OK, CO_OK };
    co_value *real[LITERAL_MOST];
    size_t    num_real;

    coi_use_reference(ctx, is_reference);
    co_tape_begin(ctx);
    for (size_t i = 0; i < call->num_in; ++i)
        if (ops_is_real(call->in[i]))
            co_watch(ctx, call->in[i]);
    out.results = ops_row_results(ctx, row, call);
    out.code = co_error(ctx)->code;
    co_clear(ctx);
    num_real = out.code == CO_OK ? ops_row_real(ctx, row, out.results, real, LITERAL_MOST) : 0;
    if (num_real > 0 && call->num_in > 0)
        out.gradients = co_gradient(ctx, co_tuple(ctx, real, num_real),
                                    co_tuple(ctx, call->in, call->num_in));
    else
        co_tape_end(ctx);
    out.gradient_code = co_error(ctx)->code;
    co_clear(ctx);
    coi_use_reference(ctx, false);
    return out;
}

/* How far two tensors are apart, in roundings of their largest element; huge where one is finite
 * and the other is not. */
static double
roundings_apart(co_context *ctx, co_value *a, co_value *b)
{
    double   worst = 0, size = 1, x, y, rounding;
    co_dtype dtype;

    if (co_value_kind(a) == CO_KIND_NONE && co_value_kind(b) == CO_KIND_NONE)
        return 0;
    a = co_to_tensor(ctx, a, CO_DTYPE_NONE);
    b = co_to_tensor(ctx, b, CO_DTYPE_NONE);
    if (a == NULL || b == NULL || a->dtype != b->dtype || !coi_same_shape(a, b))
        return 1e301;
    dtype = (co_dtype)a->dtype;
    if (!co_dtype_is_floating(dtype))
        return ops_compare(ctx, a, b);
    rounding = dtype == CO_FLOAT64   ? 0x1p-53
               : dtype == CO_FLOAT32 ? 0x1p-24
               : dtype == CO_FLOAT16 ? 0x1p-11
                                     : 0x1p-8;
    for (int pass = 0; pass < 2; ++pass)
        for (int64_t i = 0; i < a->u.tensor.num_elements; ++i) {
            size_t at = (size_t)i * co_dtype_size(dtype);

            coi_convert(dtype, (const char *)a->u.tensor.data + at, CO_FLOAT64, &x, 1);
            coi_convert(dtype, (const char *)b->u.tensor.data + at, CO_FLOAT64, &y, 1);
            if (pass == 0 && isfinite(y))
                size = fmax(size, fabs(y));
            else if (pass == 1 && x != y && !(isnan(x) && isnan(y)))
                worst = fmax(worst, isfinite(x - y) ? fabs(x - y) / size / rounding : 1e300);
        }
    return worst;
}

static double
farthest(co_context *ctx, co_value *a, co_value *b)
{
    double worst = 0;

    if (a == NULL || b == NULL)
        return a == b ? 0 : 1e302;
    if (co_num_items(ctx, a) != co_num_items(ctx, b))
        return 1e302;
    for (size_t i = 0; i < co_num_items(ctx, a); ++i)
        worst = fmax(worst, roundings_apart(ctx, co_at(ctx, a, i), co_at(ctx, b, i)));
    return worst;
}

/* Roundings: results and gradients are sums of up to some hundred elements (44 apart were seen in a
 * sum of 387); gradients of filters are sums over thousands of pixels, and those of layers go
 * through an activation before. */
static double
limit_of(const ops_row *row)
{
    return strncmp(row->name, "conv2d", 6) == 0 ? 512 : 64;
}

/* One row with sizes filled in. Returns whether it was computed. */
static bool
check_row(co_context *ctx, const ops_row *row, co_dtype real)
{
    ops_row_call call;
    outcome      fast, plain;
    double       apart, limit = limit_of(row);

    ops_row_inputs(ctx, row, real, &call);
    fast = run_row(ctx, row, &call, false);
    plain = run_row(ctx, row, &call, true);
    apart = farthest(ctx, fast.results, plain.results);
    if (fast.code == CO_OK && apart <= limit)
        apart = fmax(apart, farthest(ctx, fast.gradients, plain.gradients));
    if (fast.code != plain.code || fast.gradient_code != plain.gradient_code || !(apart <= limit))
        test_fail(TEST_AT, "%s of %s, %s, r is %s: codes %d %d, %d %d; %g roundings apart",
                  row->name, row->inputs, row->attrs, co_dtype_name(real), (int)fast.code,
                  (int)plain.code, (int)fast.gradient_code, (int)plain.gradient_code, apart);
    return fast.code == CO_OK;
}

/* From the text, so that a new operator leaves the sizes of the others as they were. */
static uint64_t
seed_of(const ops_row *row)
{
    const char *texts[] = { row->name, row->inputs, row->attrs };
    uint64_t    seed = 17;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i)
        for (const char *at = texts[i]; *at != '\0'; ++at)
            seed = (seed ^ (uint64_t)*at) * UINT64_C(1099511628211);
    return seed;
}

static void
check_rows(co_context *ctx)
{
    static const co_dtype reals[] = { CO_FLOAT32, CO_FLOAT64, CO_FLOAT32, CO_FLOAT16 };
    static ops_rows       rows;
    char                  inputs[MOST_TEXT], attrs[MOST_TEXT];
    int64_t               sizes[NUM_LETTERS];

    ops_rows_fill(&rows, ops_sizes, has_kernels);
    for (size_t r = 0; r < rows.num; ++r) {
        ops_random random = { seed_of(&rows.at[r]) };
        int        computed = 0;

        for (int draw = 0; draw < NUM_DRAWS; ++draw)
            CO_BLOCK(ctx) {
                ops_row row = rows.at[r];

                draw_sizes(&random, sizes);
                fill_in(rows.at[r].inputs, sizes, inputs);
                fill_in(rows.at[r].attrs, sizes, attrs);
                row.inputs = inputs;
                row.attrs = attrs;
                computed += check_row(ctx, &row, reals[draw % 4]);
            }
        if (!CO_EXPECT_MORE(computed, 2))
            test_fail(TEST_AT, "%s of %s, %s was computed %d times of %d", rows.at[r].name,
                      rows.at[r].inputs, rows.at[r].attrs, computed, NUM_DRAWS);
    }
}

CO_TEST(kernels_agree_with_the_plain_ones_at_sizes_that_hurt, "")
{
    check_rows(ctx);
}

CO_TEST_WITH(baseline_kernels_agree_with_the_plain_ones_at_sizes_that_hurt, "", "isa=base")
{
    check_rows(ctx);
}

CO_TEST(no_operator_with_kernels_is_left_out, "")
{
    ops_expect_rows(ops_sizes, has_kernels);
}
