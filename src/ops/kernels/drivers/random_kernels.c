/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers. A call's numbers are a function of the seed (the key of Philox), the number of
 * the call in its context, the replica, and the position in the tensor:
 *
 *     counter words   0     block, low half
 *                     1     block, bits 32 to 39, and replica above
 *                     2, 3  number of the call
 *
 * Those of a stateless call are a function of its own two seeds, in the places of the seed and of
 * the number of the call, and of the position; its replica is one that there never is, so that no
 * other stream has the same numbers.
 *
 * All of this is in the attributes. The counter of a context moves before the kernel starts, in
 * ops/random/random_ops.c.
 *
 * A block gives four numbers, or two of float64. Nothing depends on threads or the instruction set:
 * this file is compiled once, for the baseline, and the logarithm, sine and cosine of Box-Muller
 * are series summed here rather than functions of a C library, which chooses between variants by
 * processor.
 */
#include "ops/kernels/random_kernels.h"

#include "ops/kernels/philox.h"

#include <math.h>

/* A replica that there never is. */
#define NO_REPLICA 0xFFFFFFu

enum { CHUNK = 8192 }; /* numbers per chunk; whole blocks */

/* Which numbers, and where they go. */
typedef struct job {
    uint32_t key[2];
    uint64_t call;
    uint32_t replica;
    co_dtype dtype;
    double   a, b; /* low and high, or mean and standard deviation */
    void    *out;
    int64_t  n;
} job;

static void
draw(const job *j, int64_t block, uint32_t out[4])
{
    uint32_t counter[4] = { (uint32_t)block,
                            j->replica << 8 | ((uint32_t)((uint64_t)block >> 32) & 0xFFu),
                            (uint32_t)j->call, (uint32_t)(j->call >> 32) };

    coi_philox(counter, j->key, out);
}

/* Integers are made of numbers with 53 bits, as those of float64. */
static bool
is_wide(const job *j)
{
    return j->dtype == CO_FLOAT64 || coi_dtypes[j->dtype].integer;
}

/* Numbers in a block. */
static int
per_block(const job *j)
{
    return is_wide(j) ? 2 : 4;
}

/* 53 bits as a number in [0, 1). */
static double
unit_double(uint32_t high, uint32_t low)
{
    uint64_t bits = (uint64_t)high << 32 | low;

    return (double)(bits >> 11) * 0x1p-53;
}

/* The next half float towards minus infinity; both kinds order alike. */
static uint16_t
half_below(uint16_t half)
{
    return (uint16_t)(half == 0 ? 0x8001 : half & 0x8000 ? half + 1 : half - 1);
}

/* Store numbers from position `first` on; with `below` they are kept under the upper limit, which
 * rounding to a coarse dtype would reach. */
static void
put_halves(const job *j, int64_t first, const double *values, int n, bool below)
{
    bool      is_half = j->dtype == CO_FLOAT16;
    float     high = (float)j->b;
    uint16_t *out = (uint16_t *)j->out + first;

    for (int i = 0; i < n; ++i) {
        float    value = (float)values[i];
        uint16_t bits = is_half ? coi_float_to_half(value) : coi_float_to_bfloat(value);
        float    back = is_half ? coi_half_to_float(bits) : coi_bfloat_to_float(bits);

        out[i] = below && back >= high ? half_below(bits) : bits;
    }
}

static void
put(const job *j, int64_t first, const double *values, int n, bool below)
{
    float  *floats = (float *)j->out + first, float_high = (float)j->b;
    double *doubles = (double *)j->out + first;

    if (j->dtype == CO_FLOAT32)
        for (int i = 0; i < n; ++i) {
            float value = (float)values[i];

            floats[i] = below && value >= float_high ? nextafterf(float_high, -INFINITY) : value;
        }
    else if (j->dtype == CO_FLOAT64)
        for (int i = 0; i < n; ++i)
            doubles[i] = below && values[i] >= j->b ? nextafter(j->b, -INFINITY) : values[i];
    else if (coi_dtypes[j->dtype].integer)
        coi_convert(CO_FLOAT64, values, j->dtype,
                    (char *)j->out + (size_t)first * coi_dtypes[j->dtype].size, n);
    else
        put_halves(j, first, values, n, below);
}

/* Numbers in [0, 1) with as many bits as the dtype has, so that none is lost by rounding. */
static void
unit_block(const job *j, int64_t block, double out[4])
{
    uint32_t words[4];
    int      shift = j->dtype == CO_FLOAT32 ? 8 : j->dtype == CO_FLOAT16 ? 21 : 24;
    double   scale = j->dtype == CO_FLOAT32 ? 0x1p-24 : j->dtype == CO_FLOAT16 ? 0x1p-11 : 0x1p-8;

    draw(j, block, words);
    if (is_wide(j)) {
        out[0] = unit_double(words[0], words[1]);
        out[1] = unit_double(words[2], words[3]);
        return;
    }
    for (int i = 0; i < 4; ++i)
        out[i] = (double)(words[i] >> shift) * scale;
}

/* A range beyond the largest double is taken by halves; doubling them again is exact. */
static void
uniform_block(const job *j, int64_t block, double out[4])
{
    double part = isfinite(j->b - j->a) ? 1 : 0.5;
    double low = j->a * part, range = j->b * part - low;

    unit_block(j, block, out);
    for (int i = 0; i < per_block(j); ++i)
        out[i] = (low + range * out[i]) / part;
    if (coi_dtypes[j->dtype].integer) /* rounding may reach high */
        for (int i = 0; i < per_block(j); ++i)
            out[i] = fmin(floor(out[i]), j->b - 1);
}

