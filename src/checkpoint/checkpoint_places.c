/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a checkpoint is made of: one row of functions for each kind of state that can be added. A
 * row lists the tensors of a state under their names, and puts tensors that were read back.
 *
 * A variable that each replica has for itself (synchronised on read) has two places: its value, and
 * the components of all replicas, "w.replicas". With as many replicas as before the components come
 * back as they were. Otherwise the value goes to the first replica, so that sums stay exact.
 */
#include "checkpoint/checkpoint.h"

#include "collective/collective.h"
#include "data/dataset.h"
#include "strategy/strategy.h"
#include "train/optimizer.h"
#include "variable/variable.h"

#include <stdio.h>
#include <string.h>

/* --- lists of places --- */

void
coi_places_free(coi_heap *heap, coi_places *places)
{
    for (size_t i = 0; i < places->n; ++i) {
        coi_unref(heap, places->at[i].variable);
        coi_unref(heap, places->at[i].tensor);
        coi_free(places->memory, places->at[i].name, places->at[i].name_bytes);
    }
    coi_free(places->memory, places->at, places->capacity * sizeof(*places->at));
    *places = (coi_places){ .memory = places->memory };
}

/* A new place "first/second" or, without a second, "first"; NULL with an error. */
static coi_place *
add_place(co_context *ctx, coi_places *places, const char *first, const char *second)
{
    size_t     nbytes = strlen(first) + (second != NULL ? strlen(second) + 1 : 0) + 1;
    char      *name = coi_alloc(places->memory, nbytes);
    coi_place *place = NULL;

    if (name != NULL && coi_grow(places->memory, (void **)&places->at, &places->capacity,
                                 places->n + 1, sizeof(*places->at))) {
        snprintf(name, nbytes, "%s%s%s", first, second != NULL ? "/" : "",
                 second != NULL ? second : "");
        place = &places->at[places->n++];
        *place = (coi_place){ .name = name, .name_bytes = nbytes };
        return place;
    }
    coi_free(places->memory, name, nbytes);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of a checkpoint");
    return NULL;
}

static void
set_type(coi_place *place, co_dtype dtype, const int64_t *dims, int ndim)
{
    place->dtype = dtype;
    place->ndim = ndim;
    if (ndim > 0)
        memcpy(place->dims, dims, (size_t)ndim * sizeof(*dims));
}

/* The tensor of a place, of ctx's block: false if it is NULL, with the error. */
static bool
hold(coi_place *place, co_value *tensor)
{
    if (tensor == NULL)
        return false;
    coi_ref(tensor);
    place->tensor = tensor;
    return true;
}

/* --- variables --- */

static bool
has_parts(const coi_variable *variable)
{
    return variable->components != NULL && variable->synchronization == CO_SYNC_ON_READ;
}

/* The components on all replicas of all processes, behind each other. */
static co_value *
gather_parts(co_context *ctx, const coi_variable *variable)
{
    size_t    n = variable->num_components;
    co_value *parts[COI_MAX_LOCAL_REPLICAS];

    for (size_t i = 0; i < n; ++i) {
        parts[i] = co_variable_read(ctx, variable->components[i]);
        if (parts[i] != NULL)
            parts[i] = co_expand_dims(ctx, parts[i], 0);
    }
    if (ctx->error.code != CO_OK)
        return NULL;
    return co_gather_replicas(ctx, variable->strategy, co_per_replica_value(ctx, parts, n), 0);
}

