/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: what is made of a recording, and how it is run.
 *
 * The cells that kernels get stay the same from run to run, and so do the calls. A run sets the
 * addresses of the data in them: of inputs and variables, of new tensors for what the region leaves
 * behind, and of the arena for everything else.
 */
#include "function/plan.h"

#include "ops/engine/upcast.h"

#include <string.h>

#define NONE UINT32_MAX
/* An arena of at most so many bytes belongs to its plan. */
#define SMALL_ARENA 4096

static bool
is_bound(const coi_plan_value *value)
{
    return value->source == COI_PLAN_INPUT || value->source == COI_PLAN_VARIABLE ||
           (value->source == COI_PLAN_COMPUTED && value->is_output);
}

static bool
is_in_arena(const coi_plan_value *value)
{
    return value->source == COI_PLAN_COMPUTED && !value->is_output && !value->is_in_tile;
}

/* --- what is needed, and until when --- */

static void
mark_outputs(coi_plan *plan)
{
    for (size_t i = 0; i < plan->num_outputs; ++i)
        plan->values[plan->values[plan->outputs[i].value].root].is_output = true;
}

/* From the last kernel to the first: one whose results nothing uses goes. `last` of a value that is
 * not used is that of its own kernel. */
static void
find_last_uses(coi_plan *plan)
{
    for (size_t i = 0; i < plan->num_values; ++i)
        plan->values[i].last = NONE;
    for (size_t i = plan->num_kernels; i > 0; --i) {
        coi_plan_kernel *kernel = &plan->kernels[i - 1];
        const uint32_t  *in = plan->operands + kernel->values, *out = in + kernel->num_in;

        kernel->is_dead = kernel->is_left_out ||
                          kernel->op->renew == NULL; /* that advances a counter in any case */
        for (int k = 0; !kernel->is_left_out && k < kernel->num_out; ++k) {
            const coi_plan_value *root = &plan->values[plan->values[out[k]].root];

            if (root->last != NONE || root->is_output)
                kernel->is_dead = false;
        }
        for (int k = 0; !kernel->is_dead && k < kernel->num_in; ++k) {
            coi_plan_value *root = &plan->values[plan->values[in[k]].root];

            if (root->last == NONE)
                root->last = (uint32_t)(i - 1);
        }
        for (int k = 0; k < kernel->num_out; ++k) {
            coi_plan_value *root = &plan->values[plan->values[out[k]].root];

            if (root->last == NONE)
                root->last = (uint32_t)(i - 1);
        }
    }
}

/* The root that kernel i can write its result over, because nothing uses it after that; NONE. */
static uint32_t
find_overwritten(const coi_plan *plan, uint32_t i)
{
    const coi_plan_kernel *kernel = &plan->kernels[i];
    const uint32_t        *operands = plan->operands + kernel->values;
    uint32_t               root;
    int                    operand;

    if (kernel->is_dead || kernel->first != kernel->last ||
        !is_in_arena(&plan->values[operands[kernel->num_in]]))
        return NONE;
    operand = coi_binary_overwrites(&plan->calls[i]);
    if (operand < 0)
        return NONE;
    root = plan->values[operands[operand]].root;
    return is_in_arena(&plan->values[root]) && plan->values[root].last == i ? root : NONE;
}

static void
find_shared_places(coi_plan *plan)
{
    for (uint32_t i = 0; i < plan->num_values; ++i)
        plan->values[i].place = i;
    for (uint32_t i = 0; i < plan->num_kernels; ++i) {
        const coi_plan_kernel *kernel = &plan->kernels[i];
        uint32_t               from = find_overwritten(plan, i);

        if (from != NONE)
            plan->values[plan->operands[kernel->values + kernel->num_in]].place =
                plan->values[from].place;
    }
}

