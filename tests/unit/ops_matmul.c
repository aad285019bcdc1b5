/* SPDX-License-Identifier: Apache-2.0 */
/* matmul: against the plain kernel over sizes that hurt, gradients of two orders, threads,
 * errors. */
#include "context/context.h"
#include "kernel_support.h"

#include "ops/kernels/gemm.h"

static bool transpose_a, transpose_b;

static co_value *
product(co_context *ctx, co_value *const *in)
{
    return co_matmul_transposed(ctx, in[0], in[1], transpose_a, transpose_b);
}

/* Fast against plain for one shape, all four transpositions. */
static void
compare_shape(co_context *ctx, co_dtype dtype, int64_t m, int64_t n, int64_t k, double tolerance)
{
    for (int transposes = 0; transposes < 4; ++transposes)
        CO_BLOCK(ctx) {
            co_value *in[2];

            transpose_a = transposes & 1;
            transpose_b = transposes & 2;
            in[0] = kernel_tensor(ctx, dtype,
                                  transpose_a ? (int64_t[]){ k, m } : (int64_t[]){ m, k }, 2,
                                  (uint64_t)m);
            in[1] = kernel_tensor(ctx, dtype,
                                  transpose_b ? (int64_t[]){ n, k } : (int64_t[]){ k, n }, 2,
                                  (uint64_t)n);
            if (!CO_EXPECT_LESS(kernel_difference(ctx, product(ctx, in),
                                                  kernel_reference(ctx, product, in)),
                                tolerance))
                printf("  at %lld x %lld x %lld, transposed %d\n", (long long)m, (long long)n,
                       (long long)k, transposes);
        }
}

static const int64_t sizes[] = { 1, 2, 5, 6, 7, 13, 15, 16, 17, 31, 33, 61, 73, 129 };

static void
compare_many(co_context *ctx, co_dtype dtype, double tolerance)
{
    int num = (int)(sizeof(sizes) / sizeof(sizes[0]));

    for (int i = 0; i < num; ++i)
        for (int j = 0; j < num; ++j)
            compare_shape(ctx, dtype, sizes[i], sizes[j], sizes[(i * 5 + j * 3) % num], tolerance);
    compare_shape(ctx, dtype, 13, 40, 257, tolerance); /* one past a block of k */
    compare_shape(ctx, dtype, 75, 131, 515, tolerance);
    compare_shape(ctx, dtype, 300, 65, 70, tolerance);
}

CO_TEST(matmul_float32_agrees_with_the_plain_kernel, "")
{
    compare_many(ctx, CO_FLOAT32, 2e-6);
}

CO_TEST(matmul_float64_agrees_with_the_plain_kernel, "")
{
    compare_many(ctx, CO_FLOAT64, 1e-14);
}

CO_TEST_WITH(matmul_of_the_baseline_agrees_with_the_plain_kernel, "", "isa=base")
{
    compare_many(ctx, CO_FLOAT32, 2e-6);
    compare_many(ctx, CO_FLOAT64, 1e-14);
}

CO_TEST(matmul_of_half_floats_rounds_once, "")
{
    compare_shape(ctx, CO_FLOAT16, 7, 9, 33, 1e-3);
    compare_shape(ctx, CO_BFLOAT16, 7, 9, 33, 8e-3);
}

CO_TEST(matmul_of_integers_wraps_around, "")
{
    int32_t   big[1] = { 65537 };
    co_value *a = co_tensor(ctx, CO_INT32, CO_SHAPE(1, 1), big);

    CO_EXPECT_INT(co_item_int(ctx, co_matmul(ctx, a, a)), (int32_t)(65537u * 65537u));
}

CO_TEST(matmul_without_a_summed_dimension_is_zero, "")
{
    co_value *a = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 0));
    co_value *b = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 3));
    co_value *c = co_matmul(ctx, a, b);
    int64_t   n;
    double   *data = kernel_read(ctx, c, &n);

    CO_EXPECT_INT(n, 6);
    for (int64_t i = 0; i < n; ++i)
        CO_EXPECT_CLOSE(data[i], 0, 0);
    free(data);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_matmul_transposed(ctx, a, a, true, false)), 0);
}

