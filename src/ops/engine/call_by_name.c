/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calling operators by name: attributes come as a dict of host values and are put where the
 * operator's table of attributes says. Bindings, the golden tests and the documentation use the
 * table this way.
 */
#include "base/text.h"
#include "ops/engine/call_recording.h"
#include "ops/engine/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct attrs_buffer {
    _Alignas(16) char bytes[COI_MAX_ATTRS];
} attrs_buffer;

static bool
wrong(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
      const char *expected)
{
    coi_fail(ctx, CO_TYPE_ERROR, "%s: attribute '%s' is %s; expected %s", op->name, attr->name,
             coi_a_kind(value->kind), expected);
    return false;
}

static bool
set_int(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
        int64_t *out)
{
    uint64_t element; /* of any dtype: none is larger */

    if (value->kind == CO_KIND_INT)
        *out = value->u.i;
    else if (value->kind == CO_KIND_TENSOR && value->u.tensor.num_elements == 1 &&
             coi_dtypes[value->dtype].integer) {
        if (coi_download(ctx, value, &element) != CO_OK)
            return coi_failed(ctx) == CO_OK;
        coi_convert((co_dtype)value->dtype, &element, CO_INT64, out, 1);
    } else {
        return wrong(ctx, op, attr, value, "a whole number");
    }
    return true;
}

/* Numbers of a list, at most `max`. */
static bool
set_list(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value, size_t max,
         int64_t *at, int32_t *n)
{
    if (!coi_is_sequence(value))
        return wrong(ctx, op, attr, value, "a list of whole numbers");
    if (value->u.items.n > max) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s: attribute '%s' has %zu numbers; at most %zu",
                 op->name, attr->name, value->u.items.n, max);
        return false;
    }
    *n = (int32_t)value->u.items.n;
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!set_int(ctx, op, attr, value->u.items.items[i], &at[i]))
            return false;
    return true;
}

/* The same of a tensor of whole numbers with at most one dimension. */
static bool
set_elements(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
             size_t max, int64_t *at, int32_t *n)
{
    uint64_t elements[COI_MAX_MANY]; /* of any dtype: none is larger */
    int64_t  count = value->u.tensor.num_elements;

    if (value->ndim > 1 || !coi_dtypes[value->dtype].integer)
        return wrong(ctx, op, attr, value, "a list of whole numbers");
    if ((size_t)count > max) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s: attribute '%s' has %lld numbers; at most %zu",
                 op->name, attr->name, (long long)count, max);
        return false;
    }
    if (count > 0 && coi_download(ctx, value, elements) != CO_OK)
        return coi_failed(ctx) == CO_OK;
    if (count > 0)
        coi_convert((co_dtype)value->dtype, elements, CO_INT64, at, count);
    *n = (int32_t)count;
    return true;
}

static bool
set_ints(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
         coi_ints *out)
{
    if (value->kind == CO_KIND_TENSOR)
        return set_elements(ctx, op, attr, value, CO_MAX_DIMS, out->at, &out->n);
    if (value->kind == CO_KIND_NONE) {
        out->n = -1;
        return true;
    }
    if (value->kind == CO_KIND_INT) {
        out->n = 1;
        out->at[0] = value->u.i;
        return true;
    }
    return set_list(ctx, op, attr, value, CO_MAX_DIMS, out->at, &out->n);
}

static bool
set_many(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
         coi_many *out)
{
    out->is_one = value->kind == CO_KIND_INT || (value->kind == CO_KIND_TENSOR && value->ndim == 0);
    if (value->kind == CO_KIND_TENSOR)
        return set_elements(ctx, op, attr, value, COI_MAX_MANY, out->at, &out->n);
    if (!out->is_one)
        return set_list(ctx, op, attr, value, COI_MAX_MANY, out->at, &out->n);
    out->n = 1;
    out->at[0] = value->u.i;
    return true;
}

