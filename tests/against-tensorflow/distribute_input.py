# SPDX-License-Identifier: Apache-2.0
"""The family "distribute_input": random pipelines under strategies, and the shares of workers.

Where a rule wants something else than TensorFlow does, `expect` has what follows from the rule:

    DS-DIST-7    elements without rows cannot be split: a value error, not one of an index
    DS-PART-6    a step that not every replica gets is the end, of optionals too
    DS-SHARD-9   a shard hint is a shard; with fewer elements than workers too
    DS-SHARD-14  DATA with fewer elements than workers leaves some workers without any
    DS-SHARD-7   AUTO of a pipeline that reads more than files is DATA, and nothing of FILE
    AMB-9        FILE with fewer files than workers fails on every worker
    DS-SPLIT-9   a schedule ends with the piece that holds the last row
"""
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute
from tensorflow.python.distribute import input_ops

import pipelines as p
import record
from draw import one_in, pick, whole
from record import seen
from strategies import mirrored

MAX_STEPS = 12
# Not rebatch: under DATA, TensorFlow takes one of the user for its own and cuts batches otherwise.
# Not apply_cardinality: behind the split, an error at its end is lost.
STAGES = tuple(op for op in p.OPS if op not in ("window", "options_autoshard", "rebatch",
                                                "apply_cardinality"))
# Behind files: TensorFlow takes the stage for the reader of their names.
NOT_BEHIND_FILES = ("flat_map", "interleave")
POLICIES = ("AUTO", "DATA", "FILE", "OFF", "HINT")


def make_strategies():
    made = {("OneDeviceStrategy", 1): tf.distribute.OneDeviceStrategy("/cpu:0")}
    for n in range(1, record.CPUS + 1):
        made["MirroredStrategy", n] = mirrored(n)
    return made


STRATEGIES = make_strategies()


def random_strategy(rng):
    return pick(rng, STRATEGIES)


def random_pipeline(rng, ops=STAGES, source=None, batched=True):
    """One that ends in batches, mostly; what comes after them keeps rows."""
    pipeline = p.grow(rng, whole(rng, 0, 3), ops=ops, source=source)
    ds = p.build(pipeline)
    if any(op in str(pipeline) for op in ("'window'", "'rebatch'", "'apply_cardinality'")):
        return random_pipeline(rng, ops, source, batched)  # there is one in a branch
    if batched:
        ds = p.extend(rng, pipeline, ds, pick(rng, ("batch", "batch", "batch", "padded_batch")))
    for _ in range(whole(rng, 0, 2)):
        ds = p.extend(rng, pipeline, ds, pick(rng, [op for op in ops if op in KEEP]))
    if p.is_infinite(ds) and is_empty(ds):
        pipeline.append({"op": "take", "args": [1]})  # endless by its cardinality, and yet empty
    return pipeline


def is_empty(ds):
    try:
        return not p.read(ds, 1)[0]
    except tf.errors.OpError:
        return False


KEEP = ("map", "repeat", "take", "skip", "prefetch", "enumerate", "cache", "concatenate", "shard",
        "unbatch", "batch", "interleave")

# --- distributed datasets ----------------------------------------------------------------------


def per_replica(strategy, x):
    return [p.written(tf.nest.map_structure(
        lambda leaf: strategy.experimental_local_results(leaf)[r], x))
        for r in range(strategy.num_replicas_in_sync)]


def raised(call):
    try:
        call()
    except (StopIteration, tf.errors.OpError) as e:
        return type(e).__name__
    return "no error"


def end_of(dist, it, steps):
    again = iter(dist)
    optionals = [again.get_next_as_optional() for _ in range(steps + 2)]
    return {"next": raised(lambda: next(it)), "get_next": raised(it.get_next),
            "get_next_again": raised(it.get_next),
            "optional_has_value": [bool(o.has_value()) for o in optionals],
            "empty_optional_get_value": raised(optionals[-1].get_value)}


