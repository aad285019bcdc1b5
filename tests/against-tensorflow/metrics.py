# SPDX-License-Identifier: Apache-2.0
"""The family "metrics": Keras' metrics with random options, shapes, weights and masks, over a few updates."""
import keras
import numpy as np
import tensorflow as tf

import record
from draw import SINGLES, one_in, pick, whole

# Class to what its operands hold.
OPERANDS = {
    "Mean": ("reals", None), "Sum": ("reals", None),
    "Accuracy": ("bits", "bits"), "BinaryAccuracy": ("bits", "shares"),
    "CategoricalAccuracy": ("hot", "scores"), "SparseCategoricalAccuracy": ("ids", "scores"),
    "TopKCategoricalAccuracy": ("hot", "scores"), "SparseTopKCategoricalAccuracy": ("ids", "scores"),
    "TruePositives": ("bits", "shares"), "FalsePositives": ("bits", "shares"),
    "TrueNegatives": ("bits", "shares"), "FalseNegatives": ("bits", "shares"),
    "Precision": ("bits", "shares"), "Recall": ("bits", "shares"),
    "SensitivityAtSpecificity": ("bits", "shares"), "SpecificityAtSensitivity": ("bits", "shares"),
    "PrecisionAtRecall": ("bits", "shares"), "RecallAtPrecision": ("bits", "shares"),
    "AUC": ("bits", "shares"), "F1Score": ("bits", "shares"), "FBetaScore": ("bits", "shares"),
    "MeanSquaredError": ("reals", "reals"), "RootMeanSquaredError": ("reals", "reals"),
    "MeanAbsoluteError": ("reals", "reals"), "CosineSimilarity": ("reals", "reals"),
    "LogCoshError": ("reals", "reals"), "R2Score": ("reals", "reals"),
    "PearsonCorrelation": ("reals", "reals"), "ConcordanceCorrelation": ("reals", "reals"),
    "Hinge": ("bits", "reals"), "BinaryCrossentropy": ("bits", "shares"),
    "SparseCategoricalCrossentropy": ("ids", "shares"),
    "MeanIoU": ("ids", "ids"), "IoU": ("ids", "ids"), "BinaryIoU": ("bits", "shares"),
    "OneHotMeanIoU": ("hot", "scores"), "OneHotIoU": ("hot", "scores"),
}
IOU = ("MeanIoU", "IoU", "BinaryIoU", "OneHotMeanIoU", "OneHotIoU")
CONSTRAINT = {"SensitivityAtSpecificity": "specificity", "SpecificityAtSensitivity": "sensitivity",
              "PrecisionAtRecall": "recall", "RecallAtPrecision": "precision"}
COUNTS = ("TruePositives", "FalsePositives", "TrueNegatives", "FalseNegatives")
MATRICES = ("F1Score", "FBetaScore", "R2Score")  # [examples, classes] alone
TOP_K = ("TopKCategoricalAccuracy", "SparseTopKCategoricalAccuracy")  # float32: TensorFlow has no kernel for others
VECTORS = ("CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation")  # not of one element
GROUPS = {"".join("_" + c.lower() if c.isupper() else c for c in name).strip("_"): name
          for name in OPERANDS}


def thresholds(rng):
    return pick(rng, (0.25, 0.5, [0.25, 0.5, 0.75], [0.3], [0.0, 0.5, 1.0], [0.1, 0.6]))


def options(rng, name, classes):
    config = {}
    if name == "BinaryAccuracy" and one_in(rng, 2):
        config["threshold"] = pick(rng, (0.25, 0.75))
    if "TopK" in name and one_in(rng, 2):
        config["k"] = whole(rng, 1, classes + 1)
    if name in COUNTS + ("Precision", "Recall") and one_in(rng, 2):
        config["thresholds"] = thresholds(rng)
    if name in ("Precision", "Recall"):
        if one_in(rng, 3):
            config["top_k"] = whole(rng, 1, classes)
        if one_in(rng, 3):
            config["class_id"] = whole(rng, 0, classes - 1)
    if name in CONSTRAINT:
        config[CONSTRAINT[name]] = pick(rng, (0.25, 0.5, 0.75))
        config["num_thresholds"] = pick(rng, (1, 2, 5, 21, 200))
    if name == "AUC":
        config["curve"] = pick(rng, ("ROC", "PR", "PRGAIN"))
        config["summation_method"] = pick(rng, ("interpolation", "minoring", "majoring"))
        config.update(pick(rng, ({}, {"num_thresholds": 5}, {"thresholds": [0.6, 0.3]})))
        if one_in(rng, 3):
            config["multi_label"] = True
        if one_in(rng, 3):
            config["label_weights"] = [0.5, 1.0, 2.0, 0.25][:classes]
    if name in ("F1Score", "FBetaScore"):
        config["average"] = pick(rng, (None, "micro", "macro", "weighted"))
        if one_in(rng, 2):
            config["threshold"] = pick(rng, (0.25, 0.5, 1.0))
        if name == "FBetaScore":
            config["beta"] = pick(rng, (0.5, 2.0))
    if name == "R2Score":
        config["class_aggregation"] = pick(rng, (None, "uniform_average", "variance_weighted_average"))
        config["num_regressors"] = pick(rng, (0, 0, 1, 50))
    if name == "BinaryCrossentropy" and one_in(rng, 2):
        config["label_smoothing"] = 0.25
    if name == "SparseCategoricalCrossentropy" and one_in(rng, 2):
        config["ignore_class"] = 0
    if name in IOU and name != "BinaryIoU":
        config["num_classes"] = classes
        if one_in(rng, 3):
            config["ignore_class"] = whole(rng, -1, classes - 1)
    if name in ("IoU", "OneHotIoU"):
        config["target_class_ids"] = [0, classes - 1]
    return config


