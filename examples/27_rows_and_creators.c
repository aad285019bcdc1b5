/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of embeddings on two replicas. Each changes some rows; the changes of both are combined
 * before they are applied. Creators see the variables being made: a creator inside the strategy's
 * scope sees the whole variable, one outside sees its components. A counter is declared first and
 * gets its value later, and only the variables that can be trained are listed.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
watch(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
      void *user)
{
    printf("%s: %s%s\n", (const char *)user, options->name,
           co_creator_owner(ctx, next) != NULL ? ", a component" : "");
    return co_creator_next(ctx, next, initial, options);
}

/* Row 0 is changed by both replicas, row 1 by the first, row 2 by the second. */
static co_value *
learn(co_context *ctx, co_value *args, void *user)
{
    const int32_t which[2] = { 0, 1 + co_replica_id(ctx) };
    const float   change[2][2] = { { 1, 1 }, { 5, 5 } };
    co_value     *rows = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), change);

    (void)args;
    return co_scatter_add(ctx, user,
                          co_slices(ctx, rows, co_tensor(ctx, CO_INT32, CO_SHAPE(2), which), NULL));
}

int
main(void)
{
    co_context         *ctx = co_open("cpus=2");
    co_strategy        *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *table = NULL, *steps = NULL, *model[2], *list;
    char                inside[] = "inside", outside[] = "outside";
    float               rows[3][2] = { { 0 } };

    CO_CREATOR(ctx, watch, outside)
        CO_SCOPE(ctx, strategy)
            CO_CREATOR(ctx, watch, inside) {
                options.name = "table";
                options.aggregation = CO_AGGREGATION_SUM;
                table = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), &options);
                options.name = "steps";
                options.trainable = CO_TRAINABLE_NO;
                steps = co_variable(ctx, co_spec(ctx, CO_INT64, NULL, 0), &options);
            }
    co_run(ctx, strategy, learn, co_no_args(ctx), table);
    co_value_copy_data(ctx, table, CO_FLOAT32, rows, 6);
    for (int i = 0; i < 3; ++i)
        printf("row %d: %g %g\n", i, (double)rows[i][0], (double)rows[i][1]);

    co_variable_read(ctx, steps);
    printf("steps before a value: %s\n", co_code_name(co_error(ctx)->code));
    co_clear(ctx);
    co_assign(ctx, steps, co_int(ctx, 1));
    printf("steps: %lld\n", (long long)co_item_int(ctx, steps));

    model[0] = table;
    model[1] = steps;
    list = co_trainable_variables(ctx, co_tuple(ctx, model, 2));
    for (size_t i = 0; i < co_num_items(ctx, list); ++i)
        printf("to train: %s\n", co_variable_name(ctx, co_at(ctx, list, i)));
    return co_close(ctx);
}
