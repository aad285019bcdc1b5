# SPDX-License-Identifier: Apache-2.0
"""The family "losses": Keras' losses with random shapes, options, reductions, masks and weights.

Numbers near a corner of a loss, where the gradient jumps, are as good as any other: both sides
compute in the same order.
"""
import keras
import numpy as np
import tensorflow as tf

import record
from draw import SINGLES, one_in, pick, whole

REDUCTIONS = ("none", "sum", "sum_over_batch_size", "mean", "mean_with_sample_weight")
LOGITS = ("BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
          "BinaryFocalCrossentropy", "CategoricalFocalCrossentropy")
SMOOTH = tuple(n for n in LOGITS if n != "SparseCategoricalCrossentropy")
AXIS = SMOOTH + ("CosineSimilarity",)
FOCAL = ("BinaryFocalCrossentropy", "CategoricalFocalCrossentropy")
ROWS = ("CategoricalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalHinge")
GROUPS = {
    "mean_squared_error": "MeanSquaredError",
    "mean_absolute_error": "MeanAbsoluteError",
    "mean_absolute_percentage_error": "MeanAbsolutePercentageError",
    "mean_squared_logarithmic_error": "MeanSquaredLogarithmicError",
    "log_cosh": "LogCosh",
    "huber": "Huber",
    "binary_crossentropy": "BinaryCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "hinge": "Hinge",
    "squared_hinge": "SquaredHinge",
    "categorical_hinge": "CategoricalHinge",
    "kl_divergence": "KLDivergence",
    "poisson": "Poisson",
    "cosine_similarity": "CosineSimilarity",
    "binary_focal_crossentropy": "BinaryFocalCrossentropy",
    "categorical_focal_crossentropy": "CategoricalFocalCrossentropy",
}


def draw_shape(rng, name):
    least = 2 if name == "CosineSimilarity" else 1  # of one element the gradient is noise about 0
    dims = [whole(rng, least, 4) for _ in range(pick(rng, (1, 2, 2, 2, 3, 3, 4)))]
    if one_in(rng, 20) and name != "CategoricalHinge":  # Keras refuses the maximum of nothing
        dims[whole(rng, 0, len(dims) - 1)] = 0
    return dims


def options(rng, name, rank):
    config = {}
    if name in LOGITS and one_in(rng, 2):
        config["from_logits"] = True
    if name in SMOOTH and one_in(rng, 3):
        config["label_smoothing"] = pick(rng, (0.125, 0.25, 0.5))
    if name in AXIS and one_in(rng, 3):
        config["axis"] = whole(rng, -rank, rank if one_in(rng, 8) else rank - 1)
        if name == "CategoricalCrossentropy" and "from_logits" in config:
            config["axis"] %= rank + 1  # TensorFlow's operator fails for axes below -1
    if name == "Huber" and one_in(rng, 2):
        config["delta"] = pick(rng, (0.5, 2.0, 0.25))
    if name in FOCAL:
        if one_in(rng, 2):
            config["gamma"] = pick(rng, (1.0, 1.5, 3.0))
        if one_in(rng, 2):
            config["alpha"] = pick(rng, (0.375, 0.5))
        if name == "BinaryFocalCrossentropy" and one_in(rng, 2):
            config["apply_class_balancing"] = True
    if name == "SparseCategoricalCrossentropy" and one_in(rng, 2):
        config["ignore_class"] = pick(rng, (0, -1, 255))
    return config


def prediction(rng, name, config, dims):
    if name not in LOGITS + ("KLDivergence", "Poisson") or config.get("from_logits"):
        return rng.normal(size=dims) * pick(rng, (0.5, 1, 3))
    p = rng.random(size=dims)
    if one_in(rng, 5) and name != "Poisson":
        odd = rng.choice([0.0, 1.0, -0.5, 1.5], size=dims)
        p = np.where(rng.random(size=dims) < 0.3, odd, p)
    return p


def ids(rng, config, dims, dtype):
    t = np.asarray(rng.integers(0, max(dims[-1], 1), size=dims[:-1]))
    if one_in(rng, 20):
        t = t + 1  # outside of the classes, for some
    if "ignore_class" in config:
        t = np.where(rng.random(size=t.shape) < 0.3, config["ignore_class"], t)
    if one_in(rng, 3):
        t = t[..., None]
    return t.astype(pick(rng, ("int32", "int64", dtype)))


