/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that `cohort-bench train` and the scripts of bench/peers train: float32, SGD with
 * learning rate 0.01, one fixed batch of random numbers, the mean loss of a batch. Weights and data
 * are drawn from numpy's default_rng(0) in the order of bench/peers/models.py.
 */
#ifndef COHORT_BENCH_TRAIN_MODELS_H
#define COHORT_BENCH_TRAIN_MODELS_H

#include "numpy_random.h"

#include <cohort/cohort.h>

enum { TRAIN_MAX_WEIGHTS = 64 };

/* A model with its variables. */
typedef struct train_state train_state;

typedef struct train_model {
    const char *name;          /* "mlp" */
    double      multiply_adds; /* of a step: products of matrices, forward and backward */
    void (*make_weights)(co_context *ctx, train_state *t);
    /* inputs and labels of the batch: a tuple of two tensors with a row for each example */
    co_value *(*make_batch)(co_context *ctx, train_state *t);
    /* the loss of each example */
    co_value *(*losses)(co_context *ctx, const train_state *t, co_value *x, co_value *y);
} train_model;

struct train_state {
    const train_model *model;
    co_value          *weights[TRAIN_MAX_WEIGHTS];
    int                num_weights;
    co_optimizer      *optimizer;
    numpy_random       random;
    int64_t            batches; /* the batch of mlp_small is so many times its own */
};

enum { TRAIN_NUM_MODELS = 4 };
extern const train_model train_models[TRAIN_NUM_MODELS];
const train_model       *train_find_model(const char *name);

/* Make the variables under the current strategy. */
void train_init(co_context *ctx, train_state *t, const train_model *model);
/* The scores of classes that mlp and mlp_small give, of which their losses are made. */
co_value *train_mlp_logits(co_context *ctx, const train_state *t, co_value *x);
/* A step: args is the batch, user the train_state; returns this replica's share of the loss. */
co_value *train_step(co_context *ctx, co_value *args, void *user);

#endif
