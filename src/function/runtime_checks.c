/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of captured functions that check values or write a line of the log, and change nothing. */
#include <cohort/runtime_checks.h>

#include <cohort/ops.h>

#include "base/text.h"
#include "function/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE 200

typedef struct message_attrs {
    char text[MESSAGE + 1];
} message_attrs;

static message_attrs
attrs_of(const char *message)
{
    message_attrs attrs;

    snprintf(attrs.text, sizeof(attrs.text), "%s", message != NULL ? message : "");
    return attrs;
}

/* What stands between a message and what follows it. */
static const char *
separator(const message_attrs *attrs)
{
    return attrs->text[0] != '\0' ? ": " : "";
}

/* --- entries --- */

static bool
same_message(co_context *ctx, const void *a, const void *b)
{
    (void)ctx;
    return strcmp(((const message_attrs *)a)->text, ((const message_attrs *)b)->text) == 0;
}

static co_value *replay_assert(co_context *ctx, const void *attrs, co_value *const *in, int num_in);
static co_value *replay_numerics(co_context *ctx, const void *attrs, co_value *const *in,
                                 int num_in);
static co_value *replay_ensure(co_context *ctx, const void *attrs, co_value *const *in, int num_in);
static co_value *replay_print(co_context *ctx, const void *attrs, co_value *const *in, int num_in);

const coi_op coi_op_assert = {
    COI_RECORDED("assert", "Fails unless all elements of a condition are true; co_assert.",
                 replay_assert, 0, 0),
    .attrs_rule.size = COI_ATTRS_SIZE(message_attrs),
    .same_attrs = same_message,
    .is_plan_call = true,
};

const coi_op coi_op_check_numerics = {
    COI_RECORDED("check_numerics", "Fails if a tensor holds NaN or an infinity; co_check_numerics.",
                 replay_numerics, 0, 0),
    .attrs_rule.size = COI_ATTRS_SIZE(message_attrs),
    .same_attrs = same_message,
};

typedef struct shape_attrs {
    coi_ints shape; /* -1: any dimension */
} shape_attrs;

static bool
same_shape(co_context *ctx, const void *a, const void *b)
{
    const coi_ints *first = &((const shape_attrs *)a)->shape;
    const coi_ints *second = &((const shape_attrs *)b)->shape;

    (void)ctx;
    return first->n == second->n &&
           (first->n <= 0 ||
            memcmp(first->at, second->at, (size_t)first->n * sizeof(first->at[0])) == 0);
}

const coi_op coi_op_ensure_shape = {
    COI_RECORDED("ensure_shape", "Fails unless a tensor has a shape; co_ensure_shape.",
                 replay_ensure, 0, 0),
    .grad = coi_grad_of_call,
    .attrs_rule.size = COI_ATTRS_SIZE(shape_attrs),
    .same_attrs = same_shape,
};

const coi_op coi_op_print = {
    COI_RECORDED("print", "Writes a value into the log; co_print.", replay_print, 0, 0),
    .attrs_rule.size = COI_ATTRS_SIZE(message_attrs),
    .same_attrs = same_message,
    .is_plan_call = true,
};

/* --- assertions --- */

/* The first element of a condition that is false; -1: none. -2 with an error. */
static int64_t
find_false(co_context *ctx, co_value *condition)
{
    co_value   *tensor = coi_give(ctx, coi_as_tensor(ctx, condition, CO_DTYPE_NONE));
    const bool *data = NULL;

    if (tensor != NULL && tensor->dtype != CO_BOOL)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "the condition is a tensor of %s; it must be bool (a comparison gives one)",
                 co_dtype_name((co_dtype)tensor->dtype));
    else if (tensor != NULL)
        data = coi_host_data(ctx, tensor);
    if (data == NULL)
        return -2;
    for (int64_t i = 0; i < tensor->u.tensor.num_elements; ++i)
        if (!data[i])
            return i;
    return -1;
}

