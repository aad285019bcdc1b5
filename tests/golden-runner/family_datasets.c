/* SPDX-License-Identifier: Apache-2.0 */
/* datasets: pipelines, their elements, cardinality and specs, and what an iterator does past the
 * end. */
#include "captured.h"
#include "families.h"

#include <string.h>

static co_dataset *
make_dataset(golden_case *c)
{
    return golden_pipeline(c, c->ctx, json_object_get(c->attrs, "pipeline"));
}

/* The end is NULL without an error, as often as one asks. */
static void
run_elements(golden_case *c)
{
    co_context  *ctx = c->ctx;
    int64_t      limit = golden_int(c, c->attrs, "max_elements", 0);
    co_dataset  *dataset = make_dataset(c);
    co_iterator *it;
    json_t      *list = json_array();
    co_value    *element = NULL;

    golden_put(c, "elements", list);
    if (dataset == NULL)
        return;
    golden_put(c, "cardinality", json_integer(co_cardinality(ctx, dataset)));
    golden_put_value(c, "element_spec", co_element_spec(ctx, dataset));
    it = co_iterate(ctx, dataset);
    while ((int64_t)json_array_size(list) < limit && (element = golden_next(ctx, it)) != NULL)
        json_array_append_new(list, golden_write_value(ctx, element));
    if ((int64_t)json_array_size(list) == limit && co_ok(ctx))
        element = golden_next(ctx, it);
    golden_put(c, "ended", json_boolean(element == NULL && co_ok(ctx)));
}

static void
run_cardinality(golden_case *c)
{
    co_dataset *dataset = make_dataset(c);

    if (dataset != NULL)
        golden_put(c, "cardinality", json_integer(co_cardinality(c->ctx, dataset)));
}

/* Two iterators: one asked for elements, one for optionals. */
static void
run_iterator(golden_case *c)
{
    co_context  *ctx = c->ctx;
    int64_t      calls = golden_int(c, c->attrs, "calls", 0);
    co_dataset  *dataset = make_dataset(c);
    co_iterator *plain, *wrapped;
    json_t      *next = json_array(), *optionals = json_array();

    golden_put(c, "steps", next);
    golden_put(c, "optional", optionals);
    if (dataset == NULL)
        return;
    plain = co_iterate(ctx, dataset);
    wrapped = co_iterate(ctx, dataset);
    for (int64_t i = 0; i < calls && co_ok(ctx); ++i) {
        co_value *element = golden_next(ctx, plain);
        co_value *optional = golden_next_as_optional(ctx, wrapped);
        bool      has_value = co_optional_has_value(ctx, optional);
        json_t   *value = has_value ? golden_write_value(ctx, co_optional_get_value(ctx, optional))
                                    : json_null();

        json_array_append_new(next, json_pack("{s:o}", "next",
                                              element != NULL ? golden_write_value(ctx, element)
                                                              : json_string("StopIteration")));
        json_array_append_new(optionals,
                              json_pack("{s:b,s:o}", "has_value", has_value, "value", value));
    }
}

static co_value *
fold_count(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_int(ctx, 1));
}

static co_value *
fold_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
fold_twice(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2)), co_at(ctx, args, 1));
}

typedef struct folding {
    co_dataset *dataset;
    co_fold_fn  fn;
} folding;

static co_value *
fold_dataset(co_context *ctx, co_value *args, void *user)
{
    const folding *f = user;

    return co_dataset_reduce(ctx, f->dataset, co_at(ctx, args, 0), f->fn, NULL);
}

static co_value *
fold(co_context *ctx, co_dataset *dataset, co_value *initial, co_fold_fn fn)
{
    folding f = { dataset, fn };

    return golden_in_function(ctx, fold_dataset, co_args(ctx, initial), &f);
}

