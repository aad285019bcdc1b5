# SPDX-License-Identifier: Apache-2.0
"""Pipelines of datasets: from the format to TensorFlow, and random ones.

build() makes a dataset of a pipeline of the format. grow() makes a random pipeline by growing it
one stage at a time and looking at the elements so far, so that most stages fit what comes before.
"""
import os

import numpy as np
import tensorflow as tf

import draw
import record
from draw import ANY, INDICES, NUMBERS, UNSIGNED, one_in, pick, whole

LIMIT = 30  # elements of a case

# --- functions by name -------------------------------------------------------------------------

MAPS = {
    "x*2": lambda x: x * 2,
    "x+1": lambda x: x + 1,
    "x*x": lambda x: x * x,
    "-x": lambda x: -x,
    "to_float32": lambda x: tf.cast(x, tf.float32),
    "to_pair": lambda x: (x, x * 10),
    "to_dict": lambda x: {"a": x, "b": x + 100},
    "sum_pair": lambda x, y: x + y,
    "swap_pair": lambda x, y: (y, x),
    "first": lambda *x: x[0],
    "idx_plus": lambda i, x: i + x,
    "fill_x": lambda x: tf.fill([x], x),
    "outer3": lambda x: tf.stack([x, x + 1, x + 2]),
    "strlen": tf.strings.length,
}
PREDICATES = {
    "even": lambda x: x % 2 == 0,
    "gt3": lambda x: x > 3,
    "mod3": lambda x: x % 3 == 0,
    "none": lambda x: False,
    "pair_first_even": lambda *x: x[0] % 2 == 0,
    "lt5": lambda x: x < 5,
    "lt0": lambda x: x < 0,
}
SCANS = {"cumsum": lambda s, x: (s + x, s + x), "prev": lambda s, x: (x, s)}


INNER = {
    "range(x)": tf.data.Dataset.range,
    "range(x,x+2)": lambda x: tf.data.Dataset.range(x, x + 2),
    "repeat(x,3)": lambda x: tf.data.Dataset.from_tensors(x).repeat(3),
    "slices(x)": tf.data.Dataset.from_tensor_slices,
    "tfrecord(x)": tf.data.TFRecordDataset,
    "textline(x)": tf.data.TextLineDataset,
    "window_batch(2)": lambda x: x.batch(2),
}

# --- the format to TensorFlow ------------------------------------------------------------------


def value(json):
    """A tensor or structure of the format."""
    if "tuple" in json:
        return tuple(value(item) for item in json["tuple"])
    if "dict" in json:
        return {key: value(item) for key, item in json["dict"].items()}
    dtype = tf.as_dtype(json["dtype"])
    if dtype == tf.string:
        data = [text.encode("latin-1") for text in json["data"]]
    else:
        data = np.array([float(x) if isinstance(x, str) else x for x in json["data"]]).astype(
            dtype.as_numpy_dtype)
    return tf.reshape(tf.constant(data, dtype), json["shape"])


def paths(names):
    return [os.path.join(record.FOLDER, name) for name in names]


def padded(ds, size, shape=None, fill=None, drop=False):
    if fill is not None and isinstance(ds.element_spec, tf.TensorSpec):
        fill = tf.cast(fill, ds.element_spec.dtype)
    return ds.padded_batch(size, padded_shapes=shape, padding_values=fill, drop_remainder=drop)


def inner(ds, name):
    """A function of an element: tuples come as several arguments."""
    fn = INNER[name]
    return (lambda *x: fn(x)) if isinstance(ds.element_spec, tuple) else fn


def with_policy(ds, name):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, name)
    return ds.with_options(options)


def hint(ds):
    return ds.shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT)


