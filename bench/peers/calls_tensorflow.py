# SPDX-License-Identifier: Apache-2.0
"""What single calls of tf.distribute and elements of tf.data cost: calls_tensorflow.py

Prints "NAME MICROSECONDS" lines. The names are those of `cohort-bench calls`, which measures the same in rounds of the same
length. Record files are written to a temporary folder.
"""
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

ROUND_SECONDS, CALL_SECONDS = 0.02, 0.5  # as in bench/calls.c
FILE_BYTES = 64000000


def measure(name, call):
    def round_of(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    seconds, best, rounds, begin = round_of(3), float("inf"), 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - begin < CALL_SECONDS:
        seconds = round_of(max(1, int(ROUND_SECONDS / seconds)))
        best, rounds = min(best, seconds), rounds + 1
    print(f"{name} {best * 1e6:.4g}", flush=True)


def drain(name, dataset):
    best, rounds, start = float("inf"), 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - start < CALL_SECONDS:
        begin, count, rounds = time.perf_counter(), 0, rounds + 1
        for _ in dataset:
            count += 1
        best = min(best, (time.perf_counter() - begin) / count)
    print(f"{name} {best * 1e6:.4g}", flush=True)


def calls(one, mirrored):
    x, numbers = tf.constant(3.0), tf.range(10)

    def twice(x):
        return x * 2.0

    captured = tf.function(twice)

    @tf.function
    def run_one(x):
        return one.run(twice, args=(x,))

    @tf.function
    def run_and_reduce(x):
        return mirrored.reduce("SUM", mirrored.run(twice, args=(x,)), axis=None)

    def scope():
        with one.scope():
            pass

    measure("call_op_us", lambda: twice(x))
    measure("call_one_run_us", lambda: one.run(twice, args=(x,)))
    measure("call_one_run_function_us", lambda: one.run(captured, args=(x,)))
    measure("call_function_one_run_us", lambda: run_one(x))
    measure("call_one_reduce_us", lambda: one.reduce(tf.distribute.ReduceOp.SUM, numbers, axis=0))
    measure("call_one_local_results_us", lambda: one.experimental_local_results(x))
    measure("call_one_scope_us", scope)
    measure("call_mirrored2_run_us", lambda: mirrored.run(twice, args=(x,)))
    measure("call_mirrored2_run_reduce_us", lambda: run_and_reduce(x))
    for mib in (1, 100):
        parts = mirrored.run(lambda: tf.ones([mib << 18]))

        @tf.function
        def all_reduce(x):
            return mirrored.run(lambda v: tf.distribute.get_replica_context().all_reduce("SUM", v), args=(x,))

        measure(f"call_reduce_{mib}mib_us", lambda: mirrored.reduce("SUM", parts, axis=None))
        measure(f"call_allreduce_{mib}mib_us", lambda: all_reduce(parts))


def elements(one, mirrored, folder):
    slices = tf.data.Dataset.from_tensor_slices(np.ones((20000, 784), "f")).batch(128)
    drain("input_range_us", tf.data.Dataset.range(20000))
    drain("input_range_batch_us", tf.data.Dataset.range(500000).batch(100))
    drain("input_shuffle_batch_us", tf.data.Dataset.range(200000).shuffle(10000).batch(100))
    drain("input_slices_batch_us", slices)
    drain("input_one_slices_batch_us", one.experimental_distribute_dataset(slices))
    pairs = tf.data.Dataset.range(8000).batch(2)
    drain("input_one_range_batch_us", one.experimental_distribute_dataset(pairs))
    drain("input_mirrored2_range_batch_us", mirrored.experimental_distribute_dataset(pairs))
    for name, nbytes, batch in (("1k", 1000, 256), ("100k", 100000, 1)):
        path = os.path.join(folder, name)
        with tf.io.TFRecordWriter(path) as writer:
            for _ in range(FILE_BYTES // nbytes):
                writer.write(bytes(nbytes))
        drain(f"input_tfrecord_{name}_us", tf.data.TFRecordDataset(path).batch(batch))


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one = tf.distribute.OneDeviceStrategy("/cpu:0")
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    calls(one, mirrored)
    with tempfile.TemporaryDirectory() as folder:
        elements(one, mirrored, folder)


if __name__ == "__main__":
    main()
