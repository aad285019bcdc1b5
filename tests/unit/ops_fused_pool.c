/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolutional layer under max pooling: its gradients in one pass against those of double and of
 * its parts, the layers for which they are taken, the same bits whatever else uses the result or is
 * asked for, ties, NaN, threads, errors.
 */
#include "context/context.h"
#include "kernel_support.h"

#define DIMS(...) ((const int64_t[]){ __VA_ARGS__ })

typedef struct layer {
    int64_t       x[4], w[4];
    int64_t       stride;
    co_padding    padding;
    co_activation activation;
} layer;

static co_value *
apply(co_context *ctx, const layer *l, co_value *x, co_value *w, co_value *b)
{
    co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;

    options.padding = l->padding;
    options.strides[0] = options.strides[1] = l->stride;
    return co_conv2d_bias(ctx, x, w, b, l->activation, &options);
}

/* The sum of the maxima of y, each weighed with noise. */
static co_value *
pooled_loss(co_context *ctx, co_value *y, uint64_t seed)
{
    co_value *pooled = co_max_pool2d(ctx, y, NULL);
    int64_t   dims[4];

    for (int i = 0; i < 4; ++i)
        dims[i] = co_value_dim(ctx, pooled, i);
    return co_reduce_sum(ctx,
                         co_mul(ctx, pooled,
                                co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, dims, 4, seed),
                                        co_value_dtype(ctx, y))),
                         CO_ALL_AXES, false);
}

/* The gradients of filter and bias as a list: of the pair, or of its parts, which the record
 * between them sets apart. */
static co_value *
gradients(co_context *ctx, const layer *l, co_dtype dtype, bool apart)
{
    co_value *x = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1), dtype);
    co_value *w = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2), dtype);
    co_value *b = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3), dtype);
    co_value *weights = co_list(ctx, (co_value *[]){ w, b }, 2), *y;

    co_tape_begin(ctx);
    co_watch(ctx, weights);
    y = apply(ctx, l, x, w, b);
    return co_gradient(ctx, pooled_loss(ctx, apart ? co_identity(ctx, y) : y, 4), weights);
}

static int num_fused;

static void
count_fused(co_log_level level, const char *line, void *user)
{
    (void)level, (void)user;
    num_fused += strstr(line, "conv2d_pooled_grad ") != NULL;
}

static co_context *
open_counting(const char *settings)
{
    co_options options = CO_OPTIONS_INIT;

    num_fused = 0;
    options.settings = settings;
    options.log = count_fused;
    return co_open_with(&options);
}

/* Filters of one to twelve runs, rows of them that fill runs and that do not, odd counts of rows,
 * several chunks, vectors of channels. */