static bool
set_string(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
           char *out)
{
    if (value->u.string.nbytes >= COI_MAX_STRING) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s: attribute '%s' has %zu characters; at most %d",
                 op->name, attr->name, value->u.string.nbytes, COI_MAX_STRING - 1);
        return false;
    }
    memcpy(out, value->u.string.data, value->u.string.nbytes);
    return true;
}

static bool
set_choice(co_context *ctx, const coi_op *op, const coi_attr *attr, const char *text, int32_t *out)
{
    char      all[200] = "";
    coi_prose list = { all, sizeof(all), 0 };

    for (int32_t i = 0; attr->choices[i] != NULL; ++i)
        if (strcmp(attr->choices[i], text) == 0) {
            *out = i;
            return true;
        }
    for (int32_t i = 0; attr->choices[i] != NULL; ++i)
        coi_put(&list, "%s'%s'", i > 0 ? ", " : "", attr->choices[i]);
    coi_put_end(&list);
    coi_fail(ctx, CO_INVALID_ARGUMENT, "%s: attribute '%s' is '%s'; it must be one of %s", op->name,
             attr->name, text, all);
    return false;
}

static bool
set_dtype(co_context *ctx, const coi_op *op, const coi_attr *attr, const char *text, uint8_t *out)
{
    *out = (uint8_t)co_dtype_from_name(text);
    if (*out != CO_DTYPE_NONE || strcmp(text, "none") == 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "%s: attribute '%s' is '%s', which is no dtype", op->name,
             attr->name, text);
    return false;
}

/* A number of the host, or a tensor that is one: as an integer or a double. */
static bool
set_scalar(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
           coi_scalar *out)
{
    uint64_t element; /* of any dtype: none is larger */
    bool     is_float;

    if (coi_host_scalar(value, out))
        return true;
    if (value->kind != CO_KIND_TENSOR || value->ndim != 0 || value->dtype == CO_STRING)
        return wrong(ctx, op, attr, value, "a number");
    if (coi_download(ctx, value, &element) != CO_OK)
        return coi_failed(ctx) == CO_OK;
    is_float = coi_dtypes[value->dtype].floating;
    *out = (coi_scalar){ is_float                  ? CO_KIND_FLOAT
                         : value->dtype == CO_BOOL ? CO_KIND_BOOL
                                                   : CO_KIND_INT,
                         0, 0 };
    coi_convert((co_dtype)value->dtype, &element, is_float ? CO_FLOAT64 : CO_INT64,
                is_float ? (void *)&out->f : &out->i, 1);
    return true;
}

static bool
set_float(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
          double *out)
{
    coi_scalar scalar;

    if (value->kind == CO_KIND_BOOL)
        return wrong(ctx, op, attr, value, "a number");
    if (!set_scalar(ctx, op, attr, value, &scalar))
        return false;
    *out = scalar.kind == CO_KIND_FLOAT ? scalar.f : (double)scalar.i;
    return true;
}

static bool
set_bool(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value, bool *out)
{
    coi_scalar scalar;

    if (value->kind != CO_KIND_BOOL && !(value->kind == CO_KIND_TENSOR && value->dtype == CO_BOOL))
        return wrong(ctx, op, attr, value, "a bool");
    if (!set_scalar(ctx, op, attr, value, &scalar))
        return false;
    *out = scalar.i != 0;
    return true;
}

/* A value into the place of its attribute. */
static bool
set_attr(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
         char *bytes)
{
    void *at = bytes + attr->offset;

    switch (attr->type) {
    case COI_ATTR_INT: return set_int(ctx, op, attr, value, at);
    case COI_ATTR_INTS: return set_ints(ctx, op, attr, value, at);
    case COI_ATTR_MANY: return set_many(ctx, op, attr, value, at);
    case COI_ATTR_SCALAR: return set_scalar(ctx, op, attr, value, at);
    case COI_ATTR_BOOL: return set_bool(ctx, op, attr, value, at);
    case COI_ATTR_FLOAT: return set_float(ctx, op, attr, value, at);
    case COI_ATTR_DTYPE:
    case COI_ATTR_CHOICE:
    case COI_ATTR_STRING:
        if (value->kind != CO_KIND_STRING)
            return wrong(ctx, op, attr, value, "a string");
        if (attr->type == COI_ATTR_STRING)
            return set_string(ctx, op, attr, value, at);
        return attr->type == COI_ATTR_DTYPE ? set_dtype(ctx, op, attr, value->u.string.data, at)
                                            : set_choice(ctx, op, attr, value->u.string.data, at);
    }
    return false;
}

