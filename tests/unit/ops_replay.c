/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs over types: a row of every operator is called with specs, of which dimensions or ranks
 * are unknown; composite operators are taken apart where their parts are known, or stay whole. Then
 * the gradient of what that started is taken over types as well, entry by entry. The program that
 * comes of it runs with the tensors of the row, and with others that fit the specs, and has to have
 * the bits of an eager call and of its eager gradient.
 */
#include "ops_rows.h"
#include "type_program.h"

#include "ops/engine/gradient.h"

enum { MOST_VALUES = 4000 };

static struct {
    int programs, ranks, replays, others, whole, apart, deferred, uncounted;
} counts;

/* The gradient of each spec on the way back, and whether a source is behind it. */
typedef struct tracked {
    const co_value *spec;
    co_value       *grad;
} tracked;
static tracked  values[MOST_VALUES];
static int      num_values;
static program  recorded;
static ops_rows rows;

static tracked *
find(const co_value *spec)
{
    for (int i = num_values; i > 0; --i)
        if (values[i - 1].spec == spec)
            return &values[i - 1];
    return NULL;
}

static void
track(const co_value *spec)
{
    CO_REQUIRE(num_values < MOST_VALUES);
    values[num_values++] = (tracked){ spec, NULL };
}

static bool
is_floating(const co_value *x)
{
    return coi_dtypes[x->dtype].floating;
}

/* The results of an entry, in an array of its own or that of the tuple. */
static co_value *const *
results_of(const program_step *step, int *n)
{
    *n = step->result->kind == CO_KIND_TUPLE ? (int)step->result->u.items.n : 1;
    return step->result->kind == CO_KIND_TUPLE ? step->result->u.items.items : &step->result;
}

/* As the tape does it: what is computed from something tracked is, unless it has no gradient. */
static void
track_step(const program_step *step)
{
    int              n;
    co_value *const *out = results_of(step, &n);
    bool             leads = false, floating = false;

    for (int i = 0; i < step->num_in; ++i)
        leads = leads || find(step->in[i]) != NULL;
    for (int i = 0; i < n; ++i)
        floating = floating || is_floating(out[i]);
    for (int i = 0; leads && floating && !step->op->not_differentiable && i < n; ++i)
        track(out[i]);
}

static bool
step_back(co_context *ctx, const program_step *step)
{
    enum { MOST = 64 };
    int              n;
    co_value *const *out = results_of(step, &n);
    co_value        *upstream[MOST] = { NULL }, *grads[MOST] = { NULL };
    bool             needed[MOST], any = false;
    coi_grad         grad = { .ctx = ctx,
                              .op = step->op,
                              .attrs = step->attrs,
                              .in = step->in,
                              .num_in = step->num_in,
                              .out = out,
                              .num_out = n,
                              .upstream = upstream,
                              .needed = needed,
                              .grads = grads };

    CO_REQUIRE(n <= MOST && step->num_in <= MOST);
    for (int i = 0; i < n; ++i) {
        tracked *value = find(out[i]);

        upstream[i] = value != NULL ? coi_densify(ctx, value->grad) : NULL;
        any = any || upstream[i] != NULL;
    }
    if (!any || (step->op->grad == NULL && step->op->composite == NULL))
        return co_ok(ctx);
    for (int i = 0; i < step->num_in; ++i)
        needed[i] = find(step->in[i]) != NULL;
    coi_infer_gradient(&grad);
    for (int i = 0; co_ok(ctx) && i < step->num_in; ++i)
        if (needed[i] && grads[i] != NULL) {
            tracked *value = find(step->in[i]);

            value->grad = value->grad != NULL ? coi_add_gradients(ctx, value->grad, grads[i])
                                              : grads[i];
        }
    return co_ok(ctx);
}

/* What is called: the operator of a row, or several operators. */
typedef co_value *(*call_fn)(co_context *ctx, const ops_row *row, const ops_row_call *call);
static call_fn call_row = ops_row_results;

/* What an eager call of a row gives, and its gradients: none where nothing flows. */
typedef struct answer {
    co_value *results, *grads;
    size_t    num_real, num_sources;
} answer;

