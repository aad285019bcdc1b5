/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as a program of operators: tensors, operands and attributes. Any bytes are a program; what
 * the table says of inputs and attributes steers them to calls that have a chance to succeed,
 * without keeping them from others.
 */
#ifndef COHORT_FUZZ_OPS_DECODE_H
#define COHORT_FUZZ_OPS_DECODE_H

#include "fuzz.h"

#include <math.h>

enum {
    NUM_FIRST = 4,
    MAX_VALUES = 16,
    MAX_INPUTS = 7, /* one more than an operator of the table has */
    MAX_RESULTS = 16,
    MAX_ATTRS = 8,
    MAX_LIST = 2 * CO_MAX_DIMS,
    MAX_ELEMENTS = 600
};

typedef struct bytes {
    const uint8_t *data;
    size_t         size, at;
} bytes;

/* An attribute as it was decoded; a value of each context is made of it. */
typedef struct attr {
    char        name[32];
    char        type; /* n not given, i int, f float, b bool, s text, l list */
    int64_t     list[MAX_LIST];
    size_t      n;
    double      real;
    const char *text;
} attr;

typedef struct step {
    const char *name;
    co_value   *in[MAX_INPUTS];
    size_t      num_in;
    attr        attrs[MAX_ATTRS];
    size_t      num_attrs;
    bool        tame;
} step;

static uint8_t
next_byte(bytes *in)
{
    return in->at < in->size ? in->data[in->at++] : 0;
}

/* Numbers that hurt among ordinary ones. Each fourth tensor has specials. */
static double
decode_number(uint8_t byte, bool special)
{
    static const double specials[] = { (double)NAN,
                                       (double)INFINITY,
                                       -(double)INFINITY,
                                       -0.0,
                                       1e-40,
                                       3e38,
                                       65504,
                                       -88.5,
                                       104,
                                       1e-7,
                                       -1e9,
                                       0.5 };

    if (special && byte % 5 == 0)
        return specials[byte / 5 % (sizeof(specials) / sizeof(specials[0]))];
    return (byte - 128) / 32.0;
}

/*
 * Elements of a shape, where dimensions of 0 count as 1: what has none must not have dimensions
 * either that make a huge tensor of a sum over the empty one. More than MAX_ELEMENTS is
 * MAX_ELEMENTS + 1.
 */
static int64_t
extent(const int64_t *dims, size_t ndim)
{
    int64_t n = 1;

    for (size_t d = 0; d < ndim && n <= MAX_ELEMENTS; ++d)
        n = dims[d] > MAX_ELEMENTS ? MAX_ELEMENTS + 1 : n * (dims[d] > 0 ? dims[d] : 1);
    return n <= MAX_ELEMENTS ? n : MAX_ELEMENTS + 1;
}

/* Dimensions that would make too many elements become 1: what should have fitted another tensor
 * then fails alike for both kernels. */
static void
limit_dims(int64_t *dims, size_t ndim)
{
    for (size_t d = 0; d < ndim; ++d)
        if (extent(dims, d + 1) > MAX_ELEMENTS)
            dims[d] = 1;
}

/* Elements go through the library's own conversion: co_cast of small numbers is no suspect here. */
static co_value *
make_tensor(co_context *ctx, bytes *in, co_dtype dtype, const int64_t *wanted, size_t ndim)
{
    uint8_t   seed = next_byte(in);
    bool      special = seed % 4 == 0 && co_dtype_is_floating(dtype);
    uint32_t  state = seed * 2654435761u + 12345;
    double    data[MAX_ELEMENTS];
    int64_t   dims[CO_MAX_DIMS], n = 1;
    co_value *wide;

    FUZZ_REQUIRE(ndim <= CO_MAX_DIMS);
    for (size_t d = 0; d < ndim; ++d)
        dims[d] = wanted[d];
    limit_dims(dims, ndim);
    for (size_t d = 0; d < ndim; ++d)
        n *= dims[d];
    for (int64_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        data[i] = decode_number((uint8_t)(state >> 24), special);
        if (dtype >= CO_UINT8 && dtype <= CO_UINT64)
            data[i] = fabs(data[i]);
    }
    wide = co_tensor(ctx, CO_FLOAT64, dims, (int)ndim, data);
    return dtype == CO_FLOAT64 ? wide : co_cast(ctx, wide, dtype);
}

static co_dtype
decode_dtype(uint8_t byte)
{
    /* Mostly those that kernels are written for. */
    return byte % 3 == 0 ? (co_dtype)(CO_BOOL + byte / 3 % (CO_STRING - CO_BOOL))
                         : (byte % 3 == 1 ? CO_FLOAT32 : CO_FLOAT64);
}

