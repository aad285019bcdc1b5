/* SPDX-License-Identifier: Apache-2.0 */
/* functions: names, operands, and values into the JSON of the recording. */
#include "functions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 64

/* --- room that lives as long as the case --- */

typedef struct room {
    struct room *next;
    max_align_t  data[];
} room;

void *
golden_room(golden_world *w, size_t size)
{
    room *r = calloc(1, sizeof(*r) + size);

    if (r == NULL) {
        golden_fail(w->c, "out of memory for the names of the case");
        return NULL;
    }
    pthread_mutex_lock(&w->lock);
    r->next = w->rooms;
    w->rooms = r;
    pthread_mutex_unlock(&w->lock);
    return r->data;
}

void
golden_free_rooms(golden_world *w)
{
    room *r = w->rooms;

    while (r != NULL) {
        room *next = r->next;

        free(r);
        r = next;
    }
    w->rooms = NULL;
}

/* --- names --- */

typedef struct named {
    struct named *next;
    const char   *name; /* of the case's JSON, or a copy in a room */
    golden_thing  thing;
} named;

struct golden_names {
    golden_names *around;
    named        *first;
};

golden_names *
golden_names_new(golden_world *w, golden_names *around)
{
    golden_names *names = golden_room(w, sizeof(*names));

    if (names != NULL)
        names->around = around;
    return names;
}

static named *
find_local(golden_names *names, const char *name)
{
    for (named *n = names->first; n != NULL; n = n->next)
        if (strcmp(n->name, name) == 0)
            return n;
    return NULL;
}

static named *
find_named(golden_names *names, const char *name)
{
    named *found = NULL;

    for (; names != NULL && found == NULL; names = names->around)
        found = find_local(names, name);
    return found;
}