/* A number as our tables write it, "-1.25": strtod would follow the locale of the host. */
static double
real_of(const char *text)
{
    double value = 0, scale = 1;
    bool   is_negative = *text == '-', is_fraction = false;

    for (const char *at = text + is_negative; *at != '\0'; ++at) {
        if (*at == '.') {
            is_fraction = true;
            continue;
        }
        value = value * 10 + (*at - '0');
        scale *= is_fraction ? 10 : 1;
    }
    return (is_negative ? -value : value) / scale;
}

/* The text of a default; our own tables are right, so nothing can fail here that is not a bug in
 * them. */
static bool
set_default(co_context *ctx, const coi_op *op, const coi_attr *attr, char *bytes)
{
    const char *text = attr->default_text;
    void       *at = bytes + attr->offset;
    coi_ints   *ints;
    char       *end;

    switch (attr->type) {
    case COI_ATTR_INT:
        *(int64_t *)at = *text == 'n' ? COI_NO_INT : strtoll(text, NULL, 10);
        return true;
    case COI_ATTR_FLOAT: *(double *)at = real_of(text); return true;
    case COI_ATTR_BOOL: *(bool *)at = strcmp(text, "true") == 0; return true;
    case COI_ATTR_DTYPE: return set_dtype(ctx, op, attr, text, at);
    case COI_ATTR_CHOICE: return set_choice(ctx, op, attr, text, at);
    case COI_ATTR_SCALAR:
        *(coi_scalar *)at = strchr(text, '.') != NULL
                                ? (coi_scalar){ CO_KIND_FLOAT, 0, real_of(text) }
                                : (coi_scalar){ *text == 'n' ? CO_KIND_NONE : CO_KIND_INT,
                                                strtoll(text, NULL, 10), 0 };
        return true;
    case COI_ATTR_INTS:
        ints = at;
        ints->n = strcmp(text, "null") == 0 ? -1 : 0;
        for (end = (char *)(uintptr_t)text; ints->n >= 0 && *end != '\0' && ints->n < CO_MAX_DIMS;
             end += *end == ',')
            ints->at[ints->n++] = strtoll(end, &end, 10);
        return true;
    case COI_ATTR_MANY: /* always given */
    case COI_ATTR_STRING: break;
    }
    return false;
}

static const co_value *
find_key(const co_value *map, const char *name)
{
    size_t at = map != NULL ? coi_find_key(map, name) : SIZE_MAX;

    return at != SIZE_MAX ? map->u.items.items[at] : NULL;
}

static bool
known_keys(co_context *ctx, const coi_op *op, const co_value *map)
{
    for (size_t i = 0; map != NULL && i < map->u.items.n; ++i) {
        const coi_attr *attr = op->attrs;

        while (attr != NULL && attr->name != NULL &&
               strcmp(attr->name, map->u.items.keys[i + 1]) != 0)
            ++attr;
        if (attr == NULL || attr->name == NULL) {
            coi_fail(ctx, CO_TYPE_ERROR, "%s has no attribute '%s'", op->name,
                     map->u.items.keys[i + 1]);
            return false;
        }
    }
    return true;
}

