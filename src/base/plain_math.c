/* SPDX-License-Identifier: Apache-2.0 */
/* See plain_math.h. */
#include "base/plain_math.h"

#include <math.h>

/* The same squarings for all, so that a power does not depend on how it is computed. */
double
coi_plain_power(double x, int64_t n)
{
    double result = 1;

    for (; n > 0; n >>= 1, x *= x)
        if ((n & 1) != 0)
            result *= x;
    return result;
}

static const double LN_2 = 0.693147180559945309417;
static const double PI = 3.14159265358979323846;
static const double ROOT_HALF = 0.707106781186547524401;

/* The natural logarithm of m in [sqrt(1/2), sqrt(2)): 2 atanh((m - 1) / (m + 1)). */
static double
log_near_one(double m)
{
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;

    for (int k = 25; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return 2 * s * sum;
}

/* e^x for |x| <= 0.35. */
static double
exp_near_zero(double x)
{
    double sum = 1;

    for (int k = 16; k >= 1; --k)
        sum = 1 + x * sum / k;
    return sum;
}

/* Where x = m 2^e, x^y is 2^n e^r with n the integer nearest to log2(x^y) and r the rest, which is
 * computed from the parts so that a large e costs no digits. */
static double
power_of_parts(double m, int e, double y)
{
    double whole = e * y, part = y * log_near_one(m), n = floor(whole + part / LN_2 + 0.5);
    double rest = (whole - n) * LN_2 + part;

    if (n > 2000)
        return HUGE_VAL;
    return n < -2000 ? 0 : ldexp(exp_near_zero(rest), (int)n);
}

double
coi_plain_pow(double x, double y)
{
    int    e;
    double m;

    if (isnan(x) || isnan(y) || x < 0)
        return NAN;
    if (y == 0 || x == 1)
        return 1;
    if (x == 0 || isinf(x))
        return (x == 0) == (y > 0) ? 0 : HUGE_VAL;
    if (isinf(y))
        return (x > 1) == (y > 0) ? HUGE_VAL : 0;
    if (y > 0 && y <= 1e6 && y == floor(y))
        return coi_plain_power(x, (int64_t)y);
    m = frexp(x, &e);
    if (m < ROOT_HALF) {
        m *= 2;
        --e;
    }
    return power_of_parts(m, e, y);
}

/* sin(t) for |t| <= pi / 4. */
static double
sine(double t)
{
    double square = t * t, sum = 1;

    for (int k = 20; k >= 2; k -= 2)
        sum = 1 - sum * square / (k * (k + 1));
    return t * sum;
}

static double
cosine(double t)
{
    double square = t * t, sum = 1;

    for (int k = 19; k >= 1; k -= 2)
        sum = 1 - sum * square / (k * (k + 1));
    return sum;
}

double
coi_plain_cos_pi(double x)
{
    double sign = 1;

    x = fabs(x);
    x -= 2 * floor(x / 2); /* in [0, 2) */
    if (x > 1)
        x = 2 - x;
    if (x > 0.5) {
        x = 1 - x;
        sign = -1;
    }
    return sign * (x <= 0.25 ? cosine(PI * x) : sine(PI * (0.5 - x)));
}
