# SPDX-License-Identifier: Apache-2.0
"""Random operands for recipes: shapes with edges, values of every dtype with the hard ones."""
import numpy as np
import tensorflow as tf

FLOATS = ("float32", "float64", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
SINGLES = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
EVERY = NUMBERS + ("bool",)
ANY = EVERY + ("string",)

DIMENSIONS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33)
# Around the widths of vectors, tiles and blocks of the kernels.
EDGES = (15, 16, 17, 63, 64, 65, 127, 129, 255, 256, 257, 511, 513, 1023, 1025, 2049, 4097)
# Subnormal numbers are left out: TensorFlow's processor takes them for zeros, the library does not.
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 6.0, 88.5,
           -88.5, 104.0, -104.0, 1e4, -1e4)


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def chance(rng, n):
    """True once in n times."""
    return int(rng.integers(n)) == 0


def dtype_of(rng, usual, wrong=ANY):
    """A usual dtype; in one case of eight another, of which TensorFlow says whether it is wrong.
    Floats are never among those: they are usual, or their rounding is not comparable."""
    others = [d for d in wrong if d not in usual and d not in FLOATS]
    return pick(rng, others) if others and chance(rng, 8) else pick(rng, usual)


def listed(i):
    return [i[f"xs_{k}"] for k in range(len(i))]


def shape(rng, low=0, high=8, limit=240):
    """A shape of rank low to high (small ranks more often) with at most `limit` elements."""
    rank = int(min(high, max(low, rng.geometric(0.35) - 1 + low)))
    if chance(rng, 12):
        rank = int(rng.integers(low, high + 1))
    dims = []
    for _ in range(rank):
        room = limit // max(1, int(np.prod([d for d in dims if d] or [1])))
        dims.append(pick(rng, [d for d in DIMENSIONS if d <= room]))
    return dims


def large(rng, low=0, high=4):
    """A shape that reaches the blocks of kernels: one long dimension, perhaps a short one."""
    dims = [pick(rng, EDGES)]
    if high > 1 and (low > 1 or chance(rng, 2)):
        dims.insert(int(rng.integers(2)), pick(rng, (2, 3, 5)))
    return dims + [1] * (low - len(dims))


def any_shape(rng, low=0, high=8):
    return large(rng, low, high) if high > 0 and chance(rng, 16) else shape(rng, low, high)


def cast(values, dtype):
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype)


def integers(rng, dtype, dims, extreme):
    info = np.iinfo(dtype)
    values = rng.integers(max(-9, info.min), 10, size=dims)
    if extreme:
        ends = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1], dtype=dtype)
        values = np.where(rng.random(dims) < 0.3, ends[rng.integers(6, size=dims)],
                          cast(values, dtype))
    return cast(values, dtype)


def plain(rng, dtype, dims, scale=1.5):
    """Numbers without traps: floats of four decimals, small integers, bools, short strings."""
    if dtype == "string":
        return np.array([pick(rng, (b"", b"a", b"b", b"ab", b"\xff")) for _ in
                         range(int(np.prod(dims)))], dtype=object).reshape(dims)
    if dtype == "bool":
        return np.asarray(rng.random(dims) < 0.5)
    if dtype in INTS:
        return integers(rng, dtype, dims, False)
    return cast(np.round(rng.normal(size=dims) * scale, 4), dtype)


def ties(rng, dtype, dims):
    """Few different values, so that many are equal."""
    if dtype not in NUMBERS:
        return plain(rng, dtype, dims)
    return cast(rng.integers(0, 3, size=dims), dtype)


def hostile(rng, dtype, dims, special=None):
    """Among plain numbers NaN, infinities, both zeros and the ends of the range."""
    if dtype in INTS:
        return integers(rng, dtype, dims, True)
    if dtype not in FLOATS:
        return plain(rng, dtype, dims)
    ends = (float(tf.as_dtype(dtype).max), float(tf.as_dtype(dtype).min))
    choices = np.array(special or SPECIAL + ends)
    mixed = np.where(rng.random(dims) < 0.4, choices[rng.integers(len(choices), size=dims)],
                     rng.normal(size=dims) * (1 if special else pick(rng, (1, 1, 3, 30))))
    return cast(mixed, dtype)


def values(rng, dtype, dims):
    """Plain, equal or hostile numbers, each in a third of the calls."""
    return pick(rng, (plain, ties, hostile))(rng, dtype, dims)


def one_zero(rng, dtype, dims):
    """Which of 0 and -0 is the larger TensorFlow decides by place and dtype: there is no -0."""
    x = values(rng, dtype, dims)
    return np.where(x == 0, np.zeros_like(x), x) if dtype in FLOATS else x


def gentle(rng, dtype, dims):
    """values, but for halves numbers that stay below 1: TensorFlow rounds them after each step of
    a formula, the library once, and two units in the last place are only then in the tolerance."""
    if dtype in HALVES:
        return plain(rng, dtype, dims, 0.3)
    return values(rng, dtype, dims)


def broadcast(rng, n, high=8, limit=240):
    """n shapes that broadcast to one: leading dimensions left out, others made 1."""
    whole = large(rng) if limit > 99 and chance(rng, 16) else shape(rng, 0, high, limit)
    out = []
    for _ in range(n):
        cut = int(rng.integers(len(whole) + 1)) if chance(rng, 3) else 0
        out.append([1 if chance(rng, 4) else d for d in whole[cut:]])
    out[int(rng.integers(n))] = whole
    return out


def misfit(rng):
    """Two shapes that do not broadcast."""
    dims = [int(d) for d in rng.integers(2, 5, size=int(rng.integers(1, 4)))]
    other = list(dims)
    other[int(rng.integers(len(dims)))] += pick(rng, (1, 2))
    return dims, other