static const layer layers[] = {
    { { 20, 28, 28, 1 }, { 3, 3, 1, 32 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    { { 3, 10, 14, 1 }, { 5, 5, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    { { 3, 8, 6, 3 }, { 3, 3, 3, 48 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE },
    { { 2, 6, 6, 32 }, { 1, 1, 32, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_RELU },
    { { 2, 9, 11, 2 }, { 2, 2, 2, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_RELU },
    { { 2, 15, 11, 4 }, { 3, 3, 4, 16 }, 2, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    { { 1, 3, 3, 1 }, { 2, 2, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE },
    { { 5, 16, 9, 1 }, { 1, 2, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_RELU },
    { { 2, 5, 8, 1 }, { 12, 1, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
};
enum { NUM_LAYERS = sizeof(layers) / sizeof(layers[0]) };

/* The plain kernel adds up thousands of numbers one after the other. */
static void
compare(co_context *ctx, const layer *l)
{
    double    most = (ctx->special & COI_SPECIAL_REFERENCE) != 0 ? 5e-6 : 2e-6;
    co_value *got = gradients(ctx, l, CO_FLOAT32, false);
    co_value *want = gradients(ctx, l, CO_FLOAT64, false);
    co_value *apart = gradients(ctx, l, CO_FLOAT32, true);

    for (size_t i = 0; i < 2; ++i) {
        CO_EXPECT_LESS(kernel_difference(ctx, co_at(ctx, got, i), co_at(ctx, want, i)), most);
        CO_EXPECT_LESS(kernel_difference(ctx, co_at(ctx, apart, i), co_at(ctx, want, i)), most);
    }
}

static void
compare_all(const char *settings)
{
    co_context *ctx = open_counting(settings);
    int         most = 0;

    for (int i = 0; i < NUM_LAYERS; ++i) {
        bool even = i != 8; /* the last one has rows that pooling leaves out */

        most += even;
        CO_BLOCK(ctx) {
            compare(ctx, &layers[i]);
        }
        if (!CO_EXPECT_INT(num_fused, ctx->runtime->isa == COI_ISA_BASE ? 0 : most))
            printf("  layer %d with %s\n", i, settings);
    }
    CO_EXPECT_INT(co_close(ctx), CO_OK);
}

CO_TEST_BARE(gradients_of_pooled_layers_in_one_pass_are_those_of_their_parts, "")
{
    compare_all("log=debug");
}

CO_TEST_BARE(gradients_of_pooled_layers_of_the_baseline, "")
{
    compare_all("log=debug,isa=base");
}

static bool
has_v3(void)
{
    co_error_info err;
    coi_isa       isa;

    coi_error_reset(&err);
    return coi_isa_choose("v3", &isa, &err) == CO_OK;
}

CO_TEST_BARE(gradients_of_pooled_layers_with_shorter_vectors, "")
{
    if (!has_v3())
        CO_SKIP("the processor has no AVX2, or the build");
    compare_all("log=debug,isa=v3");
}

CO_TEST(gradients_of_pooled_layers_with_the_plain_kernel, "")
{
    coi_use_reference(ctx, true);
    for (int i = 0; i < NUM_LAYERS; ++i)
        CO_BLOCK(ctx) {
            compare(ctx, &layers[i]);
        }
    coi_use_reference(ctx, false);
}

static co_value *
with_threads(co_context *ctx, co_value *const *in)
{
    static const layer l = {
        { 64, 28, 28, 1 }, { 3, 3, 1, 32 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU
    };
    co_value *both = gradients(ctx, &l, CO_FLOAT32, false);

    (void)in;
    return co_concat(ctx,
                     co_list(ctx,
                             (co_value *[]){ co_reshape(ctx, co_at(ctx, both, 0), CO_SHAPE(-1)),
                                             co_at(ctx, both, 1) },
                             2),
                     0);
}

CO_TEST_BARE(gradients_of_pooled_layers_have_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(with_threads);
}

/* Layers that are not for it: the same bits as the parts, since these it is. */
static void
check_others(co_context *ctx)
{
    static const layer others[] = {
        { { 2, 8, 8, 1 }, { 3, 3, 1, 10 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 2, 8, 8, 1 }, { 7, 7, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 2, 8, 8, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_TANH },
        { { 2, 8, 8, 2 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 2, 9, 8, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
        { { 0, 8, 8, 1 }, { 3, 3, 1, 10 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU },
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
        CO_BLOCK(ctx) {
            co_value *got = gradients(ctx, &others[i], CO_FLOAT32, false);
            co_value *want = gradients(ctx, &others[i], CO_FLOAT32, true);

            for (size_t k = 0; k < 2; ++k)
                CO_EXPECT_TRUE(kernel_difference(ctx, co_at(ctx, got, k), co_at(ctx, want, k)) ==
                               0);
        }
    CO_EXPECT_INT(num_fused, 0);
}

static void
check_counting(void (*check)(co_context *ctx))
{
    co_context *own = open_counting("log=debug");

    check(own);
    CO_EXPECT_INT(co_close(own), CO_OK);
}

CO_TEST_BARE(other_layers_go_apart, "")
{
    check_counting(check_others);
}

CO_TEST(gradients_of_an_empty_batch_of_a_pooled_layer_are_zeros, "")
{
    static const layer l = {
        { 0, 8, 8, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU
    };
    co_value *both = gradients(ctx, &l, CO_FLOAT32, false);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_global_norm(ctx, both)), 0, 0);
}

/* --- the same bits, whatever else is there --- */

/* What else uses the result y of the layer, what is asked for, how the tape is. */
enum {
    READ_BEFORE = 1 << 0, /* the largest of y, by the host, before the pooling and after it */
    READ_AFTER = 1 << 1,
    STOPPED_BEFORE = 1 << 2, /* a stopped gradient of y is part of the loss */
    STOPPED_AFTER = 1 << 3,
    ZERO_BEFORE = 1 << 4, /* a sum of y times 0 is part of the loss */
    ZERO_AFTER = 1 << 5,
    BETWEEN = 1 << 6, /* records that do not use y */
    PERSISTENT = 1 << 7,
    TWICE = 1 << 8, /* with PERSISTENT: the second gradients count */
    OUTER = 1 << 9, /* another tape records the backward pass */
    FOR_Y = 1 << 10,
    FOR_X = 1 << 11,
    NOT_FOR_W = 1 << 12,
    NOT_FOR_B = 1 << 13,
    NUM_HOW = 14
};

enum { W, B, X, Y, NUM_OF };

typedef struct found {
    co_value *of[NUM_OF]; /* NULL: not asked for */
} found;

static co_value *
add_user(co_context *ctx, co_value *loss, co_value *y, bool read, bool stopped, bool zero)
{
    if (read)
        CO_EXPECT_TRUE(isfinite(co_item_float(ctx, co_reduce_max(ctx, y, CO_ALL_AXES, false))));
    if (stopped)
        loss = co_add(ctx, loss, co_reduce_sum(ctx, co_stop_gradient(ctx, y), CO_ALL_AXES, false));
    if (zero)
        loss = co_add(ctx, loss,
                      co_mul(ctx, co_reduce_sum(ctx, y, CO_ALL_AXES, false), co_float(ctx, 0)));
    return loss;
}

static found
take_gradients(co_context *ctx, co_value *loss, co_value *const all[NUM_OF], unsigned how)
{
    const bool asked[NUM_OF] = { (how & NOT_FOR_W) == 0, (how & NOT_FOR_B) == 0, (how & FOR_X) != 0,
                                 (how & FOR_Y) != 0 };
    co_value  *sources[NUM_OF], *grads;
    found      got = { { NULL } };
    size_t     n = 0;

    for (int i = 0; i < NUM_OF; ++i)
        if (asked[i])
            sources[n++] = all[i];
    grads = co_gradient(ctx, loss, co_list(ctx, sources, n));
    n = 0;
    for (int i = 0; i < NUM_OF; ++i)
        if (asked[i])
            got.of[i] = co_at(ctx, grads, n++);
    return got;
}

/* in: filter, bias, images. */
static found
gradients_how(co_context *ctx, const layer *l, co_value *const in[Y], unsigned how)
{
    bool      persistent = (how & PERSISTENT) != 0;
    co_value *all[NUM_OF] = { in[W], in[B], in[X], NULL }, *y, *loss;
    co_value *watched = co_list(ctx, all, Y);
    found     got;

    if ((how & OUTER) != 0) {
        co_tape_begin(ctx);
        co_watch(ctx, watched);
    }
    if (persistent)
        co_tape_begin_persistent(ctx);
    else
        co_tape_begin(ctx);
    co_watch(ctx, watched);
    y = all[Y] = apply(ctx, l, in[X], in[W], in[B]);
    loss = add_user(ctx, co_float(ctx, 0), y, (how & READ_BEFORE) != 0, (how & STOPPED_BEFORE) != 0,
                    (how & ZERO_BEFORE) != 0);
    if ((how & BETWEEN) != 0)
        co_reduce_sum(ctx, co_square(ctx, co_mul(ctx, in[W], in[B])), CO_ALL_AXES, false);
    loss = co_add(ctx, loss, pooled_loss(ctx, y, 4));
    loss = add_user(ctx, loss, y, (how & READ_AFTER) != 0, (how & STOPPED_AFTER) != 0,
                    (how & ZERO_AFTER) != 0);
    got = take_gradients(ctx, loss, all, how);
    if (persistent && (how & TWICE) != 0)
        got = take_gradients(ctx, loss, all, how);
    if (persistent)
        co_tape_end(ctx);
    if ((how & OUTER) != 0)
        co_tape_end(ctx);
    return got;
}

/* Adding a zero may change the sign of one, so both get one more. */
static bool
same_bits(co_context *ctx, co_value *a, co_value *b)
{
    int64_t n = co_value_num_elements(ctx, a);

    a = co_add(ctx, a, co_float(ctx, 0));
    b = co_add(ctx, b, co_float(ctx, 0));
    return co_ok(ctx) && n == co_value_num_elements(ctx, b) &&
           memcmp(co_value_data(ctx, a), co_value_data(ctx, b), (size_t)n * sizeof(float)) == 0;
}

/* How many gradients that were asked for have other bits than `want`. */
static int
count_others(co_context *ctx, const found *got, const found *want)
{
    int others = 0;

    for (int i = 0; i < NUM_OF; ++i)
        others += got->of[i] != NULL && !same_bits(ctx, got->of[i], want->of[i]);
    return others;
}

/* Each alone, and some together. */
static unsigned
how_of(int i, uint64_t *noise)
{
    if (i < NUM_HOW)
        return 1u << i | (1u << i == TWICE ? (unsigned)PERSISTENT : 0u);
    *noise = *noise * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*noise >> 33) & ((1u << NUM_HOW) - 1);
}

static int
count_layers_with_others(co_context *ctx, const layer *l, uint64_t seed, unsigned *last)
{
    co_value *in[Y] = { kernel_tensor(ctx, CO_FLOAT32, l->w, 4, seed + 2),
                        kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, seed + 3),
                        kernel_tensor(ctx, CO_FLOAT32, l->x, 4, seed + 1) };
    found     alone = gradients_how(ctx, l, in, 0);
    found     want = gradients_how(ctx, l, in, FOR_X | FOR_Y | NOT_FOR_W | NOT_FOR_B);
    int       others = 0;

    memcpy(want.of, alone.of, 2 * sizeof(want.of[0]));
    for (int i = 0; i < NUM_HOW + 10; ++i) {
        unsigned how = how_of(i, &seed);
        found    got;

        if ((how & NOT_FOR_W) != 0 && (how & NOT_FOR_B) != 0 && (how & (FOR_X | FOR_Y)) == 0)
            continue;
        CO_BLOCK(ctx) {
            int differ;

            got = gradients_how(ctx, l, in, how);
            differ = count_others(ctx, &got, &want);
            others += differ;
            *last = differ > 0 ? how : *last;
        }
    }
    return others;
}

/* A number from `least` to `most`. */
static int64_t
draw(uint64_t *noise, int64_t least, int64_t most)
{
    return least + (int64_t)((kernel_noise(noise) + 1) / 2 * (double)(most - least + 1));
}

/* Small ones; most of them are for the kernel. */
static layer
draw_layer(uint64_t *noise)
{
    layer l = { .x = { draw(noise, 1, 6), 2 * draw(noise, 3, 8), 2 * draw(noise, 3, 8), 1 },
                .stride = draw(noise, 1, 5) == 1 ? 2 : 1,
                .padding = draw(noise, 1, 3) == 1 ? CO_PADDING_VALID : CO_PADDING_SAME,
                .activation = draw(noise, 1, 3) == 1 ? CO_ACTIVATION_NONE : CO_ACTIVATION_RELU };

    l.x[3] = draw(noise, 1, 4);
    l.w[0] = draw(noise, 1, 3);
    l.w[1] = draw(noise, 1, 3);
    l.w[2] = l.x[3];
    l.w[3] = draw(noise, 1, 8) == 1 ? 10 : 16 * draw(noise, 1, 3);
    return l;
}

enum { NUM_DRAWN = 40 };

static void
check_drawn(co_context *ctx)
{
    uint64_t noise = 7;
    int      fused = 0;

    for (int i = 0; i < NUM_DRAWN + NUM_LAYERS; ++i)
        CO_BLOCK(ctx) {
            layer    l = i < NUM_DRAWN ? draw_layer(&noise) : layers[i - NUM_DRAWN];
            unsigned how = 0;

            num_fused = 0;
            if (!CO_EXPECT_INT(count_layers_with_others(ctx, &l, (uint64_t)(100 * i), &how), 0))
                printf("  layer %d: images of %d x %d x %d, filter %d x %d x %d, how %x\n", i,
                       (int)l.x[1], (int)l.x[2], (int)l.x[3], (int)l.w[0], (int)l.w[1], (int)l.w[3],
                       how);
            fused += num_fused > 0;
            CO_EXPECT_OK(ctx);
        }
    if (ctx->runtime->isa != COI_ISA_BASE)
        CO_EXPECT_MORE(fused, NUM_DRAWN / 2);
}

CO_TEST_BARE(bits_of_gradients_of_pooled_layers_are_the_same_whatever_else_is_used, "")
{
    check_counting(check_drawn);
}

CO_TEST_BARE(bits_of_gradients_of_pooled_layers_are_the_same_with_shorter_vectors, "")
{
    co_context *own;

    if (!has_v3())
        CO_SKIP("the processor has no AVX2, or the build");
    own = open_counting("log=debug,isa=v3");
    check_drawn(own);
    CO_EXPECT_INT(co_close(own), CO_OK);
}

CO_TEST_WITH(bits_of_gradients_of_pooled_layers_are_the_same_with_the_baseline, "", "isa=base")
{
    check_drawn(ctx);
}

CO_TEST(bits_of_gradients_of_pooled_layers_are_the_same_with_the_plain_kernel, "")
{
    unsigned how = 0;

    coi_use_reference(ctx, true);
    for (int i = 1; i < NUM_LAYERS; ++i)
        CO_BLOCK(ctx) {
            CO_EXPECT_INT(count_layers_with_others(ctx, &layers[i], 7, &how), 0);
        }
    coi_use_reference(ctx, false);
}

/* On every replica, with variables, and in the sum over replicas. */
static co_value *
train_once(co_context *ctx, co_value *args, void *user)
{
    const layer *l = &layers[1];
    unsigned     how = *(const unsigned *)user;
    co_value    *in[Y] = { co_at(ctx, args, 0), co_at(ctx, args, 1),
                           kernel_tensor(ctx, CO_FLOAT32, l->x, 4,
                                         20 + (uint64_t)co_replica_id(ctx)) };
    found        got = gradients_how(ctx, l, in, how);
    co_value    *both = co_list(ctx, got.of, 2);

    return co_list(ctx, (co_value *[]){ both, co_all_reduce(ctx, CO_REDUCE_SUM, both) }, 2);
}

static co_value *
step_how(co_context *ctx, co_strategy *s, co_value *args, unsigned how, int i)
{
    co_value *results = co_run(ctx, s, train_once, args, &how), *parts[4];
    size_t    n = 0;

    for (int k = 0; k < 2; ++k) /* of each replica, and of the sum on the first */
        parts[n++] = co_at(ctx,
                           co_local_results(ctx, s, co_at(ctx, co_at(ctx, results, 0), (size_t)i)),
                           (size_t)k);
    parts[n++] = co_at(ctx, co_local_results(ctx, s, co_at(ctx, co_at(ctx, results, 1), (size_t)i)),
                       0);
    return co_stack(ctx, co_list(ctx, parts, n), 0);
}

CO_TEST_WITH(bits_of_gradients_of_pooled_layers_are_the_same_on_replicas, "", "cpus=2")
{
    const layer *l = &layers[1];
    co_strategy *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *weights[2] = { NULL, NULL };
    uint64_t     noise = 3;

    CO_SCOPE(ctx, s) {
        weights[0] = co_variable(ctx, kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2), NULL);
        weights[1] = co_variable(ctx, kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3), NULL);
    }
    for (int i = 0; i < NUM_HOW + 10; ++i) {
        unsigned how = how_of(i, &noise) & ~(unsigned)(NOT_FOR_W | NOT_FOR_B);

        for (int k = 0; k < 2; ++k)
            CO_BLOCK(ctx) {
                co_value *args = co_args(ctx, weights[0], weights[1]);

                if (!CO_EXPECT_TRUE(same_bits(ctx, step_how(ctx, s, args, how, k),
                                              step_how(ctx, s, args, 0, k))))
                    printf("  gradient %d, how %x\n", k, how);
            }
    }
    CO_EXPECT_OK(ctx);
}

/* Two poolings of one layer: each pair gives its gradient, and these are added. A third user goes
 * through the layer's own gradient, as it does where it is the only one. */
static co_value *
sum_of_users(co_context *ctx, const layer *l, co_value *const in[Y], unsigned users, bool for_x)
{
    co_value *all[NUM_OF] = { in[W], in[B], in[X], NULL }, *y, *loss = co_float(ctx, 0);

    co_tape_begin(ctx);
    co_watch(ctx, co_list(ctx, all, Y));
    y = apply(ctx, l, in[X], in[W], in[B]);
    if ((users & 1) != 0)
        loss = co_add(ctx, loss, pooled_loss(ctx, y, 4));
    if ((users & 2) != 0)
        loss = co_add(ctx, loss, pooled_loss(ctx, y, 5));
    if ((users & 4) != 0)
        loss = co_add(ctx, loss, co_reduce_sum(ctx, co_square(ctx, y), CO_ALL_AXES, false));
    return co_gradient(ctx, loss, co_list(ctx, all, for_x ? Y : X));
}

static void
check_sums(co_context *ctx)
{
    /* The last one first, as the backward pass goes; but the layer's own step comes at its end. */
    static const unsigned order[3] = { 2, 1, 4 };

    for (int k = 0; k < NUM_LAYERS - 1; ++k)
        for (unsigned users = 1; users < 8; ++users)
            CO_BLOCK(ctx) {
                const layer *l = &layers[k];
                co_value    *in[Y] = { kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2),
                                       kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3),
                                       kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1) };
                co_value    *got = sum_of_users(ctx, l, in, users, users % 2 == 0);

                for (size_t i = 0; i < (users % 2 == 0 ? 3 : 2); ++i) {
                    co_value *want = NULL;

                    for (int u = 0; u < 3; ++u)
                        if ((users & order[u]) != 0) {
                            co_value *one = co_at(ctx, sum_of_users(ctx, l, in, order[u], true), i);

                            want = want != NULL ? co_add(ctx, want, one) : one;
                        }
                    if (!CO_EXPECT_TRUE(same_bits(ctx, co_at(ctx, got, i), want)))
                        printf("  layer %d, users %x, gradient %zu\n", k, users, i);
                }
            }
}

CO_TEST(gradients_of_several_poolings_of_a_layer_are_added, "")
{
    if (ctx->runtime->isa == COI_ISA_BASE)
        CO_SKIP("the baseline has no kernel for pairs");
    check_sums(ctx);
}

/* The gradient of y itself, which other users and poolings add to, and which does not flow on
 * twice: those of the parts, which have the same bits here. */
CO_TEST(the_gradient_of_the_result_of_a_pooled_layer_is_that_of_all_its_users, "")
{
    for (int k = 0; k < NUM_LAYERS - 1; ++k)
        CO_BLOCK(ctx) {
            const layer *l = &layers[k];
            co_value    *w = kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2), *got[2];
            co_value    *b = kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3);
            co_value    *x = kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1);

            for (int watched = 0; watched < 2; ++watched) {
                co_value *y = apply(ctx, l, x, w, b), *loss, *ys[2];

                co_tape_begin(ctx);
                co_watch(ctx, watched != 0 ? y : w);
                y = watched != 0 ? y : apply(ctx, l, x, w, b);
                loss = co_reduce_sum(ctx, co_square(ctx, y), CO_ALL_AXES, false);
                loss = co_add(ctx, loss, pooled_loss(ctx, y, 4));
                loss = co_add(ctx, loss, co_reduce_sum(ctx, co_exp(ctx, y), CO_ALL_AXES, false));
                loss = co_add(ctx, loss, pooled_loss(ctx, y, 5));
                loss = co_add(ctx, loss, co_reduce_sum(ctx, co_sin(ctx, y), CO_ALL_AXES, false));
                ys[0] = y;
                ys[1] = w;
                got[watched] = co_at(ctx,
                                     co_gradient(ctx, loss, co_list(ctx, ys, watched != 0 ? 1 : 2)),
                                     0);
            }
            CO_EXPECT_TRUE(same_bits(ctx, got[0], got[1]));
        }
}

/* The kernel is taken in every case, and what other users give is counted once. */
static void
check_users(co_context *ctx)
{
    layer     l = { { 2, 6, 6, 1 }, { 3, 3, 1, 16 }, 1, CO_PADDING_SAME, CO_ACTIVATION_RELU };
    co_value *x = kernel_tensor(ctx, CO_FLOAT32, l.x, 4, 1);
    co_value *w = kernel_tensor(ctx, CO_FLOAT32, l.w, 4, 2);
    co_value *b = kernel_tensor(ctx, CO_FLOAT32, &l.w[3], 1, 3);

    for (int what = 0; what < 5; ++what) {
        co_value *y, *pooled, *before = NULL, *after = NULL, *sources[3] = { w, b, x }, *got, *loss;
        double    want;

        co_tape_begin(ctx);
        co_watch(ctx, co_list(ctx, sources, 3));
        y = apply(ctx, &l, x, w, b);
        if (what == 1)
            before = co_reduce_sum(ctx, y, CO_ALL_AXES, false);
        pooled = co_max_pool2d(ctx, y, NULL);
        if (what == 2)
            after = co_reduce_sum(ctx, y, CO_ALL_AXES, false);
        loss = co_reduce_sum(ctx, pooled, CO_ALL_AXES, false);
        if (before != NULL || after != NULL)
            loss = co_add(ctx, loss, before != NULL ? before : after);
        if (what == 3)
            sources[2] = y;
        got = co_gradient(ctx, loss, co_list(ctx, sources, what >= 3 ? 3 : 2));
        CO_EXPECT_OK(ctx);
        CO_EXPECT_INT(num_fused, ctx->runtime->isa == COI_ISA_BASE ? 0 : what + 1);
        /* The gradient of the bias counts: active maxima, and active pixels where y is summed. */
        want = co_item_float(
            ctx,
            co_reduce_sum(ctx, co_cast(ctx, co_greater(ctx, pooled, co_int(ctx, 0)), CO_FLOAT32),
                          CO_ALL_AXES, false));
        if (what == 1 || what == 2)
            want += co_item_float(
                ctx,
                co_reduce_sum(ctx, co_cast(ctx, co_greater(ctx, y, co_int(ctx, 0)), CO_FLOAT32),
                              CO_ALL_AXES, false));
        CO_EXPECT_CLOSE(co_item_float(ctx,
                                      co_reduce_sum(ctx, co_at(ctx, got, 1), CO_ALL_AXES, false)),
                        want, 1e-3);
    }
}

CO_TEST_BARE(a_layer_that_is_used_twice_is_a_pair_with_its_pooling, "")
{
    check_counting(check_users);
}

/* With everything that a pair gives. */
static bool
gradients_once(co_context *ctx)
{
    const layer *l = &layers[1];
    co_value    *in[Y] = { kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2),
                           kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3),
                           kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1) };

    return gradients(ctx, l, CO_FLOAT32, false) != NULL &&
           gradients_how(ctx, l, in, FOR_X | FOR_Y).of[Y] != NULL;
}

CO_TEST_BARE(gradients_of_pooled_layers_survive_no_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, gradients_once);
}

/* Second derivatives, of the penalty that the norm of some gradients is (bits: of filter, bias,
 * images): an outer tape records the backward pass of the inner one. Double goes by the parts. */
static co_value *
penalty_slopes(co_context *ctx, const layer *l, co_dtype dtype, unsigned some, bool for_x)
{
    co_value *x = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->x, 4, 1), dtype);
    co_value *w = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, l->w, 4, 2), dtype);
    co_value *b = co_cast(ctx, kernel_tensor(ctx, CO_FLOAT32, &l->w[3], 1, 3), dtype);
    co_value *sources[3] = { w, b, x }, *all = co_list(ctx, sources, 3), *pooled, *inner, *used[3];
    size_t    n = 0;

    co_tape_begin(ctx);
    co_watch(ctx, all);
    co_tape_begin(ctx);
    co_watch(ctx, all);
    pooled = co_max_pool2d(ctx, apply(ctx, l, x, w, b), NULL);
    inner = co_gradient(ctx, co_reduce_sum(ctx, co_square(ctx, pooled), CO_ALL_AXES, false),
                        co_list(ctx, sources, for_x ? 3 : 2));
    for (size_t i = 0; i < 3; ++i)
        if ((some & 1u << i) != 0)
            used[n++] = co_at(ctx, inner, i);
    return co_gradient(ctx, co_global_norm(ctx, co_list(ctx, used, n)), all);
}

