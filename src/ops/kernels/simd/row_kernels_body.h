/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of ops/kernels/row_kernels.h for one element type: T is f32 or f64, REAL its C type.
 * Included by simd_row_kernels.c and, for double, by ops/kernels/generic/float64_kernels.c; hence
 * no guard.
 *
 * A sum along a row is taken in four vectors, and what is left of the row behind them in a number.
 * Rows are taken a few at a time and by stages, so that no stage of a row waits for the end of the
 * one before.
 */
#define OF(name) COI_PASTE(name, T)

enum {
    OF(AT_ONCE) = 4 * OF(LANES), /* elements */
    OF(TOGETHER) =
        1024, /* elements that go through the stages together, and are added up in their own type */
};

/* Sums by name, because compilers do not always keep an array of them in registers. */
typedef struct OF(four) {
    OF(vec) a, b, c, d;
} OF(four);

#define EACH_OF_FOUR(X) X(a, 0) X(b, 1) X(c, 2) X(d, 3)

COI_INLINE
OF(four) OF(none)(void)
{
    return (OF(four)){ OF(zero)(), OF(zero)(), OF(zero)(), OF(zero)() };
}

static REAL
OF(total)(OF(four) sums)
{
    return OF(fold_lanes)((sums.a + sums.c) + (sums.b + sums.d));
}

static REAL
OF(sum)(const REAL *x, int64_t n)
{
    OF(four) sums = OF(none)();
    REAL    rest = 0;
    int64_t i = 0;

    for (; i + OF(AT_ONCE) <= n; i += OF(AT_ONCE)) {
#define STEP(name, k) sums.name = sums.name + OF(load)(x + i + (k)*OF(LANES));
        EACH_OF_FOUR(STEP)
#undef STEP
    }
    for (; i < n; ++i)
        rest += x[i];
    return OF(total)(sums) + rest;
}

/* y = x - mean; the sum of y, and that of its squares. */
static REAL
OF(centre)(const REAL *x, REAL *y, int64_t n, REAL mean, REAL *squares)
{
    OF(four) sum = OF(none)(), square = OF(none)();
    OF(vec) means = OF(splat)(mean);
    REAL    rest = 0, rest_square = 0;
    int64_t i = 0;

    for (; i + OF(AT_ONCE) <= n; i += OF(AT_ONCE)) {
#define STEP(name, k)                                                                              \
    {                                                                                              \
        OF(vec) v = OF(load)(x + i + (k)*OF(LANES)) - means;                                       \
                                                                                                   \
        OF(store)(y + i + (k)*OF(LANES), v);                                                       \
        sum.name = sum.name + v;                                                                   \
        square.name = OF(fma)(v, v, square.name);                                                  \
    }
        EACH_OF_FOUR(STEP)
#undef STEP
    }
    for (; i < n; ++i) {
        y[i] = x[i] - mean;
        rest += y[i];
        rest_square += y[i] * y[i];
    }
    *squares = OF(total)(square) + rest_square;
    return OF(total)(sum) + rest;
}

/* Long rows by parts that are added in double. A quotient, so that the mean of equal numbers is
 * that number. */
static REAL
OF(row_mean)(const REAL *x, int64_t dim)
{
    double sum = 0;

    for (int64_t i = 0; i < dim; i += OF(TOGETHER))
        sum += (double)OF(sum)(x + i, dim - i < OF(TOGETHER) ? dim - i : OF(TOGETHER));
    return (REAL)(sum / (double)dim);
}

/* y = x - mean of a row; returns what that mean was too small, and the variance. */
static double
OF(row_rest)(const REAL *x, REAL *y, int64_t dim, REAL mean, double share, double *variance)
{
    double rest = 0, squares = 0;

    for (int64_t i = 0; i < dim; i += OF(TOGETHER)) {
        REAL square;

        rest += (double)OF(centre)(x + i, y + i, dim - i < OF(TOGETHER) ? dim - i : OF(TOGETHER),
                                   mean, &square);
        squares += (double)square;
    }
    rest *= share;
    squares = squares * share - rest * rest;
    *variance = squares < 0 ? 0 : squares; /* NaN stays */
    return rest;
}

