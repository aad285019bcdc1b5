/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of arguments that public calls share. Each message names the argument by position and
 * name; position 0 is for values that are not arguments, such as the result of a user's function.
 */
#include "context/context.h"

#include <stdio.h>
#include <string.h>

#define WHICH 160

/* "argument 2 (x) of add", or the name alone. */
static const char *
which(const co_context *ctx, int position, const char *name, char out[WHICH])
{
    if (position > 0)
        snprintf(out, WHICH, "argument %d (%s) of %s", position, name, ctx->call);
    else
        snprintf(out, WHICH, "%s", name);
    return out;
}

const char *
coi_article(const coi_class *cls)
{
    return strchr("aeiou", cls->name[0]) != NULL ? "an" : "a";
}

void
coi_refuse_handle(co_context *ctx, const void *handle, const coi_class *cls, co_code code,
                  const char *name)
{
    const coi_object *object = handle;

    if (!coi_check_owner_process(ctx))
        return;
    if (object->magic % 2 == 1 && object->magic != *ctx->heap.magic && object->cls == cls)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s is %s %s of another runtime; contexts that share them are opened with "
                 "co_open_beside",
                 name, coi_article(cls), cls->name);
    else
        coi_fail(
            ctx, code,
            "%s is not a live %s: its block has ended, or it was released; co_keep %sit to use "
            "it longer",
            name, cls->name, cls == &coi_value_class ? "or co_escape " : "");
}

bool
coi_check_value(co_context *ctx, const co_value *value, int position, const char *name)
{
    char text[WHICH];

    if (value != NULL && coi_is_live(&ctx->heap, value))
        return true;
    which(ctx, position, name, text);
    if (value == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s is NULL; give a value, or co_none for nothing",
                 text);
    else if (value->object.magic == *ctx->heap.magic)
        coi_fail(ctx, CO_TYPE_ERROR, "%s is %s %s; it must be a value", text,
                 coi_article(value->object.cls), value->object.cls->name);
    else
        coi_refuse_handle(ctx, value, &coi_value_class, CO_INVALID_ARGUMENT, text);
    return false;
}

bool
coi_check_result(co_context *ctx, const co_value *result, const char *call, const char *of)
{
    char text[WHICH];

    if (coi_is_live(&ctx->heap, result))
        return true;
    ctx->call = call; /* it was whatever the function called last */
    snprintf(text, sizeof(text), "what the %s returned", of);
    coi_refuse_handle(ctx, result, &coi_value_class, CO_INVALID_ARGUMENT, text);
    return false;
}

void
coi_fail_symbolic(co_context *ctx, const co_value *value)
{
    char text[200];

    coi_format(&ctx->heap, value, text, sizeof(text));
    if (ctx->capture == NULL)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "%s is used outside the graph or captured function that made it, where it has no "
                 "elements; let a session run it, or return it from the function",
                 text);
    else if (coi_is_variable(value))
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "variable '%.100s' is read by %s while a function is captured or a graph built, and "
            "its value will be another in each call; compute with it by operators, or read it outside",
            value->u.variable->name, ctx->call);
    else
        coi_fail(ctx, CO_TYPE_ERROR,
                 "%s reads %s, which has no elements while the function is captured or the graph "
                 "built; return it and read the result of co_call or co_session_run, or run the "
                 "code without capturing it",
                 ctx->call, text);
}

bool
coi_check_kind(co_context *ctx, const co_value *value, co_kind kind, int position, const char *name)
{
    char text[WHICH];

    if (!coi_check_value(ctx, value, position, name))
        return false;
    if (value->kind == CO_KIND_SYMBOLIC && kind == CO_KIND_TENSOR) {
        coi_fail_symbolic(ctx, value);
        return false;
    }
    if (value->kind != (uint8_t)kind) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s is %s; it must be %s%s", which(ctx, position, name, text),
                 coi_a_kind(value->kind), coi_a_kind((int)kind),
                 value->kind == CO_KIND_PER_REPLICA ? "; co_local_results gives its parts" : "");
        return false;
    }
    return true;
}

bool
coi_check_object(co_context *ctx, const void *object, const coi_class *cls, int position,
                 const char *name)
{
    const coi_object *o = object;
    char              text[WHICH];

    if (o != NULL && coi_is_live_object(&ctx->heap, o, cls))
        return true;
    which(ctx, position, name, text);
    if (o == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s is NULL; give %s %s", text, coi_article(cls),
                 cls->name);
    else if (o->magic == *ctx->heap.magic)
        coi_fail(ctx, CO_TYPE_ERROR, "%s is %s %s; it must be %s %s", text, coi_article(o->cls),
                 o->cls->name, coi_article(cls), cls->name);
    else
        coi_refuse_handle(ctx, o, cls, CO_TYPE_ERROR, text);
    return false;
}

bool
coi_take_options(co_context *ctx, void *all, size_t size, const void *options, int position)
{
    size_t given;

    if (options == NULL)
        return true;
    memcpy(&given, options, sizeof(given));
    if (given < sizeof(given)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument %d (options) of %s has struct_size %zu; begin with its initialiser, "
                 "CO_..._INIT",
                 position, ctx->call, given);
        return false;
    }
    memcpy(all, options, given < size ? given : size);
    memcpy(all, &size, sizeof(size)); /* our size: callbacks of the caller may get these options */
    return true;
}

bool
coi_check_shape(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, int64_t *count)
{
    size_t size;

    if ((unsigned)dtype - 1 >= CO_NUM_DTYPES - 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "dtype %d is none that a tensor of %s can have; they go from %d (%s) to %d (%s)",
                 (int)dtype, ctx->call, CO_BOOL, co_dtype_name(CO_BOOL), CO_STRING,
                 co_dtype_name(CO_STRING));
        return false;
    }
    if (ndim < 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument (ndim) of %s is %d; it must be 0 to %d",
                 ctx->call, ndim, CO_MAX_DIMS);
        return false;
    }
    size = dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;
    if (coi_shape_check(dims, (size_t)ndim, size, count, coi_err(ctx)) == CO_OK)
        return true;
    coi_failed(ctx);
    return false;
}
