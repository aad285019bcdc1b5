/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of arguments (FN-2, FN-3): which program a call takes, and what its arguments become
 * for a signature.
 */
#include "function/function.h"
#include "function/value_tree.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- types of arguments --- */

static co_value *
type_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_TENSOR || coi_is_type(leaf) ? coi_fresh_type(ctx, leaf) : leaf;
}

static bool
is_spec_leaf(const co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_SPEC;
}

/* The examples of per-replica values differ between calls. Nodes with specs in them are new. */
static void
forget_examples(co_value *types)
{
    coi_values items = coi_tree_items(types);

    if (coi_is_per_replica(types) && coi_tree_all(types, is_spec_leaf, NULL))
        types->u.per_replica.step_examples = COI_EXAMPLES_LATER;
    for (size_t i = 0; i < items.n; ++i)
        if (items.items[i] != NULL)
            forget_examples(items.items[i]);
}

co_value *
coi_types_of_args(co_context *ctx, co_value *args)
{
    co_value *types = coi_tree_map(ctx, args, type_leaf, NULL);

    if (types != NULL)
        forget_examples(types);
    return types;
}

static bool
has_spec(const co_value *spec, const co_value *value)
{
    if (spec->dtype != value->dtype)
        return false;
    if (spec->ndim < 0)
        return true;
    if (spec->ndim != value->ndim)
        return false;
    for (int i = 0; i < spec->ndim; ++i)
        if (spec->u.tensor.dims[i] >= 0 && spec->u.tensor.dims[i] != value->u.tensor.dims[i])
            return false;
    return true;
}

static bool
is_number(const co_value *value)
{
    return value->kind == CO_KIND_INT || value->kind == CO_KIND_FLOAT ||
           value->kind == CO_KIND_BOOL;
}

static double
number_of(const co_value *value)
{
    return value->kind == CO_KIND_FLOAT ? value->u.f
           : value->kind == CO_KIND_INT ? (double)value->u.i
                                        : (double)value->u.b;
}

/* Whether a double is an integer; not every int64 is a double, and -0.0 is none. */
static bool
is_integer(double number, int64_t integer)
{
    return number >= -0x1p63 && number < 0x1p63 && (int64_t)number == integer &&
           number == (double)(int64_t)number && !(integer == 0 && signbit(number));
}

/* 1, 1.0 and true are one, NaN is itself, and -0.0, by which one can divide, is another than 0. */
static bool
same_number(const co_value *a, const co_value *b)
{
    if (a->kind == CO_KIND_INT && b->kind == CO_KIND_INT)
        return a->u.i == b->u.i;
    if (a->kind == CO_KIND_INT || b->kind == CO_KIND_INT)
        return a->kind == CO_KIND_INT ? is_integer(number_of(b), a->u.i)
                                      : is_integer(number_of(a), b->u.i);
    if (isnan(number_of(a)) || isnan(number_of(b)))
        return isnan(number_of(a)) && isnan(number_of(b));
    return number_of(a) == number_of(b) && signbit(number_of(a)) == signbit(number_of(b));
}

bool
coi_same_host_value(const co_value *a, const co_value *b)
{
    if (is_number(a) || is_number(b))
        return is_number(a) && is_number(b) && same_number(a, b);
    if (a->kind != b->kind)
        return false;
    if (coi_kind_of(a)->element_spec != NULL)
        return a->u.object == b->u.object;
    if (a->kind == CO_KIND_STRING)
        return a->u.string.nbytes == b->u.string.nbytes &&
               memcmp(a->u.string.data, b->u.string.data, a->u.string.nbytes) == 0;
    if (a->kind == CO_KIND_FUNCTION)
        return coi_kind_of(a)->same(a, b);
    return a->kind == CO_KIND_NONE || a == b;
}

/* Another variable that a program can act on in the place of the first. */
static bool
is_like_variable(const coi_variable *a, const coi_variable *b)
{
    return a->ops == b->ops && a->strategy == b->strategy && a->dtype == b->dtype &&
           a->synchronization == b->synchronization && a->aggregation == b->aggregation &&
           a->trainable == b->trainable && a->shape.ndim == b->shape.ndim &&
           memcmp(a->shape.dims, b->shape.dims, (size_t)a->shape.ndim * sizeof(int64_t)) == 0;
}

/* The two trees of a comparison: a resource that comes again in one must do so in the other. */
typedef struct aliases {
    const co_value *first, *second; /* the whole trees */
} aliases;

typedef struct occurrence {
    const void *wanted;
    size_t      position, at; /* where it was found first; how many resources passed */
} occurrence;

