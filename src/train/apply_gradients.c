/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applying gradients. In a step the gradients are summed over replicas, and then every replica
 * updates its own component with the same sum, so that components stay equal without further
 * communication.
 */
#include "train/apply.h"

#include "strategy/cross_replica_reduce.h"
#include "strategy/distributed_variables.h"
#include "strategy/regroup.h"
#include "strategy/rendezvous.h"

#include "context/tape.h"
#include "ops/engine/call_recording.h"
#include "ops/engine/gradient.h"
#include "ops/kernels/reduction.h"
#include "strategy/strategy_state.h"
#include "variable/variable.h"

#include <cohort/ops.h>

#include <math.h>
#include <string.h>

COI_USES_OP(reduce_mean)

static bool
fits(co_context *ctx, const coi_variable *variable, const co_value *gradient)
{
    char mine[COI_SHAPE_TEXT], its[COI_SHAPE_TEXT];
    bool same = gradient->dtype == variable->dtype && gradient->ndim == variable->shape.ndim;

    for (int i = 0; same && i < gradient->ndim; ++i)
        same = gradient->u.tensor.dims[i] == variable->shape.dims[i];
    if (!same)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "the gradient of '%s' is %s %s; the variable is %s %s",
                 variable->name, co_dtype_name((co_dtype)gradient->dtype),
                 coi_shape_text(gradient->u.tensor.dims, gradient->ndim, its),
                 co_dtype_name((co_dtype)variable->dtype),
                 coi_shape_text(variable->shape.dims, variable->shape.ndim, mine));
    return same;
}

/* Slices may leave their dense shape out: it is that of the variable. */
co_value *
coi_with_dense_shape(co_context *ctx, const coi_variable *variable, co_value *gradient)
{
    const int64_t rank = variable->shape.ndim;

    if (gradient->kind != CO_KIND_SLICES || gradient->u.slices.dense_shape != NULL)
        return gradient;
    return co_slices(ctx, co_slices_values(ctx, gradient), co_slices_indices(ctx, gradient),
                     co_tensor(ctx, CO_INT64, &rank, 1, variable->shape.dims));
}

co_value *
coi_fitting_gradient(co_context *ctx, const coi_variable *variable, co_value *gradient)
{
    gradient = coi_with_dense_shape(ctx, variable, gradient);
    gradient = gradient != NULL ? coi_densify(ctx, gradient) : NULL;
    if (gradient != NULL && gradient->kind != CO_KIND_TENSOR)
        gradient = co_to_tensor(ctx, gradient, (co_dtype)variable->dtype);
    return gradient != NULL && fits(ctx, variable, gradient) ? gradient : NULL;
}

/* Checks of a pair before anything changes. */
static bool
check_pair(co_context *ctx, const coi_variable *variable, const co_value *gradient)
{
    char who[COI_VARIABLE_TEXT];

    if (ctx->mode.strategy != NULL && variable->strategy != ctx->mode.strategy &&
        (variable->components != NULL || ctx->mode.num_replicas > 1)) {
        if (variable->strategy != NULL)
            return coi_check_owner(ctx, variable, ctx->mode.strategy);
        coi_fail(ctx, CO_VALUE_ERROR,
                 "variable %s was made outside the scope of the strategy, and each of %d replicas "
                 "would update it; make it inside",
                 coi_variable_text(ctx, variable, who), ctx->mode.num_replicas);
        return false;
    }
    return coi_check_trained(ctx, variable) &&
           (gradient->kind != CO_KIND_TENSOR || fits(ctx, variable, gradient));
}

static bool
check_pairs(co_context *ctx, const coi_pairs *p)
{
    size_t some = 0;

    for (size_t i = 0; i < p->n; ++i) {
        if (p->gradients[i]->kind == CO_KIND_NONE)
            continue;
        ++some;
        if (!check_pair(ctx, p->variables[i]->u.variable, p->gradients[i]))
            return false;
    }
    if (p->n == 0)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "no variable: gradients and variables are empty lists; give at least one of each");
    else if (some == 0)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "no gradient: the loss does not depend on any of %zu variable%s, '%s' the first; "
                 "compute it from them after co_tape_begin",
                 p->n, COI_S(p->n), p->variables[0]->u.variable->name);
    return ctx->error.code == CO_OK;
}

