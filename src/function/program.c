/* SPDX-License-Identifier: Apache-2.0 */
/* See program.h. */
#include "function/function.h"
#include "function/plan.h"
#include "function/value_tree.h"

#include <string.h>

static void
destroy_step(coi_program *program, coi_heap *heap, coi_program_step *step)
{
    const coi_attrs_rule *rule = &step->op->attrs_rule;

    if (step->attrs != NULL) {
        if (rule->destroy != NULL)
            rule->destroy(heap, step->attrs);
        coi_free(program->memory, step->attrs, rule->size);
    }
    for (int i = 0; i < step->num_in; ++i)
        coi_unref(heap, step->in[i]);
    coi_free(program->memory, step->in, (size_t)step->num_in * sizeof(*step->in));
    coi_free(program->memory, (void *)(uintptr_t)step->device, sizeof(*step->device));
    if (step->mode != NULL)
        coi_unref(heap, step->mode->strategy);
    coi_free(program->memory, step->mode, sizeof(*step->mode));
    coi_unref(heap, step->after);
    coi_unref(heap, step->result);
}

static void
destroy(coi_heap *heap, void *object)
{
    coi_program *program = object;

    coi_regions_destroy(heap, program);
    while (program->num_steps > 0)
        destroy_step(program, heap, &program->steps[--program->num_steps]);
    coi_free(program->memory, program->steps, program->cap_steps * sizeof(*program->steps));
    coi_free(program->memory, program->dropped, program->cap_dropped * sizeof(*program->dropped));
    for (size_t i = 0; i < program->num_constants; ++i)
        coi_unref(heap, program->constants[i].value);
    coi_free(program->memory, program->constants,
             program->cap_constants * sizeof(*program->constants));
    coi_unref(heap, program->args);
    coi_unref(heap, program->result);
    coi_object_free(heap, program, sizeof(*program));
}

const coi_class coi_program_class = { "program", destroy, NULL };

static bool
no_memory(co_context *ctx)
{
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
    return false;
}

coi_program *
coi_program_new(co_context *ctx)
{
    coi_program *program = coi_object_new(&ctx->heap, &coi_program_class, sizeof(*program));

    if (program == NULL) {
        no_memory(ctx);
        return NULL;
    }
    program->memory = &ctx->runtime->memory;
    program->serial = atomic_fetch_add(&ctx->runtime->next_serial, 1) + 1;
    program->outermost = coi_outermost_capture(ctx).program;
    if (program->outermost == 0)
        program->outermost = program->serial;
    return program;
}

void
coi_program_name(coi_program *program, co_value *spec)
{
    spec->kind = CO_KIND_SYMBOLIC;
    spec->u.symbol.program = program->serial;
    spec->u.symbol.slot = program->num_slots++;
}

/* --- results --- */

/* A result that something else is already: the same type, which leads to the same node. */
static co_value *
another(co_context *ctx, co_value *value)
{
    co_value *fresh = coi_fresh_type(ctx, value);

    if (fresh != NULL && ctx->recording && value->tape_epoch == ctx->tapes->epoch)
        coi_tape_mark(ctx->tapes, fresh, value->tape_node);
    return fresh;
}

static co_value *
name_leaf(co_context *ctx, co_value *type, void *program)
{
    if (type->kind == CO_KIND_SYMBOLIC || type->kind == CO_KIND_TENSOR)
        type = another(ctx, type);
    if (type != NULL && type->kind == CO_KIND_SPEC && !coi_is_dataset_spec(type))
        coi_program_name(program, type);
    return type;
}

co_value *
coi_program_name_all(co_context *ctx, coi_program *program, co_value *type)
{
    return coi_tree_map(ctx, type, name_leaf, program);
}

/* --- calls --- */

static bool
is_no_symbol(const co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind != CO_KIND_SYMBOLIC;
}

bool
coi_has_symbols(const co_value *value)
{
    return !coi_tree_all(value, is_no_symbol, NULL);
}

typedef struct search {
    uint64_t program, slot;
} search;

static bool
is_elsewhere(const co_value *leaf, void *arg)
{
    search *s = arg;

    if (leaf->kind != CO_KIND_SYMBOLIC || leaf->u.symbol.program != s->program)
        return true;
    s->slot = leaf->u.symbol.slot;
    return false;
}

uint64_t
coi_first_slot(const coi_program *program, const co_value *value)
{
    search s = { program->serial, UINT64_MAX };

    coi_tree_all(value, is_elsewhere, &s);
    return s.slot;
}

static bool
is_other(const co_value *leaf, void *arg)
{
    const search *s = arg;

    return leaf->kind != CO_KIND_SYMBOLIC || leaf->u.symbol.program != s->program ||
           leaf->u.symbol.slot != s->slot;
}

bool
coi_has_slot(const coi_program *program, const co_value *value, uint64_t slot)
{
    return !coi_tree_all(value, is_other, &(search){ program->serial, slot });
}

bool
coi_has_examples(const co_value *value)
{
    coi_values items = coi_tree_items(value);

    if (coi_is_per_replica(value))
        return value->u.per_replica.step_examples == COI_EXAMPLES_LATER;
    for (size_t i = 0; i < items.n; ++i)
        if (items.items[i] != NULL && coi_has_examples(items.items[i]))
            return true;
    return false;
}