/*
 * log(x) for 0 < x <= 1: x = m 2^e with m between sqrt(1/2) and sqrt(2), s = (m - 1) / (m + 1), and
 * log(m) is the series 2 (s + s^3/3 + s^5/5 + ...), whose terms fall by 34 each.
 */
static double
series_log(double x)
{
    static const double over[] = { 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                   1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3 };
    int                 e;
    double              m = frexp(x, &e), s, z, sum = 0;

    if (m < 0.70710678118654752440) {
        m *= 2;
        --e;
    }
    s = (m - 1) / (m + 1);
    z = s * s;
    for (int i = 0; i < 11; ++i)
        sum = (sum + over[i]) * z;
    /* ln 2 in two parts, of which the first has few bits: its product with e is exact. */
    return e * 0x1.62e42fefap-1 + (2 * s + (2 * s * sum + e * 0x1.cf79abc9e3b39p-40));
}

/* Sine and cosine of a full turn's part u, 0 <= u < 1: an eighth of a turn at most from a quarter,
 * then the series. */
static void
series_sincos(double u, double *sine, double *cosine)
{
    static const double of_sine[] = { 1.0 / (17 * 16), 1.0 / (15 * 14), 1.0 / (13 * 12),
                                      1.0 / (11 * 10), 1.0 / (9 * 8),   1.0 / (7 * 6),
                                      1.0 / (5 * 4),   1.0 / (3 * 2) };
    static const double of_cosine[] = { 1.0 / (18 * 17), 1.0 / (16 * 15), 1.0 / (14 * 13),
                                        1.0 / (12 * 11), 1.0 / (10 * 9),  1.0 / (8 * 7),
                                        1.0 / (6 * 5),   1.0 / (4 * 3),   1.0 / (2 * 1) };
    int                 quarter = (int)(4 * u + 0.5);
    double              a = (u - quarter * 0.25) * 6.28318530717958647693, z = a * a, s = 1, c = 1;

    for (int i = 0; i < 8; ++i)
        s = 1 - s * (z * of_sine[i]);
    for (int i = 0; i < 9; ++i)
        c = 1 - c * (z * of_cosine[i]);
    s *= a;
    switch (quarter & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}

/* Box-Muller: two normal numbers from u1 in (0, 1] and u2 in [0, 1). */
static void
normal_pair(double u1, double u2, double out[2])
{
    double radius = sqrt(-2 * series_log(u1));

    series_sincos(u2, &out[1], &out[0]);
    out[0] *= radius;
    out[1] *= radius;
}

static void
normal_block(const job *j, int64_t block, double out[4])
{
    uint32_t words[4];

    draw(j, block, words);
    if (j->dtype == CO_FLOAT64) {
        normal_pair(unit_double(words[0], words[1]) + 0x1p-53, unit_double(words[2], words[3]),
                    out);
    } else {
        normal_pair(((double)words[0] + 1) * 0x1p-32, (double)words[1] * 0x1p-32, out);
        normal_pair(((double)words[2] + 1) * 0x1p-32, (double)words[3] * 0x1p-32, out + 2);
    }
    for (int i = 0; i < per_block(j); ++i)
        out[i] = j->a + j->b * out[i];
}

/* One chunk: a few blocks at a time into `values`, then stored. */
static inline void
fill_chunk(const job *j, int64_t chunk, void (*block_fn)(const job *, int64_t, double[4]),
           bool below)
{
    enum { FEW = 256 };
    int64_t first = chunk * CHUNK, last = first + CHUNK < j->n ? first + CHUNK : j->n;
    int     step = per_block(j);
    double  values[FEW];

    for (int64_t i = first; i < last; i += FEW) {
        int n = last - i < FEW ? (int)(last - i) : FEW;

        for (int at = 0; at < n; at += step)
            block_fn(j, (i + at) / step, values + at);
        put(j, i, values, n, below);
    }
}

static void
uniform_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;

    fill_chunk(j, chunk, uniform_block, j->a < j->b);
}

static void
normal_chunk(void *arg, int64_t chunk)
{
    fill_chunk(arg, chunk, normal_block, false);
}

static co_code
random_run(coi_call *call, coi_chunk_fn fn)
{
    const coi_random_attrs *attrs = call->attrs;
    co_value               *out = call->out[0];
    bool                    is_stateless = call->op->kind == COI_RANDOM_STATELESS;
    uint64_t                key = (uint64_t)attrs->seed.at[0];
    job                     j = { .key = { (uint32_t)key, (uint32_t)(key >> 32) },
                                  .call = (uint64_t)attrs->seed.at[1],
                                  .replica = is_stateless ? NO_REPLICA : (uint32_t)attrs->replica,
                                  .dtype = (co_dtype)out->dtype,
                                  .a = attrs->low,
                                  .b = attrs->high,
                                  .out = out->u.tensor.data,
                                  .n = out->u.tensor.num_elements };

    if (j.n > 0)
        coi_parallel(call, (j.n + CHUNK - 1) / CHUNK, fn, &j);
    return CO_OK;
}

co_code
coi_random_uniform_run(coi_call *call)
{
    return random_run(call, uniform_chunk);
}

co_code
coi_random_normal_run(coi_call *call)
{
    return random_run(call, normal_chunk);
}