static void
check_slopes(co_context *ctx)
{
    /* The backward pass makes two kernels of one, with and without images. */
    static const struct {
        unsigned some;
        bool     for_x;
    } cases[] = { { 3, false }, { 2, false }, { 7, true }, { 4, true }, { 6, true } };
    enum { NUM_CASES = sizeof(cases) / sizeof(cases[0]) };

    for (int i = 0; i < NUM_LAYERS; ++i)
        for (int c = 0; c < NUM_CASES; ++c)
            CO_BLOCK(ctx) {
                unsigned  some = cases[c].some;
                bool      for_x = cases[c].for_x;
                co_value *got = penalty_slopes(ctx, &layers[i], CO_FLOAT32, some, for_x);
                co_value *want = penalty_slopes(ctx, &layers[i], CO_FLOAT64, some, for_x);

                for (size_t k = 0; k < 3; ++k)
                    if (!CO_EXPECT_LESS(
                            kernel_difference(ctx, co_at(ctx, got, k), co_at(ctx, want, k)), 1e-5))
                        printf("  layer %d, norm of %x, gradient %zu\n", i, some, k);
            }
    /* In the pass of each tape, for all layers but the last. */
    CO_EXPECT_INT(num_fused,
                  ctx->runtime->isa == COI_ISA_BASE ? 0 : 2 * NUM_CASES * (NUM_LAYERS - 1));
}

