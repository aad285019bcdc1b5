/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul, and dense, which is matmul with a bias and an activation: rules, gradients, and how a
 * batch of GEMMs is spread over kernels and workers. The GEMM itself is in gemm.c and
 * ops/kernels/simd/simd_gemm.c; the plain version in ops/kernels/ref/ref_matmul.c.
 */
#include "ops/kernels/matmul.h"

#include "ops/engine/dtype_sets.h"
#include "ops/kernels/gemm.h"
#include "ops/engine/op.h"
#include "ops/engine/like_ops.h"
#include "ops/engine/parallel.h"
#include "ops/engine/type_rules.h"

#include <string.h>

#define MATMUL_ATTRS(X)                                                                            \
    X(coi_matmul_attrs, transpose_a, BOOL, "=false", NULL)                                         \
    X(coi_matmul_attrs, transpose_b, BOOL, "=false", NULL)
COI_ATTR_TABLE(coi_matmul_attrs, MATMUL_ATTRS)

typedef coi_matmul_attrs dense_attrs;
#define DENSE_ATTRS(X) X(coi_matmul_attrs, activation, CHOICE, "=none", coi_activation_names)
COI_ATTR_TABLE(dense_attrs, DENSE_ATTRS)

/* The three ways in which shapes do not fit; apart from the rule, which runs with every call. */
static co_code
refuse(coi_call *call, const char *why, int64_t a_k, int64_t b_k)
{
    const coi_matmul_attrs *attrs = call->attrs;
    const co_value         *a = call->in[0], *b = call->in[1];
    char                    a_text[COI_SHAPE_TEXT], b_text[COI_SHAPE_TEXT];

    coi_shape_text(a->u.tensor.dims, a->ndim, a_text);
    coi_shape_text(b->u.tensor.dims, b->ndim, b_text);
    if (why != NULL)
        return coi_invalid(call, "a has shape %s and b %s; %s", a_text, b_text, why);
    return coi_invalid(call, "a %s%s has %lld column%s, b %s%s has %lld row%s; they must be equal",
                       a_text, attrs->transpose_a ? " transposed" : "", (long long)a_k, COI_S(a_k),
                       b_text, attrs->transpose_b ? " transposed" : "", (long long)b_k, COI_S(b_k));
}

static co_code
matmul_infer(coi_call *call, coi_out *outs)
{
    const coi_matmul_attrs *attrs = call->attrs;
    const co_value         *a = call->in[0], *b = call->in[1];
    const int64_t          *a_dims = a->u.tensor.dims, *b_dims = b->u.tensor.dims;
    int64_t                 a_k, b_k;

    if (coi_is_unknown_rank(a) || coi_is_unknown_rank(b)) {
        if (a->ndim == 0 || a->ndim == 1 || b->ndim == 0 || b->ndim == 1)
            return refuse(call, "both need at least 2 dimensions", 0, 0);
        coi_out_unknown(outs, (co_dtype)a->dtype);
        return CO_OK;
    }
    if (a->ndim < 2 || b->ndim < 2)
        return refuse(call, "both need at least 2 dimensions", 0, 0);
    a_k = a_dims[a->ndim - (attrs->transpose_a ? 2 : 1)];
    b_k = b_dims[b->ndim - (attrs->transpose_b ? 1 : 2)];
    if (!coi_dims_fit(a_k, b_k))
        return refuse(call, NULL, a_k, b_k);
    if (!coi_broadcast(a_dims, a->ndim - 2, b_dims, b->ndim - 2, outs))
        return refuse(call,
                      "their batch dimensions do not fit: counted from the third last, they must "
                      "be equal or 1",
                      0, 0);
    outs->dtype = (co_dtype)a->dtype;
    outs->dims[outs->ndim++] = a_dims[a->ndim - (attrs->transpose_a ? 1 : 2)];
    outs->dims[outs->ndim++] = b_dims[b->ndim - (attrs->transpose_b ? 2 : 1)];
    return CO_OK;
}

