/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train: three models, trained under a strategy from a distributed dataset: losses, gradients and
 * weights.
 */
#include "captured.h"
#include "families.h"
#include "optimizers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WEIGHTS = 64 };

typedef struct training {
    golden_case  *c;
    co_strategy  *strategy;
    co_optimizer *optimizer;
    const char   *names[MAX_WEIGHTS];
    co_value     *weights[MAX_WEIGHTS];
    size_t        n;
    double        global_batch;
    bool          first; /* also return the gradients */
    co_value *(*losses)(co_context *ctx, const struct training *t, co_value *x, co_value *y);
} training;

static co_value *
weight(const training *t, const char *name)
{
    for (size_t i = 0; i < t->n; ++i)
        if (strcmp(t->names[i], name) == 0)
            return t->weights[i];
    golden_fail(t->c, "the case has no weight '%s'", name);
    return t->weights[0];
}

/* --- the models: losses of examples --- */

static co_value *
affine(co_context *ctx, const training *t, co_value *x, const char *w, const char *b)
{
    return co_add(ctx, co_matmul(ctx, x, weight(t, w)), weight(t, b));
}

static co_value *
mlp(co_context *ctx, const training *t, co_value *x, co_value *y)
{
    x = co_relu(ctx, affine(ctx, t, x, "w1", "b1"));
    x = co_tanh(ctx, affine(ctx, t, x, "w2", "b2"));
    return co_sparse_softmax_cross_entropy(ctx, y, affine(ctx, t, x, "w3", "b3"));
}

static co_value *
convolve(co_context *ctx, const training *t, co_value *x, const char *k, const char *b)
{
    co_conv2d_options same = CO_CONV2D_OPTIONS_INIT;

    same.padding = CO_PADDING_SAME;
    return co_relu(ctx, co_add(ctx, co_conv2d(ctx, x, weight(t, k), &same), weight(t, b)));
}

static co_value *
cnn(co_context *ctx, const training *t, co_value *x, co_value *y)
{
    co_pool2d_options pool = CO_POOL2D_OPTIONS_INIT;
    const int64_t     flat[2] = { -1, co_value_dim(ctx, weight(t, "w3"), 0) };

    pool.padding = CO_PADDING_SAME;
    x = co_max_pool2d(ctx, convolve(ctx, t, x, "k1", "b1"), &pool);
    x = co_reshape(ctx, convolve(ctx, t, x, "k2", "b2"), flat, 2);
    return co_sparse_softmax_cross_entropy(ctx, y, affine(ctx, t, x, "w3", "b3"));
}

static co_value *
normalise(co_context *ctx, const training *t, co_value *x, const char *gamma, const char *beta)
{
    co_layer_norm_options options = CO_LAYER_NORM_OPTIONS_INIT;

    options.epsilon = 1e-5;
    return co_layer_norm(ctx, x, weight(t, gamma), weight(t, beta), &options);
}

/* "l0.wo" of a layer. */
static const char *
of_layer(char out[40], int layer, const char *name)
{
    snprintf(out, 40, "l%d.%s", layer, name);
    return out;
}

static co_value *
transformer_layer(co_context *ctx, const training *t, co_value *x, int layer)
{
    co_attention_options causal = CO_ATTENTION_OPTIONS_INIT;
    char                 a[40], b[40];
    co_value            *h, *parts;

    causal.causal = true;
    h = normalise(ctx, t, x, of_layer(a, layer, "ln1_g"), of_layer(b, layer, "ln1_b"));
    h = affine(ctx, t, h, of_layer(a, layer, "wqkv"), of_layer(b, layer, "bqkv"));
    parts = co_split(ctx, h, 3, -1);
    h = co_attention(ctx, co_at(ctx, parts, 0), co_at(ctx, parts, 1), co_at(ctx, parts, 2), 2,
                     &causal);
    x = co_add(ctx, x, affine(ctx, t, h, of_layer(a, layer, "wo"), of_layer(b, layer, "bo")));
    h = normalise(ctx, t, x, of_layer(a, layer, "ln2_g"), of_layer(b, layer, "ln2_b"));
    h = affine(ctx, t, h, of_layer(a, layer, "w1"), of_layer(b, layer, "b1"));
    h = affine(ctx, t, co_gelu(ctx, h, false), of_layer(a, layer, "w2"), of_layer(b, layer, "b2"));
    return co_add(ctx, x, h);
}

