/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mode --types: the rules of operators over types with unknowns. The inputs of a case become
 * specs, of which some dimensions, or ranks, are unknown. What co_op_infer says then is checked:
 *
 *   - there is no error, since the case has none
 *   - the type is compatible with the recorded output
 *   - it is compatible with the type for each of many shapes that fit the specs and that the
 *     operator accepts (samples); so nothing is said to be known that depends on an unknown
 *   - what is the same for all of these shapes is known
 */
#include "types.h"

#include <stdio.h>
#include <string.h>

#define MAX_COMBINATIONS 64
#define MAX_RESULTS      40
#define MAX_CANDIDATES   64
#define RANDOM_SAMPLES   48
#define UNKNOWN          (-1)

const char *const golden_fault_names[] = { "none", "forgets",    "forgets-rank", "invents",
                                           "lies", "lies-dtype", "refuses",      NULL };

typedef struct type {
    co_dtype dtype;
    int      ndim;
    int64_t  dims[CO_MAX_DIMS];
} type;

/* What an operator gives; n is UNKNOWN if even the number of results is. */
typedef struct types {
    bool is_ok;
    bool is_tuple;
    int  n;
    type at[MAX_RESULTS];
} types;

/* A case, taken apart. */
typedef struct subject {
    golden_case    *c;
    const char     *op;
    co_value       *attrs;
    golden_operands in;
    bool            is_tensor[GOLDEN_MAX_OPERANDS];
    type            own[GOLDEN_MAX_OPERANDS];   /* the recorded shapes */
    type            asked[GOLDEN_MAX_OPERANDS]; /* with unknowns */
    types           inferred;                   /* of those */
    types           common;                     /* what all samples agree about */
    int64_t         candidates[MAX_CANDIDATES];
    int             num_candidates;
    uint64_t        random;
    bool            is_with_data; /* inputs without unknowns stay tensors */
} subject;

static uint64_t
draw(subject *s, uint64_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->random >> 33) % below;
}

static void
type_of(co_context *ctx, co_value *value, type *out)
{
    out->dtype = co_value_dtype(ctx, value);
    out->ndim = co_value_ndim(ctx, value);
    for (int d = 0; d < out->ndim; ++d)
        out->dims[d] = co_value_dim(ctx, value, d);
}

static bool
has_unknowns(const type *t)
{
    for (int d = 0; d < t->ndim; ++d)
        if (t->dims[d] < 0)
            return true;
    return t->ndim < 0;
}

/* --- asking --- */

static void
read_types(co_context *ctx, co_value *result, types *out)
{
    out->is_tuple = co_value_kind(result) == CO_KIND_TUPLE;
    out->n = co_value_kind(result) == CO_KIND_NONE ? UNKNOWN
             : out->is_tuple                       ? (int)co_num_items(ctx, result)
                                                   : 1;
    for (int i = 0; i < out->n && i < MAX_RESULTS; ++i)
        type_of(ctx, out->is_tuple ? co_at(ctx, result, (size_t)i) : result, &out->at[i]);
}

/* The types of the results for inputs of these types. `text`, if there is one, gets the error. */
static void
ask(const subject *s, const type *inputs, types *out, char *text, size_t capacity)
{
    co_context *ctx = s->c->ctx;
    co_value   *values[GOLDEN_MAX_OPERANDS], *result;

    co_block_begin(ctx);
    for (size_t i = 0; i < s->in.n; ++i)
        values[i] = !s->is_tensor[i] || (s->is_with_data && !has_unknowns(&inputs[i]))
                        ? s->in.values[i]
                        : co_spec(ctx, inputs[i].dtype, inputs[i].dims, inputs[i].ndim);
    result = co_op_infer(ctx, s->op, co_tuple(ctx, values, s->in.n), s->attrs);
    out->is_ok = result != NULL;
    if (out->is_ok)
        read_types(ctx, result, out);
    else if (text != NULL)
        snprintf(text, capacity, "%.300s", co_error(ctx)->message);
    co_block_end(ctx);
    co_clear(ctx);
}

