/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one data handle. A co_value is a tensor, a host value (integer, float, bool, string, none), a
 * variable, a per-replica or mirrored value, indexed slices, a spec, or a list, tuple, named tuple
 * or dict of values. Values are immutable (variables aside) and reference counted.
 *
 * Host values are not tensors: co_int(ctx, 2) is the number 2, of which an operator makes a
 * scalar of the other operand's dtype; co_scalar_* and co_tensor make tensors.
 */
#ifndef COHORT_VALUE_H
#define COHORT_VALUE_H

#include <cohort/error.h>

#ifdef __cplusplus
#include <initializer_list>
/* The number of its arguments is its size; it is never called. */
template <typename... arguments> char (&co_counted(const arguments &...))[sizeof...(arguments)];
#endif

CO_EXTERN_C_BEGIN

/** A tensor has 0 to 8 dimensions, whose product, zeros aside, is less than 2^63. */
#define CO_MAX_DIMS 8

typedef enum co_dtype {
    CO_DTYPE_NONE = 0, /* as an argument: derive it */
    CO_BOOL,           /* one byte, 0 or 1 */
    CO_INT8,
    CO_INT16,
    CO_INT32,
    CO_INT64,
    CO_UINT8,
    CO_UINT16,
    CO_UINT32,
    CO_UINT64,
    CO_FLOAT16,
    CO_BFLOAT16,
    CO_FLOAT32,
    CO_FLOAT64,
    CO_STRING, /* byte strings of any length */
    CO_NUM_DTYPES
} co_dtype;

/** "float32"; "none" for CO_DTYPE_NONE and "invalid" for a number that is no dtype. */
CO_API const char *co_dtype_name(co_dtype dtype);
/** The dtype of that name, CO_DTYPE_NONE when there is none. */
CO_API co_dtype co_dtype_from_name(const char *name);
/** Bytes of one element; 0 for strings. */
CO_API size_t co_dtype_size(co_dtype dtype);
CO_API bool   co_dtype_is_floating(co_dtype dtype);
CO_API bool   co_dtype_is_integer(co_dtype dtype);

typedef enum co_kind {
    CO_KIND_NULL = 0, /* of a NULL handle */
    CO_KIND_TENSOR,
    CO_KIND_INT,
    CO_KIND_FLOAT,
    CO_KIND_BOOL,
    CO_KIND_STRING,
    CO_KIND_NONE,
    CO_KIND_VARIABLE,
    CO_KIND_PER_REPLICA,
    CO_KIND_MIRRORED,
    CO_KIND_SLICES,
    CO_KIND_SPEC, /* dtype and shape without data; of a dataset: without a dtype */
    CO_KIND_LIST,
    CO_KIND_TUPLE,
    CO_KIND_NAMED_TUPLE,
    CO_KIND_DICT,
    CO_KIND_DATASET, /* an element of co_dataset_window, or of co_dataset_value */
    CO_KIND_SYMBOLIC, /* a tensor of a function that is being captured: it has a type and no
                       * elements yet (function.h) */
    CO_KIND_ITERATOR, /* of co_iterator_value */
    CO_KIND_FUNCTION, /* of co_function_value */
    CO_NUM_KINDS
} co_kind;

CO_API co_kind co_value_kind(const co_value *value);
/** "tensor", "per-replica value", ... for messages. */
CO_API const char *co_kind_name(co_kind kind);

/* Host values. */

CO_API co_value *co_int(co_context *ctx, int64_t value);
CO_API co_value *co_float(co_context *ctx, double value);
CO_API co_value *co_bool(co_context *ctx, bool value);
/** A copy of a C string, or of `nbytes` bytes, which may hold zeros. */
CO_API co_value *co_string(co_context *ctx, const char *text);
CO_API co_value *co_bytes(co_context *ctx, const void *bytes, size_t nbytes);
CO_API co_value *co_none(co_context *ctx);

/* Tensors. */

/* Items of a type as two arguments, a pointer and their number. They live until the call returns.
 * */
