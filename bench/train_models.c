/* SPDX-License-Identifier: Apache-2.0 */
#include "train_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- numbers --- */

static void *
room(size_t nbytes)
{
    void *memory = malloc(nbytes);

    if (memory == NULL) {
        fprintf(stderr, "cohort-bench: no memory for %zu bytes of weights\n", nbytes);
        exit(1);
    }
    return memory;
}

static size_t
count_of(const int64_t *dims, int ndim)
{
    size_t n = 1;

    for (int i = 0; i < ndim; ++i)
        n *= (size_t)dims[i];
    return n;
}

/* standard_normal(dims).astype(float32) * scale */
static co_value *
normal(co_context *ctx, train_state *t, const int64_t *dims, int ndim, double scale)
{
    size_t    n = count_of(dims, ndim);
    float    *data = room(n * sizeof(*data));
    co_value *tensor;

    numpy_standard_normal(&t->random, data, n);
    for (size_t i = 0; i < n; ++i)
        data[i] *= (float)scale;
    tensor = co_tensor(ctx, CO_FLOAT32, dims, ndim, data);
    free(data);
    return tensor;
}

/* integers(0, end, dims).astype(int32) */
static co_value *
integers(co_context *ctx, train_state *t, uint32_t end, const int64_t *dims, int ndim)
{
    size_t    n = count_of(dims, ndim);
    int32_t  *data = room(n * sizeof(*data));
    co_value *tensor;

    numpy_integers(&t->random, end, data, n);
    tensor = co_tensor(ctx, CO_INT32, dims, ndim, data);
    free(data);
    return tensor;
}

static void
add_weight(co_context *ctx, train_state *t, co_value *initial)
{
    t->weights[t->num_weights++] = co_variable(ctx, initial, NULL);
}

static void
add_normal(co_context *ctx, train_state *t, const int64_t *dims, int ndim, double scale)
{
    add_weight(ctx, t, normal(ctx, t, dims, ndim, scale));
}

static void
add_bias(co_context *ctx, train_state *t, int64_t n)
{
    add_weight(ctx, t, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(n)));
}

static void
add_dense(co_context *ctx, train_state *t, int64_t inputs, int64_t outputs)
{
    add_normal(ctx, t, CO_SHAPE(inputs, outputs), sqrt(1.0 / (double)inputs));
    add_bias(ctx, t, outputs);
}

/* --- networks of dense layers --- */

/* Multiply-adds of a layer for each example: forward, the gradient of its weights, and that of its
 * input where it has one. */
#define FIRST 2
#define INNER 3

enum { SMALL_BATCH = 32, SMALL_WIDTH = 64, BATCH = 128, PIXELS = 784, WIDTH = 512, CLASSES = 10 };

static void
make_mlp_small(co_context *ctx, train_state *t)
{
    add_dense(ctx, t, SMALL_WIDTH, SMALL_WIDTH);
    add_dense(ctx, t, SMALL_WIDTH, CLASSES);
}

static void
make_mlp(co_context *ctx, train_state *t)
{
    add_dense(ctx, t, PIXELS, WIDTH);
    add_dense(ctx, t, WIDTH, WIDTH);
    add_dense(ctx, t, WIDTH, CLASSES);
}

/* C does not say in which order the arguments of a call are evaluated: x is drawn before y. */
static co_value *
rows_and_classes(co_context *ctx, train_state *t, int64_t rows, int64_t columns)
{
    co_value *x = normal(ctx, t, CO_SHAPE(rows, columns), 1);

    return co_args(ctx, x, integers(ctx, t, CLASSES, CO_SHAPE(rows)));
}

static co_value *
batch_mlp_small(co_context *ctx, train_state *t)
{
    return rows_and_classes(ctx, t, SMALL_BATCH * t->batches, SMALL_WIDTH);
}

static co_value *
batch_mlp(co_context *ctx, train_state *t)
{
    return rows_and_classes(ctx, t, BATCH, PIXELS);
}

co_value *
train_mlp_logits(co_context *ctx, const train_state *t, co_value *x)
{
    for (int i = 0; i < t->num_weights; i += 2)
        x = co_dense(ctx, x, t->weights[i], t->weights[i + 1],
                     i + 2 < t->num_weights ? CO_ACTIVATION_RELU : CO_ACTIVATION_NONE);
    return x;
}

