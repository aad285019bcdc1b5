/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calling operators by name: attributes come as a dict of host values and are put where the
 * operator's table of attributes says. Bindings, the golden tests and the documentation use the
 * table this way.
 */
#include "base/text.h"
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

static bool
set_ints(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
         coi_ints *out)
{
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
    out->is_one = value->kind == CO_KIND_INT;
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

static bool
set_scalar(co_context *ctx, const coi_op *op, const coi_attr *attr, const co_value *value,
           coi_scalar *out)
{
    return coi_host_scalar(value, out) || wrong(ctx, op, attr, value, "a number");
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
    case COI_ATTR_BOOL:
        if (value->kind != CO_KIND_BOOL)
            return wrong(ctx, op, attr, value, "a bool");
        *(bool *)at = value->u.b;
        return true;
    case COI_ATTR_FLOAT:
        if (value->kind != CO_KIND_FLOAT && value->kind != CO_KIND_INT)
            return wrong(ctx, op, attr, value, "a number");
        *(double *)at = value->kind == CO_KIND_FLOAT ? value->u.f : (double)value->u.i;
        return true;
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
    return parse_attrs(ctx, op, attrs, out) ? op : NULL;
}

co_value *
co_op_call(co_context *ctx, const char *name, co_value *inputs, co_value *attrs)
{
    const coi_op *op;
    attrs_buffer  buffer;

    COI_ENTER(ctx, "op_call", NULL);
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