/* --- faults --- */

static void
put_fault(const subject *s, types *t)
{
    if (s->c->fault == GOLDEN_REFUSES)
        t->is_ok = false;
    for (int i = 0; t->is_ok && i < t->n; ++i) {
        type *one = &t->at[i];

        if (s->c->fault == GOLDEN_FORGETS_RANK)
            one->ndim = UNKNOWN;
        if (s->c->fault == GOLDEN_LIES_DTYPE)
            one->dtype = one->dtype == CO_INT8 ? CO_INT16 : CO_INT8;
        for (int d = 0; d < one->ndim; ++d) {
            if (s->c->fault == GOLDEN_FORGETS)
                one->dims[d] = UNKNOWN;
            if (s->c->fault == GOLDEN_LIES && one->dims[d] >= 0)
                ++one->dims[d];
            if (s->c->fault == GOLDEN_INVENTS && one->dims[d] < 0 && i < s->common.n &&
                s->common.at[i].ndim == one->ndim)
                one->dims[d] = s->common.at[i].dims[d];
        }
    }
}

/* --- judging --- */

static void
write_type(const type *t, char *out, size_t capacity)
{
    size_t at = (size_t)snprintf(out, capacity, "%s", co_dtype_name(t->dtype));

    if (t->ndim < 0) {
        snprintf(out + at, capacity - at, " of unknown rank");
        return;
    }
    at += (size_t)snprintf(out + at, capacity - at, "[");
    for (int d = 0; d < t->ndim && at < capacity - 32; ++d)
        at += t->dims[d] < 0 ? (size_t)snprintf(out + at, capacity - at, "%s?", d > 0 ? "," : "")
                             : (size_t)snprintf(out + at, capacity - at, "%s%lld", d > 0 ? "," : "",
                                                (long long)t->dims[d]);
    snprintf(out + at, capacity - at, "]");
}

/* Note a fault with the inputs that show it. */
static void
complain(subject *s, const type *sample, const char *what, const type *said, const type *other)
{
    char   inputs[300] = "", one[120], a[120] = "", b[120] = "";
    size_t at = 0;

    for (size_t i = 0; i < s->in.n && at < sizeof(inputs) - 1; ++i) {
        write_type(&s->asked[i], one, sizeof(one));
        at += (size_t)snprintf(inputs + at, sizeof(inputs) - at, " %s", one);
        if (sample != NULL && has_unknowns(&s->asked[i]) && at < sizeof(inputs) - 1) {
            write_type(&sample[i], one, sizeof(one));
            at += (size_t)snprintf(inputs + at, sizeof(inputs) - at, " as %s", one);
        }
    }
    if (said != NULL)
        write_type(said, a, sizeof(a));
    if (other != NULL)
        write_type(other, b, sizeof(b));
    golden_fail(s->c, "of%s%s: %s%s%s%s%s", inputs, s->is_with_data ? " with data" : "", what,
                said != NULL ? ": " : "", a, other != NULL ? " against " : "", b);
}

static bool
are_compatible(const type *a, const type *b)
{
    if (a->dtype != b->dtype)
        return false;
    if (a->ndim < 0 || b->ndim < 0)
        return true;
    for (int d = 0; d < a->ndim && d < b->ndim; ++d)
        if (a->dims[d] >= 0 && b->dims[d] >= 0 && a->dims[d] != b->dims[d])
            return false;
    return a->ndim == b->ndim;
}

/* A shape of the recording; false where there is none. */
static bool
read_recorded(json_t *json, type *out)
{
    json_t *shape = json_object_get(json, "shape"), *dim;
    size_t  d;

    if (!golden_is_tensor(json) || json_array_size(shape) > CO_MAX_DIMS)
        return false;
    out->dtype = co_dtype_from_name(json_string_value(json_object_get(json, "dtype")));
    out->ndim = (int)json_array_size(shape);
    json_array_foreach(shape, d, dim)
    {
        out->dims[d] = json_integer_value(dim);
    }
    return true;
}