static bool
pass_resource(const co_value *leaf, void *arg)
{
    occurrence *o = arg;

    if (coi_resource_of(leaf) == NULL)
        return true;
    if (coi_resource_of(leaf) == o->wanted) {
        o->position = o->at;
        return false;
    }
    ++o->at;
    return true;
}

/* The number of resources before the first occurrence of this one. */
static size_t
first_position(const co_value *tree, const co_value *resource)
{
    occurrence o = { coi_resource_of(resource), 0, 0 };

    coi_tree_all(tree, pass_resource, &o);
    return o.position;
}

static bool
has_element_spec(co_value *spec, co_value *value, void *arg)
{
    (void)arg;
    if (spec->dtype == CO_DTYPE_NONE || value->kind != CO_KIND_SPEC)
        return spec == value;
    return has_spec(spec, value);
}

bool
coi_is_like_input(const co_value *a, const co_value *b)
{
    return a->kind == b->kind &&
           coi_tree_pair(coi_kind_of(a)->element_spec(a), coi_kind_of(b)->element_spec(b),
                         has_element_spec, NULL);
}

static bool
fits_leaf(co_value *type, co_value *value, void *arg)
{
    const aliases *a = arg;

    if (type->kind == CO_KIND_SPEC)
        return (value->kind == CO_KIND_TENSOR || coi_is_type(value)) && has_spec(type, value);
    if (coi_kind_of(type)->element_spec != NULL)
        return coi_is_like_input(type, value) &&
               first_position(a->first, type) == first_position(a->second, value);
    if (coi_is_variable(type))
        return coi_is_variable(value) && is_like_variable(type->u.variable, value->u.variable) &&
               first_position(a->first, type) == first_position(a->second, value);
    return coi_same_host_value(type, value);
}

bool
coi_fits_types(co_value *types, co_value *args)
{
    aliases a = { types, args };

    return coi_tree_pair(types, args, fits_leaf, &a);
}

static bool
is_same_dataset(co_value *type, co_value *value, void *arg)
{
    (void)arg;
    return coi_kind_of(type)->is_made_of == NULL || type->u.object == value->u.object;
}

bool
coi_has_same_datasets(co_value *types, co_value *args)
{
    return coi_tree_pair(types, args, is_same_dataset, NULL);
}

static bool
count_known(const co_value *leaf, void *arg)
{
    int *known = arg;

    if (coi_kind_of(leaf)->element_spec != NULL)
        return coi_tree_all(coi_kind_of(leaf)->element_spec(leaf), count_known, known);
    if (leaf->kind == CO_KIND_SPEC && leaf->ndim >= 0) {
        ++*known;
        for (int i = 0; i < leaf->ndim; ++i)
            *known += leaf->u.tensor.dims[i] >= 0;
    }
    return true;
}

int
coi_types_known(const co_value *types)
{
    int known = 0;

    coi_tree_all(types, count_known, &known);
    return known;
}

/* --- types that two calls have in common --- */

static bool
may_join(co_value *type, co_value *value, void *arg)
{
    if (type->kind == CO_KIND_SPEC)
        return coi_is_type(value) && type->dtype == value->dtype;
    return fits_leaf(type, value, arg);
}

static bool
join_leaf(co_value *leaf, co_value *other, void *arg)
{
    (void)arg;
    if (leaf->kind != CO_KIND_SPEC)
        return true;
    if (leaf->ndim != other->ndim) {
        leaf->ndim = -1;
        return true;
    }
    for (int i = 0; i < leaf->ndim; ++i)
        if (leaf->u.tensor.dims[i] != other->u.tensor.dims[i])
            leaf->u.tensor.dims[i] = -1;
    return true;
}

co_value *
coi_join_types(co_context *ctx, co_value *a, co_value *b)
{
    aliases   whole = { a, b };
    co_value *joined;

    if (!coi_tree_pair(a, b, may_join, &whole))
        return NULL;
    joined = coi_types_of_args(ctx, a); /* specs of its own, which may be changed */
    if (joined != NULL)
        coi_tree_pair(joined, b, join_leaf, NULL);
    return joined;
}

/* --- symbolic arguments --- */

static co_value *
symbol_leaf(co_context *ctx, co_value *leaf, void *program)
{
    if (leaf->kind != CO_KIND_SPEC)
        return leaf;
    leaf = coi_fresh_type(ctx, leaf);
    if (leaf != NULL)
        coi_program_name(program, leaf);
    return leaf;
}

co_value *
coi_symbols_of_types(co_context *ctx, coi_program *program, co_value *types)
{
    return coi_tree_map(ctx, types, symbol_leaf, program);
}

/* --- signatures --- */