/* The blocks of memory that roots need: one for all that share a place. How many there are. */
static size_t
find_blocks(const coi_plan *plan, coi_plan_block *blocks, uint32_t *block_of)
{
    size_t n = 0;

    for (uint32_t i = 0; i < plan->num_values; ++i) {
        const coi_plan_value *value = &plan->values[i];
        uint32_t              last;

        if (!is_in_arena(value) || plan->kernels[value->first].is_dead)
            continue;
        /* A chain is one step: nothing else that it makes takes the place of what it uses. */
        last = plan->kernels[value->last].last;
        if (value->place != i) {
            coi_plan_block *block = &blocks[block_of[value->place]];

            block->last = block->last > last ? block->last : last;
            continue;
        }
        block_of[i] = (uint32_t)n;
        blocks[n++] = (coi_plan_block){ coi_tensor_nbytes(&value->cell), 0,
                                        plan->kernels[value->first].first, last, i };
    }
    return n;
}

/* A place in the arena for what kernels make and the region drops. */
static bool
place_values(coi_plan *plan)
{
    size_t          most = plan->num_values + 1, nbytes = most * sizeof(coi_plan_block), n;
    coi_plan_block *blocks = coi_alloc(plan->memory, nbytes);
    uint32_t       *block_of = coi_alloc(plan->memory, most * sizeof(*block_of));

    plan->arena_bytes = SIZE_MAX;
    if (blocks != NULL && block_of != NULL) {
        find_shared_places(plan);
        n = find_blocks(plan, blocks, block_of);
        plan->arena_bytes = coi_plan_place(plan->memory, blocks, n, plan->num_kernels);
        for (size_t i = 0; plan->arena_bytes != SIZE_MAX && i < n; ++i)
            plan->values[blocks[i].value].offset = blocks[i].offset;
    }
    coi_free(plan->memory, blocks, nbytes);
    coi_free(plan->memory, block_of, most * sizeof(*block_of));
    for (size_t i = 0; i < plan->num_values; ++i) {
        coi_plan_value *value = &plan->values[i];

        value->offset = plan->values[value->place].offset;
        if (value->source == COI_PLAN_COMPUTED && !value->is_output)
            plan->temporary_bytes += coi_tensor_nbytes(&value->cell);
    }
    if (plan->arena_bytes <= SMALL_ARENA)
        plan->small_arena = coi_alloc(plan->memory, plan->arena_bytes);
    return plan->arena_bytes != SIZE_MAX &&
           (plan->arena_bytes > SMALL_ARENA || plan->small_arena != NULL);
}

/* --- calls --- */

static size_t
shown_bytes(const coi_plan *plan)
{
    return (2 * plan->num_values + 2) * sizeof(uint32_t);
}

/* The values that show the data of each root, root after root. */
static bool
sort_by_root(coi_plan *plan)
{
    size_t    n = plan->num_values;
    uint32_t *first = coi_calloc(plan->memory, shown_bytes(plan));

    if (first == NULL)
        return false;
    plan->first_shown = first;
    plan->shown = first + n + 1;
    for (size_t i = 0; i < n; ++i)
        ++first[plan->values[i].root];
    for (size_t i = 1; i <= n; ++i)
        first[i] += first[i - 1]; /* where the next root begins */
    for (size_t i = n; i > 0; --i)
        plan->shown[--first[plan->values[i - 1].root]] = (uint32_t)(i - 1);
    return true;
}

/* Tapes know tensors by their handles: two results are two, and those of two calls. */
static bool
is_shared_output(const coi_plan *plan, size_t i)
{
    uint32_t value = plan->outputs[i].value;

    for (size_t k = 0; k < i; ++k)
        if (plan->outputs[k].value == value)
            return true;
    return plan->values[value].source == COI_PLAN_CONSTANT;
}

/* Whether a result is what a kernel made, of which there is no other result. */
static bool
is_only_output(const coi_plan *plan, size_t i)
{
    uint32_t value = plan->outputs[i].value;

    for (size_t k = 0; k < plan->num_outputs; ++k)
        if (k != i && plan->values[plan->outputs[k].value].root == plan->values[value].root)
            return false;
    return plan->values[value].source == COI_PLAN_COMPUTED;
}