def walk(strategy, dist, max_steps):
    it, steps = iter(dist), []
    for x in it:
        steps.append(per_replica(strategy, x))
        if len(steps) == max_steps:
            break
    stopped = len(steps) == max_steps
    return {"steps": steps, "element_spec": p.spec(dist.element_spec),
            "end": {"next": None} if stopped else end_of(dist, it, len(steps))}


def rows_of(element):
    """Of the first component that has any; a scalar is one."""
    shapes = [leaf["shape"] for leaf in leaves(element)]
    return next((shape[0] for shape in shapes if shape), 1)


def leaves(x):
    """In the order of components: that of a map is the order of its keys."""
    if "data" in x:
        return [x]
    items = x["tuple"] if "tuple" in x else [x["dict"][key] for key in sorted(x["dict"])]
    return [leaf for item in items for leaf in leaves(item)]


def drop_rule(result, elements, replicas):
    """DS-PART-6, where TensorFlow's optional has a value of the step that it drops."""
    outputs = result["outputs"]
    steps, end = len(outputs["steps"]), outputs["end"]
    if end["next"] is None or sum(end["optional_has_value"]) == steps:
        return
    end = {**end, "optional_has_value": [i < steps for i in range(steps + 2)]}
    dropped = sum(rows_of(x) for x in elements[steps * replicas:])
    result["expect"] = {"rule": "DS-PART-6",
                        "outputs": {**outputs, "end": end, "dropped_rows": dropped}}


def wrong(e, attrs):
    return {**seen({"pipeline": e.pipeline, **attrs}), "error": record.error(e.cause)}


def is_fused(e):
    """TensorFlow makes one stage of map and batch, which fails for rows that do not fit together
    also in a batch that is dropped: such cases are drawn again."""
    return "Cannot add tensor to the batch" in str(e)


def distribute_case(rng, **how):
    name, n = random_strategy(rng)
    attrs = {"strategy": name, "replicas": n, "max_steps": MAX_STEPS}
    try:
        pipeline = random_pipeline(rng, **how)
    except p.Wrong as e:
        return wrong(e, attrs)
    if one_in(rng, 2):
        policy = pick(rng, POLICIES[:2] + POLICIES[3:])  # FILE: only where there are files
        pipeline.append({"op": "options_autoshard", "args": [policy]})
    result = seen({"pipeline": pipeline, **attrs})
    strategy = STRATEGIES[name, n]
    try:
        dist = strategy.experimental_distribute_dataset(p.build(pipeline))
        result["outputs"] = {**walk(strategy, dist, MAX_STEPS),
                             "cardinality": int(dist.cardinality)}
    except IndexError as e:
        result["error"] = record.error(e)
        result["expect"] = {"rule": "DS-DIST-7", "error": {"kind": "E_VALUE"}}
    except p.REFUSALS as e:
        if is_fused(e):
            return distribute_case(rng, **how)
        result["error"] = record.error(e)
        if "at least one dimension" in str(e):  # branches of a concatenate whose ranks differ
            result["expect"] = {"rule": "DS-DIST-7", "error": {"kind": "E_VALUE"}}
    return result


def files_source(rng):
    kind = pick(rng, ("tfrecord", "textline"))
    names = p.file_names(rng, "tfrecord" if kind == "tfrecord" else "txt")
    return {"op": kind, "args": [names]}


def from_function_case(rng):
    name, n = random_strategy(rng)
    attrs = {"strategy": name, "replicas": n, "max_steps": MAX_STEPS,
             "dataset_fn": "per-replica batches, the pipeline as given; each replica takes the "
                           "next batch in turn"}
    try:
        pipeline = random_pipeline(rng, batched=one_in(rng, 2))
    except p.Wrong as e:
        return wrong(e, attrs)
    result, contexts = seen({"pipeline": pipeline, **attrs}), []
    strategy = STRATEGIES[name, n]

    def dataset_fn(context):
        contexts.append({"num_input_pipelines": context.num_input_pipelines,
                         "input_pipeline_id": context.input_pipeline_id,
                         "num_replicas_in_sync": context.num_replicas_in_sync})
        return p.build(pipeline)
    try:
        dist = strategy.distribute_datasets_from_function(dataset_fn)
        result["outputs"] = {**walk(strategy, dist, MAX_STEPS), "input_contexts": contexts}
        drop_rule(result, p.read(p.build(pipeline), MAX_STEPS * n + n)[0], n)
    except p.REFUSALS as e:
        if is_fused(e):
            return from_function_case(rng)
        result["error"] = record.error(e)
    return result


