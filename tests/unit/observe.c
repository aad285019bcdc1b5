/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observers: what they are told of operators, variables, random numbers, iterators and collectives,
 * on which thread and how often, and how they end.
 */
#include <cohort/cohort.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "engine_support.h"

enum { MOST = 4096 };

typedef struct seen {
    co_observe_phase phase;
    uint64_t         id;
    char             op[64], kernel[16];
    int              replica, depth;
    unsigned         reads, writes;
    size_t           num_inputs, num_outputs, num_resources, nbytes;
    const void      *resource;
    int64_t          first_dim, ns;
    co_code          code;
    pthread_t        thread;
} seen;

typedef struct notes {
    pthread_mutex_t lock;
    size_t          n;
    seen            at[MOST];
} notes;

static void
note(const co_observation *o, void *user)
{
    notes *all = user;
    seen   s = { .phase = o->phase,
                 .id = o->id,
                 .replica = o->replica,
                 .depth = o->depth,
                 .reads = o->reads,
                 .writes = o->writes,
                 .num_inputs = o->num_inputs,
                 .num_outputs = o->num_outputs,
                 .num_resources = o->num_resources,
                 .nbytes = o->nbytes,
                 .resource = o->num_resources > 0 ? o->resources[0] : NULL,
                 .first_dim = o->num_outputs > 0 && o->outputs[0].ndim > 0 ? o->outputs[0].dims[0]
                                                                           : -1,
                 .ns = o->ns,
                 .code = o->code,
                 .thread = pthread_self() };

    snprintf(s.op, sizeof(s.op), "%s", o->op);
    snprintf(s.kernel, sizeof(s.kernel), "%s", o->kernel != NULL ? o->kernel : "");
    pthread_mutex_lock(&all->lock);
    if (all->n < MOST)
        all->at[all->n++] = s;
    pthread_mutex_unlock(&all->lock);
}

static notes all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* How often an entry ended well. */
static size_t
count(const char *op)
{
    size_t n = 0;

    for (size_t i = 0; i < all.n; ++i)
        n += strcmp(all.at[i].op, op) == 0 && all.at[i].phase == CO_OBSERVE_END &&
             all.at[i].code == CO_OK;
    return n;
}

static const seen *
first(const char *op, co_observe_phase phase)
{
    for (size_t i = 0; i < all.n; ++i)
        if (strcmp(all.at[i].op, op) == 0 && all.at[i].phase == phase)
            return &all.at[i];
    test_fail(TEST_AT, "%s was not seen", op);
    return &all.at[0];
}

static co_value *
vector(co_context *ctx, size_t n)
{
    float   data[64] = { 1, 2, 3 };
    int64_t dims[1] = { (int64_t)n };

    return co_tensor(ctx, CO_FLOAT32, dims, 1, data);
}

CO_TEST(a_kernel_is_seen_before_and_after, "")
{
    co_observer *observer = co_observe(ctx, note, &all);
    co_value    *x = vector(ctx, 3);
    const seen  *begin, *end;

    all.n = 0;
    co_add(ctx, x, x);
    CO_EXPECT_INT(all.n, 2);
    begin = first("add", CO_OBSERVE_BEGIN);
    end = first("add", CO_OBSERVE_END);
    CO_EXPECT_INT(begin->id, end->id);
    CO_EXPECT_INT(begin->num_inputs, 2);
    CO_EXPECT_INT(begin->num_outputs, 1);
    CO_EXPECT_INT(end->nbytes, 36);
    CO_EXPECT_INT(end->first_dim, 3);
    CO_EXPECT_INT(end->replica, -1);
    CO_EXPECT_INT(end->code, CO_OK);
    CO_EXPECT_INT(end->writes, 0);
    CO_EXPECT_TRUE(strlen(end->kernel) > 0);
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
    co_add(ctx, x, x);
    CO_EXPECT_INT(all.n, 2);
}

CO_TEST(views_are_started_too, "")
{
    co_observer *observer = co_observe(ctx, note, &all);

    all.n = 0;
    co_reshape(ctx, vector(ctx, 4), CO_SHAPE(2, 2));
    CO_EXPECT_INT(count("reshape"), 1);
    CO_EXPECT_STR(first("reshape", CO_OBSERVE_END)->kernel, "view");
    co_unobserve(ctx, observer);
}

