/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of simd_optimizer_update.c for one dtype: T is f32 or f64, REAL its C type, ROOT and
 * MAGNITUDE its functions. Included by simd_optimizer_update.c alone, twice; hence no guard.
 *
 * LOOP(q) runs STEP for each element i, as one of two loops: q is computed where the gradient is
 * dense, and read from powers where it was indexed slices.
 */
#define OF(name) COI_PASTE(name, T)

#define VECTORISED COI_INDEPENDENT
#define LOOP(dense)                                                                                \
    do {                                                                                           \
        if (a->powers == NULL) {                                                                   \
            VECTORISED                                                                             \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                const REAL q = (dense);                                                            \
                STEP                                                                               \
            }                                                                                      \
        } else {                                                                                   \
            const REAL *restrict powers = a->powers;                                               \
            VECTORISED                                                                             \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                const REAL q = powers[i];                                                          \
                STEP                                                                               \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#define ARRAYS                                                                                     \
    const REAL *old = a->old, *restrict g = a->gradient;                                           \
    REAL       *value = a->value;
#define SLOT(name, k)        REAL *restrict name = a->slots[k];
#define NUMBER(name, number) const REAL name = (REAL)o[number];

static void
OF(sgd_plain)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    NUMBER(rate, COI_SGD_RATE)

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i)
        value[i] = old[i] - rate * g[i];
}

static void
OF(sgd_momentum)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    NUMBER(rate, COI_SGD_RATE)
    NUMBER(mu, COI_SGD_MU)

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        m[i] = mu * m[i] - rate * g[i];
        value[i] = old[i] + m[i];
    }
}

static void
OF(sgd_nesterov)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    NUMBER(rate, COI_SGD_RATE)
    NUMBER(mu, COI_SGD_MU)

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        m[i] = mu * m[i] - rate * g[i];
        value[i] = old[i] + (mu * m[i] - rate * g[i]);
    }
}

static void
OF(adam)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    SLOT(v, 1)
    NUMBER(towards_g, COI_ADAM_TOWARDS_G)
    NUMBER(towards_square, COI_ADAM_TOWARDS_SQUARE)
    NUMBER(rate, COI_ADAM_RATE)
    NUMBER(epsilon, COI_ADAM_EPSILON)

#define STEP                                                                                       \
    m[i] += (g[i] - m[i]) * towards_g;                                                             \
    v[i] += (q - v[i]) * towards_square;                                                           \
    value[i] = old[i] - m[i] * rate / (ROOT(v[i]) + epsilon);
    LOOP(g[i] * g[i]);
#undef STEP
}

static void
OF(adam_amsgrad)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    SLOT(v, 1)
    SLOT(largest, 2)
    NUMBER(towards_g, COI_ADAM_TOWARDS_G)
    NUMBER(towards_square, COI_ADAM_TOWARDS_SQUARE)
    NUMBER(rate, COI_ADAM_RATE)
    NUMBER(epsilon, COI_ADAM_EPSILON)

#define STEP                                                                                       \
    m[i] += (g[i] - m[i]) * towards_g;                                                             \
    v[i] += (q - v[i]) * towards_square;                                                           \
    largest[i] = largest[i] >= v[i] ? largest[i] : v[i];                                           \
    value[i] = old[i] - m[i] * rate / (ROOT(largest[i]) + epsilon);
    LOOP(g[i] * g[i]);
#undef STEP
}

#define RMSPROP_NUMBERS                                                                            \
    NUMBER(rate, COI_RMSPROP_RATE)                                                                 \
    NUMBER(rho, COI_RMSPROP_RHO)                                                                   \
    NUMBER(rest, COI_RMSPROP_REST)                                                                 \
    NUMBER(epsilon, COI_RMSPROP_EPSILON)

static void
OF(rmsprop)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(v, 0)
    RMSPROP_NUMBERS

#define STEP                                                                                       \
    v[i] = rho * v[i] + rest * q;                                                                  \
    value[i] = old[i] - rate * g[i] / ROOT(v[i] + epsilon);
    LOOP(g[i] * g[i]);
#undef STEP
}

static void
OF(rmsprop_momentum)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(v, 0)
    SLOT(m, 1)
    RMSPROP_NUMBERS
    NUMBER(mu, COI_RMSPROP_MU)

