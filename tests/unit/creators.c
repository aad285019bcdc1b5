/* SPDX-License-Identifier: Apache-2.0 */
/* Variable creators: when they are called, with what, and what they may not do. VAR-CREATOR-1,
 * SCOPE-9, SET-11, SCOPE-13. */
#include "engine_support.h"

/* What creators saw, in order: "name of creator:name of variable[owner]". */
typedef struct journal {
    char text[600];
    int  calls;
} journal;

typedef struct scribe {
    const char *name;
    journal    *notes;
} scribe;

static co_value *
note(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
     void *user)
{
    const scribe *s = user;
    size_t        at = strlen(s->notes->text);

    ++s->notes->calls;
    snprintf(s->notes->text + at, sizeof(s->notes->text) - at, "%s:%s%s ", s->name,
             options->name != NULL ? options->name : "-",
             co_creator_owner(ctx, next) != NULL ? "!" : "");
    return co_creator_next(ctx, next, initial, options);
}

static co_value *
make(co_context *ctx, const char *name)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = name;
    return co_variable(ctx, co_float(ctx, 2), &options);
}

CO_TEST_WITH(creators_stand_around_the_strategy, "VAR-CREATOR-1 SCOPE-2", "cpus=2")
{
    static const struct {
        int         strategy; /* 0 none, 1 one device, 2 mirrored */
        const char *expected;
    } cases[] = {
        { 0, "d:w c:w b:w a:w " },
        { 1, "d:w c:w b:w! a:w! " },
        { 2, "d:w c:w b:w! a:w! b:w/replica_1! a:w/replica_1! " },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_strategy *strategy = cases[i].strategy == 0   ? co_default_strategy(ctx)
                                : cases[i].strategy == 1 ? co_one_device_strategy(ctx, "/cpu:1")
                                                         : test_mirrored(ctx, 2, -1);
        journal      notes = { "", 0 };
        scribe a = { "a", &notes }, b = { "b", &notes }, c = { "c", &notes }, d = { "d", &notes };
        co_value *v = NULL;

        CO_CREATOR(ctx, note, &a)
            CO_CREATOR(ctx, note, &b)
                CO_SCOPE(ctx, strategy)
                    CO_CREATOR(ctx, note, &c)
                        CO_CREATOR(ctx, note, &d)
                            v = make(ctx, "w");
        CO_EXPECT_OK(ctx);
        CO_EXPECT_STR(notes.text, cases[i].expected);
        CO_EXPECT_CLOSE(co_item_float(ctx, v), 2, 0);
        CO_EXPECT_STR(co_variable_name(ctx, v), "w");
        make(ctx, "later"); /* the scopes are left */
        CO_EXPECT_STR(notes.text, cases[i].expected);
    }
}

/* A step that makes a variable; creators of each replica come first. */
typedef struct building {
    scribe own[2];
    bool   enters;
} building;

static co_value *
build(co_context *ctx, co_value *args, void *user)
{
    building *b = user;
    co_value *v = NULL;

    (void)args;
    if (!b->enters)
        return make(ctx, "w");
    CO_CREATOR(ctx, note, &b->own[co_replica_id(ctx)])
        v = make(ctx, "w");
    return v;
}

CO_TEST_WITH(creators_reach_into_steps, "VAR-CREATOR-1 VAR-RUN-1 VAR-RUN-2", "cpus=2")
{
    for (int n = 0; n <= 2; ++n) { /* 0: one device */
        co_strategy *s = n == 0 ? co_one_device_strategy(ctx, "/cpu:1") : test_mirrored(ctx, n, -1);
        journal      notes = { "", 0 }, mine[2] = { { "", 0 }, { "", 0 } };
        scribe       a = { "a", &notes }, c = { "c", &notes };
        building     b = { { { "r", &mine[0] }, { "r", &mine[1] } }, false };
        const char  *inside = n == 2 ? "c:w a:w! a:w/replica_1! " : "c:w a:w! ";
        const char  *outside = n == 2 ? "a:w! a:w/replica_1! " : "a:w! ";
        co_value    *v = NULL;

        CO_CREATOR(ctx, note, &a)
            CO_SCOPE(ctx, s)
                CO_CREATOR(ctx, note, &c)
                    v = co_run(ctx, s, build, co_no_args(ctx), &b);
        CO_EXPECT_STR(notes.text, inside);
        CO_EXPECT_INT(co_value_kind(v), CO_KIND_VARIABLE);
        CO_EXPECT_PTR(co_variable_strategy(ctx, v), s);
        notes = (journal){ "", 0 };
        b.enters = true;
        CO_CREATOR(ctx, note, &a)
            v = co_run(ctx, s, build, co_no_args(ctx), &b);
        CO_EXPECT_STR(notes.text, outside);
        CO_EXPECT_STR(mine[0].text, "r:w ");
        CO_EXPECT_STR(mine[1].text, n == 2 ? "r:w " : "");
        CO_EXPECT_OK(ctx);
    }
}