/* `second` may be NULL, as for add_place. */
static bool
list_variable(co_context *ctx, const char *first, const char *second, co_value *value, bool saves,
              coi_places *places)
{
    const coi_variable *variable = value->u.variable;
    coi_place          *place = add_place(ctx, places, first, second);
    size_t              whole = places->n - 1, nbytes;

    if (place == NULL)
        return false;
    coi_ref(value);
    place->variable = value;
    set_type(place, (co_dtype)variable->dtype, variable->shape.dims, variable->shape.ndim);
    if (saves && !hold(place, co_variable_save(ctx, value)))
        return false;
    if (!has_parts(variable) || variable->strategy->num_replicas == 1 ||
        variable->shape.ndim == CO_MAX_DIMS)
        return true;
    place = add_place(ctx, places, places->at[whole].name, NULL);
    if (place == NULL)
        return false;
    coi_free(places->memory, place->name, place->name_bytes);
    nbytes = places->at[whole].name_bytes + sizeof("replicas");
    place->name = coi_alloc(places->memory, nbytes);
    place->name_bytes = place->name != NULL ? nbytes : 0;
    if (place->name == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of a checkpoint");
        return false;
    }
    snprintf(place->name, nbytes, "%s.replicas", places->at[whole].name);
    coi_ref(value);
    place->variable = value;
    place->is_parts = place->is_optional = true;
    place->dtype = (co_dtype)variable->dtype;
    place->ndim = variable->shape.ndim + 1;
    place->dims[0] = variable->strategy->num_replicas;
    memcpy(place->dims + 1, variable->shape.dims,
           (size_t)variable->shape.ndim * sizeof(*place->dims));
    return !saves || hold(place, gather_parts(ctx, variable));
}

static bool
assign_component(co_context *ctx, co_value *component, co_value *value)
{
    co_value *now = value != NULL
                        ? component->u.variable->ops->assign(ctx, component, COI_ASSIGN, value)
                        : NULL;

    coi_unref(&ctx->heap, now);
    return now != NULL;
}

/* The row of a tensor that belongs to component i. */
static co_value *
row_of(co_context *ctx, const coi_variable *variable, co_value *rows, size_t i)
{
    int64_t at = variable->strategy->first_local + (int64_t)i;

    return co_gather(ctx, rows, co_scalar_int64(ctx, at), 0, 0);
}

static bool
put_parts(co_context *ctx, const coi_variable *variable, co_value *rows)
{
    bool ok = true;

    for (size_t i = 0; ok && i < variable->num_components; ++i)
        ok = assign_component(ctx, variable->components[i], row_of(ctx, variable, rows, i));
    return ok;
}

/* A sum goes to the first replica of all; every other kind of value to every replica. */
static bool
put_in_components(co_context *ctx, const coi_variable *variable, co_value *whole)
{
    bool      is_sum = variable->aggregation == CO_AGGREGATION_SUM, ok = true;
    co_value *zeros = is_sum ? co_zeros_like(ctx, whole) : NULL;

    for (size_t i = 0; ok && i < variable->num_components; ++i) {
        bool is_first = i == 0 && variable->strategy->first_local == 0;

        ok = assign_component(ctx, variable->components[i], is_sum && !is_first ? zeros : whole);
    }
    return ok;
}

static bool
put_variable(co_context *ctx, const coi_place *place)
{
    const coi_variable *variable = place->variable->u.variable;

    if (place->tensor == NULL)
        return true;
    if (place->is_parts)
        return put_parts(ctx, variable, place->tensor);
    if (has_parts(variable))
        return put_in_components(ctx, variable, place->tensor);
    return co_variable_restore(ctx, place->variable, place->tensor) == CO_OK;
}

static bool
put_variables(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
              size_t n)
{
    bool ok = true;

    (void)checkpoint;
    (void)state;
    for (size_t i = 0; ok && i < n; ++i)
        ok = places[i].variable == NULL || put_variable(ctx, &places[i]);
    return ok;
}

/* Leaves of a structure under the names of their keys, or their numbers. */
static bool
list_structure(co_context *ctx, const char *name, co_value *value, bool saves, coi_places *places)
{
    bool ok = true;

    if (coi_is_variable(value))
        return list_variable(ctx, name, NULL, value, saves, places);
    if (!coi_is_structure(value)) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "'%.100s' of a checkpoint is %s; it must be a variable, or a structure of them",
                 name, coi_a_kind(value->kind));
        return false;
    }
    for (size_t i = 0; ok && i < value->u.items.n; ++i) {
        const char *key = co_key(ctx, value, i);
        size_t      nbytes = strlen(name) + (key != NULL ? strlen(key) : 20) + 2;
        char       *part = coi_small_alloc(&ctx->heap, nbytes);

        if (part == NULL) {
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of a checkpoint");
            return false;
        }
        if (key != NULL)
            snprintf(part, nbytes, "%s/%s", name, key);
        else
            snprintf(part, nbytes, "%s/%zu", name, i);
        ok = list_structure(ctx, part, value->u.items.items[i], saves, places);
        coi_small_free(&ctx->heap, part, nbytes);
    }
    return ok;
}

