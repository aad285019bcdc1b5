# SPDX-License-Identifier: Apache-2.0
"""Recipes of convolutions and pooling: windows, strides, dilations and paddings of every kind."""
import numpy as np
import tensorflow as tf

from draw import FLOATS, INTS, mild, one_in, ordered, pick, whole, wrong


def pair(rng, values):
    """Two of them, equal in every second case."""
    first = pick(rng, values)
    return [first, first if one_in(rng, 2) else pick(rng, values)]


def written(rng, attrs):
    """Now and then in the other ways to write a pair: one number, or four."""
    for name in sorted(attrs.keys() & {"ksize", "strides", "dilations"}):
        value = attrs[name]
        if len(value) == 2 and one_in(rng, 6):
            same = value[0] == value[1] and one_in(rng, 2)
            attrs[name] = value[0] if same else [1] + value + [1]
    return attrs


def reach(window, dilation):
    return (window - 1) * dilation + 1


def image(rng, window, dilations, channels, least=-1):
    """[n,h,w,c]: mostly as large as the window and more, so that VALID has results."""
    sides = [max(reach(k, d) + whole(rng, 6 * least if one_in(rng, 8) else 0, 6), 1)
             for k, d in zip(window, dilations)]
    count = 0 if least < 0 and one_in(rng, 30) else pick(rng, (1, 1, 2, 3))
    return [count] + sides + [channels]


def explicit(rng):
    height, width = ([whole(rng, 0, 3), whole(rng, 0, 3)] for _ in range(2))
    return [[0, 0], height, width, [0, 0]]


def window_attrs(rng, modes, dilated=True):
    attrs = {"strides": pair(rng, (1, 1, 1, 2, 3)), "padding": pick(rng, modes),
             "dilations": pair(rng, (1, 1, 1, 2, 3)) if dilated else [1, 1]}
    if attrs["dilations"] == [1, 1] and one_in(rng, 2):
        del attrs["dilations"]
    if attrs["padding"] == "EXPLICIT":
        attrs["explicit_paddings"] = explicit(rng)
    return attrs


def spoil_convolution(rng, x, w, attrs):
    fault = pick(rng, ("channels", "rank", "padding", "strides", "filter", "dilations", "length"))
    if fault == "channels":
        x = x[:3] + [x[3] + 1]
    elif fault == "rank":
        x = x[1:]
    elif fault == "padding":
        attrs["padding"] = "FULL"
    elif fault == "filter":
        w = w[:3]
    elif fault == "length":
        attrs["strides"] = pick(rng, ([1, 1, 1], [2, 1, 1, 1], [1, 1, 1, 2]))
    else:
        attrs[fault] = pick(rng, ([0, 1], [-1, 1]))
    return x, w