/* --- the sum over replicas --- */

/* A replica's operand of the sum: its own part; host numbers get the dtype of the variable. */
static co_value *
summand(co_context *ctx, const coi_variable *variable, co_value *gradient)
{
    gradient = coi_select(gradient, ctx->mode.local_replica);
    if (gradient->kind != CO_KIND_TENSOR && gradient->kind != CO_KIND_SYMBOLIC &&
        !coi_is_composite(gradient))
        gradient = co_to_tensor(ctx, gradient, (co_dtype)variable->dtype);
    return gradient;
}

/* Gradients are summed together until they are so many bytes (docs/decisions/gradient-buckets.md).
 */
#define BUCKET_BYTES ((size_t)1 << 20)

static size_t
bytes_of(const coi_variable *variable)
{
    size_t nbytes = coi_dtypes[variable->dtype].size;

    for (int i = 0; i < variable->shape.ndim; ++i)
        nbytes *= (size_t)variable->shape.dims[i];
    return nbytes;
}

/* The first of the pairs of the bucket that ends at `end`. Gradients of the variables that were
 * used last are there first, so buckets are counted from there. What the variables are decides it,
 * which are the same on all replicas, whether they run a captured function or not. */
static size_t
bucket_begin(const coi_pairs *p, size_t end)
{
    size_t nbytes = 0;

    while (end > 0 && nbytes < BUCKET_BYTES) {
        --end;
        if (p->gradients[end]->kind != CO_KIND_NONE)
            nbytes += bytes_of(p->variables[end]->u.variable);
    }
    return end;
}

/* Sum the gradients from `first` to `end`; `some` has room for them. Those that are none stay. */
static bool
sum_bucket(co_context *ctx, const coi_pairs *p, size_t first, size_t end, co_value **some)
{
    size_t    count = 0;
    co_value *sums;

    for (size_t i = first; i < end; ++i)
        if (p->gradients[i]->kind != CO_KIND_NONE)
            some[count++] = summand(ctx, p->variables[i]->u.variable, p->gradients[i]);
    if (ctx->error.code != CO_OK || count == 0)
        return ctx->error.code == CO_OK;
    sums = co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, some, count));
    if (sums == NULL)
        return false;
    count = 0;
    for (size_t i = first; i < end; ++i)
        if (p->gradients[i]->kind != CO_KIND_NONE)
            p->gradients[i] = sums->u.items.items[count++];
    return true;
}

/* In a step: all-reduces of all gradients, bucket by bucket. */
static bool
sum_in_step(co_context *ctx, const coi_pairs *p)
{
    size_t     nbytes = (p->n + 1) * sizeof(co_value *), end = p->n, first;
    co_value **some = coi_small_alloc(&ctx->heap, nbytes);
    bool       ok = true;

    if (some == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu gradients", p->n);
        return false;
    }
    for (; ok && end > 0; end = first) {
        first = bucket_begin(p, end);
        ok = sum_bucket(ctx, p, first, end, some);
    }
    coi_small_free(&ctx->heap, some, nbytes);
    return ok;
}

/* Outside of steps: a per-replica gradient has the parts of all local replicas. */
static bool
sum_across(co_context *ctx, const coi_pairs *p)
{
    for (size_t i = 0; i < p->n; ++i) {
        co_strategy *strategy = p->variables[i]->u.variable->strategy;

        if (p->gradients[i]->kind != CO_KIND_PER_REPLICA || strategy == NULL)
            continue;
        if (!coi_check_per_replica(ctx, strategy, p->gradients[i]))
            return false;
        p->gradients[i] = coi_reduce(ctx, strategy, CO_REDUCE_SUM, p->gradients[i], NULL, 0);
        if (p->gradients[i] == NULL)
            return false;
    }
    return true;
}

/* An update function (co_update) acts on one component, with what it was given for that. */
static bool
sum_gradients(co_context *ctx, const coi_pairs *p)
{
    if (!p->sum || ctx->mode.update_id >= 0)
        return true;
    if (ctx->mode.cross || ctx->mode.step == NULL)
        return sum_across(ctx, p);
    return ctx->mode.num_replicas == 1 || sum_in_step(ctx, p);
}