/* Rows of a result do not depend on which other rows there are: batch sizes do not change bits. */
CO_TEST(matmul_gives_a_row_the_same_bits_in_any_batch, "")
{
    co_value *x = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 200, 300 }, 2, 1);
    co_value *w = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 300, 90 }, 2, 2);
    co_value *all = co_matmul(ctx, x, w);

    for (int64_t rows = 1; rows < 60; rows += 7) {
        co_value *some = co_matmul(
            ctx, co_slice(ctx, x, (int64_t[]){ 0, 0 }, (int64_t[]){ rows, 300 }, 2), w);

        CO_EXPECT_BYTES(co_value_data(ctx, some), co_value_data(ctx, all),
                        (size_t)rows * 90 * sizeof(float));
    }
}

/* [2,1,3,4] x [5,4,2] and every operand's gradient through broadcasting. */
CO_TEST(matmul_broadcasts_batches, "")
{
    static const int both[] = { 0, 1 };
    co_value        *in[2];

    transpose_a = transpose_b = false;
    in[0] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 2, 1, 3, 4 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 5, 4, 2 }, 3, 2);
    CO_EXPECT_INT(co_value_num_elements(ctx, product(ctx, in)), 2 * 5 * 3 * 2);
    CO_EXPECT_LESS(kernel_difference(ctx, product(ctx, in), kernel_reference(ctx, product, in)),
                   1e-15);
    kernel_check_gradients(ctx, product, in, 2, both, 2);
    in[0] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 3, 2, 4 }, 3, 3);
    in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 4, 5 }, 2, 4);
    kernel_check_gradients(ctx, product, in, 2, both, 2);
    transpose_b = true;
    in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 5, 4 }, 2, 4);
    kernel_check_gradients(ctx, product, in, 2, both, 2);
}

/* The gradient for input 0, as a function to be differentiated once more. */
static co_value *
gradient_of_a(co_context *ctx, co_value *const *in)
{
    co_tape_begin(ctx);
    co_watch(ctx, in[0]);
    return co_gradient(ctx, co_square(ctx, product(ctx, in)), in[0]);
}

CO_TEST(matmul_has_gradients_of_gradients, "")
{
    static const int both[] = { 0, 1 };

    for (int transposes = 0; transposes < 4; ++transposes) {
        co_value *in[2];

        transpose_a = transposes & 1;
        transpose_b = transposes & 2;
        in[0] = kernel_tensor(ctx, CO_FLOAT64,
                              transpose_a ? (int64_t[]){ 4, 3 } : (int64_t[]){ 3, 4 }, 2, 1);
        in[1] = kernel_tensor(ctx, CO_FLOAT64,
                              transpose_b ? (int64_t[]){ 2, 4 } : (int64_t[]){ 4, 2 }, 2, 2);
        kernel_check_gradients(ctx, product, in, 2, both, 2);
        kernel_check_gradients(ctx, gradient_of_a, in, 2, both, 2);
    }
}

static co_value *
large_product(co_context *ctx, co_value *const *in)
{
    (void)in;
    return co_matmul(ctx, kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 311, 523 }, 2, 1),
                     kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 523, 401 }, 2, 2));
}

static co_value *
many_products(co_context *ctx, co_value *const *in)
{
    (void)in;
    return co_matmul_transposed(ctx,
                                kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 37, 64, 33 }, 3, 1),
                                kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 37, 65, 33 }, 3, 2),
                                false, true);
}

CO_TEST_BARE(matmul_has_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(large_product);
    kernel_check_threads(many_products);
}

CO_TEST(matmul_rejects_what_does_not_fit, "GEN-ERR-4")
{
    co_value *a = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    co_value *v = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3));

    CO_EXPECT_NULL(co_matmul(ctx, a, a));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[2,3]");
    CO_EXPECT_NULL(co_matmul(ctx, a, v));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "at least 2 dimensions");
    CO_EXPECT_NULL(co_matmul(ctx, a, co_zeros(ctx, CO_FLOAT64, CO_SHAPE(3, 2))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "float64");
    CO_EXPECT_NULL(co_matmul(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 2, 3)),
                             co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 3, 2))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "batch");
    CO_EXPECT_NULL(co_matmul(ctx, a, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "NULL");
}