void
golden_bind(golden_world *w, golden_names *names, const char *name, golden_thing thing)
{
    named *fresh = golden_room(w, sizeof(*fresh));
    named *old;

    if (fresh == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    old = find_local(names, name);
    if (old != NULL) {
        old->thing = thing;
    } else {
        *fresh = (named){ names->first, name, thing };
        names->first = fresh;
    }
    pthread_mutex_unlock(&w->lock);
}

/* Bind a name that nobody else has bound meanwhile; what it stands for then. */
static golden_thing
bind_first(golden_world *w, golden_names *names, const char *name, golden_thing thing)
{
    named *fresh = golden_room(w, sizeof(*fresh));
    named *old;

    if (fresh == NULL)
        return golden_nothing();
    pthread_mutex_lock(&w->lock);
    old = find_local(names, name);
    if (old == NULL) {
        *fresh = (named){ names->first, name, thing };
        names->first = fresh;
    } else {
        thing = old->thing;
    }
    pthread_mutex_unlock(&w->lock);
    return thing;
}

bool
golden_find(golden_world *w, golden_names *names, const char *name, golden_thing *thing)
{
    named *found;

    pthread_mutex_lock(&w->lock);
    found = find_named(names, name);
    if (found != NULL)
        *thing = found->thing;
    pthread_mutex_unlock(&w->lock);
    return found != NULL;
}

bool
golden_rebind(golden_world *w, golden_names *names, const char *name, golden_thing thing)
{
    named *found;

    pthread_mutex_lock(&w->lock);
    found = find_named(names, name);
    if (found != NULL)
        found->thing = thing;
    pthread_mutex_unlock(&w->lock);
    return found != NULL;
}

bool
golden_is_local(golden_world *w, golden_names *names, const char *name)
{
    bool is_local;

    pthread_mutex_lock(&w->lock);
    is_local = find_local(names, name) != NULL;
    pthread_mutex_unlock(&w->lock);
    return is_local;
}

void
golden_keep_locals(golden_frame *f)
{
    pthread_mutex_lock(&f->w->lock);
    for (const named *n = f->names->first; n != NULL; n = n->next)
        if (n->thing.kind == GOLDEN_VALUE)
            co_keep(f->ctx, n->thing.u.value);
    pthread_mutex_unlock(&f->w->lock);
}

/* --- operands --- */

golden_thing
golden_value(co_value *value)
{
    return (golden_thing){ value != NULL ? GOLDEN_VALUE : GOLDEN_NOTHING, { value } };
}

static golden_thing
find_closure(golden_world *w, const co_function *handle)
{
    golden_closure *closure;

    pthread_mutex_lock(&w->lock);
    for (closure = w->closures; closure != NULL && closure->handle != handle;)
        closure = closure->next;
    pthread_mutex_unlock(&w->lock);
    return (golden_thing){ closure != NULL ? GOLDEN_CLOSURE : GOLDEN_NOTHING,
                           { .closure = closure } };
}

/* Functions of the case are interpreted, so a handle is only known by its address. */
static co_value *
never_called(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_none(ctx);
}

static co_value *
value_of_closure(co_context *ctx, golden_closure *closure)
{
    if (closure->handle == NULL) {
        closure->handle = co_function_of(ctx, never_called, closure, NULL);
        if (closure->handle == NULL)
            return NULL;
        co_keep(ctx, closure->handle);
    }
    return co_function_value(ctx, closure->handle);
}

golden_thing
golden_thing_of(golden_world *w, co_context *ctx, co_value *value)
{
    if (co_value_kind(value) == CO_KIND_FUNCTION)
        return find_closure(w, co_value_function(ctx, value));
    if (co_value_kind(value) == CO_KIND_DATASET)
        return (golden_thing){ GOLDEN_DATASET, { .dataset = co_value_dataset(ctx, value) } };
    if (co_value_kind(value) == CO_KIND_ITERATOR)
        return (golden_thing){ GOLDEN_ITERATOR, { .iterator = co_value_iterator(ctx, value) } };
    return golden_value(value);
}

co_value *
golden_value_of(co_context *ctx, golden_thing thing)
{
    if (thing.kind == GOLDEN_DATASET)
        return co_dataset_value(ctx, thing.u.dataset);
    if (thing.kind == GOLDEN_ITERATOR)
        return co_iterator_value(ctx, thing.u.iterator);
    if (thing.kind == GOLDEN_CLOSURE)
        return value_of_closure(ctx, thing.u.closure);
    return thing.kind == GOLDEN_VALUE ? thing.u.value : NULL;
}

golden_thing
golden_nothing(void)
{
    return (golden_thing){ GOLDEN_NOTHING, { NULL } };
}

/* "0" of a tuple, "a" of a map, "values" of indexed slices. */
static co_value *
select_item(co_context *ctx, co_value *value, const char *key)
{
    if (co_value_kind(value) == CO_KIND_SLICES)
        return strcmp(key, "values") == 0 ? co_slices_values(ctx, value)
                                          : co_slices_indices(ctx, value);
    if (co_value_kind(value) == CO_KIND_DICT)
        return co_get(ctx, value, key);
    return co_at(ctx, value, (size_t)strtoul(key, NULL, 10));
}

static golden_thing
find_operand(golden_frame *f, const char *path)
{
    char         name[80], *rest, *key;
    golden_thing thing = golden_nothing();

    snprintf(name, sizeof(name), "%s", path);
    rest = strchr(name, '.');
    if (rest != NULL)
        *rest++ = '\0';
    if (!golden_find(f->w, f->names, name, &thing)) {
        co_fail(f->ctx, CO_NOT_FOUND, "the name '%s' of the case is not bound", name);
        return golden_nothing();
    }
    while (rest != NULL && thing.kind == GOLDEN_VALUE && co_ok(f->ctx)) {
        key = rest;
        rest = strchr(rest, '.');
        if (rest != NULL)
            *rest++ = '\0';
        thing = golden_value(select_item(f->ctx, thing.u.value, key));
    }
    return thing;
}

static co_value *
read_items(golden_frame *f, json_t *list, co_value *(*read)(golden_frame *f, json_t *json),
           const char *kind)
{
    co_value *items[MAX_ITEMS];
    size_t    n = json_array_size(list);

    if (!json_is_array(list) || n > MAX_ITEMS) {
        golden_fail(f->w->c, "a structure of the case is not a list of at most %d items",
                    MAX_ITEMS);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        if ((items[i] = read(f, json_array_get(list, i))) == NULL)
            return NULL;
    if (strcmp(kind, "list") == 0)
        return co_list(f->ctx, items, n);
    if (strcmp(kind, "per_replica") == 0)
        return co_per_replica_value(f->ctx, items, n);
    return co_tuple(f->ctx, items, n);
}

static co_value *
read_map(golden_frame *f, json_t *object, co_value *(*read)(golden_frame *f, json_t *json))
{
    const char *keys[MAX_ITEMS], *key;
    co_value   *items[MAX_ITEMS];
    size_t      n = 0;
    json_t     *item;

    if (!json_is_object(object) || json_object_size(object) > MAX_ITEMS) {
        golden_fail(f->w->c, "a map of the case is not an object of at most %d items", MAX_ITEMS);
        return NULL;
    }
    json_object_foreach(object, key, item)
    {
        keys[n] = key;
        if ((items[n++] = read(f, item)) == NULL)
            return NULL;
    }
    return co_dict(f->ctx, keys, items, n);
}

/* A structure by the key of its object; false: it is none of them. */
static bool
read_structure(golden_frame *f, json_t *json, co_value *(*read)(golden_frame *f, json_t *json),
               co_value **out)
{
    static const char *const sequences[] = { "tuple", "list", "per_replica" };
    json_t                  *item;

    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); ++i)
        if ((item = json_object_get(json, sequences[i])) != NULL) {
            *out = read_items(f, item, read, sequences[i]);
            return true;
        }
    if ((item = json_object_get(json, "dict")) == NULL)
        return false;
    *out = read_map(f, item, read);
    return true;
}