/* --- the update --- */

/* Which components of a variable change here: of the replica, of the update, or all. */
static void
choose_components(const co_context *ctx, const coi_variable *variable, size_t *first, size_t *end)
{
    size_t n = variable->num_components;

    *first = 0;
    *end = n;
    if (ctx->mode.update_id >= 0 && (size_t)ctx->mode.update_id < n)
        *first = (size_t)ctx->mode.update_id;
    else if (coi_in_replica(ctx) && ctx->mode.strategy == variable->strategy)
        *first = (size_t)ctx->mode.local_replica;
    else
        return;
    *end = *first + 1;
}

/* The gradient of component i. Dense ones fit; slices have a dense shape, and fit when they are
 * dense. */
static co_value *
gradient_for(co_context *ctx, const coi_variable *variable, co_value *gradient, size_t i)
{
    gradient = coi_select(gradient, (int)i);
    return gradient->kind == CO_KIND_SLICES ? coi_with_dense_shape(ctx, variable, gradient)
                                            : coi_fitting_gradient(ctx, variable, gradient);
}

/* Whether a variable that has no gradient in this update has an average that moves on. */
static bool
has_average(const co_context *ctx, const co_optimizer *optimizer, const coi_variable *variable)
{
    return optimizer->average >= 0 &&
           (variable->dtype == CO_FLOAT32 || variable->dtype == CO_FLOAT64) &&
           (!coi_in_replica(ctx) || variable->strategy == ctx->mode.strategy);
}

coi_item_made
coi_item_of(co_context *ctx, const coi_pairs *p, size_t i, size_t round, coi_update_item *item)
{
    const coi_variable   *variable = p->variables[i]->u.variable;
    const bool            is_none = p->gradients[i]->kind == CO_KIND_NONE;
    co_value             *whole = p->variables[i];
    const coi_slot_entry *entry;
    size_t                first, end;

    if (is_none && !has_average(ctx, p->optimizer, variable))
        return COI_ITEM_NONE;
    if (variable->components != NULL)
        choose_components(ctx, variable, &first, &end);
    else if ((whole = coi_whole_variable(ctx, whole, &first)) != NULL)
        end = first + 1;
    else
        return COI_ITEM_FAILED;
    if (first + round >= end)
        return COI_ITEM_NONE;
    entry = coi_slots_of(ctx, p->optimizer, whole);
    if (entry == NULL)
        return COI_ITEM_FAILED;
    *item = (coi_update_item){ .variable = coi_variable_component(whole, first + round),
                               .factor = 1,
                               .limit = HUGE_VAL,
                               .decays = entry->decays };
    for (int k = 0; k < p->optimizer->num_slots; ++k)
        item->slots[k] = coi_variable_component(entry->slots[k], first + round);
    if (is_none)
        return COI_ITEM_MADE;
    item->gradient = gradient_for(ctx, variable, p->gradients[i], first + round);
    return item->gradient != NULL ? COI_ITEM_MADE : COI_ITEM_FAILED;
}

/* What is updated in a round, in the order of the pairs: how many; none with an error. */
static size_t
make_items(co_context *ctx, const coi_pairs *p, size_t round, coi_update_item *items)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; ++i) {
        coi_item_made made = coi_item_of(ctx, p, i, round, &items[n]);

        if (made == COI_ITEM_FAILED)
            return 0;
        n += made == COI_ITEM_MADE;
    }
    return n;
}

static coi_update_step
step_of(const co_optimizer *optimizer, const coi_numbers *numbers)
{
    const coi_common *common = &optimizer->common;
    const int64_t     t = numbers->iterations + 1;
    const double      rate = coi_learning_rate(optimizer, numbers);
    coi_update_step   step = { .optimizer = optimizer,
                               .keep = 1 - common->weight_decay * rate,
                               .ema_momentum = t == 1 ? 0 : common->ema_momentum,
                               .overwrites = common->ema_overwrite_frequency > 0 &&
                                             t % common->ema_overwrite_frequency == 0 };

    optimizer->rule->prepare(optimizer->options, t, rate, CO_FLOAT32, step.numbers[0]);
    optimizer->rule->prepare(optimizer->options, t, rate, CO_FLOAT64, step.numbers[1]);
    return step;
}

