# SPDX-License-Identifier: Apache-2.0
"""The family "records": random files, whole and damaged, and tf.Example.

The files are written to the folder of the cases. What rules want otherwise than TensorFlow does:

    GEN-ERR-5  wrong compression is lost data; an unreadable Example, and a file that is shorter
               than its header and footer, are invalid arguments
"""
import itertools
import os

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

import draw
import pipelines as p
import record
from draw import one_in, pick, whole
from record import seen

number = itertools.count()


def new_file(ending):
    name = f"records/random_{next(number)}.{ending}"
    return name, p.paths([name])[0]


def random_bytes(rng, most=40):
    """Short mostly; now and then of a size that fills buffers."""
    n = whole(rng, 0, most) if not one_in(rng, 12) else int(pick(rng, (4095, 8192, 70001)))
    return rng.integers(0, 256, n, dtype=np.uint8).tobytes()


def read_all(ds):
    """The records before an error, and the error."""
    found = []
    try:
        for x in ds:
            found.append(x.numpy())
    except tf.errors.InternalError as e:  # GEN-ERR-5: a file shorter than its header and footer
        return found, {"type": "InternalError", "contains": "", "message": str(e)[:200],
                       "quirk": True, "kind": "E_INVALID"}
    except tf.errors.OpError as e:
        return found, record.error(e)
    return found, None


# --- TFRecord ----------------------------------------------------------------------------------


def write_records(rng, compression, records):
    name, path = new_file("tfrecord")
    with tf.io.TFRecordWriter(path, compression) as out:
        for data in records:
            out.write(data)
    return name, path


def compressions(rng):
    return pick(rng, ("", "", "GZIP", "ZLIB"))


def tfrecord_case(rng):
    compression = compressions(rng)
    records = [random_bytes(rng) for _ in range(whole(rng, 0, 6))]
    name, path = write_records(rng, compression, records)
    found, error = read_all(tf.data.TFRecordDataset(path, compression))
    result = seen({"file": name, "compression": compression})
    result["outputs"] = {"records_hex": [data.hex() for data in found],
                         "record_sizes": [len(data) for data in found],
                         "record_crc32c": [crc32c(data) for data in found],
                         "file_size": os.path.getsize(path)}
    return {**result, "error": error}


def wrong_compression_case(rng):
    actual, claimed = rng.permutation(["", "GZIP", "ZLIB"])[:2]
    records = [random_bytes(rng, 200) for _ in range(whole(rng, 1, 4))]
    name, path = write_records(rng, str(actual), records)
    found, error = read_all(tf.data.TFRecordDataset(path, str(claimed)))
    result = seen({"file": name, "compression": str(claimed), "actual": str(actual)})
    result["outputs"] = {"records_before_error": len(found)}
    result["error"] = error
    if error is not None and error["kind"] != "E_DATALOSS":
        result["expect"] = {"rule": "GEN-ERR-5", "error": {"kind": "E_DATALOSS"}}
    return result


def damaged_case(rng):
    """Cut anywhere, or one byte changed anywhere."""
    compression = pick(rng, ("", "", "", "GZIP", "ZLIB"))
    records = [random_bytes(rng) for _ in range(whole(rng, 1, 4))]
    name, path = write_records(rng, compression, records)
    data = bytearray(open(path, "rb").read())
    attrs = {"file": name, "compression": compression}
    at = whole(rng, 0, len(data) - 1)
    if one_in(rng, 2):
        data, attrs["damage"], attrs["bytes_kept"] = data[:at], "cut", at
    else:
        data[at] ^= whole(rng, 1, 255)
        attrs["damage"], attrs["flipped_byte"] = "flipped", at
    with open(path, "wb") as out:
        out.write(data)
    found, error = read_all(tf.data.TFRecordDataset(path, compression))
    result = seen(attrs)
    if compression == "":
        result["outputs"] = {"records_before_error": [x.hex() for x in found]}
    elif error is None:
        # A stream that is cut where no record is ends for TensorFlow; here it is lost data.
        return damaged_case(rng)
    # TensorFlow inflates ahead and loses records before the damage; the library gives them.
    return {**result, "error": error}


