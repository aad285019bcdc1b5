# SPDX-License-Identifier: Apache-2.0
"""The family "datasets": random pipelines of two to six stages."""
import tensorflow as tf

import pipelines as p
import record
from draw import one_in, pick, whole
from record import seen


def case(rng, observe, attrs, **how):
    """What observe() says of a random pipeline, or its error."""
    try:
        pipeline = p.grow(rng, whole(rng, 1, 5), **how)
    except p.Wrong as e:
        return {**seen({"pipeline": e.pipeline, **attrs}), "error": record.error(e.cause)}
    result = seen({"pipeline": pipeline, **attrs})
    try:
        result["outputs"] = observe(p.build(pipeline), attrs)
    except p.REFUSALS as e:
        result["error"] = record.error(e)
    return result


def cardinality(ds, attrs):
    return {"cardinality": int(ds.cardinality())}


def elements(ds, attrs):
    found, ended = p.read(ds, attrs["max_elements"])
    return {**cardinality(ds, attrs), "element_spec": p.spec(ds.element_spec), "elements": found,
            "ended": ended}


def iterator(ds, attrs):
    plain, wrapped, steps, optionals = iter(ds), iter(ds), [], []
    for _ in range(attrs["calls"]):
        try:
            steps.append({"next": p.written(next(plain))})
        except StopIteration:
            steps.append({"next": "StopIteration"})
        optional = wrapped.get_next_as_optional()
        has = bool(optional.has_value())
        optionals.append({"has_value": has,
                          "value": p.written(optional.get_value()) if has else None})
    return {"steps": steps, "optional": optionals}


FOLDS = {"count": lambda s, *x: s + 1, "state+x": lambda s, x: s + x,
         "state*2+x": lambda s, x: s * 2 + x}


def reduce(ds, attrs):
    initial = tf.constant(attrs["initial"], tf.int64)
    return {"result": record.tensor(ds.reduce(initial, FOLDS[attrs["fn"]]))}


def reduce_case(rng):
    """Numbers only: the sums of others have other dtypes than the state."""
    finite = [op for op in ("filter", "skip", "take", "shard", "scan", "concatenate", "unique")]
    attrs = {"initial": whole(rng, -9, 9), "fn": pick(rng, FOLDS)}
    source = {"op": "range", "args": p.make_range(rng)}
    return case(rng, reduce, attrs, ops=finite, source=source)


def shuffle_case(rng):
    """Flags alone are compared; n elements, all passes (a second may have the same order)."""
    n, size, seed, again = whole(rng, 0, 60), whole(rng, 1, 70), whole(rng, 0, 99), one_in(rng, 2)
    attrs = {"n": n, "buffer_size": size, "seed": seed, "reshuffle_each_iteration": again}
    pipeline = [{"op": "range", "args": [n]}, {"op": "shuffle", "args": [size, seed, again]}]
    flags = {"is_permutation": True, "second_is_permutation": True, "buffer_bound_holds": True,
             "cardinality": n}
    if not again:
        flags["epochs_equal"] = True
    return {**seen({"pipeline": pipeline, **attrs}), "outputs": flags}


def table():
    p.make_files()
    recipes = {}
    stages = [op for op in p.OPS if op not in ("shuffle", "options_autoshard")]
    for group in stages + ["mixed"]:
        must = group if group in p.OPS else None
        recipes[group] = lambda rng, must=must: case(rng, elements, {"max_elements": p.LIMIT},
                                                     must=must)
    for group in ("range", "from_tensors", "from_tensor_slices", "zip"):
        recipes[group] = recipes["mixed"]
    recipes["cardinality"] = lambda rng: case(rng, cardinality, {})
    recipes["iterator"] = lambda rng: case(rng, iterator, {"calls": whole(rng, 1, 8)})
    recipes["reduce"] = reduce_case
    recipes["shuffle"] = shuffle_case
    return recipes


recipes = table()
