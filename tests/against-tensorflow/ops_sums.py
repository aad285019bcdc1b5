# SPDX-License-Identifier: Apache-2.0
"""Recipes of reductions, running sums, softmax, losses, normalisations and norms."""
import numpy as np
import tensorflow as tf

from draw import (ANY, EVERY, FLOATS, HALVES, INTS, NUMBERS, SINGLES, any_shape, axes, axis,
                  dtype_of, gentle, hostile, listed, one_in, one_zero, pick, plain, shape, ties,
                  values, whole)


def one_axis(rng, rank):
    return axis(rng, rank, one_in(rng, 12))


def axes_of(rng, rank):
    """null, one axis or a list; sometimes one twice or one outside."""
    form = whole(rng, 0, 3)
    if form == 0:
        return None
    if form == 1:
        return one_axis(rng, rank)
    chosen = axes(rng, rank)
    return chosen + [pick(rng, chosen + [rank])] if one_in(rng, 16) else chosen


def summable(rng, dtype, dims):
    """Floats of one size, in long sums small ones: TensorFlow adds in another order."""
    if np.prod(dims) > 300:
        return plain(rng, dtype, dims, 0.1)
    if dtype in SINGLES and one_in(rng, 3):
        return hostile(rng, dtype, dims, (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0))
    return values(rng, dtype, dims) if dtype not in FLOATS else \
        pick(rng, (gentle, ties) if dtype in HALVES else (plain, ties))(rng, dtype, dims)


def reduction(function, usual=NUMBERS, number=summable, wrong=ANY):
    def make(rng):
        dtype = dtype_of(rng, usual, wrong)
        dims = shape(rng, 0, 8, 16) if dtype in HALVES else any_shape(rng)
        attrs = {"axis": axes_of(rng, len(dims)), "keepdims": one_in(rng, 2)}
        attrs = {name: value for name, value in attrs.items() if not one_in(rng, 5)}
        return {"x": number(rng, dtype, dims)}, attrs
    return make, lambda i, a: function(i["x"], **a)


def argument(function, kinds):
    def make(rng):
        dims = any_shape(rng, 0 if one_in(rng, 16) else 1, 7)  # TensorFlow has no more than 7
        attrs = {"axis": one_axis(rng, len(dims))}
        if one_in(rng, 2):
            attrs["output_type"] = pick(rng, kinds)
        return {"x": values(rng, dtype_of(rng, EVERY), dims)}, attrs
    return make, lambda i, a: function(i["x"], axis=a["axis"],
                                       output_type=tf.as_dtype(a.get("output_type", "int64")))


def running(function, usual=NUMBERS):
    def make(rng):
        dims = any_shape(rng, 0 if one_in(rng, 16) else 1)
        attrs = {"axis": one_axis(rng, len(dims)), "exclusive": one_in(rng, 2),
                 "reverse": one_in(rng, 2)}
        return {"x": summable(rng, dtype_of(rng, usual), dims)}, attrs
    return make, lambda i, a: function(i["x"], **a)


def softened(function, usual=FLOATS):
    def make(rng):
        dims = any_shape(rng, 0 if one_in(rng, 16) else 1)
        attrs = {"axis": one_axis(rng, len(dims))} if one_in(rng, 2) else {}
        return {"x": gentle(rng, dtype_of(rng, usual), dims)}, attrs
    return make, lambda i, a: function(i["x"], **a)


def probabilities(rng, dtype, dims):
    x = np.exp(rng.normal(size=dims))
    x = x / np.sum(x, axis=-1, keepdims=True)
    return tf.cast(tf.constant(x), dtype).numpy()


def make_softmax_loss(rng):
    dims, dtype = any_shape(rng, 1, 7), pick(rng, FLOATS)
    if dims.count(0) > 1:
        dims = [max(1, d) for d in dims]
    labels = pick(rng, (probabilities, probabilities, ties))(rng, dtype, dims)
    logits = pick(rng, (gentle, gentle, hostile))(rng, dtype_of(rng, (dtype,)), dims)
    if one_in(rng, 8):
        other = ("float32",) if dtype == "float64" else ("bool",)
        labels = ties(rng, pick(rng, INTS + other), dims)
    if one_in(rng, 12):
        # TensorFlow compares the shapes as matrices: what it takes or not beyond that is chance.
        dims = [max(2, d) for d in dims]
        labels, logits = plain(rng, dtype, [d + 1 for d in dims]), plain(rng, dtype, dims)
    # TensorFlow brings the axis to the end by ranges and shapes: -2 does not get through, nor do
    # empty tensors.
    is_usual = not one_in(rng, 3) or not np.prod(dims)
    return {"labels": labels, "logits": logits}, \
        {} if is_usual else {"axis": whole(rng, -1, len(dims) - 1)}


