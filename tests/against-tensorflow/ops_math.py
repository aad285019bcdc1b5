# SPDX-License-Identifier: Apache-2.0
"""Recipes of operators that compute element by element, of casts and of matrix products.

Reductions, losses and normalisations are in ops_sums.py.
"""
import numpy as np
import tensorflow as tf

import ops_sums
from draw import (ANY, EDGES, EVERY, FLOATS, HALVES, INTS, NUMBERS, SIGNED, SINGLES, any_shape,
                  broadcast, cast, dtype_of, gentle, hostile, listed, misfit, one_in, one_zero,
                  pick, plain, shape, values, whole)


# The library takes integers of every size where TensorFlow takes some of them, and none where
# TensorFlow's Python makes floats of them first.
NEVER = ("bool", "string")


def unary(function, usual=FLOATS, number=values, attributes=None, wrong=ANY):
    def make(rng):
        x = number(rng, dtype_of(rng, usual, wrong), any_shape(rng))
        return {"x": x}, {name: pick(rng, v) for name, v in (attributes or {}).items()}
    return make, lambda i, a: function(i["x"], **a)


def finite(rng, dtype, dims):
    """TensorFlow's erf of float64 is NaN far out."""
    x = values(rng, dtype, dims)
    return np.where(np.abs(x) > 1e4, np.ones_like(x), x) if dtype in FLOATS else x


def sensible(rng, dtype, dims):
    """For gelu: beyond 4 TensorFlow's formula cancels to zero, and overflows to NaN at the end."""
    x = plain(rng, dtype, dims, 0.3 if dtype in HALVES else 1.0)
    return np.clip(x, -4, 4) if dtype in FLOATS else x


# Numbers that a float holds: TensorFlow keeps the attribute as one, also for float64.
ALPHAS = {"alpha": (0.25, 0.1, 1.5, -0.3, 0.0, 1.0)}

UNARY = {
    "neg": unary(tf.negative, FLOATS + SIGNED),
    "abs": unary(tf.abs, FLOATS + SIGNED),
    "sign": unary(tf.sign, FLOATS + SIGNED),
    "square": unary(tf.square, FLOATS + SIGNED),
    "sqrt": unary(tf.sqrt),
    "rsqrt": unary(tf.math.rsqrt, SINGLES),
    "exp": unary(tf.exp),
    "log": unary(tf.math.log),
    "log1p": unary(tf.math.log1p),
    "expm1": unary(tf.math.expm1, SINGLES),
    "sin": unary(tf.sin),
    "cos": unary(tf.cos),
    "tan": unary(tf.tan),
    "tanh": unary(tf.tanh, number=gentle),
    "sigmoid": unary(tf.sigmoid, number=gentle),
    "relu": unary(tf.nn.relu, NUMBERS, one_zero),
    "relu6": unary(tf.nn.relu6, NUMBERS, one_zero),
    "elu": unary(tf.nn.elu),
    "selu": unary(tf.nn.selu, SINGLES),
    "softplus": unary(tf.nn.softplus, number=gentle),
    "softsign": unary(tf.nn.softsign),
    "silu": unary(tf.nn.silu, SINGLES),
    "log_sigmoid": unary(tf.math.log_sigmoid, number=gentle),
    "erf": unary(tf.math.erf, number=finite),
    "reciprocal": unary(tf.math.reciprocal),
    "floor": unary(tf.floor),
    "ceil": unary(tf.math.ceil),
    "round": unary(tf.round, FLOATS + SIGNED),
    "isnan": unary(tf.math.is_nan),
    "isinf": unary(tf.math.is_inf),
    "isfinite": unary(tf.math.is_finite),
    "logical_not": unary(tf.logical_not, ("bool",)),
    "leaky_relu": unary(tf.nn.leaky_relu, FLOATS, values, ALPHAS, NEVER),
    "gelu": unary(tf.nn.gelu, FLOATS, sensible, {"approximate": (False, True)}),
}


def operands(rng, n, dtype, number=None):
    """n operands of one dtype that broadcast; sometimes of two dtypes, or of wrong shapes."""
    shapes, dtypes = broadcast(rng, n, 8, 12 if dtype in HALVES else 240), [dtype] * n
    if one_in(rng, 16):
        shapes[:2] = misfit(rng)
    elif one_in(rng, 16):
        dtypes[-1] = pick(rng, EVERY)
    kind = number or pick(rng, (plain, values, hostile))
    return [kind(rng, d, dims) for d, dims in zip(dtypes, shapes)]


def binary(function, usual=NUMBERS, number=None, mend=lambda rng, x, y: (x, y), wrong=ANY):
    def make(rng):
        x, y = mend(rng, *operands(rng, 2, dtype_of(rng, usual, wrong), number))
        return {"x": x, "y": y}, {}
    return make, lambda i, a: function(i["x"], i["y"])