CO_TEST(variables_are_read_and_written_by_entries, "")
{
    co_observer *observer = co_observe(ctx, note, &all);
    co_value    *v, *slices;
    int32_t      at = 0;

    all.n = 0;
    v = co_variable(ctx, vector(ctx, 3), NULL);
    CO_EXPECT_INT(count("assign_variable"), 1); /* its first value */
    co_add(ctx, v, v);
    CO_EXPECT_INT(count("read_variable"), 2);
    CO_EXPECT_PTR(first("read_variable", CO_OBSERVE_END)->resource, v);
    CO_EXPECT_INT(first("read_variable", CO_OBSERVE_END)->reads, CO_RESOURCE_VARIABLE);
    co_assign(ctx, v, vector(ctx, 3));
    CO_EXPECT_INT(count("assign_variable"), 2);
    co_assign_add(ctx, v, vector(ctx, 3));
    CO_EXPECT_INT(count("assign_add_variable"), 1);
    CO_EXPECT_INT(first("assign_add_variable", CO_OBSERVE_END)->writes, CO_RESOURCE_VARIABLE);
    co_assign_sub(ctx, v, vector(ctx, 3));
    CO_EXPECT_INT(count("assign_sub_variable"), 1);
    slices = co_slices(ctx, vector(ctx, 1), co_tensor(ctx, CO_INT32, CO_SHAPE(1), &at), NULL);
    co_scatter_max(ctx, v, slices);
    CO_EXPECT_INT(count("scatter_max_variable"), 1);
    CO_EXPECT_TRUE(co_ok(ctx));
    co_assign(ctx, v, vector(ctx, 2)); /* refused before it starts */
    CO_EXPECT_INT(count("assign_variable"), 2);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "cannot be assigned");
    co_unobserve(ctx, observer);
}

CO_TEST(random_numbers_say_that_they_move_a_counter, "")
{
    co_observer *observer = co_observe(ctx, note, &all);
    int64_t      seed[2] = { 1, 2 };

    all.n = 0;
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1);
    co_stateless_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), seed, NULL);
    CO_EXPECT_INT(first("random_uniform", CO_OBSERVE_END)->writes, CO_RESOURCE_RANDOM);
    CO_EXPECT_INT(first("draw_random", CO_OBSERVE_END)->writes, CO_RESOURCE_RANDOM);
    CO_EXPECT_INT(first("random_uniform_drawn", CO_OBSERVE_END)->writes, 0);
    CO_EXPECT_INT(count("draw_random"), 1);
    CO_EXPECT_INT(first("stateless_random_uniform", CO_OBSERVE_END)->writes, 0);
    co_dropout(ctx, vector(ctx, 3), 0.5);
    CO_EXPECT_INT(first("dropout", CO_OBSERVE_END)->reads, CO_RESOURCE_RANDOM);
    CO_EXPECT_INT(first("dropout", CO_OBSERVE_END)->writes, CO_RESOURCE_RANDOM);
    co_unobserve(ctx, observer);
}

CO_TEST(the_next_element_is_an_entry, "")
{
    co_observer *observer = co_observe(ctx, note, &all);
    co_iterator *iterator = co_iterate(ctx, co_dataset_range(ctx, 0, 2, 1));

    all.n = 0;
    while (co_next(ctx, iterator) != NULL)
        ;
    CO_EXPECT_INT(count("iterator_next"), 3); /* the last finds the end */
    CO_EXPECT_PTR(first("iterator_next", CO_OBSERVE_BEGIN)->resource, iterator);
    co_unobserve(ctx, observer);
}

static co_value *
reduce_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_add(ctx, co_at(ctx, args, 0), co_replica_id_tensor(ctx)));
}