/* Components of all variables, one of each at a time: in a replica there is one. Everything is
 * checked before the first of them changes. */
static bool
update_items(co_context *ctx, const coi_pairs *p, const coi_update_step *step,
             coi_update_item *items, double factor)
{
    size_t n;

    for (size_t round = 0; (n = make_items(ctx, p, round, items)) > 0; ++round)
        if (!coi_clip_items(ctx, p->optimizer, items, n, factor) ||
            !coi_densify_items(ctx, p->optimizer, items, n) ||
            !coi_update_variables(ctx, step, items, n))
            return false;
    return ctx->error.code == CO_OK;
}

/* `factor` times the gradients are the real ones. */
static bool
update_all(co_context *ctx, const coi_pairs *p, const coi_numbers *numbers, double factor)
{
    coi_update_step  step = step_of(p->optimizer, numbers);
    size_t           nbytes = p->n * sizeof(coi_update_item);
    coi_update_item *items = coi_small_alloc(&ctx->heap, nbytes);
    bool             ok;

    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to update %zu variables", p->n);
        return false;
    }
    ok = update_items(ctx, p, &step, items, factor);
    coi_small_free(&ctx->heap, items, nbytes);
    return ok;
}

/* How far a loss scale may go: beyond, something else is wrong than the scale. */
#define LEAST_SCALE 0x1p-100
#define MOST_SCALE  0x1p100

/* After an update, or one that was skipped. */
static void
count_update(const coi_common *common, bool was_finite, coi_numbers *numbers)
{
    numbers->accumulated = 0;
    numbers->iterations += was_finite;
    if (common->loss_scale <= 0 || common->loss_scale_growth_steps == 0)
        return;
    numbers->good_steps = was_finite ? numbers->good_steps + 1 : 0;
    if (!was_finite && numbers->loss_scale > LEAST_SCALE)
        numbers->loss_scale /= 2;
    if (numbers->good_steps < common->loss_scale_growth_steps)
        return;
    numbers->good_steps = 0;
    if (numbers->loss_scale < MOST_SCALE)
        numbers->loss_scale *= 2;
}

/* The update of a call that is the last of its cycle. */
static bool
finish_cycle(co_context *ctx, const coi_pairs *p, coi_numbers *numbers, const char *call)
{
    const coi_common *common = &p->optimizer->common;
    const bool        accumulates = common->accumulation_steps > 1;
    double            factor = 1.0 / common->accumulation_steps;
    bool              is_finite = true;

    if (common->loss_scale > 0)
        factor /= numbers->loss_scale;
    if ((accumulates && !coi_add_accumulated(ctx, p)) ||
        (common->clip_before_sum && common->clipping != COI_CLIP_NOTHING &&
         !coi_clip_before_sum(ctx, p, factor)) ||
        !sum_gradients(ctx, p))
        return false;
    ctx->call = call;
    if (common->loss_scale > 0 && common->loss_scale_growth_steps > 0)
        is_finite = coi_are_finite(ctx, p);
    if (ctx->error.code != CO_OK || (is_finite && !update_all(ctx, p, numbers, factor)) ||
        (accumulates && !coi_clear_accumulators(ctx, p)))
        return false;
    count_update(common, is_finite, numbers);
    return true;
}

static bool
apply_or_accumulate(co_context *ctx, const coi_pairs *p)
{
    coi_numbers numbers = coi_numbers_get(ctx, p->optimizer);
    const char *call = ctx->call;
    bool        ok;

    if (numbers.accumulated + 1 < p->optimizer->common.accumulation_steps) {
        ok = coi_accumulate(ctx, p);
        ++numbers.accumulated;
    } else {
        ok = finish_cycle(ctx, p, &numbers, call);
    }
    if (ok)
        coi_numbers_set(ctx, p->optimizer, &numbers);
    return ok;
}

