/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permuting dimensions: rule and gradient.
 */
#include "ops/engine/op.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/ref/ref.h"
#include "ops/engine/type_rules.h"

#define TRANSPOSE_ATTRS(X) X(coi_perm_attrs, perm, INTS, "=null", NULL)
COI_ATTR_TABLE(coi_perm_attrs, TRANSPOSE_ATTRS)

static co_code
transpose_rule(coi_call *call, coi_out *outs)
{
    const coi_ints *perm = &((const coi_perm_attrs *)call->attrs)->perm;
    const co_value *x = call->in[0];
    int             ndim = perm->n >= 0 ? perm->n : x->ndim;
    int64_t         room[CO_MAX_DIMS];
    const int64_t  *dims = coi_dims_of_rank(x, ndim, room);
    bool            seen[CO_MAX_DIMS] = { false };
    char            text[COI_SHAPE_TEXT];

    outs[0].dtype = (co_dtype)x->dtype;
    outs[0].ndim = ndim;
    if (dims == NULL)
        return coi_invalid(call, "perm %s has %d entr%s for a tensor of rank %d",
                           coi_ints_text(perm, text), perm->n, COI_IES(perm->n), x->ndim);
    for (int d = 0; d < ndim; ++d) {
        int64_t from = perm->n < 0 ? ndim - 1 - d : perm->at[d];

        from += from < 0 ? ndim : 0;
        if (from < 0 || from >= ndim || seen[from])
            return coi_invalid(call, "perm %s is no order of the axes 0 to %d",
                               coi_ints_text(perm, text), ndim - 1);
        seen[from] = true;
        outs[0].dims[d] = dims[from];
    }
    return CO_OK;
}

/* The inverse permutation. */
static co_code
transpose_grad(coi_grad *g)
{
    const coi_ints *perm = &((const coi_perm_attrs *)g->attrs)->perm;
    int             inverse[CO_MAX_DIMS];

    for (int d = 0; d < perm->n; ++d)
        inverse[perm->at[d] < 0 ? perm->at[d] + perm->n : perm->at[d]] = d;
    g->grads[0] = co_transpose(g->ctx, g->upstream[0], perm->n < 0 ? NULL : inverse,
                               perm->n < 0 ? 0 : (size_t)perm->n);
    return g->ctx->error.code;
}

const coi_op coi_op_transpose = {
    .name = "transpose",
    .doc = "Dimension d of the result is dimension perm[d] of x; without perm they are reversed.",
    .inputs = { "x" },
    .num_inputs = 1,
    .num_outputs = 1,
    COI_ATTRS(coi_perm_attrs),
    .infer = transpose_rule,
    .ref = coi_ref_transpose,
    .run = coi_transpose_run,
    .grad = transpose_grad,
};

co_value *
co_transpose(co_context *ctx, co_value *x, const int *perm, size_t num_perm)
{
    coi_perm_attrs attrs;

    COI_ENTER(ctx, "transpose", NULL);
    if (!coi_ints_from_axes(ctx, "transpose: perm", perm, num_perm, &attrs.perm))
        return NULL;
    return coi_apply1(ctx, &coi_op_transpose, x, &attrs);
}