static bool
list_variables(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
               coi_places *places)
{
    (void)checkpoint;
    return list_structure(ctx, state->name, state->variables, saves, places);
}

const coi_state_kind coi_saved_variables = { NULL, list_variables, NULL, put_variables };

/* --- optimizers: scalars by co_optimizer_set_state, slots as variables --- */

static bool
list_optimizer(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
               coi_places *places)
{
    co_value *all;
    bool      ok = true;

    (void)checkpoint;
    if (co_optimizer_build(ctx, state->optimizer, state->variables) != CO_OK ||
        (all = co_optimizer_state(ctx, state->optimizer)) == NULL)
        return false;
    for (size_t i = 0; ok && i < all->u.items.n; ++i) {
        const char *key = co_key(ctx, all, i);
        co_value   *value = all->u.items.items[i];
        coi_place  *place;

        if (coi_is_variable(value)) {
            ok = list_variable(ctx, state->name, key, value, saves, places);
            continue;
        }
        place = add_place(ctx, places, state->name, key);
        ok = place != NULL;
        if (ok)
            set_type(place, (co_dtype)value->dtype, NULL, 0);
        if (ok && saves)
            ok = hold(place, value);
    }
    return ok;
}

static bool
put_optimizer(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
              size_t n)
{
    const char *keys[8];
    co_value   *values[8];
    size_t      count = 0, prefix = strlen(state->name) + 1;

    for (size_t i = 0; i < n && count < 8; ++i)
        if (places[i].variable == NULL && places[i].tensor != NULL) {
            keys[count] = places[i].name + prefix;
            values[count++] = places[i].tensor;
        }
    return put_variables(ctx, checkpoint, state, places, n) &&
           (count == 0 || co_optimizer_set_state(ctx, state->optimizer,
                                                 co_dict(ctx, keys, values, count)) == CO_OK);
}

const coi_state_kind coi_saved_optimizer = { NULL, list_optimizer, NULL, put_optimizer };

/* --- metrics --- */

static bool
list_metric(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
            coi_places *places)
{
    co_value *all = co_metric_variables(ctx, state->metric);

    (void)checkpoint;
    return all != NULL && list_structure(ctx, state->name, all, saves, places);
}

const coi_state_kind coi_saved_metric = { NULL, list_metric, NULL, put_variables };

/* --- iterators: every process has its own --- */

#define MOST_BASE 250

/* "name", or "name.worker-1" where there are several processes. */
static coi_place *
add_iterator_place(co_context *ctx, const coi_state *state, int worker, int workers,
                   coi_places *places)
{
    char       name[300];
    coi_place *place;

    if (workers > 1)
        snprintf(name, sizeof(name), "%.*s.worker-%d", MOST_BASE, state->name, worker);
    place = add_place(ctx, places, workers > 1 ? name : state->name, NULL);
    if (place != NULL) {
        place->is_bytes = true;
        place->dtype = CO_UINT8;
        place->workers = workers;
        place->base = strlen(state->name);
        if (workers > 1 && place->base > MOST_BASE)
            place->base = MOST_BASE;
    }
    return place;
}

/* A tensor of the bytes of a string. */
static co_value *
tensor_of_bytes(co_context *ctx, co_value *string)
{
    size_t      nbytes;
    const char *bytes = string != NULL ? co_string_at(ctx, string, 0, &nbytes) : NULL;
    int64_t     dim = bytes != NULL ? (int64_t)nbytes : 0;

    return bytes != NULL ? co_tensor(ctx, CO_UINT8, &dim, 1, bytes) : NULL;
}

/* The bytes are kept until they are listed. False without any. */
static bool
take(coi_heap *heap, coi_state *state, co_value *bytes)
{
    if (bytes == NULL)
        return false;
    coi_ref(bytes);
    coi_unref(heap, state->taken);
    state->taken = bytes;
    return true;
}

static bool
take_iterator(co_context *ctx, coi_state *state)
{
    return take(&ctx->heap, state, tensor_of_bytes(ctx, co_iterator_save(ctx, *state->iterator)));
}