SOURCES = {
    "range": tf.data.Dataset.range,
    "from_tensors": lambda v: tf.data.Dataset.from_tensors(value(v)),
    "from_tensor_slices": lambda v: tf.data.Dataset.from_tensor_slices(value(v)),
    "tfrecord": lambda names: tf.data.TFRecordDataset(paths(names)),
    "textline": lambda names: tf.data.TextLineDataset(paths(names)),
    "files": lambda names: tf.data.Dataset.from_tensor_slices(paths(names)),
    "zip": lambda *parts: tf.data.Dataset.zip(tuple(build(i["pipeline"]) for i in parts)),
}
STAGES = {
    "batch": lambda ds, size, drop=False: ds.batch(size, drop_remainder=drop),
    "padded_batch": padded,
    "rebatch": lambda ds, sizes, drop=False: ds.rebatch(sizes, drop_remainder=drop),
    "window": lambda ds, size, shift=None, stride=1, drop=False: ds.window(size, shift, stride,
                                                                           drop),
    "repeat": lambda ds, count=None: ds.repeat(count),
    "take": lambda ds, count: ds.take(count),
    "skip": lambda ds, count: ds.skip(count),
    "prefetch": lambda ds, count: ds.prefetch(count),
    "enumerate": lambda ds, start=0: ds.enumerate(start),
    "shard": lambda ds, num, index: ds.shard(num, index),
    "shard_hint": hint,
    "concatenate": lambda ds, part: ds.concatenate(build(part["pipeline"])),
    "interleave": lambda ds, fn, cycle, block: ds.interleave(inner(ds, fn), cycle, block),
    "flat_map": lambda ds, fn: ds.flat_map(inner(ds, fn)),
    "map": lambda ds, fn: ds.map(MAPS[fn]),
    "filter": lambda ds, fn: ds.filter(PREDICATES[fn]),
    "take_while": lambda ds, fn: ds.take_while(PREDICATES[fn]),
    "scan": lambda ds, fn, initial: ds.scan(tf.constant(initial, tf.int64), SCANS[fn]),
    "shuffle": lambda ds, size, seed, again: ds.shuffle(size, seed,
                                                        reshuffle_each_iteration=again),
    "options_autoshard": with_policy,
    "unbatch": lambda ds: ds.unbatch(),
    "unique": lambda ds: ds.unique(),
    "cache": lambda ds: ds.cache(),
    "apply_cardinality": lambda ds, n: ds.apply(tf.data.experimental.assert_cardinality(n)),
}


def step(ds, item):
    if ds is None:
        return SOURCES[item["op"]](*item["args"])
    return STAGES[item["op"]](ds, *item["args"])


def build(pipeline):
    ds = None
    for item in pipeline:
        ds = step(ds, item)
    return ds


# --- TensorFlow to the format ------------------------------------------------------------------


def structure(x, leaf):
    """A tuple, named tuple or map in the format, of leaf() of what is in it."""
    if hasattr(x, "_fields"):
        return {"named_tuple": {key: structure(getattr(x, key), leaf) for key in x._fields}}
    if isinstance(x, tuple):
        return {"tuple": [structure(item, leaf) for item in x]}
    if isinstance(x, dict):
        return {"dict": {key: structure(item, leaf) for key, item in x.items()}}
    return leaf(x)


def leaf_spec(s):
    if isinstance(s, tf.data.DatasetSpec):
        return {"dataset": spec(s.element_spec)}
    if hasattr(s, "_value_specs"):
        return {"per_replica": [spec(item) for item in s._value_specs]}
    shape = None if s.shape.rank is None else [-1 if n is None else n for n in s.shape]
    return {"dtype": s.dtype.name, "shape": shape}


def leaf_value(x):
    if isinstance(x, tf.data.Dataset):
        return {"dataset": [written(item) for item in x]}
    if isinstance(x, tf.distribute.DistributedValues):
        return {"per_replica": [record.tensor(t) for t in x.values]}
    return record.tensor(x)


def spec(s):
    return structure(s, leaf_spec)


def written(x):
    return structure(x, leaf_value)


def read(ds, limit=LIMIT):
    """At most `limit` elements, and whether these are all."""
    found, it = [], iter(ds)
    for x in it:
        if len(found) == limit:
            return found, False
        found.append(written(x))
    return found, True


# --- files -------------------------------------------------------------------------------------

NUM_FILES = 5


def file_names(rng, kind, least=1):
    """Some of the files that make_files wrote, in any order, once each."""
    n = int(rng.integers(least, NUM_FILES + 1))
    return [f"records/auto_{k}.{kind}" for k in rng.permutation(NUM_FILES)[:n]]


def make_files():
    """Small files for readers; that number 3 is empty is on purpose."""
    os.makedirs(os.path.join(record.FOLDER, "records"), exist_ok=True)
    for k, n in enumerate((3, 2, 4, 0, 7)):
        with tf.io.TFRecordWriter(paths([f"records/auto_{k}.tfrecord"])[0]) as out:
            for j in range(n):
                out.write(f"f{k}r{j}".encode())
        with open(paths([f"records/auto_{k}.txt"])[0], "w") as out:
            out.writelines(f"file{k} line{j}\n" for j in range(n))


