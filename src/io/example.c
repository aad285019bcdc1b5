/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf.Example, read and written without a library: three messages of lengths and numbers, each
 * checked against its end, are less than what protobuf-c would generate for them, and nothing is
 * copied but the values (docs/decisions/files.md).
 *
 *     Example  { Features features = 1; }
 *     Features { map<string, Feature> feature = 1; }
 *     Feature  { BytesList = 1, FloatList = 2 or Int64List = 3 }
 *
 * An entry of the map is { string key = 1; Feature value = 2; }, a list { repeated ... value = 1;
 * }, numbers packed or not. Of what comes twice the last one counts; fields that are not known are
 * passed over.
 */
#include <cohort/files.h>

#include "context/context.h"

#include <stdlib.h>
#include <string.h>

/* --- the wire --- */

typedef struct wire {
    const uint8_t *at, *end;
} wire;

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static bool
get_varint(wire *w, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 70 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;

        *out |= (uint64_t)(byte & 0x7f) << (shift < 64 ? shift : 0);
        if (byte < 0x80)
            return shift < 63 || byte <= 1;
    }
    return false;
}

static bool
get_skip(wire *w, size_t n)
{
    if (n > (size_t)(w->end - w->at))
        return false;
    w->at += n;
    return true;
}

/* A field: its number, its type and its content, which is skipped. */
typedef struct field {
    uint32_t number;
    int      type;
    wire     content;
} field;