def make_sparse_loss(rng):
    dims, dtype = any_shape(rng, 1, 7), dtype_of(rng, SINGLES)
    if dims[-1] == 0 and (0 in dims[:-1] or not one_in(rng, 4)):
        dims[-1] = 3  # of rows that are none, and have no classes, TensorFlow counts some
    rows = list(dims[:-1])
    labels = np.asarray(rng.integers(0, max(1, dims[-1]), size=rows))
    if one_in(rng, 10):
        labels = np.asarray(rng.integers(-2, dims[-1] + 2, size=rows))
    if one_in(rng, 12):
        labels = np.zeros(pick(rng, (rows[1:], rows + [1], rows + [2])))
    labels = labels.astype(pick(rng, ("int32", "int64", "int32", "int64", "int16", "uint8")))
    return {"labels": labels, "logits": values(rng, dtype, dims)}, {}


def make_sigmoid_loss(rng):
    dims, dtype = any_shape(rng, 0, 7), dtype_of(rng, SINGLES)
    other = dims if not one_in(rng, 10) else pick(rng, (dims[1:], dims + [2], [1] + dims))
    return {"labels": pick(rng, (plain, ties))(rng, dtype, other),
            "logits": values(rng, dtype, dims)}, {}


def make_mse(rng):
    dims, dtype = any_shape(rng, 1), pick(rng, FLOATS)
    return {"y_true": gentle(rng, dtype, dims), "y_pred": gentle(rng, dtype, dims)}, {}


def make_moments(rng):
    dims = any_shape(rng)
    axes = axes_of(rng, len(dims))
    axes = [axes] if isinstance(axes, int) else axes if axes is not None else list(range(len(dims)))
    # Without axes TensorFlow squeezes every dimension of 1 away, unless they are kept.
    return {"x": moderate(rng, dtype_of(rng, FLOATS, ("bool", "string")), dims)}, \
        {"axes": axes, "keepdims": one_in(rng, 2) or not axes}


def moderate(rng, dtype, dims):
    """Numbers around an offset. Far from zero a variance is noise; near it TensorFlow agrees."""
    x = plain(rng, dtype, dims, 0.3 if dtype in HALVES else 1.0)
    return x + np.asarray(pick(rng, (0, 0, 1)), x.dtype) if dtype in SINGLES else x


def dense(rng, low, high=4, limit=120):
    """A shape without 0 and with three elements at least along each axis that is normalised:
    two become 1 and -1, whose derivative is the difference of nearly equal numbers."""
    return [max(3, d) for d in shape(rng, low, high, limit)]


def parameter(rng, dtype, dims, positive=False):
    x = plain(rng, dtype, dims, 1.0)
    return np.abs(x) + np.asarray(0.25, x.dtype) if positive else x


EPSILONS = (1e-3, 1e-4, 1e-5)


def normal_form(rng):
    """x, the axes that are normalised and the shape of what is left; few rows, whose sums in
    another order stay within the tolerance."""
    dims = [6] + dense(rng, 1, 3, 12)
    axes = list(range(len(dims) - 1))
    if one_in(rng, 4) and len(dims) > 2:
        axes = [0] + [a for a in axes[1:] if a != len(dims) - 2]
    return dims, axes, [d for k, d in enumerate(dims) if k not in axes]


def make_batch_norm_train(rng):
    dims, axes, rest = normal_form(rng)
    dtype = pick(rng, SINGLES)
    inputs = {"x": plain(rng, dtype, dims)}
    for name in ("gamma", "beta", "moving_mean", "moving_var"):
        inputs[name] = parameter(rng, dtype, rest, name == "moving_var")
    return inputs, {"epsilon": pick(rng, EPSILONS), "momentum": pick(rng, (0.99, 0.9, 0.5, 0.0)),
                    "axes": axes}