/* Results have the names that family_ops.c gives them. */
static void
check_recorded(subject *s, const types *t)
{
    json_t *outputs = s->c->outputs;
    bool    by_case = t->is_tuple && (int)json_object_size(outputs) == t->n;
    void   *at = json_object_iter(outputs);

    for (int i = 0; i < t->n && !s->c->is_failed; ++i) {
        char    name[32] = "out";
        json_t *json;
        type    recorded;

        if (t->is_tuple)
            snprintf(name, sizeof(name), "out_%d", i);
        json = by_case ? json_object_iter_value(at) : json_object_get(outputs, name);
        if (json != NULL && read_recorded(json, &recorded) && !are_compatible(&t->at[i], &recorded))
            complain(s, NULL, "not compatible with the recorded output", &t->at[i], &recorded);
        at = at != NULL ? json_object_iter_next(outputs, at) : NULL;
    }
}

/* Keep of `common` what the sample has too. */
static void
keep_common(types *common, const types *sample)
{
    if (common->n != sample->n)
        common->n = UNKNOWN;
    for (int i = 0; i < common->n; ++i) {
        type       *a = &common->at[i];
        const type *b = &sample->at[i];

        if (a->ndim != b->ndim)
            a->ndim = UNKNOWN;
        for (int d = 0; d < a->ndim; ++d)
            if (a->dims[d] != b->dims[d])
                a->dims[d] = UNKNOWN;
    }
}

/* One shape that fits what was asked: what was said must hold for it. */
static void
try_sample(subject *s, const type *sample)
{
    types concrete;

    if (s->c->is_failed)
        return;
    ask(s, sample, &concrete, NULL, 0);
    if (!concrete.is_ok) /* the operator does not take this one */
        return;
    ++s->c->types->samples;
    if (s->inferred.n >= 0 && concrete.n >= 0 && s->inferred.n != concrete.n)
        complain(s, sample, "another number of results than for a shape that fits", NULL, NULL);
    for (int i = 0; i < s->inferred.n && i < concrete.n; ++i)
        if (!are_compatible(&s->inferred.at[i], &concrete.at[i]))
            complain(s, sample, "not compatible with the type for a shape that fits",
                     &s->inferred.at[i], &concrete.at[i]);
    keep_common(&s->common, &concrete);
}

/* What no sample could change is known. */
static void
check_known(subject *s)
{
    if (s->common.n >= 0 && s->inferred.n < 0)
        complain(s, NULL, "the number of results should be known", NULL, NULL);
    for (int i = 0; i < s->common.n && i < s->inferred.n; ++i) {
        const type *said = &s->inferred.at[i], *common = &s->common.at[i];

        if (common->ndim >= 0 && said->ndim < 0)
            complain(s, NULL, "the rank should be known", said, common);
        for (int d = 0; d < common->ndim && d < said->ndim; ++d) {
            s->c->types->dimensions += common->dims[d] >= 0;
            if (common->dims[d] >= 0 && said->dims[d] < 0)
                complain(s, NULL, "a dimension should be known", said, common);
        }
    }
}

/* --- samples --- */

static void
add_candidate(subject *s, int64_t dim)
{
    for (int i = 0; i < s->num_candidates; ++i)
        if (s->candidates[i] == dim)
            return;
    if (s->num_candidates < MAX_CANDIDATES)
        s->candidates[s->num_candidates++] = dim;
}

/* Small numbers, and what fits beside the dimensions of the case: the same, a multiple, one more.
 */
static void
collect_candidates(subject *s)
{
    for (int64_t dim = 0; dim <= 6; ++dim)
        add_candidate(s, dim);
    for (size_t i = 0; i < s->in.n; ++i)
        for (int d = 0; s->is_tensor[i] && d < s->own[i].ndim; ++d)
            for (int64_t k = 1; k <= 3; ++k) {
                add_candidate(s, k * s->own[i].dims[d]);
                add_candidate(s, s->own[i].dims[d] + k);
            }
}