static bool
find_bound(coi_plan *plan)
{
    size_t nbytes = (plan->num_values + 1) * sizeof(uint32_t);

    plan->bound = coi_alloc(plan->memory, nbytes);
    plan->reads = coi_alloc(plan->memory, nbytes);
    plan->tensors = coi_calloc(plan->memory, (plan->num_values + 1) * sizeof(co_value *));
    if (plan->bound == NULL || plan->reads == NULL || plan->tensors == NULL)
        return false;
    for (size_t i = 0; i < plan->num_values; ++i) {
        if (!is_bound(&plan->values[i]))
            continue;
        plan->values[i].position = (uint32_t)plan->num_bound;
        plan->bound[plan->num_bound++] = (uint32_t)i;
        if (plan->values[i].after > 0) /* values are in the order of the recording */
            plan->reads[plan->num_reads++] = (uint32_t)i;
    }
    for (size_t i = 0; i < plan->num_outputs; ++i) {
        const coi_plan_value *root = &plan->values[plan->values[plan->outputs[i].value].root];

        if (is_bound(root))
            plan->outputs[i].bound = root->position;
        plan->outputs[i].is_shared = is_shared_output(plan, i);
        plan->outputs[i].is_moved = is_only_output(plan, i);
    }
    return true;
}

static size_t
stride_bytes(const coi_plan *plan)
{
    return (plan->num_operands + 1) * sizeof(*plan->row_strides);
}

static bool
find_row_strides(coi_plan *plan)
{
    for (size_t i = 0; i < plan->num_operands; ++i) {
        int64_t stride = plan->values[plan->operands[i]].row_stride;

        if (stride == 0)
            continue;
        if (plan->row_strides == NULL &&
            (plan->row_strides = coi_calloc(plan->memory, stride_bytes(plan))) == NULL)
            return false;
        plan->row_strides[i] = stride;
    }
    return true;
}

static bool
make_calls(co_context *ctx, coi_plan *plan)
{
    plan->calls = coi_calloc(plan->memory, (plan->num_kernels + 1) * sizeof(*plan->calls));
    plan->cells = coi_alloc(plan->memory, (plan->num_operands + 1) * sizeof(*plan->cells));
    if (plan->calls == NULL || plan->cells == NULL)
        return false;
    for (size_t i = 0; i < plan->num_operands; ++i)
        plan->cells[i] = &plan->values[plan->operands[i]].cell;
    if (!find_row_strides(plan))
        return false;
    for (size_t i = 0; i < plan->num_kernels; ++i) {
        coi_plan_kernel *kernel = &plan->kernels[i];
        coi_call        *call = &plan->calls[i];

        call->ctx = ctx;
        call->op = kernel->op;
        call->device = kernel->device;
        call->in = plan->cells + kernel->values;
        call->num_in = kernel->num_in;
        call->attrs = kernel->attrs;
        call->num_out = kernel->num_out;
        call->row_strides = plan->row_strides != NULL ? plan->row_strides + kernel->values : NULL;
        for (int k = 0; k < kernel->num_out; ++k)
            call->out[k] = call->in[kernel->num_in + k];
        kernel->first = kernel->last = (uint32_t)i;
    }
    plan->ctx = ctx;
    return true;
}

/* What a run starts: kernels that are needed, and chains at the place of their first kernel, which
 * may be what they are the epilogue of. */
static bool
make_starts(coi_plan *plan)
{
    uint32_t next_chain = 0;

    plan->starts = coi_alloc(plan->memory, (plan->num_kernels + 1) * sizeof(*plan->starts));
    if (plan->starts == NULL)
        return false;
    for (uint32_t i = 0; i < plan->num_kernels; ++i) {
        const coi_plan_kernel *kernel = &plan->kernels[i];
        uint32_t               chain = NONE;

        if (kernel->is_dead)
            continue;
        if (kernel->first != kernel->last)
            chain = next_chain++;
        if (chain != NONE && coi_takes_epilogue(&plan->calls[i])) {
            plan->calls[i].epilogue = &plan->chains[chain];
            chain = NONE;
        }
        plan->starts[plan->num_starts++] = (coi_plan_start){ i, chain };
        i = kernel->last;
    }
    return true;
}

