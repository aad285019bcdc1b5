# SPDX-License-Identifier: Apache-2.0
"""Recipes of operators that gather and scatter by index."""
import numpy as np
import tensorflow as tf

from draw import (ANY, INDICES, NUMBERS, any_shape, axis, given, indices, mild, moved, one_in, pick,
                  whole, wrong)


def gather(rng):
    batch = pick(rng, (0, 0, 0, 1, 2))
    params = any_shape(rng, batch + 1, 5, 1500)
    where = whole(rng, batch, len(params) - 1)
    dims = params[:batch] + any_shape(rng, 0, 2, 40)
    bad = pick(rng, ("index", "axis", "batch", "dtype", "shape")) if wrong(rng) else ""
    bad = "axis" if bad == "index" and not np.prod(params) else bad
    # Slices have no indices of int16 here: none where the gradient is made of them.
    dtype = pick(rng, INDICES + ("int16",) * (where > 0))
    dtype = dtype if bad != "dtype" else pick(rng, ("float32", "uint8"))
    index = indices(rng, dims, params[where], dtype, bad == "index")
    if list(index.shape) != dims:  # no index fits a dimension of 0
        index = np.zeros(params[:batch] + [0], dtype)
    attrs = {"axis": where - (len(params) if one_in(rng, 3) else 0), "batch_dims": batch}
    if one_in(rng, 3) and len(index.shape) and batch:
        attrs["batch_dims"] = batch - len(index.shape)
    if bad == "axis":
        attrs["axis"] = axis(rng, len(params), True)
    if bad == "batch":
        attrs["axis"] = -1  # with axis 0 TensorFlow does not read batch_dims
        attrs["batch_dims"] = pick(rng, (5, -5, len(dims) + 1, len(params)))
    if bad == "shape" and batch:
        params = [params[0] + 1] + params[1:]
    # Left out, the axis is batch_dims.
    if attrs["axis"] == attrs["batch_dims"] and one_in(rng, 2):
        del attrs["axis"]
    return ({"params": moved(rng, pick(rng, ANY), params), "indices": index},
            given(rng, attrs, {"batch_dims": 0}))


def gather_nd(rng):
    params = any_shape(rng, 0 if one_in(rng, 8) else 1, 5, 1500)
    depth = whole(rng, 0, len(params))
    outer = any_shape(rng, 0, 3, 40)
    bad = pick(rng, ("index", "depth", "dtype")) if wrong(rng) else ""
    columns = [indices(rng, outer, n, "int64", bad == "index") if n else np.zeros(outer, np.int64)
               for n in params[:depth]]
    index = np.stack(columns, -1) if columns else np.zeros(outer + [0], np.int64)
    if bad == "depth":
        index = np.zeros(outer + [len(params) + 1], np.int64)
    dtype = pick(rng, ("int16",) + INDICES) if bad != "dtype" else pick(rng, ("float32", "uint8"))
    return ({"params": moved(rng, pick(rng, ANY), params), "indices": index.astype(dtype)}, {})


def scatter_indices(rng, dims, unique):
    """Index vectors into `dims`, and the shape of the updates for them."""
    depth = whole(rng, 1 if dims else 0, len(dims))
    inner = dims[:depth]
    room = int(np.prod(inner))
    count = whole(rng, 0, min(room, 12) if unique or not room else 12)
    flat = rng.permutation(room)[:count] if unique else rng.integers(0, max(room, 1), size=count)
    count = len(flat) if room else 0
    index = np.stack(np.unravel_index(flat[:count], inner), -1) if room and depth else \
        np.zeros([count, depth], np.int64)
    outer = [count]
    if count % 2 == 0 and one_in(rng, 4):
        outer = [2, count // 2]
    if count == 1 and one_in(rng, 2):
        outer = []
    return index.reshape(outer + [depth]).astype(pick(rng, INDICES)), outer + dims[depth:]


def spoil_scatter(rng, index, updates, dims):
    fault = pick(rng, ("index", "shape", "rank"))
    if fault == "index" and index.size:
        index = index.copy()
        index.flat[whole(rng, 0, index.size - 1)] = pick(rng, (-1, 99))
    elif fault == "shape" and updates:
        updates = updates[:-1] + [updates[-1] + 1]
    else:
        updates = updates + [1]
    return index, updates


def scatter_nd(rng):
    dims = any_shape(rng, 1, 4, 1000)
    index, updates = scatter_indices(rng, dims, False)
    if wrong(rng):
        index, updates = spoil_scatter(rng, index, updates, dims)
    return ({"indices": index, "updates": mild(rng, pick(rng, NUMBERS + ("bool",)), updates)},
            {"shape": dims})


def tensor_scatter(dtypes, unique):
    """Twice the same index: for an update the winner is TensorFlow's secret, so there is none."""
    def make(rng):
        dims = any_shape(rng, 1, 4, 1000)
        index, updates = scatter_indices(rng, dims, unique)
        if wrong(rng):
            index, updates = spoil_scatter(rng, index, updates, dims)
        dtype = pick(rng, dtypes)
        draw = moved if unique else mild
        return {"tensor": draw(rng, dtype, dims), "indices": index,
                "updates": draw(rng, dtype, updates)}, {}
    return make


def unsorted_segment_sum(rng):
    ids = any_shape(rng, 0, 2, 60)
    segments = whole(rng, 0, 9)
    index = rng.integers(-2, max(segments, 1), size=ids)
    index = np.where(index >= segments, -1, index)
    dims = ids + any_shape(rng, 0, 3, 20)
    if wrong(rng) and np.prod(dims):  # TensorFlow looks at no ids when there is no data
        fault = pick(rng, ("id", "shape", "segments"))
        if fault == "id":
            index = np.where(index >= 0, segments, index)
        elif fault == "shape":
            dims = [n + 1 for n in dims]
        else:
            segments = -1
    return ({"data": mild(rng, pick(rng, NUMBERS), dims),
             "ids": np.asarray(index).astype(pick(rng, INDICES))}, {"num_segments": segments})


def embedding_lookup(rng):
    params = any_shape(rng, 1, 4, 2000)
    # TensorFlow looks at no ids when their rows are empty.
    index = indices(rng, any_shape(rng, 0, 3, 60), params[0], None, wrong(rng) and np.prod(params))
    return {"params": moved(rng, pick(rng, ANY), params), "ids": index}, {}


recipes = {
    "gather": (gather, lambda i, a: tf.gather(i["params"], i["indices"], **a)),
    "gather_nd": (gather_nd, lambda i, a: tf.gather_nd(i["params"], i["indices"])),
    "scatter_nd": (scatter_nd, lambda i, a: tf.scatter_nd(
        i["indices"], i["updates"], tf.constant(a["shape"], i["indices"].dtype))),
    "tensor_scatter_nd_update": (tensor_scatter(ANY, True), lambda i, a:
                                 tf.tensor_scatter_nd_update(i["tensor"], i["indices"],
                                                             i["updates"])),
    "tensor_scatter_nd_add": (tensor_scatter(NUMBERS, False), lambda i, a:
                              tf.tensor_scatter_nd_add(i["tensor"], i["indices"], i["updates"])),
    "unsorted_segment_sum": (unsorted_segment_sum, lambda i, a: tf.math.unsorted_segment_sum(
        i["data"], i["ids"], a["num_segments"])),
    "embedding_lookup": (embedding_lookup,
                         lambda i, a: tf.nn.embedding_lookup(i["params"], i["ids"])),
}
