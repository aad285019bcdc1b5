/* SPDX-License-Identifier: Apache-2.0 */
/*
 * These functions as a programmer would write them for one program: plain loops, compiled with AVX2
 * and free to reorder (-O3 -march=x86-64-v3 -ffast-math). They know their shapes, take finite
 * numbers of moderate size and are as exact as is easy. They are the limits of the operators in
 * `cohort-bench elementwise`, in the same run.
 */
#include "hand_written.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* 2^n (1 + p(r)), x = n ln 2 + r; right to about 7e-8 from -87 to 88. */
static inline float
exp_of(float x)
{
    const float shift = 12582912.0F; /* 1.5 * 2^23: adding it rounds to the nearest integer */
    float       n = fmaf(x, 1.44269504F, shift), r, p, scale;
    uint32_t    bits;

    memcpy(&bits, &n, sizeof(bits));
    n -= shift;
    r = fmaf(n, -0.693145752F, x);
    r = fmaf(n, -1.42860677e-6F, r);
    p = fmaf(0.00139276846F, r, 0.00836438069F);
    p = fmaf(p, r, 0.0416665454F);
    p = fmaf(p, r, 0.166665696F);
    p = fmaf(p, r, 0.5F);
    p = fmaf(p, r, 1.0F);
    p = fmaf(p, r, 1.0F);
    bits = (bits + 127) << 23;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

static inline float
tanh_of(float x)
{
    return 1 - 2 / (exp_of(2 * x) + 1);
}

void
hand_relu(const hand_arrays *a)
{
    for (int i = 0; i < HAND_ELEMENTS; ++i)
        a->y[i] = a->x[i] > 0 ? a->x[i] : 0;
}

void
hand_exp(const hand_arrays *a)
{
    for (int i = 0; i < HAND_ELEMENTS; ++i)
        a->y[i] = exp_of(a->x[i]);
}

void
hand_tanh(const hand_arrays *a)
{
    for (int i = 0; i < HAND_ELEMENTS; ++i)
        a->y[i] = tanh_of(a->x[i]);
}

#define GELU_A 0.797884561F /* sqrt(2 / pi) */
#define GELU_B 0.044715F

void
hand_gelu(const hand_arrays *a)
{
    for (int i = 0; i < HAND_ELEMENTS; ++i) {
        float x = a->x[i];

        a->y[i] = 0.5F * x * (1 + tanh_of(GELU_A * x * (1 + GELU_B * x * x)));
    }
}

void
hand_gelu_back(const hand_arrays *a)
{
    hand_gelu(a);
    for (int i = 0; i < HAND_ELEMENTS; ++i) {
        float x = a->x[i], t = tanh_of(GELU_A * x * (1 + GELU_B * x * x));
        float slope = GELU_A * (1 + 3 * GELU_B * x * x);

        a->dx[i] = a->g[i] * 0.5F * (1 + t + x * (1 - t * t) * slope);
    }
}

/* y = exp(x - max) of one row; the sum. */
static inline float
exps_of_row(const float *restrict x, float *restrict y, float *most)
{
    float max = x[0], sum = 0;

    for (int i = 1; i < HAND_COLUMNS; ++i)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < HAND_COLUMNS; ++i) {
        y[i] = exp_of(x[i] - max);
        sum += y[i];
    }
    *most = max;
    return sum;
}

void
hand_softmax(const hand_arrays *a)
{
    for (int row = 0; row < HAND_ROWS; ++row) {
        float *y = a->y + row * HAND_COLUMNS, max;
        float  factor = 1 / exps_of_row(a->x + row * HAND_COLUMNS, y, &max);

        for (int i = 0; i < HAND_COLUMNS; ++i)
            y[i] *= factor;
    }
}

/* The losses, and the gradient of their sum. */
void
hand_cross_entropy(const hand_arrays *a)
{
    for (int row = 0; row < HAND_ROWS; ++row) {
        const float *x = a->x + row * HAND_COLUMNS;
        float       *dx = a->dx + row * HAND_COLUMNS, max, sum, factor;

        sum = exps_of_row(x, dx, &max);
        factor = 1 / sum;
        for (int i = 0; i < HAND_COLUMNS; ++i)
            dx[i] *= factor;
        dx[a->labels[row]] -= 1;
        a->losses[row] = logf(sum) - (x[a->labels[row]] - max);
    }
}

/* Keeps what was normalised, and the scales, for the way back. */
void
hand_layer_norm(const hand_arrays *a)
{
    for (int row = 0; row < HAND_ROWS; ++row) {
        const float *restrict x = a->x + row * HAND_COLUMNS;
        float *restrict z = a->z + row * HAND_COLUMNS, *restrict y = a->y + row * HAND_COLUMNS;
        float sum = 0, squares = 0, mean, scale;

        for (int i = 0; i < HAND_COLUMNS; ++i)
            sum += x[i];
        mean = sum / HAND_COLUMNS;
        for (int i = 0; i < HAND_COLUMNS; ++i)
            squares += (x[i] - mean) * (x[i] - mean);
        scale = 1 / sqrtf(squares / HAND_COLUMNS + 1e-5F);
        for (int i = 0; i < HAND_COLUMNS; ++i) {
            z[i] = (x[i] - mean) * scale;
            y[i] = z[i] * a->gamma[i] + a->beta[i];
        }
        a->losses[row] = scale;
    }
}

void
hand_layer_norm_back(const hand_arrays *a)
{
    hand_layer_norm(a);
    memset(a->dgamma, 0, HAND_COLUMNS * sizeof(float));
    memset(a->dbeta, 0, HAND_COLUMNS * sizeof(float));
    for (int row = 0; row < HAND_ROWS; ++row) {
        const float *restrict z = a->z + row * HAND_COLUMNS, *restrict g = a->g +
                                                                           row * HAND_COLUMNS;
        float *restrict dx = a->dx + row * HAND_COLUMNS;
        float sum = 0, product = 0;

        for (int i = 0; i < HAND_COLUMNS; ++i) {
            float h = g[i] * a->gamma[i];

            sum += h;
            product += h * z[i];
            a->dgamma[i] += g[i] * z[i];
            a->dbeta[i] += g[i];
        }
        sum /= HAND_COLUMNS;
        product /= HAND_COLUMNS;
        for (int i = 0; i < HAND_COLUMNS; ++i)
            dx[i] = (g[i] * a->gamma[i] - sum - z[i] * product) * a->losses[row];
    }
}