static bool
get_field(wire *w, field *out)
{
    uint64_t tag, n;
    bool     good;

    if (!get_varint(w, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return false;
    out->number = (uint32_t)(tag >> 3);
    out->type = (int)(tag & 7);
    out->content.at = w->at;
    switch (out->type) {
    case WIRE_VARINT: good = get_varint(w, &n); break;
    case WIRE_FIXED64: good = get_skip(w, 8); break;
    case WIRE_FIXED32: good = get_skip(w, 4); break;
    case WIRE_BYTES:
        good = get_varint(w, &n) && n <= (uint64_t)(w->end - w->at);
        out->content.at = w->at;
        good = good && get_skip(w, (size_t)n);
        break;
    default: good = false; break;
    }
    out->content.end = w->at;
    return good;
}

/* --- lists --- */

/* The number of a list in Feature; 0: none. */
typedef enum list_kind { LIST_NONE, LIST_BYTES, LIST_FLOAT, LIST_INT64 } list_kind;

static const struct {
    const char *name;
    co_dtype    dtype;
    int         type, packed_size; /* of one value on the wire; 0: varints */
} lists[] = {
    [LIST_NONE] = { "nothing", CO_DTYPE_NONE, -1, 0 },
    [LIST_BYTES] = { "strings", CO_STRING, WIRE_BYTES, 0 },
    [LIST_FLOAT] = { "float32", CO_FLOAT32, WIRE_FIXED32, 4 },
    [LIST_INT64] = { "int64", CO_INT64, WIRE_VARINT, 0 },
};

typedef struct feature {
    list_kind kind;
    wire      list;
} feature;

/* Values are counted, or put where `out` says. */
typedef struct values {
    int64_t   count;
    float    *floats;
    int64_t  *ints;
    coi_text *texts;
} values;

static float
get_float(const uint8_t *at)
{
    uint32_t bits = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    float    value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static bool
take_floats(wire *w, values *out)
{
    size_t n = (size_t)(w->end - w->at) / 4;

    if ((size_t)(w->end - w->at) % 4 != 0)
        return false;
    for (size_t i = 0; out->floats != NULL && i < n; ++i)
        out->floats[out->count + (int64_t)i] = get_float(w->at + 4 * i);
    out->count += (int64_t)n;
    return true;
}

static bool
take_ints(wire *w, values *out)
{
    uint64_t value;

    while (w->at < w->end) {
        if (!get_varint(w, &value))
            return false;
        if (out->ints != NULL)
            out->ints[out->count] = (int64_t)value;
        ++out->count;
    }
    return true;
}

/* The values of a list, counted and, where there is room, put there. */
static bool
take_values(const feature *f, values *out)
{
    wire  w = f->list;
    field item;
    bool  good = true;

    while (good && w.at < w.end) {
        good = get_field(&w, &item);
        if (!good || item.number != 1)
            continue;
        if (item.type != lists[f->kind].type && item.type != WIRE_BYTES)
            return false;
        if (f->kind == LIST_BYTES) {
            if (out->texts != NULL)
                out->texts[out->count] = (coi_text){ (const char *)item.content.at,
                                                     (size_t)(item.content.end - item.content.at) };
            ++out->count;
        } else {
            good = f->kind == LIST_FLOAT ? take_floats(&item.content, out)
                                         : take_ints(&item.content, out);
        }
    }
    return good;
}

/* How many values a feature has; -1 if it cannot be read. */
static int64_t
count_values(const feature *f)
{
    values v = { 0, NULL, NULL, NULL };

    return f->kind == LIST_NONE ? 0 : take_values(f, &v) ? v.count : -1;
}

static bool
get_feature(wire w, feature *out)
{
    field item;

    *out = (feature){ LIST_NONE, { NULL, NULL } };
    while (w.at < w.end) {
        if (!get_field(&w, &item))
            return false;
        if (item.number > LIST_INT64)
            continue;
        if (item.type != WIRE_BYTES)
            return false;
        *out = (feature){ (list_kind)item.number, item.content };
    }
    return true;
}

/* --- examples --- */

typedef bool (*entry_fn)(void *user, wire key, const feature *value);

/* One entry of the map. */
static bool
get_entry(wire w, wire *key, feature *value)
{
    field item;

    *key = (wire){ NULL, NULL };
    *value = (feature){ LIST_NONE, { NULL, NULL } };
    while (w.at < w.end) {
        if (!get_field(&w, &item))
            return false;
        if (item.number > 2)
            continue;
        if (item.type != WIRE_BYTES)
            return false;
        if (item.number == 1)
            *key = item.content;
        else if (!get_feature(item.content, value))
            return false;
    }
    return true;
}

/* Call fn with every feature, in the order of the wire; false if it is no Example, or fn says
 * so. */
static bool
each_feature(const coi_text *serialized, entry_fn fn, void *user)
{
    wire  w = { (const uint8_t *)serialized->data,
                (const uint8_t *)serialized->data + serialized->nbytes };
    field features, entry;

    while (w.at < w.end) {
        if (!get_field(&w, &features))
            return false;
        if (features.number != 1)
            continue;
        if (features.type != WIRE_BYTES)
            return false;
        while (features.content.at < features.content.end) {
            wire    key;
            feature value;

            if (!get_field(&features.content, &entry))
                return false;
            if (entry.number != 1)
                continue;
            if (entry.type != WIRE_BYTES || !get_entry(entry.content, &key, &value) ||
                !fn(user, key, &value))
                return false;
        }
    }
    return true;
}

/* The strings of an argument; NULL with an error. */
static const coi_text *
serialized_texts(co_context *ctx, co_value *serialized, int max_ndim, coi_text *alone, int64_t *n)
{
    const coi_text *texts;

    if (!coi_check_value(ctx, serialized, 2, "serialized"))
        return NULL;
    texts = coi_texts_of(serialized, alone, n);
    if (texts == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (serialized) is %s; it must be a string or a tensor of strings",
                 coi_a_kind(serialized->kind));
        return NULL;
    }
    if (serialized->ndim > max_ndim) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (serialized) has rank %d; examples come alone%s", serialized->ndim,
                 max_ndim > 0 ? " or in a tensor of rank 1" : "");
        return NULL;
    }
    return texts;
}

/* --- parsing what is asked for --- */