#define STEP                                                                                       \
    v[i] = rho * v[i] + rest * q;                                                                  \
    m[i] = mu * m[i] + rate * g[i] / ROOT(v[i] + epsilon);                                         \
    value[i] = old[i] - m[i];
    LOOP(g[i] * g[i]);
#undef STEP
}

static void
OF(rmsprop_centered)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(v, 0)
    SLOT(mean, 1)
    RMSPROP_NUMBERS

#define STEP                                                                                       \
    v[i] = rho * v[i] + rest * q;                                                                  \
    mean[i] = rho * mean[i] + rest * g[i];                                                         \
    value[i] = old[i] - rate * g[i] / ROOT(v[i] - mean[i] * mean[i] + epsilon);
    LOOP(g[i] * g[i]);
#undef STEP
}

static void
OF(rmsprop_centered_momentum)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(v, 0)
    SLOT(m, 1)
    SLOT(mean, 2)
    RMSPROP_NUMBERS
    NUMBER(mu, COI_RMSPROP_MU)

#define STEP                                                                                       \
    v[i] = rho * v[i] + rest * q;                                                                  \
    mean[i] = rho * mean[i] + rest * g[i];                                                         \
    m[i] = mu * m[i] + rate * g[i] / ROOT(v[i] - mean[i] * mean[i] + epsilon);                     \
    value[i] = old[i] - m[i];
    LOOP(g[i] * g[i]);
#undef STEP
}
#undef RMSPROP_NUMBERS

static void
OF(adagrad)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(s, 0)
    NUMBER(rate, COI_RMSPROP_RATE)
    NUMBER(epsilon, COI_RMSPROP_EPSILON)

#define STEP                                                                                       \
    s[i] += q;                                                                                     \
    value[i] = old[i] - rate * g[i] / ROOT(s[i] + epsilon);
    LOOP(g[i] * g[i]);
#undef STEP
}

/* The square of a step of which powers has squares is computed in the same way for both, so that
 * slices that name every row once have the bits of the dense gradient. */
static void
OF(adadelta)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(s, 0)
    SLOT(d, 1)
    NUMBER(rate, COI_RMSPROP_RATE)
    NUMBER(rho, COI_RMSPROP_RHO)
    NUMBER(rest, COI_RMSPROP_REST)
    NUMBER(epsilon, COI_RMSPROP_EPSILON)

#define STEP                                                                                       \
    REAL scale;                                                                                    \
                                                                                                   \
    s[i] = rho * s[i] + rest * q;                                                                  \
    scale = ROOT(d[i] + epsilon) / ROOT(s[i] + epsilon);                                           \
    d[i] = rho * d[i] + rest * (scale * scale * q);                                                \
    value[i] = old[i] - rate * (scale * g[i]);
    LOOP(g[i] * g[i]);
#undef STEP
}

static void
OF(adamax)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    SLOT(u, 1)
    NUMBER(towards_g, COI_ADAM_TOWARDS_G)
    NUMBER(beta_2, COI_ADAM_TOWARDS_SQUARE)
    NUMBER(rate, COI_ADAM_RATE)
    NUMBER(epsilon, COI_ADAM_EPSILON)
    NUMBER(correction, COI_ADAM_CORRECTION)

#define STEP                                                                                       \
    const REAL before = beta_2 * u[i];                                                             \
                                                                                                   \
    m[i] += (g[i] - m[i]) * towards_g;                                                             \
    u[i] = before >= q ? before : q;                                                               \
    value[i] = old[i] - rate * m[i] / (correction * (u[i] + epsilon));
    LOOP(MAGNITUDE(g[i]));
#undef STEP
}

static void
OF(nadam)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    SLOT(v, 1)
    NUMBER(towards_g, COI_ADAM_TOWARDS_G)
    NUMBER(towards_square, COI_ADAM_TOWARDS_SQUARE)
    NUMBER(rate, COI_ADAM_RATE)
    NUMBER(epsilon, COI_ADAM_EPSILON)
    NUMBER(correction, COI_ADAM_CORRECTION)
    NUMBER(of_m, COI_NADAM_OF_M)
    NUMBER(of_g, COI_NADAM_OF_G)