static bool
may_update(co_context *ctx, co_optimizer *optimizer)
{
    atomic_store(&optimizer->is_used, true);
    if (!atomic_load(&optimizer->is_swapped))
        return true;
    coi_fail(
        ctx, CO_FAILED_PRECONDITION,
        "the averages of %s stand in place of the weights; co_optimizer_swap_averages puts the "
        "weights back",
        optimizer->name);
    return false;
}

static co_code
apply(co_context *ctx, const coi_pairs *p)
{
    bool recording = ctx->recording;

    if (!check_pairs(ctx, p) || !may_update(ctx, p->optimizer))
        return ctx->error.code;
    ctx->recording = false;
    co_block_begin(ctx);
    apply_or_accumulate(ctx, p);
    co_block_end(ctx);
    ctx->recording = recording;
    return ctx->error.code;
}

/* --- a loss that is the mean of a replica --- */

/* The record whose output a value is; NULL: no open tape has one. */
static const coi_record *
record_of(const coi_tape_log *log, const co_value *value)
{
    if (log == NULL || value->tape_epoch != log->epoch)
        return NULL;
    for (size_t i = log->num_records; i-- > 0;) {
        const coi_record *record = &log->records[i];
        const uint32_t   *outs = log->nodes + record->values + record->num_in;

        for (int k = 0; k < record->num_out; ++k)
            if (outs[k] == value->tape_node)
                return record;
    }
    return NULL;
}

/* Whether the last operator of a loss took the mean over the first axis of what a replica has. */
static bool
is_mean_of_rows(const co_context *ctx, const co_value *loss)
{
    const coi_tape_log     *log = ctx->tapes;
    const coi_record       *record;
    const coi_reduce_attrs *reduce;
    const co_value         *x;

    if (ctx->mode.num_replicas == 1 || !coi_in_replica(ctx) ||
        (loss->kind != CO_KIND_TENSOR && loss->kind != CO_KIND_SYMBOLIC) ||
        (record = record_of(log, loss)) == NULL || record->op != &coi_op_reduce_mean)
        return false;
    reduce = (const void *)(log->attrs + record->attrs);
    x = log->values[record->values];
    for (int i = 0; i < reduce->axis.n; ++i)
        if (reduce->axis.at[i] == 0 || (x->ndim > 0 && reduce->axis.at[i] == -x->ndim))
            return true;
    return reduce->axis.n < 0 && x->ndim != 0;
}

/* Replicas that have unequal numbers of examples make a mean of means. The optimizer says it
 * once. */
static void
warn_of_mean(co_context *ctx, co_optimizer *optimizer)
{
    coi_examples examples = coi_examples_of(ctx);
    int          n = ctx->mode.num_replicas;

    if (examples.of_step < 0 || examples.of_replica < 0 ||
        examples.of_step == examples.of_replica * n ||
        atomic_exchange(&optimizer->has_warned, true))
        return;
    coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                 "minimize: the loss is the mean over the %lld example%s of replica %d, but the "
                 "step has %lld on %d replicas, so that examples do not count alike and the sum of "
                 "the means is not a mean; give co_average_loss the losses of the examples, or use "
                 "co_loss_call (said once for each optimizer)",
                 (long long)examples.of_replica, COI_S(examples.of_replica), ctx->mode.replica,
                 (long long)examples.of_step, n);
}

/* --- while a function is captured --- */

typedef struct update_attrs {
    co_optimizer *optimizer; /* a reference in a program */
    bool          skip_aggregation;
} update_attrs;

static bool
hold_optimizer(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const update_attrs *)from)->optimizer);
    return true;
}

static void
drop_optimizer(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((update_attrs *)attrs)->optimizer);
}

static co_value *
replay_apply(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const update_attrs        *given = attrs;
    co_apply_gradients_options options = CO_APPLY_GRADIENTS_OPTIONS_INIT;

    (void)num_in;
    options.skip_aggregation = given->skip_aggregation;
    co_apply_gradients_with(ctx, given->optimizer, in[0], in[1], &options);
    return co_none(ctx);
}

static co_value *
replay_minimize(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    co_minimize(ctx, ((const update_attrs *)attrs)->optimizer, in[0]);
    return co_none(ctx);
}

static bool
same_update(co_context *ctx, const void *a, const void *b)
{
    const update_attrs *first = a, *second = b;

    (void)ctx;
    return first->optimizer == second->optimizer &&
           first->skip_aggregation == second->skip_aggregation;
}

