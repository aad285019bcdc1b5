/* SPDX-License-Identifier: Apache-2.0 */
/* functions: conditions, loops and checks. */
#include "functions.h"

#include <string.h>

enum { MOST_BODIES = 8 };

/* The bodies of one action, which the C functions of the library call by their numbers. */
typedef struct bodies {
    golden_closure *at[MOST_BODIES];
    size_t          n;
} bodies;

static co_value *
call_body(co_context *ctx, co_value *args, bodies *b, size_t i)
{
    void *user;
    co_fn fn = golden_step_fn(b->at[i], &user);

    return fn(ctx, args, user);
}

#define BODY(number)                                                                               \
    static co_value *body_##number(co_context *ctx, co_value *args, void *user)                    \
    {                                                                                              \
        return call_body(ctx, args, user, number);                                                 \
    }
BODY(0)
BODY(1)
BODY(2)
BODY(3)
BODY(4)
BODY(5)
BODY(6)
BODY(7)
static const co_fn body_fns[MOST_BODIES] = { body_0, body_1, body_2, body_3,
                                             body_4, body_5, body_6, body_7 };

static bodies *
new_bodies(golden_frame *f)
{
    return golden_room(f->w, sizeof(bodies));
}

static bool
add_body(golden_frame *f, bodies *b, json_t *json)
{
    if (b == NULL || b->n == MOST_BODIES) {
        golden_fail(f->w->c, "an action of the case has more than %d functions", MOST_BODIES);
        return false;
    }
    b->at[b->n] = golden_function_of(f, json);
    return b->at[b->n++] != NULL;
}

golden_thing
golden_act_cond(golden_frame *f, json_t *step)
{
    bodies   *b = new_bodies(f);
    co_value *predicate = golden_field(f, step, "pred");

    if (predicate == NULL || !add_body(f, b, json_object_get(step, "true")) ||
        !add_body(f, b, json_object_get(step, "false")))
        return golden_nothing();
    return golden_value(co_cond(f->ctx, predicate, body_0, body_1, NULL, b));
}

/* The last branch of co_switch_case is its default. */
golden_thing
golden_act_switch_case(golden_frame *f, json_t *step)
{
    bodies   *b = new_bodies(f);
    co_value *index = golden_field(f, step, "index");
    json_t *branches = json_object_get(step, "branches"), *last = json_object_get(step, "default");
    bool    ok = index != NULL;

    for (size_t i = 0; ok && i < json_array_size(branches); ++i)
        ok = add_body(f, b, json_array_get(branches, i));
    if (ok && last != NULL)
        ok = add_body(f, b, last);
    return ok ? golden_value(co_switch_case(f->ctx, index, body_fns, b->n, NULL, b))
              : golden_nothing();
}

golden_thing
golden_act_case(golden_frame *f, json_t *step)
{
    bodies   *b = new_bodies(f);
    co_value *predicates[MOST_BODIES];
    json_t   *pairs = json_object_get(step, "pairs"), *last = json_object_get(step, "default");
    size_t    n = json_array_size(pairs);
    bool      ok = b != NULL && n < MOST_BODIES;

    for (size_t i = 0; ok && i < n; ++i) {
        json_t *pair = json_array_get(pairs, i);

        predicates[i] = golden_operand_value(f, json_array_get(pair, 0));
        ok = predicates[i] != NULL && add_body(f, b, json_array_get(pair, 1));
    }
    if (ok && last != NULL)
        ok = add_body(f, b, last);
    return ok ? golden_value(co_case(f->ctx, co_list(f->ctx, predicates, n), body_fns, b->n, NULL,
                                     b, json_is_true(json_object_get(step, "exclusive"))))
              : golden_nothing();
}