/* Creators that change what is made. */
static co_value *
rename_and_freeze(co_context *ctx, co_creation *next, co_value *initial,
                  const co_variable_options *options, void *user)
{
    co_variable_options mine = *options;

    mine.struct_size = sizeof(mine);
    mine.name = user;
    mine.trainable = CO_TRAINABLE_NO;
    mine.aggregation = CO_AGGREGATION_SUM;
    return co_creator_next(ctx, next, co_add(ctx, initial, co_float(ctx, 1)), &mine);
}

CO_TEST_WITH(creators_change_name_value_and_options, "VAR-CREATOR-1 VAR-NEW-5", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    char         name[] = "renamed";
    co_value    *v = NULL, *parts;

    CO_SCOPE(ctx, m)
        CO_CREATOR(ctx, rename_and_freeze, name)
            v = make(ctx, "w");
    CO_EXPECT_STR(co_variable_name(ctx, v), "renamed");
    CO_EXPECT_FALSE(co_variable_trainable(ctx, v));
    CO_EXPECT_INT(co_variable_aggregation(ctx, v), CO_AGGREGATION_SUM);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 3, 0);
    CO_CREATOR(ctx, rename_and_freeze, name)
        CO_SCOPE(ctx, m)
            v = make(ctx, "w");
    parts = co_local_results(
        ctx, m, v); /* each component passed it: the second began with the first's value */
    CO_EXPECT_STR(co_variable_name(ctx, v), "renamed");
    CO_EXPECT_FALSE(co_variable_trainable(ctx, v));
    CO_EXPECT_INT(co_variable_aggregation(ctx, v), CO_AGGREGATION_NONE);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 0)), 3, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 1)), 4, 0);
}

/* Creators that misbehave; user says how. */
enum {
    FAILS,
    GIVES_NULL,
    GIVES_TENSOR,
    GIVES_SAME,
    GIVES_CONTAINER,
    GIVES_OTHER_SHAPE,
    RECURSES,
    NO_NEXT,
    NO_INITIAL,
    BAD_OPTIONS
};
typedef struct misdeed {
    int       what;
    co_value *saved;
    int       calls;
} misdeed;

static co_value *
misbehave(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
          void *user)
{
    misdeed            *m = user;
    co_variable_options mine = *options;

    mine.struct_size = sizeof(mine);
    ++m->calls;
    switch (m->what) {
    case FAILS: co_fail(ctx, CO_DATA_LOSS, "the creator's own words"); return NULL;
    case GIVES_NULL: return NULL;
    case GIVES_TENSOR: return co_scalar_float(ctx, 1);
    case GIVES_SAME:
    case GIVES_CONTAINER:
        return m->saved != NULL ? m->saved
                                : (m->saved = co_creator_next(ctx, next, initial, options));
    case GIVES_OTHER_SHAPE:
        return co_creator_next(ctx, next,
                               m->calls == 1 ? initial : co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)),
                               options);
    case RECURSES: return co_variable(ctx, initial, options);
    case NO_NEXT: return co_creator_next(ctx, NULL, initial, options);
    case NO_INITIAL: return co_creator_next(ctx, next, NULL, options);
    default:
        mine.aggregation = (co_aggregation)9;
        return co_creator_next(ctx, next, initial, &mine);
    }
}

