/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of simd_softmax.c for one element type: T is f32 or f64, REAL its C type, EXP and LOG
 * its functions. Included by simd_softmax.c and, for double, by
 * ops/kernels/generic/float64_kernels.c; hence no guard.
 */
enum {
    SUMS = 16,    /* partial sums of a row */
    BLOCK = 2048, /* elements of a row at a time */
    STRIP = 64,   /* columns at a time */
    NARROW = 24,  /* rows up to this length are transposed */
};

/* Columns computed for n columns: whole vectors. */
#define ROUNDED(n) (((n) + 15) / 16 * 16)

#define OF(name) COI_PASTE(name, T)

enum { OF(VECTORS) = SUMS / OF(LANES) };

/* Partial sums of a row: element i is added to sum i % SUMS. */
typedef struct OF(sums) {
    OF(vec) v[OF(VECTORS)];
} OF(sums);

static inline void
OF(add_to)(OF(sums) * sums, const REAL *x, int64_t n)
{
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS) {
        COI_UNROLL
        for (int k = 0; k < OF(VECTORS); ++k)
            sums->v[k] = OF(add)(sums->v[k], OF(load)(x + i + k * OF(LANES)));
    }
    for (int k = 0; i < n; ++k, i += OF(LANES)) {
        int64_t left = n - i < OF(LANES) ? n - i : OF(LANES);

        sums->v[k] = OF(add)(sums->v[k], OF(load_part)(x + i, OF(make_part)(left)));
    }
}

static inline REAL
OF(fold)(const OF(sums) * sums)
{
    OF(vec) v[OF(VECTORS)];
    REAL lanes[OF(LANES)];

    memcpy(v, sums->v, sizeof(v));
    COI_UNROLL
    for (int width = OF(VECTORS) / 2; width > 0; width /= 2)
        for (int k = 0; k < width; ++k)
            v[k] = OF(add)(v[k], v[k + width]);
    OF(store)(lanes, v[0]);
    COI_UNROLL
    for (int width = OF(LANES) / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

static inline REAL
OF(row_sum)(const REAL *x, int64_t n)
{
    OF(sums) sums;

    for (int k = 0; k < OF(VECTORS); ++k)
        sums.v[k] = OF(zero)();
    OF(add_to)(&sums, x, n);
    return OF(fold)(&sums);
}

/* The largest of n >= SUMS elements. NaN is passed over here and comes back through the exponential
 * of x - max. */
static inline REAL
OF(row_max)(const REAL *x, int64_t n)
{
    REAL lanes[OF(LANES)];
    OF(vec) most[OF(VECTORS)];

    for (int k = 0; k < OF(VECTORS); ++k)
        most[k] = OF(splat)(-(REAL)INFINITY);
    for (int64_t i = 0; i < n; i += SUMS) {
        const REAL *from = x + (i + SUMS <= n ? i : n - SUMS); /* the last ones twice, if need be */

        COI_UNROLL
        for (int k = 0; k < OF(VECTORS); ++k)
            most[k] = OF(max)(OF(load)(from + k * OF(LANES)), most[k]);
    }
    for (int k = 1; k < OF(VECTORS); ++k)
        most[0] = OF(max)(most[k], most[0]);
    OF(store)(lanes, most[0]);
    for (int width = OF(LANES) / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            lanes[i] = lanes[i + width] > lanes[i] ? lanes[i + width] : lanes[i];
    return lanes[0];
}

/* n columns (at most STRIP), `inner` apart along the axis: their maxima and the sums of exp(x -
 * max); exponentials go to y where it is given. */
static inline void
OF(strip_exp)(const REAL *restrict x, REAL *restrict y, bool keep, int64_t dim, int64_t inner,
              int n, REAL *restrict max, REAL *restrict sum)
{
    for (int i = 0; i < n; ++i) {
        max[i] = -(REAL)INFINITY;
        sum[i] = 0;
    }
    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i)
            max[i] = x[d * inner + i] > max[i] ? x[d * inner + i] : max[i];
    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i) {
            REAL e = EXP(x[d * inner + i] - max[i]);

            if (keep)
                y[d * inner + i] = e;
            sum[i] += e;
        }
}

static inline void
OF(strip_scale)(REAL *restrict y, int64_t dim, int64_t inner, int n, const REAL *restrict factor)
{
    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i)
            y[d * inner + i] *= factor[i];
}

