/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions: programs with captured functions. Each step of the top level gives an entry: its
 * result or error, the notes of what it captured, and how often each function has been captured so
 * far.
 */
#include "families.h"

#include <string.h>

#include "functions.h"

static json_t *run_steps(golden_frame *f, json_t *steps);

/* How often every captured function of the top level was entered. */
static json_t *
write_traces(golden_world *w)
{
    json_t *traces = json_object();

    for (const golden_closure *c = w->closures; c != NULL; c = c->next)
        if (c->top != NULL && json_object_get(traces, c->top) == NULL)
            json_object_set_new(traces, c->top, json_integer(c->traces));
    return traces;
}

static bool
is_action(json_t *step, const char *action)
{
    const char *name = json_string_value(json_object_get(step, "do"));

    return name != NULL && strcmp(name, action) == 0;
}

static json_t *
write_structured(co_context *ctx, co_value *pair)
{
    return json_pack("{s:o, s:{s:{}}, s:o}", "args", golden_write_spec_of(ctx, co_at(ctx, pair, 0)),
                     "kwargs", "dict", "outputs", golden_write_spec_of(ctx, co_at(ctx, pair, 1)));
}

static json_t *
write_result(golden_frame *f, json_t *step, golden_thing thing)
{
    const char *record = json_string_value(json_object_get(step, "record"));

    if (thing.kind == GOLDEN_VALUE && is_action(step, "structured"))
        return write_structured(f->ctx, thing.u.value);
    if (thing.kind != GOLDEN_VALUE || (record != NULL && strcmp(record, "none") == 0))
        return json_null();
    if (record != NULL && strcmp(record, "spec") == 0)
        return json_pack("{s:o}", "spec", golden_write_spec_of(f->ctx, thing.u.value));
    return golden_write_operand(f->ctx, thing.u.value);
}

static bool
is_reported_scope(json_t *step)
{
    return is_action(step, "scope") && !json_is_false(json_object_get(step, "report"));
}

static json_t *
run_scope(golden_frame *f, json_t *step)
{
    co_scope scope = co_scope_begin(f->ctx, f->w->strategy);
    json_t  *entries;

    if (scope.id == 0)
        return json_null();
    entries = run_steps(f, json_object_get(step, "body"));
    co_scope_end(f->ctx, &scope);
    return entries;
}

static json_t *
run_step(golden_frame *f, json_t *step)
{
    json_t *entry = json_object(), *result;
    bool    is_object = false;

    f->w->notes = json_array();
    if (is_reported_scope(step)) {
        json_decref(f->w->notes);
        result = run_scope(f, step);
        f->w->notes = json_array();
    } else {
        golden_thing thing = golden_run_statement(f, step, &is_object);

        result = is_object ? json_null() : write_result(f, step, thing);
    }
    if (!co_ok(f->ctx)) {
        json_decref(result);
        result = json_null();
        json_object_set_new(entry, "error", golden_write_error(f->ctx));
    }
    json_object_set_new(entry, "result", result);
    json_object_set_new(entry, "notes", f->w->notes);
    json_object_set_new(entry, "traces", write_traces(f->w));
    f->w->notes = NULL;
    return entry;
}

static json_t *
run_steps(golden_frame *f, json_t *steps)
{
    json_t *entries = json_array();
    size_t  i;
    json_t *step;

    json_array_foreach(steps, i, step)
    {
        json_array_append_new(entries, run_step(f, step));
        if (f->w->c->is_failed)
            break;
    }
    return entries;
}

static co_strategy *
make_strategy(golden_case *c)
{
    const char *name = golden_string(c, c->attrs, "strategy");
    const char *devices[4];

    if (!json_is_true(json_object_get(c->attrs, "v1")))
        return golden_strategy_named(c, c->ctx, name);
    for (int i = 0; i < 4; ++i)
        devices[i] = golden_device(i);
    if (strcmp(name, "D") == 0)
        return co_v1_default_strategy(c->ctx);
    if (strcmp(name, "O") == 0)
        return co_v1_one_device_strategy(c->ctx, devices[0]);
    return co_v1_mirrored_strategy(c->ctx, devices, (size_t)(name[1] - '0'), NULL);
}

void
golden_run_functions(golden_case *c)
{
    golden_world w = { .c = c };
    golden_frame f = { .w = &w, .ctx = c->ctx };
    json_t      *steps = json_object_get(c->attrs, "steps"), *seen;
    json_t      *expected = json_object_get(c->outputs, "results");

    if (!json_is_array(steps) || !json_is_array(expected)) {
        golden_fail(c, "the case has no lists 'steps' and 'results'");
        return;
    }
    pthread_mutex_init(&w.lock, NULL);
    co_block_begin(c->ctx);
    w.strategy = make_strategy(c);
    w.top = golden_names_new(&w, NULL);
    w.once = golden_names_new(&w, NULL);
    w.literals = golden_names_new(&w, NULL);
    f.names = w.top;
    if (w.strategy != NULL && !c->is_failed) {
        seen = run_steps(&f, steps);
        golden_end_tapes(&f);
        if (!c->is_failed)
            golden_judge_entries(c, "results", seen, expected);
        json_decref(seen);
        golden_put(c, "results", json_incref(expected)); /* judged above, with its alternatives */
    }
    for (golden_closure *closure = w.closures; closure != NULL; closure = closure->next)
        if (closure->handle != NULL)
            co_release(c->ctx, closure->handle);
    /* Handles first: they point to functions of the case. */
    co_block_end(c->ctx);
    golden_free_rooms(&w);
    pthread_mutex_destroy(&w.lock);
}