/* Whether a dimension that the recorded shape has may be another. */
static bool
is_unknown(const subject *s, size_t i, int d)
{
    return s->asked[i].ndim < 0 || s->asked[i].dims[d] < 0;
}

/* Set each unknown dimension whose recorded length is `length` (-1: any) to `dim`. */
static void
set_unknowns(const subject *s, type *sample, int64_t length, int64_t dim)
{
    for (size_t i = 0; i < s->in.n; ++i)
        for (int d = 0; d < s->own[i].ndim; ++d)
            if (is_unknown(s, i, d) && (length < 0 || s->own[i].dims[d] == length))
                sample[i].dims[d] = dim;
}

static void
copy_own(const subject *s, type *sample)
{
    memcpy(sample, s->own, sizeof(s->own));
}

/* Pairs of unknown dimensions together: those of one length become `dim`, since a rule may want
 * them equal; or any two change by these numbers, since one may be a sum of others. */
static void
try_pairs(subject *s, int64_t dim, int64_t first, int64_t second)
{
    int64_t *at[GOLDEN_MAX_OPERANDS * CO_MAX_DIMS], a, b;
    type     sample[GOLDEN_MAX_OPERANDS];
    int      n = 0;

    copy_own(s, sample);
    for (size_t i = 0; i < s->in.n; ++i)
        for (int d = 0; d < s->own[i].ndim; ++d)
            if (is_unknown(s, i, d))
                at[n++] = &sample[i].dims[d];
    for (int i = 0; i < n; ++i)
        for (int k = i + 1; k < n; ++k) {
            a = *at[i];
            b = *at[k];
            if (dim >= 0 ? a != b : a + first < 0 || b + second < 0)
                continue;
            *at[i] = dim >= 0 ? dim : a + first;
            *at[k] = dim >= 0 ? dim : b + second;
            try_sample(s, sample);
            *at[i] = a;
            *at[k] = b;
        }
}

/* All unknown dimensions in one position times a number, counted from the first or from the last:
 * results may be proportional to them. */
static void
try_multiples(subject *s)
{
    type sample[GOLDEN_MAX_OPERANDS];

    for (int64_t factor = 2; factor <= 3; ++factor)
        for (int at = -CO_MAX_DIMS; at < CO_MAX_DIMS; ++at) {
            copy_own(s, sample);
            for (size_t i = 0; i < s->in.n; ++i) {
                int d = at < 0 ? at + s->own[i].ndim : at;

                if (d >= 0 && d < s->own[i].ndim && is_unknown(s, i, d))
                    sample[i].dims[d] *= factor;
            }
            try_sample(s, sample);
        }
}

/* Each unknown dimension alone, two or all of one length together, all together, and at random. */
static void
try_dimensions(subject *s)
{
    type sample[GOLDEN_MAX_OPERANDS];

    for (int k = 0; k < s->num_candidates; ++k) {
        copy_own(s, sample);
        set_unknowns(s, sample, UNKNOWN, s->candidates[k]);
        try_sample(s, sample);
        for (size_t i = 0; i < s->in.n; ++i)
            for (int d = 0; d < s->own[i].ndim; ++d) {
                if (!is_unknown(s, i, d))
                    continue;
                copy_own(s, sample);
                sample[i].dims[d] = s->candidates[k];
                try_sample(s, sample);
                set_unknowns(s, sample, s->own[i].dims[d], s->candidates[k]);
                try_sample(s, sample);
            }
        try_pairs(s, s->candidates[k], 0, 0);
    }
    try_pairs(s, UNKNOWN, 1, 1);
    try_pairs(s, UNKNOWN, 1, -1);
    try_pairs(s, UNKNOWN, -1, 1);
    try_multiples(s);
    for (int k = 0; k < RANDOM_SAMPLES; ++k) {
        copy_own(s, sample);
        for (size_t i = 0; i < s->in.n; ++i)
            for (int d = 0; d < s->own[i].ndim; ++d)
                if (is_unknown(s, i, d))
                    sample[i].dims[d] = s->candidates[draw(s, (uint64_t)s->num_candidates)];
        try_sample(s, sample);
    }
}

