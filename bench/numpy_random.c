/* SPDX-License-Identifier: Apache-2.0 */
#include "numpy_random.h"

#include <math.h>

/* --- the seed: numpy.random.SeedSequence, a pool of four words --- */

enum { POOL = 4, STATE_WORDS = 8 };

static uint32_t
folded(uint32_t x)
{
    return x ^ x >> 16;
}

/* One word hashed; the constant of the hash changes with every word. */
static uint32_t
hash(uint32_t word, uint32_t *constant, uint32_t factor)
{
    word ^= *constant;
    *constant *= factor;
    return folded(word * *constant);
}

static void
make_pool(uint32_t seed, uint32_t pool[POOL])
{
    const uint32_t factor = 0x931e8875;
    uint32_t       constant = 0x43b0d7e5;

    for (int i = 0; i < POOL; ++i)
        pool[i] = hash(i == 0 ? seed : 0, &constant, factor);
    for (int from = 0; from < POOL; ++from)
        for (int to = 0; to < POOL; ++to)
            if (from != to)
                pool[to] = folded(0xca01f9ddu * pool[to] -
                                  0x4973f715u * hash(pool[from], &constant, factor));
}

/* --- the generator: PCG64, a linear congruential generator whose output is folded and rotated ---
 */

static void
advance(numpy_random *r)
{
    const numpy_uint128 factor = (numpy_uint128)0x2360ed051fc65da4 << 64 | 0x4385df649fccf645;

    r->state = r->state * factor + r->increment;
}

static uint64_t
next_uint64(numpy_random *r)
{
    uint64_t word;
    unsigned turn;

    advance(r);
    word = (uint64_t)(r->state >> 64) ^ (uint64_t)r->state;
    turn = (unsigned)(r->state >> 122);
    return word >> turn | word << (-turn & 63);
}

static uint32_t
next_uint32(numpy_random *r)
{
    uint64_t word;

    if (r->has_half) {
        r->has_half = false;
        return r->half;
    }
    word = next_uint64(r);
    r->has_half = true;
    r->half = (uint32_t)(word >> 32);
    return (uint32_t)word;
}

/* In [0, 1). */
static double
next_double(numpy_random *r)
{
    return (double)(next_uint64(r) >> 11) * 0x1p-53;
}

numpy_random
numpy_random_of(uint32_t seed)
{
    uint32_t     pool[POOL], constant = 0x8b51f9dd;
    uint64_t     words[STATE_WORDS / 2] = { 0 };
    numpy_random r = { .state = 0 };

    make_pool(seed, pool);
    for (int i = 0; i < STATE_WORDS; ++i)
        words[i / 2] |= (uint64_t)hash(pool[i % POOL], &constant, 0x58f38ded) << (i % 2 * 32);
    r.increment = ((numpy_uint128)words[2] << 64 | words[3]) << 1 | 1;
    advance(&r);
    r.state += (numpy_uint128)words[0] << 64 | words[1];
    advance(&r);
    return r;
}

/* --- normal numbers: the ziggurat of Marsaglia and Tsang with 256 layers --- */

enum { LAYERS = 256 };

/* Where the tail begins. It makes the areas of all layers equal. */
#define TAIL 3.6541528853610087963519472518L

typedef struct ziggurat {
    uint64_t inside[LAYERS]; /* below this, x lies under the curve whatever y is */
    double   width[LAYERS];  /* of one step of x, of which a layer has 2^52 */
    double   height[LAYERS]; /* of the curve at the right edge of a layer */
} ziggurat;

static long double
density(long double x)
{
    return expl(-0.5L * x * x);
}

static ziggurat
make_ziggurat(void)
{
    const long double steps = 0x1p52L;
    long double       right = TAIL;
    long double       area = TAIL * density(TAIL) + sqrtl(2 * atanl(1)) * erfcl(TAIL / sqrtl(2));
    long double       base = area / density(TAIL); /* of the layer with the tail, as a rectangle */
    ziggurat          z;

    z.inside[0] = (uint64_t)(TAIL / base * steps);
    z.width[0] = (double)(base / steps);
    z.height[0] = 1;
    for (int i = LAYERS - 1; i > 0; --i) {
        long double left = i > 1 ? sqrtl(-2 * logl(area / right + density(right))) : 0;

        z.inside[i] = (uint64_t)(left / right * steps);
        z.width[i] = (double)(right / steps);
        z.height[i] = (double)density(right);
        right = left;
    }
    return z;
}

/* Beyond TAIL. */
static double
draw_tail(numpy_random *r, bool negative)
{
    double x, y;

    do {
        x = -(double)(1 / TAIL) * log1p(-next_double(r));
        y = -log1p(-next_double(r));
    } while (y + y <= x * x);
    x += (double)TAIL;
    return negative ? -x : x;
}

static double
draw_normal(const ziggurat *z, numpy_random *r)
{
    for (;;) {
        uint64_t word = next_uint64(r); /* layer, sign and x, from the lowest bit on */
        int      layer = (int)(word & 0xff);
        uint64_t step = word >> 9 & 0xfffffffffffff;
        double   x = (double)step * z->width[layer];

        if ((word >> 8 & 1) != 0)
            x = -x;
        if (step < z->inside[layer])
            return x;
        if (layer == 0)
            return draw_tail(r, (step >> 8 & 1) != 0);
        if ((z->height[layer - 1] - z->height[layer]) * next_double(r) + z->height[layer] <
            exp(-0.5 * x * x))
            return x;
    }
}

void
numpy_standard_normal(numpy_random *random, float *out, size_t n)
{
    ziggurat z = make_ziggurat();

    for (size_t i = 0; i < n; ++i)
        out[i] = (float)draw_normal(&z, random);
}

/* --- integers: the high word of a product, by Lemire's rejection --- */

void
numpy_integers(numpy_random *random, uint32_t end, int32_t *out, size_t n)
{
    uint32_t unfair = (UINT32_MAX - (end - 1)) % end; /* so many low words occur once too often */

    for (size_t i = 0; i < n; ++i) {
        uint64_t product;

        do
            product = (uint64_t)next_uint32(random) * end;
        while ((uint32_t)product < unfair);
        out[i] = (int32_t)(product >> 32);
    }
}
