/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of arguments that public calls share. Each message names the argument by position and name.
 */
#include "context/context.h"

bool
coi_check_value(co_context *ctx, co_value *value, int position, const char *name)
{
    if (value == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (%s) of %s is NULL", position, name,
                 ctx->call);
        return false;
    }
    if (value->object.magic != COI_MAGIC_LIVE || value->object.cls != &coi_value_class) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument %d (%s) of %s is not a live value: its block has ended or it was released too often; "
            "co_keep or co_escape it to use it longer",
            position, name, ctx->call);
        return false;
    }
    return true;
}

bool
coi_check_kind(co_context *ctx, co_value *value, co_kind kind, int position, const char *name)
{
    if (!coi_check_value(ctx, value, position, name))
        return false;
    if (value->kind != (uint8_t)kind) {
        coi_fail(ctx, CO_TYPE, "argument %d (%s) of %s is a %s, not a %s", position, name,
                 ctx->call, co_kind_name((co_kind)value->kind), co_kind_name(kind));
        return false;
    }
    return true;
}

bool
coi_check_object(co_context *ctx, const void *object, const coi_class *cls, int position,
                 const char *name)
{
    const coi_object *o = object;

    if (o == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (%s) of %s is NULL", position, name,
                 ctx->call);
        return false;
    }
    if (o->magic != COI_MAGIC_LIVE || o->cls != cls) {
        coi_fail(ctx, CO_TYPE, "argument %d (%s) of %s is not a live %s", position, name, ctx->call,
                 cls->name);
        return false;
    }
    return true;
}