def batch_norm_train(i, a):
    mean, var = tf.nn.moments(i["x"], a["axes"])
    y = tf.nn.batch_normalization(i["x"], mean, var, i["beta"], i["gamma"], a["epsilon"])
    m = a["momentum"]
    return {"y": y, "batch_mean": mean, "batch_var": var,
            "new_moving_mean": i["moving_mean"] * m + mean * (1 - m),
            "new_moving_var": i["moving_var"] * m + var * (1 - m)}


def make_batch_norm_grad(rng):
    dims, axes, rest = normal_form(rng)
    dtype = pick(rng, SINGLES)
    return {"x": plain(rng, dtype, dims), "gamma": parameter(rng, dtype, rest),
            "beta": parameter(rng, dtype, rest)}, {"epsilon": pick(rng, EPSILONS), "axes": axes}


def batch_norm_grad(i, a):
    mean, var = tf.nn.moments(i["x"], a["axes"])
    return tf.nn.batch_normalization(i["x"], mean, var, i["beta"], i["gamma"], a["epsilon"])


def make_fused(rng):
    dims = [1, pick(rng, (1, 2)), pick(rng, (6, 7)), pick(rng, (1, 2, 3, 7, 16))]
    return {"x": plain(rng, "float32", dims), "scale": parameter(rng, "float32", dims[3:]),
            "offset": parameter(rng, "float32", dims[3:])}, {"epsilon": pick(rng, EPSILONS)}


def fused(i, a):
    return tf.compat.v1.nn.fused_batch_norm(i["x"], i["scale"], i["offset"], epsilon=a["epsilon"],
                                            is_training=True)


def fused_train(i, a):
    y, mean, var = fused(i, a)
    return {"y": y, "batch_mean": mean, "batch_var_bessel": var}


def make_batch_norm_inference(rng):
    dims, dtype = shape(rng, 1, 5, 60), pick(rng, SINGLES)
    inputs = {"x": plain(rng, dtype, dims)}
    for name in ("mean", "var", "gamma", "beta"):
        rest = dims[-1:] if not one_in(rng, 8) else pick(rng, (dims, [1], []))
        inputs[name] = parameter(rng, dtype, rest, name == "var")
    return inputs, {"epsilon": pick(rng, EPSILONS)}


def batch_norm_inference(i, a):
    return tf.nn.batch_normalization(i["x"], i["mean"], i["var"], i["beta"], i["gamma"],
                                     a["epsilon"])


def make_layer_norm(rng):
    """Rows of seven and more: TensorFlow's gradient of short ones is noise (float64 tells)."""
    dims = dense(rng, 1, 3, 9)[:-1] + [pick(rng, (7, 8, 9, 16, 17, 33))]
    if one_in(rng, 8):
        dims = [pick(rng, (1, 2, 3)), pick(rng, (64, 129, 1025))]
    dtype = pick(rng, SINGLES)
    axis, scale = -1, dims[-1:]
    if one_in(rng, 4):
        axis = pick(rng, (len(dims) - 1, [-1], [*range(len(dims))],
                          [-1, 0] if len(dims) > 1 else [0]))
        scale = pick(rng, (dims[-1:], dims) + (([1], []) if dtype == "float64" else ()))
    return {"x": plain(rng, dtype, dims), "gamma": parameter(rng, dtype, scale),
            "beta": parameter(rng, dtype, scale)}, {"epsilon": pick(rng, EPSILONS), "axis": axis}


def layer_norm(i, a):
    axes = a["axis"] if isinstance(a["axis"], list) else [a["axis"]]
    mean, var = tf.nn.moments(i["x"], axes, keepdims=True)
    return tf.nn.batch_normalization(i["x"], mean, var, i["beta"], i["gamma"], a["epsilon"])


def make_l2_normalize(rng):
    """Numbers from 1 up, of either sign: the gradient is a difference that small ones blow up."""
    dims = any_shape(rng)
    x = plain(rng, dtype_of(rng, SINGLES), dims)
    if one_in(rng, 4):
        x = ties(rng, pick(rng, SINGLES), dims)
    return {"x": x + np.sign(x) if x.dtype.kind == "f" else x}, \
        {"axis": axes_of(rng, len(dims)), "epsilon": pick(rng, (1e-12, 1e-12, 1e-3, 0.5))}