CO_TEST_BARE(second_derivatives_of_pooled_layers_are_those_of_double, "")
{
    check_counting(check_slopes);
}

/* The kernel itself, by name, of double: at each window one maximum that differences do not
 * move. */
static struct {
    const char *activation;
    co_value   *y, *pooled;
} named;

static co_value *
by_name(co_context *ctx, co_value *const *in)
{
    const char *keys[] = { "sizes", "padding", "activation" };
    co_value   *sizes[4] = { co_int(ctx, 3), co_int(ctx, 2), co_int(ctx, 2), co_int(ctx, 16) };
    co_value   *values[3] = { co_list(ctx, sizes, 4), co_string(ctx, "SAME"),
                              co_string(ctx, named.activation) };
    co_value   *outs = co_op_call(ctx, "conv2d_pooled_grad",
                                  co_tuple(ctx, (co_value *[]){ in[0], named.y, named.pooled, in[1] },
                                           4),
                                  co_dict(ctx, keys, values, 3));

    return co_concat(ctx,
                     co_list(ctx,
                             (co_value *[]){ co_reshape(ctx, co_at(ctx, outs, 0), CO_SHAPE(-1)),
                                             co_at(ctx, outs, 1) },
                             2),
                     0);
}

CO_TEST(gradients_of_the_gradients_of_a_pooled_layer_agree_with_differences, "")
{
    static const char *const activations[] = { "none", "relu" };

    for (int i = 0; i < 2; ++i)
        CO_BLOCK(ctx) {
            co_value *in[2] = { kernel_tensor(ctx, CO_FLOAT64, DIMS(1, 4, 4, 2), 4, 1),
                                kernel_tensor(ctx, CO_FLOAT64, DIMS(1, 2, 2, 16), 4, 2) };

            named.activation = activations[i];
            named.y = kernel_tensor(ctx, CO_FLOAT64, DIMS(1, 4, 4, 16), 4, 3);
            if (i == 1)
                named.y = co_relu(ctx, co_sub(ctx, named.y, co_float(ctx, 0.5)));
            named.pooled = co_max_pool2d(ctx, named.y, NULL);
            CO_EXPECT_TRUE(kernel_check_gradients(ctx, by_name, in, 2, (int[]){ 0, 1 }, 2));
        }
}

