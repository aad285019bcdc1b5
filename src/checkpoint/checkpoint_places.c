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

#include "base/text.h"
#include "collective/collective.h"
#include "data/dataset.h"
#include "io/tensor_file.h"
#include "strategy/strategy.h"
#include "train/metric.h"
#include "train/optimizer.h"
#include "variable/variable.h"

#include <stdio.h>
#include <stdlib.h>
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
    places->at = NULL;
    places->n = places->capacity = 0;
}

/* A new place called by both texts, one behind the other; NULL with an error. `first` may be the
 * name of another place. */
static coi_place *
add_place(co_context *ctx, coi_places *places, const char *first, const char *second)
{
    size_t     nbytes = strlen(first) + strlen(second) + 1;
    char      *name = coi_alloc(places->memory, nbytes);
    coi_place *place = NULL;

    if (name != NULL && coi_grow(places->memory, (void **)&places->at, &places->capacity,
                                 places->n + 1, sizeof(*places->at))) {
        snprintf(name, nbytes, "%s%s", first, second);
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

/* The place "name.replicas" of what each replica has for itself. */
static bool
list_parts(co_context *ctx, const char *name, co_value *value, bool saves, coi_places *places)
{
    const coi_variable *variable = value->u.variable;
    coi_place          *place = add_place(ctx, places, name, ".replicas");

    if (place == NULL)
        return false;
    coi_ref(value);
    place->variable = value;
    place->is_parts = true;
    place->dtype = (co_dtype)variable->dtype;
    place->ndim = variable->shape.ndim + 1;
    place->dims[0] = variable->strategy->num_replicas;
    memcpy(place->dims + 1, variable->shape.dims,
           (size_t)variable->shape.ndim * sizeof(*place->dims));
    return !saves || hold(place, gather_parts(ctx, variable));
}

/* `whole` is what is saved, NULL: what the variable has over all replicas. */
static bool
list_variable(co_context *ctx, const char *name, co_value *value, co_value *whole, bool saves,
              coi_places *places)
{
    const coi_variable *variable = value->u.variable;
    bool                is_each = has_parts(variable);
    coi_place          *place;

    if (is_each && variable->aggregation == CO_AGGREGATION_NONE && whole == NULL) {
        if (variable->shape.ndim < CO_MAX_DIMS)
            return list_parts(ctx, name, value, saves, places);
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "variable '%.100s' has %d dimensions and a value for each replica, which a "
                 "checkpoint cannot have; give it an aggregation or fewer dimensions",
                 name, CO_MAX_DIMS);
        return false;
    }
    place = add_place(ctx, places, name, "");
    if (place == NULL)
        return false;
    coi_ref(value);
    place->variable = value;
    set_type(place, (co_dtype)variable->dtype, variable->shape.dims, variable->shape.ndim);
    if (saves && !hold(place, whole != NULL ? whole : co_variable_save(ctx, value)))
        return false;
    if (!is_each || variable->strategy->num_replicas == 1 || variable->shape.ndim == CO_MAX_DIMS)
        return true;
    if (!list_parts(ctx, name, value, saves, places))
        return false;
    places->at[places->n - 1].is_optional = true; /* there is the value over all */
    return true;
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

/* "name/key", in memory of the heap: *nbytes of it. NULL with an error. */
static char *
part_name(co_context *ctx, const char *name, const char *key, size_t *nbytes)
{
    char *part;

    *nbytes = strlen(name) + strlen(key) + 2;
    part = coi_small_alloc(&ctx->heap, *nbytes);
    if (part != NULL)
        snprintf(part, *nbytes, "%s/%s", name, key);
    else
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of a checkpoint");
    return part;
}

/* Leaves of a structure under the names of their keys, or their numbers. */
static bool
list_structure(co_context *ctx, const char *name, co_value *value, bool saves, coi_places *places)
{
    bool ok = true;

    if (coi_is_variable(value))
        return list_variable(ctx, name, value, NULL, saves, places);
    if (!coi_is_structure(value)) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "'%.100s' of a checkpoint is %s; it must be a variable, or a structure of them",
                 name, coi_a_kind(value->kind));
        return false;
    }
    for (size_t i = 0; ok && i < value->u.items.n; ++i) {
        const char *key = co_key(ctx, value, i);
        char        number[24], *part;
        size_t      nbytes;

        snprintf(number, sizeof(number), "%zu", i);
        part = part_name(ctx, name, key != NULL ? key : number, &nbytes);
        if (part == NULL)
            return false;
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

const coi_state_kind coi_saved_variables = { .list = list_variables, .put = put_variables };

/* --- optimizers: scalars by co_optimizer_set_state, slots as variables --- */

static bool
list_optimizer_state(co_context *ctx, const char *name, co_value *value, bool saves,
                     coi_places *places)
{
    coi_place *place;

    if (coi_is_variable(value))
        return list_variable(ctx, name, value, NULL, saves, places);
    place = add_place(ctx, places, name, "");
    if (place == NULL)
        return false;
    set_type(place, (co_dtype)value->dtype, NULL, 0);
    return !saves || hold(place, value);
}

static bool
list_optimizer(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
               coi_places *places)
{
    co_value *all;
    bool      ok = true;

    (void)checkpoint;
    if (atomic_load(&state->optimizer->is_swapped)) {
        coi_fail(ctx, CO_FAILED_PRECONDITION,
                 "the averages of '%.100s' stand in place of the weights; "
                 "co_optimizer_swap_averages puts the weights back",
                 state->name);
        return false;
    }
    if (co_optimizer_build(ctx, state->optimizer, state->variables) != CO_OK ||
        (all = co_optimizer_state(ctx, state->optimizer)) == NULL)
        return false;
    for (size_t i = 0; ok && i < all->u.items.n; ++i) {
        size_t nbytes;
        char  *name = part_name(ctx, state->name, co_key(ctx, all, i), &nbytes);

        if (name == NULL)
            return false;
        ok = list_optimizer_state(ctx, name, all->u.items.items[i], saves, places);
        coi_small_free(&ctx->heap, name, nbytes);
    }
    return ok;
}

/* The scalars that were read, for co_optimizer_set_state; NULL with an error. */
static co_value *
scalars_read(co_context *ctx, const coi_state *state, const coi_place *places, size_t n)
{
    size_t       nbytes = (n + 1) * (sizeof(char *) + sizeof(co_value *)), count = 0;
    const char **keys = coi_small_alloc(&ctx->heap, nbytes);
    co_value   **values = (co_value **)(void *)(keys + n + 1), *scalars;

    if (keys == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the state of an optimizer");
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        if (places[i].variable == NULL && places[i].tensor != NULL) {
            keys[count] = places[i].name + strlen(state->name) + 1;
            values[count++] = places[i].tensor;
        }
    scalars = co_dict(ctx, keys, values, count);
    coi_small_free(&ctx->heap, keys, nbytes);
    return scalars;
}

static bool
prepare_optimizer(co_context *ctx, co_checkpoint *checkpoint, coi_state *state, coi_place *places,
                  size_t n)
{
    co_value *scalars = scalars_read(ctx, state, places, n);

    (void)checkpoint;
    return scalars != NULL && coi_optimizer_check_scalars(ctx, state->optimizer, scalars);
}

static bool
put_optimizer(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
              size_t n)
{
    return put_variables(ctx, checkpoint, state, places, n) &&
           co_optimizer_set_state(ctx, state->optimizer, scalars_read(ctx, state, places, n)) ==
               CO_OK;
}

const coi_state_kind coi_saved_optimizer = { .list = list_optimizer,
                                             .prepare = prepare_optimizer,
                                             .put = put_optimizer };

/* --- metrics: variables that may be made by the first update, and a merge of the program's own ---
 */

/* The entry of a state of a metric; NULL: there is none, or with an error. */
static const coi_tensor_entry *
entry_of(co_context *ctx, const coi_state *state, size_t i, const coi_tensor_file *file)
{
    const coi_tensor_entry *entry;
    size_t                  nbytes;
    char *name = part_name(ctx, state->name, state->metric->state[i].name, &nbytes);

    if (name == NULL)
        return NULL;
    entry = coi_tensor_file_entry(file, name, nbytes - 1);
    coi_small_free(&ctx->heap, name, nbytes);
    return entry;
}

/* The number of classes that all states of a metric have in a file; 0: there is none. A file that
 * claims many has as many bytes. */
static int64_t
classes_in_file(co_context *ctx, const coi_state *state, const coi_tensor_file *file)
{
    int64_t classes = 0;

    for (size_t i = 0; i < state->metric->num_variables; ++i) {
        const coi_metric_state *s = &state->metric->state[i];
        const coi_tensor_entry *entry = entry_of(ctx, state, i, file);

        if (entry == NULL || entry->info.ndim != s->ndim || entry->info.dtype != s->dtype)
            return 0;
        for (int d = 0; d < s->ndim; ++d) {
            if (s->dims[d] == COI_CLASSES && classes == 0)
                classes = entry->info.dims[d];
            if (entry->info.dims[d] != (s->dims[d] == COI_CLASSES ? classes : s->dims[d]))
                return 0;
        }
    }
    return classes;
}

/* A metric that was not updated yet gets the variables that the file has. */
static bool
meet_metric(co_context *ctx, coi_state *state, const coi_tensor_file *file)
{
    int64_t classes;

    if (coi_metric_is_built(state->metric))
        return true;
    classes = classes_in_file(ctx, state, file);
    if (ctx->error.code == CO_OK && classes > 0)
        coi_metric_build(ctx, state->metric, classes);
    return ctx->error.code == CO_OK;
}

static bool
list_metric(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
            coi_places *places)
{
    co_metric *metric = state->metric;
    co_value  *whole[COI_METRIC_MAX_VARIABLES] = { NULL };
    bool       ok = true;

    (void)checkpoint;
    if (!coi_metric_is_built(metric))
        return true;
    if (saves && !coi_metric_read_state(ctx, metric, whole))
        return false;
    for (size_t i = 0; ok && i < metric->num_variables; ++i) {
        size_t nbytes, first = places->n;
        char  *name = part_name(ctx, state->name, metric->state[i].name, &nbytes);

        if (name == NULL)
            return false;
        if (!saves) /* there is a value over all replicas */
            whole[i] = metric->variables[i];
        ok = list_variable(ctx, name, metric->variables[i], whole[i], saves, places);
        coi_small_free(&ctx->heap, name, nbytes);
        if (metric->anchor != NULL && ok) /* it may have been saved before its first update */
            places->at[first].is_optional = true;
    }
    return ok;
}

/* The values over all replicas that were read, for co_metric_restore: how many there are. */
static size_t
values_read(const co_metric *metric, const coi_place *places, size_t n, const char **names,
            co_value **values)
{
    size_t at = 0, num_read = 0;

    for (size_t i = 0; i < n; ++i)
        if (!places[i].is_parts) {
            names[at] = metric->state[at].name;
            values[at++] = places[i].tensor;
            num_read += places[i].tensor != NULL;
        }
    return num_read;
}

/* The values over all replicas first, then those of each, if there are as many. No process waits
 * for another: one may have failed to read the file. */
static bool
put_metric(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, coi_place *places,
           size_t n)
{
    co_metric  *metric = state->metric;
    co_value   *values[COI_METRIC_MAX_VARIABLES];
    const char *names[COI_METRIC_MAX_VARIABLES];
    size_t      num_read = values_read(metric, places, n, names, values);
    bool        ok = true;

    if (num_read == 0) /* it was saved before its first update, or is_partial */
        return metric->anchor == NULL || co_metric_reset(ctx, metric) == CO_OK;
    if (num_read < metric->num_variables) /* is_partial */
        return put_variables(ctx, checkpoint, state, places, n);
    ok = co_metric_restore(ctx, metric, co_dict(ctx, names, values, num_read)) == CO_OK;
    for (size_t i = 0; ok && i < n; ++i)
        ok = !places[i].is_parts || put_variable(ctx, &places[i]);
    return ok;
}

const coi_state_kind coi_saved_metric = { .meet = meet_metric,
                                          .list = list_metric,
                                          .put = put_metric };

/* --- iterators: every process has its own --- */

#define MOST_BASE 250

/* "name", or "name.worker-1" where there are several processes. */
static coi_place *
add_iterator_place(co_context *ctx, const coi_state *state, int worker, int workers,
                   coi_places *places)
{
    char       suffix[32] = "";
    coi_place *place;

    if (workers > 1)
        snprintf(suffix, sizeof(suffix), ".worker-%d", worker);
    place = add_place(ctx, places, state->name, suffix);
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

    coi_unref(&ctx->heap, state->prepared); /* of a restore that failed */
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

const coi_state_kind coi_saved_iterator = {
    .take = take_iterator, .list = list_iterator, .prepare = prepare_iterator, .put = put_iterator
};

/* --- numbers and bytes of the user --- */

static bool
list_counter(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
             coi_places *places)
{
    coi_place *place = add_place(ctx, places, state->name, "");

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

const coi_state_kind coi_saved_counter = { .list = list_counter, .put = put_counter };

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
    coi_place *place = add_place(ctx, places, state->name, "");

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

const coi_state_kind coi_saved_user = { .take = take_user, .list = list_user, .put = put_user };

/* --- the random numbers of the context: its seed, and how many were drawn --- */

static bool
list_random(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
            coi_places *places)
{
    const int64_t two = 2, now[2] = { (int64_t)ctx->seed, (int64_t)ctx->random_counter };
    coi_place    *place = add_place(ctx, places, state->name, "");

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

const coi_state_kind coi_saved_random = { .list = list_random, .put = put_random };

/* --- all of them --- */

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Files can have them: UTF-8, each once, and none that they use for something else. */
static bool
check_name(co_context *ctx, const char *name, const char *before)
{
    const char *at = name;
    size_t      n;

    while (*at != '\0' && (n = coi_utf8_length(at)) > 0)
        at += n;
    if (*at != '\0')
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "the name '%.200s' in a checkpoint is not UTF-8; give another one", name);
    else if (strcmp(name, "__metadata__") == 0)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "a tensor of a checkpoint is called '%s', which its file uses for something else; "
                 "give another name",
                 name);
    else if (before != NULL && strcmp(name, before) == 0)
        coi_fail(ctx, CO_ALREADY_EXISTS,
                 "a checkpoint has two tensors of the name '%.200s'; give variables different "
                 "names, or add them under different ones",
                 name);
    return ctx->error.code == CO_OK;
}

static bool
check_names(co_context *ctx, const coi_places *places)
{
    size_t       nbytes = (places->n + 1) * sizeof(char *);
    const char **names = coi_alloc(places->memory, nbytes);

    if (names == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the names of a checkpoint");
        return false;
    }
    for (size_t i = 0; i < places->n; ++i)
        names[i] = places->at[i].name;
    qsort(names, places->n, sizeof(*names), compare_names);
    for (size_t i = 0; i < places->n; ++i)
        if (!check_name(ctx, names[i], i > 0 ? names[i - 1] : NULL))
            break;
    coi_free(places->memory, names, nbytes);
    return ctx->error.code == CO_OK;
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
