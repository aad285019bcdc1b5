/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a batch of GEMMs is spread over kernels and workers. The GEMM itself is in gemm.c and
 * ops/kernels/simd/simd_gemm.c; the plain version in ops/kernels/ref/ref_matmul.c.
 */
#include "ops/kernels/matmul.h"

#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/gemm.h"

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
typedef struct gemm_batch {
    coi_matmul_view         view;
    const coi_gemm_kernels *kernels;
    co_device              *device;
    const char             *a, *b;
    char                   *c;
    const coi_epilogue     *epilogue;
    const coi_fused        *chain;
    coi_packing             packing;
    int64_t                 items_per_chunk;
    atomic_bool             no_memory;
} gemm_batch;

static void
plan_item(const gemm_batch *p, int64_t item, coi_gemm_plan *plan)
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
                                    .may_transpose = true,
                                    .epilogue = p->epilogue,
                                    .chain = p->chain,
                                    .at = item * v->m * v->n });
}

/* Items [first, last) one after the other, each on the team (NULL: this thread). */
static void
run_items(gemm_batch *p, int64_t first, int64_t last, coi_team *team)
{
    coi_gemm_plan plan;
    coi_buffer   *scratch = NULL;
    size_t        nbytes;

    plan_item(p, first, &plan);
    nbytes = coi_gemm_scratch(&plan, p->kernels); /* the same for all */
    if (nbytes > 0) {
        scratch = coi_buffer_alloc(p->device, nbytes, NULL);
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
    gemm_batch *p = arg;
    int64_t     first = chunk * p->items_per_chunk, last = first + p->items_per_chunk;

    run_items(p, first, last < p->view.num_items ? last : p->view.num_items, NULL);
}

/*
 * Whether the tiles of one GEMM are worth sharing. Where no extent is long, what each thread needs
 * of the other's cache takes as long as its half of the products: 32 x 64 x 64 by two threads takes
 * longer than by one.
 */
static bool
is_worth_sharing(const coi_matmul_view *v, int64_t work)
{
    bool is_long = v->m >= COI_SHARED_EXTENT || v->n >= COI_SHARED_EXTENT ||
                   v->k >= COI_SHARED_EXTENT;

    return work >= (is_long ? COI_SHARED_TILES : COI_PARALLEL_GEMM);
}

static co_code
run_gemms(coi_call *call, const coi_epilogue *epilogue)
{
    gemm_batch p;
    int64_t    work, num_chunks;

    coi_matmul_view_of(call, &p.view); /* whose many bytes need not be zero before */
    p.kernels = coi_gemm_kernels_of(call->ctx->runtime->isa, (co_dtype)call->out[0]->dtype);
    p.device = call->device;
    p.a = COI_IN(call, 0, char);
    p.b = COI_IN(call, 1, char);
    p.c = COI_OUT(call, 0, char);
    p.epilogue = epilogue;
    p.chain = call->epilogue;
    p.packing = call->ctx->runtime->settings.gemm;
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
        run_items(&p, 0, p.view.num_items,
                  is_worth_sharing(&p.view, work) ? call->device->team : NULL);
    }
    if (atomic_load(&p.no_memory))
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "matmul: no memory to pack a GEMM of %lld x %lld x %lld",
                        (long long)p.view.m, (long long)p.view.n, (long long)p.view.k);
    return CO_OK;
}

co_code
coi_matmul_run(coi_call *call)
{
    return coi_dtypes[call->out[0]->dtype].floating ? run_gemms(call, NULL) : coi_ref_matmul(call);
}

co_code
coi_dense_ref(coi_call *call)
{
    co_code rc = coi_ref_matmul(call);

    return rc == CO_OK ? coi_ref_epilogue(call, ((const coi_matmul_attrs *)call->attrs)->activation)
                       : rc;
}

co_code
coi_dense_run(coi_call *call)
{
    coi_epilogue epilogue;

    coi_epilogue_of(call, ((const coi_matmul_attrs *)call->attrs)->activation, &epilogue);
    return run_gemms(call, &epilogue);
}
