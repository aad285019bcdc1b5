# SPDX-License-Identifier: Apache-2.0
"""The family "reduce": reductions and gathers over the replicas of a strategy.

Where the rules want more than TensorFlow does, `expect` says so with the rule.
"""
import numpy as np
import tensorflow as tf

import record
from draw import FLOATS, INDICES, INTS, UNSIGNED, axis, cast, one_in, pick, shape, whole
from strategies import mirrored

USUAL = FLOATS + INDICES
OTHER = tuple(d for d in INTS if d not in USUAL)
OPS = ("SUM", "MEAN")


def strategy(rng):
    n = whole(rng, 1, record.CPUS)
    if n == 1 and one_in(rng, 2):
        return {"strategy": "OneDeviceStrategy", "replicas": 1}, \
            tf.distribute.OneDeviceStrategy("/cpu:0")
    return {"strategy": "MirroredStrategy", "replicas": n}, mirrored(n)


def values(rng, dtype, dims):
    """Few bits each, so that sums are exact in any order."""
    if dtype == "bool":
        return tf.constant(rng.integers(0, 2, size=dims), tf.bool)
    numbers = np.asarray(rng.integers(0 if dtype in UNSIGNED else -8, 9, size=dims))
    if dtype in INTS:
        # Sums that wrap; the reader of JSON ends at the largest int64.
        if dtype != "uint64" and one_in(rng, 5):
            numbers = numbers * (np.iinfo(dtype).max // 9)
        return tf.constant(cast(numbers, dtype))
    numbers = numbers / 4
    if numbers.size and one_in(rng, 8):
        numbers.flat[whole(rng, 0, numbers.size - 1)] = pick(rng, (np.nan, np.inf, -np.inf, -0.0))
    return tf.constant(cast(numbers, dtype))


def shapes(rng, n, differ):
    """One shape for each replica; at most one dimension differs, or, seldom, anything."""
    first = shape(rng, 0, 5, 60)
    made = [list(first) for _ in range(n)]
    if differ and first:
        where = axis(rng, len(first))
        for s in made:
            s[where] = whole(rng, 0, 3)
    elif one_in(rng, 10):
        made[-1] = shape(rng, 0, 5, 60)
    return made


def axis_or_axes(rng, rank):
    """None, one axis, now and then outside, or seldom two."""
    if one_in(rng, 3):
        return None
    if rank > 1 and one_in(rng, 8):
        return [0, -1]
    return axis(rng, rank, one_in(rng, 16)) if rank else 0


def reduced(s, attrs, value):
    axis = tuple(attrs["axis"]) if isinstance(attrs["axis"], list) else attrs["axis"]
    op = tf.distribute.ReduceOp[attrs["op"]]
    return {"result": record.tensor(s.reduce(op, value, axis=axis))}


def per_replica(s, parts):
    if len(parts) == 1:
        return parts[0]
    return s.experimental_distribute_values_from_function(
        lambda ctx: parts[ctx.replica_id_in_sync_group])


def finish(seen, compute):
    try:
        seen["outputs"] = compute()
    except (tf.errors.OpError, ValueError, TypeError, AssertionError, NotImplementedError) as e:
        seen["error"] = record.error(e)
    return seen


def local(s, value):
    return {"per_replica": [record.tensor(v) for v in s.experimental_local_results(value)]}


def operands(rng, differ, dtypes):
    attrs, s = strategy(rng)
    dtype = pick(rng, dtypes)
    parts = [values(rng, dtype, dims) for dims in shapes(rng, attrs["replicas"], differ)]
    inputs = {"per_replica": [record.tensor(p) for p in parts]}
    return attrs, s, parts, record.seen(attrs, inputs)


def reduce(rng):
    attrs, s, parts, seen = operands(rng, one_in(rng, 2), USUAL * 3 + OTHER + ("bool",))
    attrs["op"] = pick(rng, OPS)
    attrs["axis"] = axis_or_axes(rng, parts[0].shape.rank)
    return finish(seen, lambda: reduced(s, attrs, per_replica(s, parts)))


def all_reduce(rng):
    attrs, s, parts, seen = operands(rng, False, USUAL)
    attrs["op"] = pick(rng, OPS)

    def compute():
        def fn(x):
            return tf.distribute.get_replica_context().all_reduce(attrs["op"], x)
        return {"result": local(s, s.run(fn, args=(per_replica(s, parts),)))}
    return finish(seen, compute)


def gathered(rng, rule):
    """Operands of a gather; TensorFlow's kind for an axis out of range depends on the dtype."""
    attrs, s, parts, seen = operands(rng, True, USUAL + ("bool", "uint8"))
    rank = parts[0].shape.rank
    attrs["axis"] = whole(rng, -rank - 1, rank)
    if attrs["replicas"] > 1 and not -rank <= attrs["axis"] < rank:
        seen["expect"] = {"rule": rule, "error": {"kind": "E_VALUE"}}
    return attrs, s, parts, seen


def gather(rng):
    attrs, s, parts, seen = gathered(rng, "S-GATHER-3")
    return finish(seen, lambda: {
        "result": record.tensor(s.gather(per_replica(s, parts), axis=attrs["axis"]))})


def all_gather(rng):
    attrs, s, parts, seen = gathered(rng, "RC-AG-2")

    def compute():
        def fn(x):
            return tf.distribute.get_replica_context().all_gather(x, axis=attrs["axis"])
        return {"result": local(s, s.run(fn, args=(per_replica(s, parts),)))}
    return finish(seen, compute)


def reduce_plain_tensor(rng):
    attrs, s = strategy(rng)
    value = values(rng, pick(rng, USUAL + OTHER), shape(rng, 0, 5, 60))
    attrs["op"] = pick(rng, OPS)
    attrs["axis"] = axis_or_axes(rng, value.shape.rank)
    seen = record.seen(attrs, {"value": record.tensor(value)})
    return finish(seen, lambda: reduced(s, attrs, value))


def table():
    return {f.__name__: f for f in (reduce, all_reduce, gather, all_gather, reduce_plain_tensor)}


recipes = table()
