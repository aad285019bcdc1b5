/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: opening a folder, adding what is saved, closing.
 */
#include "checkpoint/checkpoint.h"

#include "data/dataset.h"
#include "io/options.h"
#include "ops/engine/call_recording.h"
#include "strategy/strategy.h"
#include "train/optimizer.h"
#include "variable/variable.h"

#include <string.h>

/* --- opening and closing --- */

static void
free_state(coi_heap *heap, coi_memory *memory, coi_state *state)
{
    coi_unref(heap, state->variables);
    coi_unref(heap, state->optimizer);
    coi_unref(heap, state->metric);
    coi_unref(heap, state->dataset);
    coi_unref(heap, state->prepared);
    coi_unref(heap, state->taken);
    coi_unref(heap, state->restored);
    coi_free(memory, state->name, state->name_bytes);
    coi_free(memory, state, sizeof(*state));
}

static void
destroy(coi_heap *heap, void *object)
{
    co_checkpoint *checkpoint = object;
    coi_memory    *memory = &checkpoint->runtime->memory;
    coi_state     *next;

    coi_save_join(checkpoint);
    if (checkpoint->failure.code != CO_OK)
        coi_log_line(&checkpoint->runtime->log, CO_LOG_ERROR, "checkpoint %lld was not written: %s",
                     (long long)checkpoint->failed_step, checkpoint->failure.message);
    for (coi_state *s = checkpoint->states; s != NULL; s = next) {
        next = s->next;
        free_state(heap, memory, s);
    }
    coi_report_clear(memory, &checkpoint->report);
    coi_folder_close(&checkpoint->folder);
    coi_unref(heap, checkpoint->strategy);
    coi_object_free(heap, checkpoint, sizeof(*checkpoint));
}

static const coi_class checkpoint_class = { "checkpoint", destroy, NULL };

static bool
is_outside(co_context *ctx)
{
    if (!coi_in_replica(ctx) && !coi_is_capturing(ctx))
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR, "%s is called in %s; call it between steps", ctx->call,
             coi_in_replica(ctx) ? "a step" : "a captured function or a graph");
    return false;
}

bool
coi_check_checkpoint(co_context *ctx, const co_checkpoint *checkpoint)
{
    if (!coi_check_object(ctx, checkpoint, &checkpoint_class, 2, "checkpoint") || !is_outside(ctx))
        return false;
    if (!checkpoint->is_closed)
        return true;
    coi_fail(ctx, CO_FAILED_PRECONDITION,
             "argument 2 (checkpoint) was closed; open the folder again");
    return false;
}

int
coi_checkpoint_workers(const co_checkpoint *checkpoint)
{
    return checkpoint->strategy != NULL ? checkpoint->strategy->num_workers : 1;
}

int
coi_checkpoint_worker(const co_checkpoint *checkpoint)
{
    return checkpoint->strategy != NULL ? checkpoint->strategy->worker : 0;
}

static bool
check_options(co_context *ctx, const co_checkpoint_options *options)
{
    if (options->keep_last >= 0 && options->keep_best >= 0 &&
        (options->better == CO_BETTER_SMALLER || options->better == CO_BETTER_LARGER))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "keep_last is %d and keep_best %d (they must not be negative), better is %d (it must "
             "be CO_BETTER_SMALLER or CO_BETTER_LARGER)",
             options->keep_last, options->keep_best, (int)options->better);
    return false;
}

/* A state of the checkpoint; NULL with an error. */
static coi_state *
add_state(co_context *ctx, co_checkpoint *checkpoint, const char *name, const coi_state_kind *kind)
{
    coi_memory *memory = &ctx->runtime->memory;
    coi_state  *state = coi_calloc(memory, sizeof(*state));

    if (state != NULL) {
        state->kind = kind;
        state->name_bytes = strlen(name) + 1;
        state->name = coi_strndup(memory, name, state->name_bytes - 1);
        if (state->name != NULL) {
            *checkpoint->last_state = state;
            checkpoint->last_state = &state->next;
            return state;
        }
        coi_free(memory, state, sizeof(*state));
    }
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for what a checkpoint has");
    return NULL;
}