static bool
parse_attrs(co_context *ctx, const coi_op *op, const co_value *map, attrs_buffer *out)
{
    memset(out, 0, sizeof(*out));
    if (!known_keys(ctx, op, map))
        return false;
    for (const coi_attr *attr = op->attrs; attr != NULL && attr->name != NULL; ++attr) {
        const co_value *value = find_key(map, attr->name);

        if (value != NULL && (value->kind != CO_KIND_NONE || attr->default_text == NULL)) {
            if (!set_attr(ctx, op, attr, value, out->bytes))
                return false;
        } else if (attr->default_text != NULL) {
            if (!set_default(ctx, op, attr, out->bytes))
                return false;
        } else {
            coi_fail(ctx, CO_TYPE_ERROR, "%s needs the attribute '%s'", op->name, attr->name);
            return false;
        }
    }
    return true;
}

/* A dtype that is not given is that of the first number that is a tensor, as of the result. */
static void
take_dtype(const coi_op *op, const co_value *map, attrs_buffer *out)
{
    const coi_attr *dtype = NULL;

    for (const coi_attr *attr = op->attrs; attr != NULL && attr->name != NULL; ++attr)
        if (attr->type == COI_ATTR_DTYPE)
            dtype = attr;
    if (dtype == NULL || out->bytes[dtype->offset] != CO_DTYPE_NONE)
        return;
    for (const coi_attr *attr = op->attrs; attr->name != NULL; ++attr) {
        const co_value *value = find_key(map, attr->name);

        if (attr->type == COI_ATTR_SCALAR && value != NULL && value->kind == CO_KIND_TENSOR) {
            out->bytes[dtype->offset] = (char)value->dtype;
            return;
        }
    }
}

/* Several results become a tuple. */
static co_value *
call_many(co_context *ctx, const coi_op *op, co_value *inputs, const void *attrs)
{
    co_value *outs[COI_MAX_OUTPUTS] = { NULL };

    if (op->composite != NULL)
        return coi_apply_composite(ctx, op, inputs->u.items.items, (int)inputs->u.items.n, attrs);
    if (coi_apply_many(ctx, op, inputs->u.items.items, (int)inputs->u.items.n, attrs, outs) !=
        CO_OK)
        return NULL;
    return op->num_outputs == 1 ? outs[0] : co_tuple(ctx, outs, op->num_outputs);
}

/* What the arguments of a call by name stand for: the operator, and its attributes in `out`. NULL
 * with an error that names `who`. */
static const coi_op *
read_call(co_context *ctx, const char *who, const char *name, co_value *inputs, co_value *attrs,
          attrs_buffer *out)
{
    const coi_op *op;

    if (name == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (name) of %s is NULL", who);
        return NULL;
    }
    op = coi_op_find(name);
    if (op == NULL) {
        coi_fail(ctx, CO_NOT_FOUND, "there is no operator '%s'; co_op_describe lists them", name);
        return NULL;
    }
    if (!coi_is_by_name(op)) {
        coi_fail(ctx, CO_UNIMPLEMENTED, "%s is not called by name: %s", name, op->doc);
        return NULL;
    }
    if (!coi_check_value(ctx, inputs, 3, "inputs") ||
        (attrs != NULL && !coi_check_value(ctx, attrs, 4, "attrs")))
        return NULL;
    if (!coi_is_sequence(inputs)) {
        coi_fail(ctx, CO_TYPE_ERROR, "argument 3 (inputs) of %s is %s; it must be a tuple or list",
                 who, coi_a_kind(inputs->kind));
        return NULL;
    }
    if (attrs != NULL && attrs->kind == CO_KIND_NONE)
        attrs = NULL;
    if (attrs != NULL && !coi_check_kind(ctx, attrs, CO_KIND_DICT, 4, "attrs"))
        return NULL;
    if (!parse_attrs(ctx, op, attrs, out))
        return NULL;
    take_dtype(op, attrs, out);
    return op;
}

/* --- attributes that are tensors of a function being captured --- */

/* What stands for unknown numbers while the type of a result is inferred. COUNTED: 0, 1, 2, ... in
 * a tensor of several, which is a permutation. */
#define COUNTED INT64_MAX
static const int64_t guesses[] = { 1, 0, -1, 2, COUNTED };
enum { NUM_GUESSES = sizeof(guesses) / sizeof(guesses[0]) };

