/* SPDX-License-Identifier: Apache-2.0 */
/* numpy_dataset: datasets of arrays, as they are and batched and distributed. In deferred-graph
 * mode a session takes their elements. */
#include "families.h"

/* Of the case that is run; NULL: eager. */
static co_session *session;

static co_dataset *
make_dataset(co_context *ctx, co_strategy *strategy, co_value *arrays)
{
    return session != NULL ? co_v1_make_numpy_dataset(ctx, strategy, arrays, session)
                           : co_experimental_make_numpy_dataset(ctx, strategy, arrays);
}

static co_value *
read_arrays(golden_case *c)
{
    return golden_read_value(c, c->ctx, json_object_get(c->inputs, "numpy_input"));
}

/* Each entry of `distributed` names a batch; its steps are what distributing it gives. */
static void
put_distributed(golden_case *c, co_strategy *strategy, co_dataset *dataset)
{
    json_t *list = json_array(), *entry;
    size_t  i;

    golden_put(c, "distributed", list);
    json_array_foreach(json_object_get(c->outputs, "distributed"), i, entry)
    {
        int64_t     size = golden_int(c, entry, "batch", 0);
        bool        drop = json_is_true(json_object_get(entry, "drop_remainder"));
        co_dataset *batched = co_dataset_batch(c->ctx, dataset, size, drop);

        batched = co_distribute_dataset(c->ctx, strategy, batched, NULL);
        json_array_append_new(list, json_pack("{s:I,s:b,s:o}", "batch", (json_int_t)size,
                                              "drop_remainder", drop, "steps",
                                              golden_session_elements(c->ctx, session, batched)));
    }
}

static void
run_make(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy_named(c, ctx, golden_string(c, c->attrs, "strategy"));
    co_value    *arrays = read_arrays(c);
    co_dataset  *dataset = arrays != NULL ? make_dataset(ctx, strategy, arrays) : NULL;

    if (dataset == NULL)
        return;
    golden_put_value(c, "element_spec", co_element_spec(ctx, dataset));
    golden_put(c, "cardinality", json_integer(co_cardinality(ctx, dataset)));
    golden_put(c, "elements", golden_session_elements(ctx, session, dataset));
    put_distributed(c, strategy, dataset);
}

static void
run_unbatched(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy_named(c, ctx, golden_string(c, c->attrs, "strategy"));
    co_dataset  *dataset = make_dataset(ctx, strategy, read_arrays(c));

    dataset = co_distribute_dataset(ctx, strategy, dataset, NULL);
    golden_put(c, "steps", golden_session_elements(ctx, session, dataset));
}

/* The array is memory of this program, written again after the call. */
static void
run_changed(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy_named(c, ctx, golden_string(c, c->attrs, "strategy"));
    co_value    *array = read_arrays(c);
    float        mine[64];
    int64_t      n = co_value_num_elements(ctx, array);
    co_dataset  *dataset;

    co_value_copy_data(ctx, array, CO_FLOAT32, mine, 64);
    dataset = make_dataset(ctx, strategy,
                           co_tensor_borrow(ctx, CO_FLOAT32, &n, 1, mine, NULL, NULL));
    for (int i = 0; i < 64; ++i)
        mine[i] = 99;
    golden_put(c, "elements", golden_session_elements(ctx, session, dataset));
}

static void
run_in_scope(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy_named(c, ctx, golden_string(c, c->attrs, "strategy"));

    CO_SCOPE(ctx, strategy) {
        co_dataset *dataset = make_dataset(ctx, strategy, read_arrays(c));

        golden_put(c, "elements", golden_session_elements(ctx, session, dataset));
    }
}

static void
run_in_other_scope(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy_named(c, ctx, golden_string(c, c->attrs, "strategy"));
    co_strategy *other = co_one_device_strategy(ctx, "/cpu:1");

    CO_SCOPE(ctx, other)
        make_dataset(ctx, strategy, read_arrays(c));
}

static co_value *
make_in_run(co_context *ctx, co_value *args, void *user)
{
    make_dataset(ctx, user, co_at(ctx, args, 0));
    return NULL;
}

static void
run_in_run(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy_named(c, ctx, golden_string(c, c->attrs, "strategy"));

    co_run(ctx, strategy, make_in_run, co_args(ctx, read_arrays(c)), strategy);
}

static void
run_no_session(golden_case *c)
{
    co_strategy *strategy = golden_strategy_named(c, c->ctx,
                                                  golden_string(c, c->attrs, "strategy"));

    co_v1_make_numpy_dataset(c->ctx, strategy, read_arrays(c), NULL);
}

void
golden_run_numpy_dataset(golden_case *c)
{
    static const golden_action actions[] = {
        { "make_numpy_dataset", run_make },
        { "v2_flavour", run_make },
        { "distribute_unbatched", run_unbatched },
        { "array_changed_after_call", run_changed },
        { "in_scope", run_in_scope },
        { "in_other_scope", run_in_other_scope },
        { "in_run", run_in_run },
        { "no_session", run_no_session },
    };

    session = golden_is_graph(c) ? golden_begin_graph(c) : NULL;
    golden_run_group(c, actions, sizeof(actions) / sizeof(actions[0]));
    if (session != NULL)
        co_graph_end(c->ctx);
}