static co_value *
losses_mlp(co_context *ctx, const train_state *t, co_value *x, co_value *y)
{
    return co_sparse_softmax_cross_entropy(ctx, y, train_mlp_logits(ctx, t, x));
}

#define MLP_SMALL_STEP                                                                             \
    (SMALL_BATCH * ((double)FIRST * SMALL_WIDTH * SMALL_WIDTH + INNER * SMALL_WIDTH * CLASSES))
#define MLP_STEP                                                                                   \
    (BATCH * ((double)FIRST * PIXELS * WIDTH + INNER * WIDTH * WIDTH + INNER * WIDTH * CLASSES))

/* --- two convolutions --- */

enum { IMAGES = 64, SIDE = 28, KERNEL = 3, CHANNELS1 = 32, CHANNELS2 = 64, HIDDEN = 128 };
enum { SIDE1 = SIDE / 2, SIDE2 = SIDE / 4, FEATURES = SIDE2 * SIDE2 * CHANNELS2 };

static void
make_cnn(co_context *ctx, train_state *t)
{
    add_normal(ctx, t, CO_SHAPE(KERNEL, KERNEL, 1, CHANNELS1), 0.3);
    add_bias(ctx, t, CHANNELS1);
    add_normal(ctx, t, CO_SHAPE(KERNEL, KERNEL, CHANNELS1, CHANNELS2), 0.06);
    add_bias(ctx, t, CHANNELS2);
    add_dense(ctx, t, FEATURES, HIDDEN);
    add_dense(ctx, t, HIDDEN, CLASSES);
}

static co_value *
batch_cnn(co_context *ctx, train_state *t)
{
    co_value *x = normal(ctx, t, CO_SHAPE(IMAGES, SIDE, SIDE, 1), 1);

    return co_args(ctx, x, integers(ctx, t, CLASSES, CO_SHAPE(IMAGES)));
}

static co_value *
losses_cnn(co_context *ctx, const train_state *t, co_value *x, co_value *y)
{
    co_value *const  *w = t->weights;
    co_conv2d_options same = CO_CONV2D_OPTIONS_INIT;

    same.padding = CO_PADDING_SAME;
    x = co_conv2d_bias(ctx, x, w[0], w[1], CO_ACTIVATION_RELU, &same);
    x = co_max_pool2d(ctx, x, NULL);
    x = co_conv2d_bias(ctx, x, w[2], w[3], CO_ACTIVATION_RELU, &same);
    x = co_max_pool2d(ctx, x, NULL);
    x = co_reshape(ctx, x, CO_SHAPE(-1, FEATURES));
    x = co_dense(ctx, x, w[4], w[5], CO_ACTIVATION_RELU);
    x = co_dense(ctx, x, w[6], w[7], CO_ACTIVATION_NONE);
    return co_sparse_softmax_cross_entropy(ctx, y, x);
}

#define CNN_STEP                                                                                   \
    (IMAGES * ((double)FIRST * SIDE * SIDE * KERNEL * KERNEL * CHANNELS1 +                         \
               (double)INNER * SIDE1 * SIDE1 * KERNEL * KERNEL * CHANNELS1 * CHANNELS2 +           \
               (double)INNER * FEATURES * HIDDEN + INNER * HIDDEN * CLASSES))

/* --- a small transformer that predicts tokens --- */

enum { LAYERS = 4, DEPTH = 128, HEADS = 4, TOKENS = 64, VOCABULARY = 128, TEXTS = 8 };
enum { LAYER_WEIGHTS = 12 };

static void
add_norm(co_context *ctx, train_state *t)
{
    add_weight(ctx, t, co_ones(ctx, CO_FLOAT32, CO_SHAPE(DEPTH)));
    add_bias(ctx, t, DEPTH);
}

static void
make_gpt(co_context *ctx, train_state *t)
{
    add_normal(ctx, t, CO_SHAPE(VOCABULARY, DEPTH), 0.02);
    add_normal(ctx, t, CO_SHAPE(TOKENS, DEPTH), 0.02);
    for (int i = 0; i < LAYERS; ++i) {
        add_norm(ctx, t);
        add_dense(ctx, t, DEPTH, 3 * DEPTH);
        add_dense(ctx, t, DEPTH, DEPTH);
        add_norm(ctx, t);
        add_dense(ctx, t, DEPTH, 4 * DEPTH);
        add_dense(ctx, t, 4 * DEPTH, DEPTH);
    }
    add_norm(ctx, t);
}

