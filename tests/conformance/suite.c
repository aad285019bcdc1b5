/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of the conformance suite: the row in use, what holds after every body, and what bodies
 * share. */
#include "suite.h"

#ifdef SUITE_ACCOUNT
#include "account.h"
#endif
#ifdef SUITE_CAPTURED
#include <cohort/function.h>
#endif

static const suite_row *chosen;

bool
test_take_row(const char *name, const char **settings)
{
    for (size_t i = 0; i < suite_num_rows; ++i)
        if (strcmp(suite_rows[i].row, name) == 0) {
            chosen = &suite_rows[i];
            *settings = chosen->settings;
            return true;
        }
    fprintf(stderr, "there is no row '%s'; there are:\n", name);
    for (size_t i = 0; i < suite_num_rows; ++i)
        fprintf(stderr, "    %s\n", suite_rows[i].row);
    return false;
}

STEP(own_id)
{
    return co_scalar_float(ctx, (float)co_replica_id(ctx));
}

/* Whatever happened: default mode, and a strategy that works. */
static void
expect_usable(co_context *ctx, co_strategy *s)
{
    co_value *sum;

    CO_EXPECT_OK(ctx);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    CO_EXPECT_PTR(co_get_replica_context(ctx), ctx);
    sum = co_reduce(ctx, s, CO_REDUCE_SUM, co_run(ctx, s, own_id, co_no_args(ctx), NULL), NULL, 0);
    CO_EXPECT_CLOSE(suite_number(ctx, sum), SUM_OF_IDS(chosen->n), 0);
    CO_EXPECT_OK(ctx);
}

static void
run_body(co_context *ctx, suite_body body, co_strategy *s)
{
    CO_REQUIRE(co_num_workers(ctx, s) == chosen->workers);
    body(ctx, s, chosen, co_worker_id(ctx, s) * chosen->local);
    expect_usable(ctx, s);
}

static co_strategy *
make_strategy(co_context *ctx)
{
    co_strategy *s;

    CO_REQUIRE(chosen != NULL); /* --row names one */
    s = chosen->make(ctx, chosen);
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(s != NULL);
    return s;
}

#ifdef SUITE_ACCOUNT
/* Whatever happens is also compared with what an observer was told. */
void
suite_run(co_context *ctx, const char *name, suite_body body)
{
    static account books;
    co_strategy   *s;

    (void)name;
    CO_REQUIRE(account_begin(&books, ctx));
    s = make_strategy(ctx);
    account_watch(&books, s);
    run_body(ctx, body, s);
    CO_EXPECT_TRUE(chosen->workers == 1 || books.messages > 0);
    CO_EXPECT_INT(account_end(&books, ctx, s), 0);
}
#else
#ifdef SUITE_CAPTURED
/* Why a step of this case was not captured. */
static char not_captured_because[200];

/* Bodies that say nothing about captured steps, and why. */
static const struct {
    const char *name, *why;
} not_captured[] = {
    { "merge_call_runs_once_with_merged_arguments", "its steps count in memory of the test" },
    { "replicas_that_take_turns_stop_at_merge_points", "its steps count in memory of the test" },
    { "replicas_that_do_not_merge_are_found",
      "its step gives a merge function a variable of its own stack, which a captured step outlives" },
    { "the_merge_function_of_the_first_replica_counts",
      "merge functions that give different host numbers cannot be captured" },
    { "a_merge_function_may_run_steps",
      "a step inside a merge function is inlined there, and may not merge again" },
    { "gradients_pass_through_all_gather",
      "its step asks for a dimension that is not known while it is captured" },
    { "all_reduce_leaves_its_input_alone", "its steps test elements" },
    { "failing_after_a_collective_breaks_nothing", "its steps test elements" },
    { "every_device_name_has_job_and_task", "its steps ask where tensors are" },
    { "a_step_gets_its_components_of_bundles",
      "its steps ask for kinds, and tensors are symbolic" },
    { "mirrored_arguments_are_split_too", "its steps ask for kinds, and tensors are symbolic" },
    { "a_variable_made_in_a_step_is_one_for_all", "a captured step makes its variables once" },
    { "variables_of_differing_names_are_refused_in_a_step",
      "a captured step makes its variables once" },
    { "names_decide_which_variables_of_a_step_are_one",
      "a captured step makes its variables once" },
    { "what_the_first_has_not_made_is_refused", "a captured step makes its variables once" },
};

static void
skip_what_says_nothing(const char *name)
{
    for (size_t i = 0; i < LENGTH(not_captured); ++i)
        if (strcmp(not_captured[i].name, name) == 0)
            CO_SKIP("%s", not_captured[i].why);
}
#else
static const char not_captured_because[] = "";

static void
skip_what_says_nothing(const char *name)
{
    (void)name;
}
#endif

void
suite_run(co_context *ctx, const char *name, suite_body body)
{
    skip_what_says_nothing(name);
    run_body(ctx, body, make_strategy(ctx));
    if (not_captured_because[0] != '\0') /* all of it held, but not all of it was captured */
        CO_COUNT_AS_SKIPPED("a step of it ran without capturing: %s", not_captured_because);
}
#endif

