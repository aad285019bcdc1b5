# SPDX-License-Identifier: Apache-2.0
"""What all recipes draw from: dtypes, shapes with edges, values of every dtype with the hard ones,
axes and indices."""
import numpy as np
import tensorflow as tf

FLOATS = ("float32", "float64", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
SINGLES = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
INDICES = ("int32", "int64")
NUMBERS = FLOATS + INTS
EVERY = NUMBERS + ("bool",)
ANY = EVERY + ("string",)

# --- choices -----------------------------------------------------------------------------------


def pick(rng, choices):
    return tuple(choices)[int(rng.integers(len(choices)))]


def whole(rng, low, high):
    """An integer of low ... high, both included."""
    return int(rng.integers(low, high + 1))


def one_in(rng, n):
    """True once in n times."""
    return int(rng.integers(n)) == 0


def wrong(rng):
    """One case in eight is wrong on purpose."""
    return one_in(rng, 8)


def dtype_of(rng, usual, others=ANY):
    """A usual dtype; in one case of eight another, of which TensorFlow says whether it is wrong.
    Floats are never among those: they are usual, or their rounding is not comparable."""
    others = [d for d in others if d not in usual and d not in FLOATS]
    return pick(rng, others) if others and wrong(rng) else pick(rng, usual)


def given(rng, attrs, defaults):
    """Attributes with those left out, now and then, that stand at their default."""
    return {k: v for k, v in attrs.items() if not (k in defaults and v == defaults[k]
                                                   and one_in(rng, 2))}


# --- shapes ------------------------------------------------------------------------------------

DIMENSIONS = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33)
# Around the widths of vectors, tiles and blocks of the kernels.
EDGES = (8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 256, 257, 511, 513, 1023, 1025, 2049,
         4097)


def shape(rng, low=0, high=8, limit=240, least=0):
    """A shape of rank low to high (small ranks more often) with at most `limit` elements. One in
    ten has none of them, unless dimensions begin at 1."""
    rank = int(min(high, rng.geometric(0.35) - 1 + low))
    if one_in(rng, 3):
        rank = whole(rng, low, high)
    dims, room = [], limit
    for _ in range(rank):
        dims.append(pick(rng, [d for d in DIMENSIONS if d <= max(room, 1)]))
        room //= dims[-1]
    dims = [int(d) for d in rng.permutation(dims)]
    if least == 0 and rank and one_in(rng, 10):
        for _ in range(pick(rng, (1, 1, 1, 2))):
            dims[whole(rng, 0, rank - 1)] = 0
    return dims


def any_shape(rng, low=0, high=8, limit=20000):
    """A shape; in one case of ten one that reaches the blocks of kernels, with a long dimension."""
    if high == 0 or not one_in(rng, 10):
        return shape(rng, low, high, min(limit, 240))
    long = pick(rng, [d for d in EDGES if d <= limit])
    dims = shape(rng, max(low - 1, 0), high - 1, min(limit // long, 12))
    dims.insert(whole(rng, 0, len(dims)), long)
    return dims


def broadcast(rng, n, high=8, limit=240):
    """n shapes that broadcast to one: leading dimensions left out, others made 1."""
    full = any_shape(rng, 0, high) if limit > 99 else shape(rng, 0, high, limit)
    out = []
    for _ in range(n):
        cut = whole(rng, 0, len(full)) if one_in(rng, 3) else 0
        out.append([1 if one_in(rng, 4) else d for d in full[cut:]])
    out[whole(rng, 0, n - 1)] = full
    return out


def misfit(rng):
    """Two shapes that do not broadcast."""
    dims = [whole(rng, 2, 4) for _ in range(whole(rng, 1, 3))]
    other = list(dims)
    other[whole(rng, 0, len(dims) - 1)] += pick(rng, (1, 2))
    return dims, other


# --- values ------------------------------------------------------------------------------------

# For operators that compute. Subnormal numbers are left out: TensorFlow's processor takes them for
# zeros, the library does not.
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 6.0, 88.5,
           -88.5, 104.0, -104.0, 1e4, -1e4, 1e-8, 65504.0, 3.4e38, -1e300)
# For operators that only move: of float16, 1e-6 is subnormal.
SUBNORMAL = (1e-40, 5e-324, 1e-6)
WORDS = (b"", b"a", b"b", b"ab", b"\x00", b"\xff", b"\xff\xfe", b"long" * 9, b"b\n")


def cast(values, dtype):
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype)