/* `in` is the condition, and the two values that were compared. */
static co_value *
check_condition(co_context *ctx, const void *given, co_value *const *in, int num_in)
{
    const message_attrs *attrs = given;
    int64_t              at = find_false(ctx, in[0]);
    char                 x[200], y[200];

    if (at == -1)
        return co_none(ctx);
    if (at >= 0 && num_in == 1)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s%sthe condition is false at element %lld",
                 attrs->text, separator(attrs), (long long)at);
    if (at >= 0 && num_in > 1) {
        coi_format(&ctx->heap, in[1], x, sizeof(x));
        coi_format(&ctx->heap, in[2], y, sizeof(y));
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s does not hold at element %lld: x is %s, y is %s",
                 attrs->text, (long long)at, x, y);
    }
    return NULL;
}

static co_value *
replay_assert(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    return coi_is_capturing(ctx)
               ? coi_record_call(ctx, &coi_op_assert, attrs, in, num_in, coi_none(ctx))
               : check_condition(ctx, attrs, in, num_in);
}

co_code
co_assert(co_context *ctx, co_value *condition, const char *message)
{
    message_attrs attrs = attrs_of(message);

    COI_ENTER_CODE(ctx, "assert");
    if (coi_check_value(ctx, condition, 2, "condition"))
        replay_assert(ctx, &attrs, &condition, 1);
    return ctx->error.code;
}

typedef co_value *(*compare_fn)(co_context *ctx, co_value *x, co_value *y);

static co_code
assert_that(co_context *ctx, const char *call, const char *relation, compare_fn compare,
            co_value *x, co_value *y, const char *message)
{
    message_attrs attrs = attrs_of(message);
    co_value     *in[3] = { NULL, x, y };

    if (!coi_check_value(ctx, x, 2, "x") || !coi_check_value(ctx, y, 3, "y"))
        return ctx->error.code;
    snprintf(attrs.text, sizeof(attrs.text), "%.180s%s%s", message != NULL ? message : "",
             message != NULL ? ": " : "", relation);
    in[0] = compare(ctx, x, y);
    ctx->call = call;
    if (in[0] != NULL)
        replay_assert(ctx, &attrs, in, 3);
    return ctx->error.code;
}

co_code
co_assert_equal(co_context *ctx, co_value *x, co_value *y, const char *message)
{
    COI_ENTER_CODE(ctx, "assert_equal");
    return assert_that(ctx, "assert_equal", "x == y", co_equal, x, y, message);
}

co_code
co_assert_less(co_context *ctx, co_value *x, co_value *y, const char *message)
{
    COI_ENTER_CODE(ctx, "assert_less");
    return assert_that(ctx, "assert_less", "x < y", co_less, x, y, message);
}

co_code
co_assert_greater(co_context *ctx, co_value *x, co_value *y, const char *message)
{
    COI_ENTER_CODE(ctx, "assert_greater");
    return assert_that(ctx, "assert_greater", "x > y", co_greater, x, y, message);
}

/* --- numbers --- */

/* What a tensor of float64 holds that is no number: its name, or NULL. */
static const char *
find_no_number(const double *data, int64_t n)
{
    const char *found = NULL;

    for (int64_t i = 0; i < n; ++i) {
        if (isnan(data[i]))
            return "NaN";
        if (isinf(data[i]))
            found = "an infinity";
    }
    return found;
}

static co_value *
check_numbers(co_context *ctx, const void *given, co_value *const *in, int num_in)
{
    const message_attrs *attrs = given;
    co_value            *tensor = co_cast(ctx, in[0], CO_FLOAT64);
    const double        *data = tensor != NULL ? coi_host_data(ctx, tensor) : NULL;
    const char *found = data != NULL ? find_no_number(data, tensor->u.tensor.num_elements) : NULL;

    (void)num_in;
    if (found != NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s%sthe tensor holds %s", attrs->text, separator(attrs),
                 found);
    return ctx->error.code == CO_OK ? co_none(ctx) : NULL;
}