# --- contexts ----------------------------------------------------------------------------------


def input_context_case(rng):
    attrs = {"num_input_pipelines": whole(rng, 1, 9), "input_pipeline_id": whole(rng, 0, 8),
             "num_replicas_in_sync": whole(rng, 1, 12)}
    context = tf.distribute.InputContext(**attrs)
    size = whole(rng, -2, 5) * attrs["num_replicas_in_sync"]
    attrs["global_batch_size"] = size if one_in(rng, 2) else whole(rng, 0, 50)
    result = seen(attrs)
    result["outputs"]["str"] = str(context)
    try:
        result["outputs"]["per_replica_batch_size"] = context.get_per_replica_batch_size(
            attrs["global_batch_size"])
    except ValueError as e:
        result["error"] = record.error(e)
    return result


def values_case(rng):
    name, n = random_strategy(rng)
    strategy, contexts = STRATEGIES[name, n], []

    def value_fn(context):
        contexts.append({"replica_id_in_sync_group": context.replica_id_in_sync_group,
                         "num_replicas_in_sync": context.num_replicas_in_sync})
        return tf.constant([context.replica_id_in_sync_group * 10.0, context.num_replicas_in_sync])
    made = strategy.experimental_distribute_values_from_function(value_fn)
    result = seen({"strategy": name, "replicas": n, "value_fn": "[replica_id*10, num_replicas]"})
    result["outputs"] = {"value_contexts": contexts, "class": type(made).__name__,
                         "local_results": [record.tensor(t) for t in
                                           strategy.experimental_local_results(made)]}
    return result


def batch_sizes_case(rng):
    attrs = {"global_batch_size": whole(rng, 0, 40), "num_workers": whole(rng, 1, 6),
             "replicas_per_worker": whole(rng, 1, 5)}
    result = seen(attrs)
    result["outputs"]["per_worker"] = [
        record.tensor(tf.cast(distribute.batch_sizes_for_worker(*attrs.values(), w), tf.int64))
        for w in range(attrs["num_workers"])]
    return result


# --- shares of workers -------------------------------------------------------------------------


def share(make, key, files=False):
    """What one worker reads, or its error."""
    try:
        found = p.read(make(), 300)[0]
    except p.REFUSALS as e:
        return {"error": record.error(e)}
    out = {key: found}
    names = [text for x in found for text in texts(x)] if files else [None]
    if None not in names:
        out["files_seen"] = sorted({name.split(" ")[0].split("r")[0] for name in names})
    return out


def texts(x):
    """The strings of an element; None among them for what is no string."""
    return [text for leaf in leaves(x)
            for text in (leaf["data"] if leaf["dtype"] == "string" else [None])]


def sources(pipeline):
    """What a pipeline reads: "files", "other", or both."""
    found = set()
    for item in pipeline:
        op, args = item["op"], item["args"]
        for inner in args if op in ("zip", "concatenate") else []:
            found |= sources(inner["pipeline"])
        if op in ("tfrecord", "textline", "files"):
            found.add("files")
        elif op in ("range", "from_tensors", "from_tensor_slices", "enumerate") + UNKNOWN:
            found.add("other")
    return found


UNKNOWN = ("scan", "take_while", "unique")  # stages that FILE does not look behind


def reads_files(pipeline):
    return sources(pipeline) == {"files"}


def shares_of(every, key, workers, found):
    """DS-SHARD-14 of all elements or slices; None where these cannot be made."""
    everything = share(every, key)
    if "error" in everything:
        return None
    return [{**found, key: everything[key][w::workers]} for w in range(workers)]


