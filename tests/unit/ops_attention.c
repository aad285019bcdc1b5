/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: against the plain kernel and the composition, sizes that hurt, what causal means,
 * steady memory, errors. */
#include "context/context.h"
#include "hooks.h"
#include "kernel_support.h"
#include "ops_support.h"

/* One problem: [items, queries, heads * depth], [items, keys, heads * depth], [items, keys, heads *
 * width]. */
typedef struct problem {
    int64_t items, heads, queries, keys, depth, width;
    bool    causal;
    double  scale;
} problem;

static problem now;
static int     wanted; /* the input whose gradient is asked for */

static co_value *
attend(co_context *ctx, co_value *const *in)
{
    return co_attention(ctx, in[0], in[1], in[2], now.heads,
                        &(co_attention_options){ sizeof(co_attention_options), now.causal,
                                                 now.scale });
}

static co_value *
attend_back(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, attend, in, wanted);
}

static void
make_inputs(co_context *ctx, co_dtype dtype, co_value **in)
{
    in[0] = kernel_tensor(ctx, dtype, (int64_t[]){ now.items, now.queries, now.heads * now.depth },
                          3, 1);
    in[1] = kernel_tensor(ctx, dtype, (int64_t[]){ now.items, now.keys, now.heads * now.depth }, 3,
                          2);
    in[2] = kernel_tensor(ctx, dtype, (int64_t[]){ now.items, now.keys, now.heads * now.width }, 3,
                          3);
}

static co_value *
split(co_context *ctx, co_value *x)
{
    x = co_reshape(ctx, x,
                   CO_SHAPE(now.items, co_value_dim(ctx, x, 1), now.heads,
                            co_value_dim(ctx, x, 2) / now.heads));
    return co_transpose(ctx, x, (int[]){ 0, 2, 1, 3 }, 4);
}

/* The same, made of other operators. */
static co_value *
composition(co_context *ctx, co_value *const *in)
{
    double    scale = now.scale != 0 ? now.scale : 1 / sqrt((double)now.depth);
    co_value *q = split(ctx, in[0]), *k = split(ctx, in[1]), *v = split(ctx, in[2]);
    co_value *scores = co_mul(ctx, co_matmul_transposed(ctx, q, k, false, true),
                              co_float(ctx, scale));

    if (now.causal) {
        co_value *ones = co_ones(ctx, CO_FLOAT32, CO_SHAPE(now.queries, now.keys));
        co_value *seen = co_cast(ctx, co_band_part(ctx, ones, -1, 0), CO_BOOL);

        scores = co_where(ctx, seen, scores, co_float(ctx, -1e30));
    }
    v = co_matmul(ctx, co_softmax(ctx, scores, -1), v);
    return co_reshape(ctx, co_transpose(ctx, v, (int[]){ 0, 2, 1, 3 }, 4),
                      CO_SHAPE(now.items, now.queries, now.heads * now.width));
}

static co_value *
composition_back(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, composition, in, wanted);
}

static void
expect_all_agree(co_context *ctx, co_dtype dtype, double limit, bool with_composition)
{
    co_value *in[3];

    make_inputs(ctx, dtype, in);
    for (wanted = -1; wanted < 3; ++wanted) {
        kernel_fn fn = wanted < 0 ? attend : attend_back;
        co_value *got = fn(ctx, in);
        bool      agree = CO_EXPECT_LESS(kernel_difference(ctx, got, kernel_reference(ctx, fn, in)),
                                         limit);

        if (with_composition) {
            co_value *other = (wanted < 0 ? composition : composition_back)(ctx, in);

            agree = CO_EXPECT_LESS(kernel_difference(ctx, got, other), limit) && agree;
        }
        if (!agree)
            test_fail(TEST_AT,
                      "see %s, wanted %d: items %lld heads %lld queries %lld keys %lld depth %lld "
                      "width %lld causal %d",
                      co_dtype_name(dtype), wanted, (long long)now.items, (long long)now.heads,
                      (long long)now.queries, (long long)now.keys, (long long)now.depth,
                      (long long)now.width, now.causal);
    }
}

static const problem problems[] = {
    { 1, 1, 1, 1, 1, 1, false, 0 },     { 2, 3, 7, 7, 5, 5, true, 0 },
    { 2, 1, 1, 37, 16, 9, false, 0 },   { 1, 2, 13, 29, 8, 3, true, 0 },
    { 1, 2, 29, 13, 8, 3, true, 0 },    { 1, 2, 13, 29, 8, 3, false, 2.5 },
    { 2, 4, 64, 64, 32, 32, true, 0 },  { 1, 4, 64, 64, 32, 32, false, 0 },
    { 1, 1, 49, 65, 17, 33, false, 0 }, { 1, 2, 61, 61, 64, 64, true, -0.5 },
    { 1, 1, 211, 211, 6, 7, true, 0 },  { 1, 1, 211, 300, 6, 7, true, 0 },
    { 1, 1, 601, 100, 4, 3, true, 0 },  { 1, 1, 601, 601, 4, 3, true, 0 },
    { 1, 1, 397, 23, 3, 2, false, 0 },  { 1, 1, 30, 3001, 4, 4, false, 0 },
    { 1, 1, 30, 3001, 4, 4, true, 0 },  { 1, 1, 20, 20, 300, 3, false, 0 },
};