static co_value *
batch_gpt(co_context *ctx, train_state *t)
{
    co_value *x = integers(ctx, t, VOCABULARY, CO_SHAPE(TEXTS, TOKENS));

    return co_args(ctx, x, integers(ctx, t, VOCABULARY, CO_SHAPE(TEXTS, TOKENS)));
}

static co_value *
layer_norm(co_context *ctx, co_value *h, co_value *const *w)
{
    co_layer_norm_options options = CO_LAYER_NORM_OPTIONS_INIT;

    options.epsilon = 1e-5;
    return co_layer_norm(ctx, h, w[0], w[1], &options);
}

/* Attention, then two dense layers, each added to its input. */
static co_value *
layer(co_context *ctx, co_value *h, co_value *const *w)
{
    co_attention_options causal = CO_ATTENTION_OPTIONS_INIT;
    co_value            *z, *qkv;

    causal.causal = true;
    z = co_dense(ctx, layer_norm(ctx, h, w), w[2], w[3], CO_ACTIVATION_NONE);
    qkv = co_split(ctx, z, 3, -1);
    z = co_attention(ctx, co_at(ctx, qkv, 0), co_at(ctx, qkv, 1), co_at(ctx, qkv, 2), HEADS,
                     &causal);
    h = co_add(ctx, h, co_dense(ctx, z, w[4], w[5], CO_ACTIVATION_NONE));
    z = co_dense(ctx, layer_norm(ctx, h, w + 6), w[8], w[9], CO_ACTIVATION_GELU_TANH);
    return co_add(ctx, h, co_dense(ctx, z, w[10], w[11], CO_ACTIVATION_NONE));
}

static co_value *
losses_gpt(co_context *ctx, const train_state *t, co_value *x, co_value *y)
{
    co_value *const *w = t->weights;
    co_value        *h = co_add(ctx, co_gather(ctx, w[0], x, 0, 0), w[1]), *losses;

    for (int i = 0; i < LAYERS; ++i)
        h = layer(ctx, h, w + 2 + i * LAYER_WEIGHTS);
    h = layer_norm(ctx, h, w + 2 + LAYERS * LAYER_WEIGHTS);
    h = co_matmul_transposed(ctx, co_reshape(ctx, h, CO_SHAPE(-1, DEPTH)), w[0], false, true);
    losses = co_sparse_softmax_cross_entropy(ctx, co_reshape(ctx, y, CO_SHAPE(-1)), h);
    return co_reduce_mean(ctx, co_reshape(ctx, losses, CO_SHAPE(-1, TOKENS)), CO_AXES(1), false);
}

/* Attention has two products of DEPTH multiply-adds for every pair of tokens. */
#define GPT_STEP                                                                                   \
    ((double)TEXTS * TOKENS * INNER *                                                              \
     (LAYERS * (12 * DEPTH * DEPTH + 2 * TOKENS * DEPTH) + DEPTH * VOCABULARY))

/* --- all of them --- */

const train_model train_models[TRAIN_NUM_MODELS] = {
    { "mlp_small", MLP_SMALL_STEP, make_mlp_small, batch_mlp_small, losses_mlp },
    { "mlp", MLP_STEP, make_mlp, batch_mlp, losses_mlp },
    { "cnn", CNN_STEP, make_cnn, batch_cnn, losses_cnn },
    { "gpt", GPT_STEP, make_gpt, batch_gpt, losses_gpt },
};

void
train_init(co_context *ctx, train_state *t, const train_model *model)
{
    *t = (train_state){ .model = model, .random = numpy_random_of(0), .batches = 1 };
    model->make_weights(ctx, t);
    t->optimizer = co_sgd(ctx, NULL); /* its learning rate is 0.01 */
}

co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    const train_state *t = user;
    co_value          *loss;

    co_tape_begin(ctx);
    loss = t->model->losses(ctx, t, co_at(ctx, args, 0), co_at(ctx, args, 1));
    loss = co_average_loss(ctx, loss);
    co_minimize(ctx, t->optimizer, loss);
    return loss;
}
