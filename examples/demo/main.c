/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo: a small network learns to read handwritten digits under four strategies. The step, the
 * loop and the model are the same in all of them; only make_strategy differs. scripts/demo runs the
 * four and compares what they learned, bit by bit.
 *
 *     demo MODE [--data FILE] [--result FILE] [--progress bar|lines]
 *
 *     one        one device
 *     mirrored   4 replicas on one device
 *     two-cpus   the same 4 on two logical CPUs
 *     processes  the same 4 in as many processes as mpirun starts
 *     devices    the same 4 on the devices that COHORT_DEVICES declares
 */
#include "demo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HIDDEN = 64, REPLICAS = 4, BATCH = 64, EPOCHS = 30 };

typedef struct model {
    co_value     *w1, *b1, *w2, *b2;
    co_optimizer *optimizer;
} model;

typedef struct mode {
    const char *name;
    const char *title;
    const char *settings;
    co_strategy *(*make)(co_context *ctx);
} mode;

typedef struct options {
    const mode *mode;
    const char *data, *result;
    bool        rewrite;
} options;

/* --- strategies --- */

static co_strategy *
make_one(co_context *ctx)
{
    return co_one_device_strategy(ctx, "/cpu:0");
}

/* Four replicas on all CPUs that the settings give. */
static co_strategy *
make_mirrored(co_context *ctx)
{
    co_mirrored_options mirrored = CO_MIRRORED_OPTIONS_INIT;

    mirrored.num_replicas = REPLICAS;
    return co_mirrored_strategy(ctx, NULL, 0, &mirrored);
}

static co_strategy *
make_processes(co_context *ctx)
{
    co_multi_worker_mirrored_options workers = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    workers.num_replicas = REPLICAS;
    return co_multi_worker_mirrored_strategy(ctx, &workers);
}

/* All devices but the CPUs. */
static co_strategy *
make_devices(co_context *ctx)
{
    co_mirrored_options mirrored = CO_MIRRORED_OPTIONS_INIT;
    co_device_info      devices[REPLICAS];
    const char         *names[REPLICAS];
    size_t              n = 0;

    for (size_t i = 0; i < co_num_devices(ctx) && n < REPLICAS; ++i) {
        devices[n] = (co_device_info)CO_DEVICE_INFO_INIT;
        if (co_get_device_info(ctx, i, &devices[n]) == CO_OK &&
            strcmp(devices[n].type, "CPU") != 0) {
            names[n] = devices[n].name;
            ++n;
        }
    }
    if (n == 0) {
        co_fail(ctx, CO_NOT_FOUND,
                "there are only CPUs; set COHORT_DEVICES, to GPU:2 for instance");
        return NULL;
    }
    mirrored.num_replicas = REPLICAS;
    return co_mirrored_strategy(ctx, names, n, &mirrored);
}

static const mode modes[] = {
    { "one", "one device", "cpus=1", make_one },
    { "mirrored", "4 replicas on one device", "cpus=1", make_mirrored },
    { "two-cpus", "4 replicas on two logical CPUs", "cpus=2", make_mirrored },
    { "processes", "4 replicas in two processes", "cpus=1", make_processes },
    { "devices", "4 replicas on the devices of COHORT_DEVICES", "cpus=1", make_devices },
};

enum { NUM_MODES = sizeof(modes) / sizeof(modes[0]) };

/* --- the model --- */

static co_value *
forward(co_context *ctx, const model *m, co_value *images)
{
    co_value *hidden = co_dense(ctx, images, m->w1, m->b1, CO_ACTIVATION_RELU);

    return co_dense(ctx, hidden, m->w2, m->b2, CO_ACTIVATION_NONE);
}

/* Arguments: images and labels of this replica. Returns its share of the mean loss of the step. */
static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *images = co_at(ctx, args, 0), *labels = co_at(ctx, args, 1);
    co_value *logits, *loss;

    co_tape_begin(ctx);
    logits = forward(ctx, m, images);
    loss = co_average_loss(ctx, co_sparse_softmax_cross_entropy(ctx, labels, logits));
    co_minimize(ctx, m->optimizer, loss); /* gradients, their sum over replicas, the update */
    return loss;
}

/* How many digits of this replica are read right. */
static co_value *
test_step(co_context *ctx, co_value *args, void *user)
{
    co_value *images = co_at(ctx, args, 0), *labels = co_at(ctx, args, 1);
    co_value *guesses = co_argmax(ctx, forward(ctx, user, images), 1, CO_INT32);
    co_value *right = co_cast(ctx, co_equal(ctx, guesses, labels), CO_INT32);

    return co_reduce_sum(ctx, right, CO_ALL_AXES, false);
}

static void
make_model(co_context *ctx, model *m)
{
    co_sgd_options sgd = CO_SGD_OPTIONS_INIT;
    co_value      *w1, *w2;

    co_set_seed(ctx, 1);
    w1 = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(PIXELS, HIDDEN), 0, 0.15);
    w2 = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(HIDDEN, CLASSES), 0, 0.15);
    m->w1 = co_variable(ctx, w1, NULL);
    m->b1 = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(HIDDEN)), NULL);
    m->w2 = co_variable(ctx, w2, NULL);
    m->b2 = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(CLASSES)), NULL);
    sgd.learning_rate = 0.05;
    sgd.momentum = 0.9;
    m->optimizer = co_sgd(ctx, &sgd);
}

/* --- the loop --- */

/*
 * Batches of both, split over the replicas of the strategy. The policy gives slice k of a batch to
 * replica k however many processes there are, which keeps the bits the same.
 */