def no_zero_divisor(rng, x, y):
    """Division of integers by zero stays in one case of sixteen, as an error."""
    if y.dtype.kind in "iu" and not one_in(rng, 16):
        y = np.where(y == 0, np.ones_like(y), y)
    if y.dtype.kind == "i":
        # The smallest integer over -1 is a trap of the processor, which TensorFlow falls into.
        x = np.where(x == np.iinfo(y.dtype).min, np.ones_like(x), x) if x.dtype == y.dtype else x
    return x, y


def small_powers(rng, x, y):
    """Integers to small powers, mostly not negative: TensorFlow rejects the negative ones."""
    if y.dtype.kind in "iu":
        y = cast(np.abs(y.astype("int64")) % 7, y.dtype) if not one_in(rng, 8) else y
    return x, y


def divisible(rng, dtype, dims):
    """Without the ends of the range: TensorFlow makes zeros of quotients that are subnormal."""
    x = values(rng, dtype, dims)
    return np.where(np.isfinite(x) & (np.abs(x) > 1e30), np.ones_like(x), x) \
        if dtype in FLOATS else x


COMPARED = FLOATS + INTS
BINARY = {
    "add": binary(tf.add, wrong=("bool",)),  # TensorFlow joins strings
    "sub": binary(tf.subtract),
    "mul": binary(tf.multiply),
    "div": binary(tf.truediv),
    "floordiv": binary(tf.math.floordiv, SINGLES + INTS, divisible, no_zero_divisor),
    "mod": binary(tf.math.floormod, SINGLES + INTS, divisible, no_zero_divisor),
    "pow": binary(tf.pow, FLOATS + ("int32", "int64"), mend=small_powers, wrong=NEVER),
    "maximum": binary(tf.maximum, number=one_zero),
    "minimum": binary(tf.minimum, number=one_zero),
    "squared_difference": binary(tf.math.squared_difference, FLOATS + ("int32", "int64"),
                                 gentle, wrong=NEVER),
    "equal": binary(tf.equal, ANY),
    "not_equal": binary(tf.not_equal, ANY),
    "less": binary(tf.less, COMPARED),
    "less_equal": binary(tf.less_equal, COMPARED),
    "greater": binary(tf.greater, COMPARED),
    "greater_equal": binary(tf.greater_equal, COMPARED),
    "logical_and": binary(tf.logical_and, ("bool",)),
    "logical_or": binary(tf.logical_or, ("bool",)),
    "logical_xor": binary(tf.math.logical_xor, ("bool",)),
}


def make_add_n(rng):
    dtype, dims = pick(rng, NUMBERS), any_shape(rng, 0, 7)
    xs = {f"xs_{k}": gentle(rng, dtype, dims) for k in range(whole(rng, 1, 9))}
    if one_in(rng, 10):
        xs["xs_0"] = plain(rng, pick(rng, NUMBERS), pick(rng, (dims, dims + [2], [1] + dims)))
    return xs, {}


def make_where(rng):
    dtype = pick(rng, ANY)
    x, y = operands(rng, 2, dtype)
    cond = plain(rng, "bool" if not one_in(rng, 16) else pick(rng, EVERY), pick(rng, (x, y)).shape)
    if one_in(rng, 4):
        shapes = broadcast(rng, 3)
        cond, x, y = [plain(rng, d, s) for d, s in zip(("bool", dtype, dtype), shapes)]
    return {"cond": cond, "x": x, "y": y}, {}


def make_cast(rng):
    """What does not fit the integer is left out: C and TensorFlow leave such casts undefined."""
    source, target = pick(rng, EVERY), pick(rng, EVERY)
    x = values(rng, source, any_shape(rng))
    if source in FLOATS and target in INTS:
        info, wide = np.iinfo(target), x.astype("float64")
        fits = (wide > max(info.min, -2.0 ** 62)) & (wide < min(info.max, 2.0 ** 62))
        x = np.where(fits, x, np.zeros_like(x))
    return {"x": x}, {"dtype": target}


def matrix(rng, dtype, dims, depth):
    """Large products have small factors: their sums in another order stay within the tolerance."""
    if dtype in SINGLES and one_in(rng, 6):
        return hostile(rng, dtype, dims, (np.nan, np.inf, -np.inf, 1.0, -2.0))
    if dtype in ("int32", "int64"):
        return values(rng, dtype, dims)
    return plain(rng, dtype, dims, 0.3 if dtype in HALVES else 1.0 if depth < 20 else 0.1)