static co_value *
replay_numerics(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    return coi_is_capturing(ctx)
               ? coi_record_call(ctx, &coi_op_check_numerics, attrs, in, num_in, coi_none(ctx))
               : check_numbers(ctx, attrs, in, num_in);
}

co_value *
co_check_numerics(co_context *ctx, co_value *x, const char *message)
{
    message_attrs attrs = attrs_of(message);

    COI_ENTER(ctx, "check_numerics", NULL);
    if (!coi_check_value(ctx, x, 2, "x"))
        return NULL;
    return replay_numerics(ctx, &attrs, &x, 1) != NULL ? x : NULL;
}

/* --- shapes --- */

/* A type of x with the dimensions that either of them knows; NULL with an error where they
 * contradict each other. */
static co_value *
ensured_type(co_context *ctx, const co_value *x, const coi_ints *shape)
{
    char    has[COI_SHAPE_TEXT], wanted[COI_SHAPE_TEXT];
    int64_t dims[CO_MAX_DIMS];
    bool    fits = x->ndim < 0 || x->ndim == shape->n;

    for (int i = 0; fits && i < shape->n; ++i) {
        int64_t known = x->ndim < 0 ? -1 : x->u.tensor.dims[i];

        dims[i] = known >= 0 ? known : shape->at[i];
        fits = known < 0 || shape->at[i] < 0 || known == shape->at[i];
    }
    if (fits)
        return coi_spec(ctx, (co_dtype)x->dtype, dims, shape->n);
    coi_fail(ctx, CO_INVALID_ARGUMENT, "the tensor has the shape %s; it must be %s",
             coi_shape_text(x->u.tensor.dims, x->ndim, has),
             coi_shape_text(shape->at, shape->n, wanted));
    return NULL;
}

static co_value *
replay_ensure(co_context *ctx, const void *given, co_value *const *in, int num_in)
{
    const shape_attrs *attrs = given;
    co_value          *x = in[0], *type;

    (void)num_in;
    if (!coi_is_capturing(ctx))
        return ensured_type(ctx, x, &attrs->shape) != NULL ? coi_own_ref(ctx, x) : NULL;
    if (x->kind == CO_KIND_SYMBOLIC && (x = coi_own_symbol(ctx, x)) == NULL)
        return NULL;
    type = ensured_type(ctx, x, &attrs->shape);
    if (type == NULL || !coi_tape_call(ctx, &coi_op_ensure_shape, attrs, &x, 1, type))
        return NULL;
    return coi_record_call(ctx, &coi_op_ensure_shape, attrs, &x, 1, type);
}

co_value *
co_ensure_shape(co_context *ctx, co_value *x, const int64_t *dims, int ndim)
{
    shape_attrs attrs = { .shape.n = 0 };

    COI_ENTER(ctx, "ensure_shape", NULL);
    if (!coi_check_value(ctx, x, 2, "x") ||
        !coi_ints_from_dims(ctx, "ensure_shape: dims", dims, (size_t)ndim, &attrs.shape))
        return NULL;
    if (x->kind != CO_KIND_TENSOR && x->kind != CO_KIND_SYMBOLIC)
        x = co_identity(ctx, x);
    ctx->call = "ensure_shape";
    return x != NULL ? replay_ensure(ctx, &attrs, &x, 1) : NULL;
}

/* --- lines of the log --- */

static co_value *
replay_print(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const message_attrs *message = attrs;
    char                 text[1000];

    if (coi_is_capturing(ctx))
        return coi_record_call(ctx, &coi_op_print, attrs, in, num_in, coi_none(ctx));
    coi_format(&ctx->heap, in[0], text, sizeof(text));
    coi_log_line(&ctx->runtime->log, CO_LOG_INFO, "%s%s%s", message->text, separator(message),
                 text);
    return co_none(ctx);
}

co_code
co_print(co_context *ctx, const char *text, co_value *value)
{
    message_attrs attrs = attrs_of(text);

    COI_ENTER_CODE(ctx, "print");
    if (coi_check_value(ctx, value, 3, "value"))
        replay_print(ctx, &attrs, &value, 1);
    return ctx->error.code;
}
