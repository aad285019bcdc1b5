/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Same program, same bits: four logical replicas train a perceptron, a convolutional network and a
 * deep one, whose gradients are summed in several buckets, with dropout on uneven batches. However
 * many devices, threads or processes host the replicas, and whether the step is captured or not,
 * the weights end with the same hash, which is printed.
 *
 *     test_same_bits --verbose                                    devices and threads
 *     scripts/mpirun-here -n 2 test_same_bits --verbose           and processes
 */
#include <cohort/function.h>

#include "test.h"

/* Large enough that matrix products, element-wise work and random numbers are cut into pieces for
 * several threads. */
enum {
    REPLICAS = 4,
    STEPS = TEST_SANITIZED ? 12 : 200,
    DEEP_STEPS = TEST_SANITIZED ? 4 : 24,
    EXAMPLES = 128,
    BATCH = 41,
    CLASSES = 5,
    SIDE = 12,
    UNITS = 768,
    INNER = 512, /* units of the deep network, and 1 MiB for the weights between them */
    FILTERS = 12
};

typedef enum network { PERCEPTRON, CONVOLUTION, DEEP } network;
static const char *const network_names[] = { "perceptron", "convolution", "deep" };

/* One row of the table of hashes. */
typedef struct training {
    network network;
    bool    skips; /* a replica without examples draws no random numbers */
    bool    is_captured;
} training;

typedef struct model {
    co_value     *weights[6]; /* layers: filter or matrix, and bias; the third is that of DEEP */
    co_optimizer *sgd;
    co_value *(*hidden)(co_context *ctx, const struct model *m, co_value *x); /* the first layer */
    int64_t features; /* that it makes of an example */
    bool    skips;    /* a replica without examples draws no random numbers */
} model;

/* 1 with probability 0.75 and 0 else, scaled so that the mean stays. */
static co_value *
dropout(co_context *ctx, co_value *x)
{
    int64_t   dims[] = { co_value_dim(ctx, x, 0), co_value_dim(ctx, x, 1) };
    co_value *u = co_random_uniform(ctx, CO_FLOAT32, dims, 2, 0.75, 1.75);
    co_value *kept = co_cast(ctx, co_cast(ctx, u, CO_INT32), CO_FLOAT32);

    return co_mul(ctx, x, co_div(ctx, kept, co_float(ctx, 0.75)));
}

static co_value *
perceptron(co_context *ctx, const model *m, co_value *x)
{
    x = co_reshape(ctx, x, CO_SHAPE(-1, SIDE * SIDE));
    return co_relu(ctx, co_add(ctx, co_matmul(ctx, x, m->weights[0]), m->weights[1]));
}

static co_value *
deep(co_context *ctx, const model *m, co_value *x)
{
    x = perceptron(ctx, m, x);
    return co_relu(ctx, co_add(ctx, co_matmul(ctx, x, m->weights[4]), m->weights[5]));
}

static co_value *
convolution(co_context *ctx, const model *m, co_value *x)
{
    co_value *h = co_add(ctx, co_conv2d(ctx, x, m->weights[0], NULL), m->weights[1]);

    return co_reshape(ctx, co_max_pool2d(ctx, co_relu(ctx, h), NULL), CO_SHAPE(-1, m->features));
}

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *y = co_at(ctx, args, 1), *h, *logits, *loss;

    co_tape_begin(ctx);
    h = m->hidden(ctx, m, x);
    if (!m->skips || co_value_dim(ctx, x, 0) > 0)
        h = dropout(ctx, h);
    logits = co_add(ctx, co_matmul(ctx, h, m->weights[2]), m->weights[3]);
    loss = co_average_loss(ctx, co_sparse_softmax_cross_entropy(ctx, y, logits));
    co_minimize(ctx, m->sgd, loss);
    return loss;
}

static co_value *
weight(co_context *ctx, const int64_t *dims, int ndim)
{
    return co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, dims, ndim, 0, 0.1), NULL);
}

static void
build(co_context *ctx, co_strategy *s, model *m, network kind)
{
    co_sgd_options options = CO_SGD_OPTIONS_INIT;
    int64_t        units = kind == CONVOLUTION ? FILTERS : kind == DEEP ? INNER : UNITS;

    options.learning_rate = 0.01;
    options.momentum = 0.9;
    m->hidden = kind == CONVOLUTION ? convolution : kind == DEEP ? deep : perceptron;
    m->features = kind == CONVOLUTION ? FILTERS * 5 * 5 : units;
    CO_SCOPE(ctx, s) {
        m->weights[0] = kind == CONVOLUTION ? weight(ctx, CO_SHAPE(3, 3, 1, FILTERS))
                                            : weight(ctx, CO_SHAPE(SIDE * SIDE, units));
        m->weights[1] = weight(ctx, &units, 1);
        m->weights[2] = weight(ctx, CO_SHAPE(m->features, CLASSES));
        m->weights[3] = weight(ctx, CO_SHAPE(CLASSES));
        if (kind == DEEP) {
            m->weights[4] = weight(ctx, CO_SHAPE(INNER, INNER));
            m->weights[5] = weight(ctx, CO_SHAPE(INNER));
        }
        m->sgd = co_sgd(ctx, &options);
    }
}

/* FNV-1a over the bytes of all weights. */
static uint64_t
hash_weights(co_context *ctx, const model *m)
{
    uint64_t hash = UINT64_C(1469598103934665603);

    for (size_t i = 0; i < 6 && m->weights[i] != NULL; ++i) {
        co_value            *w = co_variable_read(ctx, m->weights[i]);
        size_t               nbytes = (size_t)co_value_num_elements(ctx, w) * sizeof(float);
        const unsigned char *bytes = co_value_data(ctx, w);

        for (size_t k = 0; bytes != NULL && k < nbytes; ++k)
            hash = (hash ^ bytes[k]) * UINT64_C(1099511628211);
    }
    return hash;
}