typedef struct parse {
    co_context       *ctx;
    const co_feature *wanted;
    size_t            num_wanted;
    const coi_text   *texts;
    int64_t           num_examples;
    int               lead;  /* 1: there is a dimension of examples */
    feature          *found; /* num_examples x num_wanted */
} parse;

typedef struct row { /* of `found`, while its example is read */
    const parse *p;
    feature     *found;
} row;

static bool
note_feature(void *user, wire key, const feature *value)
{
    const row *r = user;
    size_t     n = (size_t)(key.end - key.at);

    for (size_t i = 0; i < r->p->num_wanted; ++i) {
        const char *name = r->p->wanted[i].name;

        if (strlen(name) == n && (n == 0 || memcmp(name, key.at, n) == 0))
            r->found[i] = *value;
    }
    return true;
}

static bool
read_examples(const parse *p)
{
    for (int64_t i = 0; i < p->num_examples; ++i) {
        row r = { p, p->found + (size_t)i * p->num_wanted };

        for (size_t k = 0; k < p->num_wanted; ++k)
            r.found[k] = (feature){ LIST_NONE, { NULL, NULL } };
        if (!each_feature(&p->texts[i], note_feature, &r)) {
            coi_fail(p->ctx, CO_INVALID_ARGUMENT,
                     "example %lld of %lld cannot be read: its %zu byte%s %s no tf.Example",
                     (long long)i, (long long)p->num_examples, p->texts[i].nbytes,
                     COI_S(p->texts[i].nbytes), (p->texts[i].nbytes) == 1 ? "is" : "are");
            return false;
        }
    }
    return true;
}

/* The values that feature k of example i has; -1 with an error. `each`: what a fixed one must have,
 * or items of a sequence. */
static int64_t
check_feature(const parse *p, int64_t i, size_t k, int64_t each)
{
    const co_feature *wanted = &p->wanted[k];
    const feature    *f = &p->found[(size_t)i * p->num_wanted + k];
    int64_t           n = count_values(f);

    if (f->kind == LIST_NONE) {
        if (wanted->kind == CO_FEATURE_SEQUENCE || wanted->missing != NULL)
            return 0;
        coi_fail(
            p->ctx, CO_INVALID_ARGUMENT,
            "example %lld has no feature '%s', which is required; give a value for where it is "
            "missing",
            (long long)i, wanted->name);
    } else if (lists[f->kind].dtype != wanted->dtype) {
        coi_fail(p->ctx, CO_INVALID_ARGUMENT, "feature '%s' of example %lld holds %s, not %s",
                 wanted->name, (long long)i, lists[f->kind].name, co_dtype_name(wanted->dtype));
    } else if (n < 0) {
        coi_fail(p->ctx, CO_INVALID_ARGUMENT, "feature '%s' of example %lld cannot be read",
                 wanted->name, (long long)i);
    } else if (wanted->kind == CO_FEATURE_FIXED ? n != each : each == 0 ? n != 0 : n % each != 0) {
        coi_fail(p->ctx, CO_INVALID_ARGUMENT,
                 "feature '%s' of example %lld has %lld value%s; its shape wants %s%lld",
                 wanted->name, (long long)i, (long long)n, COI_S(n),
                 wanted->kind == CO_FEATURE_FIXED ? "" : "a multiple of ", (long long)each);
    } else {
        return n;
    }
    return -1;
}

/* The n elements that a sequence lacks: the one that is given for them, else 0 or an empty
 * string. */