static co_value *
guess_list(co_context *ctx, int64_t n, int64_t guess)
{
    co_value *items[COI_MAX_MANY];

    for (int64_t i = 0; i < n && i < COI_MAX_MANY; ++i)
        if ((items[i] = co_int(ctx, guess == COUNTED ? i : guess)) == NULL)
            return NULL;
    return co_list(ctx, items, (size_t)(n < COI_MAX_MANY ? n : COI_MAX_MANY));
}

/* A tensor of zeros or ones of the dtype keeps what the dtype decides. */
static co_value *
guess_leaf(co_context *ctx, co_value *leaf, void *user)
{
    int64_t guess = *(const int64_t *)user;

    if (leaf->kind != CO_KIND_SYMBOLIC)
        return leaf;
    if (leaf->ndim == 1 && leaf->u.symbol.dims[0] >= 0)
        return guess_list(ctx, leaf->u.symbol.dims[0], guess);
    if (leaf->ndim == 0)
        return co_to_tensor(ctx, co_int(ctx, guess == COUNTED ? 0 : guess), (co_dtype)leaf->dtype);
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "an attribute is a symbolic tensor whose length is not known while the function is "
             "captured; its rank, and with 1 its length, must be");
    return NULL;
}

static co_value *
spec_leaf(co_context *ctx, co_value *leaf, void *user)
{
    (void)user;
    return coi_fresh_type(ctx, leaf);
}

/* No dimension that may depend on the numbers is known. */
static co_value *
blur_leaf(co_context *ctx, co_value *leaf, void *user)
{
    int64_t dims[CO_MAX_DIMS];

    (void)user;
    if (!coi_is_type(leaf))
        return leaf;
    for (int i = 0; i < CO_MAX_DIMS; ++i)
        dims[i] = -1;
    return coi_spec(ctx, (co_dtype)leaf->dtype, dims, leaf->ndim);
}

/* The type of the result for one guess; NULL with an error. */
static co_value *
infer_guess(co_context *ctx, const coi_op *op, co_value *inputs, co_value *attrs, int64_t guess)
{
    attrs_buffer buffer;
    co_value    *result;

    attrs = coi_map_leaves(ctx, attrs, guess_leaf, &guess);
    if (attrs == NULL || read_call(ctx, "op_call", op->name, inputs, attrs, &buffer) == NULL)
        return NULL;
    result = coi_infer(ctx, op, inputs->u.items.items, (int)inputs->u.items.n, buffer.bytes);
    if (result == NULL)
        return NULL;
    return coi_is_structure(result) ? coi_map_leaves(ctx, result, blur_leaf, NULL)
                                    : blur_leaf(ctx, result, NULL);
}

/* The same for the first guess that the operator accepts: with the types of the inputs, or where
 * none fits these, with those without dimensions. */
static co_value *
infer_guesses(co_context *ctx, const coi_op *op, co_value *inputs, co_value *attrs)
{
    co_value *blurred = coi_map_leaves(ctx, inputs, blur_leaf, NULL), *type = NULL;

    for (size_t i = 0; blurred != NULL && type == NULL && i < 2 * NUM_GUESSES; ++i) {
        co_clear(ctx);
        type = infer_guess(ctx, op, i < NUM_GUESSES ? inputs : blurred, attrs,
                           guesses[i % NUM_GUESSES]);
        if (ctx->error.code == CO_RESOURCE_EXHAUSTED)
            return NULL;
    }
    if (blurred != NULL && type == NULL) { /* the first error is the one to tell */
        co_clear(ctx);
        infer_guess(ctx, op, inputs, attrs, guesses[0]);
    }
    return type;
}

