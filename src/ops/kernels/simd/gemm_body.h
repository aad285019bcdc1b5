/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of simd_gemm.c for one element type: T is f32 or f64, REAL its C type. Included once for
 * each, hence no guard.
 */
#define OF(name) COI_PASTE(name, T)

enum { OF(NR) = NV * OF(LANES) };

/*
 * rows x (vectors * lanes) of C. rows, vectors, is_part and add are constants where this is
 * inlined. With is_part the last vector of each row has the lanes of `part` alone, in B and in C.
 * Sums have names of their own, because compilers do not always keep an array of them in registers.
 */
#define COI_ROWS(X)                                                                                \
    X(0, a)                                                                                        \
    X(1, a)                                                                                        \
    X(2, a) X(3, a3) X(4, a3) X(5, a3) X(6, a6) X(7, a6) X(8, a6) X(9, a9) X(10, a9) X(11, a9)
#define COI_BEGIN(i, base)                                                                         \
    OF(vec) s##i##0 = OF(zero)(), s##i##1 = OF(zero)(), s##i##2 = OF(zero)(), s##i##3 = OF(zero)();
#define COI_STEP(i, base)                                                                          \
    if (i < rows) {                                                                                \
        OF(vec) av = OF(splat)(base[i % 3 * a_row]);                                               \
                                                                                                   \
        s##i##0 = OF(fma)(av, b0, s##i##0);                                                        \
        if (vectors >= 2)                                                                          \
            s##i##1 = OF(fma)(av, b1, s##i##1);                                                    \
        if (vectors == 4) {                                                                        \
            s##i##2 = OF(fma)(av, b2, s##i##2);                                                    \
            s##i##3 = OF(fma)(av, b3, s##i##3);                                                    \
        }                                                                                          \
    }