/* Steps of an operand along the batch dimensions of the result. */
static void
fill_steps(const co_value *operand, int ndim, int64_t *steps)
{
    const int64_t *dims = operand->u.tensor.dims;
    int            own = operand->ndim - 2;
    int64_t        step = dims[own] * dims[own + 1];

    for (int i = 1; i <= ndim; ++i) {
        int64_t dim = i <= own ? dims[own - i] : 1;

        steps[ndim - i] = dim == 1 ? 0 : step;
        step *= dim;
    }
}

void
coi_matmul_view_of(const coi_call *call, coi_matmul_view *view)
{
    const coi_matmul_attrs *attrs = call->attrs;
    const co_value         *a = call->in[0], *b = call->in[1], *c = call->out[0];
    int64_t                 a_ld = a->u.tensor.dims[a->ndim - 1];
    int64_t                 b_ld = b->u.tensor.dims[b->ndim - 1];
    int64_t                 b_elements = b->u.tensor.num_elements;

    view->ndim = c->ndim - 2;
    view->m = c->u.tensor.dims[view->ndim];
    view->n = c->u.tensor.dims[view->ndim + 1];
    view->k = attrs->transpose_b ? b_ld : b->u.tensor.dims[b->ndim - 2];
    view->a_row = attrs->transpose_a ? 1 : a_ld;
    view->a_col = attrs->transpose_a ? a_ld : 1;
    view->b_row = attrs->transpose_b ? 1 : b_ld;
    view->b_col = attrs->transpose_b ? b_ld : 1;
    view->num_items = 1;
    for (int i = 0; i < view->ndim; ++i) {
        view->dims[i] = c->u.tensor.dims[i];
        view->num_items *= view->dims[i];
    }
    fill_steps(a, view->ndim, view->a_step);
    fill_steps(b, view->ndim, view->b_step);
    /* One b for all matrices of a, whose rows are contiguous: a single GEMM with more rows. */
    if (view->num_items > 1 && b_elements == view->k * view->n && !attrs->transpose_a &&
        a->u.tensor.num_elements == view->num_items * view->m * view->k) {
        view->m *= view->num_items;
        view->num_items = 1;
        view->ndim = 0;
    }
}

void
coi_matmul_item(const coi_matmul_view *view, int64_t item, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = view->ndim - 1; i >= 0; --i) {
        int64_t at = item % view->dims[i];

        *a += at * view->a_step[i];
        *b += at * view->b_step[i];
        item /= view->dims[i];
    }
}

/* A batch of GEMMs of an element type that has a kernel. */
typedef struct products {
    coi_matmul_view         view;
    const coi_gemm_kernels *kernels;
    co_device              *device;
    const char             *a, *b;
    char                   *c;
    const coi_epilogue     *epilogue;
    coi_packing             packing;
    int64_t                 items_per_chunk;
    atomic_bool             no_memory;
} products;

static void
plan_item(const products *p, int64_t item, coi_gemm_plan *plan)
{
    const coi_matmul_view *v = &p->view;
    size_t                 size = p->kernels->element_size;
    int64_t                a, b;

    coi_matmul_item(v, item, &a, &b);
    coi_gemm_plan_init(plan, p->kernels, p->packing,
                       &(coi_gemm){ .m = v->m,
                                    .n = v->n,
                                    .k = v->k,
                                    .a = p->a + (size_t)a * size,
                                    .a_row = v->a_row,
                                    .a_col = v->a_col,
                                    .b = p->b + (size_t)b * size,
                                    .b_row = v->b_row,
                                    .b_col = v->b_col,
                                    .c = p->c + (size_t)(item * v->m * v->n) * size,
                                    .c_row = v->n,
                                    .turnable = true,
                                    .epilogue = p->epilogue });
}

/* Items [first, last) one after the other, each on the team (NULL: this thread). */
static void
run_items(products *p, int64_t first, int64_t last, coi_team *team)
{
    coi_gemm_plan plan;
    coi_buffer   *scratch = NULL;
    size_t        nbytes;

    plan_item(p, first, &plan);
    nbytes = coi_gemm_scratch(&plan, p->kernels); /* the same for all */
    if (nbytes > 0) {
        scratch = coi_buffer_alloc(p->device, nbytes);
        if (scratch == NULL) {
            atomic_store(&p->no_memory, true);
            return;
        }
    }
    for (int64_t item = first; item < last; ++item) {
        if (item > first)
            plan_item(p, item, &plan);
        coi_gemm_run_on(&plan, p->kernels, scratch == NULL ? NULL : scratch->data, team);
    }
    if (scratch != NULL)
        coi_buffer_unref(scratch);
}

