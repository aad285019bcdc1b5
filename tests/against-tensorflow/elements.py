# SPDX-License-Identifier: Apache-2.0
"""Random elements, axes and indices for the recipes of operators that move them."""
import numpy as np
import tensorflow as tf

from operands import ANY, FLOATS, INTS, NUMBERS, cast, pick  # noqa: F401

INDICES = ("int32", "int64")

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 5e-324, 1e-8, 65504.0, 3.4e38, -1e300]
# NaN and subnormal numbers, which TensorFlow takes for zero, have no settled place among others.
UNORDERED = [np.nan, 1e-40, 5e-324, 1e-8]
WORDS = [b"", b"a", b"\x00", b"\xff\xfe", b"long" * 9, b"ab", b"b\n"]


def whole(rng, low, high):
    """An integer of low ... high, both included."""
    return int(rng.integers(low, high + 1))


def one_in(rng, n):
    return rng.integers(n) == 0


def wrong(rng):
    """One case in eight is wrong on purpose."""
    return one_in(rng, 8)


def shape(rng, low=0, high=5, most=4000):
    """Dimensions of 0 and 1 among primes; now and then one that reaches past the tiles."""
    rank = whole(rng, low, high)
    dims = [pick(rng, (1, 1, 2, 2, 3, 3, 4, 5, 7)) for _ in range(rank)]
    if rank and one_in(rng, 12):
        dims[whole(rng, 0, rank - 1)] = 0
    if rank and one_in(rng, 5):
        dims[whole(rng, 0, rank - 1)] = pick(rng, (8, 15, 16, 17, 31, 33, 64, 65, 127, 257, 1025))
    while np.prod(dims, dtype=np.int64) > most:
        dims[int(np.argmax(dims))] //= 2
    return dims


def integers(rng, dims, dtype):
    """Small ones and the extremes."""
    info = np.iinfo(dtype)
    small = rng.integers(max(info.min, -9), 10, size=dims).astype(dtype)
    edges = rng.choice(np.array([info.min, info.max, info.max - 1, 0, 1], dtype), size=dims)
    return np.where(rng.random(size=dims) < 0.2, edges, small)


def floats(rng, dims, dtype, special=SPECIAL):
    values = np.round(rng.normal(scale=3.0, size=dims), 3)
    if one_in(rng, 3):
        values = np.where(rng.random(size=dims) < 0.3, rng.choice(special, size=dims), values)
    return cast(values, dtype)


def array(rng, dims, dtype, special=SPECIAL):
    if dtype == "string":
        count = int(np.prod(dims, dtype=np.int64))
        words = np.array([pick(rng, WORDS) for _ in range(count)] + [b""], dtype=object)[:-1]
        return tf.constant(words, tf.string, dims) if count else tf.zeros(dims, tf.string)
    if dtype == "bool":
        return rng.integers(2, size=dims).astype(bool)
    if dtype in FLOATS:
        return floats(rng, dims, dtype, special)
    return np.asarray(integers(rng, dims, dtype))


def ordered(rng, dims, dtype):
    """Numbers that a comparison puts in one order. Ties and both zeros are among them."""
    return array(rng, dims, dtype, [v for v in SPECIAL if v not in UNORDERED and v == v])


def mild(rng, dims, dtype):
    """Numbers whose sums and products are exact in every dtype: the order of sums is free."""
    low = 0 if dtype[0] in "ub" and dtype != "bfloat16" else -1 if dtype == "bfloat16" else -2
    values = rng.integers(low, 2 if dtype == "bfloat16" else 3, size=dims)
    if dtype in ("float32", "float64"):
        values = np.round(rng.normal(size=dims) * 8) / 8
    return cast(values, dtype)


def axis(rng, rank, wrong=False):
    """In -rank ... rank - 1, or just outside."""
    if wrong or rank == 0:
        return pick(rng, (rank, -rank - 1, rank + 3, 2**31 - 1, -2**31))
    return whole(rng, -rank, rank - 1)


def axes(rng, rank):
    """Some different axes, each written from the front or from the back."""
    chosen = rng.permutation(rank)[: whole(rng, 0, rank)]
    return [int(a) - (rank if one_in(rng, 2) else 0) for a in chosen]


def indices(rng, dims, limit, dtype=None, wrong=False):
    """Indices in 0 ... limit - 1 with ties; wrong: one of them is outside."""
    out = rng.integers(0, max(limit, 1), size=dims)
    if limit == 0:
        out = np.zeros([0 if i == 0 else n for i, n in enumerate(dims or [0])], np.int64)
    if wrong and out.size:
        out = np.asarray(out)
        out.flat[whole(rng, 0, out.size - 1)] = pick(rng, (-1, limit, limit + 5, -limit - 1))
    return np.asarray(out).astype(dtype or pick(rng, INDICES))


def given(rng, attrs, defaults):
    """Attributes with those left out, now and then, that stand at their default."""
    return {k: v for k, v in attrs.items() if not (k in defaults and v == defaults[k]
                                                   and one_in(rng, 2))}