CO_TEST(replicas_are_seen_on_their_own_threads, "")
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };
    co_context              *wide = co_open("cpus=2");
    co_observer             *observer = co_observe(wide, note, &all);
    co_strategy             *strategy = co_mirrored_strategy(wide, devices, 2, NULL);
    bool                     by[2] = { false, false };

    all.n = 0;
    co_run(wide, strategy, reduce_step, co_args(wide, co_int(wide, 1)), NULL);
    CO_EXPECT_TRUE(co_ok(wide));
    CO_EXPECT_INT(count("all_reduce"), 2);
    for (size_t i = 0; i < all.n; ++i)
        if (strcmp(all.at[i].op, "add") == 0 && all.at[i].replica >= 0)
            by[all.at[i].replica] = true;
    CO_EXPECT_TRUE(by[0] && by[1]);
    CO_EXPECT_INT(first("all_reduce", CO_OBSERVE_END)->writes,
                  CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS);
    co_unobserve(wide, observer);
    CO_EXPECT_INT(co_close(wide), CO_OK);
}

static co_value *
twice(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return user == NULL ? co_add(ctx, args, args) : (co_fail(ctx, CO_ABORTED, "no merge"), NULL);
}

CO_TEST(a_merge_call_outside_a_run_is_an_entry, "DEF-15")
{
    co_observer *observer = co_observe(ctx, note, &all);
    co_value    *x = vector(ctx, 3);
    const seen  *end;

    all.n = 0;
    co_merge_call(ctx, twice, x, NULL);
    CO_EXPECT_TRUE(co_ok(ctx));
    CO_EXPECT_INT(count("merge_call"), 1);
    end = first("merge_call", CO_OBSERVE_END);
    CO_EXPECT_INT(end->writes, CO_RESOURCE_REPLICAS);
    CO_EXPECT_INT(end->replica, -1);
    CO_EXPECT_INT(end->num_inputs, 1);
    CO_EXPECT_INT(end->first_dim, 3);
    CO_EXPECT_INT(first("add", CO_OBSERVE_END)->depth, end->depth + 1);
    all.n = 0;
    co_merge_call(ctx, twice, x, ctx);
    CO_EXPECT_INT(first("merge_call", CO_OBSERVE_END)->code, CO_ABORTED);
    co_clear(ctx);
    co_unobserve(ctx, observer);
}

CO_TEST(what_fails_ends_with_its_code, "")
{
    co_observer *observer = co_observe(ctx, note, &all);
    co_value    *empty = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), NULL);

    all.n = 0;
    co_neg(ctx, empty);
    CO_EXPECT_INT(first("read_variable", CO_OBSERVE_END)->code, CO_FAILED_PRECONDITION);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "has no value yet");
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
}

/* An observer that makes a value in the context that it observes. */
typedef struct meddler {
    co_context      *ctx;
    co_observe_phase when;
    int              line, made;
    co_code          code;
} meddler;

static void
meddle(const co_observation *o, void *user)
{
    meddler *m = user;

    if (o->phase != m->when)
        return;
    m->line = __LINE__ + 1;
    m->made += co_int(m->ctx, 1) != NULL;
    m->code = co_error(m->ctx)->code;
}

CO_TEST(an_observer_that_uses_the_observed_context_is_an_error, "")
{
    co_value *x = vector(ctx, 3);

    for (int end = 0; end < 2; ++end) {
        meddler      m = { .ctx = ctx, .when = end ? CO_OBSERVE_END : CO_OBSERVE_BEGIN };
        co_observer *observer = co_observe(ctx, meddle, &m);

        co_add(ctx, x, x);
        CO_EXPECT_INT(m.made, 0);
        CO_EXPECT_INT(m.code, CO_RUNTIME_ERROR);
        CO_EXPECT_INT(co_error(ctx)->line, m.line);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "an observer uses the context that it observes");
        CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
        CO_EXPECT_NOT_NULL(co_add(ctx, x, x));
    }
}

/* The error of the call comes first and stays, whatever an observer does afterwards. */
CO_TEST(an_observer_does_not_hide_the_error_of_a_call, "")
{
    meddler      m = { .ctx = ctx, .when = CO_OBSERVE_END };
    co_observer *observer = co_observe(ctx, meddle, &m);
    co_value    *empty = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), NULL);

    CO_EXPECT_INT(m.made, 0);
    co_clear(ctx);
    m.code = CO_OK;
    co_neg(ctx, empty);
    CO_EXPECT_INT(m.code, CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "has no value yet");
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
}

/* An observer that uses the context of a replica after its first all-reduce. */
typedef struct saboteur {
    co_context *replicas[2];
    atomic_int  num_used;
} saboteur;