def words(rng, dims):
    """As objects: numpy's own strings lose zeros at their end."""
    out = np.empty(int(np.prod(dims)), dtype=object)
    out[:] = [pick(rng, WORDS) for _ in range(out.size)]
    return out.reshape(dims)


def integers(rng, dtype, dims, extreme=False):
    info = np.iinfo(dtype)
    small = cast(rng.integers(max(-9, info.min), 10, size=dims), dtype)
    if not extreme:
        return small
    ends = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1], dtype)
    return np.where(rng.random(dims) < 0.3, ends[rng.integers(len(ends), size=dims)], small)


def plain(rng, dtype, dims, scale=1.5):
    """Numbers without traps: floats of four decimals, small integers, bools, strings."""
    if dtype == "string":
        return words(rng, dims)
    if dtype == "bool":
        return np.asarray(rng.random(dims) < 0.5)
    if dtype in INTS:
        return integers(rng, dtype, dims)
    return cast(np.round(rng.normal(size=dims) * scale, 4), dtype)


def ties(rng, dtype, dims):
    """Few different values, so that many are equal."""
    if dtype not in NUMBERS:
        return plain(rng, dtype, dims)
    return cast(rng.integers(0, 3, size=dims), dtype)


def hostile(rng, dtype, dims, special=None):
    """Among plain numbers NaN, infinities, both zeros and the ends of the range, or `special`."""
    if dtype in INTS:
        return integers(rng, dtype, dims, True)
    if dtype not in FLOATS:
        return plain(rng, dtype, dims)
    ends = (float(tf.as_dtype(dtype).max), float(tf.as_dtype(dtype).min))
    choices = np.array(special or SPECIAL + ends)
    mixed = np.where(rng.random(dims) < 0.4, choices[rng.integers(len(choices), size=dims)],
                     rng.normal(size=dims) * (1 if special else pick(rng, (1, 1, 3, 30))))
    return cast(mixed, dtype)


def values(rng, dtype, dims, special=None):
    """Plain, equal or hostile numbers, each in a third of the calls."""
    kind = pick(rng, (plain, ties, hostile))
    return kind(rng, dtype, dims, special) if kind is hostile else kind(rng, dtype, dims)


def moved(rng, dtype, dims):
    """For operators that compute nothing: whatever bits there are must come out again."""
    return values(rng, dtype, dims, SPECIAL + SUBNORMAL)


def ordered(rng, dtype, dims):
    """Numbers that a comparison puts in one order: not NaN. Ties and both zeros are among them."""
    return values(rng, dtype, dims, tuple(v for v in SPECIAL if v == v))


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


def mild(rng, dtype, dims):
    """Numbers whose sums and products are exact in every dtype: the order of sums is free."""
    low = 0 if dtype in UNSIGNED + ("bool",) else -1 if dtype == "bfloat16" else -2
    numbers = rng.integers(low, 2 if dtype == "bfloat16" else 3, size=dims)
    if dtype in SINGLES:
        numbers = np.round(rng.normal(size=dims) * 8) / 8
    return cast(numbers, dtype)


# --- axes and indices --------------------------------------------------------------------------


def axis(rng, rank, outside=False):
    """In -rank ... rank - 1, or just outside, or far."""
    if outside or rank == 0:
        return pick(rng, (rank, -rank - 1, rank + 3, 2**31 - 1, -2**31))
    return whole(rng, -rank, rank - 1)


def axes(rng, rank):
    """Some different axes, each written from the front or from the back."""
    chosen = rng.permutation(rank)[:whole(rng, 0, rank)]
    return [int(a) - (rank if one_in(rng, 2) else 0) for a in chosen]


def indices(rng, dims, limit, dtype=None, outside=False):
    """Indices in 0 ... limit - 1 with ties; outside: one of them is not."""
    out = np.asarray(rng.integers(0, max(limit, 1), size=dims))
    if limit == 0:
        out = np.zeros([0 if i == 0 else n for i, n in enumerate(dims or [0])], np.int64)
    if outside and out.size:
        out.flat[whole(rng, 0, out.size - 1)] = pick(rng, (-1, limit, limit + 5, -limit - 1))
    return out.astype(dtype or pick(rng, INDICES))


def listed(inputs):
    """The tensors of a list argument, in order."""
    return [inputs[f"xs_{k}"] for k in range(len(inputs))]
