/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums, means, maxima, minima and products over axes.
 *
 * Neighbouring axes of one kind are taken as one, so a shape becomes alternating groups of kept (K)
 * and reduced (R) elements. The last two are folded by one call of an inner loop: rows, "K R", or
 * columns, "R K", at most COI_FOLD_WIDTH accumulators at a time, which is a unit of work. An
 * iterator goes over the groups before them. Where there are few units, the reduced group of the
 * pair is cut into segments, whose accumulators are combined in order. All of this depends on the
 * shape alone.
 */
#include "ops/kernels/reduction.h"

#include "ops/engine/op.h"
#include "ops/kernels/compute_type.h"
#include "ops/kernels/ref/ref.h"
#include "ops/kernels/loops.h"
#include "ops/kernels/strided_copy.h"
#include "ops/kernels/strided_iterator.h"

#include <math.h>
#include <string.h>

static const coi_fold_loops *const tables[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_fold_loops);

#define MAX_SEGMENTS 16

void
coi_reduced_axes(const coi_ints *axis, int ndim, bool *reduced)
{
    for (int d = 0; d < ndim; ++d)
        reduced[d] = axis->n < 0;
    for (int i = 0; i < axis->n; ++i)
        reduced[axis->at[i] < 0 ? axis->at[i] + ndim : axis->at[i]] = true;
}

/* The groups of a shape, and the last two of them as the pair that inner loops take. */
typedef struct reduce_job {
    coi_fold      fold;
    co_dtype      dtype;
    coi_fold_kind kind;
    bool          is_mean;
    bool          is_rows; /* else columns */
    const char   *x;
    char         *out;
    size_t        size;                  /* of an element */
    int           num_kept, num_reduced; /* groups before the pair */
    int64_t       kept[CO_MAX_DIMS], kept_stride[CO_MAX_DIMS];
    int64_t       reduced[CO_MAX_DIMS], reduced_stride[CO_MAX_DIMS];
    int64_t       num_outer_reduced; /* product of reduced[] */
    int64_t       k, r;              /* sizes in the pair */
    int64_t       num_blocks;        /* of COI_FOLD_WIDTH in k */
    int64_t       num_units, num_segments, per_chunk;
    double        count; /* elements per result */
    coi_wide     *parts; /* COI_FOLD_WIDTH per unit and segment, when there are several segments */
} reduce_job;

/* Fill the groups; returns the number of elements that go into one result. */
static int64_t
make_groups(reduce_job *job, const co_value *x, const bool *reduced)
{
    int64_t size[CO_MAX_DIMS + 2], stride = 1, count = 1;
    bool    is_reduced[CO_MAX_DIMS + 2];
    int     n = 0, pair;

    for (int d = 0; d < x->ndim; ++d) {
        if (x->u.tensor.dims[d] == 1)
            continue;
        if (reduced[d])
            count *= x->u.tensor.dims[d];
        if (n > 0 && is_reduced[n - 1] == reduced[d]) {
            size[n - 1] *= x->u.tensor.dims[d];
        } else {
            size[n] = x->u.tensor.dims[d];
            is_reduced[n++] = reduced[d];
        }
    }
    if (count == 1)
        return count;
    job->is_rows = is_reduced[n - 1];
    pair = n >= 2 ? n - 2 : 0; /* first group of the pair */
    job->r = job->is_rows ? size[n - 1] : size[n - 2];
    job->k = !job->is_rows ? size[n - 1] : n >= 2 ? size[n - 2] : 1;
    job->num_kept = job->num_reduced = 0;
    job->num_outer_reduced = 1;
    stride = job->k * job->r;
    for (int g = pair - 1; g >= 0; --g) { /* innermost first */
        if (is_reduced[g]) {
            job->reduced[job->num_reduced] = size[g];
            job->reduced_stride[job->num_reduced++] = stride;
            job->num_outer_reduced *= size[g];
        } else {
            job->kept[job->num_kept] = size[g];
            job->kept_stride[job->num_kept++] = stride;
        }
        stride *= size[g];
    }
    return count;
}

static int64_t
offset_of(int64_t index, int n, const int64_t *sizes, const int64_t *strides)
{
    int64_t at = 0;

    for (int g = 0; g < n; ++g) {
        at += index % sizes[g] * strides[g];
        index /= sizes[g];
    }
    return at;
}

