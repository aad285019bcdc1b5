# SPDX-License-Identifier: Apache-2.0
"""Weights and data of the four models, drawn from numpy's default_rng(0) in the order in which bench/train_models.c draws them.

mlp_small  64-64-10, relu, batch 32
mlp        784-512-512-10, relu, batch 128
cnn        images of 28 x 28, batch 64; twice: convolution 3 x 3 (32, then 64 channels), bias, relu, max pooling 2 x 2; dense
           128 relu; dense 10
gpt        4 layers, width 128, 4 heads, 64 tokens, vocabulary 128, batch 8; layer norms before, gelu by tanh, learned
           positions, output tied to the embedding

All in float32; SGD with learning rate 0.01; the mean loss over one batch that never changes.
"""
import numpy as np

LEARNING_RATE = 0.01
LAYERS, DEPTH, HEADS, TOKENS, VOCABULARY, TEXTS = 4, 128, 4, 64, 128, 8
NAMES = ("mlp_small", "mlp", "cnn", "gpt")


def numbers(model):
    """Weights in the layouts of TensorFlow, inputs and labels."""
    rng = np.random.default_rng(0)

    def normal(shape, scale):
        return rng.standard_normal(shape).astype("f") * scale

    def dense(inputs, outputs):
        return [normal((inputs, outputs), (1 / inputs) ** .5), np.zeros(outputs, "f")]

    def norm():
        return [np.ones(DEPTH, "f"), np.zeros(DEPTH, "f")]

    if model in ("mlp_small", "mlp"):
        widths, batch = ([64, 64, 10], 32) if model == "mlp_small" else ([784, 512, 512, 10], 128)
        weights = sum([dense(a, b) for a, b in zip(widths, widths[1:])], [])
        return weights, rng.standard_normal((batch, widths[0])).astype("f"), rng.integers(0, 10, batch).astype("i4")
    if model == "cnn":
        weights = [normal((3, 3, 1, 32), .3), np.zeros(32, "f"), normal((3, 3, 32, 64), .06), np.zeros(64, "f")]
        weights += dense(7 * 7 * 64, 128) + dense(128, 10)
        return weights, rng.standard_normal((64, 28, 28, 1)).astype("f"), rng.integers(0, 10, 64).astype("i4")
    if model == "gpt":
        weights = [normal((VOCABULARY, DEPTH), .02), normal((TOKENS, DEPTH), .02)]
        for _ in range(LAYERS):
            weights += norm() + dense(DEPTH, 3 * DEPTH) + dense(DEPTH, DEPTH)
            weights += norm() + dense(DEPTH, 4 * DEPTH) + dense(4 * DEPTH, DEPTH)
        weights += norm()
        tokens = rng.integers(0, VOCABULARY, (TEXTS, TOKENS)).astype("i4")
        return weights, tokens, rng.integers(0, VOCABULARY, (TEXTS, TOKENS)).astype("i4")
    raise SystemExit(f"there is no model '{model}'; use one of {', '.join(NAMES)}")