CO_TEST(attention_agrees_with_the_plain_kernel_and_the_composition, "")
{
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); ++i) {
        now = problems[i];
        expect_all_agree(ctx, CO_FLOAT32, 2e-6, true);
        expect_all_agree(ctx, CO_FLOAT64, 1e-12, true);
    }
}

CO_TEST(attention_of_halves_rounds_once, "")
{
    static const double units[] = { 1e-3, 8e-3 };

    for (int i = 0; i < 2; ++i) {
        now = (problem){ 2, 2, 17, 19, 8, 5, true, 0 };
        expect_all_agree(ctx, i == 0 ? CO_FLOAT16 : CO_BFLOAT16, units[i], false);
    }
}

/* Nothing to sum over gives zeros; nothing to give, an empty result. */
CO_TEST(attention_has_empty_dimensions, "")
{
    for (int empty = 0; empty < 5; ++empty)
        for (int causal = 0; causal < 2; ++causal) {
            int64_t sizes[5] = { 2, 3, 4, 5, 6 };

            sizes[empty] = 0;
            now = (problem){ sizes[0], 2, sizes[1], sizes[2], sizes[3], sizes[4], causal == 1, 0 };
            expect_all_agree(ctx, CO_FLOAT32, 1e-6, false);
        }
}

/* heads = 1 over [batch, heads, time, channels] is what other libraries call the same. */
CO_TEST(attention_takes_heads_as_a_dimension_too, "")
{
    co_value *in[3], *transposed[3], *y, *z;

    now = (problem){ 2, 3, 21, 23, 8, 4, true, 0 };
    make_inputs(ctx, CO_FLOAT32, in);
    for (int i = 0; i < 3; ++i)
        transposed[i] = split(ctx, in[i]);
    y = split(ctx, attend(ctx, in));
    z = co_attention(ctx, transposed[0], transposed[1], transposed[2], 1,
                     &(co_attention_options){ sizeof(co_attention_options), true, 0 });
    CO_EXPECT_INT(co_value_ndim(ctx, z), 4);
    CO_EXPECT_INT(ops_compare(ctx, y, z), 0);
    z = co_attention(ctx, co_reshape(ctx, transposed[0], CO_SHAPE(6, 21, 8)),
                     co_reshape(ctx, transposed[1], CO_SHAPE(6, 23, 8)),
                     co_reshape(ctx, transposed[2], CO_SHAPE(6, 23, 4)), 1,
                     &(co_attention_options){ sizeof(co_attention_options), true, 0 });
    CO_EXPECT_INT(ops_compare(ctx, co_reshape(ctx, y, CO_SHAPE(6, 21, 4)), z), 0);
    now = (problem){ 1, 1, 5, 5, 3, 3, false, 0 };
    make_inputs(ctx, CO_FLOAT32, in);
    y = attend(ctx, in);
    for (int i = 0; i < 3; ++i) /* a matrix is one item */
        in[i] = co_reshape(ctx, in[i], CO_SHAPE(5, 3));
    CO_EXPECT_INT(ops_compare(ctx, co_reshape(ctx, y, CO_SHAPE(5, 3)), attend(ctx, in)), 0);
}

/* What comes later changes no bit of what came before, and gets no gradient from it. */
CO_TEST(causal_attention_sees_nothing_of_what_comes_later, "")
{
    co_value *in[3], *other[3], *y, *z, *grads;
    int64_t   n;
    double   *late;

    now = (problem){ 1, 2, 70, 70, 8, 8, true, 0 };
    make_inputs(ctx, CO_FLOAT32, in);
    for (int i = 0; i < 3; ++i)
        other[i] = co_concat(
            ctx,
            co_list(ctx,
                    (co_value *[]){
                        co_slice(ctx, in[i], (int64_t[]){ 0, 0, 0 }, (int64_t[]){ 1, 41, 16 }, 3),
                        co_fill(ctx, CO_SHAPE(1, 29, 16), co_scalar_float(ctx, 7)) },
                    2),
            1);
    y = co_slice(ctx, attend(ctx, in), (int64_t[]){ 0, 0, 0 }, (int64_t[]){ 1, 41, 16 }, 3);
    z = co_slice(ctx, attend(ctx, other), (int64_t[]){ 0, 0, 0 }, (int64_t[]){ 1, 41, 16 }, 3);
    CO_EXPECT_INT(ops_compare(ctx, y, z), 0);
    co_tape_begin(ctx);
    co_watch(ctx, co_tuple(ctx, in, 3));
    y = co_slice(ctx, attend(ctx, in), (int64_t[]){ 0, 0, 0 }, (int64_t[]){ 1, 41, 16 }, 3);
    grads = co_gradient(ctx, y, co_tuple(ctx, in, 3));
    for (size_t i = 0; i < 3; ++i) {
        late = kernel_read(ctx,
                           co_slice(ctx, co_at(ctx, grads, i), (int64_t[]){ 0, 41, 0 },
                                    (int64_t[]){ 1, 29, 16 }, 3),
                           &n);
        CO_EXPECT_INT(n, 29 * 16);
        for (int64_t e = 0; e < n; ++e)
            CO_EXPECT_CLOSE(late[e], 0, 0);
        free(late);
    }
}