/* Which starts of kernels, and reads of variables, come before each call, and before the end. */
static bool
find_stops(coi_plan *plan)
{
    uint32_t start = 0, read = 0;

    coi_plan_find_ready(plan);
    if (!coi_grow(plan->memory, (void **)&plan->stops, &plan->cap_stops, plan->num_stops + 1,
                  sizeof(*plan->stops)))
        return false;
    plan->stops[plan->num_stops] = (coi_plan_call){ .end_kernel = (uint32_t)plan->num_kernels,
                                                    .end_output = (uint32_t)plan->num_outputs };
    for (uint32_t i = 0; i <= plan->num_stops; ++i) {
        coi_plan_call *stop = &plan->stops[i];

        while (start < plan->num_starts && plan->starts[start].kernel < stop->end_kernel)
            ++start;
        while (read < plan->num_reads && plan->values[plan->reads[read]].after <= i + 1)
            ++read;
        stop->end_start = start;
        stop->end_read = read;
    }
    return true;
}

/* Let all values that show the data of a root find it at `data`. */
static void
set_data(coi_plan *plan, uint32_t root, void *data)
{
    for (uint32_t i = plan->first_shown[root]; i < plan->first_shown[root + 1]; ++i) {
        coi_plan_value *value = &plan->values[plan->shown[i]];

        value->cell.u.tensor.data = (char *)data + value->view_offset;
    }
}

bool
coi_plan_finish(co_context *ctx, coi_plan *plan)
{
    mark_outputs(plan);
    if (!coi_plan_view_parts(plan))
        return false;
    find_last_uses(plan);
    if (!make_calls(ctx, plan) || !coi_plan_order(plan))
        return false;
    find_last_uses(plan);
    if (!coi_plan_fuse(plan) || !make_starts(plan) || !place_values(plan) || !sort_by_root(plan) ||
        !find_bound(plan) || !find_stops(plan))
        return false;
    for (size_t i = 0; i < plan->num_values; ++i)
        if (plan->values[i].source == COI_PLAN_CONSTANT)
            set_data(plan, (uint32_t)i, coi_data_on_host(plan->values[i].held));
    return true;
}

void
coi_plan_destroy(coi_heap *heap, coi_plan *plan)
{
    coi_memory *memory = plan->memory;

    for (size_t i = 0; i < plan->num_kernels; ++i) {
        const coi_attrs_rule *rule = &plan->kernels[i].op->attrs_rule;

        if (plan->kernels[i].attrs != NULL && rule->destroy != NULL)
            rule->destroy(heap, plan->kernels[i].attrs);
        coi_free(memory, plan->kernels[i].attrs, rule->size);
    }
    for (size_t i = 0; i < plan->num_values; ++i)
        coi_unref(heap, plan->values[i].held);
    for (size_t i = 0; i < plan->num_inputs; ++i)
        coi_unref(heap, plan->inputs[i].variable);
    coi_free(memory, plan->inputs, (plan->num_inputs + 1) * sizeof(*plan->inputs));
    coi_free(memory, plan->outputs, plan->cap_outputs * sizeof(*plan->outputs));
    coi_free(memory, plan->stops, plan->cap_stops * sizeof(*plan->stops));
    coi_free(memory, plan->calls, (plan->num_kernels + 1) * sizeof(*plan->calls));
    if (plan->small_arena != NULL)
        coi_free(memory, plan->small_arena, plan->arena_bytes);
    coi_free(memory, plan->starts, (plan->num_kernels + 1) * sizeof(*plan->starts));
    coi_free(memory, plan->chains, plan->cap_chains * sizeof(*plan->chains));
    coi_free(memory, plan->chain_steps, (plan->num_kernels + 1) * sizeof(*plan->chain_steps));
    coi_free(memory, plan->cells, (plan->num_operands + 1) * sizeof(*plan->cells));
    if (plan->row_strides != NULL)
        coi_free(memory, plan->row_strides, stride_bytes(plan));
    coi_free(memory, plan->bound, (plan->num_values + 1) * sizeof(*plan->bound));
    coi_free(memory, plan->reads, (plan->num_values + 1) * sizeof(*plan->reads));
    coi_free(memory, plan->tensors, (plan->num_values + 1) * sizeof(*plan->tensors));
    coi_free(memory, plan->first_shown, shown_bytes(plan));
    coi_free(memory, plan->values, plan->cap_values * sizeof(*plan->values));
    coi_free(memory, plan->kernels, plan->cap_kernels * sizeof(*plan->kernels));
    coi_free(memory, plan->operands, plan->cap_operands * sizeof(*plan->operands));
    coi_free(memory, plan, sizeof(*plan));
}