static bool
is_spec(const co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_SPEC && leaf->dtype != CO_DTYPE_NONE;
}

bool
coi_check_signature(co_context *ctx, co_value *signature)
{
    if (!coi_check_value(ctx, signature, 4, "options->signature"))
        return false;
    if (coi_is_sequence(signature) && coi_tree_all(signature, is_spec, NULL))
        return true;
    coi_fail(ctx, CO_TYPE_ERROR,
             "options->signature is not a tuple or list of specs; give one spec, or structure of "
             "specs, for each argument");
    return false;
}

co_value *
coi_signature_here(co_context *ctx, co_value *signature)
{
    co_value  *few[COI_INLINE_ITEMS], **items = few, *here = NULL;
    coi_values from;
    size_t     nbytes;

    if (!coi_in_replica(ctx) || signature->kind == CO_KIND_SPEC)
        return signature;
    if (coi_is_distributed(signature))
        return coi_select(signature, ctx->mode.local_replica);
    from = coi_tree_items(signature);
    nbytes = from.n * sizeof(*items);
    if (from.n > COI_INLINE_ITEMS && (items = coi_small_alloc(&ctx->heap, nbytes)) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu specs", from.n);
        return NULL;
    }
    for (size_t i = 0; i < from.n; ++i)
        if ((items[i] = coi_signature_here(ctx, from.items[i])) == NULL)
            break;
    if (ctx->error.code == CO_OK)
        here = coi_tree_with_items(ctx, signature, items, from.n);
    if (items != few)
        coi_small_free(&ctx->heap, items, nbytes);
    return here;
}

/* Whether the types have parts for replicas wherever the value has. */
static bool
has_parts(const co_value *type, const co_value *given)
{
    coi_values types = coi_tree_items(type), items = coi_tree_items(given);

    if (coi_is_per_replica(given))
        return coi_is_distributed(type);
    if (!coi_is_same_node(type, given))
        return true; /* where this is wrong, the arguments do not fit */
    for (size_t i = 0; i < items.n; ++i)
        if (types.items[i] != NULL && items.items[i] != NULL &&
            !has_parts(types.items[i], items.items[i]))
            return false;
    return true;
}

bool
coi_check_run_signature(co_context *ctx, const co_value *signature)
{
    const co_value *given = ctx->run_args;
    size_t          n = signature->u.items.n;

    if (given == NULL || ctx->mode.num_replicas == 1 || ctx->mode.cross)
        return true;
    for (size_t i = 0; i < n && i < given->u.items.n; ++i)
        if (!has_parts(signature->u.items.items[i], given->u.items.items[i])) {
            coi_fail(ctx, CO_TYPE_ERROR,
                     "argument %zu of run is or holds a per-replica value, and the signature of "
                     "the captured function has no per-replica spec there; a step of %d replicas "
                     "takes the spec that co_element_spec gives for a distributed dataset, or "
                     "calls the function itself, with co_call",
                     i, ctx->mode.num_replicas);
            return false;
        }
    return true;
}

const char *
coi_type_text(const co_value *type, char *out, size_t capacity)
{
    char shape[COI_SHAPE_TEXT];

    snprintf(out, capacity, "%s %s", co_dtype_name((co_dtype)type->dtype),
             coi_shape_text(type->u.tensor.dims, type->ndim, shape));
    return out;
}

/* Arguments that are brought into the types of a signature or program. */
typedef struct fitting {
    co_context *ctx;
    aliases     whole;       /* the types, and the arguments as they were given */
    bool        takes_specs; /* they are types themselves, of a call to come */
} fitting;

static co_value *fit_value(const fitting *f, co_value *type, co_value *value, size_t position);

/* A value for one spec. */
static co_value *
fit_spec(const fitting *f, co_value *spec, co_value *value, size_t position)
{
    co_context *ctx = f->ctx;
    char        wanted[COI_SHAPE_TEXT + 20], given[COI_SHAPE_TEXT + 20];

    if (value->kind != CO_KIND_TENSOR && value->kind != CO_KIND_SYMBOLIC &&
        !(f->takes_specs && value->kind == CO_KIND_SPEC)) {
        if (!coi_is_host(value) && !coi_is_structure(value) && !coi_is_variable(value)) {
            coi_fail(ctx, CO_TYPE_ERROR, "argument %zu is or holds %s; the signature has %s there",
                     position, coi_a_kind(value->kind),
                     coi_type_text(spec, wanted, sizeof(wanted)));
            return NULL;
        }
        if (value->kind == CO_KIND_BOOL && co_dtype_is_floating((co_dtype)spec->dtype))
            value = co_int(ctx, value->u.b); /* as for tf.function; elsewhere a bool is no number */
        if (value != NULL)
            value = co_to_tensor(ctx, value, (co_dtype)spec->dtype);
        if (value == NULL && ctx->error.code != CO_RESOURCE_EXHAUSTED)
            ctx->error.code = CO_TYPE_ERROR;
        if (value == NULL)
            return NULL;
    }
    if (has_spec(spec, value))
        return value;
    coi_fail(ctx, CO_TYPE_ERROR, "argument %zu is or holds %s; the signature has %s there%s",
             position, coi_type_text(value, given, sizeof(given)),
             coi_type_text(spec, wanted, sizeof(wanted)),
             value->dtype != spec->dtype ? " (co_cast converts)" : "");
    return NULL;
}