/* Paddings and strides of billions: their product is no number of elements. */
CO_TEST(a_layer_with_huge_paddings_is_computed, "")
{
    const int32_t     most = INT32_MAX;
    co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;
    co_value         *y, *grad;

    options.padding = CO_PADDING_EXPLICIT;
    for (int i = 0; i < 4; ++i)
        options.explicit_paddings[i] = most;
    options.strides[0] = options.strides[1] = 1431655765;
    for (int64_t channels = 1; channels <= 2; ++channels)
        CO_BLOCK(ctx) {
            co_value *x = co_ones(ctx, CO_FLOAT32, DIMS(1, 2, 2, channels), 4);
            co_value *w = co_ones(ctx, CO_FLOAT32, DIMS(1, 1, channels, 16), 4);
            co_value *b = co_ones(ctx, CO_FLOAT32, DIMS(16), 1);

            co_tape_begin(ctx);
            co_watch(ctx, w);
            y = co_conv2d_bias(ctx, x, w, b, CO_ACTIVATION_RELU, &options);
            grad = co_gradient(ctx, co_max_pool2d(ctx, y, NULL), w);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, y, CO_ALL_AXES, false)), 1, 0);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, grad, CO_ALL_AXES, false)), 0, 0);
            CO_EXPECT_OK(ctx);
        }
}

