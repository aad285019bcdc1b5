/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products by an equation: einsum, made of transposes, reshapes and matmul, two operands at
 * a time from the left; and matvec. A label is a letter; the dimensions of an ellipsis have the
 * labels 1, 2, ... from the last one on.
 */
#include "ops/engine/composite.h"
#include "ops/engine/dtype_sets.h"
#include "ops/kernels/strided_slice.h"
#include "ops/engine/type_rules.h"
#include "ops/engine/shared_ops.h"

#include <string.h>

#define MAX_TERMS  16
#define NUM_LABELS 128

typedef struct einsum_attrs {
    char equation[COI_MAX_STRING];
} einsum_attrs;
#define EINSUM_ATTRS(X) X(einsum_attrs, equation, STRING, "", NULL)
COI_ATTR_TABLE(einsum_attrs, EINSUM_ATTRS)

/* A tensor whose dimensions have names. */
typedef struct term {
    co_value *x;
    int       n;
    uint8_t   labels[CO_MAX_DIMS + 1];
    bool      is_open; /* an ellipsis stands for an unknown number of dimensions */
} term;

typedef struct equation {
    term    in[MAX_TERMS];
    term    out; /* labels alone */
    int64_t size[NUM_LABELS];
    int     count[NUM_LABELS];
    int     num_ellipsis; /* the most dimensions that one stands for */
    bool    is_open;      /* and there may be more of them */
} equation;

static bool
is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int
position_of(const term *t, uint8_t label)
{
    for (int i = 0; i < t->n; ++i)
        if (t->labels[i] == label)
            return i;
    return -1;
}

/*
 * The labels from *text up to a comma, an arrow or the end. `ndim` is the rank that they must come
 * to; below 0 it is unknown, or they are those of the result, and an ellipsis is as long as
 * `ellipsis` says.
 */
static co_code
read_labels(coi_call *call, const char **text, int ndim, int ellipsis, term *t)
{
    const char *at = *text;
    int         letters = 0, dots = 0;

    for (; *at != '\0' && *at != ',' && *at != '-'; ++at) {
        letters += is_letter(*at);
        dots += *at == '.';
        if (!is_letter(*at) && *at != '.' && *at != ' ')
            return coi_invalid(
                call, "equation '%s' has a '%c'; it is made of letters, '...', ',' and '->'",
                ((const einsum_attrs *)call->attrs)->equation, *at);
    }
    if (dots != 0 && (dots != 3 || strstr(*text, "...") == NULL))
        return coi_invalid(call, "equation '%s' has %d dot%s in a term; an ellipsis is '...'",
                           ((const einsum_attrs *)call->attrs)->equation, dots, COI_S(dots));
    if (ndim >= 0)
        ellipsis = dots > 0 ? ndim - letters : 0;
    if (ellipsis < 0 || (ndim >= 0 && letters + ellipsis != ndim) ||
        letters + ellipsis > CO_MAX_DIMS)
        return coi_invalid(call, "equation '%s' has a term of %d letter%s for a tensor of rank %d",
                           ((const einsum_attrs *)call->attrs)->equation, letters, COI_S(letters),
                           ndim);
    t->is_open = ndim < 0 && dots > 0;
    for (at = *text; *at != '\0' && *at != ',' && *at != '-'; ++at) {
        if (is_letter(*at))
            t->labels[t->n++] = (uint8_t)*at;
        for (int k = *at == '.' ? ellipsis : 0; k > 0; --k)
            t->labels[t->n++] = (uint8_t)k;
        at += *at == '.' ? 2 : 0;
    }
    *text = at;
    return CO_OK;
}