#ifdef __cplusplus
#define CO_ITEMS_BEGIN(type, ...) (std::initializer_list<type>{ __VA_ARGS__ }).begin()
#define CO_ITEMS_COUNT(type, ...) sizeof(co_counted(__VA_ARGS__))
#else
#define CO_ITEMS_BEGIN(type, ...) (type const[]){ __VA_ARGS__ }
#define CO_ITEMS_COUNT(type, ...) (sizeof((type const[]){ __VA_ARGS__ }) / sizeof(type))
#endif
#define CO_ITEMS(type, ...) CO_ITEMS_BEGIN(type, __VA_ARGS__), CO_ITEMS_COUNT(type, __VA_ARGS__)
/** A shape as two arguments: co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3)). A scalar is `NULL, 0`. */
#define CO_SHAPE(...)                                                                              \
    CO_ITEMS_BEGIN(int64_t, __VA_ARGS__), (int)CO_ITEMS_COUNT(int64_t, __VA_ARGS__)
/** Axes as two arguments; CO_ALL_AXES stands for all of them. */
#define CO_AXES(...) CO_ITEMS(int, __VA_ARGS__)
#define CO_ALL_AXES  NULL, 0

/**
 * A tensor with a copy of `data`, row-major, on the current device. For CO_STRING, data is an array
 * of `const char *`. Errors: CO_INVALID_ARGUMENT for a bad dtype, too many or negative dimensions,
 * or a size that overflows; CO_RESOURCE_EXHAUSTED without memory.
 */
CO_API co_value *co_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                           const void *data);
/** Scalars as tensors. */
CO_API co_value *co_scalar_float(co_context *ctx, float value);
CO_API co_value *co_scalar_double(co_context *ctx, double value);
CO_API co_value *co_scalar_int32(co_context *ctx, int32_t value);
CO_API co_value *co_scalar_int64(co_context *ctx, int64_t value);
CO_API co_value *co_scalar_bool(co_context *ctx, bool value);
/** A string tensor from byte strings with their lengths. */
CO_API co_value *co_tensor_bytes(co_context *ctx, const int64_t *dims, int ndim,
                                 const void *const *bytes, const size_t *nbytes);
/**
 * A tensor over memory of the caller, not copied. The memory must not change while the tensor
 * lives; `deleter` (may be NULL) is called once, with `user`, when the last use is over, from any
 * thread; it is also called when this call fails.
 */
CO_API co_value *co_tensor_borrow(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                                  void *data, void (*deleter)(void *user), void *user);
/** Convert what converts where the context runs: host numbers, variables, per-replica values,
 * lists of numbers. */
CO_API co_value *co_to_tensor(co_context *ctx, co_value *value, co_dtype dtype);
/** The same tensor on another device; indexed slices stay indexed slices. */
CO_API co_value *co_copy_to(co_context *ctx, co_value *value, const char *device);

/* Looking. These read tensors, and everything else that converts to one. */

CO_API co_dtype co_value_dtype(co_context *ctx, const co_value *value);
CO_API int      co_value_ndim(co_context *ctx, const co_value *value);
/** Dimension `axis` (negative counts from the end); -1 for an unknown dimension of a spec. */
CO_API int64_t co_value_dim(co_context *ctx, const co_value *value, int axis);
CO_API int64_t co_value_num_elements(co_context *ctx, const co_value *value);
/**
 * The data, row-major, for reading; NULL with an error if value is not a tensor. Lives as long as
 * the tensor; where the device has memory that the host cannot read, it is a copy, which lives as
 * long as the block. A string tensor has no flat data: see co_string_at.
 */
CO_API const void *co_value_data(co_context *ctx, const co_value *tensor);
/** Element `i` of a string tensor, or a host string: pointer (zero-terminated) and length. Lives as
 * long as the value. */
CO_API const char *co_string_at(co_context *ctx, const co_value *value, int64_t i, size_t *nbytes);
/**
 * The single element as a C number, converted. CO_VALUE_ERROR if there are more, CO_TYPE_ERROR for
 * strings. An integer is cut towards 0 and must fit: 1e300, NaN and infinities are CO_VALUE_ERROR,
 * with the limits. After an error, co_item_int returns 0 and co_item_float NaN.
 */
CO_API int64_t co_item_int(co_context *ctx, const co_value *value);
CO_API double  co_item_float(co_context *ctx, const co_value *value);
/**
 * Copy all elements, converted to `dtype`, to `out`, which holds `capacity` elements.
 * CO_VALUE_ERROR if one does not fit in an integer dtype, and nothing is copied; co_cast converts
 * as TensorFlow does.
 */
CO_API co_code co_value_copy_data(co_context *ctx, const co_value *value, co_dtype dtype, void *out,
                            int64_t capacity);