/* A component of a composite value is there, and none in the type, or the other way round. */
static void
fail_component(const fitting *f, const co_value *type, size_t at, bool is_given, size_t position)
{
    coi_fail(f->ctx, CO_TYPE_ERROR, "argument %zu is or holds %s %s %s; the signature has %s there",
             position, coi_a_kind(type->kind), is_given ? "with" : "without",
             coi_kind_of(type)->composite->components[at].name,
             is_given ? "one without it" : "one with it");
}

static co_value *
fit_items(const fitting *f, co_value *type, co_value *value, size_t position)
{
    co_context *ctx = f->ctx;
    size_t      n = coi_tree_items(type).n, nbytes = (n + 1) * sizeof(co_value *);
    co_value  **leaves = coi_small_alloc(&ctx->heap, nbytes), *fitted = NULL;
    size_t      at = 0;

    if (leaves == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu items", n);
        return NULL;
    }
    for (; at < n; ++at) {
        co_value *item_type = coi_tree_items(type).items[at];
        co_value *item = coi_tree_items(value).items[at];

        if ((item_type == NULL) != (item == NULL)) {
            fail_component(f, type, at, item != NULL, position);
            break;
        }
        leaves[at] = item != NULL ? fit_value(f, item_type, item, position) : NULL;
        if (leaves[at] == NULL && item != NULL)
            break;
    }
    if (at == n)
        fitted = coi_tree_with_items(ctx, value, leaves, n);
    coi_small_free(&ctx->heap, leaves, nbytes);
    return fitted;
}

/* A value for a type that is no spec: a host value or a variable, as the program was captured
 * with. */
static co_value *
fit_leaf(const fitting *f, co_value *type, co_value *value, size_t position)
{
    char wanted[200], given[200];

    if (fits_leaf(type, value, (void *)(uintptr_t)&f->whole))
        return value;
    coi_format(&f->ctx->heap, type, wanted, sizeof(wanted));
    coi_format(&f->ctx->heap, value, given, sizeof(given));
    coi_fail(f->ctx, CO_TYPE_ERROR,
             "argument %zu is or holds %s; the concrete function was captured with %s there",
             position, given, wanted);
    return NULL;
}

static co_value *
fit_value(const fitting *f, co_value *type, co_value *value, size_t position)
{
    if (type->kind == CO_KIND_SPEC)
        return fit_spec(f, type, value, position);
    if (coi_is_same_node(type, value))
        return fit_items(f, type, value, position);
    if (!coi_is_tree(type))
        return fit_leaf(f, type, value, position);
    coi_fail(f->ctx, CO_TYPE_ERROR,
             "argument %zu is or holds %s with %zu item%s; the signature has %s with %zu there%s",
             position, coi_a_kind(value->kind), coi_tree_items(value).n,
             COI_S(coi_tree_items(value).n), coi_a_kind(type->kind), coi_tree_items(type).n,
             coi_is_structure(type) ? ", and its keys" : "");
    return NULL;
}

co_value *
coi_args_for_signature(co_context *ctx, co_value *signature, co_value *args, bool takes_specs)
{
    fitting    f = { ctx, { signature, args }, takes_specs };
    size_t     n = args->u.items.n, nbytes = (n + 1) * sizeof(co_value *), at = 0;
    co_value **items, *fitted = NULL;

    if (n != signature->u.items.n) {
        coi_fail(ctx, CO_TYPE_ERROR, "%zu argument%s; the signature has %zu", n, COI_S(n),
                 signature->u.items.n);
        return NULL;
    }
    items = coi_small_alloc(&ctx->heap, nbytes);
    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu arguments", n);
        return NULL;
    }
    while (at < n && (items[at] = fit_value(&f, signature->u.items.items[at],
                                            args->u.items.items[at], at)) != NULL)
        ++at;
    if (at == n)
        fitted = co_tuple(ctx, items, n);
    coi_small_free(&ctx->heap, items, nbytes);
    return fitted;
}