/* What nothing folds to: 0, 1, and the number that every other one of the dtype beats. */
static coi_wide
first_of(coi_fold_kind kind, co_dtype dtype)
{
    const coi_dtype_info *info = &coi_dtypes[dtype];
    coi_wide              first = { .u = 0 };
    int64_t               highest = (INT64_C(1) << (8 * info->size - 2)) - 1;

    if (kind == COI_FOLD_SUM)
        return first;
    if (kind == COI_FOLD_PROD && info->floating)
        first.f = 1;
    else if (kind == COI_FOLD_PROD)
        first.u = 1;
    else if (info->floating)
        first.f = kind == COI_FOLD_MAX ? -INFINITY : INFINITY;
    else if (info->is_signed)
        first.i = kind == COI_FOLD_MAX ? -2 * highest - 2 : 2 * highest + 1;
    else if (kind == COI_FOLD_MIN)
        first.u = UINT64_MAX; /* cut to its width where it is stored */
    return first;
}

static void
begin_acc(const reduce_job *job, coi_wide *acc, int64_t n)
{
    coi_wide first = first_of(job->kind, job->dtype);

    for (int64_t i = 0; i < n; ++i)
        acc[i] = first;
}

/* Results from accumulators. */
static void
epilogue(const reduce_job *job, coi_wide *acc, int64_t begin, int64_t n)
{
    const coi_dtype_info *info = &coi_dtypes[job->dtype];
    co_dtype from = info->floating ? CO_FLOAT64 : info->is_signed ? CO_INT64 : CO_UINT64;
    char    *out = job->out + (size_t)begin * job->size;

    for (int64_t i = 0; job->is_mean && i < n; ++i) {
        if (info->floating)
            acc[i].f /= job->count;
        else if (info->is_signed)
            acc[i].i /= (int64_t)job->count;
        else
            acc[i].u /= (uint64_t)job->count;
    }
    if (job->dtype == CO_FLOAT32)
        for (int64_t i = 0; i < n; ++i)
            ((float *)(void *)out)[i] = (float)acc[i].f;
    else
        coi_convert(from, acc, job->dtype, out, n);
}

/* Fold segment s of unit u into acc; returns how many results the unit has. */
static int64_t
fold_unit(const reduce_job *job, int64_t u, int64_t s, coi_wide *acc)
{
    int64_t outer = u / job->num_blocks, k = u % job->num_blocks * COI_FOLD_WIDTH;
    int64_t n = job->k - k < COI_FOLD_WIDTH ? job->k - k : COI_FOLD_WIDTH;
    int64_t low = job->r * s / job->num_segments, high = job->r * (s + 1) / job->num_segments;
    int64_t base = offset_of(outer, job->num_kept, job->kept, job->kept_stride);

    begin_acc(job, acc, n);
    base += job->is_rows ? k * job->r + low : low * job->k + k;
    for (int64_t i = 0; i < job->num_outer_reduced; ++i) {
        int64_t     at = base + offset_of(i, job->num_reduced, job->reduced, job->reduced_stride);
        const char *x = job->x + (size_t)at * job->size;

        if (job->is_rows)
            job->fold.rows(acc, x, n, job->r, high - low);
        else
            job->fold.columns(acc, x, high - low, job->k, n);
    }
    return n;
}

static int64_t
first_result(const reduce_job *job, int64_t u)
{
    return u / job->num_blocks * job->k + u % job->num_blocks * COI_FOLD_WIDTH;
}

static void
unit_chunk(void *arg, int64_t chunk)
{
    const reduce_job *job = arg;
    int64_t           u = chunk * job->per_chunk;
    int64_t  end = u + job->per_chunk < job->num_units ? u + job->per_chunk : job->num_units;
    coi_wide acc[COI_FOLD_WIDTH];

    for (; u < end; ++u) {
        int64_t n = fold_unit(job, u, 0, acc);

        epilogue(job, acc, first_result(job, u), n);
    }
}

static void
segment_chunk(void *arg, int64_t chunk)
{
    const reduce_job *job = arg;

    fold_unit(job, chunk / job->num_segments, chunk % job->num_segments,
              job->parts + chunk * COI_FOLD_WIDTH);
}