static inline void
OF(strip_grad)(const REAL *restrict y, const REAL *restrict g, REAL *restrict dx, int64_t dim,
               int64_t inner, int n)
{
    REAL dot[STRIP] = { 0 };

    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i)
            dot[i] += y[d * inner + i] * g[d * inner + i];
    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i)
            dx[d * inner + i] = y[d * inner + i] * (g[d * inner + i] - dot[i]);
}

/* n rows as the columns of a strip (columns up to ROUNDED(n) are zero), and back. */
static inline void
OF(transpose)(const REAL *restrict rows, int64_t dim, int64_t stride, int n, REAL *restrict strip)
{
    for (int64_t d = 0; d < dim; ++d) {
        for (int i = 0; i < n; ++i)
            strip[d * STRIP + i] = rows[i * stride + d];
        for (int i = n; i < ROUNDED(n); ++i)
            strip[d * STRIP + i] = 0;
    }
}
static inline void
OF(transpose_back)(const REAL *restrict strip, int64_t dim, int64_t stride, int n,
                   REAL *restrict rows)
{
    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i)
            rows[i * stride + d] = strip[d * STRIP + i];
}

static void
OF(narrow_exps)(const REAL *x, REAL *y, REAL *max, REAL *sum, int64_t num_rows, int64_t dim,
                int64_t stride)
{
    REAL from[NARROW * STRIP], to[NARROW * STRIP], strip_max[STRIP], strip_sum[STRIP];

    for (int64_t row = 0; row < num_rows; row += STRIP) {
        int    n = num_rows - row < STRIP ? (int)(num_rows - row) : STRIP;
        size_t nbytes = (size_t)n * sizeof(REAL);

        OF(transpose)(x + row * stride, dim, stride, n, from);
        OF(strip_exp)(from, to, true, dim, STRIP, ROUNDED(n), strip_max, strip_sum);
        memcpy(max + row, strip_max, nbytes);
        memcpy(sum + row, strip_sum, nbytes);
        if (y != NULL)
            OF(transpose_back)(to, dim, stride, n, y + row * stride);
    }
}

/* y = exp(x - max) of one row; returns the sum. */
static inline REAL
OF(row_exps)(const REAL *restrict x, REAL *restrict y, int64_t dim, REAL max)
{
    for (int64_t i = 0; i < dim; ++i)
        y[i] = EXP(x[i] - max);
    return OF(row_sum)(y, dim);
}

/* The sum alone, block by block: the same bits. */
static inline REAL
OF(exp_sum)(const REAL *x, int64_t dim, REAL max)
{
    REAL piece[BLOCK];
    OF(sums) sums;

    for (int k = 0; k < OF(VECTORS); ++k)
        sums.v[k] = OF(zero)();
    for (int64_t done = 0; done < dim; done += BLOCK) {
        int64_t n = dim - done < BLOCK ? dim - done : BLOCK;

        for (int64_t i = 0; i < n; ++i)
            piece[i] = EXP(x[done + i] - max);
        OF(add_to)(&sums, piece, n);
    }
    return OF(fold)(&sums);
}

/* A few rows at a time, as many as stay near: all maxima first, so that no exponential waits for
 * the end of a maximum. */
static void
OF(softmax_exps)(const void *x_data, void *y_data, void *max_data, void *sum_data, int64_t num_rows,
                 int64_t dim, int64_t stride)
{
    const REAL *x = x_data;
    REAL       *y = y_data, *max = max_data, *sum = sum_data;
    int64_t     few = dim < BLOCK ? 2 * BLOCK / dim : 1;

    if (dim <= NARROW) {
        OF(narrow_exps)(x, y, max, sum, num_rows, dim, stride);
        return;
    }
    for (int64_t first = 0; first < num_rows; first += few) {
        int64_t last = num_rows - first < few ? num_rows : first + few;

        for (int64_t row = first; row < last; ++row)
            max[row] = OF(row_max)(x + row * stride, dim);
        for (int64_t row = first; row < last; ++row)
            sum[row] = y != NULL ? OF(row_exps)(x + row * stride, y + row * stride, dim, max[row])
                                 : OF(exp_sum)(x + row * stride, dim, max[row]);
    }
}