/* A dimension of the ellipsis may be 1 where another has more. */
static co_code
note_sizes(coi_call *call, equation *e, int i)
{
    const term *t = &e->in[i];

    for (int d = 0; d < t->n; ++d) {
        uint8_t  label = t->labels[d];
        int64_t  dim = coi_is_unknown_rank(t->x) ? COI_UNKNOWN : t->x->u.tensor.dims[d];
        int64_t *size = &e->size[label];
        bool     may_stretch = label <= CO_MAX_DIMS, fits = true;
        coi_out  both;

        if (e->count[label]++ == 0)
            *size = dim;
        else if (!may_stretch)
            fits = coi_merge_dim(size, dim);
        else if ((fits = coi_broadcast(size, 1, &dim, 1, &both)))
            *size = both.dims[0];
        if (!fits)
            return coi_invalid(call,
                               "dimension %d of xs[%d] is %lld, and %lld where '%c' was before", d,
                               i, (long long)dim, (long long)*size, may_stretch ? '.' : label);
        if (may_stretch && label > e->num_ellipsis)
            e->num_ellipsis = label;
    }
    return CO_OK;
}

/* Without an arrow: the ellipsis, then what occurs once, in the order of the alphabet. */
static co_code
implied_result(coi_call *call, equation *e)
{
    for (int label = e->num_ellipsis; label > 0; --label)
        e->out.labels[e->out.n++] = (uint8_t)label;
    for (int label = 'A'; label <= 'z'; ++label) {
        if (e->count[label] != 1)
            continue;
        if (e->out.n == CO_MAX_DIMS)
            return coi_invalid(call, "the result would have more than %d dimensions", CO_MAX_DIMS);
        e->out.labels[e->out.n++] = (uint8_t)label;
    }
    return CO_OK;
}

static co_code
read_equation(coi_call *call, equation *e)
{
    const char *text = ((const einsum_attrs *)call->attrs)->equation, *at = text;
    co_code     code = CO_OK;

    memset(e, 0, sizeof(*e));
    for (int i = 0; i < call->num_in; ++i) {
        e->in[i].x = call->in[i];
        code = read_labels(call, &at, call->in[i]->ndim, 0, &e->in[i]);
        e->is_open = e->is_open || e->in[i].is_open;
        if (code == CO_OK)
            code = note_sizes(call, e, i);
        if (code != CO_OK)
            return code;
        if ((*at == ',') != (i + 1 < call->num_in))
            return coi_invalid(call, "equation '%s' does not have %d term%s, one for each input",
                               text, call->num_in, COI_S(call->num_in));
        at += *at == ',';
    }
    if (*at == '\0')
        return implied_result(call, e);
    if (at[1] != '>')
        return coi_invalid(call, "equation '%s' has a '-' without '>'", text);
    at += 2;
    code = read_labels(call, &at, -1, e->num_ellipsis, &e->out);
    if (code == CO_OK && *at != '\0')
        return coi_invalid(call, "equation '%s' goes on behind the result", text);
    for (int label = 1; code == CO_OK && label <= e->num_ellipsis; ++label)
        if (position_of(&e->out, (uint8_t)label) < 0)
            return coi_invalid(call,
                               "equation '%s': the result has no '...' for that of the inputs",
                               text);
    for (int d = 0; code == CO_OK && d < e->out.n; ++d) {
        if (e->count[e->out.labels[d]] == 0)
            return coi_invalid(call, "equation '%s': the inputs have no '%c' of the result", text,
                               e->out.labels[d]);
        if (position_of(&e->out, e->out.labels[d]) != d)
            return coi_invalid(call, "equation '%s': the result has '%c' twice", text,
                               e->out.labels[d]);
    }
    return code;
}

/* Dimensions in another order: perm[i] is where the new one i was. */
static void
permute(co_context *ctx, term *t, const int *perm)
{
    uint8_t old[CO_MAX_DIMS];
    bool    is_same = true;

    memcpy(old, t->labels, (size_t)t->n);
    for (int i = 0; i < t->n; ++i) {
        t->labels[i] = old[perm[i]];
        is_same = is_same && perm[i] == i;
    }
    if (!is_same)
        t->x = co_transpose(ctx, t->x, perm, (size_t)t->n);
}

/* The diagonal of two dimensions of one label: every n + 1st element of the two made one, at the
 * end. */