static co_value *
decode_tensor(co_context *ctx, bytes *in)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 7, 13, 17, 0, 4, 8, 16, 33, 67, 131 };
    co_dtype             dtype = decode_dtype(next_byte(in));
    uint8_t              byte = next_byte(in);
    size_t               ndim = byte < 240 ? byte % 6 : 6 + byte % 3;
    int64_t              dims[CO_MAX_DIMS];

    for (size_t d = 0; d < ndim; ++d)
        dims[d] = sizes[next_byte(in) % (sizeof(sizes) / sizeof(sizes[0]))];
    return make_tensor(ctx, in, dtype, dims, ndim);
}

/* [n,h,w,c], for what works on images. */
static co_value *
decode_image(co_context *ctx, bytes *in)
{
    co_dtype dtype = next_byte(in) % 2 == 0 ? CO_FLOAT32 : CO_FLOAT64;
    int64_t  dims[4];

    for (int d = 0; d < 4; ++d)
        dims[d] = 1 + next_byte(in) % (d == 1 || d == 2 ? 7 : 3);
    return make_tensor(ctx, in, dtype, dims, 4);
}

/*
 * One operand: a value as it is, or a new tensor that fits one: of its shape, of its last
 * dimension, a filter for it, or indices. A filter of an image [n,h,w,c] is [2,2,c,2].
 */
static co_value *
decode_operand(co_context *ctx, bytes *in, co_value *const *values, size_t num_values)
{
    uint8_t   byte = next_byte(in);
    co_value *like = values[byte % num_values];
    int       ndim = co_value_ndim(ctx, like);
    int64_t   dims[CO_MAX_DIMS], last;
    co_dtype  dtype = co_value_dtype(ctx, like);

    for (int d = 0; d < ndim; ++d)
        dims[d] = co_value_dim(ctx, like, d);
    last = ndim > 0 ? dims[ndim - 1] : 1;
    switch (byte / 32) {
    case 0:
    case 1:
    case 2: return like;
    case 3: return make_tensor(ctx, in, dtype, dims, (size_t)ndim);
    case 4: return make_tensor(ctx, in, dtype, &last, 1);
    case 5:
        return last > 60 ? like
                         : make_tensor(ctx, in, dtype, (const int64_t[]){ 2, 2, last, 2 }, 4);
    case 6: return make_tensor(ctx, in, CO_BOOL, dims, (size_t)ndim);
    default:
        /* indices into a first dimension of 3: 0 to 2, of the first dimensions of the value */
        return co_cast(
            ctx,
            co_mod(ctx,
                   co_abs(ctx, make_tensor(ctx, in, CO_INT32, dims,
                                           (size_t)(ndim > 0 ? next_byte(in) % (ndim + 1) : 0))),
                   co_int(ctx, 3)),
            byte % 2 == 0 ? CO_INT32 : CO_INT64);
    }
}

static int64_t
small(uint8_t byte)
{
    return byte % 8 == 7 ? (int8_t)byte : byte % 8 - 2;
}

/* How lists of a name are usually made: how many numbers, 0 for the rank of x, and from which to
 * which. */
static const struct {
    const char *name;
    int         n, low, high;
} lists[] = {
    { "ksize", 2, 1, 3 },  { "strides", 2, 1, 3 },   { "dilations", 2, 1, 2 },
    { "perm", 0, 0, 3 },   { "axis", 1, -1, 1 },     { "axes", 1, -1, 1 },
    { "begin", 0, 0, 1 },  { "size", 0, -1, 1 },     { "end", 0, -1, 5 },
    { "shift", 1, -3, 3 }, { "multiples", 0, 0, 3 }, { "num_or_sizes", 1, 1, 3 },
};

/* A list: as is usual for its name, small numbers, or the shape of x, perhaps in reverse or as one
 * dimension. */
static void
decode_list(co_context *ctx, bytes *in, co_value *x, attr *out)
{
    uint8_t byte = next_byte(in);
    int     ndim = x != NULL ? co_value_ndim(ctx, x) : 2, low = -2, high = 4;

    out->type = 'l';
    out->n = (size_t)(byte % 4 == 0 ? byte / 4 % 6 : ndim);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]) && byte % 4 > 1; ++i)
        if (strcmp(lists[i].name, out->name) == 0) {
            out->n = (size_t)(lists[i].n > 0 ? lists[i].n : ndim);
            low = lists[i].low;
            high = lists[i].high;
        }
    if (strcmp(out->name, "paddings") == 0) {
        out->n = 2 * (size_t)ndim;
        low = 0;
    }
    out->n = out->n < MAX_LIST ? out->n : MAX_LIST;
    for (size_t i = 0; i < out->n; ++i)
        out->list[i] = low + next_byte(in) % (high - low + 1);
    if (x == NULL || byte % 4 != 1 || out->n > (size_t)ndim)
        return;
    for (size_t i = 0; i < out->n; ++i)
        out->list[i] = co_value_dim(ctx, x, byte % 8 == 1 ? (int)i : ndim - 1 - (int)i);
    if (byte % 16 == 13) {
        out->n = 1;
        out->list[0] = -1;
    }
}