/* With an outer tape the gradient itself is recorded, for which some have other steps. */
static bool
call_eagerly(co_context *ctx, const ops_row *row, const ops_row_call *call, bool has_outer_tape,
             answer *out)
{
    co_value *real[ROW_MOST_INPUTS], *outs[64];
    size_t    n = 0;

    if (has_outer_tape)
        co_tape_begin(ctx);

    for (size_t i = 0; i < call->num_in; ++i)
        if (ops_is_real(call->in[i]))
            real[n++] = call->in[i];
    co_tape_begin(ctx);
    co_watch(ctx, co_tuple(ctx, real, n));
    co_set_seed(ctx, 5);
    out->results = call_row(ctx, row, call);
    out->num_sources = n;
    out->num_real = co_ok(ctx) ? ops_row_real(ctx, row, out->results, outs, 64) : 0;
    if (n > 0 && out->num_real > 0)
        out->grads = co_gradient(ctx, co_tuple(ctx, outs, out->num_real), co_tuple(ctx, real, n));
    else
        co_tape_end(ctx);
    if (has_outer_tape)
        co_tape_end(ctx);
    return co_ok(ctx);
}

/* The same over types: the program is in `recorded`. */
typedef struct symbolic {
    co_value *specs[ROW_MOST_INPUTS];
    co_value *results;
} symbolic;

static bool
record_forward(co_context *ctx, const ops_row *row, const ops_row_call *call,
               const type_unknowns *u, symbolic *out)
{
    ops_row_call types = { .num_in = call->num_in };

    type_specs(ctx, call->in, (int)call->num_in, u, out->specs);
    memcpy(types.in, out->specs, sizeof(types.in));
    co_tape_begin(ctx); /* operators may have other results to keep then */
    program_start(ctx, &recorded);
    out->results = call_row(ctx, row, &types);
    program_pause(&recorded);
    co_tape_end(ctx);
    return co_ok(ctx);
}

/* The one refusal that tensors do not meet: nothing can be done with results of unknown number. */
static bool
is_uncounted(co_context *ctx)
{
    return !co_ok(ctx) && strstr(co_error(ctx)->message, "the number of results depends") != NULL;
}

static bool
record_backward(co_context *ctx, const answer *eager, const ops_row_call *call,
                const type_unknowns *u, const symbolic *s)
{
    int    num_forward = recorded.num_steps;
    size_t seeded = 0;
    bool   ok = true;

    num_values = 0;
    for (size_t i = 0; i < call->num_in; ++i)
        if (ops_is_real(call->in[i]))
            track(s->specs[i]);
    for (int i = 0; i < num_forward; ++i)
        track_step(&recorded.steps[i]);
    if (u->recording)
        co_tape_begin(ctx);
    program_start(ctx, &recorded);
    for (size_t i = 0; i < co_num_items(ctx, s->results) && seeded < eager->num_real; ++i) {
        co_value *result = co_at(ctx, s->results, i);
        tracked  *value = find(result);

        if (!is_floating(result))
            continue;
        ++seeded;
        if (value != NULL)
            value->grad = co_ones_like(ctx, result);
    }
    for (int i = num_forward; ok && i > 0; --i)
        ok = step_back(ctx, &recorded.steps[i - 1]);
    program_pause(&recorded);
    if (u->recording)
        co_tape_end(ctx);
    return ok;
}

static void
complain(const ops_row *row, const type_unknowns *u, const char *what)
{
    test_fail(TEST_AT, "%s %s %s, unknown dimensions %llx, ranks %x%s: %s", row->name, row->inputs,
              row->attrs != NULL ? row->attrs : "", (unsigned long long)u->dims, u->ranks,
              u->recording ? ", recorded" : "", what);
}

/* Whether the program has the answer of the eager call on these tensors. */
static void
replay(co_context *ctx, const ops_row *row, const ops_row_call *call, const type_unknowns *u,
       const symbolic *s, const answer *eager)
{
    size_t source = 0;

    recorded.num_bindings = 0;
    for (size_t i = 0; i < call->num_in; ++i)
        program_bind(&recorded, s->specs[i], call->in[i]);
    co_set_seed(ctx, 5);
    if (!program_run(&recorded)) {
        complain(row, u, co_ok(ctx) ? "the program does not run" : co_error(ctx)->message);
        co_clear(ctx);
        return;
    }
    for (size_t i = 0; i < co_num_items(ctx, s->results); ++i)
        if (!program_agrees(&recorded, co_at(ctx, s->results, i), co_at(ctx, eager->results, i)))
            complain(row, u, "a result has other bits than the eager one");
    for (size_t i = 0; i < call->num_in; ++i) {
        co_value *grad, *wanted;

        if (eager->num_real == 0 || !ops_is_real(call->in[i]))
            continue;
        grad = find(s->specs[i])->grad;
        wanted = co_at(ctx, eager->grads, source++);
        if (!program_agrees(&recorded, grad, co_value_kind(wanted) == CO_KIND_NONE ? NULL : wanted))
            complain(row, u, "a gradient has other bits than the eager one");
    }
    CO_EXPECT_OK(ctx);
    ++counts.replays;
}

