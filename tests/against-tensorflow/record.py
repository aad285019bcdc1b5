# SPDX-License-Identifier: Apache-2.0
"""Records random cases from TensorFlow, in the format of tests/golden/README.md.

    record.py FAMILY COUNT SEED FOLDER
    record.py FAMILY/CASE FOLDER

writes FOLDER/FAMILY.json with COUNT cases, or with the one that the golden runner names so. Each
family is a module of this folder, found by its name, with a table `recipes`: name of a group ->
function of a random generator that makes one case (a dict without "id"). The case RECIPE/SEED.N is
the N-th of its recipe with that seed, whatever other recipes and cases there are.
scripts/against-tensorflow runs this and then the golden runner over the result.
"""
import importlib
import json
import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# oneDNN has kernels that give zeros beside NaN, or end the process, on some processors only.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

# The first class that fits names the kind (section "Kinds and expected values" of the format).
KINDS = [
    (tf.errors.InvalidArgumentError, "E_INVALID"),
    (tf.errors.OutOfRangeError, "E_OOR"),
    (tf.errors.NotFoundError, "E_NOTFOUND"),
    (tf.errors.FailedPreconditionError, "E_PRECOND"),
    (tf.errors.DataLossError, "E_DATALOSS"),
    (tf.errors.UnimplementedError, "E_NOTIMPL"),
    (NotImplementedError, "E_NOTIMPL"),
    (AssertionError, "E_ASSERT"),
    (StopIteration, "E_STOP"),
    (TypeError, "E_TYPE"),
    (ValueError, "E_VALUE"),
    (IndexError, "E_VALUE"),
    (RuntimeError, "E_RUNTIME"),
]

FOLDER = sys.argv[-1]  # of the cases: paths in them are relative to it

# For strategies with several replicas; before anything runs.
CPUS = 4
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * CPUS)

DIGITS = {"float64": 17, "float32": 9, "float16": 9, "bfloat16": 9}


def number(value, dtype):
    """One element as JSON: nan and the infinities are strings, negative zero keeps its sign."""
    if dtype == "string":
        return bytes(value).decode("latin-1")
    if dtype == "uint64":
        # The runner's JSON has 64 bits with a sign; it takes the bits and shows them the same way.
        return int(np.uint64(value).astype(np.int64))
    if dtype not in DIGITS:
        return int(value)
    value = float(value)
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return -0.0 if np.signbit(value) else 0
    return float(f"{value:.{DIGITS[dtype]}g}")


def tensor(value):
    """A tensor of TensorFlow or numpy in the format of the recorded data."""
    value = tf.convert_to_tensor(value)
    dtype = value.dtype.name
    flat = value.numpy()
    if not value.shape.rank:  # as an object: numpy's own strings lose zeros at their end
        flat = np.asarray(flat, object if dtype == "string" else None)
    return {"dtype": dtype, "shape": [int(n) for n in value.shape],
            "data": [number(v, dtype) for v in np.ravel(flat)]}


def error(exception):
    kind = next((kind for cls, kind in KINDS if isinstance(exception, cls)), None)
    if kind is None:
        raise exception
    return {"type": type(exception).__name__, "contains": "", "message": str(exception)[:200],
            "kind": kind}


def attempt(call):
    """What an action of a list gives; one that fails does not stop the list."""
    try:
        return {"result": call()}
    except (RuntimeError, ValueError, TypeError, AssertionError, tf.errors.OpError) as e:
        return {"result": None, "error": error(e)}


def seen(attrs, inputs=None):
    """A case of which nothing has been seen yet."""
    return {"attrs": attrs, "inputs": inputs or {}, "outputs": {}, "error": None}


def one(recipes, name, seed, n):
    """The n-th case of a recipe. Its generator knows the recipe by name, not by its place in the
    table: a new recipe leaves the cases of the others as they are."""
    print(f"case {name}/{seed}.{n}", file=sys.stderr, flush=True)  # TensorFlow may end the process
    case = recipes[name](np.random.default_rng([seed, n, *name.encode()]))
    prefix = "error." if case.get("error") else ""
    return {"id": f"{prefix}{name}/{seed}.{n}", **case}


def record(recipes, count, seed):
    names = sorted(recipes)
    return [one(recipes, names[i % len(names)], seed, i // len(names)) for i in range(count)]


def again(recipes, case):
    """The case of an id, as record() wrote it. An error shows in the id but is not part of it."""
    found = re.fullmatch(r"(?:error\.)?(.+)/(\d+)\.(\d+)", case)
    if not found or found[1] not in recipes:
        sys.exit(f"'{case}' is no case RECIPE/SEED.N; recipes: {' '.join(sorted(recipes))}")
    return [one(recipes, found[1], int(found[2]), int(found[3]))]


def main():
    family, _, case = sys.argv[1].partition("/")
    recipes = importlib.import_module(family).recipes
    cases = again(recipes, case) if case else record(recipes, int(sys.argv[2]), int(sys.argv[3]))
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, family + ".json"), "w") as out:
        out.write(f'{{"family":"{family}","generator_version":"1.0",'
                  f'"tensorflow":"{tf.__version__}","cases":[\n')
        out.write(",\n".join(json.dumps(case) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    sys.modules["record"] = sys.modules["__main__"]
    main()