CO_TEST_WITH(what_creators_do_wrong_is_reported, "VAR-CREATOR-1 GEN-ERR-2", "cpus=2")
{
    static const struct {
        int         what;
        co_code     code;
        const char *says;
    } cases[] = {
        { FAILS, CO_DATA_LOSS, "the creator's own words" },
        { GIVES_NULL, CO_TYPE_ERROR, "returned NULL" },
        { GIVES_TENSOR, CO_TYPE_ERROR, "returned a tensor" },
        { GIVES_SAME, CO_VALUE_ERROR, "twice" },
        { GIVES_CONTAINER, CO_TYPE_ERROR, "an ordinary variable" },
        { GIVES_OTHER_SHAPE, CO_VALUE_ERROR, "another dtype or shape" },
        { RECURSES, CO_RUNTIME_ERROR, "call co_creator_next" },
        { NO_NEXT, CO_INVALID_ARGUMENT, "argument 2 (next)" },
        { NO_INITIAL, CO_INVALID_ARGUMENT, "argument 3 (initial)" },
        { BAD_OPTIONS, CO_VALUE_ERROR, "aggregation is 9" },
    };
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *other = NULL;

    CO_SCOPE(ctx, m)
        other = make(ctx, "other");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        misdeed     d = { cases[i].what, cases[i].what == GIVES_CONTAINER ? other : NULL, 0 };
        const char *file = __FILE__;

        CO_CREATOR(ctx, misbehave, &d)
            CO_SCOPE(ctx, m)
                CO_EXPECT_NULL(make(ctx, "w"));
        CO_EXPECT_STR(co_error(ctx)->file, file);
        CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].says);
        d.saved = NULL;
        d.calls = 0;
        if (cases[i].what < GIVES_SAME) { /* the same where there is one component, and in a step */
            building b = { .enters = false };

            CO_CREATOR(ctx, misbehave, &d)
                CO_EXPECT_NULL(co_run(ctx, m, build, co_no_args(ctx), &b));
            CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].says);
            CO_CREATOR(ctx, misbehave, &d)
                CO_EXPECT_NULL(make(ctx, "w"));
            CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].says);
        }
        CO_EXPECT_FALSE(co_has_strategy(ctx));
    }
    CO_EXPECT_INT(co_creator_begin(ctx, NULL, NULL).id, 0);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 2 (fn)");
    CO_EXPECT_NULL(co_creator_owner(ctx, NULL));
}

CO_TEST_WITH(creators_are_left_in_reverse_order, "SCOPE-9 SCOPE-14", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    journal      notes = { "", 0 };
    scribe       a = { "a", &notes };
    co_scope     outer = co_creator_begin(ctx, note, &a), inner = co_scope_begin(ctx, m), again;

    CO_EXPECT_CODE(co_creator_end(ctx, &outer), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
    CO_EXPECT_TRUE(co_has_strategy(ctx));
    again = co_creator_begin(ctx, note, &a);
    CO_EXPECT_CODE(co_scope_end(ctx, &inner), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
    co_device_begin(ctx, "/cpu:1");
    CO_EXPECT_CODE(co_creator_end(ctx, &again), CO_RUNTIME_ERROR);
    co_clear(ctx);
    co_device_end(ctx);
    CO_EXPECT_CODE(co_creator_end(ctx, &again), CO_OK);
    CO_EXPECT_CODE(co_creator_end(ctx, &again), CO_RUNTIME_ERROR); /* it is not open any more */
    co_clear(ctx);
    CO_EXPECT_CODE(co_scope_end(ctx, &inner), CO_OK);
    make(ctx, "w");
    CO_EXPECT_INT(notes.calls, 1);
    CO_EXPECT_CODE(co_creator_end(ctx, &outer), CO_OK);
}

CO_TEST_WITH(creators_and_scopes_have_ends_of_their_own, "SCOPE-9 SCOPE-14", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    journal      notes = { "", 0 };
    scribe       a = { "a", &notes };
    co_scope     creator = co_creator_begin(ctx, note, &a), scope = co_scope_begin(ctx, m);

    CO_EXPECT_CODE(co_creator_end(ctx, &scope), CO_RUNTIME_ERROR);
    CO_EXPECT_INT(co_error(ctx)->line, __LINE__ - 1);
    CO_EXPECT_STR(co_error(ctx)->call, "creator_end");
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "is of co_scope_begin; end it with co_scope_end");
    CO_EXPECT_TRUE(co_has_strategy(ctx));
    CO_EXPECT_CODE(co_scope_end(ctx, &creator), CO_RUNTIME_ERROR); /* though it is not innermost */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "is of co_creator_begin; end it with co_creator_end");
    CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
    CO_EXPECT_CODE(co_scope_end(ctx, &creator), CO_RUNTIME_ERROR);
    CO_EXPECT_STR(co_error(ctx)->call, "scope_end");
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "end it with co_creator_end");
    make(ctx, "w"); /* the creator is still there */
    CO_EXPECT_INT(notes.calls, 1);
    CO_EXPECT_CODE(co_creator_end(ctx, &creator), CO_OK);
    CO_EXPECT_CODE(co_creator_end(ctx, &creator), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "give what co_creator_begin returned");
    CO_EXPECT_CODE(co_creator_end(NULL, &creator), CO_INVALID_ARGUMENT);
}