/* Steady state: packing takes its room from the pool. */
CO_TEST(matmul_allocates_nothing_in_steady_state, "")
{
    co_value       *a = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 128, 300 }, 2, 1);
    co_value       *b = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 300, 300 }, 2, 2);
    co_memory_stats before = { sizeof(before), 0, 0, 0, 0 }, after = before;

    if (TEST_SANITIZED)
        CO_SKIP("in sanitized builds every value is an allocation");
    for (int i = 0; i < 5000; ++i) /* dead cells wait before they are used again, in debug builds
                                    * for 4096 others */
        CO_BLOCK(ctx)
            co_int(ctx, i);
    for (int i = 0; i < 200; ++i) {
        CO_BLOCK(ctx) {
            co_matmul(ctx, a, b);
        }
        if (i == 99)
            co_get_memory_stats(ctx, &before);
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.system_allocations, before.system_allocations);
}

static bool
multiply_once(co_context *ctx)
{
    co_value *a = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 70, 80 }, 2, 1);
    co_value *b = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 80, 90 }, 2, 2);

    return co_matmul(ctx, a, b) != NULL;
}

CO_TEST_BARE(matmul_survives_no_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, multiply_once);
}

/* A product deeper than what is packed at a time goes in slabs of k, with the same bits as one
 * slab. */
CO_TEST(gemm_in_slabs_equals_gemm_in_one, "")
{
    enum { M = 30, N = 40, K = 1000 };
    const coi_gemm_kernels *kernels = coi_gemm_kernels_of(ctx->runtime->isa, CO_FLOAT32);
    static float            a[M * K], b[K * N], c[2][M * N];
    static _Alignas(COI_ALIGNMENT) char scratch[(M + N + 64) * K * sizeof(float)];
    uint64_t                            state = 5;

    for (int i = 0; i < M * K; ++i)
        a[i] = (float)kernel_noise(&state);
    for (int i = 0; i < K * N; ++i)
        b[i] = (float)kernel_noise(&state);
    for (int run = 0; run < 2; ++run) {
        coi_gemm_plan plan;

        coi_gemm_plan_init(&plan, kernels, COI_PACK_BY_SHAPE,
                           &(coi_gemm){ .m = M,
                                        .n = N,
                                        .k = K,
                                        .a = a,
                                        .a_row = 1,
                                        .a_col = M,
                                        .b = b,
                                        .b_row = 1,
                                        .b_col = K,
                                        .c = c[run],
                                        .c_row = N });
        if (run == 1)
            plan.slab = 2 * COI_GEMM_KC;
        CO_REQUIRE(coi_gemm_scratch(&plan, kernels) <= sizeof(scratch));
        coi_gemm_run(&plan, kernels, scratch);
    }
    CO_EXPECT_BYTES(c[0], c[1], sizeof(c[0]));
}

/* --- ways to carry out a product --- */

/* The product of one shape in one way, with a layer's bias and activation where nothing is
 * transposed. */
static void
multiply_into(co_context *ctx, co_dtype dtype, const int64_t *mnk, int transposes, char *to,
              size_t capacity)
{
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];

    CO_BLOCK(ctx) {
        co_value *a = kernel_tensor(ctx, dtype,
                                    transposes & 1 ? (int64_t[]){ k, m } : (int64_t[]){ m, k }, 2,
                                    3);
        co_value *b = kernel_tensor(ctx, dtype,
                                    transposes & 2 ? (int64_t[]){ n, k } : (int64_t[]){ k, n }, 2,
                                    4);
        co_value *bias = kernel_tensor(ctx, dtype, &n, 1, 5);
        co_value *c = transposes == 0
                          ? co_dense(ctx, a, b, bias, CO_ACTIVATION_RELU)
                          : co_matmul_transposed(ctx, a, b, transposes & 1, transposes & 2);
        size_t    nbytes = (size_t)(m * n) * (dtype == CO_FLOAT64 ? 8 : 4);

        CO_EXPECT_OK(ctx);
        CO_REQUIRE(nbytes <= capacity);
        memcpy(to, co_value_data(ctx, c), nbytes);
    }
}