def draw_shape(rng, name, classes):
    least = 0 if one_in(rng, 12) and name not in ("F1Score", "FBetaScore") else 1
    if name == "R2Score":  # one row has no variance but for rounding
        least = 2
    rows = whole(rng, least, 6)
    if name in MATRICES:
        return [rows, classes]
    return pick(rng, ([rows, classes], [rows, classes], [rows, 2, classes], [rows, 1, classes]))


def draw(rng, kind, dims, dtype, classes):
    if kind == "reals":
        return rng.normal(size=dims).astype(dtype)
    if kind == "bits":
        return rng.integers(0, 2, size=dims).astype(pick(rng, (dtype, "int64")))
    if kind == "hot":
        return np.eye(classes)[rng.integers(0, classes, size=dims[:-1])].astype(dtype)
    if kind == "ids":
        return np.asarray(rng.integers(0, classes, size=dims[:-1])).astype("int64")
    if kind == "scores":
        return np.round(rng.random(size=dims), 1).astype(dtype)  # with ties
    return (0.01 + 0.98 * rng.random(size=dims)).astype(dtype)


def weights(rng, name, dims, dtype):
    shapes = [dims[:1], dims[:1], [], dims[:1] + [1], dims[:-1]]
    shape = shapes[0 if name in MATRICES else whole(rng, 0, len(shapes) - 1)]
    return np.asarray(rng.random(size=shape) * 2).astype(pick(rng, (dtype, "float32")))


def one_update(rng, name, config, dims, dtype, classes):
    truth, prediction = OPERANDS[name]
    out = {"values" if prediction is None else "y_true": draw(rng, truth, dims, dtype, classes)}
    if prediction is not None:
        out["y_pred"] = draw(rng, prediction, dims, dtype, classes)
    if one_in(rng, 2) and not (name in IOU and len(dims) > 2):
        out["sample_weight"] = weights(rng, name, dims, dtype)
    return out


def run(seen, metric, updates):
    for update in updates:
        metric.update_state(**{k: tf.constant(v) for k, v in update.items()})
        seen["outputs"]["results"].append(record.tensor(tf.convert_to_tensor(metric.result())))
    seen["outputs"]["state"] = {v.path.split("/")[-1]: record.tensor(v.value)
                                for v in metric.variables}


def metric(name):
    def recipe(rng):
        dtype = "float32" if name in TOP_K else pick(rng, SINGLES)
        classes = whole(rng, 2 if name in VECTORS else 1, 4)
        if name in IOU + ("AUC",):
            classes = max(classes, 2)
        config = options(rng, name, classes)
        dims = draw_shape(rng, name, classes)
        updates = []
        for _ in range(whole(rng, 1, 3)):
            dims = [whole(rng, 1, 6)] + dims[1:] if updates else dims
            updates.append(one_update(rng, name, config, dims, dtype, classes))
        seen = record.seen({"metric": name, "config": config, "dtype": dtype},
                           {"updates": [{k: record.tensor(v) for k, v in u.items()}
                                        for u in updates]})
        seen["outputs"] = {"results": []}
        old = keras.config.floatx()
        keras.config.set_floatx(dtype)
        try:
            run(seen, getattr(keras.metrics, name)(**config), updates)
        except (tf.errors.OpError, ValueError, TypeError, IndexError) as e:
            seen["error"] = record.error(e)
        finally:
            keras.config.set_floatx(old)
        return seen
    return recipe


def table():
    return {group: metric(name) for group, name in GROUPS.items()}


recipes = table()