/* The bytes of every process. Each takes part once for each of its replicas. */
static bool
gather_iterators(co_context *ctx, const co_checkpoint *checkpoint, const coi_state *state,
                 co_value *mine, coi_places *places)
{
    co_strategy *strategy = checkpoint->strategy;
    int64_t      place[2] = { checkpoint->strategy->worker, 0 };
    co_value    *all, *about;
    int64_t      at = 0;
    int          last = -1;

    place[1] = co_value_num_elements(ctx, mine);
    about = co_gather_replicas(ctx, strategy,
                               co_tensor(ctx, CO_INT64, (const int64_t[]){ 1, 2 }, 2, place), 0);
    all = about != NULL ? co_gather_replicas(ctx, strategy, mine, 0) : NULL;
    for (int64_t i = 0; all != NULL && i < strategy->num_replicas; ++i) {
        const int64_t *of = co_value_data(ctx, about);
        int64_t        worker = of[2 * i], nbytes = of[2 * i + 1];

        if (worker != last) {
            coi_place *here = add_iterator_place(ctx, state, (int)worker, strategy->num_workers,
                                                 places);

            if (here == NULL || !hold(here, co_slice(ctx, all, &at, &nbytes, 1)))
                return false;
        }
        last = (int)worker;
        at += nbytes;
    }
    return all != NULL;
}

static bool
list_iterator(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
              coi_places *places)
{
    int        workers = coi_checkpoint_workers(checkpoint);
    coi_place *place;

    if (saves && workers > 1)
        return gather_iterators(ctx, checkpoint, state, state->taken, places);
    place = add_iterator_place(ctx, state, coi_checkpoint_worker(checkpoint), workers, places);
    return place != NULL && (!saves || hold(place, state->taken));
}

/* The dataset is another one, or of other replicas. */
static bool
cannot_go_on(co_context *ctx, co_checkpoint *checkpoint, const coi_state *state)
{
    co_error_info why = ctx->error;
    char          text[800];

    if (why.code != CO_INVALID_ARGUMENT)
        return false;
    coi_error_reset(&ctx->error);
    snprintf(text, sizeof(text), "%.200s: the iterator cannot go on: %.550s", state->name,
             why.message);
    if (!coi_report_differs(ctx, checkpoint, state->name, text))
        return false;
    if (checkpoint->folder.options.is_partial)
        return true;
    ctx->call = "checkpoint_restore";
    coi_fail(ctx, CO_VALUE_ERROR,
             "the iterator '%.100s' cannot go on, and nothing was restored; is_partial restores "
             "all else: %s",
             state->name, why.message);
    return false;
}

/* The iterator is made now, and takes its place when all else can. */
static bool
prepare_iterator(co_context *ctx, co_checkpoint *checkpoint, coi_state *state, coi_place *places,
                 size_t n)
{
    co_iterator *iterator;

    coi_unref(&ctx->heap, state->prepared); /* of a restore that failed later on */
    state->prepared = NULL;
    if (n != 1 || places[0].tensor == NULL)
        return true;
    iterator = co_iterator_restore(ctx, state->dataset,
                                   co_bytes(ctx, co_value_data(ctx, places[0].tensor),
                                            (size_t)co_value_num_elements(ctx, places[0].tensor)));
    if (iterator == NULL)
        return cannot_go_on(ctx, checkpoint, state);
    coi_ref(iterator);
    state->prepared = iterator;
    return true;
}

static bool
put_iterator(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
             size_t n)
{
    (void)checkpoint;
    (void)places;
    (void)n;
    if (state->prepared == NULL)
        return true;
    *state->iterator = state->prepared;
    coi_unref(&ctx->heap, state->restored);
    state->restored = state->prepared;
    state->prepared = NULL;
    return true;
}

const coi_state_kind coi_saved_iterator = { take_iterator, list_iterator, prepare_iterator,
                                            put_iterator };

/* --- numbers and bytes of the user --- */

static bool
list_counter(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
             coi_places *places)
{
    coi_place *place = add_place(ctx, places, state->name, NULL);

    (void)checkpoint;
    if (place == NULL)
        return false;
    set_type(place, CO_INT64, NULL, 0);
    return !saves || hold(place, co_scalar_int64(ctx, *state->counter));
}