static void
run_chunk(void *arg, int64_t chunk)
{
    products *p = arg;
    int64_t   first = chunk * p->items_per_chunk, last = first + p->items_per_chunk;

    run_items(p, first, last < p->view.num_items ? last : p->view.num_items, NULL);
}

static co_code
run_products(coi_call *call, const coi_epilogue *epilogue)
{
    products p;
    int64_t  work, num_chunks;

    coi_matmul_view_of(call, &p.view); /* whose many bytes need not be zero before */
    p.kernels = coi_gemm_kernels_of(call->ctx->runtime->isa, (co_dtype)call->out[0]->dtype);
    p.device = call->device;
    p.a = COI_IN(call, 0, char);
    p.b = COI_IN(call, 1, char);
    p.c = COI_OUT(call, 0, char);
    p.epilogue = epilogue;
    p.packing = call->ctx->runtime->settings.product;
    p.items_per_chunk = 0;
    atomic_init(&p.no_memory, false);
    if (p.view.num_items * p.view.m * p.view.n == 0)
        return CO_OK;
    work = p.view.m * p.view.n * p.view.k;
    if (work < COI_PARALLEL_BATCH && p.view.num_items > 1) {
        p.items_per_chunk = work >= COI_PARALLEL_GEMM ? 1
                                                      : COI_PARALLEL_GEMM / (work > 0 ? work : 1);
        num_chunks = (p.view.num_items + p.items_per_chunk - 1) / p.items_per_chunk;
        coi_parallel(call, num_chunks, run_chunk, &p);
    } else {
        run_items(&p, 0, p.view.num_items, work < COI_PARALLEL_GEMM ? NULL : call->device->team);
    }
    if (atomic_load(&p.no_memory))
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "matmul: no memory to pack a %lld x %lld x %lld product",
                        (long long)p.view.m, (long long)p.view.n, (long long)p.view.k);
    return CO_OK;
}

static co_code
matmul_run(coi_call *call)
{
    return coi_dtypes[call->out[0]->dtype].floating ? run_products(call, NULL)
                                                    : coi_ref_matmul(call);
}

/* The gradient of b where one b served a whole batch of a: fold the batch into the summed
 * dimension. */
static co_value *
folded_grad_b(co_context *ctx, co_value *a, co_value *g, bool transpose_b)
{
    a = coi_merge_dims(ctx, a, 0, a->ndim - 1);
    g = coi_merge_dims(ctx, g, 0, g->ndim - 1);
    return transpose_b ? co_matmul_transposed(ctx, g, a, true, false)
                       : co_matmul_transposed(ctx, a, g, true, false);
}

static co_code
matmul_grad(coi_grad *grad)
{
    const coi_matmul_attrs *attrs = grad->attrs;
    co_context             *ctx = grad->ctx;
    co_value               *a = grad->in[0], *b = grad->in[1], *g = grad->upstream[0];
    bool                    ta = attrs->transpose_a, tb = attrs->transpose_b;

    if (grad->needed[0])
        grad->grads[0] = coi_unbroadcast(ctx,
                                         ta ? co_matmul_transposed(ctx, b, g, tb, true)
                                            : co_matmul_transposed(ctx, g, b, false, !tb),
                                         a);
    if (!grad->needed[1])
        return ctx->error.code;
    if (a->ndim > 2 && b->ndim == 2 && !ta)
        grad->grads[1] = folded_grad_b(ctx, a, g, tb);
    else
        grad->grads[1] = coi_unbroadcast(ctx,
                                         tb ? co_matmul_transposed(ctx, g, a, true, ta)
                                            : co_matmul_transposed(ctx, a, g, !ta, false),
                                         b);
    return ctx->error.code;
}