# --- random pipelines --------------------------------------------------------------------------


def random_tensor(rng, shape, dtypes=ANY):
    """With the hard values: pipelines move, compare and add, all of which has one result."""
    return record.tensor(draw.values(rng, pick(rng, dtypes), shape))


def random_structure(rng, make, depth=0):
    """A tensor, or a tuple or map of such: make() gives the tensors."""
    kind = whole(rng, 0, 7) if depth < 2 else 0
    if kind < 5:
        return make()
    items = [random_structure(rng, make, depth + 1) for _ in range(whole(rng, 1, 3))]
    if kind == 5:
        return {"dict": dict(zip(("x", "y", "a1"), items))}
    return {"tuple": items}


least_dim = 0  # a family raises it to 1 if TensorFlow cannot bear elements that are empty


def random_shape(rng, most=3):
    return draw.shape(rng, 0, most, 12, least_dim)


def make_range(rng):
    if one_in(rng, 3):
        return [whole(rng, -10, 10), whole(rng, -10, 10), whole(rng, -4, 4)]
    return pick(rng, ([whole(rng, 0, 20)], [whole(rng, -5, 5), whole(rng, 0, 15)]))


def make_slices(rng):
    n = whole(rng, 0, 9)
    dim = lambda: whole(rng, 0, 9) if one_in(rng, 40) else n  # two that differ are an error
    return [random_structure(rng, lambda: random_tensor(rng, [dim()] + random_shape(rng, 2)))]


def make_source(rng, depth):
    op = pick(rng, ("range", "range", "range", "from_tensors", "from_tensor_slices",
                    "from_tensor_slices", "tfrecord", "textline", "zip"))
    if op == "zip" and depth > 1:
        op = "range"
    if op == "range":
        args = make_range(rng)
    elif op == "from_tensors":
        args = [random_structure(rng, lambda: random_tensor(rng, random_shape(rng)))]
    elif op == "from_tensor_slices":
        args = make_slices(rng)
    elif op == "zip":
        args = [{"pipeline": grow(rng, whole(rng, 0, 2), depth + 1)}
                for _ in range(whole(rng, 1, 3))]
    else:
        args = [file_names(rng, "tfrecord" if op == "tfrecord" else "txt")]
    return {"op": op, "args": args}


class Look:
    """What a stage may have to know of the elements before it."""

    def __init__(self, ds, infinite):
        s = ds.element_spec
        self.ds, self.spec, self.infinite = ds, s, infinite
        self.leaves = tf.nest.flatten(s)
        self.windows = any(isinstance(leaf, tf.data.DatasetSpec) for leaf in self.leaves)
        self.tensor = isinstance(s, tf.TensorSpec)
        self.scalar = self.tensor and s.shape.rank == 0
        self.number = self.tensor and s.dtype.name in NUMBERS
        self.int64 = self.scalar and s.dtype == tf.int64
        self.int = self.scalar and s.dtype.name in INDICES
        self.known_rank = not self.windows and all(l.shape.rank is not None for l in self.leaves)
        self.rows = self.known_rank and all(leaf.shape.rank > 0 for leaf in self.leaves)

    def pair(self):
        s = self.spec
        return (isinstance(s, tuple) and len(s) == 2 and s[0] == s[1] and
                isinstance(s[0], tf.TensorSpec) and s[0].dtype.name in NUMBERS)

    def below(self, most):
        """Whether the numbers are small enough to be lengths."""
        try:
            return all(abs(int(x)) <= most and (int(x) != 0 or least_dim == 0)
                       for x in self.ds.take(LIMIT + 1))
        except tf.errors.OpError:
            return False


def map_names(look):
    names = []
    if look.number:
        names += ["x*2", "x+1", "x*x", "to_float32", "to_pair", "to_dict", "outer3"]
        names += ["-x"] if look.spec.dtype.name not in UNSIGNED else []
    if look.int and look.below(20):
        names += ["fill_x", "fill_x"]
    if look.scalar and look.spec.dtype == tf.string:
        names += ["strlen"]
    if isinstance(look.spec, tuple) and not look.windows:
        names += ["first"] + (["swap_pair"] if len(look.spec) == 2 else [])
    return names + (["sum_pair", "idx_plus"] if look.pair() else [])