/* Without a function that is being captured: nothing is recorded. */
static co_value *
infer_type(co_context *ctx, const coi_op *op, co_value *inputs, co_value *attrs)
{
    struct coi_capture             *capture = ctx->capture;
    const struct coi_type_recorder *recorder = ctx->type_recorder;
    bool                            recording = ctx->recording;
    uint8_t                         special = ctx->special;
    co_value                       *type;

    inputs = coi_map_leaves(ctx, inputs, spec_leaf, NULL);
    if (inputs == NULL)
        return NULL;
    ctx->capture = NULL;
    ctx->type_recorder = NULL;
    ctx->recording = false;
    ctx->special = (uint8_t)(special & ~COI_SPECIAL_CAPTURE);
    type = infer_guesses(ctx, op, inputs, attrs);
    ctx->capture = capture;
    ctx->type_recorder = recorder;
    ctx->recording = recording;
    ctx->special = special;
    return type;
}

typedef struct name_attrs {
    const coi_op *op;
} name_attrs;

static co_value *replay_by_name(co_context *ctx, const void *attrs, co_value *const *in,
                                int num_in);

const coi_op coi_op_call_by_name = {
    COI_RECORDED("call_by_name",
                 "Calls an operator whose attributes are tensors; co_op_call, co_range.",
                 replay_by_name, 0, 0),
    .grad = coi_grad_of_call,
    .attrs_rule.size = COI_ATTRS_SIZE(name_attrs),
};

static co_value *
record_by_name(co_context *ctx, const coi_op *op, co_value *inputs, co_value *attrs)
{
    name_attrs given = { op };
    co_value  *in[2] = { inputs, attrs }, *type, *own;

    if (!coi_is_by_name(op)) {
        coi_fail(ctx, CO_UNIMPLEMENTED, "%s is not called by name: %s", op->name, op->doc);
        return NULL;
    }
    type = infer_type(ctx, op, inputs, attrs);
    own = type != NULL ? coi_own_symbols(ctx, inputs) : NULL;
    ctx->call = op->name;
    if (own == NULL ||
        (!op->not_differentiable && !coi_tape_call(ctx, &coi_op_call_by_name, &given,
                                                   own->u.items.items, own->u.items.n, type)))
        return NULL;
    return coi_record_call(ctx, &coi_op_call_by_name, &given, in, 2, type);
}

static co_value *
replay_by_name(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return co_op_call(ctx, ((const name_attrs *)attrs)->op->name, in[0], in[1]);
}

static bool
has_symbols(const co_value *value)
{
    if (!coi_is_structure(value))
        return value->kind == CO_KIND_SYMBOLIC;
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (has_symbols(value->u.items.items[i]))
            return true;
    return false;
}

/* Whether a call is recorded with its attributes as operands. */
static bool
is_deferred(co_context *ctx, const char *name, const co_value *inputs, const co_value *attrs)
{
    return coi_is_capturing(ctx) && name != NULL && coi_op_find(name) != NULL && inputs != NULL &&
           attrs != NULL && coi_is_live(&ctx->heap, inputs) && coi_is_live(&ctx->heap, attrs) &&
           coi_is_sequence(inputs) && attrs->kind == CO_KIND_DICT && has_symbols(attrs);
}

co_value *
co_op_call(co_context *ctx, const char *name, co_value *inputs, co_value *attrs)
{
    const coi_op *op;
    attrs_buffer  buffer;

    COI_ENTER(ctx, "op_call", NULL);
    if (is_deferred(ctx, name, inputs, attrs))
        return record_by_name(ctx, coi_op_find(name), inputs, attrs);
    op = read_call(ctx, "op_call", name, inputs, attrs, &buffer);
    return op != NULL ? call_many(ctx, op, inputs, buffer.bytes) : NULL;
}

co_value *
co_op_infer(co_context *ctx, const char *name, co_value *inputs, co_value *attrs)
{
    const coi_op *op;
    attrs_buffer  buffer;

    COI_ENTER(ctx, "op_infer", NULL);
    op = read_call(ctx, "op_infer", name, inputs, attrs, &buffer);
    return op != NULL
               ? coi_infer(ctx, op, inputs->u.items.items, (int)inputs->u.items.n, buffer.bytes)
               : NULL;
}