static void
sabotage(const co_observation *o, void *user)
{
    saboteur *s = user;

    if (o->replica == 1 && o->phase == CO_OBSERVE_END && strcmp(o->op, "all_reduce") == 0) {
        co_int(s->replicas[1], 1);
        atomic_fetch_add(&s->num_used, 1);
    }
}

typedef struct trained {
    co_value     *w, *other;
    co_optimizer *optimizer;
    saboteur      saboteur;
} trained;

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    trained *t = user;

    (void)args;
    t->saboteur.replicas[co_replica_id(ctx)] = ctx;
    co_tape_begin(ctx);
    co_minimize(ctx, t->optimizer,
                co_reduce_sum(ctx, co_square(ctx, co_add(ctx, t->w, t->other)), CO_ALL_AXES,
                              false));
    CO_EXPECT_TRUE(co_ok(ctx)); /* a replica that stopped here would leave the others alone */
    return co_assign_add(ctx, t->w, co_float(ctx, 1));
}

static void
expect_equal_components(co_context *ctx, co_strategy *s, co_value *variable)
{
    co_value *parts = co_local_results(ctx, s, variable);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 0)),
                    co_item_float(ctx, co_at(ctx, parts, 1)), 0);
}

CO_TEST(the_misuse_of_a_replica_leaves_the_replicas_equal, "")
{
    co_context  *wide = co_open("cpus=2");
    co_strategy *s = test_mirrored(wide, 2, -1);
    trained      t = { .optimizer = co_adam(wide, NULL) };
    co_observer *observer;

    CO_SCOPE(wide, s) {
        t.w = co_variable(wide, co_scalar_float(wide, 2), NULL);
        t.other = co_variable(wide, co_scalar_float(wide, 3), NULL);
    }
    observer = co_observe(wide, sabotage, &t.saboteur);
    co_run(wide, s, train_step, co_no_args(wide), &t);
    CO_EXPECT_MORE(t.saboteur.num_used, 0);
    CO_EXPECT_INT(co_error(wide)->replica, 1);
    CO_EXPECT_CONTAINS(co_error(wide)->file, "observe.c");
    CO_EXPECT_ERROR(wide, CO_RUNTIME_ERROR, "an observer uses the context that it observes");
    expect_equal_components(wide, s, t.w);
    expect_equal_components(wide, s, t.other);
    CO_EXPECT_INT(co_unobserve(wide, observer), CO_OK);
    co_run(wide, s, train_step, co_no_args(wide), &t);
    expect_equal_components(wide, s, t.w);
    CO_EXPECT_OK(wide);
    CO_EXPECT_INT(co_close(wide), CO_OK);
}

/* The components of a mirrored variable are written one after the other; all of them are. */
CO_TEST(a_misuse_between_components_leaves_them_equal, "")
{
    co_context  *wide = co_open("cpus=2");
    co_strategy *s = test_mirrored(wide, 2, -1);
    meddler      m = { .ctx = wide, .when = CO_OBSERVE_END };
    co_value    *v = NULL;
    co_observer *observer;

    CO_SCOPE(wide, s)
        v = co_variable(wide, co_scalar_float(wide, 2), NULL);
    observer = co_observe(wide, meddle, &m);
    co_assign_add(wide, v, co_float(wide, 1));
    CO_EXPECT_INT(m.code, CO_RUNTIME_ERROR);
    CO_EXPECT_INT(co_unobserve(wide, observer), CO_OK);
    CO_EXPECT_ERROR(wide, CO_RUNTIME_ERROR, "an observer uses the context that it observes");
    expect_equal_components(wide, s, v);
    CO_EXPECT_CLOSE(co_item_float(wide, v), 3, 0);
    CO_EXPECT_INT(co_close(wide), CO_OK);
}

CO_TEST(a_misuse_that_nobody_asks_for_is_an_error_of_close, "")
{
    co_context *own = co_open("log=off");
    meddler     m = { .ctx = own, .when = CO_OBSERVE_END };

    co_observe(own, meddle, &m);
    co_neg(own, vector(own, 2));
    CO_EXPECT_INT(co_close(own), CO_RUNTIME_ERROR);
}