/* A shape of another rank. The last dimensions stay, or the first ones, or none; the others are
 * drawn, or 1. */
enum { LAST, FIRST, LAST_AND_ONES, FIRST_AND_ONES, ONES, NUM_WAYS = 12 };
static void
draw_shape(subject *s, const type *own, int ndim, int way, type *out)
{
    out->ndim = ndim;
    for (int d = 0; d < ndim; ++d) {
        int  from = way == LAST || way == LAST_AND_ONES ? d + own->ndim - ndim : d;
        bool stays = way < ONES && from >= 0 && from < own->ndim;
        bool is_one = way >= LAST_AND_ONES && way <= ONES;

        out->dims[d] = stays    ? own->dims[from]
                       : is_one ? 1
                                : s->candidates[draw(s, (uint64_t)s->num_candidates)];
    }
}

/* One dimension more, at the front or behind, for some of the inputs of unknown rank. */
static void
try_longer(subject *s, unsigned inputs, bool is_behind, int64_t dim)
{
    type     sample[GOLDEN_MAX_OPERANDS];
    unsigned k = 0;

    copy_own(s, sample);
    for (size_t i = 0; i < s->in.n; ++i) {
        type *t = &sample[i];

        if (s->asked[i].ndim >= 0 || (inputs >> k++ & 1) == 0 || t->ndim == CO_MAX_DIMS)
            continue;
        if (!is_behind)
            memmove(t->dims + 1, t->dims, (size_t)t->ndim * sizeof(int64_t));
        t->dims[is_behind ? t->ndim : 0] = dim;
        ++t->ndim;
    }
    try_sample(s, sample);
}

/* Inputs of unknown rank get other ranks: some of them a dimension more; one of them, or all
 * alike, another shape. */
static void
try_ranks(subject *s)
{
    type sample[GOLDEN_MAX_OPERANDS];

    for (unsigned inputs = 1; inputs < 1u << (s->in.n < 5 ? s->in.n : 5); ++inputs)
        for (int k = 0; k < 6; ++k)
            try_longer(s, inputs, k % 2 != 0, k / 2 + 1);
    for (int ndim = 0; ndim <= 6; ++ndim)
        for (int way = 0; way < NUM_WAYS; ++way) {
            uint64_t state = s->random;

            for (size_t alone = 0; alone <= s->in.n; ++alone) {
                copy_own(s, sample);
                s->random = state;
                for (size_t i = 0; i < s->in.n; ++i)
                    if (s->asked[i].ndim < 0 && (alone == s->in.n || alone == i))
                        draw_shape(s, &s->own[i], ndim, way, &sample[i]);
                try_sample(s, sample);
            }
            draw(s, 2);
        }
}

static bool
has_unknown_rank(const subject *s)
{
    for (size_t i = 0; i < s->in.n; ++i)
        if (s->asked[i].ndim < 0)
            return true;
    return false;
}

/* --- combinations --- */

/* Ask with what is in s->asked, and check the answer. */
static void
check_combination(subject *s)
{
    char error[GOLDEN_REASON_MAX] = "";

    ask(s, s->own, &s->common, error, sizeof(error));
    ask(s, s->asked, &s->inferred, error, sizeof(error));
    if (s->c->fault != GOLDEN_NO_FAULT)
        put_fault(s, &s->inferred);
    if (!s->common.is_ok || !s->inferred.is_ok) {
        complain(s, NULL, error[0] != '\0' ? error : "refused", NULL, NULL);
        return;
    }
    if (s->inferred.n > MAX_RESULTS) {
        golden_fail(s->c, "%d results are more than the runner has room for", s->inferred.n);
        return;
    }
    check_recorded(s, &s->inferred);
    if (s->is_with_data) /* elements may tell more than any other shape would have */
        return;
    try_dimensions(s);
    if (has_unknown_rank(s))
        try_ranks(s);
    if (!s->c->is_failed)
        check_known(s);
}