static void
OF(softmax_scale)(const void *e_data, const void *sum_data, const void *g_data, void *y_data,
                  int64_t num_rows, int64_t dim, int64_t stride)
{
    const REAL *e = e_data, *sum = sum_data, *g = g_data;
    REAL       *y = y_data;

    for (int64_t row = 0; row < num_rows; ++row, e += stride, y += stride) {
        REAL factor = (g == NULL ? 1 : g[row]) / sum[row];

        for (int64_t i = 0; i < dim; ++i)
            y[i] = e[i] * factor;
    }
}

static void
OF(softmax_logs)(const void *sum_data, void *log_data, int64_t n)
{
    const REAL *restrict sum = sum_data;
    REAL *restrict log_sum = log_data;

    for (int64_t i = 0; i < n; ++i)
        log_sum[i] = LOG(sum[i]);
}

static void
OF(softmax_columns)(const void *x_data, void *y_data, int64_t dim, int64_t inner, int64_t first,
                    int64_t last)
{
    for (int64_t j = first; j < last; j += STRIP) {
        int   n = last - j < STRIP ? (int)(last - j) : STRIP;
        REAL *y = (REAL *)y_data + j, max[STRIP], sum[STRIP];

        OF(strip_exp)((const REAL *)x_data + j, y, true, dim, inner, n, max, sum);
        for (int i = 0; i < n; ++i)
            sum[i] = 1 / sum[i];
        OF(strip_scale)(y, dim, inner, n, sum);
    }
}

static void
OF(narrow_grad_rows)(const REAL *y, const REAL *g, REAL *dx, int64_t num_rows, int64_t dim,
                     int64_t stride)
{
    REAL from[NARROW * STRIP], with[NARROW * STRIP], to[NARROW * STRIP];

    for (int64_t row = 0; row < num_rows; row += STRIP) {
        int n = num_rows - row < STRIP ? (int)(num_rows - row) : STRIP;

        OF(transpose)(y + row * stride, dim, stride, n, from);
        OF(transpose)(g + row * stride, dim, stride, n, with);
        OF(strip_grad)(from, with, to, dim, STRIP, ROUNDED(n));
        OF(transpose_back)(to, dim, stride, n, dx + row * stride);
    }
}

static void
OF(softmax_grad_rows)(const void *y_data, const void *g_data, void *dx_data, int64_t num_rows,
                      int64_t dim, int64_t stride)
{
    const REAL *y = y_data, *g = g_data;
    REAL       *dx = dx_data;

    if (dim <= NARROW) {
        OF(narrow_grad_rows)(y, g, dx, num_rows, dim, stride);
        return;
    }
    for (int64_t row = 0; row < num_rows; ++row, y += stride, g += stride, dx += stride) {
        REAL dot;

        for (int64_t i = 0; i < dim; ++i)
            dx[i] = y[i] * g[i];
        dot = OF(row_sum)(dx, dim);
        for (int64_t i = 0; i < dim; ++i)
            dx[i] = y[i] * (g[i] - dot);
    }
}

static void
OF(softmax_grad_columns)(const void *y_data, const void *g_data, void *dx_data, int64_t dim,
                         int64_t inner, int64_t first, int64_t last)
{
    for (int64_t j = first; j < last; j += STRIP)
        OF(strip_grad)
    ((const REAL *)y_data + j, (const REAL *)g_data + j, (REAL *)dx_data + j, dim, inner,
     last - j < STRIP ? (int)(last - j) : STRIP);
}

const coi_softmax_kernels COI_PER_ISA(OF(coi_softmax)) = {
    .exps = OF(softmax_exps),
    .scale = OF(softmax_scale),
    .logs = OF(softmax_logs),
    .columns = OF(softmax_columns),
    .grad_rows = OF(softmax_grad_rows),
    .grad_columns = OF(softmax_grad_columns),
};

#undef OF