/* An observer with a context and a strategy of its own, which it uses in every call. */
typedef struct own_work {
    pthread_mutex_t lock;
    co_context     *ctx;
    co_strategy    *strategy;
    int             calls;
    double          sum;
} own_work;

static void
work(const co_observation *o, void *user)
{
    own_work *w = user;

    pthread_mutex_lock(&w->lock);
    ++w->calls;
    CO_BLOCK(w->ctx) {
        co_value    *parts = co_run(w->ctx, w->strategy, reduce_step,
                                    co_args(w->ctx, co_int(w->ctx, (int64_t)o->num_inputs)), NULL);
        co_iterator *numbers = co_iterate(
            w->ctx, co_dataset_prefetch(w->ctx, co_dataset_range(w->ctx, 0, 2, 1), 2));

        w->sum += co_item_float(w->ctx,
                                co_at(w->ctx, co_local_results(w->ctx, w->strategy, parts), 0));
        while (co_next(w->ctx, numbers) != NULL)
            ;
    }
    pthread_mutex_unlock(&w->lock);
}

CO_TEST(what_an_observer_starts_is_not_observed, "")
{
    co_context  *wide = co_open("cpus=2");
    own_work     w = { .lock = PTHREAD_MUTEX_INITIALIZER, .ctx = co_open_beside(wide) };
    co_observer *observer, *other;
    co_value    *x = vector(wide, 3);

    w.strategy = test_mirrored(w.ctx, 2, -1);
    observer = co_observe(wide, work, &w);
    other = co_observe(wide, note, &all);
    all.n = 0;
    co_add(wide, x, x);
    CO_EXPECT_INT(w.calls, 2);
    CO_EXPECT_CLOSE(w.sum, 2 * (2 + 2 + 1), 0); /* two inputs, on two replicas, and their ids */
    CO_EXPECT_INT(all.n, 2);                    /* nor by the other observer */
    CO_EXPECT_OK(w.ctx);
    CO_EXPECT_INT(co_unobserve(wide, observer), CO_OK);
    co_neg(w.ctx, x); /* outside the function its context is one like others */
    CO_EXPECT_INT(all.n, 4);
    co_run(w.ctx, w.strategy, reduce_step, co_args(w.ctx, co_int(w.ctx, 1)), NULL);
    CO_EXPECT_INT(count("all_reduce"), 2);
    CO_EXPECT_INT(co_unobserve(wide, other), CO_OK);
    CO_EXPECT_INT(co_close(w.ctx), CO_OK);
    CO_EXPECT_INT(co_close(wide), CO_OK);
}

/* An observer that reads a variable whenever something starts or ends. */
typedef struct reader {
    pthread_mutex_t lock;
    co_context     *own;
    co_value       *variable;
    double          last;
} reader;

static void
read_variable(const co_observation *o, void *user)
{
    reader *r = user;

    (void)o;
    pthread_mutex_lock(&r->lock);
    if (r->variable != NULL)
        CO_BLOCK(r->own)
            r->last = *(const float *)co_value_data(r->own, co_variable_read(r->own, r->variable));
    pthread_mutex_unlock(&r->lock);
}

/* Nothing starts while a variable is locked, or this would wait for ever. */
CO_TEST(an_observer_may_read_the_variable_that_is_written, "")
{
    reader        r = { .lock = PTHREAD_MUTEX_INITIALIZER, .own = co_open_beside(ctx) };
    co_observer  *observer = co_observe(ctx, read_variable, &r);
    co_optimizer *adam = co_adam(ctx, NULL);
    int32_t       at = 0;

    r.variable = co_variable(ctx, vector(ctx, 3), NULL);
    co_assign_add(ctx, r.variable, vector(ctx, 3));
    CO_EXPECT_CLOSE(r.last, 2, 0);
    co_scatter_mul(ctx, r.variable,
                   co_slices(ctx, vector(ctx, 1), co_tensor(ctx, CO_INT32, CO_SHAPE(1), &at),
                             NULL));
    co_tape_begin(ctx);
    co_minimize(ctx, adam, co_reduce_sum(ctx, co_square(ctx, r.variable), CO_ALL_AXES, false));
    CO_EXPECT_CLOSE(r.last, 1.999, 1e-6);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_OK(r.own);
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
    CO_EXPECT_INT(co_close(r.own), CO_OK);
}