def truth(rng, name, config, dims, dtype):
    if name == "SparseCategoricalCrossentropy":
        return ids(rng, config, dims, dtype)
    if name in ("Hinge", "SquaredHinge"):
        t = rng.choice(pick(rng, ([0, 1], [-1, 1], [-1, 0, 1])), size=dims)
    elif name in ROWS and dims[-1] > 0 and not one_in(rng, 3):
        t = np.eye(dims[-1])[rng.integers(0, dims[-1], size=dims[:-1])]
    elif name in ("BinaryCrossentropy", "BinaryFocalCrossentropy") and not one_in(rng, 4):
        t = rng.integers(0, 2, size=dims)
    elif name in LOGITS + ("KLDivergence", "Poisson") + ROWS:
        t = rng.random(size=dims)
    else:
        t = rng.normal(size=dims)
    return np.asarray(t).astype(dtype)


def mismatch(rng, t, p):
    """Now and then ranks that differ by one, or shapes that broadcast."""
    if one_in(rng, 6) and p.ndim > 1 and p.shape[-1] == 1:
        return (t[..., 0], p) if one_in(rng, 2) and t.ndim == p.ndim else (t, p[..., 0])
    if one_in(rng, 20):
        return t[..., None], p
    if one_in(rng, 12) and t.ndim:
        return t[:1], p
    return t, p


def weights(rng, dims, dtype):
    dims = list(dims)
    shapes = [dims] * 5 + [dims + [1], [], dims[:1], dims[-1:], [2]]
    values = rng.random(size=pick_shape(rng, shapes)) * 2
    return np.asarray(values).astype(pick(rng, (dtype, "float32", "int32")))


def pick_shape(rng, shapes):
    return shapes[whole(rng, 0, len(shapes) - 1)]


def run(seen, name, config, t, p, w, mask):
    def make(reduction):
        return getattr(keras.losses, name)(reduction=reduction, dtype=seen["attrs"]["dtype"],
                                           **config)
    t, p = tf.constant(t), tf.constant(p)
    each = make("none")(t, p)
    with tf.GradientTape() as tape:
        tape.watch(p)
        q = tf.identity(p)
        if mask is not None:
            q._keras_mask = tf.constant(mask)
        value = make(seen["attrs"]["reduction"])(t, q, sample_weight=w)
        total = tf.reduce_sum(value)
    gradient = tape.gradient(total, p)
    seen["outputs"] = {"value": record.tensor(value), "per_example": record.tensor(each)}
    seen["grads"] = {} if gradient is None else {"y_pred": record.tensor(gradient)}


def loss(name):
    def recipe(rng):
        dtype, dims = pick(rng, SINGLES), draw_shape(rng, name)
        config = options(rng, name, len(dims))
        p = np.asarray(prediction(rng, name, config, dims)).astype(dtype)
        t = truth(rng, name, config, dims, dtype)
        if name != "SparseCategoricalCrossentropy":
            t, p = mismatch(rng, t, p)
        seen = record.seen({"loss": name, "config": config, "reduction": pick(rng, REDUCTIONS),
                            "dtype": dtype},
                           {"y_true": record.tensor(t), "y_pred": record.tensor(p)})
        w = weights(rng, dims[:-1], dtype) if one_in(rng, 2) else None
        mask = rng.random(size=dims[:-1]) < 0.6 if one_in(rng, 3) else None
        mask = None if mask is None else np.asarray(mask)
        if w is not None:
            seen["inputs"]["sample_weight"] = record.tensor(w)
        if mask is not None:
            seen["inputs"]["mask"] = record.tensor(mask)
        if name == "LogCosh" and dtype == "float64":
            seen["tolerance"] = 1e-6  # Keras takes log(2) in float32; with weights and sums
        try:
            run(seen, name, config, t, p, w, mask)
        except (tf.errors.OpError, ValueError, TypeError, IndexError) as e:
            seen["error"] = record.error(e)
        return seen
    return recipe


def table():
    return {group: loss(name) for group, name in GROUPS.items()}


recipes = table()