/* Tensors that fit the same specs: unknown dimensions are 1, 0 or one more. */
static void
other_inputs(co_context *ctx, const ops_row_call *call, const type_unknowns *u, int which,
             ops_row_call *out)
{
    int k = 0;

    out->num_in = call->num_in;
    for (size_t i = 0; i < call->num_in; ++i) {
        const co_value *x = call->in[i];
        int64_t         dims[CO_MAX_DIMS];
        ops_random      random = { 70 + i };

        for (int d = 0; d < x->ndim; ++d, ++k) {
            dims[d] = x->u.tensor.dims[d];
            if ((u->dims >> k & 1) != 0)
                dims[d] = which == 0 ? 1 : which == 1 ? dims[d] + 1 : 0;
        }
        out->in[i] = is_floating(x)
                         ? ops_tensor(ctx, &random, (co_dtype)x->dtype, dims, x->ndim, OPS_ORDINARY)
                         : co_zeros(ctx, (co_dtype)x->dtype, dims, x->ndim);
    }
}

static void
replay_others(co_context *ctx, const ops_row *row, const ops_row_call *call, const type_unknowns *u,
              const symbolic *s)
{
    for (int which = 0; u->dims != 0 && which < 3; ++which) {
        ops_row_call other;
        answer       eager;

        other_inputs(ctx, call, u, which, &other);
        if (call_eagerly(ctx, row, &other, u->recording, &eager)) {
            replay(ctx, row, &other, u, s, &eager);
            ++counts.others;
        }
        co_clear(ctx);
    }
}

static void
count_entries(const ops_row *row)
{
    const coi_op *op = coi_op_find(row->name);
    bool          is_whole = recorded.num_steps == 1 && recorded.steps[0].op == op;

    if (op == NULL || op->composite == NULL)
        return;
    counts.whole += is_whole;
    counts.apart += !is_whole;
}

static void
check(co_context *ctx, const ops_row *row, const ops_row_call *call, const type_unknowns *u,
      const answer *eager)
{
    symbolic s;

    if (record_forward(ctx, row, call, u, &s)) {
        count_entries(row);
        if (record_backward(ctx, eager, call, u, &s)) {
            for (int i = 0; i < recorded.num_steps; ++i)
                counts.deferred += strcmp(recorded.steps[i].op->name, "deferred_gradient") == 0;
            replay(ctx, row, call, u, &s, eager);
            replay_others(ctx, row, call, u, &s);
        }
    } else if (is_uncounted(ctx)) {
        ++counts.uncounted;
        co_clear(ctx);
    }
    if (!co_ok(ctx))
        complain(row, u, co_error(ctx)->message);
    co_clear(ctx);
    program_drop(&recorded);
}

static void
check_with(co_context *ctx, const ops_row *row, const ops_row_call *call, bool recording)
{
    int    n = 0;
    answer eager;

    if (!call_eagerly(ctx, row, call, recording, &eager)) {
        CO_EXPECT_OK(ctx);
        return;
    }
    for (size_t i = 0; i < call->num_in; ++i)
        n += call->in[i]->ndim;
    for (int i = 0; i < type_num_combinations(n); ++i, ++counts.programs)
        CO_BLOCK(ctx)
            check(ctx, row, call, &(type_unknowns){ type_combination(i, n), 0, recording }, &eager);
    for (size_t i = 0; i <= call->num_in; ++i, ++counts.ranks) {
        uint32_t ranks = i < call->num_in ? UINT32_C(1) << i : UINT32_MAX;

        CO_BLOCK(ctx)
            check(ctx, row, call, &(type_unknowns){ 0, ranks, recording }, &eager);
    }
}