static bool
take_diagonal(co_context *ctx, term *t, int first, int second)
{
    int               perm[CO_MAX_DIMS], n = 0;
    coi_strided_attrs attrs;
    int64_t           dims[CO_MAX_DIMS];

    for (int d = 0; d < t->n; ++d)
        if (d != first && d != second)
            perm[n++] = d;
    perm[n] = first;
    perm[n + 1] = second;
    permute(ctx, t, perm);
    if (t->x == NULL)
        return false;
    memset(&attrs, 0, sizeof(attrs));
    attrs.begin.n = attrs.strides.n = attrs.shape.n = n + 1;
    for (int d = 0; d <= n; ++d) {
        dims[d] = attrs.shape.at[d] = t->x->u.tensor.dims[d];
        attrs.strides.at[d] = d < n ? 1 : dims[d] + 1;
    }
    dims[n] *= dims[n];
    t->x = coi_strided(ctx, co_reshape(ctx, t->x, dims, n + 1), &attrs);
    t->n = n + 1;
    return t->x != NULL;
}

/* Repeated labels made one, dimensions of an ellipsis stretched, and what nobody keeps added up. */
static bool
prepare(co_context *ctx, const equation *e, term *t, const bool *keep)
{
    int     axes[CO_MAX_DIMS], n = 0, left = 0;
    int64_t dims[CO_MAX_DIMS];

    for (int d = 0; d < t->n; ++d) {
        int first = position_of(t, t->labels[d]);

        if (first != d) {
            if (!take_diagonal(ctx, t, first, d))
                return false;
            d = -1; /* the order is another one now */
        }
    }
    for (int d = 0; d < t->n; ++d)
        dims[d] = e->size[t->labels[d]];
    if (t->n > 0 && memcmp(dims, t->x->u.tensor.dims, (size_t)t->n * sizeof(int64_t)) != 0)
        t->x = co_broadcast_to(ctx, t->x, dims, t->n);
    for (int d = 0; d < t->n; ++d) {
        if (keep[t->labels[d]])
            t->labels[left++] = t->labels[d];
        else
            axes[n++] = d;
    }
    t->n = left;
    if (n > 0)
        t->x = co_reduce_sum(ctx, t->x, axes, (size_t)n, false);
    return t->x != NULL;
}

/* A term as [batch, rows, columns]: groups of labels in that order, of `group[label]` 0, 1 and
 * 2. */
static co_value *
as_matrices(co_context *ctx, term *t, const uint8_t *group, int64_t dims[3])
{
    int perm[CO_MAX_DIMS], n = 0;

    dims[0] = dims[1] = dims[2] = 1;
    for (int g = 0; g < 3; ++g)
        for (int d = 0; d < t->n; ++d)
            if (group[t->labels[d]] == g) {
                dims[g] *= t->x->u.tensor.dims[d];
                perm[n++] = d;
            }
    permute(ctx, t, perm);
    return co_reshape(ctx, t->x, dims, 3);
}