static bool
put_counter(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
            size_t n)
{
    (void)checkpoint;
    if (n == 1 && places[0].tensor != NULL)
        *state->counter = co_item_int(ctx, places[0].tensor);
    return ctx->error.code == CO_OK;
}

const coi_state_kind coi_saved_counter = { NULL, list_counter, NULL, put_counter };

static bool
take_user(co_context *ctx, coi_state *state)
{
    co_value *value = state->user.save(ctx, state->user.user);

    if (value == NULL && ctx->error.code == CO_OK)
        coi_fail(ctx, CO_TYPE_ERROR, "the save function of '%.100s' returned NULL", state->name);
    return value != NULL && take(&ctx->heap, state, tensor_of_bytes(ctx, value));
}

static bool
list_user(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
          coi_places *places)
{
    coi_place *place = add_place(ctx, places, state->name, NULL);

    (void)checkpoint;
    if (place == NULL)
        return false;
    place->is_bytes = true;
    place->dtype = CO_UINT8;
    return !saves || hold(place, state->taken);
}

static bool
put_user(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
         size_t n)
{
    co_value *saved;

    (void)checkpoint;
    if (n != 1 || places[0].tensor == NULL)
        return true;
    saved = co_bytes(ctx, co_value_data(ctx, places[0].tensor),
                     (size_t)co_value_num_elements(ctx, places[0].tensor));
    if (saved == NULL)
        return false;
    if (state->user.restore(ctx, saved, state->user.user) != CO_OK && ctx->error.code == CO_OK)
        coi_fail(ctx, CO_ABORTED, "the restore function of '%.100s' failed", state->name);
    return ctx->error.code == CO_OK;
}

const coi_state_kind coi_saved_user = { take_user, list_user, NULL, put_user };

/* --- the random numbers of the context: its seed, and how many were drawn --- */

static bool
list_random(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
            coi_places *places)
{
    const int64_t two = 2, now[2] = { (int64_t)ctx->seed, (int64_t)ctx->random_counter };
    coi_place    *place = add_place(ctx, places, state->name, NULL);

    (void)checkpoint;
    if (place == NULL)
        return false;
    set_type(place, CO_INT64, &two, 1);
    place->is_optional = true; /* a file of another program has none */
    return !saves || hold(place, co_tensor(ctx, CO_INT64, &two, 1, now));
}

static bool
put_random(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
           size_t n)
{
    const int64_t *then;

    (void)checkpoint;
    (void)state;
    if (n != 1 || places[0].tensor == NULL)
        return true;
    then = co_value_data(ctx, places[0].tensor);
    if (then == NULL)
        return false;
    ctx->seed = (uint64_t)then[0];
    ctx->random_counter = (uint64_t)then[1];
    return true;
}

const coi_state_kind coi_saved_random = { NULL, list_random, NULL, put_random };

/* --- all of them --- */

static bool
check_names(co_context *ctx, const coi_places *places)
{
    for (size_t i = 0; i < places->n; ++i)
        for (size_t k = 0; k < i; ++k)
            if (strcmp(places->at[i].name, places->at[k].name) == 0) {
                coi_fail(ctx, CO_ALREADY_EXISTS,
                         "a checkpoint has two tensors of the name '%.200s'; give variables "
                         "different names, or add them under different ones",
                         places->at[i].name);
                return false;
            }
    return true;
}

bool
coi_states_take(co_context *ctx, co_checkpoint *checkpoint)
{
    bool ok = true;

    co_block_begin(ctx);
    for (coi_state *s = checkpoint->states; ok && s != NULL; s = s->next)
        ok = s->kind->take == NULL || s->kind->take(ctx, s);
    co_block_end(ctx);
    return ok;
}

bool
coi_places_list(co_context *ctx, co_checkpoint *checkpoint, bool saves, coi_places *places)
{
    bool ok = true;

    for (coi_state *s = checkpoint->states; ok && s != NULL; s = s->next) {
        s->first = places->n;
        ok = s->kind->list(ctx, checkpoint, s, saves, places);
        s->end = places->n;
        coi_unref(&ctx->heap, s->taken);
        s->taken = NULL;
    }
    return ok && check_names(ctx, places);
}