#define COI_END(i, base)                                                                           \
    if (i < rows) {                                                                                \
        OF(put)(c + i * c_row, s##i##0, vectors == 1 && is_part, part, add);                       \
        if (vectors >= 2)                                                                          \
            OF(put)(c + i * c_row + OF(LANES), s##i##1, is_part, part, add);                       \
        if (vectors == 4) {                                                                        \
            OF(put)(c + i * c_row + OF(NR), s##i##2, is_part, part, add);                          \
            OF(put)(c + i * c_row + OF(NR) + OF(LANES), s##i##3, is_part, part, add);              \
        }                                                                                          \
    }

COI_INLINE void
OF(put)(REAL *c, OF(vec) sum, bool is_part, OF(part) part, bool add)
{
    if (is_part)
        OF(store_part)(c, add ? OF(add)(OF(load_part)(c, part), sum) : sum, part);
    else
        OF(store)(c, add ? OF(add)(OF(load)(c), sum) : sum);
}

COI_INLINE void
OF(micro)(int rows, int vectors, bool is_part, bool add, int64_t depth, const REAL *a,
          int64_t a_row, int64_t a_col, int64_t a_half, const REAL *b, int64_t b_row,
          int64_t b_half, REAL *c, int64_t c_row, OF(part) part)
{
    /* Base addresses for three rows each: base, base + stride and base + 2 * stride are addressing
     * modes of the machine. Rows from MR on are those of the next panel, a_half behind; the third
     * and fourth vector are of the next panel of B, b_half behind. */
    const REAL *a3 = rows > 3 ? a + 3 * a_row : a;
    const REAL *a6 = rows > MR ? a + a_half : a, *a9 = rows > MR ? a6 + 3 * a_row : a;
    OF(vec) b0, b1 = OF(zero)(), b2 = b1, b3 = b1;
    COI_ROWS(COI_BEGIN)

    for (int64_t k = 0; k < depth; ++k) {
        if (rows > MR) {
            coi_prefetch(a, AHEAD * a_col * (int64_t)sizeof(REAL));
            coi_prefetch(b, AHEAD * b_row * (int64_t)sizeof(REAL));
            coi_prefetch(b, (AHEAD * b_row + OF(LANES)) * (int64_t)sizeof(REAL));
        }
        b0 = vectors == 1 && is_part ? OF(load_part)(b, part) : OF(load)(b);
        if (vectors >= 2)
            b1 = is_part ? OF(load_part)(b + OF(LANES), part) : OF(load)(b + OF(LANES));
        if (vectors == 4) {
            b2 = OF(load)(b + b_half);
            b3 = OF(load)(b + b_half + OF(LANES));
        }
        COI_ROWS(COI_STEP)
        a += a_col;
        a3 += a_col;
        a6 += a_col;
        a9 += a_col;
        b += b_row;
    }
    COI_ROWS(COI_END)
}

/* What the calls of micro for one panel of B have in common. */
typedef struct OF(strip) {
    int64_t     depth, a_row, a_col, b_row, c_row;
    const REAL *b;
    bool        add;
    OF(part) part;
} OF(strip);

#define COI_MICRO(rows, vectors, is_part)                                                          \
    static void COI_PASTE(COI_PASTE(OF(micro), rows), COI_PASTE(vectors, is_part))(                \
        const OF(strip) * s, const REAL *a, REAL *c)                                               \
    {                                                                                              \
        OF(micro)                                                                                  \
        (rows, vectors, is_part, s->add, s->depth, a, s->a_row, s->a_col, 0, s->b, s->b_row, 0, c, \
         s->c_row, s->part);                                                                       \
    }
#define COI_MICRO_PARTS(rows)                                                                      \
    COI_MICRO(rows, 2, 1)                                                                          \
    COI_MICRO(rows, 1, 1)
#define COI_MICRO_ROWS(rows)                                                                       \
    COI_MICRO(rows, 2, 0)                                                                          \
    COI_MICRO_PARTS(rows)
/* Few rows are rare: partial vectors serve for whole ones there, too. */
#if FULL_PART
COI_MICRO_PARTS(1)
COI_MICRO_PARTS(2)
COI_MICRO_PARTS(3)
#else
COI_MICRO_ROWS(1)
COI_MICRO_ROWS(2)
COI_MICRO_ROWS(3)
#endif
COI_MICRO_ROWS(4)
#if MR > 4
COI_MICRO_ROWS(5)
COI_MICRO_ROWS(6)
#endif

#define COI_MICRO_NAME(rows, vectors, is_part)                                                     \
    COI_PASTE(COI_PASTE(OF(micro), rows), COI_PASTE(vectors, is_part))
#define COI_MICRO_ENTRY(rows, whole)                                                               \
    {                                                                                              \
        COI_MICRO_NAME(rows, 2, whole), COI_MICRO_NAME(rows, 2, 1), COI_MICRO_NAME(rows, 1, 1)     \
    }
/* By rows - 1; then: two whole vectors, two with a part, one with a part. */
static void (*const OF(micros)[MR][3])(const OF(strip) * s, const REAL *a, REAL *c) = {
    COI_MICRO_ENTRY(1, FULL_PART), COI_MICRO_ENTRY(2, FULL_PART),
    COI_MICRO_ENTRY(3, FULL_PART), COI_MICRO_ENTRY(4, 0),
#if MR > 4
    COI_MICRO_ENTRY(5, 0),         COI_MICRO_ENTRY(6, 0),
#endif
};

#if TALL
/* More rows than a panel has, those behind it a_half away, against one panel of columns. */
#define COI_TALL(rows)                                                                             \
    static void COI_PASTE(OF(tall), rows)(const OF(strip) * s, const REAL *a, int64_t a_half,      \
                                          REAL *c)                                                 \
    {                                                                                              \
        OF(micro)                                                                                  \
        (rows, 2, false, s->add, s->depth, a, s->a_row, s->a_col, a_half, s->b, s->b_row, 0, c,    \
         s->c_row, s->part);                                                                       \
    }
COI_TALL(7)
COI_TALL(8)
COI_TALL(9)
COI_TALL(10)
COI_TALL(11)
COI_TALL(12)
static void (*const OF(talls)[TALL - MR])(const OF(strip) * s, const REAL *a, int64_t a_half,
                                          REAL *c) = {
    COI_PASTE(OF(tall), 7),  COI_PASTE(OF(tall), 8),  COI_PASTE(OF(tall), 9),
    COI_PASTE(OF(tall), 10), COI_PASTE(OF(tall), 11), COI_PASTE(OF(tall), 12),
};
#undef COI_TALL
#endif

/* Prefetch the lines of C that the next tile writes, while this one is summed. */
COI_INLINE void
OF(ask_for)(REAL *c, int64_t c_row)
{
    COI_UNROLL
    for (int i = 0; i < MR; ++i) {
        coi_prefetch_to_write(c, i * c_row * (int64_t)sizeof(REAL));
        coi_prefetch_to_write(c, (i * c_row + OF(LANES)) * (int64_t)sizeof(REAL));
    }
}

/* One panel of columns against rows [i0, i1). `a` is where the strip's depth begins in row 0 (or in
 * panel 0, when A is packed: then a_panel is the distance of panels). Seven to eleven rows that are
 * left are one tile where there are registers for it; elsewhere those of an A that is not packed
 * are shared out evenly: two tiles of 4 rows are faster than one of 6 and one of 2. */
static void
OF(panel)(const OF(strip) * s, const REAL *a, int64_t a_panel, REAL *c, int64_t i0, int64_t i1,
          int64_t columns)
{
    int     shape = columns == OF(NR) ? 0 : columns > OF(LANES) ? 1 : 2;
    int64_t left = i1 - i0, rows = MR, step = a_panel == 0 ? MR * s->a_row : a_panel;

    a += a_panel == 0 ? i0 * s->a_row : i0 / MR * a_panel;
    c += i0 * s->c_row;
#if TALL
    if (s->depth > TALL_DEPTH && shape == 0)
        for (; left >= TALL + MR || left == TALL; left -= TALL, a += 2 * step, c += TALL * s->c_row)
            OF(talls)[TALL - MR - 1](s, a, step, c);
#endif
    for (; left >= 2 * MR; left -= MR, a += step, c += MR * s->c_row) {
        OF(ask_for)(c + MR * s->c_row, s->c_row);
        OF(micros)[MR - 1][shape](s, a, c);
    }
#if TALL
    if (left > MR && shape == 0) {
        OF(talls)[left - MR - 1](s, a, step, c);
        return;
    }
#endif
    for (; left > 0; left -= rows, a += step, c += rows * s->c_row) {
        rows = left <= MR ? left : a_panel == 0 ? (left + 1) / 2 : MR;
        step = a_panel == 0 ? rows * s->a_row : a_panel;
        OF(micros)[rows - 1][shape](s, a, c);
    }
}

/*
 * Element (i, j) of `from` becomes (j, i) of `to`. The last squares go over a part of those before.
 * Eight rows are read along some columns, line by line. Going across all rows first would evict
 * lines whose distance is a power of two before their second half is read.
 */
static void
OF(gemm_transpose)(const void *given, int64_t from_row, int64_t rows, int64_t columns, void *result,
                   int64_t to_row)
{
    const REAL *from = given;
    REAL       *to = result;

    if (rows < OF(SQUARE) || columns < OF(ACROSS)) {
        for (int64_t j = 0; j < columns; ++j)
            for (int64_t i = 0; i < rows; ++i)
                to[j * to_row + i] = from[i * from_row + j];
        return;
    }
    for (int64_t j0 = 0; j0 < columns; j0 += TURN_COLUMNS) {
        int64_t i0 = 0, end = columns - j0 < TURN_COLUMNS ? columns : j0 + TURN_COLUMNS;

#if TALL
        for (; i0 + 2 * OF(SQUARE) <= rows; i0 += 2 * OF(SQUARE))
            for (int64_t j = j0; j < end; j += OF(ACROSS)) {
                j = j < columns - OF(ACROSS) ? j : columns - OF(ACROSS);
                OF(two_squares)(from + i0 * from_row + j, from_row, to + j * to_row + i0, to_row);
            }
#endif
        for (; i0 < rows; i0 += OF(SQUARE)) {
            int64_t i = i0 < rows - OF(SQUARE) ? i0 : rows - OF(SQUARE);

            for (int64_t j = j0; j < end; j += OF(ACROSS)) {
                j = j < columns - OF(ACROSS) ? j : columns - OF(ACROSS);
                OF(square)(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
            }
        }
    }
}

/*
 * Depths [k0, k0 + depth) of the panel of B that begins with column `first`, element (k, j) at k *
 * NR + j. Columns past the last are left as they are: nobody reads them.
 */
static void
OF(pack_panel)(const coi_gemm *g, int64_t first, int64_t k0, int64_t depth, REAL *to)
{
    int64_t     columns = g->n - first < OF(NR) ? g->n - first : OF(NR);
    const REAL *from = (const REAL *)g->b + first * g->b_col + k0 * g->b_row;

    if (g->b_row == 1) {
        OF(gemm_transpose)(from, g->b_col, columns, depth, to, OF(NR));
    } else if (g->b_col == 1 && columns == OF(NR)) {
        for (int64_t k = 0; k < depth; ++k)
            memcpy(to + k * OF(NR), from + k * g->b_row, OF(NR) * sizeof(REAL));
    } else {
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t j = 0; j < columns; ++j)
                to[k * OF(NR) + j] = from[k * g->b_row + j * g->b_col];
    }
}

static void
OF(gemm_pack_b)(const coi_gemm_plan *plan, int64_t panel)
{
    int64_t slab = plan->k1 - plan->k0, first = panel * OF(NR);

    OF(pack_panel)(&plan->g, first, plan->k0, slab, (REAL *)plan->packed_b + first * slab);
}

/* One panel of columns, packed on the fly because only one tile uses it: it stays in the L1 cache.
 */
static __attribute__((noinline)) void
OF(on_the_fly_panel)(const coi_gemm *g, const OF(strip) * given, int64_t k0, const REAL *a,
                     int64_t i0, int64_t i1, int64_t first, int64_t columns)
{
    _Alignas(COI_ALIGNMENT) REAL packed[COI_GEMM_KC * OF(NR)];
    OF(strip) s = *given;

    OF(pack_panel)(g, first, k0, s.depth, packed);
    s.b = packed;
    OF(panel)(&s, a, 0, (REAL *)g->c + first, i0, i1, columns);
}

COI_INLINE bool
OF(is_small_k)(const coi_gemm_plan *plan)
{
    return plan->g.k <= COI_GEMM_SMALL_K && !plan->g.accumulate && !plan->pack_a &&
           !plan->pack_on_the_fly;
}

/* Where the rows of whole tiles end: what is left behind them is shared out evenly. */
COI_INLINE int64_t
OF(whole_rows)(int64_t i0, int64_t i1)
{
    int64_t left = (i1 - i0) % MR;

    return left == 0 ? i1 : i1 - i0 < MR ? i0 : i1 - left - MR;
}

/*
 * Whole tiles of rows [i0, i1) and columns [j0, j1), one row of tiles after the other. With a small
 * K a tile costs little more than writing its lines of C, and in this order the lines are
 * contiguous. `b` is the panel of column 0. With 32 registers a tile has two panels of columns:
 * it loads less for each sum, and the L1 cache has time for the lines of C.
 */
static void
OF(small_k)(const OF(strip) * s, const REAL *a, int64_t b_panel, REAL *c, int64_t i0, int64_t i1,
            int64_t j0, int64_t j1)
{
    for (int64_t i = i0; i < i1; i += MR) {
        int64_t j = j0;

#if TALL
        for (; j + 2 * OF(NR) <= j1; j += 2 * OF(NR))
            OF(micro)
        (MR, 4, false, false, s->depth, a + i * s->a_row, s->a_row, s->a_col, 0,
         s->b + j / OF(NR) * b_panel, s->b_row, b_panel, c + i * s->c_row + j, s->c_row, s->part);
#endif
        for (; j < j1; j += OF(NR)) {
            if (j1 - j0 == OF(NR) && i + MR < i1) /* else the row fills its lines in order */
                OF(ask_for)(c + (i + MR) * s->c_row + j, s->c_row);
            OF(micro)
            (MR, 2, false, false, s->depth, a + i * s->a_row, s->a_row, s->a_col, 0,
             s->b + j / OF(NR) * b_panel, s->b_row, 0, c + i * s->c_row + j, s->c_row, s->part);
        }
    }
}

static void
OF(gemm_tile)(const coi_gemm_plan *plan, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    const coi_gemm *g = &plan->g;
    const REAL     *a = plan->pack_a ? plan->packed_a : (const REAL *)g->a + plan->k0 * g->a_col;
    const REAL     *b = plan->pack_b ? plan->packed_b : (const REAL *)g->b + plan->k0 * g->b_row;
    int64_t         slab = plan->k1 - plan->k0;
    int64_t         a_panel = plan->pack_a ? MR * slab : 0;
    int64_t         b_panel = plan->pack_b ? OF(NR) * slab : OF(NR);
    int64_t         whole_j = j0 + (j1 - j0) / OF(NR) * OF(NR), whole_i = i0;
    OF(strip) s;

    s.a_row = plan->pack_a ? 1 : g->a_row;
    s.a_col = plan->pack_a ? MR : g->a_col;
    s.b_row = plan->pack_b || plan->pack_on_the_fly ? OF(NR) : g->b_row;
    s.c_row = g->c_row;
    if (OF(is_small_k)(plan)) {
        whole_i = OF(whole_rows)(i0, i1);
        s.depth = slab;
        s.b = b;
        OF(small_k)(&s, a, b_panel, g->c, i0, whole_i, j0, whole_j);
    }
    for (int64_t k = 0; k < slab; k += COI_GEMM_KC) {
        s.depth = slab - k < COI_GEMM_KC ? slab - k : COI_GEMM_KC;
        s.add = g->accumulate || plan->k0 + k > 0;
        for (int64_t j = j0; j < j1; j += OF(NR)) {
            int64_t columns = j1 - j < OF(NR) ? j1 - j : OF(NR);

            if (!plan->pack_on_the_fly)
                s.b = b + j / OF(NR) * b_panel + k * s.b_row;
            s.part = OF(make_part)(columns > OF(LANES) ? columns - OF(LANES) : columns);
            if (plan->pack_on_the_fly)
                OF(on_the_fly_panel)(g, &s, plan->k0 + k, a + k * s.a_col, i0, i1, j, columns);
            else
                OF(panel)
            (&s, a + k * s.a_col, a_panel, (REAL *)g->c + j, j < whole_j ? whole_i : i0, i1,
             columns);
        }
    }
}

/* Depths [k0, k1) of a panel of A that has MR rows side by side in memory, with what follows them.
 * Copies that are longer than a row of the panel are one instruction each; the next goes over what
 * is too much. */
COI_INLINE void
OF(pack_wide)(const REAL *from, int64_t a_col, REAL *to, int64_t k0, int64_t k1, int64_t slab)
{
    int64_t last = k1 < slab ? k1 : slab - 1;

    for (int64_t k = k0; k < last; ++k)
        memcpy(to + k * MR, from + k * a_col, WIDE * sizeof(REAL));
    if (last < k1)
        memcpy(to + last * MR, from + last * a_col, MR * sizeof(REAL));
}

static void
OF(pack_rows)(const REAL *from, const coi_gemm *g, int64_t rows, REAL *to, int64_t k0, int64_t k1)
{
    for (int64_t k = k0; k < k1; ++k)
        for (int64_t i = 0; i < MR; ++i)
            to[k * MR + i] = i < rows ? from[i * g->a_row + k * g->a_col] : 0;
}

/*
 * Some rows of A as panels, element (i, k) of a panel at k * MR + i; rows past the last are zero
 * and never read. A few depths of all panels first, then the next: where rows are side by side the
 * panels share lines of the cache.
 */
static void
OF(gemm_pack_a)(const coi_gemm_plan *plan, int64_t first, int64_t end)
{
    const coi_gemm *g = &plan->g;
    int64_t         slab = plan->k1 - plan->k0;

    for (int64_t k0 = 0; k0 < slab; k0 += PACK_DEPTH) {
        int64_t k1 = k0 + PACK_DEPTH < slab ? k0 + PACK_DEPTH : slab;

        for (int64_t row = first; row < end; row += MR) {
            const REAL *from = (const REAL *)g->a + row * g->a_row + plan->k0 * g->a_col;
            REAL       *to = (REAL *)plan->packed_a + row * slab;

            if (g->a_row == 1 && row + WIDE <= g->m)
                OF(pack_wide)(from, g->a_col, to, k0, k1, slab);
            else if (row + MR <= end)
                OF(pack_rows)(from, g, MR, to, k0, k1);
            else
                OF(pack_rows)(from, g, end - row, to, k0, k1);
        }
    }
}

const coi_gemm_kernels COI_PER_ISA(OF(coi_gemm)) = {
    .isa = ISA,
    .mr = MR,
    .nr = OF(NR),
    .element_size = sizeof(REAL),
    .pack_a = OF(gemm_pack_a),
    .pack_b = OF(gemm_pack_b),
    .tile = OF(gemm_tile),
    .transpose = OF(gemm_transpose),
};

#undef OF
#undef COI_MICRO
#undef COI_MICRO_PARTS
#undef COI_MICRO_ROWS
#undef COI_MICRO_NAME
#undef COI_MICRO_ENTRY
#undef COI_ROWS
#undef COI_BEGIN
#undef COI_STEP
#undef COI_END