#define UPDATE_ATTRS                                                                               \
    .attrs_rule = { COI_ATTRS_SIZE(update_attrs), hold_optimizer, drop_optimizer },                \
    .same_attrs = same_update
#define UPDATES (CO_RESOURCE_VARIABLE | CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS)
const coi_op coi_op_apply_gradients = {
    COI_RECORDED("apply_gradients", "Updates variables by gradients; co_apply_gradients.",
                 replay_apply, UPDATES, UPDATES),
    UPDATE_ATTRS,
};
const coi_op coi_op_minimize = {
    COI_RECORDED("minimize",
                 "Updates the variables of the tape by the gradients of a loss; "
                 "co_minimize.",
                 replay_minimize, UPDATES, UPDATES),
    UPDATE_ATTRS,
    .takes_tape = true,
};

/* While a function is captured the loss is known and the examples are not. */
static co_value *
replay_warning(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)in;
    (void)num_in;
    warn_of_mean(ctx, ((const update_attrs *)attrs)->optimizer);
    return co_none(ctx);
}

const coi_op coi_op_warn_of_mean = {
    COI_RECORDED("warn_of_mean",
                 "Writes a line of the log if a mean is over unequal numbers of examples; "
                 "co_minimize.",
                 replay_warning, 0, 0),
    UPDATE_ATTRS,
    .is_plan_call = true,
};

static void
check_mean(co_context *ctx, co_optimizer *optimizer, const co_value *loss)
{
    if (!is_mean_of_rows(ctx, loss))
        return;
    if (coi_is_capturing(ctx))
        coi_record_call(ctx, &coi_op_warn_of_mean, &(update_attrs){ optimizer, false }, NULL, 0,
                        coi_none(ctx));
    else
        warn_of_mean(ctx, optimizer);
}

/* Whether a gradient is known to fit its variable, which replicas update. */
static bool
is_known_to_fit(const coi_variable *variable, const co_value *gradient)
{
    bool same = gradient->kind == CO_KIND_SYMBOLIC && gradient->dtype == variable->dtype &&
                gradient->ndim == variable->shape.ndim;

    for (int i = 0; same && i < gradient->ndim; ++i)
        same = gradient->u.tensor.dims[i] == variable->shape.dims[i];
    return same || gradient->kind == CO_KIND_NONE;
}

/* Whether the sums of an update can be calls of their own, which a plan starts while the backward
 * pass goes on: nothing that is checked before them can go wrong. */
static bool
is_split(co_context *ctx, const coi_pairs *p)
{
    const coi_common *common = &p->optimizer->common;
    bool              ok = p->sum && common->accumulation_steps == 1 && !common->clip_before_sum &&
              coi_in_replica(ctx) && ctx->mode.num_replicas > 1 && ctx->mode.update_id < 0 &&
              !ctx->recording && !coi_in_graph(ctx);

    for (size_t i = 0; ok && i < p->n; ++i)
        ok = is_known_to_fit(p->variables[i]->u.variable, p->gradients[i]);
    if (!ok)
        return false;
    ok = check_pairs(ctx, p);
    coi_error_reset(&ctx->error); /* the call will tell */
    return ok;
}

static co_code
record_whole(co_context *ctx, const update_attrs *attrs, co_value *gradients, co_value *variables)
{
    coi_record_call(ctx, &coi_op_apply_gradients, attrs, (co_value *[]){ gradients, variables }, 2,
                    coi_none(ctx));
    return ctx->error.code;
}