#define STEP                                                                                       \
    m[i] += (g[i] - m[i]) * towards_g;                                                             \
    v[i] += (q - v[i]) * towards_square;                                                           \
    value[i] = old[i] - (of_m * m[i] + of_g * g[i]) * rate / (ROOT(v[i] / correction) + epsilon);
    LOOP(g[i] * g[i]);
#undef STEP
}

/* A NaN is neither above nor below 0 and stays one. */
static void
OF(lion)(const double *o, const coi_update_arrays *a, int64_t n)
{
    ARRAYS
    SLOT(m, 0)
    NUMBER(rate, COI_LION_RATE)
    NUMBER(beta_1, COI_LION_BETA_1)
    NUMBER(beta_2, COI_LION_BETA_2)

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        const REAL towards = m[i] * beta_1 + g[i] * (1 - beta_1);
        const REAL sign = towards > 0 ? 1 : towards < 0 ? -1 : towards;

        value[i] = old[i] - rate * sign;
        m[i] = m[i] * beta_2 + g[i] * (1 - beta_2);
    }
}

#define FTRL                                                                                       \
    ARRAYS                                                                                         \
    SLOT(s, 0)                                                                                     \
    SLOT(linear, 1)                                                                                \
    NUMBER(rate, COI_FTRL_RATE)                                                                    \
    NUMBER(shrinkage, COI_FTRL_SHRINKAGE)                                                          \
    NUMBER(l1, COI_FTRL_L1)                                                                        \
    NUMBER(l2, COI_FTRL_L2)                                                                        \
                                                                                                   \
    LOOP(g[i] * g[i])
#define STEP                                                                                       \
    const REAL w = old[i], sum = s[i] + q, to = P(sum), from = P(s[i]);                            \
    const REAL l = linear[i] + (g[i] + shrinkage * w - (to - from) / rate * w);                    \
    const REAL clipped = l < -l1 ? -l1 : l > l1 ? l1 : l;                                          \
                                                                                                   \
    linear[i] = l;                                                                                 \
    s[i] = sum;                                                                                    \
    value[i] = (clipped - l) / (to / rate + l2);

#define P(x) ROOT(x)
static void
OF(ftrl_root)(const double *o, const coi_update_arrays *a, int64_t n)
{
    FTRL;
}
#undef P
/* A power is a call, which no compiler makes for several elements at once. */
#undef VECTORISED
#define VECTORISED
#define P(x) ((REAL)coi_plain_pow((double)(x), o[COI_FTRL_POWER]))
static void
OF(ftrl)(const double *o, const coi_update_arrays *a, int64_t n)
{
    FTRL;
}
#undef P
#undef STEP
#undef FTRL

/* --- what all optimizers have in common --- */

static void
OF(clip)(const void *from, void *to, double factor, double limit, int64_t n)
{
    const REAL *g = from, by = (REAL)factor, most = (REAL)limit;
    REAL       *out = to;

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        const REAL scaled = g[i] * by;
        const REAL below = scaled > most ? most : scaled;

        out[i] = below < -most ? -most : below;
    }
}

static void
OF(decay)(const void *from, void *to, double keep, int64_t n)
{
    const REAL *x = from, by = (REAL)keep;
    REAL       *out = to;

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i)
        out[i] = x[i] * by;
}

static void
OF(average)(const void *from, void *to, double momentum, int64_t n)
{
    const REAL *restrict x = from, old = (REAL)momentum, fresh = 1 - old;
    REAL *restrict average = to;

    COI_INDEPENDENT
    for (int64_t i = 0; i < n; ++i)
        average[i] = old * average[i] + fresh * x[i];
}

/* x - x is 0 for what is finite, else NaN, which no sum loses. */
static bool
OF(is_finite)(const void *from, int64_t n)
{
    const REAL *x = from;
    REAL        sums[16] = { 0 };
    int64_t     i = 0;

    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; ++k)
            sums[k] += x[i + k] - x[i + k];
    for (; i < n; ++i)
        sums[0] += x[i] - x[i];
    for (int k = 1; k < 16; ++k)
        sums[0] += sums[k];
    return sums[0] == 0;
}

#undef NUMBER
#undef SLOT
#undef ARRAYS
#undef LOOP
#undef VECTORISED
#undef OF