static co_value *
read_float(golden_frame *f, json_t *json)
{
    const char *text = json_string_value(json);

    if (text == NULL)
        return co_float(f->ctx, json_number_value(json));
    if (strcmp(text, "nan") == 0)
        return co_float(f->ctx, (double)NAN);
    return co_float(f->ctx, *text == '-' ? -(double)INFINITY : (double)INFINITY);
}

static co_value *
read_slices(golden_frame *f, json_t *parts)
{
    json_t   *shape = json_object_get(parts, "dense_shape");
    co_value *values = golden_field(f, parts, "values");
    co_value *indices = golden_field(f, parts, "indices");
    co_value *dense = shape != NULL && !json_is_null(shape) ? golden_operand_value(f, shape) : NULL;

    return co_ok(f->ctx) ? co_slices(f->ctx, values, indices, dense) : NULL;
}

static co_value *
make_literal(golden_frame *f, json_t *json)
{
    static const char *const plain[] = { "int", "bool", "str" };
    json_t                  *item = json_object_get(json, "float");

    if (item != NULL)
        return read_float(f, item);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); ++i)
        if ((item = json_object_get(json, plain[i])) != NULL)
            return golden_read_value(f->w->c, f->ctx, item);
    return NULL;
}

/* A host value of the program text is made once: all replicas have the same one. NULL: the operand
 * is none. */
static co_value *
find_literal(golden_frame *f, json_t *json)
{
    char         name[32];
    golden_thing found = golden_nothing();

    snprintf(name, sizeof(name), "%p", (void *)json);
    if (golden_find(f->w, f->w->literals, name, &found))
        return found.u.value;
    found = golden_value(make_literal(f, json));
    if (found.kind == GOLDEN_VALUE) {
        char *kept = golden_room(f->w, sizeof(name));

        if (kept == NULL)
            return NULL;
        memcpy(kept, name, sizeof(name));
        co_keep(f->ctx, found.u.value);
        found = bind_first(f->w, f->w->literals, kept, found);
    }
    return found.u.value;
}