const coi_op coi_op_matmul = {
    .name = "matmul",
    .doc =
        "The matrix product a b over the last two dimensions, each optionally transposed; the others broadcast.",
    .inputs = { "a", "b" },
    .num_inputs = 2,
    .num_outputs = 1,
    .dtypes = COI_FLOATS | COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64),
    .same_dtype = true,
    COI_ATTRS(coi_matmul_attrs),
    .infer = matmul_infer,
    .upcasts = true,
    .ref = coi_ref_matmul,
    .run = matmul_run,
    .grad = matmul_grad,
};

static co_code
dense_infer(coi_call *call, coi_out *outs)
{
    const co_value *x = call->in[0], *w = call->in[1];
    int64_t         room[CO_MAX_DIMS], inputs, outputs;
    const int64_t  *w_dims = coi_dims_of_rank(w, 2, room);
    char            text[COI_SHAPE_TEXT];
    co_code         code;

    if (x->ndim == 0 || x->ndim == 1)
        return coi_invalid(call,
                           "x has shape %s; it must have at least 2 dimensions: examples, inputs",
                           coi_shape_text(x->u.tensor.dims, x->ndim, text));
    if (w_dims == NULL)
        return coi_invalid(call, "w has shape %s; it must have 2 dimensions: inputs, outputs",
                           coi_shape_text(w->u.tensor.dims, w->ndim, text));
    inputs = coi_is_unknown_rank(x) ? COI_UNKNOWN : x->u.tensor.dims[x->ndim - 1];
    if (!coi_dims_fit(w_dims[0], inputs))
        return coi_invalid(call,
                           "w has shape %s; the last dimension of x is %lld, so w needs %lld row%s",
                           coi_shape_text(w->u.tensor.dims, w->ndim, text), (long long)inputs,
                           (long long)inputs, COI_S(inputs));
    outputs = w_dims[1];
    code = coi_epilogue_rule(call, ((const coi_matmul_attrs *)call->attrs)->activation, &outputs);
    coi_out_like(outs, x);
    if (outs->ndim > 0)
        outs->dims[outs->ndim - 1] = outputs;
    return code;
}

static co_code
dense_ref(coi_call *call)
{
    co_code rc = coi_ref_matmul(call);

    return rc == CO_OK ? coi_ref_epilogue(call, ((const coi_matmul_attrs *)call->attrs)->activation)
                       : rc;
}

static co_code
dense_run(coi_call *call)
{
    coi_epilogue epilogue;

    coi_epilogue_of(call, ((const coi_matmul_attrs *)call->attrs)->activation, &epilogue);
    return run_products(call, &epilogue);
}

static const coi_matmul_attrs bare_dense;

static co_code
dense_grad(coi_grad *grad)
{
    return coi_epilogue_grad(grad, ((const coi_matmul_attrs *)grad->attrs)->activation, &bare_dense,
                             matmul_grad);
}

const coi_op coi_op_dense = {
    .name = "dense",
    .doc = "A fully connected layer: activation(x w + b), in one pass.",
    .inputs = { "x", "w", "b" },
    .num_inputs = 3,
    .num_outputs = 1,
    .dtypes = COI_FLOATS,
    .same_dtype = true,
    COI_ATTRS(dense_attrs),
    .infer = dense_infer,
    .upcasts = true,
    .ref = dense_ref,
    .run = dense_run,
    .grad = dense_grad,
};

co_value *
co_dense(co_context *ctx, co_value *x, co_value *w, co_value *b, co_activation activation)
{
    coi_matmul_attrs attrs = { .activation = (int32_t)activation };
    co_value *const  given[3] = { x, w, b };

    COI_ENTER(ctx, "dense", NULL);
    return coi_apply_epilogue(ctx, &coi_op_dense, given, &attrs, &bare_dense, attrs.activation);
}

co_value *
co_matmul(co_context *ctx, co_value *a, co_value *b)
{
    return co_matmul_transposed(ctx, a, b, false, false);
}

co_value *
co_matmul_transposed(co_context *ctx, co_value *a, co_value *b, bool transpose_a, bool transpose_b)
{
    coi_matmul_attrs attrs = { .transpose_a = transpose_a, .transpose_b = transpose_b };

    return coi_apply2(ctx, &coi_op_matmul, a, b, &attrs);
}