/* A token is a struct, so programs can copy it: the copy does not know that it was ended. */
CO_TEST_WITH(a_copied_token_that_is_ended_twice_is_told_so, "SCOPE-9 SCOPE-14", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    journal      notes = { "", 0 };
    scribe       a = { "a", &notes };
    co_scope     scope = co_scope_begin(ctx, m), scope_copy = scope;
    co_scope     creator = co_creator_begin(ctx, note, &a), creator_copy = creator;

    CO_EXPECT_CODE(co_creator_end(ctx, &creator), CO_OK);
    CO_EXPECT_CODE(co_creator_end(ctx, &creator_copy), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "creator_end is a copy of one that was ended already");
    CO_EXPECT_TRUE(co_has_strategy(ctx)); /* nothing else was left */
    CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
    CO_EXPECT_CODE(co_scope_end(ctx, &scope_copy), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                    "scope_end is a copy of one that was ended already; end what co_scope_begin "
                    "returned once");
}

CO_TEST_WITH(set_strategy_inside_a_creators_scope_is_found_on_leaving, "SET-11 SCOPE-9", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    journal      notes = { "", 0 };
    scribe       a = { "a", &notes };
    co_scope     scope = co_creator_begin(ctx, note, &a);

    co_experimental_set_strategy(ctx, m);
    make(ctx, "w"); /* the creator was entered before */
    CO_EXPECT_STR(notes.text, "a:w! a:w/replica_1! ");
    CO_EXPECT_CODE(co_creator_end(ctx, &scope), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_experimental_set_strategy");
    CO_EXPECT_PTR(co_get_strategy(ctx), m);
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_CODE(co_creator_end(ctx, &scope), CO_OK);
    /* The other way round nothing is wrong, and the creator stays when the strategy goes. */
    notes = (journal){ "", 0 };
    co_experimental_set_strategy(ctx, m);
    scope = co_creator_begin(ctx, note, &a);
    make(ctx, "x");
    co_experimental_set_strategy(ctx, NULL);
    make(ctx, "y");
    CO_EXPECT_STR(notes.text, "a:x a:y ");
    CO_EXPECT_CODE(co_creator_end(ctx, &scope), CO_OK);
}

/* The strategy's own creator is reached while another is current. */
static co_value *
switch_strategy(co_context *ctx, co_creation *next, co_value *initial,
                const co_variable_options *options, void *user)
{
    co_experimental_set_strategy(ctx, user);
    return co_creator_next(ctx, next, initial, options);
}

static co_value *
use_other_context(co_context *ctx, co_creation *next, co_value *initial,
                  const co_variable_options *options, void *user)
{
    co_context *beside = user;

    CO_EXPECT_NULL(co_creator_next(beside, next, initial, options));
    CO_EXPECT_ERROR(beside, CO_RUNTIME_ERROR, "the default strategy is current");
    return co_creator_next(ctx, next, initial, options);
}

CO_TEST_WITH(a_strategy_makes_no_variable_while_another_is_current, "SCOPE-13 GEN-ERR-3", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *one = co_one_device_strategy(ctx, "/cpu:1");
    co_context  *beside = co_open_beside(ctx);
    co_scope     scope;
    co_value    *v = NULL;

    co_experimental_set_strategy(ctx, m);
    scope = co_creator_begin(ctx, switch_strategy, one);
    CO_EXPECT_NULL(make(ctx, "w"));
    CO_EXPECT_CONTAINS(co_error(ctx)->message, "MirroredStrategy");
    CO_EXPECT_CONTAINS(co_error(ctx)->message, "OneDeviceStrategy");
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "'w'");
    CO_EXPECT_PTR(co_get_strategy(ctx), one);
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_CODE(co_creator_end(ctx, &scope), CO_OK);
    CO_SCOPE(ctx, m)
        CO_CREATOR(ctx, use_other_context, beside)
            v = make(ctx, "w");
    CO_EXPECT_PTR(co_variable_strategy(ctx, v), m);
    co_close(beside);
}