static void
expect_same_bits(co_context *const *ctxs, const char *const *ways, int num_ways, co_dtype dtype,
                 const int64_t *mnk, int transposes)
{
    static char first[1 << 20], other[1 << 20];
    size_t      nbytes = (size_t)(mnk[0] * mnk[1]) * (dtype == CO_FLOAT64 ? 8 : 4);

    multiply_into(ctxs[0], dtype, mnk, transposes, first, sizeof(first));
    for (int w = 1; w < num_ways; ++w) {
        multiply_into(ctxs[w], dtype, mnk, transposes, other, sizeof(other));
        if (!CO_EXPECT_BYTES(other, first, nbytes))
            printf("  at %lld x %lld x %lld, transposed %d, %s\n", (long long)mnk[0],
                   (long long)mnk[1], (long long)mnk[2], transposes, ways[w]);
    }
}

/* At the borders of tiles, slabs and GEMMs of small K too. A way is a text of settings. */
static void
expect_same_products(const char *const *ways, int num_ways)
{
    static const int64_t shapes[][3] = {
        { 1, 1, 1 },      { 5, 3, 8 },      { 16, 10, 8 },    { 17, 10, 9 },   { 128, 10, 64 },
        { 33, 7, 300 },   { 130, 31, 17 },  { 64, 1, 515 },   { 200, 9, 256 }, { 73, 130, 16 },
        { 72, 64, 17 },   { 12, 32, 10 },   { 13, 33, 10 },   { 6, 16, 16 },   { 74, 17, 513 },
        { 24, 129, 257 }, { 25, 129, 257 }, { 145, 143, 37 }, { 4, 200, 600 }, { 300, 20, 1000 },
        { 128, 512, 10 }, { 66, 97, 9 },    { 128, 10, 512 }, { 10, 64, 300 }, { 22, 64, 65 },
        { 34, 96, 64 },   { 144, 65, 300 }, { 145, 64, 70 },  { 31, 160, 16 }, { 18, 100, 129 },
        { 64, 64, 256 },  { 192, 64, 64 },  { 64, 10, 512 },
    };
    co_context *ctxs[8];

    CO_REQUIRE(num_ways <= 8);
    for (int w = 0; w < num_ways; ++w)
        CO_REQUIRE((ctxs[w] = co_open(ways[w])) != NULL);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i)
        for (int transposes = 0; transposes < 4; ++transposes) {
            expect_same_bits(ctxs, ways, num_ways, CO_FLOAT32, shapes[i], transposes);
            expect_same_bits(ctxs, ways, num_ways, CO_FLOAT64, shapes[i], transposes);
        }
    for (int w = 0; w < num_ways; ++w)
        CO_EXPECT_CODE(co_close(ctxs[w]), CO_OK);
}

/* Packing and turning are a matter of speed alone. */
CO_TEST_BARE(products_have_the_same_bits_in_every_way, "")
{
    static const char *const ways[] = { "gemm=auto", "gemm=plain", "gemm=a",
                                        "gemm=b",    "gemm=both",  "gemm=transposed" };

    expect_same_products(ways, 6);
}

CO_TEST_BARE(products_have_the_same_bits_with_longer_vectors, "")
{
    static const char *const ways[] = { "isa=v3", "isa=v4", "isa=v4, gemm=both",
                                        "isa=v4, gemm=transposed" };
    co_error_info            err;
    coi_isa                  isa;

    coi_error_reset(&err);
    if (coi_isa_choose("v4", &isa, &err) != CO_OK)
        CO_SKIP("the processor has no AVX-512");
    expect_same_products(ways, 4);
}

/* Tiles are smaller for a team: of one thread, of two, of more. */
CO_TEST_BARE(products_have_the_same_bits_with_any_number_of_threads, "")
{
    static const char *const ways[] = { "cpus=1, threads=1",
                                        "cpus=1, threads=2",
                                        "cpus=1, threads=3",
                                        "cpus=1, threads=2, gemm=both",
                                        "cpus=1, threads=2, gemm=transposed",
                                        "cpus=1, threads=3, gemm=b" };

    expect_same_products(ways, 6);
}
