# SPDX-License-Identifier: Apache-2.0
"""Recipes of operators that move, choose or make elements. Indices and windows have files of
their own.

About one case in eight is wrong on purpose. Ranks end where TensorFlow's kernels do.
"""
import numpy as np
import tensorflow as tf

import ops_indices
import ops_windows
from draw import (ANY, FLOATS, INDICES, NUMBERS, any_shape, axes, axis, given, listed, moved,
                  one_in, ordered, pick, whole, wrong)


def anything(dtypes, high=8):
    """The recipe of an operator with one input and no attributes."""
    def make(rng):
        return {"x": moved(rng, pick(rng, dtypes), any_shape(rng, 0, high))}, {}
    return make


def several(rng):
    """Between one and five shapes and a dtype for operators of many tensors."""
    return pick(rng, (1, 2, 2, 3, 5)), pick(rng, ANY)


def concat(rng):
    count, dtype = several(rng)
    dims = any_shape(rng, 1, 7, 800)
    where = axis(rng, len(dims))
    parts = [list(dims) for _ in range(count)]
    for part in parts:
        part[where] = pick(rng, (0, 1, 2, 3, dims[where]))
    dtypes = [dtype] * count
    if wrong(rng):
        fault = pick(rng, ("axis", "rank", "dim", "dtype"))
        if fault == "axis" and count > 1:  # TensorFlow hands a single one on as it is
            where = axis(rng, len(dims), True)
        if fault == "rank":
            parts[-1] = parts[-1] + [1]
        if fault == "dim" and len(dims) > 1:
            parts[-1][(where + 1) % len(dims)] += 1
        if fault == "dtype":
            dtypes[-1] = pick(rng, ANY)
    return ({f"xs_{i}": moved(rng, t, p) for i, (p, t) in enumerate(zip(parts, dtypes))},
            {"axis": where})


def stack(rng):
    count, dtype = several(rng)
    dims = any_shape(rng, 0, 7, 800)
    attrs = given(rng, {"axis": axis(rng, len(dims) + 1, wrong(rng))}, {"axis": 0})
    xs = {f"xs_{i}": moved(rng, dtype, dims) for i in range(count)}
    if wrong(rng):
        xs[f"xs_{count}"] = moved(rng, dtype, dims + [1])
    return xs, attrs


def unstack(rng):
    dims = any_shape(rng, 0 if one_in(rng, 20) else 1, 7, 800)
    where = axis(rng, len(dims), wrong(rng))
    if dims and -len(dims) <= where < len(dims):
        dims[where] = whole(rng, 1, 6)  # of 0 there are no results, so nothing to compare
    attrs = given(rng, {"axis": where}, {"axis": 0})
    if dims and -len(dims) <= where < len(dims) and one_in(rng, 3):
        attrs["num"] = dims[where] + (1 if wrong(rng) else 0)
    return {"x": moved(rng, pick(rng, ANY), dims)}, attrs


def split(rng):
    dims = any_shape(rng, 1, 7, 1000)
    where = axis(rng, len(dims))
    if one_in(rng, 2):
        sizes = whole(rng, 1, 5)
        dims[where] = sizes * whole(rng, 0, 3) + (1 if wrong(rng) else 0)
    else:
        sizes = [whole(rng, 0, 4) for _ in range(whole(rng, 1, 5))]
        dims[where] = sum(sizes) + (whole(rng, -1, 1) if wrong(rng) else 0)
        dims[where] = max(dims[where], 0)
        for i in range(len(sizes)):
            if one_in(rng, 6):
                sizes[i] = -1
    where = axis(rng, len(dims), True) if wrong(rng) and one_in(rng, 2) else where
    return ({"x": moved(rng, pick(rng, ANY), dims)},
            given(rng, {"num_or_sizes": sizes, "axis": where}, {"axis": 0}))


def reshape(rng):
    dims = any_shape(rng, 0, 8)
    rest, out = int(np.prod(dims)), []
    while rest > 1 and len(out) < 7:
        d = pick(rng, [n for n in (1, 2, 3, 4, 5, 7, 9, rest) if rest % n == 0])
        out.append(int(d))
        rest //= d
    out = out + [int(rest)] if rest != 1 or one_in(rng, 3) else out
    if out and one_in(rng, 2):
        out[whole(rng, 0, len(out) - 1)] = -1
    if wrong(rng):
        out = pick(rng, (out + [2], [-1, -1], out + [-2], out + [0], [-1, 0], [2**31 - 1] * 4))
    return {"x": moved(rng, pick(rng, ANY), dims)}, {"shape": out[:8]}