def first_is_int(look):
    return (isinstance(look.spec, tuple) and isinstance(look.spec[0], tf.TensorSpec) and
            look.spec[0].shape.rank == 0 and look.spec[0].dtype.name in INDICES)


def inner_names(look):
    names = [] if look.windows else ["repeat(x,3)"]
    if look.int64:
        names += ["range(x,x+2)"] + (["range(x)"] if look.below(30) else [])
    if look.rows and (look.tensor or len({leaf.shape[0] for leaf in look.leaves} - {None}) == 1 and
                      all(leaf.shape[0] is not None for leaf in look.leaves)):
        names += ["slices(x)"]
    if isinstance(look.spec, tf.data.DatasetSpec):
        names += ["window_batch(2)"] if isinstance(look.spec.element_spec, tf.TensorSpec) else []
    return names


def args_of(op, rng, look, depth):
    """Arguments of a stage; None: it does not fit."""
    wrong = one_in(rng, 12)
    if op == "batch":
        # With drop_remainder, TensorFlow's error is of the spec that it makes of the size first.
        return [whole(rng, -2, 0), False] if wrong else [whole(rng, 1, 6), one_in(rng, 2)]
    if op == "padded_batch":
        shape = None
        if look.tensor and look.spec.shape.rank is not None and one_in(rng, 2):
            shape = [-1 if n is None and not wrong
                     else (n or 0) + whole(rng, 0, 4) if one_in(rng, 2)
                     else n or -1 for n in look.spec.shape]
        fill = whole(rng, 0, 5) if look.number and one_in(rng, 2) else None
        return [whole(rng, 1, 5), shape, fill, one_in(rng, 2)]
    if op == "rebatch":
        sizes = [whole(rng, 1, 4)] + [whole(rng, 0 if one_in(rng, 4) else 1, 4)
                                     for _ in range(whole(rng, 0, 3))]
        sizes = pick(rng, (whole(rng, 1, 5), sizes))
        return [sizes, one_in(rng, 2)] if look.rows or wrong else None
    if op == "window":
        if count_of(look.ds) is None:
            return None  # TensorFlow's windows lose errors of what they pass over
        return [whole(rng, 0 if wrong else 1, 5), pick(rng, (None, whole(rng, 1, 5))),
                whole(rng, 1, 3), one_in(rng, 2)]
    if op == "repeat":
        return pick(rng, ([whole(rng, 0, 3)], [whole(rng, 0, 3)], [], [-1]))
    if op in ("take", "skip"):
        # TensorFlow says that what skip(-1) leaves of an endless dataset, nothing, is endless.
        return [whole(rng, 0 if op == "skip" and look.infinite else -1, 12)]
    if op == "prefetch":
        return [whole(rng, -3 if wrong else 0, 4)]
    if op == "enumerate":
        return pick(rng, ([], [whole(rng, -9, 9)], [2 ** 62]))
    if op == "shard":
        num = whole(rng, -1 if wrong else 1, 5)
        return [num, whole(rng, -1, 6) if wrong else whole(rng, 0, max(num, 1) - 1)]
    if op == "concatenate":
        return None if depth > 1 else [{"pipeline": like(rng, look, depth)}]
    if op == "map":
        names = map_names(look)
        return [pick(rng, names)] if names else None
    if op == "filter":
        names = ["even", "gt3", "mod3", "none"] if look.int else []
        names += ["pair_first_even"] if first_is_int(look) else []
        return [pick(rng, names)] if names and not look.infinite else None
    if op == "take_while":
        return [pick(rng, ("lt5", "lt0"))] if look.int else None
    if op == "scan":
        return [pick(rng, ("cumsum", "prev")), whole(rng, -5, 5)] if look.int64 else None
    if op in ("flat_map", "interleave"):
        names = inner_names(look)
        if not names or look.infinite:
            return None
        numbers = [whole(rng, 0 if wrong else 1, 5), whole(rng, 0 if wrong else 1, 4)]
        return [pick(rng, names)] + (numbers if op == "interleave" else [])
    if op == "shuffle":
        return [1, whole(rng, 0, 100), one_in(rng, 2)]  # larger ones have an order of their own
    if op == "unbatch":
        # Rows without elements end TensorFlow's process.
        empty = any(n in (0, None) for leaf in look.leaves if look.rows for n in leaf.shape[1:])
        return [] if (look.rows or wrong) and not look.infinite and not empty else None
    if op == "unique":
        # TensorFlow takes these dtypes alone; the library takes all.
        fits = look.tensor and look.spec.dtype in (tf.int32, tf.int64, tf.string)
        return [] if fits and not look.infinite else None
    if op == "apply_cardinality":
        return promise(rng, look, wrong and depth == 0)
    if op == "options_autoshard":
        return [pick(rng, ("OFF", "AUTO", "DATA", "HINT"))]
    return [] if op == "cache" else None