def make_clip_by_norm(rng):
    dims = any_shape(rng)
    axes = axes_of(rng, len(dims))
    return {"x": values(rng, dtype_of(rng, SINGLES), dims)}, \
        {"clip_norm": pick(rng, (0.7, 1.0, 100.0, 0.0, 3.0)), "axes": axes}


def make_norms(rng):
    dtype = pick(rng, SINGLES)
    return {f"xs_{k}": pick(rng, (gentle, gentle, moderate))(rng, dtype, shape(rng, 0, 4, 40))
            for k in range(whole(rng, 1, 5))}


def clip_by_global_norm(i, a):
    outs, norm = tf.clip_by_global_norm(listed(i), a["clip_norm"])
    return {**{f"out_{k}": t for k, t in enumerate(outs)}, "global_norm": norm}


recipes = {
    "reduce_sum": reduction(tf.reduce_sum),
    "reduce_mean": reduction(tf.reduce_mean),
    "reduce_max": reduction(tf.reduce_max, number=one_zero),
    "reduce_min": reduction(tf.reduce_min, number=one_zero),
    "reduce_prod": reduction(tf.reduce_prod),
    "reduce_logsumexp": reduction(tf.reduce_logsumexp, FLOATS, values),
    "reduce_variance": reduction(tf.math.reduce_variance, FLOATS, moderate),
    "reduce_std": reduction(tf.math.reduce_std, FLOATS, moderate),
    "reduce_euclidean_norm": reduction(tf.math.reduce_euclidean_norm, FLOATS,
                                       wrong=("bool", "string")),
    "reduce_all": reduction(tf.reduce_all, ("bool",)),
    "reduce_any": reduction(tf.reduce_any, ("bool",)),
    "argmax": argument(tf.argmax, ("int32", "int64", "int16", "uint16", "float32", "uint8")),
    "argmin": argument(tf.argmin, ("int32", "int64", "float32", "uint8")),
    "cumsum": running(tf.cumsum, SINGLES + INTS),
    "cumprod": running(tf.math.cumprod, SINGLES + INTS),
    "softmax": softened(tf.nn.softmax, SINGLES),
    "log_softmax": softened(tf.nn.log_softmax, SINGLES),
    "softmax_cross_entropy_with_logits": (
        make_softmax_loss, lambda i, a: tf.nn.softmax_cross_entropy_with_logits(
            i["labels"], i["logits"], axis=a.get("axis", -1))),
    "sparse_softmax_cross_entropy_with_logits": (
        make_sparse_loss, lambda i, a: tf.nn.sparse_softmax_cross_entropy_with_logits(
            i["labels"], i["logits"])),
    "sigmoid_cross_entropy_with_logits": (
        make_sigmoid_loss, lambda i, a: tf.nn.sigmoid_cross_entropy_with_logits(
            i["labels"], i["logits"])),
    "mse": (make_mse, lambda i, a: tf.reduce_mean(
        tf.math.squared_difference(i["y_true"], i["y_pred"]), axis=-1)),
    "l2_loss": (lambda rng: ({"x": summable(rng, dtype_of(rng, FLOATS), any_shape(rng))}, {}),
                lambda i, a: tf.nn.l2_loss(i["x"])),
    "l2_normalize": (make_l2_normalize, lambda i, a: tf.math.l2_normalize(i["x"], **a)),
    "moments": (make_moments, lambda i, a: dict(zip(
        ("mean", "variance"), tf.nn.moments(i["x"], a["axes"], keepdims=a["keepdims"])))),
    "batch_norm_train": (make_batch_norm_train, batch_norm_train),
    "batch_norm_train_grad": (make_batch_norm_grad, batch_norm_grad),
    "fused_batch_norm_train": (make_fused, fused_train),
    "fused_batch_norm_train_grad": (make_fused, lambda i, a: fused(i, a)[0]),
    "batch_norm_inference": (make_batch_norm_inference, batch_norm_inference),
    "layer_norm": (make_layer_norm, layer_norm),
    "clip_by_norm": (make_clip_by_norm, lambda i, a: tf.clip_by_norm(i["x"], **a)),
    "clip_by_global_norm": (lambda rng: (make_norms(rng), {"clip_norm": pick(rng, (
        0.1, 0.5, 1.0, 2.0, 100.0, 0.0))}), clip_by_global_norm),
    "global_norm": (lambda rng: (make_norms(rng), {}),
                    lambda i, a: tf.linalg.global_norm(listed(i))),
}
