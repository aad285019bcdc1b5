/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that are needed while a function is captured: the initial values of variables that it
 * makes. The calls that compute one are made at once, in the order of the program, and leave the
 * program: code that makes a variable runs once, and so do they. Later calls of the function that
 * use their results find them as constants.
 */
#include "function/function.h"
#include "function/value_tree.h"

typedef struct computing {
    co_context  *ctx;
    coi_program *program;
    const char  *what;
    co_value   **slots;     /* references */
    bool        *is_needed; /* by slot: it is to be computed, and no step is known that does */
    bool        *is_made;   /* by step: it is made now */
    bool         reads_variables;
} computing;

static bool
is_own(const computing *c, const co_value *leaf)
{
    return leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == c->program->serial;
}

static bool
need_leaf(const co_value *leaf, void *arg)
{
    computing *c = arg;

    if (is_own(c, leaf) && c->slots[leaf->u.symbol.slot] == NULL)
        c->is_needed[leaf->u.symbol.slot] = true;
    c->reads_variables = c->reads_variables || coi_is_variable(leaf);
    return true;
}

static bool
is_not_needed(const co_value *leaf, void *arg)
{
    const computing *c = arg;

    return !is_own(c, leaf) || !c->is_needed[leaf->u.symbol.slot];
}

static bool
forget_leaf(const co_value *leaf, void *arg)
{
    const computing *c = arg;

    if (is_own(c, leaf))
        c->is_needed[leaf->u.symbol.slot] = false;
    return true;
}

/* What is being captured, in messages. */
static const char *
captured(const computing *c)
{
    return coi_in_graph(c->ctx) ? "part of the graph" : "captured function";
}

/* One step that the value depends on: its operands are needed instead. False with an error where it
 * has an effect that the others must not see yet. */
static bool
take_step(computing *c, size_t i)
{
    const coi_program_step *step = &c->program->steps[i];

    if ((coi_step_writes(step) & ~(unsigned)CO_RESOURCE_RANDOM) != 0) {
        coi_fail(c->ctx, CO_VALUE_ERROR,
                 "%s depends on %s, which happens when the %s runs, not while it is captured; make "
                 "the variable outside of it",
                 c->what, step->call, captured(c));
        return false;
    }
    c->is_made[i] = true;
    coi_tree_all(step->result, forget_leaf, c);
    for (int k = 0; k < step->num_in; ++k)
        coi_tree_all(step->in[k], need_leaf, c);
    return true;
}

static bool
check_operands(computing *c, bool assigns)
{
    if (assigns && c->reads_variables) {
        coi_fail(c->ctx, CO_VALUE_ERROR,
                 "%s reads a variable, and the %s assigns one before, which has not happened yet "
                 "while it is captured; make the variable outside of it",
                 c->what, captured(c));
        return false;
    }
    for (uint32_t slot = 0; slot < c->program->num_slots; ++slot)
        if (c->is_needed[slot]) { /* and no step computes it */
            coi_fail(c->ctx, CO_VALUE_ERROR,
                     "%s depends on an argument of the %s, which differs between calls; make it of "
                     "constants, or make the variable outside of it",
                     c->what, captured(c));
            return false;
        }
    return true;
}

/* Which steps it takes, from the last to the first. */
static bool
find_steps(computing *c)
{
    bool assigns = false;

    for (size_t i = c->program->num_steps; i > 0; --i) {
        const coi_program_step *step = &c->program->steps[i - 1];

        assigns = assigns || (coi_step_writes(step) & CO_RESOURCE_VARIABLE) != 0;
        if (!coi_tree_all(step->result, is_not_needed, c) && !take_step(c, i - 1))
            return false;
    }
    return check_operands(c, assigns);
}

static bool
keep_leaf(const co_value *leaf, void *arg)
{
    const computing *c = arg;
    coi_program     *program = c->program;
    co_value        *value = is_own(c, leaf) ? c->slots[leaf->u.symbol.slot] : NULL;

    if (value == NULL)
        return true;
    if (!coi_grow(program->memory, (void **)&program->constants, &program->cap_constants,
                  program->num_constants + 1, sizeof(*program->constants))) {
        coi_fail(c->ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
        return false;
    }
    coi_ref(value);
    program->constants[program->num_constants++] = (coi_program_constant){ leaf->u.symbol.slot,
                                                                           value };
    return true;
}

/* Make the calls; what they gave are constants. */
static bool
make_steps(computing *c)
{
    coi_program      *program = c->program;
    coi_capture_pause pause = coi_capture_suspend(c->ctx);
    co_site_info      site = c->ctx->site;
    const char       *call = c->ctx->call;
    bool              ok = true;

    for (size_t i = 0; ok && i < program->num_steps; ++i)
        if (c->is_made[i])
            ok = coi_program_run_step(c->ctx, program, &program->steps[i],
                                      &(coi_run_values){ .slots = c->slots }) &&
                 coi_tree_all(program->steps[i].result, keep_leaf, c);
    coi_capture_resume(c->ctx, &pause);
    coi_copy_site(&c->ctx->site, &site);
    c->ctx->call = call;
    if (ok)
        coi_program_drop_steps(&c->ctx->heap, program, c->is_made);
    return ok;
}

static co_value *
value_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    const computing *c = arg;

    if (leaf->kind != CO_KIND_SYMBOLIC || (!is_own(c, leaf) && coi_in_graph(ctx)))
        return leaf; /* a value of the graph around stays one */
    leaf = is_own(c, leaf) ? c->slots[leaf->u.symbol.slot] : coi_own_symbol(ctx, leaf);
    return leaf != NULL ? coi_own_ref(ctx, leaf) : NULL;
}

co_value *
coi_program_compute(co_context *ctx, coi_program *program, co_value *value, const char *what)
{
    size_t      num_slots = program->num_slots, num_steps = program->num_steps;
    computing   c = { ctx, program, what, NULL, NULL, NULL, false };
    co_value   *computed = NULL;
    coi_memory *memory = program->memory;

    c.slots = coi_calloc(memory, (num_slots + 1) * sizeof(*c.slots));
    c.is_needed = coi_calloc(memory, num_slots + 1);
    c.is_made = coi_calloc(memory, num_steps + 1);
    if (c.slots == NULL || c.is_needed == NULL || c.is_made == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
    } else {
        coi_program_put_constants(program, c.slots);
        coi_tree_all(value, need_leaf, &c);
        c.reads_variables = false; /* the value itself is read by the caller */
        if (find_steps(&c) && make_steps(&c))
            computed = coi_tree_map(ctx, value, value_leaf, &c);
        for (size_t i = 0; i < num_slots; ++i)
            coi_unref(&ctx->heap, c.slots[i]);
    }
    coi_free(memory, c.is_made, num_steps + 1);
    coi_free(memory, c.is_needed, num_slots + 1);
    coi_free(memory, c.slots, (num_slots + 1) * sizeof(*c.slots));
    return computed;
}
