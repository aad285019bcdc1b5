/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that stages of a pipeline call for their elements, by the names that the recording
 * gives them. */
#include "pipeline.h"

#include <string.h>

/* --- map --- */

static co_value *
twice(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_mul(ctx, x, co_int(ctx, 2));
}

static co_value *
plus_one(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_add(ctx, x, co_int(ctx, 1));
}

static co_value *
squared(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_mul(ctx, x, x);
}

static co_value *
negated(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_neg(ctx, x);
}

static co_value *
to_float32(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_cast(ctx, x, CO_FLOAT32);
}

static co_value *
to_pair(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_tuple(ctx, (co_value *const[]){ x, co_mul(ctx, x, co_int(ctx, 10)) }, 2);
}

static co_value *
dict_of(co_context *ctx, co_value *a, co_value *b)
{
    return co_dict(ctx, (const char *const[]){ "a", "b" }, (co_value *const[]){ a, b }, 2);
}

static co_value *
to_dict(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return dict_of(ctx, x, co_add(ctx, x, co_int(ctx, 100)));
}

static co_value *
sum_pair(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, x, 0), co_at(ctx, x, 1));
}

static co_value *
swap_pair(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_tuple(ctx, (co_value *const[]){ co_at(ctx, x, 1), co_at(ctx, x, 0) }, 2);
}

static co_value *
first(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_at(ctx, x, 0);
}

static co_value *
fill_x(co_context *ctx, co_value *x, void *user)
{
    int64_t n = co_item_int(ctx, x);

    (void)user;
    return co_fill(ctx, &n, 1, x);
}

static co_value *
outer3(co_context *ctx, co_value *x, void *user)
{
    co_value *next = co_add(ctx, x, co_int(ctx, 1));

    (void)user;
    return co_stack(
        ctx, co_list(ctx, (co_value *const[]){ x, next, co_add(ctx, next, co_int(ctx, 1)) }, 3), 0);
}

static co_value *
string_length(co_context *ctx, co_value *x, void *user)
{
    size_t nbytes = 0;

    (void)user;
    co_string_at(ctx, x, 0, &nbytes);
    return co_int(ctx, (int64_t)nbytes);
}

/* What they return, from the spec of their argument. */

static co_value *
spec_of_dtype(co_context *ctx, co_value *spec, co_dtype dtype)
{
    int64_t dims[CO_MAX_DIMS];
    int     ndim = co_value_ndim(ctx, spec);

    for (int i = 0; i < ndim; ++i)
        dims[i] = co_value_dim(ctx, spec, i);
    return co_spec(ctx, dtype, dims, ndim);
}

static co_value *
spec_float32(co_context *ctx, co_value *spec)
{
    return spec_of_dtype(ctx, spec, CO_FLOAT32);
}

static co_value *
spec_int32(co_context *ctx, co_value *spec)
{
    return spec_of_dtype(ctx, spec, CO_INT32);
}

static co_value *
spec_pair(co_context *ctx, co_value *spec)
{
    return co_tuple(ctx, (co_value *const[]){ spec, spec }, 2);
}

static co_value *
spec_dict(co_context *ctx, co_value *spec)
{
    return dict_of(ctx, spec, spec);
}

static co_value *
spec_first(co_context *ctx, co_value *spec)
{
    return co_at(ctx, spec, 0);
}

static co_value *
spec_swapped(co_context *ctx, co_value *spec)
{
    return swap_pair(ctx, spec, NULL);
}

/* With a new dimension 0. */
static co_value *
spec_of_many(co_context *ctx, co_value *spec, int64_t n)
{
    int64_t dims[CO_MAX_DIMS] = { n };
    int     ndim = co_value_ndim(ctx, spec);

    for (int i = 0; i < ndim && i + 1 < CO_MAX_DIMS; ++i)
        dims[i + 1] = co_value_dim(ctx, spec, i);
    return co_spec(ctx, co_value_dtype(ctx, spec), dims, ndim < 0 ? ndim : ndim + 1);
}

static co_value *
spec_vector(co_context *ctx, co_value *spec)
{
    return spec_of_many(ctx, spec, -1);
}

static co_value *
spec_of_three(co_context *ctx, co_value *spec)
{
    return spec_of_many(ctx, spec, 3);
}

static const struct {
    const char   *name;
    co_element_fn fn;
    co_value *(*spec)(co_context *ctx, co_value *spec); /* NULL: as it was */
} maps[] = {
    { "x*2", twice, NULL },
    { "x+1", plus_one, NULL },
    { "x*x", squared, NULL },
    { "-x", negated, NULL },
    { "to_float32", to_float32, spec_float32 },
    { "to_pair", to_pair, spec_pair },
    { "to_dict", to_dict, spec_dict },
    { "sum_pair", sum_pair, spec_first },
    { "swap_pair", swap_pair, spec_swapped },
    { "first", first, spec_first },
    { "idx_plus", sum_pair, spec_first },
    { "fill_x", fill_x, spec_vector },
    { "outer3", outer3, spec_of_three },
    { "strlen", string_length, spec_int32 },
};

co_dataset *
golden_map(golden_case *c, co_context *ctx, co_dataset *input, const char *name)
{
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); ++i)
        if (strcmp(maps[i].name, name) == 0) {
            co_value *spec = maps[i].spec != NULL ? maps[i].spec(ctx, co_element_spec(ctx, input))
                                                  : NULL;

            return co_dataset_map(ctx, input, maps[i].fn, NULL, spec);
        }
    golden_fail(c, "map function '%s' is not known to the runner", name);
    return NULL;
}