/* The variance of a row that was centred, in double: its squares may be too small for floats, which
 * lose their digits then, or too large. */
static double
OF(exact_variance)(const REAL *y, int64_t dim, double rest, double share)
{
    double squares = 0;

    for (int64_t i = 0; i < dim; ++i)
        squares += ((double)y[i] - rest) * ((double)y[i] - rest);
    return squares * share;
}

static void
OF(norm_rows)(const void *x_data, const void *gamma_data, const void *beta_data, void *y_data,
              void *statistics_data, int64_t num_rows, int64_t dim, double epsilon)
{
    const REAL *x = x_data, *gamma = gamma_data, *beta = beta_data;
    REAL       *y = y_data, *statistics = statistics_data;
    int64_t     few = dim < OF(TOGETHER) ? OF(TOGETHER) / dim : 1;
    double      share = 1 / (double)dim, variances[OF(TOGETHER)];

    for (; num_rows > 0; num_rows -= few) {
        few = few < num_rows ? few : num_rows;
        for (int64_t row = 0; row < few; ++row)
            statistics[row * COI_NORM_STATISTICS] = OF(row_mean)(x + row * dim, dim);
        for (int64_t row = 0; row < few; ++row) {
            REAL *s = statistics + row * COI_NORM_STATISTICS;

            s[1] = (REAL)OF(row_rest)(x + row * dim, y + row * dim, dim, s[0], share,
                                      &variances[row]);
        }
        for (int64_t row = 0; row < few; ++row) {
            REAL  *s = statistics + row * COI_NORM_STATISTICS;
            double sum = variances[row] + epsilon;

            if (sizeof(REAL) < sizeof(double) && !(sum > 1e-36 && sum < HUGE_VAL))
                sum = OF(exact_variance)(y + row * dim, dim, (double)s[1], share) + epsilon;
            s[2] = (REAL)(1 / sqrt(sum));
        }
        for (int64_t row = 0; row < few; ++row, y += dim, statistics += COI_NORM_STATISTICS) {
            REAL    rest = statistics[1], scale = statistics[2];
            int64_t i = 0;

            for (; i + OF(LANES) <= dim; i += OF(LANES))
                OF(store)
            (y + i, OF(fma)((OF(load)(y + i) - OF(splat)(rest)) * OF(splat)(scale),
                            OF(load)(gamma + i), OF(load)(beta + i)));
            for (; i < dim; ++i)
                y[i] = (y[i] - rest) * scale * gamma[i] + beta[i];
        }
        x += few * dim;
    }
}

/* The sums of a row: of h = g gamma and of h z, where z is x as it was normalised. g z and g are
 * added to dgamma and dbeta. */
static REAL
OF(grad_sums)(const REAL *x, const REAL *gamma, const REAL *g, REAL *dgamma, REAL *dbeta, int64_t n,
              const REAL *statistics, REAL *product)
{
    OF(four) sum = OF(none)(), products = OF(none)();
    OF(vec) mean = OF(splat)(statistics[0]), lost = OF(splat)(statistics[1]);
    OF(vec) scale = OF(splat)(statistics[2]);
    REAL    rest = 0, rest_product = 0;
    int64_t i = 0;

    for (; i + OF(AT_ONCE) <= n; i += OF(AT_ONCE)) {
#define STEP(name, k)                                                                              \
    {                                                                                              \
        int64_t j = i + (k)*OF(LANES);                                                             \
        OF(vec) d = OF(load)(g + j), h = d * OF(load)(gamma + j);                                  \
        OF(vec) z = (OF(load)(x + j) - mean - lost) * scale;                                       \
                                                                                                   \
        sum.name = sum.name + h;                                                                   \
        products.name = OF(fma)(h, z, products.name);                                              \
        OF(store)(dgamma + j, OF(fma)(d, z, OF(load)(dgamma + j)));                                \
        OF(store)(dbeta + j, OF(load)(dbeta + j) + d);                                             \
    }
        EACH_OF_FOUR(STEP)
#undef STEP
    }
    for (; i < n; ++i) {
        REAL h = g[i] * gamma[i], z = (x[i] - statistics[0] - statistics[1]) * statistics[2];

        rest += h;
        rest_product += h * z;
        dgamma[i] += g[i] * z;
        dbeta[i] += g[i];
    }
    *product = OF(total)(products) + rest_product;
    return OF(total)(sum) + rest;
}