/* A variable under another strategy, wherever this is called. */
static co_value *
make_in_scope(co_context *ctx, co_strategy *strategy)
{
    co_value *v = NULL;

    CO_SCOPE(ctx, strategy)
        v = make(ctx, "w");
    return v;
}

static co_value *
in_default_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    CO_EXPECT_NULL(make_in_scope(ctx, user));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "default strategy");
    return args;
}

static co_value *
in_default_step(co_context *ctx, co_value *args, void *user)
{
    CO_EXPECT_NULL(make_in_scope(ctx, user));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "default strategy");
    return co_merge_call(ctx, in_default_merge, args, user);
}

static co_value *
in_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    CO_EXPECT_NULL(make(ctx, "w"));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "'w' is made under MirroredStrategy");
    return args;
}

CO_TEST_WITH(scopes_of_the_default_strategy_have_a_creator_too, "SCOPE-13 SET-1 SET-9 S-RUN-4",
             "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *d = co_default_strategy(ctx);

    CO_SCOPE(ctx, d) {
        CO_EXPECT_NULL(make_in_scope(ctx, m));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "leave that first");
        co_run(ctx, m, in_step, co_no_args(ctx), NULL);
        CO_EXPECT_NOT_NULL(make(ctx, "w"));
    }
    co_run(ctx, d, in_default_step, co_no_args(ctx), m);
    CO_EXPECT_OK(ctx);
    co_experimental_set_strategy(ctx, d);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_NULL(make_in_scope(ctx, m));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "default strategy");
    CO_EXPECT_NOT_NULL(make(ctx, "w"));
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_NOT_NULL(make_in_scope(ctx, m));
}

/* A creator that makes a companion for every variable but the companions. */
static co_value *
with_companion(co_context *ctx, co_creation *next, co_value *initial,
               const co_variable_options *options, void *user)
{
    co_value **companion = user;

    if (strcmp(options->name, "companion") != 0)
        *companion = make(ctx, "companion");
    return co_creator_next(ctx, next, initial, options);
}

CO_TEST_WITH(a_creator_may_make_variables_of_its_own, "VAR-CREATOR-1", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *companion = NULL, *v = NULL;

    CO_SCOPE(ctx, m)
        CO_CREATOR(ctx, with_companion, &companion)
            v = make(ctx, "w");
    CO_EXPECT_STR(co_variable_name(ctx, v), "w");
    CO_EXPECT_STR(co_variable_name(ctx, companion), "companion");
    CO_EXPECT_PTR(co_variable_strategy(ctx, companion), m);
}

static bool
create_everywhere(co_context *ctx)
{
    journal      notes = { "", 0 };
    scribe       a = { "a", &notes }, c = { "c", &notes };
    co_strategy *m = test_mirrored(ctx, 2, -1);
    building     b = { .enters = false };

    CO_CREATOR(ctx, note, &a)
        CO_SCOPE(ctx, m)
            CO_CREATOR(ctx, note, &c) {
                make(ctx, "w");
                co_run(ctx, m, build, co_no_args(ctx), &b);
            }
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_memory_in_creators_is_survived, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", create_everywhere);
}
