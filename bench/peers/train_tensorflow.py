# SPDX-License-Identifier: Apache-2.0
"""Train a model in TensorFlow, the step in a tf.function: train_tensorflow.py MODEL none|one|mirrored2 [xla]

The models are those of models.py, the protocol on standard input and output is that of bench/train.h.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

from models import DEPTH, HEADS, LAYERS, LEARNING_RATE, TOKENS, numbers
from protocol import serve


def forward_mlp(v, x):
    for i in range(0, len(v), 2):
        x = tf.matmul(x, v[i]) + v[i + 1]
        if i + 2 < len(v):
            x = tf.nn.relu(x)
    return x


def forward_cnn(v, x):
    x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, v[0], 1, "SAME") + v[1]), 2, 2, "SAME")
    x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, v[2], 1, "SAME") + v[3]), 2, 2, "SAME")
    x = tf.nn.relu(tf.reshape(x, [-1, 7 * 7 * 64]) @ v[4] + v[5])
    return x @ v[6] + v[7]


def layer_norm(x, gamma, beta):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gamma + beta


def forward_gpt(v, x):
    mask = tf.constant(np.triu(np.full((TOKENS, TOKENS), -1e9, "f"), 1))
    h = tf.gather(v[0], x) + v[1]
    for k in range(2, 2 + 12 * LAYERS, 12):
        g1, b1, wq, bq, wo, bo, g2, b2, w1, c1, w2, c2 = v[k:k + 12]
        z = layer_norm(h, g1, b1)
        n = tf.shape(z)[0]
        qkv = tf.reshape(tf.reshape(z, [-1, DEPTH]) @ wq + bq, [n, TOKENS, 3, HEADS, DEPTH // HEADS])
        q, key, value = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))
        a = tf.nn.softmax(tf.matmul(q, key, transpose_b=True) / (DEPTH // HEADS) ** .5 + mask)
        o = tf.reshape(tf.transpose(tf.matmul(a, value), [0, 2, 1, 3]), [-1, DEPTH])
        h = h + tf.reshape(o @ wo + bo, [n, TOKENS, DEPTH])
        z = tf.reshape(layer_norm(h, g2, b2), [-1, DEPTH])
        h = h + tf.reshape(tf.nn.gelu(z @ w1 + c1, approximate=True) @ w2 + c2, [n, TOKENS, DEPTH])
    return tf.matmul(tf.reshape(layer_norm(h, v[-2], v[-1]), [-1, DEPTH]), v[0], transpose_b=True)


FORWARD = {"mlp_small": forward_mlp, "mlp": forward_mlp, "cnn": forward_cnn, "gpt": forward_gpt}


def make_strategy(name):
    if name == "mirrored2":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    return tf.distribute.OneDeviceStrategy("/cpu:0") if name == "one" else tf.distribute.get_strategy()


def main(model, strategy_name, xla):
    strategy, forward = make_strategy(strategy_name), FORWARD.get(model)
    weights, X, Y = numbers(model)
    mirrored = strategy_name == "mirrored2"
    with strategy.scope():
        aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA if mirrored else tf.VariableAggregation.NONE
        variables = [tf.Variable(w, aggregation=aggregation) for w in weights]

    def update_all(strategy, gradients):
        gradients = strategy.extended.batch_reduce_to("SUM", list(zip(gradients, variables)))
        for variable, gradient in zip(variables, gradients):
            strategy.extended.update(variable, lambda v, g: v.assign_sub(LEARNING_RATE * g), args=(gradient,))

    def step(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(y, [-1]), forward(variables, x))
            loss = tf.reduce_sum(losses) / Y.size
        gradients = tape.gradient(loss, variables)
        if mirrored:
            tf.distribute.get_replica_context().merge_call(update_all, args=(gradients,))
        else:
            for variable, gradient in zip(variables, gradients):
                variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function(jit_compile=xla or None)
    def train(x, y):
        if strategy_name == "none":
            return step(x, y)
        return strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)

    def distributed(array):
        if not mirrored:
            return tf.constant(array)
        parts = np.split(array, 2)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group]))

    xs, ys = distributed(X), distributed(Y)
    serve(lambda: train(xs, ys), float)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in ("none", "one", "mirrored2") or sys.argv[3:] not in ([], ["xla"]):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], len(sys.argv) == 4)
