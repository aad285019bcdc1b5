/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of softmax.c for one element type: T is f32 or f64, REAL its C type, EXP and LOG its functions. Included once
 * for each, hence no guard.
 */
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
    REAL lanes[SUMS];

    for (int k = 0; k < OF(VECTORS); ++k)
        OF(store)(lanes + k * OF(LANES), sums->v[k]);
    for (int width = SUMS / 2; width > 0; width /= 2)
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

/* The largest of n >= SUMS elements. NaN is passed over here and comes back through the exponential of x - max. */
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

/* n columns (at most STRIP), `inner` apart along the axis: their maxima and the sums of exp(x - max); exponentials go to y
 * where it is given. */
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
OF(turn)(const REAL *restrict rows, int64_t dim, int n, REAL *restrict strip)
{
    for (int64_t d = 0; d < dim; ++d) {
        for (int i = 0; i < n; ++i)
            strip[d * STRIP + i] = rows[i * dim + d];
        for (int i = n; i < ROUNDED(n); ++i)
            strip[d * STRIP + i] = 0;
    }
}
static inline void
OF(turn_back)(const REAL *restrict strip, int64_t dim, int n, REAL *restrict rows)
{
    for (int64_t d = 0; d < dim; ++d)
        for (int i = 0; i < n; ++i)
            rows[i * dim + d] = strip[d * STRIP + i];
}

static void
OF(narrow_rows)(const REAL *x, const REAL *scale, REAL *y, int64_t num_rows, int64_t dim)
{
    REAL from[NARROW * STRIP], to[NARROW * STRIP], max[STRIP], sum[STRIP];

    for (int64_t row = 0; row < num_rows; row += STRIP) {
        int n = num_rows - row < STRIP ? (int)(num_rows - row) : STRIP, width = ROUNDED(n);

        OF(turn)(x + row * dim, dim, n, from);
        OF(strip_exp)(from, to, true, dim, STRIP, width, max, sum);
        if (scale != NULL)
            for (int i = 0; i < n; ++i)
                sum[i] = scale[row + i] / sum[i];
        else
            for (int i = 0; i < n; ++i)
                sum[i] = 1 / sum[i];
        OF(strip_scale)(to, dim, STRIP, width, sum);
        OF(turn_back)(to, dim, n, y + row * dim);
    }
}

static void
OF(softmax_rows)(const void *x_data, const void *scale_data, void *y_data, int64_t num_rows,
                 int64_t dim)
{
    const REAL *x = x_data, *scale = scale_data;
    REAL       *y = y_data;

    if (dim <= NARROW) {
        OF(narrow_rows)(x, scale, y, num_rows, dim);
        return;
    }
    for (int64_t row = 0; row < num_rows; ++row, x += dim, y += dim) {
        REAL max = OF(row_max)(x, dim), factor;

        for (int64_t i = 0; i < dim; ++i)
            y[i] = EXP(x[i] - max);
        factor = (scale == NULL ? 1 : scale[row]) / OF(row_sum)(y, dim);
        for (int64_t i = 0; i < dim; ++i)
            y[i] *= factor;
    }
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
OF(narrow_grad_rows)(const REAL *y, const REAL *g, REAL *dx, int64_t num_rows, int64_t dim)
{
    REAL from[NARROW * STRIP], with[NARROW * STRIP], to[NARROW * STRIP];

    for (int64_t row = 0; row < num_rows; row += STRIP) {
        int n = num_rows - row < STRIP ? (int)(num_rows - row) : STRIP;

        OF(turn)(y + row * dim, dim, n, from);
        OF(turn)(g + row * dim, dim, n, with);
        OF(strip_grad)(from, with, to, dim, STRIP, ROUNDED(n));
        OF(turn_back)(to, dim, n, dx + row * dim);
    }
}

static void
OF(softmax_grad_rows)(const void *y_data, const void *g_data, void *dx_data, int64_t num_rows,
                      int64_t dim)
{
    const REAL *y = y_data, *g = g_data;
    REAL       *dx = dx_data;

    if (dim <= NARROW) {
        OF(narrow_grad_rows)(y, g, dx, num_rows, dim);
        return;
    }
    for (int64_t row = 0; row < num_rows; ++row, y += dim, g += dim, dx += dim) {
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

static void
OF(narrow_sums)(const REAL *x, REAL *max, REAL *sum, int64_t num_rows, int64_t dim)
{
    REAL from[NARROW * STRIP], strip_max[STRIP], strip_sum[STRIP];

    for (int64_t row = 0; row < num_rows; row += STRIP) {
        int n = num_rows - row < STRIP ? (int)(num_rows - row) : STRIP;

        OF(turn)(x + row * dim, dim, n, from);
        OF(strip_exp)(from, NULL, false, dim, STRIP, ROUNDED(n), strip_max, strip_sum);
        memcpy(max + row, strip_max, (size_t)n * sizeof(REAL));
        memcpy(sum + row, strip_sum, (size_t)n * sizeof(REAL));
    }
}

/* The sum of exp(x - max) over a long row, by pieces. */
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

static void
OF(softmax_log_sums)(const void *x_data, void *max_data, void *log_sum_data, int64_t num_rows,
                     int64_t dim)
{
    const REAL *x = x_data;
    REAL       *max = max_data, *log_sum = log_sum_data;

    if (dim <= NARROW)
        OF(narrow_sums)(x, max, log_sum, num_rows, dim);
    else
        for (int64_t row = 0; row < num_rows; ++row) {
            max[row] = OF(row_max)(x + row * dim, dim);
            log_sum[row] = OF(exp_sum)(x + row * dim, dim, max[row]);
        }
    for (int64_t row = 0; row < num_rows; ++row)
        log_sum[row] = LOG(log_sum[row]);
}

const coi_softmax_kernels COI_PER_ISA(OF(coi_softmax)) = {
    .rows = OF(softmax_rows),
    .columns = OF(softmax_columns),
    .grad_rows = OF(softmax_grad_rows),
    .grad_columns = OF(softmax_grad_columns),
    .log_sums = OF(softmax_log_sums),
};

#undef OF