/* Both ways: with specs alone, and with tensors where nothing is unknown. */
static void
check_both(subject *s)
{
    for (int i = 0; i < 2 && !s->c->is_failed; ++i) {
        s->is_with_data = i == 1;
        check_combination(s);
    }
}

static int
count_dims(const subject *s)
{
    int n = 0;

    for (size_t i = 0; i < s->in.n; ++i)
        n += s->is_tensor[i] ? s->own[i].ndim : 0;
    return n;
}

/* Bit k of the mask: dimension k of all inputs is unknown. */
static void
ask_with_mask(subject *s, uint64_t mask)
{
    int k = 0;

    memcpy(s->asked, s->own, sizeof(s->own));
    for (size_t i = 0; i < s->in.n; ++i)
        for (int d = 0; s->is_tensor[i] && d < s->own[i].ndim; ++d, ++k)
            if ((mask >> k & 1) != 0)
                s->asked[i].dims[d] = UNKNOWN;
    ++s->c->types->combinations;
    check_both(s);
}

/* All combinations where there are no more than 64; else none, all, each alone, all but one, and
 * others at random. */
static void
check_dimensions(subject *s)
{
    int      n = count_dims(s) < 63 ? count_dims(s) : 63, done = 0;
    uint64_t all = (UINT64_C(1) << n) - 1;

    if (all < MAX_COMBINATIONS) {
        for (uint64_t mask = 0; mask <= all; ++mask)
            ask_with_mask(s, mask);
        return;
    }
    ask_with_mask(s, 0);
    ask_with_mask(s, all);
    done = 2;
    for (int k = 0; k < n && done < MAX_COMBINATIONS; ++k, ++done)
        ask_with_mask(s, UINT64_C(1) << k);
    for (int k = 0; k < n && done < MAX_COMBINATIONS; ++k, ++done)
        ask_with_mask(s, all & ~(UINT64_C(1) << k));
    for (; done < MAX_COMBINATIONS; ++done)
        ask_with_mask(s, (draw(s, UINT64_C(1) << 31) << 31 | draw(s, UINT64_C(1) << 31)) & all);
}

/* Each input alone, and all of them, with the dimensions of the others known. */
static void
check_ranks(subject *s)
{
    for (size_t alone = 0; alone <= s->in.n && s->in.n > 0; ++alone) {
        memcpy(s->asked, s->own, sizeof(s->own));
        for (size_t i = 0; i < s->in.n; ++i)
            if (s->is_tensor[i] && (alone == s->in.n || alone == i))
                s->asked[i].ndim = UNKNOWN;
        ++s->c->types->unknown_ranks;
        check_both(s);
    }
}

static bool
is_program(const char *op)
{
    return strcmp(op, "composite") == 0 || strcmp(op, "second_order") == 0;
}

void
golden_run_types(golden_case *c)
{
    co_op_info info = CO_OP_INFO_INIT;
    subject    s = { .c = c, .op = golden_string(c, c->json, "op"), .random = 1 };

    if (c->is_failed)
        return;
    if (is_program(s.op) || c->error != NULL) {
        ++*(c->error != NULL ? &c->types->errors : &c->types->programs);
        return;
    }
    if (!golden_find_operator(s.op, &info)) {
        golden_fail(c, "the library has no operator '%s'", s.op);
        return;
    }
    if (!golden_read_inputs(c, &info, &s.in) || (s.attrs = golden_read_attrs(c, &s.in)) == NULL)
        return;
    for (size_t i = 0; i < s.in.n; ++i) {
        s.is_tensor[i] = co_value_kind(s.in.values[i]) == CO_KIND_TENSOR;
        if (s.is_tensor[i])
            type_of(c->ctx, s.in.values[i], &s.own[i]);
    }
    collect_candidates(&s);
    check_dimensions(&s);
    check_ranks(&s);
}
