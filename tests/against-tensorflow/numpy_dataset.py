# SPDX-License-Identifier: Apache-2.0
"""The family "numpy_dataset", eager: random arrays and structures, as they are and distributed.

The v1 strategies make them; those of v2 have no such call in TensorFlow, and NP-9 wants the same of
them. NP-3 and NP-8 as in the recorded cases: arrays that have no rows, or other numbers of rows,
are value errors.
"""
import collections

import tensorflow as tf

import pipelines as p
import record
from draw import EVERY, one_in, pick, whole
from strategies import mirrored

STRATEGIES = {"O": 1, "P": 1, "M1": 1, "M2": 2, "M3": 3}
made = {}


def strategy_of(name):
    v1 = tf.compat.v1.distribute
    if name not in made:
        if name in "OP":
            made[name] = v1.OneDeviceStrategy("/cpu:0" if name == "O" else "/cpu:1")
        else:
            made[name] = mirrored(STRATEGIES[name], v1)
    return made[name]


def arrays(tree):
    """numpy arrays of a structure of the format."""
    if "tuple" in tree:
        return tuple(arrays(item) for item in tree["tuple"])
    if "dict" in tree:
        return {key: arrays(item) for key, item in tree["dict"].items()}
    if "named_tuple" in tree:
        names = list(tree["named_tuple"])
        return collections.namedtuple("Named", names)(*map(arrays, tree["named_tuple"].values()))
    return p.value(tree).numpy()


def random_input(rng):
    # Not string: arrays of bytes become tensors without the zeros at their ends.
    # Not bfloat16: numpy has no such dtype of its own.
    dtypes = [d for d in EVERY if d != "bfloat16"]
    n = whole(rng, 1, 9)
    dim = lambda: whole(rng, 1, 9) if one_in(rng, 30) else n
    tree = p.random_structure(
        rng, lambda: p.random_tensor(rng, [dim()] + p.random_shape(rng, 2), dtypes))
    if "tuple" in tree and one_in(rng, 3):
        return {"named_tuple": dict(zip(("z", "y", "x"), tree["tuple"]))}
    return tree


def describe(rng, name, tree):
    strategy = strategy_of(name)
    with tf.device("/cpu:0"):
        ds = strategy.experimental_make_numpy_dataset(arrays(tree))
    out = {"element_spec": p.spec(ds.element_spec), "elements": [p.written(x) for x in ds],
           "cardinality": int(ds.cardinality()), "distributed": []}
    for _ in range(whole(rng, 0, 2)):
        size, drop = whole(rng, 1, 5), one_in(rng, 2)
        dist = strategy.experimental_distribute_dataset(ds.batch(size, drop_remainder=drop))
        out["distributed"].append({"batch": size, "drop_remainder": drop,
                                   "steps": [p.written(x) for x in dist]})
    return out


def make_case(rng, flavour):
    name, tree = pick(rng, STRATEGIES), random_input(rng)
    attrs = {"mode": "eager", "strategy": name, "replicas": STRATEGIES[name], "input": "random"}
    result = {"attrs": attrs, "inputs": {"numpy_input": tree}, "outputs": None, "error": None}
    if flavour == "v2":
        attrs["flavour"] = "v2"
    try:
        result["outputs"] = describe(rng, name, tree)
    except p.REFUSALS as e:
        result["error"] = record.error(e)
    return result


def table():
    p.least_dim = 1  # see distribute_input.py
    return {"make_numpy_dataset": lambda rng: make_case(rng, "v1"),
            "v2_flavour": lambda rng: make_case(rng, "v2")}


recipes = table()