def extents(rng):
    m, k, n = [pick(rng, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17)) for _ in range(3)]
    if one_in(rng, 4):
        m, k, n = [pick(rng, (1, 5, 6, 7, 13, 24, 25, 47, 48, 49, 65)) for _ in range(3)]
    if one_in(rng, 12):
        k = pick(rng, EDGES)
    return m, k, n


def make_matmul(rng):
    m, k, n = extents(rng)
    # TensorFlow multiplies int16 in batches alone.
    dtype = dtype_of(rng, FLOATS + ("float32", "int32", "int64"), [d for d in ANY if d != "int16"])
    batch = ([], []) if dtype in HALVES or not one_in(rng, 3) else broadcast(rng, 2, 5, 8)
    a, b = [m, k], [k, n]
    attrs = {}
    for name, dims in (("transpose_a", a), ("transpose_b", b)):
        if one_in(rng, 2):
            attrs[name] = one_in(rng, 2)
            if attrs[name]:
                dims.reverse()
    if one_in(rng, 12):
        b[0] += 1
    if one_in(rng, 20):
        a = a[:1]
    elif m * k * n < 5000:
        a, b = list(batch[0]) + a, list(batch[1]) + b
    other = pick(rng, EVERY) if one_in(rng, 20) else dtype
    if {dtype, other} == {"float32", "bfloat16"}:
        # Of two dimensions TensorFlow gives this pair to SparseMatMul, of more it fails; its
        # documentation, and GEN-ERR-4, want one type.
        other = "float64"
    depth = max(m, k, n)
    return {"a": matrix(rng, dtype, a, depth), "b": matrix(rng, other, b, depth)}, attrs


def make_matvec(rng):
    m, k, _ = extents(rng)
    dtype = dtype_of(rng, FLOATS + ("int32", "int64"), [d for d in ANY if d != "int16"])
    batch = ([], []) if dtype in HALVES or not one_in(rng, 3) else broadcast(rng, 2, 4, 8)
    attrs = {"transpose_a": one_in(rng, 2)} if one_in(rng, 2) else {}
    a = [k, m] if attrs.get("transpose_a") else [m, k]
    b = [k + 1] if one_in(rng, 12) else [k]
    return {"a": matrix(rng, dtype, list(batch[0]) + a, max(m, k)),
            "b": matrix(rng, dtype, list(batch[1]) + b, max(m, k))}, attrs


def make_clip_by_value(rng):
    dtype = dtype_of(rng, FLOATS + ("int32", "int64", "int8", "uint8"))
    low, high = pick(rng, ((-0.5, 0.5), (0, 1), (1.0, -1.0), (0.25, 0.25), (-1e4, 1e4)))
    if dtype not in FLOATS:
        low, high = pick(rng, ((1, 3), (0, 5), (4, 2), (7, 100)))
    return {"x": one_zero(rng, dtype, any_shape(rng))}, {"min": low, "max": high}


EQUATIONS = (
    "ij,jk->ik", "ij,jk", "ij,kj->ik", "ji,jk->ik", "bij,bjk->bik", "bij,jk->bik", "ij,j->i",
    "i,i->", "i,j->ij", "ij->ji", "ij->", "ij->j", "ii->i", "ii->", "iij->ij", "iij->j",
    "ijk->kji", "ij,jk->", "abc,cd,de->abe", "bhqd,bhkd->bhqk", "bhqk,bkhd->bqhd",
    "...ij,...jk->...ik", "...ij,jk->...ik", "...i->...", "...ii->...i", "i...->...i",
    "...ij->...ji", "ba", "ab,bc,cd->ad", "i,->i", ",->", "ijk,ilm,njm,nlk->", "b...c,cd->b...d",
    "a,b,c->cab", "i j, j k -> i k", "...,...->...", "i->ii", "AB,BC->CA", "aA,Aa->a",
    "...a,...b->ab...",
)
WRONG_EQUATIONS = (
    "ij,jk->il", "ij,jk->ii", "ij-jk->ik", "i,j,k->ij", "ij->k", "i1,1j->ij", "ij,jk>ik", "",
    "ijk,jk->ik", "...ij->ij", "ij...->ij", "..i->i", "->", "ij,jk->ik->ij", "...i...->i",
    "i,j->i.j", "ij,jk-> ", "i_->i",
)