static bool
is_better(const reduce_job *job, coi_wide part, coi_wide acc)
{
    const coi_dtype_info *info = &coi_dtypes[job->dtype];
    coi_wide              high = job->kind == COI_FOLD_MAX ? part : acc;
    coi_wide              low = job->kind == COI_FOLD_MAX ? acc : part;

    if (info->floating)
        return high.f > low.f || isnan(part.f);
    return info->is_signed ? high.i > low.i : high.u > low.u;
}

static void
combine(const reduce_job *job, coi_wide *acc, const coi_wide *part, int64_t n)
{
    bool floating = coi_dtypes[job->dtype].floating;

    for (int64_t i = 0; i < n; ++i) {
        if (job->kind == COI_FOLD_SUM && floating)
            acc[i].f += part[i].f;
        else if (job->kind == COI_FOLD_SUM)
            acc[i].u += part[i].u;
        else if (job->kind == COI_FOLD_PROD && floating)
            acc[i].f *= part[i].f;
        else if (job->kind == COI_FOLD_PROD)
            acc[i].u *= part[i].u;
        else if (is_better(job, part[i], acc[i]))
            acc[i] = part[i];
    }
}

/* Few units of much work. */
static co_code
in_segments(coi_call *call, reduce_job *job)
{
    int64_t     num_parts = job->num_units * job->num_segments;
    size_t      nbytes = (size_t)num_parts * COI_FOLD_WIDTH * sizeof(coi_wide);
    coi_buffer *buffer = coi_buffer_alloc(call->device, nbytes, coi_err(call->ctx));

    if (buffer == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes on %s",
                        call->op->name, nbytes, call->device->name);
    job->parts = buffer->data;
    coi_parallel(call, num_parts, segment_chunk, job);
    for (int64_t u = 0; u < job->num_units; ++u) {
        coi_wide *acc = job->parts + u * job->num_segments * COI_FOLD_WIDTH;
        int64_t   left = job->k - u % job->num_blocks * COI_FOLD_WIDTH;
        int64_t   n = left < COI_FOLD_WIDTH ? left : COI_FOLD_WIDTH;

        for (int64_t s = 1; s < job->num_segments; ++s)
            combine(job, acc, acc + s * COI_FOLD_WIDTH, n);
        epilogue(job, acc, first_result(job, u), n);
    }
    coi_buffer_unref(buffer);
    return CO_OK;
}

/* Nothing goes into the results; the mean of no floats is NaN, that of no integers 0. */
static void
fill_empty(reduce_job *job, int64_t n)
{
    coi_wide acc;
    char     element[sizeof(coi_wide)];
    bool     is_nan = job->is_mean && coi_dtypes[job->dtype].floating;

    if (n == 0)
        return;
    job->is_mean = false;
    begin_acc(job, &acc, 1);
    if (is_nan)
        acc.f = NAN;
    epilogue(job, &acc, 0, 1);
    memcpy(element, job->out, job->size);
    coi_fill_elements(job->out, n, element, job->size);
}

static co_code
run_job(coi_call *call, reduce_job *job)
{
    const coi_reduce_attrs *attrs = call->attrs;
    const co_value         *x = call->in[0], *out = call->out[0];
    int64_t                 total = x->u.tensor.num_elements;
    bool                    reduced[CO_MAX_DIMS];

    job->size = coi_dtypes[job->dtype].size;
    if (total == 0) {
        fill_empty(job, out->u.tensor.num_elements);
        return CO_OK;
    }
    coi_reduced_axes(&attrs->axis, x->ndim, reduced);
    job->count = (double)make_groups(job, x, reduced);
    if (job->count == 1) {
        memcpy(job->out, job->x, (size_t)total * job->size);
        return CO_OK;
    }
    job->num_blocks = (job->k + COI_FOLD_WIDTH - 1) / COI_FOLD_WIDTH;
    job->num_units = out->u.tensor.num_elements / job->k * job->num_blocks;
    job->num_segments = 1;
    if (total > 2 * COI_PARALLEL_ELEMENTS && job->num_units < MAX_SEGMENTS / 2 &&
        job->num_units <= total / COI_PARALLEL_ELEMENTS) {
        job->num_segments = total / COI_PARALLEL_ELEMENTS / job->num_units;
        if (job->num_segments > MAX_SEGMENTS)
            job->num_segments = MAX_SEGMENTS;
        if (job->num_segments > job->r)
            job->num_segments = job->r;
    }
    if (job->num_segments > 1)
        return in_segments(call, job);
    coi_parallel(call, coi_num_chunks(job->num_units, total / job->num_units, &job->per_chunk),
                 unit_chunk, job);
    return CO_OK;
}