static const char *
decode_text(const char *name, uint8_t byte)
{
    static const char *const words[] = { "SAME",       "VALID",     "EXPLICIT", "ASCENDING",
                                         "DESCENDING", "SYMMETRIC", "CONSTANT", "REFLECT" };
    static const char *const activations[] = { "none",     "relu", "relu6",   "elu",
                                               "selu",     "tanh", "sigmoid", "softplus",
                                               "softsign", "silu", "gelu",    "gelu_tanh" };
    static const char *const equations[] = { "ij,jk->ik",      "ij->ji",   "ii->i",
                                             "i,i->",          "ij,ij->j", "bij,bjk->bik",
                                             "...i,...i->...", "ij->",     "i,j->ij",
                                             "ij,kj,il->lk",   "a->b" };

    if (strcmp(name, "equation") == 0)
        return equations[byte % (sizeof(equations) / sizeof(equations[0]))];
    if (strcmp(name, "padding") == 0)
        return words[byte % 3];
    if (strcmp(name, "activation") == 0)
        return activations[byte % (sizeof(activations) / sizeof(activations[0]))];
    if (strcmp(name, "direction") == 0)
        return words[3 + byte % 2];
    return words[byte % 8];
}

/* "axis:int=-1" and bytes as an attribute. */
static void
decode_attr(co_context *ctx, bytes *in, const char *described, co_value *x, attr *out)
{
    size_t      length = strcspn(described, ":");
    const char *type = described + length + 1;
    uint8_t     byte = next_byte(in);

    memset(out, 0, sizeof(*out));
    FUZZ_REQUIRE(length < sizeof(out->name));
    memcpy(out->name, described, length);
    out->type = 'n';
    if (byte % 3 == 0 && strchr(type, '=') != NULL)
        return;
    if (strncmp(type, "ints", 4) == 0) {
        decode_list(ctx, in, x, out);
    } else if (strncmp(type, "int", 3) == 0) {
        out->type = 'i';
        out->list[0] = small(byte);
    } else if (strncmp(type, "float", 5) == 0) {
        out->type = 'f';
        out->real = byte / 64.0;
    } else if (strncmp(type, "bool", 4) == 0) {
        out->type = 'b';
        out->list[0] = byte % 2;
    } else if (strncmp(type, "scalar", 6) == 0) {
        out->type = byte % 2 == 0 ? 'i' : 'f';
        out->list[0] = small(byte);
        out->real = (byte - 128) / 32.0;
    } else {
        out->type = 's';
        out->text = strncmp(type, "dtype", 5) == 0 ? co_dtype_name(decode_dtype(byte))
                                                   : decode_text(out->name, byte);
    }
}

/*
 * Operators whose operands must fit each other closely, which chance seldom brings about. A letter
 * for each operand: v a value, i an image, s like operand 0, f a filter for it, w weights for it, b
 * a vector for the operand before, d a row of its last dimension, x indices of three of its rows, u
 * updates for those; l labels for the value that follows.
 */
static const struct {
    const char *name, *operands;
} fits[] = {
    { "attention", "vss" },
    { "avg_pool2d", "i" },
    { "conv2d", "if" },
    { "conv2d_bias", "ifb" },
    { "dense", "vwb" },
    { "depthwise_conv2d", "if" },
    { "layer_norm", "vdd" },
    { "max_pool2d", "i" },
    { "softmax_cross_entropy_with_logits", "vs" },
    { "sparse_softmax_cross_entropy_with_logits", "lv" },
    { "tensor_scatter_nd_add", "vxu" },
    { "tensor_scatter_nd_update", "vxu" },
};

static const char *
fit_of(const char *name)
{
    for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); ++i)
        if (strcmp(fits[i].name, name) == 0)
            return fits[i].operands;
    return NULL;
}

/* Whole numbers from 0 to below `limit`. */
static co_value *
below(co_context *ctx, bytes *in, int64_t limit, const int64_t *dims, size_t ndim)
{
    co_value *numbers = co_abs(ctx, make_tensor(ctx, in, CO_INT32, dims, ndim));

    return co_mod(ctx, numbers, co_int(ctx, limit > 0 ? limit : 1));
}