static co_value *
transformer(co_context *ctx, const training *t, co_value *ids, co_value *y)
{
    const int64_t length = co_value_dim(ctx, weight(t, "pos"), 0);
    const int64_t from[2] = { 0, 0 }, next[2] = { 0, 1 }, size[2] = { -1, length };
    co_value     *x = co_embedding_lookup(ctx, weight(t, "emb"), co_slice(ctx, ids, from, size, 2));

    (void)y;
    x = co_add(ctx, x, weight(t, "pos"));
    for (int layer = 0; layer < 2; ++layer)
        x = transformer_layer(ctx, t, x, layer);
    x = co_matmul(ctx, normalise(ctx, t, x, "lnf_g", "lnf_b"), weight(t, "head"));
    return co_reduce_mean(
        ctx, co_sparse_softmax_cross_entropy(ctx, co_slice(ctx, ids, next, size, 2), x), CO_AXES(1),
        false);
}

/* --- training --- */

/* This replica's part of the loss, which is divided by the nominal size of a batch, and in the
 * first step the sums of the gradients; they update the weights. The recording summed dense
 * gradients, those of the embedding too. */
static co_value *
fn_step(co_context *ctx, co_value *args, void *user)
{
    const training *t = user;
    co_value *x = co_at(ctx, args, 0), *y = co_at(ctx, args, 1), *loss, *gradients, *variables;
    co_value *dense[MAX_WEIGHTS];

    variables = co_list(ctx, t->weights, t->n);
    co_tape_begin(ctx);
    loss = co_reduce_sum(ctx, t->losses(ctx, t, x, y), CO_ALL_AXES, false);
    loss = co_div(ctx, loss, co_float(ctx, t->global_batch));
    gradients = co_gradient(ctx, loss, variables);
    for (size_t i = 0; i < t->n; ++i)
        dense[i] = co_to_tensor(ctx, co_at(ctx, gradients, i), co_value_dtype(ctx, t->weights[i]));
    gradients = co_list(ctx, dense, t->n);
    co_apply_gradients(ctx, t->optimizer, gradients, variables);
    return t->first ? co_args(ctx, loss, co_all_reduce(ctx, CO_REDUCE_SUM, gradients))
                    : co_args(ctx, loss);
}

static bool
make_weights(training *t)
{
    co_context *ctx = t->c->ctx;
    json_t     *initial = json_object_get(t->c->inputs, "initial_weights"), *value;
    const char *name;

    json_object_foreach(initial, name, value)
    {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

        if (t->n == MAX_WEIGHTS) {
            golden_fail(t->c, "more than %d weights", MAX_WEIGHTS);
            return false;
        }
        options.name = name;
        t->names[t->n] = name;
        t->weights[t->n++] = co_variable(ctx, golden_read_value(t->c, ctx, value), &options);
    }
    return co_ok(ctx) && !t->c->is_failed;
}

/* A map of values that belong to the weights, by name. Values of replicas are equal: the first. */
static json_t *
by_name(const training *t, co_value *const *values)
{
    json_t *map = json_object();

    for (size_t i = 0; i < t->n; ++i)
        json_object_set_new(map, t->names[i], golden_write_value(t->c->ctx, values[i]));
    return map;
}

static json_t *
weights_now(const training *t)
{
    co_value *values[MAX_WEIGHTS];

    for (size_t i = 0; i < t->n; ++i)
        values[i] = co_variable_save(t->c->ctx, t->weights[i]);
    return by_name(t, values);
}

static json_t *
first_gradients(const training *t, co_value *gradients)
{
    co_value *values[MAX_WEIGHTS];

    for (size_t i = 0; i < t->n; ++i)
        values[i] = co_at(t->c->ctx,
                          co_local_results(t->c->ctx, t->strategy, co_at(t->c->ctx, gradients, i)),
                          0);
    return by_name(t, values);
}

static json_t *
sizes_of(const training *t, co_value *x)
{
    co_value *parts = co_local_results(t->c->ctx, t->strategy, x);
    json_t   *sizes = json_array();

    for (size_t i = 0; i < co_num_items(t->c->ctx, parts); ++i)
        json_array_append_new(sizes, json_integer((json_int_t)co_value_dim(
                                         t->c->ctx, co_at(t->c->ctx, parts, i), 0)));
    return sizes;
}

