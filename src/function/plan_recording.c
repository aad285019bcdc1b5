/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording a plan: the kernels that the calls of a region start, with the values that they use.
 * The calls are made with meta tensors in the place of results, so that a recording takes no memory
 * for them and changes nothing: where it fails, the calls can still be made.
 *
 * Calls of the plan are not made either: what a variable holds after one is a meta tensor too.
 *
 * Every operand must be known: made by a recorded kernel, found in a slot or variable, or made by
 * the host of its own numbers. An operand of which nothing is known ends the recording, and so does
 * a host that reads what is not the same in every run, or another effect. So a plan that exists is
 * right.
 */
#include "function/plan.h"
#include "function/value_tree.h"

#include <string.h>

#define NONE UINT32_MAX
/* Results that are the same in every run are kept instead of computed, up to so many elements. */
#define MOST_FOLDED 4096

/* Numbers by a 64-bit key: open addressing, at most half full. */
typedef struct number_map {
    uint64_t *keys; /* 0: free */
    uint32_t *numbers;
    size_t    capacity, count;
} number_map;

struct coi_plan_recording {
    coi_kernel_recorder recorder; /* first */
    co_context         *ctx;
    coi_plan           *plan;
    number_map          cells;   /* values, by the address of the tensor */
    number_map          kernels; /* by a hash of what they compute */
    number_map          reads; /* since the last call of the plan: places in `held`, by variable */
    co_value          **held;  /* references that keep addresses from being used again */
    size_t              num_held, cap_held;
    uint32_t            step;
    coi_no_plan         failure; /* why there is no plan; no text: none yet */
};
typedef coi_plan_recording recording;

/* There is no plan, and the calls that are being recorded end. */
static void
fail(recording *r, const char *why)
{
    if (r->failure.text == NULL && r->ctx->error.code == CO_OK) {
        r->failure.text = why;
        r->failure.step = r->step;
    }
    coi_fail(r->ctx, CO_ABORTED, "no plan: %s", why);
}

/* The same for what may not be so in the next call. */
static void
fail_by_values(recording *r, const char *why)
{
    if (r->failure.text == NULL)
        r->failure.is_of_values = true;
    fail(r, why);
}

/* --- maps --- */

