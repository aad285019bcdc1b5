# SPDX-License-Identifier: Apache-2.0
"""Recipes of operators that compute: elementwise, reductions, products, softmax, losses."""
import numpy as np
import tensorflow as tf

recipes = {
    "neg": (lambda rng: ({"x": rng.normal(size=(3, 2)).astype("float32")}, {}),
            lambda i, a: tf.negative(i["x"])),
}
