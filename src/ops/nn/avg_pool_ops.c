/* SPDX-License-Identifier: Apache-2.0 */
/*
 * avg_pool2d and its gradient. Both are linear, so each is the gradient of the other. A window
 * counts the elements that lie in the image, not the padding.
 */
#include "ops/engine/dtype_sets.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/kernels/pool2d.h"
#include "ops/nn/nn_ops.h"

#include <string.h>

/* Entries of other files. */
COI_USES_OP(avg_pool2d)
COI_USES_OP(avg_pool2d_grad)

static const char *const paddings[] = { "VALID", "SAME", NULL };

#define POOL_ATTRS(X)                                                                              \
    X(coi_pool_attrs, ksize, INTS, "", NULL)                                                       \
    X(coi_pool_attrs, strides, INTS, "", NULL)                                                     \
    X(coi_pool_attrs, padding, CHOICE, "=VALID", paddings)
COI_ATTR_TABLE(coi_pool_attrs, POOL_ATTRS)

#define GRAD_ATTRS(X)                                                                              \
    X(coi_avg_grad_attrs, ksize, INTS, "", NULL)                                                   \
    X(coi_avg_grad_attrs, strides, INTS, "", NULL)                                                 \
    X(coi_avg_grad_attrs, padding, CHOICE, "=VALID", paddings)                                     \
    X(coi_avg_grad_attrs, shape, INTS, "", NULL)
COI_ATTR_TABLE(coi_avg_grad_attrs, GRAD_ATTRS)

static void
fill_out(const coi_call *call, coi_out *out, const int64_t *dims)
{
    out->dtype = (co_dtype)call->in[0]->dtype;
    out->ndim = 4;
    memcpy(out->dims, dims, 4 * sizeof(int64_t));
}

static co_code
avg_infer(coi_call *call, coi_out *outs)
{
    coi_pool p;
    co_code  code = coi_pool_read(call, &p);

    if (code == CO_OK)
        fill_out(call, outs, (int64_t[]){ p.n, p.oh, p.ow, p.c });
    return code;
}

static co_code
grad_infer(coi_call *call, coi_out *outs)
{
    coi_pool p;
    co_code  code = coi_avg_grad_read(call, &p);

    if (code != CO_OK)
        return code;
    fill_out(call, outs, (int64_t[]){ p.n, p.oh, p.ow, p.c });
    code = coi_pool_check_shape(call, 0, outs->dims);
    if (code != CO_OK)
        return code;
    fill_out(call, outs, ((const coi_avg_grad_attrs *)call->attrs)->shape.at);
    return CO_OK;
}

static co_code
avg_gradient(coi_grad *g)
{
    const coi_pool_attrs *attrs = g->attrs;
    coi_avg_grad_attrs    back = { attrs->ksize, attrs->strides, attrs->padding, { .n = 4 } };
    coi_sized_op spread = { &coi_op_avg_pool2d_grad, &back, COI_SHAPE_AT(coi_avg_grad_attrs, shape),
                            0 };

    g->grads[0] = coi_apply_like(g->ctx, &spread, g->upstream, 1, g->in[0]);
    return g->ctx->error.code;
}

static co_code
grad_gradient(coi_grad *g)
{
    const coi_avg_grad_attrs *attrs = g->attrs;
    coi_pool_attrs            pool = { attrs->ksize, attrs->strides, attrs->padding };

    g->grads[0] = coi_apply1(g->ctx, &coi_op_avg_pool2d, g->upstream[0], &pool);
    return g->ctx->error.code;
}

const coi_op coi_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "The mean of each window of x [n,h,w,c]; padding does not count.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    COI_ATTRS(coi_pool_attrs),
    .infer = avg_infer,
    .upcasts = true,
    .ref = coi_avg_pool_ref,
    .run = coi_avg_pool_run,
    .grad = avg_gradient,
};

const coi_op coi_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .doc = "The gradient of avg_pool2d for x of shape `shape`, from the gradient g of its result.",
    .inputs = { "g" },
    .num_inputs = 1,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .internal = true,
    COI_ATTRS(coi_avg_grad_attrs),
    .kind = COI_POOL_GRAD,
    .infer = grad_infer,
    .upcasts = true,
    .ref = coi_avg_pool_ref,
    .run = coi_avg_pool_run,
    .grad = grad_gradient,
};

co_value *
co_avg_pool2d(co_context *ctx, co_value *x, const co_pool2d_options *options)
{
    coi_pool_attrs attrs;

    COI_ENTER(ctx, "avg_pool2d", NULL);
    if (!coi_pool_options(ctx, options, &attrs))
        return NULL;
    return coi_apply1(ctx, &coi_op_avg_pool2d, x, &attrs);
}