/* The operand for a letter; `before` are the operands so far. */
static co_value *
fitting_operand(co_context *ctx, bytes *in, char letter, co_value *const *before, size_t num_before)
{
    co_value *x = before[0], *previous = before[num_before - 1];
    int       ndim = co_value_ndim(ctx, x), rank = co_value_ndim(ctx, previous);
    co_dtype  dtype = co_value_dtype(ctx, x);
    int64_t   dims[CO_MAX_DIMS] = { 1 }, last, columns, first;

    for (int d = 0; d < ndim; ++d)
        dims[d] = co_value_dim(ctx, x, d);
    first = dims[0];
    last = ndim > 0 ? dims[ndim - 1] : 1;
    columns = rank > 0 ? co_value_dim(ctx, previous, rank - 1) : 1;
    switch (letter) {
    case 'f':
        return make_tensor(ctx, in, dtype, (const int64_t[]){ 2, 2, last < 60 ? last : 1, 2 }, 4);
    case 'w': /* of more than 200 rows, one column */
        return make_tensor(ctx, in, dtype, (const int64_t[]){ last, 3 }, 2);
    case 'b': return make_tensor(ctx, in, dtype, &columns, 1);
    case 'd': return make_tensor(ctx, in, dtype, &last, 1);
    case 'l': return below(ctx, in, last, dims, (size_t)(ndim > 0 ? ndim - 1 : 0));
    case 'x': return below(ctx, in, first, (const int64_t[]){ first < 3 ? first : 3, 1 }, 2);
    case 'u':
        dims[0] = first < 3 ? first : 3;
        return make_tensor(ctx, in, dtype, dims, (size_t)(ndim > 0 ? ndim : 1));
    default: return make_tensor(ctx, in, dtype, dims, (size_t)ndim);
    }
}

static void
decode_fitting(co_context *ctx, bytes *in, const char *fit, co_value *const *values,
               size_t num_values, step *out)
{
    co_value *x = fit[0] == 'i' ? decode_image(ctx, in) : values[next_byte(in) % num_values];

    out->num_in = strlen(fit);
    out->in[0] = x;
    for (size_t i = 1; i < out->num_in; ++i)
        out->in[i] = fit[i] == 'v' ? x : fitting_operand(ctx, in, fit[i], out->in, i);
    if (fit[0] == 'l')
        out->in[0] = fitting_operand(ctx, in, 'l', &x, 1);
}

static void
decode_step(co_context *ctx, bytes *in, co_value *const *values, size_t num_values, step *out)
{
    co_op_info  info = CO_OP_INFO_INIT;
    uint8_t     byte = next_byte(in);
    const char *fit;

    for (size_t i = byte; !info.by_name; ++i)
        FUZZ_REQUIRE(co_op_describe(i % co_num_ops(), &info));
    memset(out, 0, sizeof(*out));
    byte = next_byte(in);
    out->name = info.name;
    out->tame = byte % 2 == 1;
    out->num_in = info.variadic ? 1 + (size_t)byte / 2 % 3 : info.num_inputs;
    if (byte == 255)
        ++out->num_in; /* one too many */
    fit = byte % 8 < 6 ? fit_of(info.name) : NULL;
    if (fit != NULL)
        decode_fitting(ctx, in, fit, values, num_values, out);
    for (size_t i = 0; i < out->num_in && fit == NULL; ++i)
        out->in[i] = decode_operand(ctx, in, values, num_values);
    for (size_t i = 0; i < info.num_attrs && i < MAX_ATTRS; ++i)
        decode_attr(ctx, in, info.attrs[i], out->num_in > 0 ? out->in[0] : NULL, &out->attrs[i]);
    out->num_attrs = info.num_attrs < MAX_ATTRS ? info.num_attrs : MAX_ATTRS;
}

static co_value *
attr_value(co_context *ctx, const attr *a)
{
    co_value *items[MAX_LIST];

    switch (a->type) {
    case 'i': return co_int(ctx, a->list[0]);
    case 'f': return co_float(ctx, a->real);
    case 'b': return co_bool(ctx, a->list[0] != 0);
    case 's': return co_string(ctx, a->text);
    case 'l':
        for (size_t i = 0; i < a->n; ++i)
            items[i] = co_int(ctx, a->list[i]);
        return co_list(ctx, items, a->n);
    default: return co_none(ctx);
    }
}

static co_value *
step_attrs(co_context *ctx, const step *s)
{
    const char *keys[MAX_ATTRS];
    co_value   *items[MAX_ATTRS];
    size_t      n = 0;

    for (size_t i = 0; i < s->num_attrs; ++i)
        if (s->attrs[i].type != 'n') {
            keys[n] = s->attrs[i].name;
            items[n++] = attr_value(ctx, &s->attrs[i]);
        }
    return co_dict(ctx, keys, items, n);
}

#endif