/* --- predicates --- */

static bool
even(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) % 2 == 0;
}

static bool
more_than_three(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) > 3;
}

static bool
multiple_of_three(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) % 3 == 0;
}

static bool
none(co_context *ctx, co_value *x, void *user)
{
    (void)ctx, (void)x, (void)user;
    return false;
}

static bool
pair_first_even(co_context *ctx, co_value *x, void *user)
{
    return even(ctx, co_at(ctx, x, 0), user);
}

static bool
less_than_five(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) < 5;
}

static bool
negative(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) < 0;
}

co_predicate_fn
golden_predicate(golden_case *c, const char *name)
{
    static const struct {
        const char     *name;
        co_predicate_fn fn;
    } known[] = {
        { "even", even },
        { "gt3", more_than_three },
        { "mod3", multiple_of_three },
        { "none", none },
        { "pair_first_even", pair_first_even },
        { "lt5", less_than_five },
        { "lt0", negative },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].name, name) == 0)
            return known[i].fn;
    golden_fail(c, "predicate '%s' is not known to the runner", name);
    return NULL;
}

/* --- scan --- */

static co_value *
scan_sum(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    (void)user;
    return co_tuple(ctx, (co_value *const[]){ sum, sum }, 2);
}

static co_value *
scan_previous(co_context *ctx, co_value *args, void *user)
{
    return swap_pair(ctx, args, user);
}

co_fold_fn
golden_scan(golden_case *c, const char *name)
{
    if (strcmp(name, "cumsum") == 0)
        return scan_sum;
    if (strcmp(name, "prev") == 0)
        return scan_previous;
    golden_fail(c, "scan function '%s' is not known to the runner", name);
    return NULL;
}

/* --- inner datasets --- */

static co_dataset *
inner_range(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_range(ctx, 0, co_item_int(ctx, x), 1);
}

static co_dataset *
inner_two(co_context *ctx, co_value *x, void *user)
{
    int64_t start = co_item_int(ctx, x);

    (void)user;
    return co_dataset_range(ctx, start, start + 2, 1);
}

static co_dataset *
inner_repeat(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_repeat(ctx, co_dataset_from_tensors(ctx, x), 3);
}

static co_dataset *
inner_slices(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_from_tensor_slices(ctx, x);
}

static co_dataset *
inner_window_batch(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_dataset_batch(ctx, co_value_dataset(ctx, x), 2, false);
}

static co_dataset *
inner_tfrecord(co_context *ctx, co_value *x, void *user)
{
    const char *name = co_string_at(ctx, x, 0, NULL);

    (void)user;
    return co_dataset_tfrecord(ctx, &name, 1, NULL);
}

static co_dataset *
inner_textline(co_context *ctx, co_value *x, void *user)
{
    const char *name = co_string_at(ctx, x, 0, NULL);

    (void)user;
    return co_dataset_text_lines(ctx, &name, 1, NULL);
}

static co_value *
spec_of_numbers(co_context *ctx, co_value *spec)
{
    (void)spec;
    return co_spec(ctx, CO_INT64, NULL, 0);
}

static co_value *
spec_of_records(co_context *ctx, co_value *spec)
{
    (void)spec;
    return co_spec(ctx, CO_STRING, NULL, 0);
}

static co_value *
leaf_of_row(co_context *ctx, co_value *spec, void *user)
{
    int64_t dims[CO_MAX_DIMS];
    int     ndim = co_value_ndim(ctx, spec);

    (void)user;
    for (int i = 1; i < ndim; ++i)
        dims[i - 1] = co_value_dim(ctx, spec, i);
    return co_spec(ctx, co_value_dtype(ctx, spec), dims, ndim < 1 ? ndim : ndim - 1);
}

static co_value *
spec_of_rows(co_context *ctx, co_value *spec)
{
    return co_map_structure(ctx, spec, leaf_of_row, NULL);
}

static co_value *
spec_of_window(co_context *ctx, co_value *spec)
{
    return spec_vector(ctx, co_element_spec(ctx, co_value_dataset(ctx, spec)));
}

static const struct {
    const char *name;
    co_inner_fn fn;
    bool        opens_files;
    co_value *(*spec)(co_context *ctx, co_value *spec); /* NULL: as it was */
} inners[] = {
    { "range(x)", inner_range, false, spec_of_numbers },
    { "range(x,x+2)", inner_two, false, spec_of_numbers },
    { "repeat(x,3)", inner_repeat, false, NULL },
    { "slices(x)", inner_slices, false, spec_of_rows },
    { "window_batch(2)", inner_window_batch, false, spec_of_window },
    { "tfrecord(x)", inner_tfrecord, true, spec_of_records },
    { "textline(x)", inner_textline, true, spec_of_records },
};

co_inner_fn
golden_inner(golden_case *c, const char *name, bool *opens_files)
{
    for (size_t i = 0; i < sizeof(inners) / sizeof(inners[0]); ++i)
        if (strcmp(inners[i].name, name) == 0) {
            *opens_files = inners[i].opens_files;
            return inners[i].fn;
        }
    golden_fail(c, "the inner dataset '%s' is not known to the runner", name);
    return NULL;
}

co_value *
golden_inner_spec(co_context *ctx, co_dataset *input, const char *name)
{
    for (size_t i = 0; i < sizeof(inners) / sizeof(inners[0]); ++i)
        if (strcmp(inners[i].name, name) == 0 && inners[i].spec != NULL)
            return inners[i].spec(ctx, co_element_spec(ctx, input));
    return NULL;
}
