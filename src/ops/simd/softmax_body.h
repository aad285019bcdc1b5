/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of softmax.c for one element type: T is f32 or f64, REAL its C type, EXP and LOG its functions. Included once
 * for each, hence no guard.
 */
#define OF(name) COI_PASTE(name, T)

static inline REAL
OF(fold)(REAL lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

static inline void
OF(add_to)(REAL lanes[LANES], const REAL *x, int64_t n)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane)
            lanes[lane] += x[i + lane];
    for (int lane = 0; i + lane < n; ++lane)
        lanes[lane] += x[i + lane];
}

/* NaN is passed over here and comes back through the exponential of x - max. */
static inline REAL
OF(row_max)(const REAL *x, int64_t n)
{
    REAL    lanes[LANES], max = -(REAL)INFINITY;
    int64_t i = 0;

    if (n >= LANES) {
        for (int lane = 0; lane < LANES; ++lane)
            lanes[lane] = x[lane];
        for (i = LANES; i + LANES <= n; i += LANES)
            for (int lane = 0; lane < LANES; ++lane)
                lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
        for (int lane = 0; lane < LANES; ++lane)
            max = lanes[lane] > max ? lanes[lane] : max;
    }
    for (; i < n; ++i)
        max = x[i] > max ? x[i] : max;
    return max;
}

static inline void
OF(exponentials)(REAL *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        x[i] = EXP(x[i]);
}

static void
OF(softmax_rows)(const void *x_data, const void *scale_data, void *y_data, int64_t num_rows,
                 int64_t dim)
{
    const REAL *x = x_data, *scale = scale_data;
    REAL       *y = y_data;
    int64_t     block = dim >= BLOCK ? 1 : BLOCK / (dim > 0 ? dim : 1);

    for (int64_t first = 0; first < num_rows; first += block) {
        int64_t last = first + block < num_rows ? first + block : num_rows;

        for (int64_t row = first; row < last; ++row) {
            REAL max = OF(row_max)(x + row * dim, dim);

            for (int64_t i = row * dim; i < (row + 1) * dim; ++i)
                y[i] = x[i] - max;
        }
        OF(exponentials)(y + first * dim, (last - first) * dim);
        for (int64_t row = first; row < last; ++row) {
            REAL lanes[LANES] = { 0 }, factor;

            OF(add_to)(lanes, y + row * dim, dim);
            factor = (scale == NULL ? 1 : scale[row]) / OF(fold)(lanes);
            for (int64_t i = row * dim; i < (row + 1) * dim; ++i)
                y[i] *= factor;
        }
    }
}

static void
OF(softmax_columns)(const void *x_data, void *y_data, int64_t dim, int64_t inner, int64_t first,
                    int64_t last)
{
    for (int64_t j = first; j < last; j += STRIP) {
        int         n = last - j < STRIP ? (int)(last - j) : STRIP;
        const REAL *x = (const REAL *)x_data + j;
        REAL       *y = (REAL *)y_data + j;
        REAL        max[STRIP], sum[STRIP];

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

                y[d * inner + i] = e;
                sum[i] += e;
            }
        for (int i = 0; i < n; ++i)
            sum[i] = 1 / sum[i];
        for (int64_t d = 0; d < dim; ++d)
            for (int i = 0; i < n; ++i)
                y[d * inner + i] *= sum[i];
    }
}

static void
OF(softmax_grad_rows)(const void *y_data, const void *g_data, void *dx_data, int64_t num_rows,
                      int64_t dim)
{
    const REAL *y = y_data, *g = g_data;
    REAL       *dx = dx_data;

    for (int64_t row = 0; row < num_rows; ++row, y += dim, g += dim, dx += dim) {
        REAL lanes[LANES] = { 0 }, dot;

        for (int64_t i = 0; i < dim; ++i)
            dx[i] = y[i] * g[i];
        OF(add_to)(lanes, dx, dim);
        dot = OF(fold)(lanes);
        for (int64_t i = 0; i < dim; ++i)
            dx[i] = y[i] * (g[i] - dot);
    }
}

static void
OF(softmax_grad_columns)(const void *y_data, const void *g_data, void *dx_data, int64_t dim,
                         int64_t inner, int64_t first, int64_t last)
{
    for (int64_t j = first; j < last; j += STRIP) {
        int         n = last - j < STRIP ? (int)(last - j) : STRIP;
        const REAL *y = (const REAL *)y_data + j, *g = (const REAL *)g_data + j;
        REAL       *dx = (REAL *)dx_data + j;
        REAL        dot[STRIP] = { 0 };

        for (int64_t d = 0; d < dim; ++d)
            for (int i = 0; i < n; ++i)
                dot[i] += y[d * inner + i] * g[d * inner + i];
        for (int64_t d = 0; d < dim; ++d)
            for (int i = 0; i < n; ++i)
                dx[d * inner + i] = y[d * inner + i] * (g[d * inner + i] - dot[i]);
    }
}

/* Rows that fit a block together, or pieces of one row: their exponentials into `block`, sums out. */
static void
OF(softmax_log_sums)(const void *x_data, void *max_data, void *log_sum_data, int64_t num_rows,
                     int64_t dim)
{
    const REAL *x = x_data;
    REAL       *max = max_data, *log_sum = log_sum_data, block[BLOCK];
    int64_t     rows = dim >= BLOCK ? 1 : BLOCK / (dim > 0 ? dim : 1);

    for (int64_t first = 0; first < num_rows; first += rows) {
        int64_t last = first + rows < num_rows ? first + rows : num_rows;
        int64_t piece = dim < BLOCK ? dim : BLOCK;

        for (int64_t row = first; row < last; ++row) {
            const REAL *from = x + row * dim;

            max[row] = OF(row_max)(from, dim);
            for (int64_t i = 0; i < piece; ++i)
                block[(row - first) * dim + i] = from[i] - max[row];
        }
        OF(exponentials)(block, (last - first - 1) * dim + piece);
        for (int64_t row = first; row < last; ++row) {
            REAL lanes[LANES] = { 0 };

            OF(add_to)(lanes, block + (row - first) * dim, piece);
            for (int64_t done = piece; done < dim; done += BLOCK) { /* a row of several pieces */
                int64_t n = dim - done < BLOCK ? dim - done : BLOCK;

                for (int64_t i = 0; i < n; ++i)
                    block[i] = x[row * dim + done + i] - max[row];
                OF(exponentials)(block, n);
                OF(add_to)(lanes, block, n);
            }
            log_sum[row] = OF(fold)(lanes);
        }
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