/* a times b, over the labels that both have and nobody else keeps. */
static bool
contract(coi_call *call, const equation *e, term *a, term *b, const bool *keep)
{
    co_context *ctx = call->ctx;
    uint8_t     group_a[NUM_LABELS] = { 0 }, group_b[NUM_LABELS] = { 0 };
    term        result = { .n = 0 };
    int64_t     dims_a[3], dims_b[3], dims[2 * CO_MAX_DIMS];
    co_value   *x, *y;

    for (int d = 0; d < a->n; ++d) /* both: batch, or summed; a alone: rows */
        group_a[a->labels[d]] = position_of(b, a->labels[d]) < 0 ? 1 : keep[a->labels[d]] ? 0 : 2;
    for (int d = 0; d < b->n; ++d)
        group_b[b->labels[d]] = position_of(a, b->labels[d]) < 0 ? 2 : keep[b->labels[d]] ? 0 : 1;
    /* Labels that both share have to come in one order: that of a. */
    for (int d = 0, at = 0; d < a->n; ++d) {
        int from = position_of(b, a->labels[d]), perm[CO_MAX_DIMS], n = 0;

        if (from < 0)
            continue;
        for (int k = 0; k < b->n; ++k)
            if (k != from)
                perm[n++] = k;
        memmove(perm + at + 1, perm + at, (size_t)(b->n - 1 - at) * sizeof(int));
        perm[at++] = from;
        permute(ctx, b, perm);
        if (b->x == NULL)
            return false;
    }
    x = as_matrices(ctx, a, group_a, dims_a);
    y = as_matrices(ctx, b, group_b, dims_b);
    for (int d = 0; d < a->n + b->n; ++d) {
        const term *from = d < a->n ? a : b;
        uint8_t     label = from->labels[d < a->n ? d : d - a->n];

        if (d < a->n ? group_a[label] == 2 : group_b[label] != 2)
            continue;
        if (result.n == CO_MAX_DIMS) {
            coi_invalid(call, "a product on the way has more than %d dimensions", CO_MAX_DIMS);
            return false;
        }
        dims[result.n] = e->size[label];
        result.labels[result.n++] = label;
    }
    *a = result;
    a->x = co_reshape(ctx, co_matmul(ctx, x, y), dims, result.n);
    return a->x != NULL;
}

static co_code
check_count(coi_call *call)
{
    return call->num_in <= MAX_TERMS
               ? CO_OK
               : coi_invalid(call, "%d inputs; at most %d", call->num_in, MAX_TERMS);
}

static co_code
einsum_rule(coi_call *call, coi_out *outs)
{
    equation e;
    co_code  code;

    coi_out_unknown(outs, (co_dtype)call->in[0]->dtype);
    code = check_count(call);
    if (code == CO_OK)
        code = read_equation(call, &e);
    if (code != CO_OK || e.is_open) /* the result has the ellipsis too */
        return code;
    outs[0].ndim = e.out.n;
    for (int d = 0; d < e.out.n; ++d)
        outs[0].dims[d] = e.size[e.out.labels[d]];
    return CO_OK;
}

static co_value *
einsum_composite(coi_call *call)
{
    equation e;
    bool     keep[NUM_LABELS];
    int      perm[CO_MAX_DIMS];

    if (check_count(call) != CO_OK || read_equation(call, &e) != CO_OK)
        return NULL;
    for (int i = 0; i < call->num_in; ++i) {
        memset(keep, 0, sizeof(keep)); /* by the result, and by operands that are to come */
        for (int d = 0; d < e.out.n; ++d)
            keep[e.out.labels[d]] = true;
        for (int k = i + 1; k < call->num_in; ++k)
            for (int d = 0; d < e.in[k].n; ++d)
                keep[e.in[k].labels[d]] = true;
        if (i > 0) {
            bool own[NUM_LABELS];

            memcpy(own, keep, sizeof(keep));
            for (int d = 0; d < e.in[0].n; ++d)
                own[e.in[0].labels[d]] = true;
            if (!prepare(call->ctx, &e, &e.in[i], own) ||
                !contract(call, &e, &e.in[0], &e.in[i], keep))
                return NULL;
        } else if (!prepare(call->ctx, &e, &e.in[0], keep)) {
            return NULL;
        }
    }
    if (!prepare(call->ctx, &e, &e.in[0], keep))
        return NULL;
    for (int d = 0; d < e.out.n; ++d)
        perm[d] = position_of(&e.in[0], e.out.labels[d]);
    permute(call->ctx, &e.in[0], perm);
    return co_identity(call->ctx, e.in[0].x);
}

const coi_op coi_op_einsum = {
    COI_COMPOSITE(
        "einsum",
        "Sums of products by an equation: \"ij,jk->ik\" is matmul; '...' stands for any dimensions.",
        "xs"),
    .variadic = true,
    .dtypes = COI_FLOATS | COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64),
    .same_dtype = true,
    COI_ATTRS(einsum_attrs),
    .infer = einsum_rule,
    .composite = einsum_composite,
    .composes_checked = true,
};