def transpose(rng):
    dims = any_shape(rng, 0, 8) if not one_in(rng, 5) else [pick(rng, (1, 3, 16, 17, 33, 65, 129))
                                                       for _ in range(whole(rng, 2, 3))]
    while np.prod(dims) > 20000:
        dims[int(np.argmax(dims))] //= 3
    perm = [int(p) for p in rng.permutation(len(dims))]
    if one_in(rng, 3):
        perm = [p - len(dims) if one_in(rng, 2) else p for p in perm]
    attrs = {"perm": None if one_in(rng, 6) else perm}
    if wrong(rng):
        attrs["perm"] = pick(rng, (perm + [0], perm[1:], [0] * len(perm), [9] * len(perm)))
    return {"x": moved(rng, pick(rng, ANY), dims)}, given(rng, attrs, {"perm": None})


def squeeze(rng):
    dims = any_shape(rng, 0, 8)
    ones = [i for i, d in enumerate(dims) if d == 1]
    chosen = [i - (len(dims) if one_in(rng, 2) else 0) for i in ones if one_in(rng, 2)]
    attrs = {"axis": None if one_in(rng, 4) else chosen}
    if len(chosen) == 1 and one_in(rng, 2):
        attrs["axis"] = chosen[0]
    if wrong(rng):
        attrs["axis"] = pick(rng, ([axis(rng, len(dims), True)], [0], [-1], [0, 0], [1, 0]))
    return {"x": moved(rng, pick(rng, ANY), dims)}, given(rng, attrs, {"axis": None})


def expand_dims(rng):
    dims = any_shape(rng, 0, 7)
    return ({"x": moved(rng, pick(rng, ANY), dims)},
            {"axis": axis(rng, len(dims) + 1, wrong(rng))})


def slices(rng):
    dims = any_shape(rng, 0, 7)  # TensorFlow's kernel ends there
    begin = [whole(rng, 0, d) for d in dims]
    size = [-1 if one_in(rng, 4) else whole(rng, 0, d - b) for d, b in zip(dims, begin)]
    if wrong(rng):
        at = whole(rng, 0, max(len(dims) - 1, 0))
        values, bad = pick(rng, ((begin, -1), (size, -2), (size, 99), (begin, 99)))
        if values:
            values[at] = bad
        if one_in(rng, 3):
            begin, size = pick(rng, ((begin + [0], size + [1]), (begin, size + [1]),
                                     (begin[1:], size[1:])))
    return {"x": moved(rng, pick(rng, ANY), dims)}, {"begin": begin, "size": size}


def strided_slice(rng):
    """Masks at random: what they mean together is up to the operator."""
    dims = any_shape(rng, 0, 4)  # and at most 4 new axes: results end at rank 8
    n = whole(rng, 0, len(dims) + (2 if one_in(rng, 3) else 0))
    reach = [dims[i] if i < len(dims) else 3 for i in range(n)]
    strides = [pick(rng, (1, 1, 1, 2, 3, -1, -1, -2, 7)) for _ in range(n)]
    attrs = {"begin": [whole(rng, -r - 2, r + 2) for r in reach],
             "end": [whole(rng, -r - 2, r + 2) for r in reach], "strides": strides}
    if one_in(rng, 3):
        del attrs["strides"]
    for name in ("begin_mask", "end_mask"):
        attrs[name] = whole(rng, 0, 2**n - 1)
    for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        attrs[name] = 1 << whole(rng, 0, max(n - 1, 0)) if one_in(rng, 4) else 0
    if one_in(rng, 4):
        attrs["new_axis_mask"] |= whole(rng, 0, 2 ** min(n, 3) - 1)
    if one_in(rng, 4):
        attrs["shrink_axis_mask"] |= whole(rng, 0, 2**n - 1)
    if attrs["shrink_axis_mask"] and not one_in(rng, 4):  # within bounds, mostly
        attrs["begin"] = [whole(rng, -max(r, 1), max(r - 1, 0)) for r in reach]
    if wrong(rng):
        attrs.update(pick(rng, ({"strides": [0] * n}, {"ellipsis_mask": 3}, {"end": [1] * (n + 1)},
                                {"strides": [1] * (n + 1)}, {"begin": [2**31 - 1] * n},
                                {"end": [-2**31] * n})))
    zero = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask",
                          "shrink_axis_mask"), 0)
    return {"x": moved(rng, pick(rng, ANY), dims)}, given(rng, attrs, zero)