static size_t
place_of(const number_map *map, uint64_t key)
{
    size_t at = (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & (map->capacity - 1);

    while (map->keys[at] != 0 && map->keys[at] != key)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static uint32_t
find(const number_map *map, uint64_t key)
{
    size_t at;

    if (map->count == 0)
        return NONE;
    at = place_of(map, key);
    return map->keys[at] == key ? map->numbers[at] : NONE;
}

static size_t
map_bytes(const number_map *map)
{
    return map->capacity * (sizeof(*map->keys) + sizeof(*map->numbers));
}

static bool
grow_map(coi_memory *memory, number_map *map)
{
    number_map more = { NULL, NULL, map->capacity > 0 ? 2 * map->capacity : 256, map->count };

    more.keys = coi_calloc(memory, map_bytes(&more));
    if (more.keys == NULL)
        return false;
    more.numbers = (uint32_t *)(more.keys + more.capacity);
    for (size_t i = 0; i < map->capacity; ++i)
        if (map->keys[i] != 0) {
            size_t at = place_of(&more, map->keys[i]);

            more.keys[at] = map->keys[i];
            more.numbers[at] = map->numbers[i];
        }
    coi_free(memory, map->keys, map_bytes(map));
    *map = more;
    return true;
}

static bool
put(coi_memory *memory, number_map *map, uint64_t key, uint32_t number)
{
    size_t at;

    if (2 * (map->count + 1) > map->capacity && !grow_map(memory, map))
        return false;
    at = place_of(map, key);
    map->count += map->keys[at] == 0;
    map->keys[at] = key;
    map->numbers[at] = number;
    return true;
}

/* --- values --- */

/* The value that a tensor is; NONE: not known. A tensor that a kernel made may have died, and its
 * cell be another tensor now: then the mark is gone. */
static uint32_t
value_of(const recording *r, const co_value *tensor)
{
    uint32_t found = find(&r->cells, (uint64_t)(uintptr_t)tensor);

    if (found == NONE)
        return NONE;
    return (tensor->flags & COI_FLAG_RECORDED) != 0 ||
                   r->plan->values[found].source < COI_PLAN_COMPUTED
               ? found
               : NONE;
}

/* Keep the tensor until the recording ends. */
static bool
hold(recording *r, co_value *tensor)
{
    if (!coi_grow(r->plan->memory, (void **)&r->held, &r->cap_held, r->num_held + 1,
                  sizeof(*r->held)))
        return false;
    coi_ref(tensor);
    r->held[r->num_held++] = tensor;
    return true;
}

static void
copy_type(co_value *cell, const co_value *tensor)
{
    memset(cell, 0, sizeof(*cell));
    cell->kind = CO_KIND_TENSOR;
    cell->dtype = tensor->dtype;
    cell->ndim = tensor->ndim;
    cell->u.tensor.device = tensor->u.tensor.device;
    cell->u.tensor.num_elements = tensor->u.tensor.num_elements;
    for (int i = 0; i < tensor->ndim; ++i)
        cell->u.tensor.dims[i] = tensor->u.tensor.dims[i];
}

/* A new value of the plan, of the type of a tensor: its number, or NONE. */
static uint32_t
add_value(recording *r, co_value *tensor, coi_plan_source source)
{
    coi_plan       *plan = r->plan;
    uint32_t        number = (uint32_t)plan->num_values;
    coi_plan_value *value;

    if (tensor->dtype == CO_STRING)
        fail(r, "strings");
    if (!coi_grow(plan->memory, (void **)&plan->values, &plan->cap_values, plan->num_values + 1,
                  sizeof(*plan->values)) ||
        !put(plan->memory, &r->cells, (uint64_t)(uintptr_t)tensor, number) ||
        (source < COI_PLAN_COMPUTED && !hold(r, tensor))) {
        fail_by_values(r, "no memory");
        return NONE;
    }
    value = &plan->values[plan->num_values++];
    memset(value, 0, sizeof(*value));
    copy_type(&value->cell, tensor);
    value->source = (uint8_t)source;
    value->root = number;
    value->is_constant = source == COI_PLAN_CONSTANT;
    return number;
}

static void
add_constant(recording *r, co_value *tensor)
{
    uint32_t number = add_value(r, tensor, COI_PLAN_CONSTANT);

    if (number == NONE)
        return;
    coi_ref(tensor);
    r->plan->values[number].held = tensor;
}

/* A tensor with the data of a value, and perhaps another shape. */
static void
add_view(recording *r, uint32_t of, co_value *tensor)
{
    uint32_t number = add_value(r, tensor, COI_PLAN_VIEW);

    if (number == NONE)
        return;
    r->plan->values[number].root = r->plan->values[of].root;
    r->plan->values[number].is_constant = r->plan->values[of].is_constant;
    tensor->flags |= COI_FLAG_RECORDED;
}

/* --- what the recorder is shown --- */

static void
note_constant(coi_kernel_recorder *recorder, co_value *tensor)
{
    recording *r = (recording *)(void *)recorder;

    if (r->failure.text == NULL)
        add_constant(r, tensor);
}

/* What one tensor is now, a variable and an input, may be two in the next run. */
static void
note_variable(recording *r, co_value *variable, co_value *tensor, uint32_t known)
{
    if (known == NONE) {
        known = add_value(r, tensor, COI_PLAN_VARIABLE);
        if (known == NONE)
            return;
        coi_ref(variable);
        r->plan->values[known].held = variable;
        r->plan->values[known].after = (uint32_t)r->plan->num_stops;
    } else if (r->plan->values[known].source != COI_PLAN_VARIABLE ||
               r->plan->values[known].held->u.variable != variable->u.variable) {
        fail_by_values(r, "a variable that shares its tensor");
    }
}

static void
note_operand(coi_kernel_recorder *recorder, co_value *given, co_value *tensor)
{
    recording *r = (recording *)(void *)recorder;
    uint32_t   number;

    if (r->failure.text != NULL || given == tensor)
        return;
    number = value_of(r, tensor);
    if (coi_is_variable(given))
        note_variable(r, given, tensor, number);
    else if (coi_is_distributed(given))
        fail(r, "a constant that has a part for each replica");
    else if (number == NONE && given->kind == CO_KIND_TENSOR &&
             (number = value_of(r, given)) != NONE)
        add_view(r, number, tensor);
}

/* Any variable may have changed in a call of the plan. */
static co_value *
note_read(coi_kernel_recorder *recorder, const co_value *variable, co_value *tensor)
{
    recording *r = (recording *)(void *)recorder;
    uint64_t   key = (uint64_t)(uintptr_t)variable->u.variable;
    uint32_t   at;
    co_value  *later;

    if (r->plan->num_stops == 0)
        return tensor;
    at = find(&r->reads, key);
    if (at != NONE) {
        later = r->held[at];
        coi_ref(later);
    } else {
        later = coi_meta_tensor(&r->ctx->heap, tensor->u.tensor.device, (co_dtype)tensor->dtype,
                                tensor->u.tensor.dims, tensor->ndim, tensor->u.tensor.num_elements,
                                coi_err(r->ctx));
        if (later == NULL)
            coi_failed(r->ctx);
        else if (!put(r->plan->memory, &r->reads, key, (uint32_t)r->num_held) || !hold(r, later))
            fail_by_values(r, "no memory");
    }
    coi_unref(&r->ctx->heap, tensor);
    return later;
}

static bool
note_host_read(coi_kernel_recorder *recorder, const co_value *tensor)
{
    recording *r = (recording *)(void *)recorder;
    uint32_t   number = value_of(r, tensor);

    if (number != NONE && r->plan->values[number].is_constant)
        return true;
    fail(r, "the host reads a tensor");
    return false;
}

static co_code
note_other(coi_kernel_recorder *recorder, const char *what)
{
    recording *r = (recording *)(void *)recorder;

    fail(r, what);
    return r->ctx->error.code;
}

/* --- kernels --- */

static bool
find_operands(recording *r, const coi_call *call, uint32_t *numbers)
{
    for (int i = 0; i < call->num_in; ++i) {
        numbers[i] = value_of(r, call->in[i]);
        if (numbers[i] == NONE) {
            fail(r, "an operand that no kernel made");
            return false;
        }
    }
    return true;
}

/* Results that are the same in every run, and small, are computed once: they become constants. */
static bool
is_computed(coi_kernel_recorder *recorder, const coi_call *call, const coi_out *outs)
{
    const recording *r = (const recording *)(const void *)recorder;
    double           total = 0;

    if (call->op->renew != NULL)
        return false;
    for (int i = 0; i < call->num_in; ++i) {
        uint32_t number = value_of(r, call->in[i]);

        if (number == NONE || !r->plan->values[number].is_constant)
            return false;
    }
    for (int i = 0; i < call->num_out; ++i) {
        double count = 1;

        for (int d = 0; d < outs[i].ndim; ++d)
            count *= (double)outs[i].dims[d];
        total += count;
    }
    return total <= MOST_FOLDED;
}

static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t
hash_call(const coi_call *call, const uint32_t *numbers)
{
    uint64_t hash = hash_bytes(UINT64_C(0xCBF29CE484222325), &call->op, sizeof(call->op));

    hash = hash_bytes(hash, &call->device, sizeof(call->device));
    hash = hash_bytes(hash, call->attrs, call->op->attrs_rule.size);
    hash = hash_bytes(hash, numbers, (size_t)call->num_in * sizeof(*numbers));
    return hash != 0 ? hash : 1;
}

/* A kernel that computed the same before; NONE. Attributes that own something are not compared. */
static uint32_t
find_same(const recording *r, const coi_call *call, const uint32_t *numbers, uint64_t hash)
{
    const coi_plan        *plan = r->plan;
    uint32_t               at = find(&r->kernels, hash);
    const coi_plan_kernel *kernel = at != NONE ? &plan->kernels[at] : NULL;

    if (kernel == NULL || kernel->op != call->op || kernel->device != call->device ||
        kernel->num_in != call->num_in || kernel->num_out != call->num_out)
        return NONE;
    if (memcmp(plan->operands + kernel->values, numbers, (size_t)call->num_in * sizeof(*numbers)) !=
        0)
        return NONE;
    return call->op->attrs_rule.size == 0 ||
                   memcmp(kernel->attrs, call->attrs, call->op->attrs_rule.size) == 0
               ? at
               : NONE;
}

/* Its results are those of the earlier kernel. */
static void
take_results(recording *r, const coi_call *call, const coi_plan_kernel *same)
{
    for (int i = 0; i < call->num_out; ++i) {
        uint32_t number = r->plan->operands[same->values + same->num_in + (uint32_t)i];

        call->out[i]->flags |= COI_FLAG_RECORDED;
        if (!put(r->plan->memory, &r->cells, (uint64_t)(uintptr_t)call->out[i], number))
            fail_by_values(r, "no memory");
    }
}

static bool
copy_attrs(recording *r, coi_plan_kernel *kernel, const void *attrs)
{
    const coi_attrs_rule *rule = &kernel->op->attrs_rule;

    if (rule->size == 0)
        return true;
    kernel->attrs = coi_alloc(r->plan->memory, rule->size);
    if (kernel->attrs == NULL)
        return false;
    memcpy(kernel->attrs, attrs, rule->size);
    if (rule->copy == NULL || rule->copy(&r->ctx->heap, kernel->attrs, attrs))
        return true;
    coi_free(r->plan->memory, kernel->attrs, rule->size);
    kernel->attrs = NULL;
    return false;
}

static void
add_results(recording *r, const coi_call *call)
{
    coi_plan *plan = r->plan;

    for (int i = 0; i < call->num_out; ++i) {
        uint32_t number = add_value(r, call->out[i], COI_PLAN_COMPUTED);

        if (number == NONE)
            return;
        plan->values[number].first = (uint32_t)plan->num_kernels;
        call->out[i]->flags |= COI_FLAG_RECORDED;
        plan->operands[plan->num_operands++] = number;
    }
}

static void
add_kernel(recording *r, const coi_call *call, const uint32_t *numbers)
{
    coi_plan       *plan = r->plan;
    size_t          n = (size_t)call->num_in + (size_t)call->num_out;
    coi_plan_kernel kernel = { .op = call->op,
                               .device = call->device,
                               .values = (uint32_t)plan->num_operands,
                               .num_in = (uint16_t)call->num_in,
                               .num_out = (uint16_t)call->num_out,
                               .step = r->step };

    if (!coi_grow(plan->memory, (void **)&plan->kernels, &plan->cap_kernels, plan->num_kernels + 1,
                  sizeof(*plan->kernels)) ||
        !coi_grow(plan->memory, (void **)&plan->operands, &plan->cap_operands,
                  plan->num_operands + n, sizeof(*plan->operands)) ||
        !copy_attrs(r, &kernel, call->attrs)) {
        fail_by_values(r, "no memory");
        return;
    }
    if (call->num_in > 0)
        memcpy(plan->operands + plan->num_operands, numbers,
               (size_t)call->num_in * sizeof(*numbers));
    plan->num_operands += (size_t)call->num_in;
    add_results(r, call);
    plan->kernels[plan->num_kernels++] = kernel;
}

static void
record_kernel(recording *r, const coi_call *call, const uint32_t *numbers)
{
    bool     compares = call->op->renew == NULL && call->op->attrs_rule.copy == NULL;
    uint64_t hash = compares ? hash_call(call, numbers) : 0;
    uint32_t same = compares ? find_same(r, call, numbers, hash) : NONE;

    if (!coi_is_meta(call->out[0])) {
        for (int i = 0; i < call->num_out; ++i)
            add_constant(r, call->out[i]);
    } else if (same != NONE) {
        take_results(r, call, &r->plan->kernels[same]);
    } else {
        if (compares && !put(r->plan->memory, &r->kernels, hash, (uint32_t)r->plan->num_kernels))
            fail_by_values(r, "no memory");
        add_kernel(r, call, numbers);
    }
}

static void
note_kernel(coi_kernel_recorder *recorder, const coi_call *call)
{
    recording *r = (recording *)(void *)recorder;
    uint32_t   few[16], *numbers = few;
    size_t     nbytes = (size_t)call->num_in * sizeof(*numbers);

    if (r->failure.text != NULL)
        return;
    if (nbytes > sizeof(few) && (numbers = coi_small_alloc(&r->ctx->heap, nbytes)) == NULL) {
        fail_by_values(r, "no memory");
        return;
    }
    if (find_operands(r, call, numbers)) {
        if (call->op->view)
            add_view(r, numbers[0], call->out[0]);
        else
            record_kernel(r, call, numbers);
    }
    if (numbers != few)
        coi_small_free(&r->ctx->heap, numbers, nbytes);
}

/* --- begin and end --- */

/* What the slots hold when the region begins. One tensor in two of them is one value, and must be
 * one in every run. */
static void
add_input(recording *r, coi_plan_input *input, co_value *value)
{
    if (coi_is_variable(value)) {
        coi_ref(value);
        input->variable = value;
    } else if (value->kind != CO_KIND_TENSOR) {
        fail(r, "an input that is no tensor");
    } else if ((input->value = value_of(r, value)) == NONE) {
        input->value = add_value(r, value, COI_PLAN_INPUT);
        if (input->value != NONE)
            r->plan->values[input->value].slot = input->slot;
    }
}

static void
add_inputs(recording *r, const coi_region *region, co_value *const *slots)
{
    coi_plan *plan = r->plan;

    plan->inputs = coi_calloc(plan->memory, (region->in.n + 1) * sizeof(*plan->inputs));
    if (plan->inputs == NULL) {
        fail_by_values(r, "no memory");
        return;
    }
    plan->num_inputs = region->in.n;
    for (size_t i = 0; i < region->in.n; ++i) {
        plan->inputs[i].slot = region->in.at[i];
        add_input(r, &plan->inputs[i], slots[region->in.at[i]]);
    }
}

static bool
is_added(const co_value *leaf, void *arg)
{
    recording *r = arg;
    co_value  *constant = (co_value *)(uintptr_t)leaf;
    uint32_t   number;

    if (leaf->kind != CO_KIND_TENSOR)
        return true;
    number = value_of(r, leaf);
    if (number == NONE)
        add_constant(r, constant);
    else if (r->plan->values[number].source == COI_PLAN_INPUT)
        fail_by_values(r, "an input that is a constant too");
    return r->failure.text == NULL;
}

/* Tensors that the function had when it was captured. */
static void
add_captured(recording *r, const coi_region *region)
{
    for (size_t i = region->first; i < region->end; ++i) {
        const coi_program_step *step = &r->plan->program->steps[i];

        if (step->op->is_plan_call || coi_is_ahead(region, i))
            continue;
        for (int k = 0; k < step->num_in; ++k)
            coi_tree_all(step->in[k], is_added, r);
    }
}

coi_plan_recording *
coi_plan_record(co_context *ctx, const coi_program *program, const coi_region *region,
                co_value *const *slots, const coi_plan_key *key)
{
    coi_memory *memory = &ctx->runtime->memory;
    recording  *r = coi_calloc(memory, sizeof(*r));
    coi_plan   *plan = r != NULL ? coi_calloc(memory, sizeof(*plan)) : NULL;

    if (plan == NULL) {
        coi_free(memory, r, sizeof(*r));
        return NULL;
    }
    r->recorder = (coi_kernel_recorder){ .is_computed = is_computed,
                                         .kernel = note_kernel,
                                         .operand = note_operand,
                                         .read = note_read,
                                         .constant = note_constant,
                                         .host_read = note_host_read,
                                         .other = note_other };
    r->ctx = ctx;
    r->plan = plan;
    r->step = NONE;
    plan->memory = memory;
    plan->program = program;
    plan->device = ctx->device;
    plan->key = *key;
    atomic_flag_clear(&plan->is_busy);
    add_inputs(r, region, slots);
    add_captured(r, region);
    plan->has_tape = region->has_tape;
    plan->num_given = plan->num_values;
    ctx->kernel_recorder = &r->recorder;
    ctx->special |= COI_SPECIAL_RECORD;
    return r;
}

void
coi_plan_record_step(coi_plan_recording *r, size_t step)
{
    r->step = (uint32_t)step;
}

/* What is in these slots now is to be in them at this place of a run. */
static bool
add_outputs(recording *r, const uint32_t *at, size_t n, co_value *const *slots)
{
    coi_plan *plan = r->plan;

    if (!coi_grow(plan->memory, (void **)&plan->outputs, &plan->cap_outputs, plan->num_outputs + n,
                  sizeof(*plan->outputs))) {
        fail_by_values(r, "no memory");
        return false;
    }
    for (size_t i = 0; i < n; ++i) {
        co_value *made = slots[at[i]];
        uint32_t  number = made != NULL && made->kind == CO_KIND_TENSOR ? value_of(r, made) : NONE;

        if (number == NONE) {
            fail(r, "a result that no kernel made");
            return false;
        }
        plan->outputs[plan->num_outputs++] = (coi_plan_output){ at[i], number, NONE,
                                                                NULL,  false,  false };
    }
    return true;
}

bool
coi_plan_record_call(coi_plan_recording *r, const coi_region *region, const coi_region_call *call,
                     co_value *const *slots)
{
    coi_plan *plan = r->plan;
    size_t    first = call > region->calls ? call[-1].end : 0;

    if (r->ctx->error.code != CO_OK ||
        !add_outputs(r, region->taken.at + first, call->end - first, slots))
        return false;
    if (!coi_grow(plan->memory, (void **)&plan->stops, &plan->cap_stops, plan->num_stops + 1,
                  sizeof(*plan->stops))) {
        fail_by_values(r, "no memory");
        return false;
    }
    plan->stops[plan->num_stops++] = (coi_plan_call){ .step = (uint32_t)call->step,
                                                      .is_start = call->step >= region->end,
                                                      .end_kernel = (uint32_t)plan->num_kernels,
                                                      .end_output = (uint32_t)plan->num_outputs };
    if (r->reads.count > 0)
        memset(r->reads.keys, 0, r->reads.capacity * sizeof(*r->reads.keys));
    r->reads.count = 0;
    return true;
}

/* The calls after the region, which a run starts: their operands are results. */
static bool
add_starts(recording *r, const coi_region *region, co_value *const *slots)
{
    bool ok = true;

    for (size_t i = 0; ok && i < region->num_calls; ++i)
        if (region->calls[i].step >= region->end)
            ok = coi_plan_record_call(r, region, &region->calls[i], slots);
    return ok;
}

coi_plan *
coi_plan_recorded(co_context *ctx, coi_plan_recording *r, const coi_region *region,
                  co_value *const *slots, coi_no_plan *why)
{
    coi_plan   *plan = r->plan;
    coi_memory *memory = plan->memory;
    bool        ok;

    ctx->special = (uint8_t)(ctx->special & ~COI_SPECIAL_RECORD);
    ctx->kernel_recorder = NULL;
    r->step = NONE;
    ok = ctx->error.code == CO_OK && add_starts(r, region, slots) &&
         add_outputs(r, region->out.at, region->out.n, slots);
    if (ok && !coi_plan_finish(ctx, plan)) {
        fail_by_values(r, "no memory");
        ok = false;
    }
    *why = r->failure;
    for (size_t i = 0; i < r->num_held; ++i)
        coi_unref(&ctx->heap, r->held[i]);
    coi_free(memory, r->held, r->cap_held * sizeof(*r->held));
    coi_free(memory, r->cells.keys, map_bytes(&r->cells));
    coi_free(memory, r->kernels.keys, map_bytes(&r->kernels));
    coi_free(memory, r->reads.keys, map_bytes(&r->reads));
    coi_free(memory, r, sizeof(*r));
    if (ok)
        return plan;
    coi_plan_destroy(&ctx->heap, plan);
    return NULL;
}