static bool
copy_attrs(co_context *ctx, coi_program *program, coi_program_step *step, const void *attrs)
{
    const coi_attrs_rule *rule = &step->op->attrs_rule;

    if (rule->size == 0)
        return true;
    step->attrs = coi_alloc(program->memory, rule->size);
    if (step->attrs == NULL)
        return no_memory(ctx);
    memcpy(step->attrs, attrs, rule->size);
    if (rule->copy == NULL || rule->copy(&ctx->heap, step->attrs, attrs))
        return true;
    coi_free(program->memory, step->attrs, rule->size);
    step->attrs = NULL;
    return no_memory(ctx);
}

static bool
copy_operands(co_context *ctx, coi_program *program, coi_program_step *step, co_value *const *in,
              int num_in)
{
    step->is_plain = true;
    if (num_in == 0)
        return true;
    step->in = coi_alloc(program->memory, (size_t)num_in * sizeof(*step->in));
    if (step->in == NULL)
        return no_memory(ctx);
    for (int i = 0; i < num_in; ++i) {
        coi_ref(in[i]);
        step->in[i] = in[i];
        step->is_plain = step->is_plain &&
                         (in[i]->kind == CO_KIND_SYMBOLIC || !coi_has_symbols(in[i]));
    }
    step->num_in = num_in;
    return true;
}

bool
coi_program_add(co_context *ctx, coi_program *program, const coi_op *op, const void *attrs,
                co_value *const *in, int num_in, co_value *result)
{
    /* Of an operator the name; what it took to infer its type may have been calls too. */
    coi_program_step step = { .op = op,
                              .call = op->replay == NULL ? op->name : ctx->call,
                              .site = ctx->site };

    if (!coi_grow(program->memory, (void **)&program->steps, &program->cap_steps,
                  program->num_steps + 1, sizeof(*program->steps)))
        return no_memory(ctx);
    coi_ref(result);
    step.result = result;
    if (copy_attrs(ctx, program, &step, attrs) && copy_operands(ctx, program, &step, in, num_in)) {
        program->steps[program->num_steps++] = step;
        return true;
    }
    destroy_step(program, &ctx->heap, &step);
    return false;
}

void
coi_program_drop_steps(coi_heap *heap, coi_program *program, const bool *drop)
{
    size_t kept = 0;

    for (size_t i = 0; i < program->num_steps; ++i) {
        if (drop[i])
            destroy_step(program, heap, &program->steps[i]);
        else
            program->steps[kept++] = program->steps[i];
    }
    program->num_steps = kept;
}

void
coi_program_put_constants(const coi_program *program, co_value **slots)
{
    for (size_t i = 0; i < program->num_constants; ++i) {
        const coi_program_constant *constant = &program->constants[i];

        coi_ref(constant->value);
        slots[constant->slot] = constant->value;
    }
}

/* --- last uses --- */

typedef struct use {
    const coi_last_uses *uses;
    uint32_t             mark; /* what a slot gets that is found */
} use;

static bool
mark_slot(const co_value *leaf, void *arg)
{
    const use *u = arg;

    if (leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == u->uses->program)
        u->uses->last[leaf->u.symbol.slot] = u->mark;
    return true;
}

void
coi_last_uses_find(const coi_last_uses *uses)
{
    use u = { uses, 0 };

    for (size_t i = 0; i < uses->num_steps; ++i) {
        const coi_program_step *step = &uses->steps[i];

        u.mark = (uint32_t)i + 1;
        coi_tree_all(step->result, mark_slot, &u); /* one that nothing uses is dropped here */
        for (int k = 0; k < step->num_in; ++k)
            coi_tree_all(step->in[k], mark_slot, &u);
    }
}

void
coi_last_uses_keep(const coi_last_uses *uses, const co_value *value)
{
    use u = { uses, 0 };

    coi_tree_all(value, mark_slot, &u);
}

void
coi_last_uses_sort(const coi_last_uses *uses, uint32_t *dropped)
{
    uint32_t at = 0;

    for (uint32_t slot = 0; slot < uses->num_slots; ++slot)
        if (uses->last[slot] > 0)
            ++uses->steps[uses->last[slot] - 1].num_dropped;
    for (size_t i = 0; i < uses->num_steps; ++i) {
        uses->steps[i].first_dropped = at;
        at += uses->steps[i].num_dropped;
        uses->steps[i].num_dropped = 0;
    }
    for (uint32_t slot = 0; slot < uses->num_slots; ++slot)
        if (uses->last[slot] > 0) {
            coi_program_step *step = &uses->steps[uses->last[slot] - 1];

            dropped[step->first_dropped + step->num_dropped++] = slot;
        }
}

bool
coi_program_finish(co_context *ctx, coi_program *program, co_value *result)
{
    size_t        nbytes = (program->num_slots + 1) * sizeof(uint32_t);
    coi_last_uses uses = { program->serial, program->steps, program->num_steps, program->num_slots,
                           coi_calloc(program->memory, nbytes) };

    if (uses.last == NULL ||
        !coi_grow(program->memory, (void **)&program->dropped, &program->cap_dropped,
                  program->num_slots + 1, sizeof(*program->dropped))) {
        coi_free(program->memory, uses.last, nbytes);
        return no_memory(ctx);
    }
    coi_ref(result);
    program->result = result;
    program->has_examples = coi_has_examples(program->args);
    for (size_t i = 0; i < program->num_steps; ++i)
        program->has_examples = program->has_examples || coi_has_examples(program->steps[i].result);
    coi_last_uses_find(&uses);
    coi_last_uses_keep(&uses, result);
    coi_last_uses_sort(&uses, program->dropped);
    coi_free(program->memory, uses.last, nbytes);
    return coi_program_find_regions(ctx, program);
}