def pad(rng):
    mode = pick(rng, ("CONSTANT", "REFLECT", "SYMMETRIC"))
    dims = any_shape(rng, 0, 6 if mode == "CONSTANT" else 5, 500)
    dtype = pick(rng, ANY)
    reach = [4 if mode == "CONSTANT" else min(d - (mode == "REFLECT"), 4) for d in dims]
    paddings = [[whole(rng, 0, max(r, 0)), whole(rng, 0, max(r, 0))] for r in reach]
    attrs = {"paddings": paddings, "mode": mode}
    if mode == "CONSTANT" and dtype != "string":
        attrs["constant_values"] = pick(rng, (True, False) if dtype == "bool" else (0, 0, 1, 7))
        if dtype in FLOATS and one_in(rng, 2) or wrong(rng):
            attrs["constant_values"] = pick(rng, (1.5, -0.25, 3.0))
    if wrong(rng):
        fault = pick(rng, ("sign", "rank", "far"))
        if paddings and fault == "sign":
            paddings[-1][whole(rng, 0, 1)] = -1
        if fault == "rank":
            more = one_in(rng, 2) or len(paddings) < 2
            attrs["paddings"] = paddings + [[0, 0]] if more else paddings[1:]
        if paddings and fault == "far":
            paddings[0][0] = dims[0] + whole(rng, 0, 1)
    return ({"x": moved(rng, dtype, dims)},
            given(rng, attrs, {"mode": "CONSTANT", "constant_values": 0}))


def tile(rng):
    dims = any_shape(rng, 0, 7, 300)
    multiples = [pick(rng, (1, 1, 2, 3)) for _ in dims]
    if dims and one_in(rng, 8):
        multiples[whole(rng, 0, len(dims) - 1)] = pick(rng, (0, 9))
    if wrong(rng):
        multiples = pick(rng, (multiples + [1], multiples[1:], [-1] * len(dims)))
    # TensorFlow has no kernel for these dtypes.
    dtypes = [t for t in ANY if t not in ("uint16", "uint32", "uint64")]
    return {"x": moved(rng, pick(rng, dtypes), dims)}, {"multiples": multiples}


def broadcast_to(rng):
    out = any_shape(rng, 0, 8, 3000)
    dims = [1 if one_in(rng, 2) else d for d in out][whole(rng, 0, len(out)):]
    if len(out) > 5:  # TensorFlow takes few changes between kept and repeated dimensions
        dims = dims[-1:]
    dtype = pick(rng, ANY)
    if wrong(rng):
        out = pick(rng, (out[1:], out[:-1], [d + 1 for d in out], [-1] + out[1:], [1] * len(out)))
    return {"x": moved(rng, dtype, dims)}, {"shape": out}


def one_hot(rng):
    dims = any_shape(rng, 0, 5, 200)
    depth = whole(rng, 0, 7)
    index = rng.integers(0 if one_in(rng, 2) else -2, depth + 3, size=dims)
    attrs = {"depth": -1 if wrong(rng) else depth}
    if one_in(rng, 2):
        attrs["dtype"] = pick(rng, NUMBERS + ("bool",))
    if one_in(rng, 2):
        kinds = ((False, True), (5, 2), (1, 0), (7, 3), (2.5, -1.5), (1.0, 0.0))
        if attrs.get("dtype") == "bool":
            kinds = kinds[:1] if not wrong(rng) else kinds
        elif "dtype" in attrs:
            kinds = kinds[1:4] if not wrong(rng) else kinds[1:]  # bools go into some only
        on, off = pick(rng, kinds)
        attrs.update(on_value=on, off_value=off)
        if one_in(rng, 4):
            del attrs[pick(rng, ("on_value", "off_value"))]
    if one_in(rng, 2):
        attrs["axis"] = axis(rng, len(dims) + 1, wrong(rng))
        if attrs["axis"] < -1:
            attrs["axis"] = -1
    low = "uint8" if (index >= 0).all() else "int8"
    kinds = INDICES + (low,) if not wrong(rng) else ("float32", "int16", "uint32")
    return {"indices": np.asarray(index).astype(pick(rng, kinds))}, attrs