/* Large scores leave one key; all alike give the mean. */
CO_TEST(attention_of_extremes, "")
{
    float     q[] = { 1e4f, 0, 0, 0 }, k[] = { 1, 0, -1, 0 }, v[] = { 2, 3, 4, 5 };
    co_value *in[3] = { co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), q),
                        co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), k),
                        co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), v) };
    int64_t   n;
    double   *y = kernel_read(ctx,
                              co_attention(ctx, in[0], in[1], in[2], 1,
                                           &(co_attention_options){ sizeof(co_attention_options),
                                                                    false, 1 }),
                              &n);
    double    want[] = { 2, 3, 3, 4 };

    for (int i = 0; i < 4; ++i)
        CO_EXPECT_CLOSE(y[i], want[i], 0);
    free(y);
}

static bool
attend_once(co_context *ctx)
{
    co_value *in[3];

    now = (problem){ 2, 2, 40, 40, 8, 8, true, 0 };
    wanted = 1;
    make_inputs(ctx, CO_FLOAT32, in);
    return attend_back(ctx, in) != NULL;
}

CO_TEST_BARE(attention_survives_no_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, attend_once);
    CO_EXPECT_SURVIVES_NO_MEMORY("reference_kernels=yes", attend_once);
}

CO_TEST_WITH(attention_allocates_nothing_in_steady_state, "", "threads=1")
{
    co_memory_stats before = { sizeof(before), 0, 0, 0, 0 }, after = before;

#ifdef COI_DEBUG
    CO_SKIP("debug builds keep dead values for a while");
#endif
    if (TEST_SANITIZED)
        CO_SKIP("in sanitized builds every value is an allocation");
    for (int i = 0; i < 200; ++i) { /* dead cells wait in a ring, which first has to fill */
        CO_BLOCK(ctx) {
            co_value *in[3];

            now = (problem){ 4, 4, 64, 64, 32, 32, true, 0 };
            make_inputs(ctx, CO_FLOAT32, in);
            attend_back(ctx, in);
        }
        if (i == 99)
            co_get_memory_stats(ctx, &before);
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.system_allocations, before.system_allocations);
}

#define Z(...) co_zeros(ctx, CO_FLOAT32, CO_SHAPE(__VA_ARGS__))
OPS_REJECTED(rank_1, co_attention(ctx, Z(4), Z(4), Z(4), 1, NULL))
OPS_REJECTED(ranks, co_attention(ctx, Z(2, 3, 4), Z(3, 4), Z(3, 4), 1, NULL))
OPS_REJECTED(batches, co_attention(ctx, Z(2, 3, 4), Z(1, 3, 4), Z(2, 3, 4), 1, NULL))
OPS_REJECTED(channels, co_attention(ctx, Z(2, 3, 4), Z(2, 3, 5), Z(2, 3, 4), 1, NULL))
OPS_REJECTED(rows, co_attention(ctx, Z(2, 3, 4), Z(2, 3, 4), Z(2, 2, 4), 1, NULL))
OPS_REJECTED(heads, co_attention(ctx, Z(2, 3, 4), Z(2, 3, 4), Z(2, 3, 4), 3, NULL))
OPS_REJECTED(value_heads, co_attention(ctx, Z(2, 3, 4), Z(2, 3, 4), Z(2, 3, 3), 2, NULL))
OPS_REJECTED(no_heads, co_attention(ctx, Z(2, 3, 4), Z(2, 3, 4), Z(2, 3, 4), 0, NULL))
OPS_REJECTED(integers,
             co_attention(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(3, 4)), Z(3, 4), Z(3, 4), 1, NULL))
OPS_REJECTED(dtypes, co_attention(ctx, Z(3, 4), co_zeros(ctx, CO_FLOAT64, CO_SHAPE(3, 4)), Z(3, 4),
                                  1, NULL))

CO_TEST(attention_rejects_what_does_not_fit, "GEN-ERR-4")
{
    static const ops_rejection all[] = {
        OPS_REJECTION(rank_1, "q has shape [4], k [4] and v [4]; they must have one rank"),
        OPS_REJECTION(ranks, "attention: q has shape [2,3,4], k [3,4]"),
        OPS_REJECTION(batches, "k [1,3,4] and v [2,3,4]; they must have one rank"),
        OPS_REJECTION(channels, "the same last dimension"),
        OPS_REJECTION(rows, "one row per key"),
        OPS_REJECTION(heads, "heads is 3; it must be at least 1 and divide the channels of q and k "
                             "(4)"),
        OPS_REJECTION(value_heads, "of v (3)"),
        OPS_REJECTION(no_heads, "heads is 0"),
        OPS_REJECTION(integers, "q has dtype int32"),
        OPS_REJECTION(dtypes, "k has dtype float64"),
    };

    ops_expect_rejections(ctx, all, sizeof(all) / sizeof(all[0]));
}