static void
put_padding(const co_feature *wanted, char *out, size_t size, int64_t n)
{
    static const coi_text empty = { "", 0 };
    const void           *pad = wanted->missing != NULL ? coi_data_on_host(wanted->missing)
                                                        : (const void *)&empty;

    if (wanted->missing == NULL && wanted->dtype != CO_STRING) {
        if (n > 0)
            memset(out, 0, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; ++i)
        memcpy(out + (size_t)i * size, pad, size);
}

/* Elements [at, at + n) of numbers or texts, from feature k of example i or from what stands for
 * it. */
static void
put_values(const parse *p, int64_t i, size_t k, void *out, int64_t at, int64_t n)
{
    const co_feature *wanted = &p->wanted[k];
    const feature    *f = &p->found[(size_t)i * p->num_wanted + k];
    values            v = { at, out, out, out };
    size_t size = wanted->dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[wanted->dtype].size;

    if (n == 0)
        return;
    if (f->kind != LIST_NONE)
        take_values(f, &v);
    if (wanted->kind == CO_FEATURE_SEQUENCE)
        put_padding(wanted, (char *)out + (size_t)v.count * size, size, at + n - v.count);
    else if (f->kind == LIST_NONE)
        memcpy((char *)out + (size_t)at * size, coi_data_on_host(wanted->missing),
               (size_t)n * size);
}

/* Fill `out`, of `each` elements for every example. */
static void
put_feature(const parse *p, size_t k, void *out, int64_t each)
{
    for (int64_t i = 0; i < p->num_examples; ++i)
        put_values(p, i, k, out, i * each, each);
}

/* The shape of feature k of all examples, and its elements in one of them; false with an error. */
static bool
feature_shape(const parse *p, size_t k, coi_shape *shape, int64_t *each)
{
    const co_feature *wanted = &p->wanted[k];
    bool              is_sequence = wanted->kind == CO_FEATURE_SEQUENCE;
    int64_t           item = 0, longest = 0, count;

    shape->ndim = 0;
    if (p->lead)
        shape->dims[shape->ndim++] = p->num_examples;
    shape->ndim += is_sequence;
    for (int d = 0; d < wanted->ndim; ++d)
        shape->dims[shape->ndim++] = wanted->dims[d];
    /* check_wanted has found it good; where a dimension is 0, the others may be any */
    coi_shape_check(wanted->dims, (size_t)wanted->ndim, 1, &item, NULL);
    for (int64_t i = 0; i < p->num_examples; ++i) {
        int64_t n = check_feature(p, i, k, item);

        if (n < 0)
            return false;
        longest = n > longest ? n : longest;
    }
    *each = is_sequence ? longest : item;
    if (is_sequence)
        shape->dims[p->lead] = item > 0 ? longest / item : 0;
    return coi_shape_check(shape->dims, (size_t)shape->ndim, sizeof(coi_text), &count,
                           coi_err(p->ctx)) == CO_OK ||
           coi_failed(p->ctx) == CO_OK;
}

static co_value *
make_strings(const parse *p, size_t k, const coi_shape *shape, int64_t each, co_device *device)
{
    coi_heap *heap = &p->ctx->heap;
    int64_t   n = each * p->num_examples;
    size_t    nbytes = (size_t)(n > 0 ? n : 1) * sizeof(coi_text);
    coi_text *texts = coi_small_alloc(heap, nbytes);
    co_value *made;

    if (texts == NULL) {
        coi_fail(p->ctx, CO_RESOURCE_EXHAUSTED, "no memory for %lld strings", (long long)n);
        return NULL;
    }
    put_feature(p, k, texts, each);
    made = coi_tensor_strings(heap, device, shape->dims, shape->ndim, n, texts, coi_err(p->ctx));
    coi_small_free(heap, texts, nbytes);
    return made;
}

typedef struct making {
    const parse *p;
    size_t       k;
    co_device   *device;
    coi_shape    shape;
    int64_t      each; /* elements of an example */
} making;

static co_value *
make_filled(co_context *ctx, void *arg)
{
    const making *m = arg;
    const parse  *p = m->p;
    co_value     *made;

    if (p->wanted[m->k].dtype == CO_STRING)
        return make_strings(p, m->k, &m->shape, m->each, m->device);
    made = coi_tensor_new(&ctx->heap, m->device, p->wanted[m->k].dtype, m->shape.dims,
                          m->shape.ndim, m->each * p->num_examples, coi_err(ctx));
    if (made != NULL)
        put_feature(p, m->k, coi_data_on_host(made), m->each);
    return made;
}

/* Feature k of all examples, as a value of the block. */
static co_value *
make_feature(const parse *p, size_t k, co_device *device)
{
    making m = { .p = p, .k = k, .device = device };

    return feature_shape(p, k, &m.shape, &m.each)
               ? coi_give(p->ctx, coi_make_tensor(p->ctx, make_filled, &m))
               : NULL;
}

/* What stands for a missing feature fits it; a sequence, of any length, is filled up with one
 * element. */
static bool
check_missing(co_context *ctx, const co_feature *f, int64_t count)
{
    const co_value *missing = f->missing;
    bool            is_sequence = f->kind == CO_FEATURE_SEQUENCE;

    if (missing == NULL)
        return true;
    if (!coi_check_kind(ctx, f->missing, CO_KIND_TENSOR, 3, "missing"))
        return false;
    count = is_sequence ? 1 : count;
    if (missing->dtype == f->dtype && missing->u.tensor.num_elements == count)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "feature '%s': what %s is %s of %lld element%s; it must be %s of %lld", f->name,
             is_sequence ? "fills up a short sequence" : "stands for a missing one",
             co_dtype_name((co_dtype)missing->dtype), (long long)missing->u.tensor.num_elements,
             COI_S(missing->u.tensor.num_elements), co_dtype_name(f->dtype), (long long)count);
    return false;
}