def crc32c(data):
    """Bit by bit, for want of one in TensorFlow's interface."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def crc32c_case(rng):
    data = random_bytes(rng, 300)
    crc = crc32c(data)
    result = seen({}, {"bytes_hex": data.hex()})
    masked = ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
    result["outputs"] = {"crc32c": crc, "masked": masked}
    return result


# --- text and fixed lengths --------------------------------------------------------------------


def textline_case(rng):
    parts = [pick(rng, (b"\n", b"\r\n", b"\r", b"\0", b"a", b"\xff", b"bc d", b"\n\n",
                       b"x" * whole(rng, 0, 9000) if one_in(rng, 20) else b""))
             for _ in range(whole(rng, 0, 12))]
    name, path = new_file("txt")
    with open(path, "wb") as out:
        out.write(b"".join(parts))
    found, error = read_all(tf.data.TextLineDataset(path))
    result = seen({"file": name})
    result["outputs"] = {"lines_hex": [x.hex() for x in found]}
    return {**result, "error": error}


def fixed_length_case(rng):
    size, header, footer = whole(rng, 1, 9), whole(rng, 0, 5), whole(rng, 0, 5)
    body = size * whole(rng, 0, 6) + (0 if not one_in(rng, 8) else whole(rng, 0, size))
    data = random_bytes(rng)[:whole(rng, 0, 3)] if one_in(rng, 10) else bytes(
        rng.integers(0, 256, header + body + footer, dtype=np.uint8))
    name, path = new_file("bin")
    with open(path, "wb") as out:
        out.write(data)
    found, error = read_all(tf.data.FixedLengthRecordDataset(path, size, header, footer))
    result = seen({"file": name, "record_bytes": size, "header_bytes": header,
                   "footer_bytes": footer})
    result["outputs"] = {} if error else {"records_hex": [x.hex() for x in found]}
    if error is None and len(data) < header + footer:
        # TensorFlow counts the bytes between in 64 bits without a sign: some sizes divide that.
        result["expect"] = {"rule": "GEN-ERR-5", "outputs": {}, "error": {"kind": "E_INVALID"}}
    return {**result, "error": error}


# --- tf.Example --------------------------------------------------------------------------------

LISTS = {"int64": ("int64_list", lambda rng: int(draw.integers(rng, "int64", [], True))),
         "float32": ("float_list", lambda rng: float(draw.moved(rng, "float32", []))),
         "string": ("bytes_list", lambda rng: random_bytes(rng, 8)[:20])}


def random_feature(rng, dtype, n):
    feature = tf.train.Feature()
    kind, make = LISTS[dtype]
    values = getattr(feature, kind).value
    values.extend(make(rng) for _ in range(n))
    if n == 0 and one_in(rng, 2):
        getattr(feature, kind).SetInParent()
    return feature


def random_example(rng):
    """Features by name with their dtype and length."""
    example, known = tf.train.Example(), {}
    for name in "abcdef"[:whole(rng, 0, 6)]:
        known[name] = (pick(rng, LISTS), pick(rng, (0, 1, 1, 2, 3, 4, 6)))
        example.features.feature[name].CopyFrom(random_feature(rng, *known[name]))
    return example, known


def described(example):
    out = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            out[name] = {"kind": kind, "values_hex": [v.hex() for v in feature.bytes_list.value]}
        elif kind:
            dtype = "int64" if kind == "int64_list" else "float32"
            out[name] = {"kind": kind, "values": [record.number(v, dtype)
                                                  for v in getattr(feature, kind).value]}
    return out


def example_case(rng):
    """A feature without any list has no kind to compare: they all have one."""
    compression, examples = compressions(rng), []
    for _ in range(whole(rng, 0, 4)):
        example, known = random_example(rng)
        for name, (dtype, n) in known.items():
            getattr(example.features.feature[name], LISTS[dtype][0]).SetInParent()
        examples.append(example)
    records = [example.SerializeToString(deterministic=True) for example in examples]
    name, _ = write_records(rng, compression, records)
    result = seen({"file": name, "compression": compression})
    result["outputs"] = {"records_hex": [data.hex() for data in records],
                         "examples": [described(example) for example in examples]}
    return result


def shape_of(rng, n):
    """A shape for n values, or rarely for other numbers."""
    if one_in(rng, 10):
        return [whole(rng, 0, 4)]
    return pick(rng, ([n], [1, n], [] if n == 1 else [n], [n // 2, 2] if n % 2 == 0 else [n, 1]))


def wish(rng, name, known):
    """What is asked of one feature, in the format, and as TensorFlow says it."""
    dtype, n = known.get(name, (pick(rng, LISTS), pick(rng, (1, 2))))
    if one_in(rng, 12):
        dtype = pick(rng, LISTS)
    if one_in(rng, 3):
        inner = pick(rng, ([], [], [1], [2], [n or 1]))
        wanted = {"kind": "sequence", "shape": inner, "dtype": dtype, "allow_missing": True}
        return wanted, tf.io.FixedLenSequenceFeature(inner, tf.as_dtype(dtype), True)
    shape = shape_of(rng, n)
    wanted = {"kind": "fixed", "shape": shape, "dtype": dtype}
    count = int(np.prod(shape))
    if one_in(rng, 2) or name not in known and not one_in(rng, 4):
        values = [LISTS[dtype][1](rng) for _ in range(count)]
        if dtype == "string":
            values = [value.decode("latin-1") for value in values]
            tensor = np.array([value.encode("latin-1") for value in values], dtype=object)
        else:
            tensor = np.array(values, dtype=dtype)
        wanted["default"] = [record.number(v, dtype) if dtype != "string" else v for v in values]
        if count:
            return wanted, tf.io.FixedLenFeature(shape, tf.as_dtype(dtype),
                                                 tf.reshape(tf.constant(tensor), shape))
        wanted.pop("default")  # TensorFlow takes an empty default for none at all
    return wanted, tf.io.FixedLenFeature(shape, tf.as_dtype(dtype))


def is_example(data):
    """Whether the bytes are one, to the protocol buffers that define it."""
    try:
        tf.train.Example.FromString(data)
        return True
    except DecodeError:
        return False


def parse_case(rng):
    example, known = random_example(rng)
    data = bytearray(example.SerializeToString(deterministic=True))
    if data and one_in(rng, 8):  # not longer: TensorFlow passes over some of what makes no sense
        data = data[:whole(rng, 0, len(data) - 1)]
    wanted, features = {}, {}
    for name in rng.permutation(list("abcdefgh"))[:whole(rng, 1, 5)]:
        wanted[str(name)], features[str(name)] = wish(rng, str(name), known)
    result = seen({"features": wanted}, {"serialized_hex": bytes(data).hex()})
    try:
        found = tf.io.parse_single_example(bytes(data), features)
        result["outputs"] = {name: record.tensor(t) for name, t in found.items()}
        if not is_example(bytes(data)):
            # Cut between two features: the fast parser takes the end of the bytes for that of the
            # message and gives defaults for the features that are lost. No Example all the same.
            result["expect"] = {"rule": "GEN-ERR-5", "outputs": {}, "error": {"kind": "E_INVALID"}}
    except tf.errors.OpError as e:
        result["error"] = record.error(e)
    except UnicodeDecodeError as e:  # the message has bytes of the example in it
        result["error"] = {"type": type(e).__name__, "contains": "", "message": str(e)[:200],
                           "quirk": True, "kind": "E_INVALID"}
        result["expect"] = {"rule": "GEN-ERR-5", "error": {"kind": "E_INVALID"}}
    return result


# --- arrays ------------------------------------------------------------------------------------

DTYPES = ("<f4", ">f4", "<f8", ">f8", "<i4", ">i4", "<i8", ">i8", "|i1", "|u1", "<i2", ">i2",
          "<u2", ">u2", "<u4", "<u8", "|b1", "<f2", ">f2")


def random_array(rng):
    shape, dtype = draw.shape(rng, 0, 5), np.dtype(pick(rng, DTYPES))
    array = draw.moved(rng, dtype.name, shape).astype(dtype)
    if one_in(rng, 2):
        return np.asfortranarray(array)
    return np.ascontiguousarray(array).reshape(shape)


def as_tensor(array):
    return record.tensor(np.asarray(array).astype(array.dtype.newbyteorder("=")))


def npy_case(rng):
    array, (name, path) = random_array(rng), new_file("npy")
    with open(path, "wb") as out:
        np.lib.format.write_array(out, array, version=pick(rng, (None, (1, 0), (2, 0), (3, 0))))
    result = seen({"file": name, "descr": array.dtype.str})
    data = open(path, "rb").read()
    if one_in(rng, 6):
        with open(path, "wb") as out:
            out.write(data[:whole(rng, 0, len(data) - 1)])
        result["attrs"]["damage"] = "cut"
    try:
        result["outputs"] = {"array": as_tensor(np.load(path))}
    except (ValueError, EOFError) as e:
        result["error"] = {"type": type(e).__name__, "contains": "", "message": str(e)[:200],
                           "kind": "E_VALUE"}
    return result


def npz_case(rng):
    arrays = {name: random_array(rng) for name in "abcd"[:whole(rng, 1, 4)]}
    name, path = new_file("npz")
    compressed = one_in(rng, 2)
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    result = seen({"file": name, "compressed": compressed})
    result["outputs"] = {"arrays": {key: as_tensor(array) for key, array in arrays.items()}}
    return result


def table():
    os.makedirs(os.path.join(record.FOLDER, "records"), exist_ok=True)
    return {"tfrecord": tfrecord_case, "tfrecord_wrong_compression": wrong_compression_case,
            "damaged": damaged_case, "crc32c": crc32c_case, "textline": textline_case,
            "fixed_length": fixed_length_case, "tfrecord_example": example_case,
            "parse_example": parse_case, "npy": npy_case, "npz": npz_case}


recipes = table()