/* --- a run --- */

static bool
is_of_type(const co_value *cell, const co_value *tensor)
{
    return tensor->dtype == cell->dtype && tensor->u.tensor.device == cell->u.tensor.device &&
           coi_same_shape(cell, tensor);
}

/* Whether a tensor that is one value of the plan is another one too. A tape inside takes two values
 * that are one tensor for one, so their gradients are others. */
static bool
is_shared(const coi_plan *plan, uint32_t number, co_value *const *slots)
{
    const co_value *tensor = slots[plan->values[number].slot];

    for (uint32_t i = 0; i < plan->num_given; ++i) {
        const coi_plan_value *value = &plan->values[i];

        if (i != number &&
            tensor == (value->source == COI_PLAN_INPUT ? slots[value->slot] : value->held))
            return true;
    }
    return false;
}

bool
coi_plan_fits(const coi_plan *plan, const co_context *ctx, const coi_plan_key *key,
              co_value *const *slots)
{
    if (plan->device != ctx->device || memcmp(&plan->key, key, sizeof(*key)) != 0)
        return false;
    for (size_t i = 0; i < plan->num_inputs; ++i) {
        const coi_plan_input *input = &plan->inputs[i];
        const co_value       *given = slots[input->slot];

        if (input->variable != NULL) {
            if (!coi_is_variable(given) || given->u.variable != input->variable->u.variable)
                return false;
        } else {
            const coi_plan_value *value = &plan->values[input->value];

            if (given->kind != CO_KIND_TENSOR || !is_of_type(&value->cell, given) ||
                given != slots[value->slot] ||
                (plan->has_tape && is_shared(plan, input->value, slots)))
                return false;
        }
    }
    return true;
}

/* The tensor that a variable is now; *fits is false if it is not of the type that it was. */
static co_value *
read_variable(co_context *ctx, const coi_plan_value *value, bool *fits)
{
    co_value *tensor = coi_as_tensor(ctx, value->held, CO_DTYPE_NONE);

    *fits = tensor != NULL && is_of_type(&value->cell, tensor);
    return tensor;
}

/* A new tensor for what the region leaves behind. */
static co_value *
make_output(co_context *ctx, const co_value *cell)
{
    co_value *tensor = coi_tensor_new(&ctx->heap, cell->u.tensor.device, (co_dtype)cell->dtype,
                                      cell->u.tensor.dims, cell->ndim, cell->u.tensor.num_elements,
                                      coi_err(ctx));

    if (tensor == NULL)
        coi_failed(ctx);
    return tensor;
}