def judge(result, every, key, workers, more):
    """The rules on too few files or elements; `more` is of every worker that does not fail."""
    found = result["outputs"]["workers"]
    policy, kind = result["attrs"]["policy"], {"kind": "E_INVALID"}
    failed = [w["error"] for w in found if "error" in w]
    result["error"] = failed[0] if failed else None
    if policy == "AUTO" and len(sources(result["attrs"]["pipeline"])) == 2:
        all_shares = shares_of(every, key, workers, more)
        if all_shares is not None:
            result["expect"] = {"rule": "DS-SHARD-7", "outputs": {"workers": all_shares},
                                "error": None}
        return
    if not any("Could not apply FILE based" in e["message"] for e in failed):
        return
    if policy == "FILE" or policy == "AUTO" and reads_files(result["attrs"]["pipeline"]):
        result["expect"] = {"rule": "AMB-9", "error": kind,
                            "outputs": {"workers": [{"error": kind}] * workers}}
        return
    all_shares = shares_of(every, key, workers, more)
    if all_shares is not None:
        result["expect"] = {"rule": "DS-SHARD-14", "outputs": {"workers": all_shares},
                            "error": None}


def any_files(rng):
    """Readers of files; or names of files, which the next stage reads."""
    if one_in(rng, 2):
        return files_source(rng)
    return {"op": "files", "args": [p.file_names(rng, pick(rng, ("tfrecord", "txt")))]}


def workers_pipeline(rng, source):
    """A finite pipeline for workers."""
    if source is None:
        pipeline = random_pipeline(rng, batched=not rng.integers(4) == 0)
        while "files" in sources(pipeline) and any(op in str(pipeline) for op in NOT_BEHIND_FILES):
            pipeline = random_pipeline(rng)
    else:
        ops = tuple(op for op in STAGES if op not in NOT_BEHIND_FILES)
        pipeline = random_pipeline(rng, ops, source(rng), not rng.integers(4) == 0)
    if p.is_infinite(p.build(pipeline)):
        pipeline.append({"op": "take", "args": [whole(rng, 0, 20)]})
    return pipeline


def auto_shard_case(rng, source=None):
    attrs = {"policy": pick(rng, POLICIES), "num_workers": whole(rng, 1, 4)}
    try:
        pipeline = workers_pipeline(rng, source)
    except p.Wrong as e:
        return wrong(e, attrs)
    result = seen({"pipeline": pipeline, **attrs})
    n = attrs["num_workers"]

    def share_of(w):  # built anew: a cache would be one of all workers
        return input_ops.auto_shard_dataset(p.with_policy(p.build(pipeline), attrs["policy"]), n, w)
    result["outputs"]["workers"] = [share(lambda: share_of(w), "elements", reads_files(pipeline))
                                    for w in range(n)]
    judge(result, lambda: p.build(pipeline), "elements", n, {})
    return result


def hint_case(rng):
    attrs = {"policy": pick(rng, ("HINT", "HINT", *POLICIES)), "num_workers": whole(rng, 1, 4)}
    pipeline = [{"op": "range", "args": [whole(rng, 0, 20)]}]
    ds = p.build(pipeline)
    for op in rng.permutation(["shard_hint", "batch", "map", "prefetch", "skip"])[:4]:
        args = [] if op == "shard_hint" else p.args_of(op, rng, p.Look(ds, False), 0)
        if op == "batch":
            args = [whole(rng, 1, 4)]
        if args is None or op in ("prefetch", "skip") and args[0] < 0:
            continue
        pipeline.append({"op": str(op), "args": args})
        ds = ds if op == "shard_hint" else p.step(ds, pipeline[-1])
    result = seen({"pipeline": pipeline, **attrs})
    n = attrs["num_workers"]

    def share_of(w):
        return input_ops.auto_shard_dataset(p.with_policy(p.build(pipeline), attrs["policy"]), n, w)
    found = result["outputs"]["workers"] = [share(lambda: share_of(w), "elements")
                                            for w in range(n)]
    judge(result, lambda: p.build(pipeline), "elements", n, {})
    if attrs["policy"] == "HINT" and any("Could not apply FILE" in str(w) for w in found):
        shards = [[{"op": "shard", "args": [n, w]} if item["op"] == "shard_hint" else item
                   for item in pipeline] for w in range(n)]
        workers = [share(lambda: p.build(shard), "elements") for shard in shards]
        result["expect"] = {"rule": "DS-SHARD-9", "outputs": {"workers": workers}, "error": None}
    return result