static void
OF(norm_grad_rows)(const void *x_data, const void *gamma_data, const void *g_data,
                   const void *statistics_data, void *dx_data, void *dgamma, void *dbeta,
                   int64_t num_rows, int64_t dim)
{
    const REAL *x = x_data, *gamma = gamma_data, *g = g_data, *statistics = statistics_data;
    REAL       *dx = dx_data, share = 1 / (REAL)dim;

    memset(dgamma, 0, (size_t)dim * sizeof(REAL));
    memset(dbeta, 0, (size_t)dim * sizeof(REAL));
    for (; num_rows > 0; --num_rows, statistics += COI_NORM_STATISTICS) {
        REAL    mean = statistics[0], lost = statistics[1], scale = statistics[2], product;
        REAL    sum = OF(grad_sums)(x, gamma, g, dgamma, dbeta, dim, statistics, &product) * share;
        int64_t i = 0;

        product = product * share * scale;
        for (; i + OF(LANES) <= dim; i += OF(LANES)) {
            OF(vec) h = OF(fma)(OF(load)(g + i), OF(load)(gamma + i), OF(splat)(-sum));
            OF(vec) z = OF(load)(x + i) - OF(splat)(mean) - OF(splat)(lost);

            OF(store)(dx + i, OF(fma)(z, OF(splat)(-product), h) * OF(splat)(scale));
        }
        for (; i < dim; ++i)
            dx[i] = (g[i] * gamma[i] - sum - (x[i] - mean - lost) * product) * scale;
        x += dim;
        g += dim;
        dx += dim;
    }
}

/* The losses of rows from the logarithms of their sums, which they take the place of: sum of labels
 * (log - (x - max)). */
static void
OF(losses)(const void *labels_data, const void *x_data, const void *max_data, void *losses_data,
           int64_t num_rows, int64_t dim)
{
    const REAL *labels = labels_data, *x = x_data, *max = max_data;
    REAL       *losses = losses_data;

    for (int64_t row = 0; row < num_rows; ++row, labels += dim, x += dim) {
        OF(four) sums = OF(none)();
        OF(vec) log = OF(splat)(losses[row]), most = OF(splat)(max[row]);
        REAL    rest = 0;
        int64_t i = 0;

        for (; i + OF(AT_ONCE) <= dim; i += OF(AT_ONCE)) {
#define STEP(name, k)                                                                              \
    sums.name = OF(fma)(OF(load)(labels + i + (k)*OF(LANES)),                                      \
                        log - (OF(load)(x + i + (k)*OF(LANES)) - most), sums.name);
            EACH_OF_FOUR(STEP)
#undef STEP
        }
        for (; i < dim; ++i)
            rest += labels[i] * (losses[row] - (x[i] - max[row]));
        losses[row] = OF(total)(sums) + rest;
    }
}

/* y - g labels, in place of y. */
static void
OF(take_labels)(const void *labels_data, const void *g_data, void *y_data, int64_t num_rows,
                int64_t dim)
{
    const REAL *labels = labels_data, *g = g_data;
    REAL       *y = y_data;

    for (int64_t row = 0; row < num_rows; ++row, labels += dim, y += dim) {
        int64_t i = 0;

        for (; i + OF(LANES) <= dim; i += OF(LANES))
            OF(store)(y + i, OF(load)(y + i) - OF(splat)(g[row]) * OF(load)(labels + i));
        for (; i < dim; ++i)
            y[i] -= g[row] * labels[i];
    }
}

const coi_row_kernels COI_PER_ISA(OF(coi_rows)) = {
    .norm = OF(norm_rows),
    .norm_grad = OF(norm_grad_rows),
    .losses = OF(losses),
    .take_labels = OF(take_labels),
};

#undef EACH_OF_FOUR
#undef OF