/* What computes and copies without a kernel of its own. */
CO_TEST(conversions_and_composite_operators_are_entries, "")
{
    co_observer *observer = co_observe(ctx, note, &all);
    co_value    *items[2] = { vector(ctx, 3), vector(ctx, 3) }, *slices;
    int32_t      at[1] = { 1 }, shape[1] = { 4 };

    slices = co_slices(ctx, vector(ctx, 1), co_tensor(ctx, CO_INT32, CO_SHAPE(1), at),
                       co_tensor(ctx, CO_INT32, CO_SHAPE(1), shape));
    all.n = 0;
    co_to_tensor(ctx, co_list(ctx, items, 2), CO_DTYPE_NONE);
    CO_EXPECT_INT(count("stack_values"), 1);
    CO_EXPECT_INT(first("stack_values", CO_OBSERVE_END)->nbytes, 2 * 24);
    co_to_tensor(ctx, slices, CO_DTYPE_NONE);
    CO_EXPECT_INT(count("slices_to_tensor"), 1);
    CO_EXPECT_INT(first("slices_to_tensor", CO_OBSERVE_END)->num_inputs, 3);
    vector(ctx, 3);
    CO_EXPECT_INT(count("make_tensor"), 1);
    co_set_seed(ctx, 3);
    CO_EXPECT_INT(first("set_seed", CO_OBSERVE_END)->writes, CO_RESOURCE_RANDOM);
    all.n = 0;
    co_stack(ctx, co_list(ctx, items, 2), 0);
    CO_EXPECT_STR(first("stack", CO_OBSERVE_BEGIN)->kernel, "composite");
    CO_EXPECT_INT(first("stack", CO_OBSERVE_BEGIN)->depth, 0);
    CO_EXPECT_INT(all.at[1].depth, 1);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
}

CO_TEST(all_operands_are_shown, "")
{
    enum { N = 40 };
    co_observer *observer = co_observe(ctx, note, &all);
    co_value    *parts[N];

    for (int i = 0; i < N; ++i)
        parts[i] = vector(ctx, 2);
    all.n = 0;
    co_concat(ctx, co_list(ctx, parts, N), 0);
    CO_EXPECT_INT(first("concat", CO_OBSERVE_BEGIN)->num_inputs, N);
    CO_EXPECT_INT(first("concat", CO_OBSERVE_END)->num_inputs, N);
    CO_EXPECT_INT(first("concat", CO_OBSERVE_END)->nbytes, 2 * N * 8);
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
}

/* An observer whose function waits until it may return. */
typedef struct sleeper {
    atomic_bool is_inside, may_leave;
    co_context *ctx;
} sleeper;

static void
sleep_inside(const co_observation *o, void *user)
{
    sleeper *s = user;

    (void)o;
    atomic_store(&s->is_inside, true);
    while (!atomic_load(&s->may_leave))
        test_rest_ms(1);
}

static void *
start_sleeper(void *arg)
{
    sleeper *s = arg;

    co_neg(s->ctx, co_float(s->ctx, 1));
    return NULL;
}

CO_TEST(unobserve_waits_five_seconds_and_can_be_called_again, "")
{
    sleeper      s = { .ctx = co_open_beside(ctx) };
    co_observer *observer = co_observe(ctx, sleep_inside, &s), *later;
    pthread_t    thread;
    double       began;

    CO_REQUIRE(pthread_create(&thread, NULL, start_sleeper, &s) == 0);
    while (!atomic_load(&s.is_inside))
        test_rest_ms(1);
    began = test_now_ms();
    co_unobserve(ctx, observer);
    CO_EXPECT_MORE(test_now_ms() - began, 4990);
    CO_EXPECT_LESS(test_now_ms() - began, 6500);
    CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, "call co_unobserve again");
    CO_EXPECT_NOT_NULL(later = co_observe(ctx, note, &all)); /* in another place */
    CO_EXPECT_TRUE(later != observer);
    atomic_store(&s.may_leave, true);
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
    CO_EXPECT_INT(co_unobserve(ctx, later), CO_OK);
    pthread_join(thread, NULL);
    CO_EXPECT_INT(co_close(s.ctx), CO_OK);
    co_unobserve(ctx, observer);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no observer of this runtime");
}