/* 128 examples in batches of 41: replicas get 11, 11, 11 and 8 examples, in the last batch of a
 * round 2, 2, 1 and none. */
static uint64_t
train(co_context *ctx, co_strategy *s, training t)
{
    model        m = { .skips = t.skips };
    co_value    *x, *y;
    co_function *f = co_function_of(ctx, step, &m, NULL);
    co_dataset  *data;
    double       last = NAN;
    int          steps = 0, all = t.network == DEEP ? DEEP_STEPS : STEPS;

    co_set_seed(ctx, 11);
    x = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(EXAMPLES, SIDE, SIDE, 1), -1, 1);
    y = co_argmax(ctx,
                  co_slice(ctx, co_reshape(ctx, x, CO_SHAPE(EXAMPLES, SIDE * SIDE)),
                           (int64_t[]){ 0, 0 }, (int64_t[]){ EXAMPLES, CLASSES }, 2),
                  1, CO_INT64);
    build(ctx, s, &m, t.network);
    data = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y)), BATCH,
                            false);
    data = co_dataset_with_autoshard(ctx, co_dataset_repeat(ctx, data, -1), CO_AUTOSHARD_REPLICA);
    data = co_dataset_take(ctx, data, all);
    CO_EACH(ctx, batch, co_iterate(ctx, co_distribute_dataset(ctx, s, data, NULL))) {
        co_value *losses = t.is_captured ? co_run(ctx, s, co_captured, batch, f)
                                         : co_run(ctx, s, step, batch, &m);

        last = co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, losses, NULL, 0));
        ++steps;
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(steps, all);
    if (t.network == DEEP)
        CO_EXPECT_TRUE(isfinite(last)); /* so few steps only begin to learn */
    else
        CO_EXPECT_LESS(last, 2); /* it learns, and no weight is NaN: five classes begin at 1.6 and
                                  * noise */
    return hash_weights(ctx, &m);
}

static co_strategy *
mirrored(co_context *ctx, int devices)
{
    static const char *const names[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = REPLICAS;
    return co_mirrored_strategy(ctx, names, (size_t)devices, &options);
}

/* In a runtime of its own: that many devices, with that many threads each. */
static uint64_t
train_on(int devices, int threads, training t)
{
    char        settings[64];
    co_context *ctx;
    uint64_t    hash;

    snprintf(settings, sizeof(settings), "cpus=%d, threads=%d", devices, devices * threads);
    ctx = co_open(settings);
    hash = train(ctx, mirrored(ctx, devices), t);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    printf("%-12s%-10s%d replicas, %d device%s, %d thread%s each: %016llx\n",
           network_names[t.network], t.is_captured ? "captured" : "eager", REPLICAS, devices,
           devices == 1 ? " " : "s", threads, threads == 1 ? " " : "s", (unsigned long long)hash);
    return hash;
}

static void
expect_same_bits(network kind)
{
    training t = { .network = kind };
    uint64_t expected = train_on(1, 1, t);

    for (int devices = 1; devices <= REPLICAS; ++devices)
        for (int threads = 1; threads <= 2; ++threads) {
            t.is_captured = false;
            CO_EXPECT_TRUE(train_on(devices, threads, t) == expected);
            t.is_captured = true;
            CO_EXPECT_TRUE(train_on(devices, threads, t) == expected);
        }
}

CO_TEST_BARE(a_perceptron_ends_with_the_same_bits_on_any_devices, "S-REDUCE-9 S-RUN-7")
{
    expect_same_bits(PERCEPTRON);
}

CO_TEST_BARE(a_convolutional_network_ends_with_the_same_bits_on_any_devices, "S-REDUCE-9 S-RUN-7")
{
    expect_same_bits(CONVOLUTION);
}

CO_TEST_BARE(buckets_of_gradients_end_with_the_same_bits_on_any_devices, "S-REDUCE-9 S-RUN-7")
{
    expect_same_bits(DEEP);
}

/* The processes of the launcher, which divide the replicas among them; outside one, this process
 * alone. */
static uint64_t
train_in_processes(co_context *ctx, training t)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_strategy                     *s;
    uint64_t                         hash;

    options.num_replicas = REPLICAS;
    s = co_multi_worker_mirrored_strategy(ctx, &options);
    hash = train(ctx, s, t);
    printf("%-12s%-10s%d replicas, process %d of %d: %016llx\n", network_names[t.network],
           t.is_captured ? "captured" : "eager", REPLICAS, co_worker_id(ctx, s),
           co_num_workers(ctx, s), (unsigned long long)hash);
    return hash;
}

CO_TEST(processes_end_with_the_bits_of_devices, "S-REDUCE-9 S-RUN-7 MW-10 MW-13")
{
    for (network kind = PERCEPTRON; kind <= DEEP; ++kind) {
        training t = { .network = kind };
        uint64_t expected = train_on(1, 2, t);

        CO_EXPECT_TRUE(train_in_processes(ctx, t) == expected);
        t.is_captured = true;
        CO_EXPECT_TRUE(train_in_processes(ctx, t) == expected);
    }
}

/* The random numbers of a step do not depend on how many the last step drew, or which replica drew
 * them. */
CO_TEST(replicas_may_draw_different_numbers_of_numbers, "S-RUN-7")
{
    training t = { .skips = true };
    uint64_t expected = train_on(2, 1, t);

    CO_EXPECT_TRUE(train_in_processes(ctx, t) == expected);
    t.is_captured = true;
    CO_EXPECT_TRUE(train_in_processes(ctx, t) == expected);
}