#ifdef SUITE_CAPTURED
/* The function reads elements, or does something that captured functions refuse. */
static bool
has_no_meaning(const co_context *ctx)
{
    const co_error_info *e = co_error(ctx);

    return (e->code == CO_TYPE_ERROR &&
            strstr(e->message, "while the function is captured") != NULL) ||
           (e->code == CO_UNIMPLEMENTED && strstr(e->message, "cannot be captured") != NULL);
}

co_value *
suite_captured_run(co_context *ctx, co_strategy *s, co_fn fn, co_value *args, void *user,
                   const co_run_options *options)
{
    co_function *f = fn != NULL ? co_function_of(ctx, fn, user, NULL) : NULL;
    co_value    *result;

    if (f == NULL)
        return (co_run_with)(ctx, s, fn, args, user, options);
    result = (co_run_with)(ctx, s, co_captured, args, f, options);
    if (result != NULL || !has_no_meaning(ctx))
        return result;
    snprintf(not_captured_because, sizeof(not_captured_because), "%.199s", co_error(ctx)->message);
    co_clear(ctx);
    return (co_run_with)(ctx, s, fn, args, user, options);
}
#endif

bool
suite_outcome(const char *file, int line, co_context *ctx, co_code code)
{
    return code == CO_OK ? test_ok(file, line, ctx) : test_error(file, line, ctx, code, NULL);
}

typedef struct linear {
    double a, b;
} linear;

VALUE_OF(linear_value)
{
    const linear *f = user;

    return co_scalar_float(ctx, (float)(f->a + f->b * replica->replica_id_in_sync_group));
}

co_value *
suite_floats(co_context *ctx, co_strategy *s, double a, double b)
{
    linear f = { a, b };

    return co_distribute_values_from_function(ctx, s, linear_value, &f);
}

co_value *
suite_values(co_context *ctx, co_strategy *s, co_value_fn fn)
{
    return co_distribute_values_from_function(ctx, s, fn, NULL);
}

VALUE_OF(range_value)
{
    return co_cast(ctx,
                   co_range(ctx, co_int(ctx, 0), co_int(ctx, replica->replica_id_in_sync_group + 1),
                            co_int(ctx, 1), CO_INT32),
                   CO_FLOAT32);
}

co_value *
suite_ranges(co_context *ctx, co_strategy *s)
{
    return suite_values(ctx, s, range_value);
}

double
suite_number(co_context *ctx, co_value *value)
{
    return co_ok(ctx) && value != NULL ? co_item_float(ctx, value) : (double)NAN;
}

co_value *
suite_local(co_context *ctx, co_strategy *s, co_value *value, int i)
{
    return co_at(ctx, co_local_results(ctx, s, value), (size_t)i);
}

void
suite_expect_local(const char *file, int line, co_context *ctx, co_strategy *s, co_value *value,
                   double a, double b)
{
    int       first = co_worker_id(ctx, s) * chosen->local;
    co_value *all = co_local_results(ctx, s, value);

    test_ok(file, line, ctx);
    test_int(file, line, "the number of local results", (intmax_t)co_num_items(ctx, all),
             chosen->local);
    for (int i = 0; i < chosen->local && co_ok(ctx); ++i)
        test_close(file, line, "a local result", suite_number(ctx, co_at(ctx, all, (size_t)i)),
                   a + b * (first + i), 1e-6);
    test_ok(file, line, ctx);
}

void
suite_slice(const suite_row *row, int m, int id, int *begin, int *end)
{
    int     q = (m + row->n - 1) / row->n;
    int64_t total = 0, before = 0;

    *begin = id * q < m ? id * q : m;
    *end = *begin + q < m ? *begin + q : m;
    for (int i = 0; i < row->n; ++i) {
        total += row->weights[i];
        before += i < id ? row->weights[i] : 0;
    }
    if (total == 0)
        return;
    *begin = (int)((m * before + total - 1) / total);
    *end = (int)((m * (before + row->weights[id]) + total - 1) / total);
}

co_value *
suite_step(co_context *ctx, co_strategy *s, co_fn fn, void *user)
{
    return co_run(ctx, s, fn, co_no_args(ctx), user);
}

co_strategy *
suite_other(co_context *ctx)
{
    return co_one_device_strategy(ctx, "/cpu:0");
}

co_value *
suite_variable(co_context *ctx, co_strategy *s, double initial, co_synchronization sync,
               co_aggregation aggregation)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = sync;
    options.aggregation = aggregation;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_scalar_float(ctx, (float)initial), &options);
    return v;
}

co_value *
suite_vector(co_context *ctx, int64_t n, const float *data)
{
    return co_tensor(ctx, CO_FLOAT32, &n, 1, data);
}

void
suite_expect_elements(const char *file, int line, co_context *ctx, co_value *value, int64_t n,
                      const double *expected)
{
    double actual[64] = { 0 };

    test_ok(file, line, ctx);
    test_int(file, line, "the number of elements", co_value_num_elements(ctx, value), n);
    if (n > (int64_t)LENGTH(actual) || co_value_num_elements(ctx, value) != n)
        return;
    co_value_copy_data(ctx, value, CO_FLOAT64, actual, (int64_t)LENGTH(actual));
    for (int64_t i = 0; i < n; ++i)
        test_close(file, line, "an element", actual[i], expected[i], 1e-6);
    test_ok(file, line, ctx);
}