co_checkpoint *
co_checkpoint_open(co_context *ctx, const char *folder, const co_checkpoint_options *options)
{
    co_checkpoint_options all = CO_CHECKPOINT_OPTIONS_INIT;
    co_checkpoint        *checkpoint;

    COI_ENTER(ctx, "checkpoint_open", NULL);
    if (!coi_check_path(ctx, folder, 2) || !coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        !check_options(ctx, &all) || !is_outside(ctx))
        return NULL;
    checkpoint = coi_object_new(&ctx->heap, &checkpoint_class, sizeof(*checkpoint));
    if (checkpoint == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a checkpoint");
        return NULL;
    }
    checkpoint->runtime = ctx->runtime;
    checkpoint->restored = -1;
    checkpoint->last_state = &checkpoint->states;
    coi_error_reset(&checkpoint->failure);
    checkpoint->strategy = ctx->mode.strategy;
    if (checkpoint->strategy != NULL)
        coi_ref(checkpoint->strategy);
    checkpoint->folder = (coi_checkpoint_folder){
        .memory = &ctx->runtime->memory, .log = &ctx->runtime->log, .options = all, .lock = -1
    };
    checkpoint->folder.is_other = coi_checkpoint_worker(checkpoint) > 0;
    if (coi_folder_open(&checkpoint->folder, folder, coi_err(ctx)) != CO_OK)
        coi_failed(ctx);
    else
        add_state(ctx, checkpoint, "random", &coi_saved_random);
    if (!coi_checkpoint_agree(ctx, checkpoint, "opening a folder")) {
        ctx->call = "checkpoint_open";
        coi_unref(&ctx->heap, checkpoint);
        return NULL;
    }
    return coi_own(ctx, checkpoint);
}

co_code
co_checkpoint_close(co_context *ctx, co_checkpoint *checkpoint)
{
    COI_ENTER_ALWAYS(ctx, "checkpoint_close", coi_refusal_code(ctx));
    if (checkpoint == NULL || !coi_is_live_object(&ctx->heap, checkpoint, &checkpoint_class))
        return coi_check_object(ctx, checkpoint, &checkpoint_class, 2, "checkpoint")
                   ? CO_OK
                   : ctx->error.code;
    if (checkpoint->is_closed)
        return ctx->error.code;
    coi_save_join(checkpoint);
    checkpoint->is_closed = true;
    coi_folder_close(&checkpoint->folder);
    return ctx->error.code == CO_OK ? coi_tell_failure(ctx, checkpoint) : ctx->error.code;
}

/* --- adding --- */

static bool
check_add(co_context *ctx, const co_checkpoint *checkpoint, const char *name)
{
    if (!coi_check_checkpoint(ctx, checkpoint))
        return false;
    if (name == NULL || name[0] == '\0') {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (name) is %s; give a name",
                 name == NULL ? "NULL" : "empty");
        return false;
    }
    if (strcmp(name, checkpoint->states->name) == 0) {
        coi_fail(ctx, CO_ALREADY_EXISTS,
                 "every checkpoint has '%s', the random numbers of the context; give another name",
                 name);
        return false;
    }
    for (const coi_state *s = checkpoint->states; s != NULL; s = s->next)
        if (strcmp(s->name, name) == 0) {
            coi_fail(ctx, CO_ALREADY_EXISTS, "'%.200s' was added to the checkpoint already", name);
            return false;
        }
    if (checkpoint->restored >= 0)
        coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                     "'%.200s' is added after checkpoint %lld was restored, and is not restored; "
                     "add everything before",
                     name, (long long)checkpoint->restored);
    return true;
}

bool
coi_check_states(co_context *ctx, const co_checkpoint *checkpoint)
{
    if (checkpoint->states->next != NULL)
        return true;
    coi_fail(ctx, CO_FAILED_PRECONDITION,
             "nothing was added to the checkpoint; co_checkpoint_add and the functions like it "
             "say what is saved and restored");
    return false;
}

/* Whether every leaf is a variable, and of numbers. */
static bool
check_variables(co_context *ctx, co_value *value, int position)
{
    char who[COI_VARIABLE_TEXT];

    if (!coi_check_value(ctx, value, position, "variables"))
        return false;
    if (coi_is_variable(value)) {
        if (value->u.variable->dtype != CO_STRING)
            return true;
        coi_fail(ctx, CO_TYPE_ERROR,
                 "variable %s has strings, which the files of checkpoints cannot have; save it "
                 "with co_checkpoint_add_user",
                 coi_variable_text(ctx, value->u.variable, who));
        return false;
    }
    if (!coi_is_structure(value)) {
        coi_fail(ctx, CO_TYPE_ERROR, "argument %d (variables) has %s; all of it must be variables",
                 position, coi_a_kind(value->kind));
        return false;
    }
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!check_variables(ctx, value->u.items.items[i], position))
            return false;
    return true;
}

co_code
co_checkpoint_add(co_context *ctx, co_checkpoint *checkpoint, const char *name, co_value *variables)
{
    coi_state *state;

    COI_ENTER_CODE(ctx, "checkpoint_add");
    if (!check_add(ctx, checkpoint, name) || !check_variables(ctx, variables, 4) ||
        (state = add_state(ctx, checkpoint, name, &coi_saved_variables)) == NULL)
        return ctx->error.code;
    coi_ref(variables);
    state->variables = variables;
    return CO_OK;
}