static bool
check_wanted(co_context *ctx, const co_feature *features, size_t k, int lead)
{
    const co_feature *f = &features[k];
    int64_t           count;

    if (f->name == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "features[%zu].name is NULL", k);
    else if (f->dtype != CO_INT64 && f->dtype != CO_FLOAT32 && f->dtype != CO_STRING)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "feature '%s' is to be %s; examples hold int64, float32 and string", f->name,
                 co_dtype_name(f->dtype));
    else if (f->kind != CO_FEATURE_FIXED && f->kind != CO_FEATURE_SEQUENCE)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "feature '%s' has kind %d; it is CO_FEATURE_FIXED or CO_FEATURE_SEQUENCE", f->name,
                 (int)f->kind);
    else if (coi_check_shape(ctx, f->dtype, f->dims, f->ndim, &count) &&
             f->ndim + (int)lead + (f->kind == CO_FEATURE_SEQUENCE) > CO_MAX_DIMS)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "feature '%s' would have more than %d dimensions",
                 f->name, CO_MAX_DIMS);
    for (size_t i = 0; ctx->error.code == CO_OK && i < k; ++i)
        if (strcmp(features[i].name, f->name) == 0)
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "feature '%s' is described twice, by features[%zu] and features[%zu]", f->name,
                     i, k);
    return ctx->error.code == CO_OK && check_missing(ctx, f, count);
}