static co_code
record_apply(co_context *ctx, co_optimizer *optimizer, co_value *gradients, co_value *variables,
             bool skip_aggregation)
{
    size_t      n = variables->u.items.n, nbytes = (n + 1) * sizeof(co_value *);
    co_value  **sums = coi_small_alloc(&ctx->heap, nbytes);
    coi_pairs   p = { optimizer, sums, variables->u.items.items, n, !skip_aggregation };
    const char *call = ctx->call;

    if (sums == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu gradients", n);
    atomic_store(&optimizer->is_used, true);
    if (n > 0)
        memcpy(sums, gradients->u.items.items, n * sizeof(*sums));
    if (is_split(ctx, &p) && sum_in_step(ctx, &p)) {
        gradients = co_list(ctx, sums, n);
        skip_aggregation = true;
    }
    coi_small_free(&ctx->heap, sums, nbytes);
    ctx->call = call;
    return ctx->error.code == CO_OK
               ? record_whole(ctx, &(update_attrs){ optimizer, skip_aggregation }, gradients,
                              variables)
               : ctx->error.code;
}

static co_code
fail_untrained(co_context *ctx)
{
    return coi_fail(ctx, CO_VALUE_ERROR,
                    "the tape has seen no trainable variable; compute the loss from one between "
                    "co_tape_begin and co_minimize");
}

/* The trainable variables of the tape as a list of the block, NULL with an error. */
static co_value *
trained_variables(co_context *ctx)
{
    size_t     n = coi_tape_trainable(ctx, NULL, 0), nbytes = n * sizeof(co_value *);
    co_value **variables = n > 0 ? coi_small_alloc(&ctx->heap, nbytes) : NULL, *list;

    if (n == 0)
        fail_untrained(ctx);
    else if (variables == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradients of the tape");
    if (variables == NULL)
        return NULL;
    coi_tape_trainable(ctx, variables, n);
    list = co_list(ctx, variables, n);
    coi_small_free(&ctx->heap, variables, nbytes);
    return list;
}

/* A gradient and an update: the kernels of the former are part of a plan. Which variables there are
 * is known now, unless a condition or loop decides it. */
static co_code
capture_minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    static const co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    const char                      *call = ctx->call;
    co_value                        *variables, *gradients;

    if (coi_tape_has_calls(ctx) || !coi_is_type(loss) || coi_in_graph(ctx)) {
        coi_capture_tape(ctx, coi_tape_place(ctx));
        coi_record_call(ctx, &coi_op_minimize, &(update_attrs){ optimizer, false }, &loss, 1,
                        coi_none(ctx));
        coi_tape_spend(ctx);
        return ctx->error.code;
    }
    variables = trained_variables(ctx);
    if (variables == NULL) {
        coi_tape_spend(ctx);
        return ctx->error.code;
    }
    if (optimizer->common.loss_scale > 0 && (loss = coi_scale_loss(ctx, optimizer, loss)) == NULL) {
        coi_tape_spend(ctx);
        return ctx->error.code;
    }
    ctx->call = call;
    gradients = coi_capture_gradient(ctx, loss, variables, &options);
    ctx->call = call;
    return gradients != NULL ? record_apply(ctx, optimizer, gradients, variables, false)
                             : ctx->error.code;
}

/* --- co_apply_gradients --- */

static bool
check_lists(co_context *ctx, co_optimizer *optimizer, co_value *gradients, co_value *variables)
{
    if (!coi_check_optimizer(ctx, optimizer) || !coi_check_value(ctx, gradients, 3, "gradients") ||
        !coi_check_value(ctx, variables, 4, "variables"))
        return false;
    if (!coi_is_structure(gradients) || !coi_is_structure(variables)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "gradients is %s and variables is %s; both must be lists, of one variable too: "
                 "co_list(ctx, &w, 1)",
                 coi_a_kind(gradients->kind), coi_a_kind(variables->kind));
        return false;
    }
    if (gradients->u.items.n != variables->u.items.n) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "gradients is %s of %zu and variables %s of %zu; they must be two lists of "
                 "one length",
                 coi_a_kind(gradients->kind), gradients->u.items.n, coi_a_kind(variables->kind),
                 variables->u.items.n);
        return false;
    }
    for (size_t i = 0; i < variables->u.items.n; ++i)
        if (variables->u.items.items[i]->kind != CO_KIND_VARIABLE) {
            coi_fail(ctx, CO_TYPE_ERROR,
                     "item %zu of variables is %s; it must be one that co_variable made", i,
                     coi_a_kind(variables->u.items.items[i]->kind));
            return false;
        }
    return true;
}

