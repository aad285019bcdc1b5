/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of pooling for one element type: T is f32 or f64, REAL its C type. */
#define OF(name) COI_PASTE(name, T)

enum { POOL_STRIP = 64 }; /* channels at a time */

/* Windows of 2 x 2 that cover the image and nothing else. */
static inline bool
is_in_fours(const coi_pool *p)
{
    return p->kh == 2 && p->kw == 2 && p->sh == 2 && p->sw == 2 && p->h % 2 == 0 && p->w % 2 == 0;
}

/*
 * Windows of 2 x 2 that do not overlap and lie inside, nearly all there are: everything about one
 * stays in registers. x is the upper left pixel, `row` the distance to the one below. In the order
 * of the general loops, so that the bits are theirs.
 */
static inline REAL
OF(pool_larger)(REAL so_far, REAL x)
{
    return ((x > so_far) | (x != x)) ? x : so_far;
}

static COI_NOINLINE void
OF(pool_four)(const REAL *restrict x, int64_t row, REAL *restrict y, int64_t n)
{
    const REAL *restrict below = x + row;

    for (int64_t c = 0; c < n; ++c) {
        REAL most = OF(pool_larger)(x[c], x[c + n]);

        most = OF(pool_larger)(most, below[c]);
        y[c] = OF(pool_larger)(most, below[c + n]);
    }
}

static inline int
OF(pool_is)(REAL x, REAL y)
{
    return (x == y) | ((x != x) & (y != y));
}

/* So many channels, a constant where this is inlined. `n` is the distance of pixels. */
COI_INLINE void
OF(pool_grad_some)(const REAL *restrict x, int64_t row, const REAL *restrict y,
                   const REAL *restrict g, REAL *restrict dx, int64_t n, int channels)
{
    COI_INDEPENDENT
    for (int c = 0; c < channels; ++c) {
        REAL left = g[c] + 0; /* never -0, as a sum with 0 is not */

        COI_UNROLL
        for (int i = 0; i < 4; ++i) {
            int64_t at = c + i / 2 * row + i % 2 * n;
            int     here = OF(pool_is)(x[at], y[c]);

            dx[at] = here ? left : 0;
            left = here ? 0 : left;
        }
    }
}

/* By sixteen, by four, and one by one: where the maximum is cannot be predicted, so what goes
 * without vectors waits at every branch. */
static COI_NOINLINE void
OF(pool_grad_four)(const REAL *restrict x, int64_t row, const REAL *restrict y,
                   const REAL *restrict g, REAL *restrict dx, int64_t n)
{
    int64_t c = 0;

    for (; c + 16 <= n; c += 16)
        OF(pool_grad_some)(x + c, row, y + c, g + c, dx + c, n, 16);
    for (; c + 4 <= n; c += 4)
        OF(pool_grad_some)(x + c, row, y + c, g + c, dx + c, n, 4);
    for (; c < n; ++c)
        OF(pool_grad_some)(x + c, row, y + c, g + c, dx + c, n, 1);
}

static void
OF(pool_forward)(const coi_pool *p, const void *x_data, void *y_data, int64_t first, int64_t last)
{
    REAL *restrict y = (REAL *)y_data + first * p->ow * p->c;
    int64_t line = p->w * p->c;

    for (int64_t row = first; row < last; ++row) {
        const REAL *image = (const REAL *)x_data + row / p->oh * p->h * line;

        if (sizeof(REAL) == sizeof(float) && is_in_fours(p)) {
            for (int64_t ox = 0; ox < p->ow; ++ox, y += p->c)
                OF(pool_four)(image + row % p->oh * 2 * line + ox * 2 * p->c, line, y, p->c);
            continue;
        }
        for (int64_t ox = 0; ox < p->ow; ++ox, y += p->c) {
            coi_pool_window at = coi_pool_window_at(p, row % p->oh, ox);

            memcpy(y, image + (at.y0 * p->w + at.x0) * p->c, (size_t)p->c * sizeof(REAL));
            for (int64_t iy = at.y0; iy < at.y1; ++iy)
                for (int64_t ix = at.x0; ix < at.x1; ++ix) {
                    const REAL *restrict x = image + (iy * p->w + ix) * p->c;

                    for (int64_t c = 0; c < p->c; ++c)
                        y[c] = ((x[c] > y[c]) | (x[c] != x[c])) ? x[c] : y[c];
                }
        }
    }
}

