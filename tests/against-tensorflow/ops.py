# SPDX-License-Identifier: Apache-2.0
"""The family "ops": random operands for the operators, results and gradients of TensorFlow.

A recipe is (make, call): make(rng) gives named inputs (numpy arrays) and attributes, call(inputs,
attrs) the outputs by name. The recipes are in the other files ops_*.py.
"""
import numpy as np
import tensorflow as tf

import record

# No gradient is taken, as in the recorded data: TensorFlow's is none for some of the outputs.
NO_GRADIENT = ("batch_norm_train", "fused_batch_norm_train")


def is_float(t):
    return t.dtype.is_floating


def upstream(rng, out):
    """A gradient to feed for one output: fractions whose sums are exact in whatever order."""
    parts = 2 if out.dtype == tf.bfloat16 else 8
    values = np.round(rng.normal(size=[int(n) for n in out.shape]) * parts) / parts
    return tf.cast(tf.constant(values, tf.float64), out.dtype)


def gradient(g):
    if g is None:
        return None
    if isinstance(g, tf.IndexedSlices):
        slices = {"values": record.tensor(g.values), "indices": record.tensor(g.indices),
                  "dense_shape": record.tensor(g.dense_shape)}
        return {"indexed_slices": slices, "dense": record.tensor(tf.convert_to_tensor(g))}
    return record.tensor(g)


def gradients(tape, outputs, fed, wanted):
    """Those that TensorFlow has: some operators of it compute what it cannot differentiate."""
    if not fed or not wanted:
        return {}
    try:
        found = tape.gradient([outputs[n] for n in fed], list(wanted.values()),
                              output_gradients=list(fed.values()))
    except (tf.errors.OpError, ValueError, TypeError, LookupError, AssertionError):
        return {}
    return {n: gradient(g) for n, g in zip(wanted, found)}


def expected(kind):
    """GEN-ERR-4: shapes, dtypes and attributes that do not fit an operator are E_INVALID."""
    if kind == "E_INVALID":
        return {}
    return {"expect": {"rule": "GEN-ERR-4", "error": {"kind": "E_INVALID"}}}


def case(op, make, call, rng):
    inputs, attrs = make(rng)
    inputs = {name: tf.convert_to_tensor(value) for name, value in inputs.items()}
    seen = {"op": op, "inputs": {n: record.tensor(t) for n, t in inputs.items()}, "attrs": attrs,
            "outputs": {}, "upstream": {}, "grads": {}, "error": None}
    try:
        with tf.GradientTape() as tape:
            for t in inputs.values():
                if is_float(t):
                    tape.watch(t)
            outputs = call(inputs, attrs)
            outputs = outputs if isinstance(outputs, dict) else {"out": outputs}
            fed = {n: upstream(rng, t) for n, t in outputs.items() if is_float(t)}
            wanted = {n: t for n, t in inputs.items() if is_float(t)}
    except (tf.errors.OpError, ValueError, TypeError, IndexError) as e:
        seen["error"] = record.error(e)
        seen.update(expected(seen["error"]["kind"]))
        return seen
    seen["outputs"] = {n: record.tensor(t) for n, t in outputs.items()}
    grads = gradients(tape, outputs, fed, wanted) if op not in NO_GRADIENT else {}
    if grads:
        seen["upstream"] = {n: record.tensor(t) for n, t in fed.items()}
        seen["grads"] = grads
    return seen


def table():
    import ops_math
    import ops_shapes
    return {op: lambda rng, op=op, make=make, call=call: case(op, make, call, rng)
            for op, (make, call) in {**ops_math.recipes, **ops_shapes.recipes}.items()}


recipes = table()
