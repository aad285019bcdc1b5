# SPDX-License-Identifier: Apache-2.0
"""Recipes of operators that move or choose elements, of convolutions and pooling."""
import numpy as np
import tensorflow as tf

recipes = {
    "tile": (lambda rng: ({"x": rng.normal(size=(3, 2)).astype("float32")}, {"multiples": [2, int(rng.integers(0, 3))]}),
             lambda i, a: tf.tile(i["x"], a["multiples"])),
}