/** The canonical name of the device a tensor or variable lives on. Lives as long as the value. */
CO_API const char *co_value_device(co_context *ctx, const co_value *value);

/* Indexed slices: rows `values[k]` belong at `indices[k]` of a tensor of shape dense_shape (may be
 * NULL). */

CO_API co_value *co_slices(co_context *ctx, co_value *values, co_value *indices,
                           co_value *dense_shape);
CO_API co_value *co_slices_values(co_context *ctx, co_value *slices);
CO_API co_value *co_slices_indices(co_context *ctx, co_value *slices);
CO_API co_value *co_slices_dense_shape(co_context *ctx, co_value *slices); /* NULL when absent */

/* Specs: dtype and shape; a dimension of -1 is unknown; ndim -1 means that the rank is unknown. */

CO_API co_value *co_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);
/**
 * The type of a value: its structure, with the spec of every tensor, variable and host value in its
 * place. A per-replica value gives one with the spec of each component, the PerReplicaSpec of
 * the documents. None stays none; CO_TYPE_ERROR for indexed slices.
 * Rules: DV-SPEC-1.
 */
CO_API co_value *co_value_spec(co_context *ctx, co_value *value);

/* Structures. A leaf is anything that is not a list, tuple, named tuple or dict. */

CO_API co_value *co_list(co_context *ctx, co_value *const *items, size_t n);
CO_API co_value *co_tuple(co_context *ctx, co_value *const *items, size_t n);
CO_API co_value *co_named_tuple(co_context *ctx, const char *type, const char *const *fields,
                                co_value *const *items, size_t n);
/** A dict; keys are copied and kept sorted. A key given twice is an error (CO_VALUE_ERROR). */
CO_API co_value *co_dict(co_context *ctx, const char *const *keys, co_value *const *items,
                         size_t n);
/** A tuple of its arguments: co_args(ctx, x, y). An argument that is NULL is an error, none is a
 * value. */
#define co_args(ctx, ...) co_tuple(ctx, CO_ITEMS(co_value *, __VA_ARGS__))
/** An empty tuple. */
CO_API co_value *co_no_args(co_context *ctx);

/** How many items a structure or per-replica value has. */
CO_API size_t co_num_items(co_context *ctx, const co_value *structure);
/** Item `i` of a list, tuple, named tuple, dict (in key order) or per-replica value;
 * CO_OUT_OF_RANGE past the end. */
CO_API co_value *co_at(co_context *ctx, co_value *structure, size_t i);
/** The item of a dict or named tuple by name; CO_NOT_FOUND lists the names there are. */
CO_API co_value *co_get(co_context *ctx, co_value *structure, const char *key);
/** The i-th key or field name; NULL for lists and tuples. Lives as long as the structure. */
CO_API const char *co_key(co_context *ctx, const co_value *structure, size_t i);
/** The type name of a named tuple. Lives as long as the structure. */
CO_API const char *co_named_tuple_name(co_context *ctx, const co_value *structure);

/** All leaves in order, as a list. */
CO_API co_value *co_flatten(co_context *ctx, co_value *structure);
/** The structure of `like` with `leaves` (a list or tuple) in place of its leaves. */
CO_API co_value *co_pack(co_context *ctx, co_value *like, co_value *leaves);
/** A function over leaves: gets the leaf and returns its replacement (NULL without an error:
 * none). */
typedef co_value *(*co_leaf_fn)(co_context *ctx, co_value *leaf, void *user);
CO_API co_value *co_map_structure(co_context *ctx, co_value *structure, co_leaf_fn fn, void *user);
/** CO_OK if both have the same structure, else CO_VALUE_ERROR, naming the path where they part:
 * "[1]['b']". */
CO_API co_code co_assert_same_structure(co_context *ctx, const co_value *a, const co_value *b);

/* Per-replica and mirrored values: one component per local replica. */

CO_API co_value *co_per_replica_value(co_context *ctx, co_value *const *components, size_t n);
CO_API co_value *co_mirrored_value(co_context *ctx, co_value *const *components, size_t n);

/**
 * Text for people, in at most `capacity` bytes with the zero; returns the length it would need, as
 * snprintf does. Long tensors are cut with "..."; tensors without elements have their shape and
 * dtype behind the brackets, and variables their name, shape, dtype and value.
 */
CO_API size_t co_format(co_context *ctx, const co_value *value, char *out, size_t capacity);

CO_EXTERN_C_END

#endif