static void
run_reduce(golden_case *c)
{
    static const struct {
        const char *text;
        co_fold_fn  fn;
    } known[] = {
        { "count", fold_count },
        { "state+x", fold_sum },
        { "state*2+x", fold_twice },
    };
    const char *text = golden_string(c, c->attrs, "fn");
    co_value   *initial = co_scalar_int64(c->ctx, golden_int(c, c->attrs, "initial", 0));
    co_dataset *dataset = make_dataset(c);

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        if (strcmp(known[i].text, text) != 0)
            continue;
        if (dataset != NULL)
            golden_put_value(c, "result", fold(c->ctx, dataset, initial, known[i].fn));
        return;
    }
    golden_fail(c, "fn '%s' is not known to the runner", text);
}

/* The numbers of one pass, at most `n`; -1 with an error or when there are more. */
static int64_t
one_pass(co_context *ctx, co_dataset *dataset, int64_t n, int64_t *order)
{
    int64_t      count = 0;
    co_iterator *it = co_iterate(ctx, dataset);
    co_value    *x;

    for (; (x = golden_next(ctx, it)) != NULL; ++count)
        if (count < n)
            order[count] = co_item_int(ctx, x);

    return co_ok(ctx) && count <= n ? count : -1;
}

static bool
is_permutation(const int64_t *order, int64_t count, int64_t n)
{
    int64_t at = 0;

    if (count != n)
        return false;
    for (int64_t number = 0; number < n; ++number) {
        for (at = 0; at < n && order[at] != number; ++at)
            ;
        if (at == n)
            return false;
    }
    return true;
}

/* The orders themselves are TensorFlow's own: what holds of ours is compared. */
static void
run_shuffle(golden_case *c)
{
    enum { MOST = 1000 };
    co_context *ctx = c->ctx;
    int64_t     n = golden_int(c, c->attrs, "n", 0);
    int64_t     size = golden_int(c, c->attrs, "buffer_size", 0);
    co_dataset *dataset = make_dataset(c);
    int64_t     order[2][MOST] = { { 0 } }, count[2];
    bool        bound = true, identity = true;

    if (dataset == NULL || n < 0 || n > MOST)
        return;
    for (int pass = 0; pass < 2; ++pass)
        count[pass] = one_pass(ctx, dataset, n, order[pass]);
    for (int64_t i = 0; i < n; ++i) {
        bound = bound && order[0][i] < i + size && order[1][i] < i + size;
        identity = identity && order[0][i] == i;
    }
    golden_put(c, "is_permutation", json_boolean(is_permutation(order[0], count[0], n)));
    golden_put(c, "second_is_permutation", json_boolean(is_permutation(order[1], count[1], n)));
    golden_put(c, "buffer_bound_holds", json_boolean(bound));
    golden_put(c, "epochs_equal", json_boolean(memcmp(order[0], order[1], sizeof(order[0])) == 0));
    golden_put(c, "identity", json_boolean(identity));
    golden_put(c, "cardinality", json_integer(co_cardinality(ctx, dataset)));
    for (int pass = 1; pass <= 2; ++pass) { /* information, not to be compared */
        const char *key = pass == 1 ? "tf_order_epoch1" : "tf_order_epoch2";

        golden_put(c, key, json_incref(json_object_get(c->outputs, key)));
    }
}

void
golden_run_datasets(golden_case *c)
{
    static const golden_action table[] = {
        { "range", run_elements },
        { "from_tensors", run_elements },
        { "from_tensor_slices", run_elements },
        { "batch", run_elements },
        { "padded_batch", run_elements },
        { "unbatch", run_elements },
        { "rebatch", run_elements },
        { "repeat", run_elements },
        { "take", run_elements },
        { "skip", run_elements },
        { "shard", run_elements },
        { "zip", run_elements },
        { "concatenate", run_elements },
        { "map", run_elements },
        { "filter", run_elements },
        { "interleave", run_elements },
        { "flat_map", run_elements },
        { "window", run_elements },
        { "window_flat", run_elements },
        { "enumerate", run_elements },
        { "scan", run_elements },
        { "take_while", run_elements },
        { "unique", run_elements },
        { "cache", run_elements },
        { "prefetch", run_elements },
        { "apply_cardinality", run_elements },
        { "mixed", run_elements },
        { "cardinality", run_cardinality },
        { "iterator", run_iterator },
        { "reduce", run_reduce },
        { "shuffle", run_shuffle },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}