def lengths(x, window, attrs):
    """How high and wide the result of a convolution is; negative if the window does not fit."""
    dilations, pads = attrs.get("dilations", [1, 1]), attrs.get("explicit_paddings", [[0, 0]] * 4)
    if attrs["padding"] == "SAME":
        return [-(-x[d + 1] // attrs["strides"][d]) for d in range(2)]
    room = [x[d + 1] + sum(pads[d + 1]) - reach(window[d], dilations[d]) for d in range(2)]
    return [int((r + s) / s) for r, s in zip(room, attrs["strides"])]


def conv2d(rng):
    attrs = window_attrs(rng, ("VALID", "SAME", "EXPLICIT"))
    window = pair(rng, (1, 1, 2, 3, 3, 4, 5))
    channels, filters = pick(rng, (1, 2, 3, 4, 8, 17)), pick(rng, (1, 2, 3, 5, 8, 16, 33))
    x = image(rng, window, attrs.get("dilations", [1, 1]), channels)
    if one_in(rng, 6):  # the size of real layers, where other kernels are chosen
        channels = x[3] = pick(rng, (16, 32, 64))
        x[0], x[1:3] = pick(rng, (1, 4)), pair(rng, (12, 14, 17))
    if 0 in lengths(x, window, attrs):  # TensorFlow's gradient crashes without results
        x[1:3] = [reach(k, 3) for k in window]
    w = window + [channels, filters]
    if one_in(rng, 8):  # in groups: x has a multiple of the channels that the filter has
        groups = pick(rng, (2, 3))
        x[3], w[3] = channels * groups, groups * whole(rng, 1, 4)
    if wrong(rng):
        x, w = spoil_convolution(rng, x, w, attrs)
    dtype = pick(rng, FLOATS)
    attrs = written(rng, attrs)
    return {"x": mild(rng, dtype, x), "w": mild(rng, dtype, w)}, attrs


def call_conv2d(i, a):
    padding = a["explicit_paddings"] if a["padding"] == "EXPLICIT" else a["padding"]
    return tf.nn.conv2d(i["x"], i["w"], a["strides"], padding, dilations=a.get("dilations"))


def depthwise_conv2d(rng):
    attrs = window_attrs(rng, ("VALID", "SAME", "EXPLICIT"))
    if not wrong(rng):
        attrs["strides"] = [attrs["strides"][0]] * 2
    if attrs.get("dilations", [1, 1]) != [1, 1]:
        attrs["strides"] = [1, 1]
        attrs["padding"] = pick(rng, ("VALID", "SAME"))
        attrs.pop("explicit_paddings", None)
    window = pair(rng, (1, 2, 3, 3, 5))
    channels, each = pick(rng, (1, 2, 3, 4, 8, 17, 64)), pick(rng, (1, 1, 2, 3))
    # Without results the gradient of TensorFlow is whatever was in memory.
    x = image(rng, window, attrs.get("dilations", [1, 1]), channels, 0)
    w = window + [channels, each]
    if wrong(rng):
        x, w = spoil_convolution(rng, x, w, attrs)
    dtype = pick(rng, FLOATS)
    return {"x": mild(rng, dtype, x), "w": mild(rng, dtype, w)}, attrs


def call_depthwise(i, a):
    strides = a["strides"]
    strides = [1] + strides + [1] if len(strides) == 2 else strides
    padding = a["explicit_paddings"] if a["padding"] == "EXPLICIT" else a["padding"]
    return tf.nn.depthwise_conv2d(i["x"], i["w"], strides, padding, dilations=a.get("dilations"))


def conv2d_transpose(rng):
    # Not dilated: TensorFlow computes that on other devices only.
    attrs = window_attrs(rng, ("VALID", "SAME", "EXPLICIT"), False)
    window = pair(rng, (1, 2, 3, 3, 4))
    channels, filters = pick(rng, (1, 2, 3, 8)), pick(rng, (1, 2, 5, 16))
    dilations = attrs.get("dilations", [1, 1])
    out = image(rng, window, dilations, channels, 0)  # TensorFlow crashes without results
    x = [out[0]] + lengths(out, window, attrs) + [filters]
    w = window + [channels, filters]
    if wrong(rng):
        fault = pick(rng, ("shape", "rank", "other"))
        if fault == "shape":
            out = out[:1] + [out[1] + 7] + out[2:]
        elif fault == "rank":
            out = out + [1]
        else:
            x, w = spoil_convolution(rng, x, w, attrs)
    dtype = pick(rng, FLOATS)
    return ({"x": mild(rng, dtype, x), "w": mild(rng, dtype, w)}, {"output_shape": out, **attrs})


def call_transpose(i, a):
    padding = a["explicit_paddings"] if a["padding"] == "EXPLICIT" else a["padding"]
    return tf.nn.conv2d_transpose(i["x"], i["w"], a["output_shape"], a["strides"], padding,
                                  dilations=a.get("dilations"))


def pool(dtypes, elements):
    def make(rng):
        ksize = pair(rng, (1, 2, 2, 3, 3, 5))
        attrs = {"ksize": ksize, "strides": pair(rng, (1, 2, 2, 3, 7)),
                 "padding": pick(rng, ("VALID", "SAME"))}
        if elements is mild:  # beyond the window, TensorFlow's gradient of means pads wrongly
            attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], ksize)]
        x = image(rng, ksize, [1, 1], pick(rng, (1, 2, 3, 8, 16, 17, 33, 64, 65)))
        if one_in(rng, 6):  # windows that cover the image and do not overlap
            attrs["ksize"] = attrs["strides"] = ksize = [2, 2]
            x[1:3] = pair(rng, (2, 4, 8))
        if 0 in lengths(x, ksize, attrs):  # the gradient is whatever was in memory
            x[1:3] = ksize
        if wrong(rng):
            x, _ = spoil_pool(rng, x, attrs)
        attrs = written(rng, attrs)
        return {"x": elements(rng, pick(rng, dtypes), x)}, attrs
    return make


def spoil_pool(rng, x, attrs):
    fault = pick(rng, ("rank", "padding", "ksize", "strides", "size", "length"))
    if fault == "rank":
        x = x[1:]
    elif fault == "padding":
        attrs["padding"] = "FULL"
    elif fault == "size":
        attrs["ksize"] = [99, 1]
    elif fault == "length":
        attrs["ksize"] = pick(rng, ([1, 1, 1], [1, 1, 1, 2]))
    else:
        attrs[fault] = pick(rng, ([0, 1], [-1, 1]))
    return x, attrs


def peaks(rng, dtype, dims):
    """Equal ones among them: the gradient goes to the first of the largest.

    No -inf, which TensorFlow takes for the lowest finite number.
    """
    x = pick(rng, (mild, ordered))(rng, dtype, dims)
    return np.where(np.isneginf(x), np.zeros_like(x), x) if dtype in FLOATS else x


recipes = {
    "conv2d": (conv2d, call_conv2d),
    "depthwise_conv2d": (depthwise_conv2d, call_depthwise),
    "conv2d_transpose": (conv2d_transpose, call_transpose),
    "max_pool2d": (pool(FLOATS + tuple(t for t in INTS if t not in ("uint32", "uint64")), peaks),
                   lambda i, a: tf.nn.max_pool2d(i["x"], a["ksize"], a["strides"], a["padding"])),
    "avg_pool2d": (pool(FLOATS, mild),
                   lambda i, a: tf.nn.avg_pool2d(i["x"], a["ksize"], a["strides"], a["padding"])),
}