static co_code
apply_lists(co_context *ctx, co_optimizer *optimizer, co_value *gradients, co_value *variables,
            bool sum)
{
    size_t     n = variables->u.items.n, nbytes = (n + 1) * sizeof(co_value *);
    co_value **copy = coi_small_alloc(&ctx->heap, nbytes);

    if (copy == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu gradients", n);
    if (n > 0)
        memcpy(copy, gradients->u.items.items, n * sizeof(*copy));
    apply(ctx, &(coi_pairs){ optimizer, copy, variables->u.items.items, n, sum });
    coi_small_free(&ctx->heap, copy, nbytes);
    return ctx->error.code;
}

co_code
co_apply_gradients_with(co_context *ctx, co_optimizer *optimizer, co_value *gradients,
                        co_value *variables, const co_apply_gradients_options *options)
{
    co_apply_gradients_options all = CO_APPLY_GRADIENTS_OPTIONS_INIT;

    COI_ENTER_CODE(ctx, "apply_gradients");
    if (!coi_take_options(ctx, &all, sizeof(all), options, 5) ||
        !check_lists(ctx, optimizer, gradients, variables))
        return ctx->error.code;
    if (coi_is_capturing(ctx))
        return record_apply(ctx, optimizer, gradients, variables, all.skip_aggregation);
    return apply_lists(ctx, optimizer, gradients, variables, !all.skip_aggregation);
}

co_code
co_apply_gradients(co_context *ctx, co_optimizer *optimizer, co_value *gradients,
                   co_value *variables)
{
    return co_apply_gradients_with(ctx, optimizer, gradients, variables, NULL);
}

/* --- co_minimize --- */

/* Gradients of a loss for variables, which become the first n of twice as many pointers. */
static void
minimize_for(co_context *ctx, co_optimizer *optimizer, co_value *loss, co_value **variables,
             size_t n)
{
    co_value  **gradients = variables + n;
    const char *call = ctx->call;

    coi_tape_trainable(ctx, variables, n);
    memcpy(gradients, variables, n * sizeof(*gradients));
    for (size_t i = 0; i < n; ++i)
        coi_ref(variables[i]); /* the tape that holds them ends */
    co_block_begin(ctx);
    if (optimizer->common.loss_scale > 0)
        loss = coi_scale_loss(ctx, optimizer, loss);
    ctx->call = call;
    if (loss == NULL)
        coi_tape_spend(ctx);
    else if (coi_gradients(ctx, &loss, 1, NULL, gradients, n, false) == CO_OK) {
        ctx->call = call;
        apply(ctx, &(coi_pairs){ optimizer, gradients, variables, n, true });
    }
    co_block_end(ctx);
    for (size_t i = 0; i < n; ++i)
        coi_unref(&ctx->heap, variables[i]);
}

static co_code
minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    size_t     n = coi_tape_trainable(ctx, NULL, 0), nbytes = 2 * n * sizeof(co_value *);
    co_value **variables;

    if (n == 0)
        fail_untrained(ctx);
    else if ((variables = coi_small_alloc(&ctx->heap, nbytes)) == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradients of the tape");
    else {
        minimize_for(ctx, optimizer, loss, variables, n);
        coi_small_free(&ctx->heap, variables, nbytes);
        return ctx->error.code;
    }
    coi_tape_spend(ctx);
    return ctx->error.code;
}

static bool
may_minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    if (ctx->error.code != CO_OK || !coi_check_optimizer(ctx, optimizer) ||
        !coi_check_value(ctx, loss, 3, "loss"))
        return false;
    if (ctx->mode.cross)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "minimize is called in cross-replica context; call it in the step");
    else if (!ctx->recording || coi_tape_place(ctx) == COI_NO_TAPE)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "there is no open tape; call co_tape_begin before computing the loss");
    return ctx->error.code == CO_OK;
}

co_code
co_minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    COI_ENTER_ALWAYS(ctx, "minimize", CO_INVALID_ARGUMENT);
    if (may_minimize(ctx, optimizer, loss))
        check_mean(ctx, optimizer, loss);
    if (ctx->error.code == CO_OK)
        return coi_is_capturing(ctx) ? capture_minimize(ctx, optimizer, loss)
                                     : minimize(ctx, optimizer, loss);
    coi_tape_spend(ctx); /* the call ends its tape even on failure */
    return ctx->error.code;
}