static co_value *
make_map(const parse *p, co_device *device)
{
    coi_heap    *heap = &p->ctx->heap;
    size_t       n = p->num_wanted > 0 ? p->num_wanted : 1;
    size_t       nbytes = n * (sizeof(char *) + sizeof(co_value *));
    const char **keys = coi_small_alloc(heap, nbytes);
    co_value   **items, *map = NULL;
    size_t       k;

    if (keys == NULL) {
        coi_fail(p->ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu features", p->num_wanted);
        return NULL;
    }
    items = (co_value **)(keys + n);
    for (k = 0; k < p->num_wanted; ++k) {
        keys[k] = p->wanted[k].name;
        items[k] = make_feature(p, k, device);
        if (items[k] == NULL)
            break;
    }
    if (k == p->num_wanted)
        map = co_dict(p->ctx, keys, items, p->num_wanted);
    coi_small_free(heap, keys, nbytes);
    return map;
}

/* Features whose defaults the host can read. */
static bool
copy_wanted(co_context *ctx, const co_feature *features, size_t n, co_feature *out)
{
    for (size_t k = 0; k < n; ++k) {
        out[k] = features[k];
        if (features[k].missing != NULL &&
            (out[k].missing = coi_host_value(ctx, features[k].missing)) == NULL)
            return false;
    }
    return true;
}

co_value *
co_parse_example(co_context *ctx, co_value *serialized, const co_feature *features,
                 size_t num_features)
{
    parse       p = { ctx, features, num_features, NULL, 0, 0, NULL };
    coi_text    alone;
    co_device  *device;
    co_value   *map = NULL;
    co_feature *wanted;
    size_t      nbytes;

    COI_ENTER(ctx, "parse_example", NULL);
    p.texts = serialized_texts(ctx, serialized, 1, &alone, &p.num_examples);
    if (p.texts == NULL)
        return NULL;
    p.lead = serialized->ndim == 1;
    if (features == NULL && num_features > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (features) is NULL for %zu feature%s",
                 num_features, COI_S(num_features));
        return NULL;
    }
    for (size_t k = 0; k < num_features; ++k)
        if (!check_wanted(ctx, features, k, p.lead))
            return NULL;
    device = coi_current_host(ctx);
    nbytes = num_features * sizeof(*wanted) +
             ((size_t)p.num_examples * num_features + 1) * sizeof(feature);
    wanted = device != NULL ? coi_small_alloc(&ctx->heap, nbytes) : NULL;
    if (wanted == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to parse %lld examples",
                 (long long)p.num_examples);
        return NULL;
    }
    p.found = (feature *)(void *)(wanted + num_features);
    p.wanted = wanted;
    if (copy_wanted(ctx, features, num_features, wanted) && read_examples(&p))
        map = make_map(&p, device);
    coi_small_free(&ctx->heap, wanted, nbytes);
    return map;
}

/* --- all of it --- */

/* The features of an example: counted first, then noted as what to parse. */
typedef struct listing {
    size_t   n, text_bytes;
    wire    *keys; /* NULL: only count */
    feature *values;
} listing;

static bool
list_feature(void *user, wire key, const feature *value)
{
    listing *l = user;

    if (memchr(key.at != NULL ? (const void *)key.at : "", 0, (size_t)(key.end - key.at)) != NULL)
        return false; /* a name of ours ends with a zero */
    if (l->keys != NULL) {
        l->keys[l->n] = key;
        l->values[l->n] = *value;
    }
    l->text_bytes += (size_t)(key.end - key.at) + 1;
    ++l->n;
    return true;
}

typedef struct named {
    const char *name;
    size_t      at; /* in the order of the wire */
} named;

static int
compare_named(const void *a, const void *b)
{
    const named *x = a, *y = b;
    int          order = strcmp(x->name, y->name);

    return order != 0 ? order : x->at < y->at ? -1 : 1;
}

/* One feature as it is: a tensor of rank 1, or none. */
static co_value *
decode_feature(co_context *ctx, const char *name, const feature *f, co_device *device)
{
    int64_t    n = count_values(f);
    co_feature wanted = { name, CO_FEATURE_FIXED, lists[f->kind].dtype, &n, 1, NULL };
    feature    found = *f;
    parse      p = { ctx, &wanted, 1, NULL, 1, 0, &found };

    if (n < 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "feature '%s' cannot be read", name);
        return NULL;
    }
    return f->kind == LIST_NONE ? co_none(ctx) : make_feature(&p, 0, device);
}

/* The map of what was listed. `sorted`, `names` and `items` have room for it; keys are copied to
 * `text`. */
static co_value *
decode_listed(co_context *ctx, const listing *l, named *sorted, const char **names,
              co_value **items, char *text, co_device *device)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; ++i) {
        size_t length = (size_t)(l->keys[i].end - l->keys[i].at);

        if (length > 0)
            memcpy(text, l->keys[i].at, length);
        text[length] = '\0';
        sorted[i] = (named){ text, i };
        text += length + 1;
    }
    if (l->n > 0)
        qsort(sorted, l->n, sizeof(*sorted), compare_named);
    for (size_t i = 0; i < l->n; ++i) {
        if (i + 1 < l->n && strcmp(sorted[i].name, sorted[i + 1].name) == 0)
            continue;
        names[n] = sorted[i].name;
        items[n] = decode_feature(ctx, names[n], &l->values[sorted[i].at], device);
        if (items[n] == NULL)
            return NULL;
        ++n;
    }
    return co_dict(ctx, names, items, n);
}