co_value *
co_einsum(co_context *ctx, const char *equation_text, co_value *xs)
{
    einsum_attrs attrs = { "" };
    size_t       n;

    COI_ENTER(ctx, "einsum", NULL);
    n = equation_text != NULL ? strlen(equation_text) : 0;
    if (equation_text == NULL || n >= sizeof(attrs.equation)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "einsum: equation is %s; give one of up to %d characters",
                 equation_text == NULL ? "NULL" : "too long", COI_MAX_STRING - 1);
        return NULL;
    }
    memcpy(attrs.equation, equation_text, n);
    return coi_apply_composite_list(ctx, &coi_op_einsum, xs, &attrs);
}

typedef struct matvec_attrs {
    bool transpose_a;
} matvec_attrs;
#define MATVEC_ATTRS(X) X(matvec_attrs, transpose_a, BOOL, "=false", NULL)
COI_ATTR_TABLE(matvec_attrs, MATVEC_ATTRS)

static co_code
matvec_rule(coi_call *call, coi_out *outs)
{
    bool            turns = ((const matvec_attrs *)call->attrs)->transpose_a;
    const co_value *a = call->in[0], *b = call->in[1];
    const int64_t  *a_dims = a->u.tensor.dims, *b_dims = b->u.tensor.dims;
    int64_t         columns, n;
    char            a_text[COI_SHAPE_TEXT], b_text[COI_SHAPE_TEXT];

    outs->dtype = (co_dtype)a->dtype;
    if (coi_is_unknown_rank(a) || coi_is_unknown_rank(b)) {
        coi_out_unknown(outs, (co_dtype)a->dtype);
        if (a->ndim < 0 ? b->ndim != 0 && b->ndim != CO_MAX_DIMS : a->ndim >= 2)
            return CO_OK;
    }
    if (a->ndim < 2 || b->ndim < 1 || b->ndim == CO_MAX_DIMS)
        return coi_invalid(call,
                           "a has rank %d and b %d; a must be made of matrices and b of vectors",
                           a->ndim, b->ndim);
    columns = a_dims[a->ndim - (turns ? 2 : 1)];
    n = b_dims[b->ndim - 1];
    if (coi_dims_fit(columns, n) && coi_broadcast(a_dims, a->ndim - 2, b_dims, b->ndim - 1, outs)) {
        coi_out_insert(outs, outs->ndim, a_dims[a->ndim - (turns ? 1 : 2)]);
        return CO_OK;
    }
    return coi_invalid(call,
                       "a %s%s has %lld column%s, b %s vectors of %lld; these must be equal, and "
                       "dimensions before them equal or 1",
                       coi_shape_text(a_dims, a->ndim, a_text), turns ? " transposed" : "",
                       (long long)columns, COI_S(columns), coi_shape_text(b_dims, b->ndim, b_text),
                       (long long)n);
}

static co_value *
matvec_composite(coi_call *call)
{
    co_context *ctx = call->ctx;

    return co_squeeze(ctx,
                      co_matmul_transposed(ctx, call->in[0], co_expand_dims(ctx, call->in[1], -1),
                                           ((const matvec_attrs *)call->attrs)->transpose_a, false),
                      CO_AXES(-1));
}

const coi_op coi_op_matvec = {
    COI_COMPOSITE("matvec", "The product of matrices and vectors; leading dimensions broadcast.",
                  "a", "b"),
    .dtypes = COI_FLOATS | COI_DTYPE_BIT(CO_INT32) | COI_DTYPE_BIT(CO_INT64),
    .same_dtype = true,
    COI_ATTRS(matvec_attrs),
    .infer = matvec_rule,
    .composite = matvec_composite,
    .parts_are_known = coi_parts_of_any,
};

co_value *
co_matvec(co_context *ctx, co_value *a, co_value *b, bool transpose_a)
{
    matvec_attrs    attrs = { transpose_a };
    co_value *const given[2] = { a, b };

    return coi_apply_composite(ctx, &coi_op_matvec, given, 2, &attrs);
}