static co_value *
read_object(golden_frame *f, json_t *json)
{
    json_t   *item;
    co_value *value;

    if (golden_is_tensor(json))
        return golden_read_value(f->w->c, f->ctx, json);
    if ((value = find_literal(f, json)) != NULL || !golden_goes_on(f))
        return value;
    if ((item = json_object_get(json, "indexed_slices")) != NULL)
        return read_slices(f, item);
    if ((item = json_object_get(json, "spec")) != NULL)
        return golden_read_spec(f, item);
    if (!read_structure(f, json, golden_operand_value, &value))
        golden_fail(f->w->c, "an operand of the case is not known to the runner");
    return value;
}

golden_thing
golden_operand(golden_frame *f, json_t *json)
{
    if (json_is_string(json))
        return find_operand(f, json_string_value(json));
    if (json_is_null(json))
        return golden_value(co_none(f->ctx));
    if (json_is_object(json))
        return golden_value(read_object(f, json));
    golden_fail(f->w->c, "an operand of the case is missing or malformed");
    return golden_nothing();
}

co_value *
golden_operand_value(golden_frame *f, json_t *json)
{
    golden_thing thing = golden_operand(f, json);

    if (thing.kind == GOLDEN_VALUE)
        return thing.u.value;
    /* A name may stand for what a function returned that returns nothing. */
    if (thing.kind == GOLDEN_NOTHING && co_ok(f->ctx) && !f->w->c->is_failed)
        return co_none(f->ctx);
    if (co_ok(f->ctx) && !f->w->c->is_failed)
        golden_refuse(f, "datasets, iterators and functions inside structures");
    return NULL;
}

co_value *
golden_field(golden_frame *f, json_t *step, const char *key)
{
    json_t *json = json_object_get(step, key);

    if (json == NULL) {
        golden_fail(f->w->c, "a statement of the case has no '%s'", key);
        return NULL;
    }
    return golden_operand_value(f, json);
}

/* --- specifications --- */

co_value *
golden_element_spec(golden_frame *f, golden_thing thing)
{
    if (thing.kind == GOLDEN_DATASET)
        return co_element_spec(f->ctx, thing.u.dataset);
    if (thing.kind == GOLDEN_ITERATOR)
        return co_iterator_element_spec(f->ctx, thing.u.iterator);
    if (co_ok(f->ctx))
        golden_fail(f->w->c, "the case asks for the element spec of neither dataset nor iterator");
    return NULL;
}