/* A filter of one element that copies the pixel: the gradient of the filter is the sum of the
 * pixels that were the maxima, the first of equal ones. */
static double
picked(co_context *ctx, const float pixels[4])
{
    layer     l = { { 1, 2, 2, 1 }, { 1, 1, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE };
    co_value *x = co_tensor(ctx, CO_FLOAT32, l.x, 4, pixels), *w = co_ones(ctx, CO_FLOAT32, l.w, 4);
    co_value *b = co_zeros(ctx, CO_FLOAT32, &l.w[3], 1), *y;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    y = co_max_pool2d(ctx, apply(ctx, &l, x, w, b), NULL);
    return co_item_float(ctx, co_reduce_max(ctx, co_gradient(ctx, y, w), CO_ALL_AXES, false));
}

/* Two NaNs with other bits in one window: the first gets the gradient, so that the second tap meets
 * the pixel beside it. */
static double
picked_beside_nan(co_context *ctx)
{
    layer       l = { { 1, 2, 3, 1 }, { 1, 2, 1, 16 }, 1, CO_PADDING_VALID, CO_ACTIVATION_NONE };
    const float pixels[6] = { NAN, 10, 1, -NAN, 20, 2 };
    co_value   *x = co_tensor(ctx, CO_FLOAT32, l.x, 4, pixels);
    co_value   *w = co_ones(ctx, CO_FLOAT32, l.w, 4), *b = co_zeros(ctx, CO_FLOAT32, &l.w[3], 1);
    co_value   *grad;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    grad = co_gradient(ctx, co_max_pool2d(ctx, apply(ctx, &l, x, w, b), NULL), w);
    return (double)((const float *)co_value_data(ctx, grad))[16];
}

CO_TEST(the_first_maximum_of_a_window_gets_the_gradient, "")
{
    /* What is not picked counts with 0, also where it is infinite. */
    CO_EXPECT_CLOSE(picked(ctx, (float[]){ 1, 2, 3, 4 }), 4, 0);
    CO_EXPECT_CLOSE(picked(ctx, (float[]){ 9, 2, 3, 4 }), 9, 0);
    CO_EXPECT_CLOSE(picked(ctx, (float[]){ -3, -2, -2, -5 }), -2, 0);
    CO_EXPECT_TRUE(isnan(picked(ctx, (float[]){ 1, NAN, 3, 4 })));
    CO_EXPECT_TRUE(isnan(picked(ctx, (float[]){ 1, -INFINITY, 3, 4 })));
    CO_EXPECT_CLOSE(picked_beside_nan(ctx), 10, 0);
    CO_EXPECT_OK(ctx);
}

/* Bias and relu in one pass are add and relu: zeros of either sign, NaN, infinity. Columns that are
 * whole vectors, more rows than are taken at a time. */
static void
check_finish(co_context *ctx, int64_t rows, int64_t columns, co_activation activation)
{
    static const float some[] = { -0.0F, 0, NAN, INFINITY, -INFINITY, -1, 1, -2, 3, -0.0F, 1e38F };
    static const float more[] = { -0.0F, -0.0F, 1, 1, 1, 1, -1, 1, -4, 0, 3e38F };
    float              sums[48], bias[48];
    co_value          *w, *b, *y, *parts, *ones = co_ones(ctx, CO_FLOAT32, DIMS(rows, 1), 2);

    for (int i = 0; i < 48; ++i) {
        sums[i] = some[i % 11];
        bias[i] = more[i % 11 + (i > 22 && i % 11 < 10)];
    }
    w = co_tensor(ctx, CO_FLOAT32, DIMS(1, columns), 2, sums);
    b = co_tensor(ctx, CO_FLOAT32, DIMS(columns), 1, bias);
    y = co_dense(ctx, ones, w, b, activation);
    parts = co_add(ctx, co_matmul(ctx, ones, w), b);
    if (activation == CO_ACTIVATION_RELU)
        parts = co_relu(ctx, parts);
    CO_EXPECT_BYTES(co_value_data(ctx, y), co_value_data(ctx, parts),
                    (size_t)(rows * columns) * sizeof(float));
}

static void
check_finishes(co_context *ctx)
{
    static const int64_t rows[] = { 1, 3, 64, 65, 200 }, columns[] = { 10, 16, 32, 48 };

    for (size_t i = 0; i < 5; ++i)
        for (size_t k = 0; k < 4; ++k)
            CO_BLOCK(ctx) {
                check_finish(ctx, rows[i], columns[k], CO_ACTIVATION_NONE);
                check_finish(ctx, rows[i], columns[k], CO_ACTIVATION_RELU);
            }
}

CO_TEST(a_finish_in_one_pass_keeps_what_is_special, "")
{
    check_finishes(ctx);
}

CO_TEST_BARE(a_finish_in_one_pass_of_shorter_vectors, "")
{
    co_context *own;

    if (!has_v3())
        CO_SKIP("the processor has no AVX2, or the build");
    own = co_open("isa=v3");
    check_finishes(own);
    CO_EXPECT_INT(co_close(own), CO_OK);
}

CO_TEST_WITH(a_finish_in_one_pass_of_the_baseline, "", "isa=base")
{
    check_finishes(ctx);
}

static void
refuse(co_context *ctx, const int64_t *x, const int64_t *y, const int64_t *pooled,
       const int64_t *sizes, const char *why)
{
    const char *keys[] = { "sizes", "padding" };
    co_value   *in[4] = { co_zeros(ctx, CO_FLOAT32, x, 4), co_zeros(ctx, CO_FLOAT32, y, 4),
                          co_zeros(ctx, CO_FLOAT32, pooled, 4),
                          co_zeros(ctx, CO_FLOAT32, pooled, 4) };
    co_value   *dims[4], *values[2];

    for (int i = 0; i < 4; ++i)
        dims[i] = co_int(ctx, sizes[i]);
    values[0] = co_list(ctx, dims, 4);
    values[1] = co_string(ctx, "SAME");
    CO_EXPECT_NULL(
        co_op_call(ctx, "conv2d_pooled_grad", co_tuple(ctx, in, 4), co_dict(ctx, keys, values, 2)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, why);
}

CO_TEST(the_gradients_of_a_pooled_layer_refuse_what_does_not_fit, "")
{
    refuse(ctx, DIMS(1, 4, 4, 1), DIMS(1, 4, 4, 8), DIMS(1, 2, 2, 8), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: y has shape [1,4,4,8]; for sizes [3,3,1,16] it must be [1,4,4,16]");
    refuse(ctx, DIMS(1, 4, 4, 1), DIMS(1, 4, 4, 16), DIMS(1, 2, 1, 16), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: pooled has shape [1,2,1,16]; it must be [1,2,2,16]");
    refuse(ctx, DIMS(1, 5, 4, 1), DIMS(1, 5, 4, 16), DIMS(1, 2, 2, 16), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: y has 5 x 4 pixels; both must be even");
    refuse(ctx, DIMS(1, 4, 4, 2), DIMS(1, 4, 4, 16), DIMS(1, 2, 2, 16), DIMS(3, 3, 1, 16),
           "conv2d_pooled_grad: the convolution has 2 groups; it must have one");
}