def promise(rng, look, wrong):
    """The number of elements. A wrong one comes last: TensorFlow's windows lose the error."""
    n = count_of(look.ds)
    if n is None or n > 3 * LIMIT:
        return None
    return [n + (pick(rng, (-1, 1, 3)) if wrong else 0)]


def count_of(ds):
    """How many elements there are, counted up to some; None if one cannot be made."""
    try:
        found, ended = read(ds, 3 * LIMIT)
    except tf.errors.OpError:
        return None
    return len(found) if ended else 3 * LIMIT + 1


def like(rng, look, depth):
    """A pipeline for concatenate: elements of the same kind, or hardly ever others."""
    if look.int64 or one_in(rng, 20):
        return [{"op": "range", "args": make_range(rng)}]
    if look.windows or look.infinite or not look.known_rank:
        return grow(rng, 1, depth + 1)
    n = whole(rng, 0, 4)

    def rows(s):
        dims = [whole(rng, 1, 3) if d is None else d for d in s.shape]
        return random_tensor(rng, [n] + dims, (s.dtype.name,))
    return [{"op": "from_tensor_slices", "args": [structure(look.spec, rows)]}]


OPS = tuple(op for op in STAGES if op != "shard_hint")
# Not batch: a batch of datasets fails in TensorFlow for want of a conversion, in the middle.
AFTER_WINDOWS = ("take", "skip", "repeat", "shard", "flat_map", "interleave", "prefetch",
                 "concatenate", "enumerate")


class Wrong(Exception):
    """A stage was refused: the pipeline up to it, and the error."""

    def __init__(self, pipeline, cause):
        super().__init__(str(cause))
        self.pipeline, self.cause = pipeline, cause


REFUSALS = (tf.errors.OpError, ValueError, TypeError, NotImplementedError)


def is_infinite(ds):
    return int(ds.cardinality()) == tf.data.INFINITE_CARDINALITY


def extend(rng, pipeline, ds, op, depth=0):
    """One more stage, if it fits: the dataset behind it."""
    look = Look(ds, is_infinite(ds))
    if look.windows and op not in AFTER_WINDOWS:
        return ds
    args = args_of(op, rng, look, depth)
    if args is None:
        return ds
    if op == "repeat" and args == [0] and pipeline[-1]["op"] == "shuffle":
        return ds  # TensorFlow makes one stage of the two, which refuses 0
    pipeline.append({"op": op, "args": args})
    try:
        return step(ds, pipeline[-1])
    except REFUSALS as e:
        raise Wrong(pipeline, e) from e


def begin(rng, depth=0, source=None):
    pipeline = [source or make_source(rng, depth)]
    if pipeline[0]["op"] == "files":
        kind = "tfrecord(x)" if pipeline[0]["args"][0][0].endswith("tfrecord") else "textline(x)"
        pipeline.append(pick(rng, (
            {"op": "flat_map", "args": [kind]},
            {"op": "interleave", "args": [kind, whole(rng, 1, 3), whole(rng, 1, 3)]})))
    try:
        return pipeline, build(pipeline)
    except REFUSALS as e:
        raise Wrong(pipeline, e) from e


def grow(rng, stages, depth=0, must=None, ops=OPS, source=None):
    """A random pipeline; `must` is an operation that is in it if it fits anywhere."""
    pipeline, ds = begin(rng, depth, source)
    for i in range(stages):
        ds = extend(rng, pipeline, ds, must if must and i == stages // 2 else pick(rng, ops),
                    depth)
        if pipeline[-1]["op"] == "apply_cardinality":
            break
    return pipeline