static co_dataset *
distribute(co_context *ctx, co_strategy *strategy, co_value *images, co_value *labels)
{
    co_dataset *data = co_dataset_from_tensor_slices(ctx, co_args(ctx, images, labels));

    data = co_dataset_batch(ctx, data, BATCH, false); /* the last one is short */
    data = co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_REPLICA);
    return co_distribute_dataset(ctx, strategy, data, NULL);
}

/* The mean loss of the epoch's steps. */
static double
train_epoch(co_context *ctx, co_strategy *strategy, co_dataset *data, model *m, show *s)
{
    double sum = 0;
    int    steps = 0;

    CO_EACH(ctx, batch, co_iterate(ctx, data)) {
        co_value *losses = co_run(ctx, strategy, train_step, batch, m);
        double loss = co_item_float(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0));

        show_loss(s, loss);
        sum += loss;
        ++steps;
    }
    return steps > 0 ? sum / steps : 0;
}

static double
test(co_context *ctx, co_strategy *strategy, co_dataset *data, model *m, int64_t num_images)
{
    int64_t right = 0;

    CO_EACH(ctx, batch, co_iterate(ctx, data)) {
        co_value *counts = co_run(ctx, strategy, test_step, batch, m);

        right += co_item_int(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, counts, NULL, 0));
    }
    return num_images > 0 ? (double)right / (double)num_images : 0;
}

/* --- results --- */

static uint64_t
hash_weights(co_context *ctx, const model *m)
{
    co_value *const variables[] = { m->w1, m->b1, m->w2, m->b2 };
    uint64_t        hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a over all bytes, in order */

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); ++i) {
        co_value            *weights = co_variable_read(ctx, variables[i]);
        const unsigned char *bytes = co_value_data(ctx, weights);
        size_t               nbytes = (size_t)co_value_num_elements(ctx, weights) * sizeof(float);

        for (size_t b = 0; bytes != NULL && b < nbytes; ++b)
            hash = (hash ^ bytes[b]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* A line for scripts/demo: mode, accuracy, seconds, hash, and the process that computed it. */
static void
write_result(co_context *ctx, const options *o, double accuracy, double seconds, uint64_t hash,
             int worker)
{
    FILE *file;

    if (o->result == NULL)
        return;
    file = fopen(o->result, "a");
    if (file == NULL) {
        co_fail(ctx, CO_PERMISSION_DENIED, "%s cannot be written to", o->result);
        return;
    }
    fprintf(file, "%s %.4f %.2f %016" PRIx64 " %d\n", o->mode->name, accuracy, seconds, hash,
            worker);
    if (ferror(file) | fclose(file))
        co_fail(ctx, CO_RESOURCE_EXHAUSTED, "the result could not be written to %s", o->result);
}

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void
run(co_context *ctx, const options *o)
{
    co_strategy *strategy = o->mode->make(ctx);
    int          worker = co_worker_id(ctx, strategy);
    digits       d = { NULL, NULL, NULL, NULL };
    model        m = { NULL, NULL, NULL, NULL, NULL };
    co_dataset  *train_data, *test_data;
    double       begin, seconds, accuracy;
    uint64_t     hash;
    show         s;

    load_digits(ctx, o->data, &d);
    train_data = distribute(ctx, strategy, d.train_images, d.train_labels);
    test_data = distribute(ctx, strategy, d.test_images, d.test_labels);
    CO_SCOPE(ctx, strategy) {
        make_model(ctx, &m);
    }
    show_begin(&s, worker != 0 || !co_ok(ctx), o->rewrite, EPOCHS);
    begin = now();
    for (int epoch = 0; epoch < EPOCHS && co_ok(ctx); ++epoch)
        CO_BLOCK(ctx) {
            double loss = train_epoch(ctx, strategy, train_data, &m, &s);

            if (co_ok(ctx))
                show_epoch(&s, loss);
        }
    seconds = now() - begin;
    accuracy = test(ctx, strategy, test_data, &m, co_value_num_elements(ctx, d.test_labels));
    hash = hash_weights(ctx, &m);
    if (co_ok(ctx)) {
        show_curve(&s);
        if (worker == 0)
            printf("  accuracy %.4f, %.2f s, weights %016" PRIx64 "\n", accuracy, seconds, hash);
        write_result(ctx, o, accuracy, seconds, hash, worker);
    }
    show_end(&s);
}

/* --- arguments --- */

static int
usage(void)
{
    fprintf(stderr, "usage: demo MODE [--data FILE] [--result FILE] [--progress bar|lines]\n");
    for (size_t i = 0; i < NUM_MODES; ++i)
        fprintf(stderr, "  %-11s%s\n", modes[i].name, modes[i].title);
    return 2;
}

static bool
read_options(int argc, char **argv, options *o)
{
    for (size_t i = 0; argc > 1 && i < NUM_MODES; ++i)
        if (strcmp(argv[1], modes[i].name) == 0)
            o->mode = &modes[i];
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc)
            return false;
        if (strcmp(argv[i], "--data") == 0)
            o->data = argv[i + 1];
        else if (strcmp(argv[i], "--result") == 0)
            o->result = argv[i + 1];
        else if (strcmp(argv[i], "--progress") == 0)
            o->rewrite = strcmp(argv[i + 1], "bar") == 0;
        else
            return false;
    }
    return o->mode != NULL;
}

int
main(int argc, char **argv)
{
    options     o = { NULL, "examples/demo/digits.csv", NULL, isatty(STDOUT_FILENO) };
    co_context *ctx;

    if (!read_options(argc, argv, &o))
        return usage();
    ctx = co_open(o.mode->settings);
    run(ctx, &o);
    if (fflush(stdout) != 0 || ferror(stdout))
        co_fail(ctx, CO_RESOURCE_EXHAUSTED, "what the demo shows could not be written");
    return co_close(ctx);
}