CO_TEST(wrong_observers_are_refused, "")
{
    co_observer *many[9];

    co_observe(ctx, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "(fn) of observe is NULL");
    for (int i = 0; i < 8; ++i)
        CO_EXPECT_NOT_NULL(many[i] = co_observe(ctx, note, &all));
    CO_EXPECT_NULL(co_observe(ctx, note, &all));
    CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "8 functions");
    for (int i = 0; i < 8; ++i)
        CO_EXPECT_INT(co_unobserve(ctx, many[i]), CO_OK);
    co_unobserve(ctx, many[0]);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no observer of this runtime");
    co_unobserve(ctx, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no observer of this runtime");
}

/* A step of training by operators that have variants for it. */
static void
train_with_variants(co_context *ctx)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4, 8)), *y;
    co_value *row = co_ones(ctx, CO_FLOAT32, CO_SHAPE(8));
    co_value *labels = co_zeros(ctx, CO_INT32, CO_SHAPE(2, 4));

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_layer_norm(ctx, co_attention(ctx, x, x, x, 2, NULL), row, row, NULL);
    y = co_add(ctx, co_softmax_cross_entropy(ctx, co_ones_like(ctx, x), y, -1),
               co_sparse_softmax_cross_entropy(ctx, labels, y));
    co_gradient(ctx, y, x);
}

static bool
is_described(const char *name)
{
    co_op_info info = CO_OP_INFO_INIT;

    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (strcmp(info.name, name) == 0)
            return true;
    return false;
}

CO_TEST(every_name_that_is_observed_is_in_the_table, "")
{
    static const char *const variants[] = { "attention_grad",
                                            "attention_training",
                                            "layer_norm_grad",
                                            "layer_norm_rows",
                                            "softmax_cross_entropy_grad",
                                            "softmax_cross_entropy_training",
                                            "sparse_softmax_cross_entropy_training",
                                            "sparse_softmax_cross_entropy_training_grad" };
    co_observer             *observer = co_observe(ctx, note, &all);

    all.n = 0;
    train_with_variants(ctx);
    CO_EXPECT_TRUE(co_ok(ctx));
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); ++i)
        CO_EXPECT_INT(count(variants[i]), 1);
    for (size_t i = 0; i < all.n; ++i)
        if (!is_described(all.at[i].op))
            test_fail(TEST_AT, "%s is not in the table", all.at[i].op);
    co_unobserve(ctx, observer);
}

/* While a tape is open a variant checks the operands; the error names what was called. */
CO_TEST(errors_of_variants_name_the_operator, "")
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4));

    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_attention(ctx, x, x, x, 3, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "attention: heads is 3");
    co_clear(ctx);
    co_sparse_softmax_cross_entropy(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(3)), x);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "sparse_softmax_cross_entropy_with_logits: labels have shape [3]");
    co_clear(ctx);
    co_op_call(ctx, "attention_training", co_args(ctx, x, x, x), NULL);
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "attention_training is not called by name");
    co_clear(ctx);
    co_op_call(ctx, "deferred_gradient", co_args(ctx, x), NULL);
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "deferred_gradient is not called by name");
}

/* What several take part in, each of them reads and writes: a rendezvous, an exchange of messages.
 */
CO_TEST(what_is_exchanged_is_read_and_written, "")
{
    const unsigned exchanged = CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS;
    co_op_info     info = CO_OP_INFO_INIT;
    size_t         found = 0;

    (void)ctx;
    for (size_t i = 0; co_op_describe(i, &info); ++i) {
        if ((info.reads & exchanged) != (info.writes & exchanged))
            test_fail(TEST_AT, "%s reads and writes different things", info.name);
        found += (info.writes & CO_RESOURCE_WORKERS) != 0;
    }
    CO_EXPECT_TRUE(found >= 6);
}

CO_TEST(entries_with_effects_are_not_called_by_name, "")
{
    co_op_call(ctx, "read_variable", co_args(ctx, co_int(ctx, 1)), NULL);
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "co_variable_read");
}
