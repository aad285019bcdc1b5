# SPDX-License-Identifier: Apache-2.0
"""The family "v1": random uses of the v1 iterators, eagerly.

Left out: element_spec of iterators over input functions, where TensorFlow fails (ITER1-NEXT-2), and
experimental_run_steps_on_iterator, whose loop of TensorFlow 2 cannot carry outputs.
"""
import tensorflow as tf

import pipelines as p
import record
from draw import one_in, pick, whole
from strategies import mirrored

v1 = tf.compat.v1.distribute


STRATEGIES = {"O": v1.OneDeviceStrategy("/cpu:0"), "P": v1.OneDeviceStrategy("/cpu:1"),
              **{f"M{n}": mirrored(n, v1) for n in (1, 2, 3)}}


def replica_id():
    return tf.distribute.get_replica_context().replica_id_in_sync_group


# What each kind of element can be given to: a number, a pair, a map.
FUNCTIONS = {
    "number": {
        "x*2": lambda x: x * 2, "sum": tf.reduce_sum, "size": tf.size, "identity": tf.identity,
        "pair": lambda x: (tf.reduce_sum(x), tf.size(x)),
        "x+replica_id": lambda x: x + tf.cast(replica_id(), x.dtype),
        "all_reduce_sum": lambda x: tf.distribute.get_replica_context().all_reduce(
            "SUM", tf.cast(tf.reduce_sum(x), tf.float32)),
    },
    "pair": {"x[0]+x[1]": lambda *x: x[0][0] + x[0][1] if len(x) == 1 else x[0] + x[1]},
    "map": {"a+b": lambda x: x["a"] + x["b"]},
    "none": {"constant3": lambda: tf.constant(3), "replica_id": lambda: tf.identity(replica_id()),
             "none": lambda: None},
}


def written(x):
    return None if x is None else p.written(x)


def dims(shape):
    return [-1 if n is None else n for n in shape]


class World:
    """The iterators of a case by name."""

    def __init__(self, strategy):
        self.strategy = strategy
        self.iterators = {}

    def act(self, step):
        return record.attempt(lambda: getattr(self, step["do"])(step))

    def of(self, step):
        return self.iterators[step.get("name", "a")]

    def make_dataset_iterator(self, step):
        ds = p.build(step["pipeline"])
        self.iterators[step.get("name", "a")] = self.strategy.make_dataset_iterator(ds)

    def make_input_fn_iterator(self, step):
        contexts = []

        def input_fn(ctx):
            contexts.append({
                "num_input_pipelines": ctx.num_input_pipelines,
                "input_pipeline_id": ctx.input_pipeline_id,
                "num_replicas_in_sync": ctx.num_replicas_in_sync,
                "in_cross_replica_context": tf.distribute.in_cross_replica_context(),
                "strategy_is_current": tf.distribute.get_strategy() is self.strategy})
            return p.build(step["pipeline"])
        self.iterators["a"] = self.strategy.make_input_fn_iterator(input_fn)
        return {"input_contexts": contexts}

    def initialize(self, step):
        self.of(step).initialize()

    def get_next(self, step):
        return written(self.of(step).get_next())

    def element_spec(self, step):
        return p.spec(self.of(step).element_spec)

    def output_types(self, step):
        return p.structure(self.of(step).output_types, lambda t: t.name)

    def output_shapes(self, step):
        return p.structure(self.of(step).output_shapes, dims)

    def experimental_run(self, step):
        fn = next(group[step["fn"]] for group in FUNCTIONS.values() if step["fn"] in group)
        iterator = self.of(step) if step["iterator"] else None
        return written(self.strategy.experimental_run(fn, iterator))

    def experimental_run_reduce(self, step):
        fn = FUNCTIONS["number"][step["fn"]]
        mean = step["op"] == "MEAN_float"
        result = self.strategy.experimental_run(
            (lambda x: tf.cast(fn(x), tf.float32)) if mean else fn, self.of(step))
        op = "MEAN" if mean else step["op"]
        return written(self.strategy.reduce(op, result, axis=step.get("axis")))

    def plain_iteration(self, step):
        ds = self.strategy.experimental_distribute_dataset(p.build(step["pipeline"]))
        return [written(x) for x in ds]


def stage(op, *args):
    return {"op": op, "args": list(args)}


def pipeline(rng, kind, batched):
    made = [stage("range", whole(rng, 0, 13))]
    if kind != "number":
        made.append(stage("map", "to_pair" if kind == "pair" else "to_dict"))
    elif one_in(rng, 3):
        made.append(stage("map", "to_float32"))
    if batched:
        made.append(stage("batch", whole(rng, 1, 8), one_in(rng, 3)))
    for _ in range(whole(rng, 0, 2)):
        op = pick(rng, ("repeat", "take", "skip", "prefetch"))
        made.append(stage(op, whole(rng, 1, 3)))
    return made


def act(rng, kind, from_fn, dtype_known):
    do = pick(rng, ("get_next", "get_next", "experimental_run", "experimental_run",
                    "experimental_run_reduce", "initialize", "output_types", "output_shapes",
                    "element_spec"))
    if do == "experimental_run":
        group = kind if not one_in(rng, 7) else "none"
        fn = pick(rng, FUNCTIONS[group])
        return {"do": do, "fn": fn, "iterator": group != "none"}
    if do == "experimental_run_reduce" and kind != "number":
        return {"do": "get_next"}
    if do == "experimental_run_reduce":
        axis = dtype_known and one_in(rng, 2)
        how = {"fn": "identity", "axis": 0} if axis else {"fn": "sum"}
        return {"do": do, **how, "op": pick(rng, ("SUM", "MEAN_float"))}
    if do == "element_spec" and from_fn:
        return {"do": "output_types"}
    return {"do": do}


def steps(rng, from_fn):
    kind = pick(rng, ("number", "number", "pair", "map"))
    batched = not from_fn or not one_in(rng, 3)
    make = "make_input_fn_iterator" if from_fn else "make_dataset_iterator"
    made = [{"do": make, "pipeline": pipeline(rng, kind, batched)}]
    if from_fn:
        made[0]["input_fn"] = "dataset"
    if not one_in(rng, 3):
        made.append({"do": "initialize"})
    return made + [act(rng, kind, from_fn, batched) for _ in range(whole(rng, 3, 9))]


def case(rng, made):
    name = pick(rng, STRATEGIES)
    strategy = STRATEGIES[name]
    world = World(strategy)
    results = [world.act(step) for step in made]
    attrs = {"mode": "eager", "strategy": name, "replicas": strategy.num_replicas_in_sync,
             "steps": made}
    return {"attrs": attrs, "outputs": {"results": results}, "error": None}


def dataset_methods(rng):
    made = pipeline(rng, pick(rng, ("number", "pair", "map")), True)
    return case(rng, [{"do": "plain_iteration", "pipeline": made}])


def table():
    return {"dataset_iterator": lambda rng: case(rng, steps(rng, False)),
            "input_fn_iterator": lambda rng: case(rng, steps(rng, True)),
            "dataset_methods": dataset_methods}


recipes = table()