co_value *
co_example_decode(co_context *ctx, co_value *serialized)
{
    static const size_t each = sizeof(wire) + sizeof(feature) + sizeof(named) + sizeof(char *) +
                               sizeof(co_value *);
    const coi_text *texts;
    coi_text        alone;
    listing         l = { 0, 0, NULL, NULL };
    co_device      *device;
    co_value       *map;
    size_t          nbytes, n;
    char           *room;
    int64_t         count;

    COI_ENTER(ctx, "example_decode", NULL);
    texts = serialized_texts(ctx, serialized, 0, &alone, &count);
    device = texts != NULL ? coi_current_host(ctx) : NULL;
    if (device == NULL)
        return NULL;
    if (!each_feature(texts, list_feature, &l)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "its %zu byte%s %s no tf.Example", texts->nbytes,
                 COI_S(texts->nbytes), texts->nbytes == 1 ? "is" : "are");
        return NULL;
    }
    n = l.n;
    nbytes = (n + 1) * each + l.text_bytes;
    room = coi_small_alloc(&ctx->heap, nbytes);
    if (room == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu features", n);
        return NULL;
    }
    l = (listing){ 0, 0, (wire *)(void *)room, (feature *)(void *)(room + n * sizeof(wire)) };
    each_feature(texts, list_feature, &l);
    map = decode_listed(ctx, &l, (named *)(void *)(l.values + n),
                        (const char **)((named *)(void *)(l.values + n) + n),
                        (co_value **)((const char **)((named *)(void *)(l.values + n) + n) + n),
                        room + n * each, device);
    coi_small_free(&ctx->heap, room, nbytes);
    return map;
}

/* --- writing --- */

/* Bytes are counted, and put where `out` is. */
typedef struct sink {
    uint8_t *out;
    size_t   n;
} sink;

static void
put_bytes(sink *s, const void *bytes, size_t n)
{
    if (s->out != NULL && n > 0)
        memcpy(s->out + s->n, bytes, n);
    s->n += n;
}