static bool
check_trained(co_context *ctx, co_value *variables)
{
    bool is_list = coi_check_value(ctx, variables, 5, "variables") && coi_is_structure(variables);

    for (size_t i = 0; is_list && i < variables->u.items.n; ++i)
        is_list = coi_is_variable(variables->u.items.items[i]);
    if (!is_list && ctx->error.code == CO_OK)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 5 (variables) is not a list or tuple of variables, as the optimizer is "
                 "given; co_trainable_variables gives those of a structure");
    return is_list;
}

co_code
co_checkpoint_add_optimizer(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                            co_optimizer *optimizer, co_value *variables)
{
    coi_state *state;

    COI_ENTER_CODE(ctx, "checkpoint_add_optimizer");
    if (!check_add(ctx, checkpoint, name) ||
        !coi_check_object(ctx, optimizer, &coi_optimizer_class, 4, "optimizer") ||
        !check_trained(ctx, variables) ||
        (state = add_state(ctx, checkpoint, name, &coi_saved_optimizer)) == NULL)
        return ctx->error.code;
    coi_ref(optimizer);
    coi_ref(variables);
    state->optimizer = optimizer;
    state->variables = variables;
    return CO_OK;
}

co_code
co_checkpoint_add_metric(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                         co_metric *metric)
{
    coi_state *state;

    COI_ENTER_CODE(ctx, "checkpoint_add_metric");
    if (!check_add(ctx, checkpoint, name) || co_metric_variables(ctx, metric) == NULL)
        return ctx->error.code;
    ctx->call = "checkpoint_add_metric";
    state = add_state(ctx, checkpoint, name, &coi_saved_metric);
    if (state == NULL)
        return ctx->error.code;
    coi_ref(metric);
    state->metric = metric;
    return CO_OK;
}

co_code
co_checkpoint_add_iterator(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                           co_dataset *dataset, co_iterator **iterator)
{
    coi_state *state;

    COI_ENTER_CODE(ctx, "checkpoint_add_iterator");
    if (!check_add(ctx, checkpoint, name) || !coi_check_dataset(ctx, dataset, 4, "dataset"))
        return ctx->error.code;
    if (iterator == NULL)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 5 (iterator) is NULL; give the address of your iterator");
    state = add_state(ctx, checkpoint, name, &coi_saved_iterator);
    if (state == NULL)
        return ctx->error.code;
    coi_ref(dataset);
    state->dataset = dataset;
    state->iterator = iterator;
    return CO_OK;
}

co_code
co_checkpoint_add_counter(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                          int64_t *counter)
{
    coi_state *state;

    COI_ENTER_CODE(ctx, "checkpoint_add_counter");
    if (!check_add(ctx, checkpoint, name))
        return ctx->error.code;
    if (counter == NULL)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 4 (counter) is NULL; give the address of your number");
    state = add_state(ctx, checkpoint, name, &coi_saved_counter);
    if (state != NULL)
        state->counter = counter;
    return ctx->error.code;
}

co_code
co_checkpoint_add_user(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                       const co_checkpoint_user *user)
{
    coi_state *state;

    COI_ENTER_CODE(ctx, "checkpoint_add_user");
    if (!check_add(ctx, checkpoint, name))
        return ctx->error.code;
    if (user == NULL || user->save == NULL || user->restore == NULL)
        return coi_fail(ctx, CO_TYPE_ERROR,
                        "argument 4 (user) of checkpoint_add_user lacks a function; give save and "
                        "restore");
    state = add_state(ctx, checkpoint, name, &coi_saved_user);
    if (state != NULL)
        state->user = *user;
    return ctx->error.code;
}

/* --- what there is --- */

int64_t
co_checkpoint_restored(co_context *ctx, const co_checkpoint *checkpoint)
{
    COI_ENTER(ctx, "checkpoint_restored", -1);
    return coi_check_checkpoint(ctx, checkpoint) ? checkpoint->restored : -1;
}

co_value *
co_checkpoint_steps(co_context *ctx, co_checkpoint *checkpoint)
{
    const coi_checkpoint_index *index;
    co_value                   *steps;
    int64_t                     n, *numbers;

    COI_ENTER(ctx, "checkpoint_steps", NULL);
    if (!coi_check_checkpoint(ctx, checkpoint))
        return NULL;
    coi_save_join(checkpoint); /* which changes the index */
    if (checkpoint->folder.lock < 0 &&
        coi_folder_look(&checkpoint->folder, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    index = &checkpoint->folder.index;
    n = (int64_t)index->n;
    numbers = coi_small_alloc(&ctx->heap, (index->n + 1) * sizeof(*numbers));
    if (numbers == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the numbers of checkpoints");
        return NULL;
    }
    for (size_t i = 0; i < index->n; ++i)
        numbers[i] = index->at[i].step;
    steps = co_tensor(ctx, CO_INT64, &n, 1, numbers);
    coi_small_free(&ctx->heap, numbers, (index->n + 1) * sizeof(*numbers));
    return steps;
}