/* A dtype without loops of its own is converted to its compute type as a whole, and the results
 * back. */
static co_code
run_in_compute_type(coi_call *call, reduce_job *job)
{
    co_dtype own = (co_dtype)call->in[0]->dtype,
             compute_dtype = (co_dtype)coi_compute_types[own].dtype;
    int64_t     n = call->in[0]->u.tensor.num_elements;
    int64_t     num_out = call->out[0]->u.tensor.num_elements;
    size_t      size = coi_dtypes[compute_dtype].size;
    coi_buffer *buffer = coi_buffer_alloc(call->device, (size_t)(n + num_out) * size + 1,
                                          coi_err(call->ctx));
    co_code     code;

    if (buffer == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for %lld elements of %s",
                        call->op->name, (long long)n, co_dtype_name(compute_dtype));
    coi_cast_elements(call->ctx->runtime->isa, own, call->in[0]->u.tensor.data, compute_dtype,
                      buffer->data, n);
    job->dtype = compute_dtype;
    job->fold = coi_fold_loops_rare.at[job->kind][compute_dtype];
    job->x = buffer->data;
    job->out = (char *)buffer->data + (size_t)n * size;
    code = run_job(call, job);
    coi_convert(compute_dtype, job->out, own, call->out[0]->u.tensor.data, num_out);
    coi_buffer_unref(buffer);
    return code;
}

static co_code
reduce(coi_call *call, coi_fold_kind kind, bool is_mean)
{
    reduce_job job;

    job.dtype = (co_dtype)call->in[0]->dtype;
    job.fold = tables[call->ctx->runtime->isa]->at[kind][job.dtype];
    if (job.fold.rows == NULL)
        job.fold = coi_fold_loops_rare.at[kind][job.dtype];
    job.kind = kind;
    job.is_mean = is_mean;
    job.x = COI_IN(call, 0, char);
    job.out = COI_OUT(call, 0, char);
    if (job.fold.rows == NULL && call->in[0]->u.tensor.num_elements > 0)
        return run_in_compute_type(call, &job);
    return run_job(call, &job);
}

co_code
coi_reduce_sum_run(coi_call *call)
{
    return reduce(call, COI_FOLD_SUM, false);
}

co_code
coi_reduce_mean_run(coi_call *call)
{
    return reduce(call, COI_FOLD_SUM, true);
}

co_code
coi_reduce_max_run(coi_call *call)
{
    return reduce(call, COI_FOLD_MAX, false);
}

co_code
coi_reduce_min_run(coi_call *call)
{
    return reduce(call, COI_FOLD_MIN, false);
}

co_code
coi_reduce_prod_run(coi_call *call)
{
    return reduce(call, COI_FOLD_PROD, false);
}

/* Undoing broadcasting: the sum over leading dimensions, and over those that are 1 in `like`. */
static coi_reduce_attrs
axes_to(const co_value *x, const co_value *like)
{
    coi_reduce_attrs attrs = { .axis = { .n = 0 } };
    int              extra = x->ndim - like->ndim;

    for (int d = 0; d < x->ndim; ++d)
        if (d < extra || (like->u.tensor.dims[d - extra] == 1 && x->u.tensor.dims[d] != 1))
            attrs.axis.at[attrs.axis.n++] = d;
    return attrs;
}

static co_code
sum_to_like_with(coi_call *call, co_code (*kernel)(coi_call *))
{
    coi_reduce_attrs attrs = axes_to(call->in[0], call->in[1]);
    coi_call         sum = *call;

    sum.attrs = &attrs;
    sum.num_in = 1;
    return kernel(&sum);
}

co_code
coi_sum_to_like_run(coi_call *call)
{
    return sum_to_like_with(call, coi_reduce_sum_run);
}

co_code
coi_sum_to_like_ref(coi_call *call)
{
    return sum_to_like_with(call, coi_ref_reduce_sum);
}