def random_equation(rng):
    """One to three terms of up to four letters, some of them twice, and some of those behind.
    With '...' there is always a result: TensorFlow has none with it otherwise."""
    letters = "abcdeXY"[:whole(rng, 2, 7)]
    terms = ["".join(pick(rng, letters) for _ in range(whole(rng, 0, 4)))
             for _ in range(whole(rng, 1, 3))]
    kept = [c for c in sorted(set("".join(terms))) if not one_in(rng, 2)]
    rng.shuffle(kept)
    if one_in(rng, 4) and kept:
        terms = [t[:1] + "..." + t[1:] if not one_in(rng, 3) else t for t in terms]
        kept.insert(whole(rng, 0, len(kept)), "...")
    return ",".join(terms) + ("->" + "".join(kept) if "..." in kept or
                                                 not one_in(rng, 6) else "")


def term_shape(rng, term, sizes, dots):
    """The dimensions of an operand; those of '...' broadcast against the other operands'."""
    kept = [1 if one_in(rng, 4) else d for d in dots[whole(rng, 0, len(dots)):]]
    head, ellipsis, tail = term.partition("...")
    dims = [sizes.get(c, 2) for c in head] + (kept if ellipsis else [])
    dims += [sizes.get(c, 2) for c in tail]
    if one_in(rng, 30) and dims:
        dims = pick(rng, (dims[1:], dims + [2], [d + 1 for d in dims]))
    return dims[:8]


def make_einsum(rng):
    equation = pick(rng, WRONG_EQUATIONS if one_in(rng, 10) else EQUATIONS)
    if one_in(rng, 2):
        equation = random_equation(rng)
    dtype = dtype_of(rng, SINGLES + ("int32", "int64"), NEVER)
    dots = [whole(rng, 1, 3) for _ in range(whole(rng, 0, 2))]
    terms = equation.replace(" ", "").split("->")[0].split(",")
    # An empty sum of three factors is 0 or -0 by the order in which they are taken.
    least = 0 if len(terms) < 3 and one_in(rng, 6) else 1
    sizes = {c: whole(rng, least, 5) for c in "abcdefghijklmnopqrstuvwxyzABCXY1"}
    shapes = [term_shape(rng, term, sizes, dots) for term in terms]
    return {f"xs_{k}": plain(rng, dtype, s, 1.0) for k, s in enumerate(shapes)}, \
        {"equation": equation}


def composite(i, a):
    x, y = i["x"], i.get("y")
    return {"x*x*x + sin(x)*y": lambda: x * x * x + tf.sin(x) * y,
            "reduce_sum(exp(-square(x-y)))": lambda: tf.reduce_sum(tf.exp(-tf.square(x - y))),
            "stop_gradient(x)*x": lambda: tf.stop_gradient(x) * x,
            "x used twice: relu(x)+sigmoid(x)*x": lambda: tf.nn.relu(x) + tf.sigmoid(x) * x,
            "y unused: x+0*stop_gradient(y)": lambda: x + 0 * tf.stop_gradient(y)}[a["program"]]()


def make_composite(rng):
    dtype = pick(rng, ("float32", "float64"))
    program, n = pick(rng, (("x*x*x + sin(x)*y", 2), ("reduce_sum(exp(-square(x-y)))", 2),
                            ("stop_gradient(x)*x", 1), ("x used twice: relu(x)+sigmoid(x)*x", 1),
                            ("y unused: x+0*stop_gradient(y)", 2)))
    shapes = broadcast(rng, n, 4, 60)
    return {k: plain(rng, dtype, s) for k, s in zip("xy", shapes)}, {"program": program}


def second_order(i, a):
    x = i["x"]
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.sin(x) * tf.exp(x) + x ** 3)
        g = inner.gradient(y, x)
        total = tf.reduce_sum(g)
    return {n: tf.stop_gradient(t) for n, t in
            (("y", y), ("g", g), ("h", outer.gradient(total, x)))}


PROGRAM = "y=reduce_sum(sin(x)*exp(x)+x**3); g=dy/dx; h=d(sum g)/dx"

recipes = {
    **UNARY,
    **BINARY,
    "add_n": (make_add_n, lambda i, a: tf.add_n(listed(i))),
    "where": (make_where, lambda i, a: tf.where(i["cond"], i["x"], i["y"])),
    "cast": (make_cast, lambda i, a: tf.cast(i["x"], a["dtype"])),
    "matmul": (make_matmul, lambda i, a: tf.matmul(i["a"], i["b"], **a)),
    "matvec": (make_matvec, lambda i, a: tf.linalg.matvec(i["a"], i["b"], **a)),
    "clip_by_value": (make_clip_by_value,
                      lambda i, a: tf.clip_by_value(i["x"], a["min"], a["max"])),
    "einsum": (make_einsum, lambda i, a: tf.einsum(a["equation"], *listed(i))),
    "composite": (make_composite, composite),
    "second_order": (lambda rng: ({"x": plain(rng, "float64", shape(rng))}, {"program": PROGRAM}),
                     second_order),
    **ops_sums.recipes,
}