static co_value *
read_leaf_spec(golden_frame *f, json_t *json)
{
    const char *name = golden_string(f->w->c, json, "dtype");
    json_t     *shape = json_object_get(json, "shape");
    int64_t     dims[CO_MAX_DIMS];
    size_t      n = json_array_size(shape);

    if (n > CO_MAX_DIMS || shape == NULL || f->w->c->is_failed) {
        golden_fail(f->w->c, "a spec of the case has no shape of at most %d dimensions",
                    CO_MAX_DIMS);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        dims[i] = json_integer_value(json_array_get(shape, i));
    return co_spec(f->ctx, co_dtype_from_name(name), dims, json_is_null(shape) ? -1 : (int)n);
}

co_value *
golden_read_spec(golden_frame *f, json_t *json)
{
    json_t      *of = json_object_get(json, "element_spec_of");
    golden_thing thing;
    co_value    *value = NULL;

    if (json_is_string(of)) {
        thing = golden_operand(f, of);
        return golden_element_spec(f, thing);
    }
    if (json_object_get(json, "dtype") != NULL)
        return read_leaf_spec(f, json);
    if (read_structure(f, json, golden_read_spec, &value))
        return value;
    return golden_operand_value(f, json); /* a host value: no spec, and the library says so */
}

/* --- writing --- */

static json_t *
write_items(co_context *ctx, co_value *value, const char *name,
            json_t *(*write)(co_context *ctx, co_value *value))
{
    json_t *items = json_array();
    size_t  n = co_num_items(ctx, value);

    for (size_t i = 0; i < n; ++i)
        json_array_append_new(items, write(ctx, co_at(ctx, value, i)));
    return json_pack("{s:o}", name, items);
}

static json_t *
write_map(co_context *ctx, co_value *value, json_t *(*write)(co_context *ctx, co_value *value))
{
    json_t *items = json_object();
    size_t  n = co_num_items(ctx, value);

    for (size_t i = 0; i < n; ++i)
        json_object_set_new(items, co_key(ctx, value, i), write(ctx, co_at(ctx, value, i)));
    return json_pack("{s:o}", "dict", items);
}

/* NULL: it is no structure. */
static json_t *
write_structure(co_context *ctx, co_value *value,
                json_t *(*write)(co_context *ctx, co_value *value))
{
    switch (co_value_kind(value)) {
    case CO_KIND_LIST: return write_items(ctx, value, "list", write);
    case CO_KIND_TUPLE: return write_items(ctx, value, "tuple", write);
    case CO_KIND_PER_REPLICA: return write_items(ctx, value, "per_replica", write);
    case CO_KIND_MIRRORED: return write_items(ctx, value, "mirrored", write);
    case CO_KIND_DICT: return write_map(ctx, value, write);
    default: return NULL;
    }
}

static json_t *
write_shape(co_context *ctx, co_value *value)
{
    int     ndim = co_value_ndim(ctx, value);
    json_t *shape = ndim < 0 ? json_null() : json_array();

    for (int i = 0; i < ndim; ++i)
        json_array_append_new(shape, json_integer(co_value_dim(ctx, value, i)));
    return shape;
}

static json_t *
write_type(co_context *ctx, co_value *value)
{
    return json_pack("{s:s, s:o}", "dtype", co_dtype_name(co_value_dtype(ctx, value)), "shape",
                     write_shape(ctx, value));
}

json_t *
golden_write_spec_of(co_context *ctx, co_value *value)
{
    json_t *json;

    if (value == NULL || co_value_kind(value) == CO_KIND_NONE)
        return json_null();
    json = write_structure(ctx, value, golden_write_spec_of);
    return json != NULL ? json : write_type(ctx, value);
}

static json_t *
write_slices(co_context *ctx, co_value *value)
{
    json_t *json = golden_write_value(ctx, value);

    json_object_set_new(json, "dense",
                        golden_write_value(ctx, co_to_tensor(ctx, value, CO_DTYPE_NONE)));
    return json;
}

/* A variable of several components is read where it stands. */
static json_t *
write_variable(co_context *ctx, co_value *value)
{
    return golden_write_operand(ctx, co_variable_read(ctx, value));
}

json_t *
golden_write_operand(co_context *ctx, co_value *value)
{
    json_t *json;

    if (value == NULL || !co_ok(ctx))
        return json_null();
    switch (co_value_kind(value)) {
    case CO_KIND_INT: return json_pack("{s:o}", "int", golden_write_value(ctx, value));
    case CO_KIND_FLOAT: return json_pack("{s:o}", "float", golden_write_value(ctx, value));
    case CO_KIND_BOOL: return json_pack("{s:o}", "bool", golden_write_value(ctx, value));
    case CO_KIND_STRING: return json_pack("{s:o}", "str", golden_write_value(ctx, value));
    case CO_KIND_SYMBOLIC: return json_pack("{s:o}", "symbolic", write_type(ctx, value));
    case CO_KIND_SLICES: return write_slices(ctx, value);
    case CO_KIND_VARIABLE: return write_variable(ctx, value);
    default: break;
    }
    json = write_structure(ctx, value, golden_write_operand);
    return json != NULL ? json : golden_write_value(ctx, value);
}