static void
put_varint(sink *s, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        put_bytes(s, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

/* The head of a field of bytes. */
static void
put_head(sink *s, unsigned number, size_t nbytes)
{
    put_varint(s, number << 3 | WIRE_BYTES);
    put_varint(s, nbytes);
}

static list_kind
kind_of(const co_value *tensor)
{
    return tensor->dtype == CO_STRING           ? LIST_BYTES
           : coi_dtypes[tensor->dtype].floating ? LIST_FLOAT
                                                : LIST_INT64;
}

/* The values of a tensor, packed; of strings, as fields. */
static void
put_list(sink *s, const co_value *tensor)
{
    const char *data = coi_data_on_host(tensor);
    size_t      size = coi_dtypes[tensor->dtype].size;

    for (int64_t i = 0; i < tensor->u.tensor.num_elements; ++i) {
        const coi_text *text = (const coi_text *)(const void *)data + i;
        const void     *at = data + (size_t)i * size;
        uint8_t         word[4];
        uint32_t        bits;
        float           f;
        int64_t         n;

        switch (kind_of(tensor)) {
        case LIST_BYTES:
            put_head(s, 1, text->nbytes);
            put_bytes(s, text->data, text->nbytes);
            break;
        case LIST_FLOAT:
            coi_convert((co_dtype)tensor->dtype, at, CO_FLOAT32, &f, 1);
            memcpy(&bits, &f, sizeof(bits));
            for (int k = 0; k < 4; ++k)
                word[k] = (uint8_t)(bits >> 8 * k);
            put_bytes(s, word, sizeof(word));
            break;
        default:
            coi_convert((co_dtype)tensor->dtype, at, CO_INT64, &n, 1);
            put_varint(s, (uint64_t)n);
            break;
        }
    }
}

/* An entry of the map. Each length is known before what it is the length of, by counting. */
static void
put_entry(sink *s, const char *key, const co_value *tensor)
{
    list_kind kind = kind_of(tensor);
    sink      packed = { NULL, 0 }, list = { NULL, 0 }, value = { NULL, 0 }, entry = { NULL, 0 };
    bool      is_packed = kind != LIST_BYTES && tensor->u.tensor.num_elements > 0;
    size_t    key_bytes = strlen(key);

    put_list(&packed, tensor);
    if (is_packed)
        put_head(&list, 1, packed.n);
    list.n += packed.n;
    put_head(&value, kind, list.n);
    value.n += list.n;
    put_head(&entry, 1, key_bytes);
    entry.n += key_bytes;
    put_head(&entry, 2, value.n);
    entry.n += value.n;

    put_head(s, 1, entry.n);
    put_head(s, 1, key_bytes);
    put_bytes(s, key, key_bytes);
    put_head(s, 2, value.n);
    put_head(s, kind, list.n);
    if (is_packed)
        put_head(s, 1, packed.n);
    if (s->out != NULL)
        put_list(s, tensor);
    else
        s->n += packed.n;
}

static void
put_entries(sink *s, co_value *features, co_value *const *tensors)
{
    for (size_t i = 0; i < features->u.items.n; ++i)
        put_entry(s, features->u.items.keys[i + 1], tensors[i]);
}

/* The bytes, as a host string of the block. */
static co_value *
encode(co_context *ctx, co_value *features, co_value *const *tensors)
{
    sink      body = { NULL, 0 }, all = { NULL, 0 };
    co_value *made;

    put_entries(&body, features, tensors);
    put_head(&all, 1, body.n);
    all.n += body.n;
    all.out = coi_small_alloc(&ctx->heap, all.n + 1);
    made = all.out != NULL ? coi_value_new(&ctx->heap, CO_KIND_STRING) : NULL;
    if (made == NULL) {
        coi_small_free(&ctx->heap, all.out, all.n + 1);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an example of %zu bytes", all.n);
        return NULL;
    }
    made->u.string.data = (char *)all.out;
    made->u.string.nbytes = all.n;
    all.n = 0;
    put_head(&all, 1, body.n);
    put_entries(&all, features, tensors);
    all.out[all.n] = '\0';
    return coi_own(ctx, made);
}

co_value *
co_example_encode(co_context *ctx, co_value *features)
{
    co_value **tensors, *made = NULL;
    size_t     n, done = 0, nbytes;

    COI_ENTER(ctx, "example_encode", NULL);
    if (!coi_check_kind(ctx, features, CO_KIND_DICT, 2, "features"))
        return NULL;
    n = features->u.items.n;
    nbytes = (n + 1) * sizeof(*tensors);
    tensors = coi_small_alloc(&ctx->heap, nbytes);
    if (tensors == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu features", n);
        return NULL;
    }
    for (; done < n; ++done) {
        tensors[done] = coi_as_tensor(ctx, features->u.items.items[done], CO_DTYPE_NONE);
        if (tensors[done] == NULL)
            break;
        if (!coi_is_on_host(tensors[done])) {
            co_value *host = coi_bring_tensor_to_host(ctx, tensors[done]);

            coi_unref(&ctx->heap, tensors[done]);
            tensors[done] = host;
            if (host == NULL) {
                coi_failed(ctx);
                break;
            }
        }
    }
    if (ctx->error.code == CO_OK)
        made = encode(ctx, features, tensors);
    while (done > 0)
        coi_unref(&ctx->heap, tensors[--done]);
    coi_small_free(&ctx->heap, tensors, nbytes);
    return made;
}
