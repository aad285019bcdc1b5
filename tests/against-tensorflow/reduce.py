# SPDX-License-Identifier: Apache-2.0
"""The family "reduce": reductions and gathers over the replicas of a strategy.

Where the rules want more than TensorFlow does, `expect` says so with the rule. Collectives that fail leave
TensorFlow's ring broken, so the strategies reduce to one device.
"""
import numpy as np
import tensorflow as tf

import record

NUMBERS = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
SMALL = ["int8", "uint8", "int16", "uint16", "uint32", "uint64"]


def strategy(rng):
    n = int(rng.integers(1, record.CPUS + 1))
    if n == 1 and rng.random() < 0.5:
        return {"strategy": "OneDeviceStrategy", "replicas": 1}, \
            tf.distribute.OneDeviceStrategy("/cpu:0")
    made = tf.distribute.MirroredStrategy(
        [f"/cpu:{i}" for i in range(n)],
        cross_device_ops=tf.distribute.ReductionToOneDevice())
    return {"strategy": "MirroredStrategy", "replicas": n}, made


def values(rng, shape, dtype):
    """Few bits each, so that sums are exact in any order."""
    if dtype == "bool":
        return tf.constant(rng.integers(0, 2, size=shape), tf.bool)
    low = 0 if dtype.startswith("u") else -8
    whole = rng.integers(low, 9, size=shape)
    if dtype.startswith("int") or dtype.startswith("u"):
        # Sums that wrap; the reader of JSON ends at the largest int64.
        if dtype != "uint64" and rng.random() < 0.2:
            whole = whole * (np.iinfo(dtype).max // 9)
        return tf.constant(whole.astype(dtype))
    numbers = whole.astype("float64") / 4
    if numbers.size and rng.random() < 0.1:
        numbers.flat[rng.integers(numbers.size)] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    return tf.cast(tf.constant(numbers, tf.float64), dtype)


def shape(rng, max_rank=4):
    return [int(n) for n in rng.integers(0, 4, size=rng.integers(0, max_rank + 1))]


def shapes(rng, n, differ):
    """One shape for each replica; at most one dimension differs, or, seldom, anything."""
    first = shape(rng)
    made = [list(first) for _ in range(n)]
    if differ and first:
        axis = int(rng.integers(len(first)))
        for s in made:
            s[axis] = int(rng.integers(0, 4))
    elif rng.random() < 0.1:
        made[-1] = shape(rng)
    return made


def axis_of(rng, rank):
    draw = rng.random()
    if draw < 0.3:
        return None
    if draw < 0.9 or rank < 2:
        return int(rng.integers(-rank - (draw > 0.85), rank + (draw > 0.85))) if rank else 0
    return [0, -1]


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
    dtype = str(rng.choice(dtypes))
    parts = [values(rng, sh, dtype) for sh in shapes(rng, attrs["replicas"], differ)]
    inputs = {"per_replica": [record.tensor(p) for p in parts]}
    return attrs, s, parts, {"attrs": attrs, "inputs": inputs, "outputs": {}, "error": None}


def reduce(rng):
    attrs, s, parts, seen = operands(rng, rng.random() < 0.5, NUMBERS * 3 + SMALL + ["bool"])
    attrs["op"] = str(rng.choice(["SUM", "MEAN"]))
    attrs["axis"] = axis_of(rng, parts[0].shape.rank)
    axis = tuple(attrs["axis"]) if isinstance(attrs["axis"], list) else attrs["axis"]

    def compute():
        op = tf.distribute.ReduceOp[attrs["op"]]
        return {"result": record.tensor(s.reduce(op, per_replica(s, parts), axis=axis))}
    return finish(seen, compute)


def all_reduce(rng):
    attrs, s, parts, seen = operands(rng, False, NUMBERS)
    attrs["op"] = str(rng.choice(["SUM", "MEAN"]))

    def compute():
        def fn(x):
            return tf.distribute.get_replica_context().all_reduce(attrs["op"], x)
        return {"result": local(s, s.run(fn, args=(per_replica(s, parts),)))}
    return finish(seen, compute)


def gathered(rng, rule):
    """Operands of a gather; TensorFlow's kind for an axis out of range depends on the dtype."""
    attrs, s, parts, seen = operands(rng, True, NUMBERS + ["bool", "uint8"])
    rank = parts[0].shape.rank
    attrs["axis"] = int(rng.integers(-rank - 1, rank + 1))
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
    value = values(rng, shape(rng), str(rng.choice(NUMBERS + SMALL)))
    attrs["op"] = str(rng.choice(["SUM", "MEAN"]))
    attrs["axis"] = axis_of(rng, value.shape.rank)
    axis = tuple(attrs["axis"]) if isinstance(attrs["axis"], list) else attrs["axis"]
    seen = {"attrs": attrs, "inputs": {"value": record.tensor(value)}, "outputs": {}, "error": None}
    return finish(seen, lambda: {
        "result": record.tensor(s.reduce(tf.distribute.ReduceOp[attrs["op"]], value, axis=axis))})


def table():
    return {f.__name__: f for f in (reduce, all_reduce, gather, all_gather, reduce_plain_tensor)}


recipes = table()
