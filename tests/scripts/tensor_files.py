# SPDX-License-Identifier: Apache-2.0
"""Files of tensors between this library and others: tensor_files.sh runs it.

    tensor_files.py COHORT SCRATCH [SEED]

COHORT is the program `cohort`. Random tensors of every dtype are written by the safetensors package and converted by
us, to the same bytes, to .npz, and back; random headers get the same verdict from both; checkpoints of TensorFlow,
where it is there, are converted and compared. Exits with 1 after the first difference."""
import json
import os
import random
import struct
import subprocess
import sys

import numpy as np
import safetensors.numpy
from safetensors import deserialize

cohort, scratch = sys.argv[1], sys.argv[2]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
rng = random.Random(seed)
numbers = np.random.default_rng(seed)
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64", "uint64", "float64"]


def path(name):
    return os.path.join(scratch, name)


def fail(what):
    print("FAILED:", what)
    sys.exit(1)


def run(*args):
    return subprocess.run([cohort, "checkpoint", *args], capture_output=True, text=True, errors="replace")


def convert(a, b):
    done = run("convert", path(a), path(b))
    if done.returncode != 0:
        fail(f"convert {a} {b}: {done.stderr}")


def random_tensor():
    dtype = np.dtype(rng.choice(DTYPES))
    shape = tuple(rng.choice([0, 1, 2, 3, 7, 33]) for _ in range(rng.randint(0, 4)))
    data = numbers.integers(0, 256, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, dtype=np.uint8).tobytes()
    if dtype == np.bool_:
        data = bytes(b & 1 for b in data)
    return np.frombuffer(data, dtype).reshape(shape)


def random_name(i):
    return f"{i}" + "".join(rng.choice('abc/."\\ \n\t\u007fé你😀\x01') for _ in range(rng.randint(0, 12)))


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def tensors():
    for k in range(30):
        made = {random_name(i): random_tensor() for i in range(rng.randint(0, 20))}
        safetensors.numpy.save_file(made, path("a.safetensors"), metadata={"k": 'v"\né'} if k % 2 else None)
        convert("a.safetensors", "b.safetensors")
        if open(path("a.safetensors"), "rb").read() != open(path("b.safetensors"), "rb").read():
            fail(f"seed {seed}, file {k}: written again, the package's file has other bytes")
        convert("a.safetensors", "c.npz")
        with np.load(path("c.npz")) as seen:
            if set(seen.files) != set(made) or not all(same(seen[n], made[n]) for n in made):
                fail(f"seed {seed}, file {k}: NumPy reads other arrays from our .npz")
        np.savez(path("d.npz"), **{f"n{i}": v for i, v in enumerate(made.values())})
        convert("d.npz", "e.safetensors")
        seen = safetensors.numpy.load_file(path("e.safetensors"))
        if not all(same(seen[f"n{i}"], v) for i, v in enumerate(made.values())):
            fail(f"seed {seed}, file {k}: the package reads other tensors from our file")


def random_header():
    """A good header, changed in one place or two."""
    shape = [rng.choice([0, 1, 2, 4]) for _ in range(rng.randint(0, 3))]
    nbytes = 4 * int(np.prod(shape, dtype=np.int64))
    header = {"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, nbytes]}}
    if rng.random() < 0.5:
        header["y"] = {"dtype": rng.choice(["U8", "F4", "I64", "BOOL"]), "shape": [8], "data_offsets": [nbytes, nbytes + 8]}
    if rng.random() < 0.3:
        header["__metadata__"] = {"a": "b"}
    text = list(json.dumps(header, ensure_ascii=rng.random() < 0.5))
    for _ in range(rng.randint(0, 2)):
        at = rng.randrange(len(text))
        text[at] = rng.choice(["", " ", text[at] * 2, *'{}[]",:0123456789-.eE\\ntu\x01\x00'])
    return "".join(text).encode("utf-8", "surrogatepass"), nbytes + 8 * ("y" in header)


# What the package takes by accident of its JSON library: a tensor as a list of its three fields, a dtype as an object.
def is_accident(header):
    return b'["F32",' in header or b'{"F32":' in header


def verdicts():
    for k in range(1500):
        header, nbytes = random_header()
        data = struct.pack("<Q", len(header)) + header + bytes(nbytes)
        with open(path("h.safetensors"), "wb") as file:
            file.write(data)
        try:
            theirs = sorted((n, i["dtype"], list(i["shape"])) for n, i in deserialize(data))
        except Exception:
            theirs = None
        done = run("show", path("h.safetensors"))
        if (theirs is None) != (done.returncode != 0) and not is_accident(header):
            fail(f"seed {seed}, header {k}: {header!r}: the package says {theirs}, we say {done.stdout}{done.stderr}")


def checkpoints():
    try:
        import tensorflow as tf
    except ImportError:
        print("not compared: TensorFlow's checkpoints, because tensorflow is not installed")
        return
    for k in range(5):
        made = {f"v{i}/x": random_tensor() for i in range(rng.randint(1, 40))}
        names = list(made)
        tf.raw_ops.SaveV2(prefix=path("tf"), tensor_names=names, shape_and_slices=[""] * len(names),
                          tensors=[tf.constant(made[n]) for n in names])
        rows = rng.choice([300, 20000])
        whole = numbers.normal(size=(rows, 3)).astype(np.float32)
        cut = rng.randint(1, rows - 1)
        tf.raw_ops.SaveV2(prefix=path("sliced"), tensor_names=["p", "p"],
                          shape_and_slices=[f"{rows} 3 0,{cut}:0,3", f"{rows} 3 {cut},{rows - cut}:0,3"],
                          tensors=[tf.constant(whole[:cut]), tf.constant(whole[cut:])])
        made["p"] = whole
        convert("tf", "t.safetensors")
        convert("sliced", "p.safetensors")
        seen = {**safetensors.numpy.load_file(path("t.safetensors")), **safetensors.numpy.load_file(path("p.safetensors"))}
        if set(seen) != set(made) or not all(same(seen[n], made[n]) for n in made):
            fail(f"seed {seed}, checkpoint {k}: other tensors than TensorFlow saved")


tensors()
verdicts()
checkpoints()
print("the same tensors, bytes and verdicts")