static bool
bind_data(co_context *ctx, coi_plan *plan, co_value *const *slots, bool *fits)
{
    for (size_t i = 0; i < plan->num_bound; ++i) {
        uint32_t              root = plan->bound[i];
        const coi_plan_value *value = &plan->values[root];
        const co_value       *tensor;

        if (value->after > 0) /* a call comes before */
            continue;
        if (value->source == COI_PLAN_INPUT)
            tensor = slots[value->slot];
        else if (value->source == COI_PLAN_VARIABLE)
            tensor = plan->tensors[i] = read_variable(ctx, value, fits);
        else
            tensor = plan->tensors[i] = make_output(ctx, &value->cell);
        if (tensor == NULL || !*fits)
            return false;
        set_data(plan, root, coi_data_on_host(tensor));
    }
    return true;
}

static void
bind_arena(coi_plan *plan, char *data)
{
    if (plan->arena_data == data)
        return;
    plan->arena_data = data;
    for (size_t i = 0; i < plan->num_values; ++i)
        if (is_in_arena(&plan->values[i]))
            set_data(plan, (uint32_t)i, data + plan->values[i].offset);
}

static void
bind_context(coi_plan *plan, co_context *ctx)
{
    if (plan->ctx == ctx)
        return;
    plan->ctx = ctx;
    for (size_t i = 0; i < plan->num_kernels; ++i)
        plan->calls[i].ctx = ctx;
}

static co_code
run_kernel(coi_call *call)
{
    const coi_op *op = call->op;

    if (op->upcasts && coi_is_half(call->out[0]))
        return coi_run_upcast(call, op->run != NULL ? op->run : op->ref);
    return op->run != NULL ? op->run(call) : op->ref(call);
}

/* For messages of what comes next. */
static void
enter_step(co_context *ctx, const coi_program_step *step)
{
    coi_copy_site(&ctx->site, &step->site);
    ctx->call = step->call;
}

static bool
run_start(co_context *ctx, coi_plan *plan, const coi_plan_start *start)
{
    const coi_plan_kernel *kernel = &plan->kernels[start->kernel];

    coi_tick(ctx);
    if (start->chain != NONE) {
        coi_fused_run(&plan->chains[start->chain], kernel->device, &ctx->progress);
        return true;
    }
    enter_step(ctx, &plan->program->steps[kernel->step]);
    if (kernel->op->renew != NULL)
        kernel->op->renew(ctx, kernel->attrs);
    return run_kernel(&plan->calls[start->kernel]) == CO_OK;
}

/* The calls that a run has started. */
typedef struct started {
    const coi_op *op;      /* their entry, which goes on with them between kernels; NULL: none */
    bool          is_over; /* those that are left are not started */
} started;

static bool
run_starts(co_context *ctx, coi_plan *plan, size_t first, size_t end, const started *calls)
{
    bool ok = true;

    for (size_t i = first; ok && i < end; ++i) {
        ok = run_start(ctx, plan, &plan->starts[i]);
        if (calls->op != NULL)
            calls->op->go_on(ctx);
    }
    return ok;
}

/* The tensor that a value of the region shows: borrowed. */
static co_value *
base_of(const coi_plan *plan, const coi_plan_output *output, co_value *const *slots)
{
    const coi_plan_value *root = &plan->values[plan->values[output->value].root];

    if (output->bound == NONE)
        return root->held;
    return root->source == COI_PLAN_INPUT ? slots[root->slot] : plan->tensors[output->bound];
}

/* What the region leaves behind: a reference, or NULL with an error. */
static co_value *
output_of(co_context *ctx, const coi_plan *plan, const coi_plan_output *output,
          co_value *const *slots)
{
    const coi_plan_value *value = &plan->values[output->value];
    co_value             *base = base_of(plan, output, slots), *view;

    if (output->is_moved) {
        plan->tensors[output->bound] = NULL;
        return base;
    }
    if (value->source != COI_PLAN_VIEW && !output->is_shared) {
        coi_ref(base);
        return base;
    }
    view = coi_tensor_view(&ctx->heap, base, value->cell.u.tensor.dims, value->cell.ndim,
                           value->cell.u.tensor.num_elements, 0, coi_err(ctx));
    if (view == NULL)
        coi_failed(ctx);
    else
        view->u.tensor.device = value->cell.u.tensor.device;
    return view;
}