# --- complete input of workers -----------------------------------------------------------------


def split(ds, size, workers, each, w):
    """As DistributedDataset does it for one worker."""
    if workers * each == 1:
        return ds
    if size == -1:
        return distribute._LegacyRebatchDataset(ds, workers * each).prefetch(each)
    sizes = distribute.batch_sizes_for_worker(size, workers, each, w)
    return ds.rebatch(sizes).prefetch(each)


def schedule_rule(result, size):
    """DS-SPLIT-9: what follows the last row of a schedule is not there."""
    attrs, outputs = result["attrs"], result["outputs"]
    data = attrs["policy"] == "DATA" or attrs["policy"] == "AUTO" and not reads_files(
        attrs["pipeline"])
    if data or size == -1 or result["error"] or "expect" in result:
        return
    shorter = []
    for worker in outputs["workers"]:
        batches = list(worker["batches"])
        while batches and rows_of(batches[-1]) == 0:
            batches.pop()
        shorter.append({**worker, "batches": batches})
    if shorter != outputs["workers"]:
        result["expect"] = {"rule": "DS-SPLIT-9", "outputs": {"workers": shorter}}


def workers_case(rng, source=None):
    attrs = {"policy": pick(rng, POLICIES), "num_workers": whole(rng, 1, 4),
             "replicas_per_worker": whole(rng, 1, 3)}
    try:
        pipeline = workers_pipeline(rng, source)
    except p.Wrong as e:
        return wrong(e, attrs)
    workers, each = attrs["num_workers"], attrs["replicas_per_worker"]
    result = seen({"pipeline": pipeline, **attrs})

    def share_of(w):
        ds = p.with_policy(p.build(pipeline), attrs["policy"])
        return input_ops.auto_shard_dataset(split(ds, size, workers, each, w), workers, w,
                                            workers * each)
    size = -1
    try:
        if workers * each > 1:
            size = int(distribute.compute_batch_size(p.build(pipeline)))
        share_of(0)
    except (IndexError, ValueError) as e:
        result["error"] = record.error(e)
        result["expect"] = {"rule": "DS-DIST-7", "error": {"kind": "E_VALUE"}}
        return result
    except tf.errors.OpError:
        pass  # every worker tells below
    result["outputs"]["workers"] = [share(lambda: share_of(w), "batches") for w in range(workers)]
    more = {"static_batch_size": size} if workers * each > 1 else {}
    for worker in result["outputs"]["workers"]:
        if "error" not in worker:
            worker.update(more)
    judge(result, lambda: distribute._LegacyRebatchDataset(p.build(pipeline), workers * each),
          "batches", workers, more)
    schedule_rule(result, size)
    return result


def table():
    p.make_files()
    p.least_dim = 1  # splitting batches whose rows have no elements ends TensorFlow's process
    plain = ("distribute_dataset", "distribute_dataset_pipeline", "distribute_dataset_structure",
             "distribute_dataset_drop_remainder")
    recipes = {group: distribute_case for group in plain}
    recipes["distribute_dataset_unbatched"] = lambda rng: distribute_case(rng, batched=False)
    recipes["distribute_dataset_files"] = lambda rng: distribute_case(
        rng, source=files_source(rng))
    recipes["from_function"] = from_function_case
    recipes["input_context"] = input_context_case
    recipes["values_from_function"] = values_case
    recipes["batch_sizes_for_worker"] = batch_sizes_case
    recipes["auto_shard"] = auto_shard_case
    recipes["auto_shard_files"] = lambda rng: auto_shard_case(rng, any_files)
    recipes["auto_shard_hint"] = hint_case
    recipes["multi_worker_input"] = workers_case
    recipes["multi_worker_input_files"] = lambda rng: workers_case(rng, files_source)
    return recipes


recipes = table()
