/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Powers and cosines in plain double arithmetic. C libraries choose variants of pow and cos by
 * processor, whose last bits differ, so that the components of a variable on different machines
 * would drift apart. These give the same bits everywhere, to about 1e-14 relative.
 */
#ifndef COI_BASE_PLAIN_MATH_H
#define COI_BASE_PLAIN_MATH_H

#include <stdint.h>

/* x^n for n >= 0. */
double coi_plain_power(double x, int64_t n);
/* x^y for x >= 0; NaN for a negative x. */
double coi_plain_pow(double x, double y);
/* cos(pi x) for x in [0, 1]; others are brought there. */
double coi_plain_cos_pi(double x);

#endif