/* One strip of channels of one window: `left` is what still looks for its maximum. */
static inline void
OF(pool_grad_strip)(const coi_pool *p, coi_pool_window at, const REAL *x, const REAL *restrict y,
                    const REAL *restrict g, REAL *dx, int n)
{
    REAL left[POOL_STRIP];

    for (int c = 0; c < n; ++c)
        left[c] = g[c];
    for (int64_t iy = at.y0; iy < at.y1; ++iy)
        for (int64_t ix = at.x0; ix < at.x1; ++ix) {
            const REAL *restrict from = x + (iy * p->w + ix) * p->c;
            REAL *restrict to = dx + (iy * p->w + ix) * p->c;

            for (int c = 0; c < n; ++c) {
                int is_max = (from[c] == y[c]) | ((from[c] != from[c]) & (y[c] != y[c]));

                to[c] += is_max ? left[c] : 0;
                left[c] = is_max ? 0 : left[c];
            }
        }
}

static void
OF(pool_grad)(const coi_pool *p, const void *x_data, const void *y_data, const void *g_data,
              void *dx_data, int64_t first, int64_t last)
{
    int64_t     line = p->w * p->c, image = p->h * line;
    const REAL *y = (const REAL *)y_data + first * p->oh * p->ow * p->c;
    const REAL *g = (const REAL *)g_data + first * p->oh * p->ow * p->c;

    for (int64_t n = first; n < last; ++n) {
        const REAL *x = (const REAL *)x_data + n * image;
        REAL       *dx = (REAL *)dx_data + n * image;

        if (sizeof(REAL) == sizeof(float) && is_in_fours(p)) {
            for (int64_t oy = 0; oy < p->oh; ++oy, x += line, dx += line)
                for (int64_t ox = 0; ox < p->ow;
                     ++ox, y += p->c, g += p->c, x += 2 * p->c, dx += 2 * p->c)
                    OF(pool_grad_four)(x, line, y, g, dx, p->c);
            continue;
        }
        memset(dx, 0, (size_t)image * sizeof(REAL));
        for (int64_t oy = 0; oy < p->oh; ++oy)
            for (int64_t ox = 0; ox < p->ow; ++ox, y += p->c, g += p->c) {
                coi_pool_window at = coi_pool_window_at(p, oy, ox);

                for (int64_t c = 0; c < p->c; c += POOL_STRIP)
                    OF(pool_grad_strip)
                (p, at, x + c, y + c, g + c, dx + c,
                 p->c - c < POOL_STRIP ? (int)(p->c - c) : POOL_STRIP);
            }
    }
}

static inline void
OF(pool_pick_strip)(const coi_pool *p, coi_pool_window at, const REAL *x, const REAL *restrict y,
                    const REAL *u, REAL *restrict out, int n)
{
    REAL is_open[POOL_STRIP];

    for (int c = 0; c < n; ++c) {
        is_open[c] = 1;
        out[c] = 0;
    }
    for (int64_t iy = at.y0; iy < at.y1; ++iy)
        for (int64_t ix = at.x0; ix < at.x1; ++ix) {
            const REAL *restrict from = x + (iy * p->w + ix) * p->c;
            const REAL *restrict value = u + (iy * p->w + ix) * p->c;

            for (int c = 0; c < n; ++c) {
                int is_max = (from[c] == y[c]) | ((from[c] != from[c]) & (y[c] != y[c]));

                out[c] = (is_max & (is_open[c] != 0)) ? value[c] : out[c];
                is_open[c] = is_max ? 0 : is_open[c];
            }
        }
}

/* Nobody waits for second derivatives of pooling: for size. */
static __attribute__((cold)) void
OF(pool_grad_grad)(const coi_pool *p, const void *x_data, const void *y_data, const void *u_data,
                   void *out_data, int64_t first, int64_t last)
{
    const REAL *y = (const REAL *)y_data + first * p->ow * p->c;
    REAL       *out = (REAL *)out_data + first * p->ow * p->c;

    for (int64_t row = first; row < last; ++row) {
        int64_t image = row / p->oh * p->h * p->w * p->c;

        for (int64_t ox = 0; ox < p->ow; ++ox, y += p->c, out += p->c) {
            coi_pool_window at = coi_pool_window_at(p, row % p->oh, ox);

            for (int64_t c = 0; c < p->c; c += POOL_STRIP)
                OF(pool_pick_strip)
            (p, at, (const REAL *)x_data + image + c, y + c, (const REAL *)u_data + image + c,
             out + c, p->c - c < POOL_STRIP ? (int)(p->c - c) : POOL_STRIP);
        }
    }
}

const coi_pool_kernels COI_PER_ISA(OF(coi_pool)) = {
    .forward = OF(pool_forward),
    .grad = OF(pool_grad),
    .grad_grad = OF(pool_grad_grad),
};

#undef OF