def span(rng):
    """Whole steps, and others whose number hangs on one rounding, which is TensorFlow's too."""
    dtype = pick(rng, (None, "int32", "int64", "float32", "float64", "float16", "bfloat16"))
    unit = pick(rng, (1, 1, 0.5, 0.25, 0.1, 0.3, 0.7)) if dtype not in ("int32", "int64") else 1
    start, delta = whole(rng, -20, 20) * unit, pick(rng, (1, 2, 3, 5, -1, -2, 7)) * unit
    limit = start + delta * whole(rng, 0, 40) + pick(rng, (0, 0, 1, -1)) * unit
    if wrong(rng):
        start, limit, delta = pick(rng, ((start, limit, 0), (0, 5 * unit, -unit),
                                         (5 * unit, 0, unit)))
    if dtype is None and one_in(rng, 4) and unit == 1:
        start, limit, delta = 2**40, 2**40 + 3 * delta, delta
    attrs = {"start": start, "limit": limit, "delta": delta}
    if wrong(rng) and unit == 1:
        dtype = pick(rng, ("bool", "string"))
    return {}, {**attrs, "dtype": dtype} if dtype else attrs


def linspace(rng):
    dtype = pick(rng, ("float32", "float64"))
    start, stop = (float(np.round(rng.normal(scale=10.0), 2)) for _ in range(2))
    number = pick(rng, (0, 1, 2, 3, 7, 16, 17, 100, 257))
    if one_in(rng, 8):
        stop = start
    return {}, {"start": start, "stop": stop, "num": -1 if wrong(rng) else number, "dtype": dtype}


def eye(rng):
    attrs = {"num_rows": whole(rng, 0, 9), "num_columns": pick(rng, (None, 0, 1, 2, 5, 17)),
             "batch_shape": pick(rng, (None, [], [2], [3, 0], [2, 1, 3])),
             "dtype": pick(rng, NUMBERS + ("bool",))}
    if wrong(rng):
        attrs["num_rows"] = -2
    return {}, given(rng, attrs, {"num_columns": None, "batch_shape": None, "dtype": "float32"})


def constant(dtypes):
    def make(rng):
        attrs = {"shape": any_shape(rng, 0, 8), "dtype": pick(rng, dtypes)}
        if wrong(rng):
            attrs["shape"] = attrs["shape"][:7] + [-1]
        return {}, given(rng, attrs, {"dtype": "float32"})
    return make


def fill(rng):
    dims = any_shape(rng, 0, 8) if not wrong(rng) else [2, -3]
    # No -0.0: TensorFlow keeps constants by value, and would then give it for 0.0 elsewhere.
    return {}, {"shape": dims, "value": pick(rng, (0, 7, -3, 2**31 - 1, 2**40, 1.5, True, False))}


def top_k(rng):
    dims = any_shape(rng, 0 if wrong(rng) else 1, 5)
    last = dims[-1] if dims else 0
    k = pick(rng, (last + 1, -1)) if wrong(rng) else whole(rng, 0, last)
    # Unsorted, the order of more than one is not settled.
    attrs = given(rng, {"k": k, "sorted": bool(k > 1 or one_in(rng, 2))}, {"k": 1, "sorted": True})
    return {"x": ordered(rng, "bool" if wrong(rng) else pick(rng, NUMBERS), dims)}, attrs


def sort(rng):
    dims = any_shape(rng, 0 if wrong(rng) else 1, 5)
    attrs = {"axis": axis(rng, len(dims), wrong(rng)),
             "direction": "UP" if wrong(rng) else pick(rng, ("ASCENDING", "DESCENDING"))}
    return ({"x": ordered(rng, pick(rng, NUMBERS), dims)},
            given(rng, attrs, {"axis": -1, "direction": "ASCENDING"}))


def argsort(rng):
    inputs, attrs = sort(rng)
    return inputs, {**attrs, "stable": True}


def reverse(rng):
    dims = any_shape(rng, 0, 8)
    chosen = axes(rng, len(dims))
    if wrong(rng) and np.prod(dims) and dims:  # TensorFlow copies what is empty or a scalar
        chosen = pick(rng, (chosen + [axis(rng, len(dims), True)], [0, 0], [-1, len(dims) - 1]))
    return {"x": moved(rng, pick(rng, ANY), dims)}, {"axis": chosen}


def roll(rng):
    dims = any_shape(rng, 0 if wrong(rng) else 1, 8)
    shift, where = whole(rng, -9, 9), axis(rng, len(dims), wrong(rng))
    if dims and one_in(rng, 2):  # an axis may stand twice: the shifts add up
        where = [axis(rng, len(dims)) for _ in range(whole(rng, 1, 4))]
        shift = [pick(rng, (whole(rng, -9, 9), 1000003)) for _ in where]
        shift = shift + [1] if wrong(rng) else shift
    return {"x": moved(rng, pick(rng, ANY), dims)}, {"shift": shift, "axis": where}