static bool
fill_slots(co_context *ctx, coi_plan *plan, co_value **slots, size_t first, size_t end)
{
    bool ok = true;

    for (size_t i = first; ok && i < end; ++i)
        ok = (plan->outputs[i].tensor = output_of(ctx, plan, &plan->outputs[i], slots)) != NULL;
    for (size_t i = first; i < end; ++i) {
        coi_plan_output *output = &plan->outputs[i];

        if (ok) {
            coi_unref(&ctx->heap, slots[output->slot]);
            slots[output->slot] = output->tensor;
        } else {
            coi_unref(&ctx->heap, output->tensor);
        }
        output->tensor = NULL;
    }
    return ok;
}

/* What variables are after a call. Their types do not change: the plan goes on. */
static bool
read_again(co_context *ctx, coi_plan *plan, size_t first, size_t end)
{
    bool fits = true;

    for (size_t i = first; i < end; ++i) {
        const coi_plan_value *value = &plan->values[plan->reads[i]];
        co_value             *tensor = read_variable(ctx, value, &fits);

        plan->tensors[value->position] = tensor;
        if (!fits && tensor != NULL)
            coi_fail(ctx, CO_INTERNAL, "a variable is of another type after a call of a plan");
        if (!fits)
            return false;
        set_data(plan, plan->reads[i], coi_data_on_host(tensor));
    }
    return true;
}

/* False with an error. */
static bool
start_call(co_context *ctx, const coi_plan *plan, const coi_plan_call *stop,
           const coi_plan_caller *caller, started *calls)
{
    calls->is_over = calls->is_over || !caller->start(caller->arg, stop->step);
    if (!calls->is_over)
        calls->op = plan->program->steps[stop->step].op;
    return ctx->error.code == CO_OK;
}

static bool
run_in(co_context *ctx, coi_plan *plan, co_value **slots, const coi_plan_caller *caller,
       char *arena)
{
    size_t  start = 0, output = 0, read = 0;
    started calls = { NULL, false };
    bool    ok;

    bind_arena(plan, arena);
    bind_context(plan, ctx);
    for (size_t i = 0;; ++i) {
        const coi_plan_call *stop = &plan->stops[i];

        if (!run_starts(ctx, plan, start, stop->end_start, &calls) ||
            !fill_slots(ctx, plan, slots, output, stop->end_output))
            return false;
        if (i == plan->num_stops)
            return true;
        if (stop->is_start)
            ok = start_call(ctx, plan, stop, caller, &calls);
        else
            ok = caller->make(caller->arg, stop->step) &&
                 read_again(ctx, plan, read, stop->end_read);
        if (!ok)
            return false;
        start = stop->end_start;
        output = stop->end_output;
        read = stop->end_read;
    }
}

/* A large arena is memory of the device's pool, which other plans have in their turn. */
bool
coi_plan_run(co_context *ctx, coi_plan *plan, co_value **slots, const coi_plan_caller *caller,
             bool *fits)
{
    coi_buffer *arena = NULL;
    bool        ok = false;

    *fits = true;
    *fits = bind_data(ctx, plan, slots, fits) &&
            (plan->small_arena != NULL ||
             (arena = coi_buffer_alloc(plan->device, plan->arena_bytes, coi_err(ctx))) != NULL);
    if (*fits)
        ok = run_in(ctx, plan, slots, caller, arena != NULL ? arena->data : plan->small_arena);
    else /* nothing has happened yet: the calls will say what is wrong, at their lines */
        coi_error_reset(&ctx->error);
    if (arena != NULL)
        coi_buffer_unref(arena);
    for (size_t i = 0; i < plan->num_bound; ++i) {
        coi_unref(&ctx->heap, plan->tensors[i]);
        plan->tensors[i] = NULL;
    }
    return ok;
}