static co_value *
tuple_of(golden_frame *f, json_t *list)
{
    co_value *items[GOLDEN_MAX_ARGS];
    size_t    n = json_array_size(list);

    if (n > GOLDEN_MAX_ARGS) {
        golden_fail(f->w->c, "the case has more than %d loop variables", GOLDEN_MAX_ARGS);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        if ((items[i] = golden_operand_value(f, json_array_get(list, i))) == NULL)
            return NULL;
    return co_tuple(f->ctx, items, n);
}

/* Shapes without dtypes: those of the loop variables. */
static co_value *
read_invariants(golden_frame *f, json_t *list, co_value *variables)
{
    co_value *specs[GOLDEN_MAX_ARGS];
    size_t    n = json_array_size(list);

    if (n > GOLDEN_MAX_ARGS || n > co_num_items(f->ctx, variables)) {
        golden_fail(f->w->c, "the case has more invariants than loop variables");
        return NULL;
    }
    for (size_t i = 0; i < n; ++i) {
        json_t   *shape = json_object_get(json_array_get(list, i), "shape");
        int64_t   dims[CO_MAX_DIMS];
        int       ndim = json_is_array(shape) ? (int)json_array_size(shape) : -1;
        co_value *like = co_to_tensor(f->ctx, co_at(f->ctx, variables, i), CO_DTYPE_NONE);

        for (int d = 0; d < ndim && d < CO_MAX_DIMS; ++d)
            dims[d] = json_integer_value(json_array_get(shape, (size_t)d));
        specs[i] = co_spec(f->ctx, co_value_dtype(f->ctx, like), dims, ndim);
    }
    return co_tuple(f->ctx, specs, n);
}

golden_thing
golden_act_while(golden_frame *f, json_t *step)
{
    co_while_options options = CO_WHILE_OPTIONS_INIT;
    bodies          *b = new_bodies(f);
    co_value        *variables = tuple_of(f, json_object_get(step, "vars"));
    json_t          *invariants = json_object_get(step, "invariants");
    json_t          *most = json_object_get(step, "max_iterations");

    if (variables == NULL || !add_body(f, b, json_object_get(step, "cond")) ||
        !add_body(f, b, json_object_get(step, "body")))
        return golden_nothing();
    if (json_is_array(invariants) &&
        (options.invariants = read_invariants(f, invariants, variables)) == NULL)
        return golden_nothing();
    if (most != NULL) {
        co_value *limit = golden_operand_value(f, most);

        if (limit == NULL)
            return golden_nothing();
        options.max_iterations = co_item_int(f->ctx, limit);
    }
    return golden_value(co_while(f->ctx, body_0, body_1, variables, b, &options));
}

/* --- rows --- */

static golden_thing
over_rows(golden_frame *f, json_t *step, bodies **b, co_value **elems, co_value **initial)
{
    *b = new_bodies(f);
    *elems = golden_field(f, step, "elems");
    *initial = json_object_get(step, "initializer") != NULL ? golden_field(f, step, "initializer")
                                                            : NULL;
    if (*elems == NULL || !golden_goes_on(f) || !add_body(f, *b, json_object_get(step, "fn")))
        return golden_nothing();
    return golden_value(*elems);
}

golden_thing
golden_act_map_fn(golden_frame *f, json_t *step)
{
    bodies   *b;
    co_value *elems, *initial;

    if (over_rows(f, step, &b, &elems, &initial).kind == GOLDEN_NOTHING)
        return golden_nothing();
    return golden_value(co_map_fn(f->ctx, elems, body_0, b));
}

golden_thing
golden_act_scan(golden_frame *f, json_t *step)
{
    bodies   *b;
    co_value *elems, *initial;

    if (over_rows(f, step, &b, &elems, &initial).kind == GOLDEN_NOTHING)
        return golden_nothing();
    return golden_value(
        co_scan(f->ctx, elems, initial, body_0, b, json_is_true(json_object_get(step, "reverse"))));
}

golden_thing
golden_act_foldl(golden_frame *f, json_t *step)
{
    bodies   *b;
    co_value *elems, *initial;

    if (over_rows(f, step, &b, &elems, &initial).kind == GOLDEN_NOTHING)
        return golden_nothing();
    return golden_value(co_foldl(f->ctx, elems, initial, body_0, b));
}

golden_thing
golden_act_foldr(golden_frame *f, json_t *step)
{
    bodies   *b;
    co_value *elems, *initial;

    if (over_rows(f, step, &b, &elems, &initial).kind == GOLDEN_NOTHING)
        return golden_nothing();
    return golden_value(co_foldr(f->ctx, elems, initial, body_0, b));
}

golden_thing
golden_act_for_each(golden_frame *f, json_t *step)
{
    bodies      *b = new_bodies(f);
    golden_thing of = golden_operand(f, json_object_get(step, "of"));
    co_value    *state, *elems;

    if (!golden_goes_on(f))
        return golden_nothing();
    elems = golden_value_of(f->ctx, of);
    state = tuple_of(f, json_object_get(step, "state"));
    if (state == NULL || elems == NULL || !add_body(f, b, json_object_get(step, "fn")))
        return golden_nothing();
    return golden_value(co_for_each(f->ctx, elems, state, body_0, b));
}

/* --- checks --- */

golden_thing
golden_act_assert(golden_frame *f, json_t *step)
{
    co_value *condition = golden_field(f, step, "cond");

    if (condition != NULL)
        co_assert(f->ctx, condition, "assert of the case");
    return golden_nothing();
}

#define ASSERTION(name)                                                                            \
    golden_thing golden_act_##name(golden_frame *f, json_t *step)                                  \
    {                                                                                              \
        co_value *x = golden_field(f, step, "x"), *y = golden_field(f, step, "y");                 \
                                                                                                   \
        if (x != NULL && y != NULL)                                                                \
            co_##name(f->ctx, x, y, #name " of the case");                                         \
        return golden_nothing();                                                                   \
    }
ASSERTION(assert_equal)
ASSERTION(assert_less)
ASSERTION(assert_greater)

golden_thing
golden_act_check_numerics(golden_frame *f, json_t *step)
{
    co_value *x = golden_field(f, step, "x");

    return x != NULL ? golden_value(co_check_numerics(f->ctx, x, "of the case")) : golden_nothing();
}