def band_part(rng):
    dims = any_shape(rng, 1 if wrong(rng) else 2, 5)
    rows, columns = (dims[-2], dims[-1]) if len(dims) > 1 else (1, 1)
    lower, upper = whole(rng, -1, rows), whole(rng, -1, columns)
    if wrong(rng):
        lower, upper = pick(rng, ((rows + 1, upper), (lower, columns + 1), (-5, upper)))
    return ({"x": moved(rng, pick(rng, NUMBERS + ("bool",)), dims)},
            {"num_lower": lower, "num_upper": upper})


def numbered(parts):
    return {f"out_{k}": part for k, part in enumerate(parts)}


def call_linspace(i, a):
    start, stop = (tf.constant(a[k], a["dtype"]) for k in ("start", "stop"))
    return tf.linspace(start, stop, a["num"])


def call_sort(i, a):
    return tf.sort(i["x"], **a)


recipes = {
    "concat": (concat, lambda i, a: tf.concat(listed(i), a["axis"])),
    "stack": (stack, lambda i, a: tf.stack(listed(i), **a)),
    "unstack": (unstack, lambda i, a: numbered(tf.unstack(i["x"], **a))),
    "split": (split, lambda i, a: numbered(tf.split(i["x"], a["num_or_sizes"], a.get("axis", 0)))),
    "reshape": (reshape, lambda i, a: tf.reshape(i["x"], tf.constant(a["shape"], tf.int64))),
    "transpose": (transpose, lambda i, a: tf.transpose(i["x"], **a)),
    "squeeze": (squeeze, lambda i, a: tf.squeeze(i["x"], **a)),
    "expand_dims": (expand_dims, lambda i, a: tf.expand_dims(i["x"], **a)),
    "slice": (slices, lambda i, a: tf.slice(i["x"], *(tf.constant(a[k], tf.int32)
                                                      for k in ("begin", "size")))),
    "strided_slice": (strided_slice, lambda i, a: tf.strided_slice(
        i["x"], **{k: tf.constant(v, tf.int32) if isinstance(v, list) else v
                   for k, v in a.items()})),
    "pad": (pad, lambda i, a: tf.pad(
        i["x"], tf.reshape(tf.constant(a["paddings"], tf.int32), [-1, 2]),
        a.get("mode", "CONSTANT"), a.get("constant_values", 0))),
    "tile": (tile, lambda i, a: tf.tile(i["x"], tf.constant(a["multiples"], tf.int32))),
    "broadcast_to": (broadcast_to,
                     lambda i, a: tf.broadcast_to(i["x"], tf.constant(a["shape"], tf.int32))),
    "one_hot": (one_hot, lambda i, a: tf.one_hot(i["indices"], **a)),
    "range": (span, lambda i, a: tf.range(**a)),
    "linspace": (linspace, call_linspace),
    "eye": (eye, lambda i, a: tf.eye(**a)),
    "zeros": (constant(ANY), lambda i, a: tf.zeros(**a)),
    "ones": (constant(NUMBERS + ("bool",)), lambda i, a: tf.ones(**a)),
    "fill": (fill, lambda i, a: tf.fill(tf.constant(a["shape"], tf.int32), a["value"])),
    "zeros_like": (anything(ANY), lambda i, a: tf.zeros_like(i["x"])),
    "ones_like": (anything(NUMBERS + ("bool",)), lambda i, a: tf.ones_like(i["x"])),
    "identity": (anything(ANY), lambda i, a: tf.identity(i["x"])),
    "stop_gradient": (anything(ANY), lambda i, a: tf.stop_gradient(i["x"])),
    "shape": (anything(ANY), lambda i, a: tf.shape(i["x"])),
    "size": (anything(ANY), lambda i, a: tf.size(i["x"])),
    "rank": (anything(ANY), lambda i, a: tf.rank(i["x"])),
    # TensorFlow has no kernel for float16.
    "where_index": (anything([t for t in NUMBERS + ("bool",) if t != "float16"]),
                    lambda i, a: tf.where(i["x"])),
    "top_k": (top_k, lambda i, a: tf.math.top_k(i["x"], **a)._asdict()),
    "sort": (sort, call_sort),
    "argsort": (argsort, lambda i, a: tf.argsort(i["x"], **a)),
    "reverse": (reverse, lambda i, a: tf.reverse(i["x"], tf.constant(a["axis"], tf.int32))),
    "roll": (roll, lambda i, a: tf.roll(i["x"], **a)),
    "band_part": (band_part, lambda i, a: tf.linalg.band_part(i["x"], **a)),
    **ops_indices.recipes,
    **ops_windows.recipes,
}
