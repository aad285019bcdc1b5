# SPDX-License-Identifier: Apache-2.0
"""The family "context": random lists of actions on scopes, set_strategy, run, merge_call, threads.

Left out are lists where the rules want something else than TensorFlow does: set_strategy while a
scope is open or in a replica (SET-6, SET-14), scopes left out of order (SCOPE-9), merge_call and
all_reduce where no replica context is (RC-6, RC-MERGE-1, RC-MERGE-6).
"""
import threading

import tensorflow as tf

import record
from draw import one_in, pick, whole
from strategies import mirrored


def make_strategies():
    return {"D": tf.distribute.get_strategy(), "O": tf.distribute.OneDeviceStrategy("/cpu:0"),
            "P": tf.distribute.OneDeviceStrategy("/cpu:1"), "M1": mirrored(1), "M2": mirrored(2),
            "M3": mirrored(3), "N2": mirrored(2)}


strategies = make_strategies()


def letter(strategy):
    return next(name for name, s in strategies.items() if s is strategy)


def in_thread(call):
    """What call() gives in a thread of its own. What it raises is raised here: otherwise it would
    end that thread alone, and the case would be written without what it should have seen."""
    seen, failed = [], []

    def act():
        try:
            seen.append(call())
        except BaseException as e:
            failed.append(e)
    worker = threading.Thread(target=act)
    worker.start()
    worker.join()
    if failed:
        raise failed[0]
    return seen[0]


class Seat:
    """Who acts: a thread with the scopes that it has opened."""

    def __init__(self):
        self.open = []

    def act_all(self, steps):
        return [self.act(step) for step in steps]

    def act(self, step):
        return record.attempt(lambda: getattr(self, step["do"])(step))

    def query(self, step):
        ctx = tf.distribute.get_replica_context()
        replica = ctx and {
            "replica_id": int(ctx.replica_id_in_sync_group),
            "num_replicas_in_sync": ctx.num_replicas_in_sync, "strategy": letter(ctx.strategy),
            "devices": [d if isinstance(d, str) else list(d) for d in ctx.devices]}
        return {"has_strategy": tf.distribute.has_strategy(),
                "get_strategy": letter(tf.distribute.get_strategy()),
                "in_cross_replica_context": tf.distribute.in_cross_replica_context(),
                "replica_context": replica}

    def enter(self, step):
        scope = strategies[step["s"]].scope()
        scope.__enter__()
        self.open.append(scope)
        return step["s"]

    def exit(self, step):
        if not self.open:
            return "no open scope"
        self.open.pop().__exit__(None, None, None)
        return None

    def set_strategy(self, step):
        tf.distribute.experimental_set_strategy(step["s"] and strategies[step["s"]])

    def run(self, step):
        strategy = strategies[step["s"]]
        seen = {}

        def body():
            ctx = tf.distribute.get_replica_context()
            seen[int(ctx.replica_id_in_sync_group)] = Seat().act_all(step["body"])
        strategy.run(body)
        return [seen[i] for i in sorted(seen)]

    def merge_call(self, step):
        seen = []

        def merged(strategy):
            seen.append({"strategy_arg": letter(strategy), "steps": Seat().act_all(step["body"])})
            return 7
        ctx = tf.distribute.get_replica_context()
        returned = ctx.merge_call(merged)
        first = int(ctx.replica_id_in_sync_group) == 0
        return {"returned": int(returned), "body": seen[0] if seen else None} if first else \
            {"returned": int(returned), "body": None}

    def thread(self, step):
        return in_thread(lambda: Seat().act_all(step["body"]))

    def all_reduce(self, step):
        ctx = tf.distribute.get_replica_context()
        value = tf.cast(ctx.replica_id_in_sync_group, tf.float32) + 1.0
        return record.tensor(ctx.all_reduce("SUM", value))

    def reduce(self, step):
        s = strategies[step["s"]]
        op = "MEAN" if s.num_replicas_in_sync > 1 else "SUM"
        return record.tensor(s.reduce(op, tf.constant(1.0), axis=None))

    def variable(self, step):
        v = tf.Variable(1.0)
        copies = len(v.values) if hasattr(v, "values") else 1
        return {"class": type(v).__name__.replace("EagerVariable", "ResourceVariable"),
                "device": v.device, "copies": copies}

    def local_results(self, step):
        s = strategies[step["s"]]
        return len(s.experimental_local_results(tf.constant(1.0)))

    def distribute_dataset(self, step):
        s = strategies[step["s"]]
        return len(list(s.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))))


def steps_in_replica(rng, depth):
    made = []
    for _ in range(whole(rng, 1, 3)):
        do = pick(rng, ["query", "query", "all_reduce", "variable", "thread", "merge_call", "run",
                        "enter_exit", "reduce"])
        s = pick(rng, ["D", "O", "P", "M1", "M2", "N2"])
        if do == "enter_exit":
            made += [{"do": "enter", "s": s}, {"do": "query"}, {"do": "exit"}]
        elif do == "thread":
            made.append({"do": do, "body": steps_outside(rng, depth + 1, True)})
        elif do == "merge_call":
            made.append({"do": do, "body": steps_outside(rng, depth + 1, False)})
        elif do == "run":
            made.append({"do": do, "s": s, "body": [{"do": "query"}]})
        elif do == "reduce":
            made.append({"do": do, "s": s})
        else:
            made.append({"do": do})
    return made


def steps_outside(rng, depth, sets):
    """Actions of a thread or a merge function: scopes stay nested, set_strategy where none is
    open."""
    made, opened = [], 0
    verbs = ["query", "enter", "enter", "exit", "run", "reduce", "variable", "local_results",
             "distribute_dataset", "thread", "set_strategy"]
    for _ in range(whole(rng, 1, 6 if depth == 0 else 3)):
        do = pick(rng, verbs)
        step = {"do": do, "s": pick(rng, strategies)}
        if do == "set_strategy":
            if opened or not sets:
                continue
            if one_in(rng, 3):
                step["s"] = None
        elif do == "enter":
            opened += 1
        elif do == "run":
            if depth > 1:
                continue
            step["body"] = steps_in_replica(rng, depth + 1)
        elif do == "thread":
            if depth > 1:
                continue
            step = {"do": do, "body": steps_outside(rng, depth + 1, True)}
        elif do in ("query", "exit", "variable"):
            step = {"do": do}
            opened -= do == "exit" and opened > 0
        made.append(step)
        if one_in(rng, 2):
            made.append({"do": "query"})
    return made + [{"do": "exit"}] * opened + [{"do": "query"}]


def mixed(rng):
    steps = steps_outside(rng, 0, True)

    def act():
        seat = Seat()
        return {"results": seat.act_all(steps), "scopes_left_open": len(seat.open)}
    return {"attrs": {"steps": steps}, "inputs": {}, "outputs": in_thread(act), "error": None}


def table():
    return {"mixed": mixed}


recipes = table()