/* What the steps give. */
typedef struct seen {
    json_t *sizes;
    double  losses[1000];
    int64_t num_losses;
} seen;

static void
train_step(training *t, seen *s, co_value *element)
{
    golden_case *c = t->c;
    co_value    *out, *loss;

    json_array_append_new(s->sizes, sizes_of(t, co_at(c->ctx, element, 0)));
    t->first = s->num_losses == 0;
    out = golden_run_in_function(
        c->ctx, t->strategy, fn_step,
        co_args(c->ctx, co_at(c->ctx, element, 0), co_at(c->ctx, element, 1)), t);
    loss = out != NULL
               ? co_reduce(c->ctx, t->strategy, CO_REDUCE_SUM, co_at(c->ctx, out, 0), NULL, 0)
               : NULL;
    if (loss == NULL || s->num_losses == 1000)
        return;
    s->losses[s->num_losses++] = co_item_float(c->ctx, loss);
    if (t->first) {
        golden_put(c, "gradients_step1", first_gradients(t, co_at(c->ctx, out, 1)));
        golden_put(c, "weights_after_step1", weights_now(t));
    }
}

static void
train(training *t)
{
    golden_case *c = t->c;
    co_value    *x = golden_read_value(c, c->ctx, json_object_get(c->inputs, "x"));
    co_value    *y = golden_read_value(c, c->ctx, json_object_get(c->inputs, "y"));
    int64_t      epochs = golden_int(c, c->attrs, "epochs", 0);
    seen         s = { .sizes = json_array() };
    co_dataset  *dataset;
    co_value    *losses;

    if (x == NULL || y == NULL)
        return;
    dataset = co_dataset_batch(c->ctx, co_dataset_from_tensor_slices(c->ctx, co_args(c->ctx, x, y)),
                               (int64_t)t->global_batch, false);
    dataset = co_distribute_dataset(c->ctx, t->strategy, dataset, NULL);
    for (int64_t epoch = 0; epoch < epochs && co_ok(c->ctx); ++epoch)
        CO_EACH(c->ctx, element, co_iterate(c->ctx, dataset)) {
            train_step(t, &s, element);
        }
    losses = co_tensor(c->ctx, CO_FLOAT64, &s.num_losses, 1, s.losses);
    if (strcmp(golden_string(c, c->attrs, "dtype"), "float32") == 0)
        losses = co_cast(c->ctx, losses, CO_FLOAT32);
    golden_put_value(c, "losses", losses);
    golden_put(c, "per_replica_batch_sizes", s.sizes);
    golden_put(c, "final_weights", weights_now(t));
}

/* The README's limits for the transformer, which are absolute: the gradient of the bias of keys is
 * zero in exact arithmetic, and Adam amplifies its rounding. */
static void
set_limit(golden_case *c, const char *model)
{
    const bool is_single = strcmp(golden_string(c, c->attrs, "dtype"), "float32") == 0;

    if (strcmp(model, "transformer") == 0)
        json_object_set_new(c->json, "tolerance", json_real(is_single ? 3e-4 : 1e-12));
}

void
golden_run_train(golden_case *c)
{
    static const struct {
        const char *name;
        co_value *(*losses)(co_context *ctx, const training *t, co_value *x, co_value *y);
    } models[] = { { "mlp", mlp }, { "cnn", cnn }, { "transformer", transformer } };
    training    t = { .c = c, .strategy = golden_strategy(c) };
    const char *model = golden_string(c, c->attrs, "model");
    json_t     *optimizer = json_object_get(c->attrs, "optimizer");

    t.global_batch = (double)golden_int(c, c->attrs, "global_batch", 1);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i)
        if (strcmp(models[i].name, model) == 0)
            t.losses = models[i].losses;
    if (t.losses == NULL || t.strategy == NULL) {
        golden_fail(c, "model '%s' is not known to the runner", model);
        return;
    }
    set_limit(c, model);
    CO_SCOPE(c->ctx, t.strategy) {
        if (make_weights(&t))
            t.optimizer = golden_optimizer(c, golden_string(c, optimizer, "name"), optimizer);
    }
    if (t.optimizer != NULL)
        train(&t);
    golden_take_error(c, c->ctx);
}