static void
check_row(co_context *ctx, const ops_row *row)
{
    ops_row_call call;

    ops_row_inputs(ctx, row, CO_FLOAT32, &call);
    for (int recording = 0; call.num_in > 0 && recording < 2; ++recording)
        CO_BLOCK(ctx)
            check_with(ctx, row, &call, recording != 0);
}

static bool
is_any(const co_op_info *info)
{
    return info->by_name;
}

CO_TEST(programs_over_types_have_the_bits_of_eager_calls_and_gradients, "")
{
    ops_rows_fill(&rows, ops_small, is_any);
    for (size_t i = 0; i < rows.num; ++i)
        CO_BLOCK(ctx)
            check_row(ctx, &rows.at[i]);
    printf("programs over types: %d combinations of dimensions, %d of ranks; %d replays with the "
           "bits of eager calls and gradients, %d of them of other shapes; composite operators %d "
           "times taken apart and %d times whole, %d gradients deferred; %d times the number of "
           "results was unknown\n",
           counts.programs, counts.ranks, counts.replays, counts.others, counts.apart, counts.whole,
           counts.deferred, counts.uncounted);
    CO_EXPECT_MORE(10, counts.uncounted); /* unstack */
    CO_EXPECT_MORE(counts.programs, 2000);
    CO_EXPECT_MORE(counts.others, 2000);
    CO_EXPECT_INT(counts.replays + counts.uncounted,
                  counts.programs + counts.ranks + counts.others);
}

/* --- several operators --- */

/* Rows of a table that was computed: their gradient becomes a tensor on the way. */
static co_value *
rows_of_computed(co_context *ctx, const ops_row *row, const ops_row_call *call)
{
    (void)row;
    return co_args(ctx, co_embedding_lookup(ctx, co_square(ctx, call->in[0]), call->in[1]));
}

/* The rows of one table twice, and the table itself: slices, more slices, and a tensor add up. */
static co_value *
rows_and_table(co_context *ctx, const ops_row *row, const ops_row_call *call)
{
    co_value *x = call->in[0], *picked = co_gather(ctx, x, call->in[1], 0, 0);
    co_value *again = co_square(ctx, co_gather(ctx, x, call->in[1], 0, 0));

    (void)row;
    return co_args(ctx, co_reduce_sum(ctx, co_add(ctx, picked, again), CO_ALL_AXES, false),
                   co_reduce_mean(ctx, x, CO_AXES(-1), true));
}

/* Layers of a network, of which the first dimension is often unknown. */
static co_value *
network(co_context *ctx, const ops_row *row, const ops_row_call *call)
{
    co_value *x = call->in[0], *w = call->in[1], *scale = call->in[2], *labels = call->in[3];
    co_value *offset = co_zeros_like(ctx, scale), *hidden, *stats;

    (void)row;
    hidden = co_relu(ctx, co_matmul(ctx, x, w));
    stats = co_fused_batch_norm_train(ctx, hidden, scale, offset, 1e-3);
    hidden = co_dropout(ctx, co_at(ctx, stats, 0), 0.25);
    hidden = co_layer_norm(ctx, hidden, scale, offset, NULL);
    hidden = co_einsum(ctx, "bi,bj->bij", co_args(ctx, hidden, hidden));
    hidden = co_reduce_logsumexp(ctx, hidden, CO_AXES(1), false);
    return co_args(ctx, co_reduce_mean(ctx, co_softmax_cross_entropy(ctx, labels, hidden, -1),
                                       CO_ALL_AXES, false));
}

CO_TEST(programs_of_several_operators_have_the_bits_of_eager_ones, "")
{
    static const struct {
        call_fn fn;
        ops_row row;
    } cases[] = {
        { rows_of_computed, { .name = "rows of a computed table", .inputs = "r[5,3] i5[4]" } },
        { rows_and_table, { .name = "rows and a table", .inputs = "r[5,3] i5[2,2]" } },
        { network, { .name = "network", .inputs = "r[6,3] r[3,4] p[4] s[6,4]" } },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        call_row = cases[i].fn;
        CO_BLOCK(ctx)
            check_row(ctx, &cases[i].row);
    }
    printf("programs of several operators: %d combinations of dimensions, %d of ranks; %d replays, "
           "%d of other shapes\n",
           counts.programs, counts.ranks, counts.replays, counts.others);
    CO_EXPECT_MORE(counts.others, 10);
    CO_EXPECT_INT(counts.replays, counts.programs + counts.ranks + counts.others);
}
