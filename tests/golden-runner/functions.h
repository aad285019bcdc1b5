/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The family functions: small programs with captured functions, interpreted over the public API.
 *
 *   functions_values.c     names, operands, values into JSON
 *   functions_operators.c  operators by name
 *   functions_calls.c      functions of the case: binding of arguments, call, run, merge_call, ...
 *   functions_data.c       datasets and iterators, with functions of the case as their stages
 *   functions_actions.c    the statements, and the table of actions
 *   functions_judge.c      entries of results: which of them are right
 *   family_functions.c     a case: its strategy, its steps, its entries
 *
 * A captured function of the case is a co_function whose C function interprets the body. So what
 * the body does to the runner (notes, counts, names of the host) happens while capturing, as the
 * recording wants it.
 */
#ifndef GOLDEN_FUNCTIONS_H
#define GOLDEN_FUNCTIONS_H

#include <pthread.h>

#include <cohort/v1.h>

#include "golden.h"

#define GOLDEN_MAX_ARGS 16

/* What a name of a case stands for. */
typedef enum golden_thing_kind {
    GOLDEN_NOTHING = 0, /* also: there is an error */
    GOLDEN_VALUE,
    GOLDEN_CLOSURE,
    GOLDEN_DATASET,
    GOLDEN_ITERATOR,
    GOLDEN_TAPE,
} golden_thing_kind;

typedef struct golden_closure golden_closure;
typedef struct golden_open_tape {
    struct golden_open_tape *below; /* of the same frame */
    bool                     is_persistent, is_over;
} golden_open_tape;

typedef struct golden_thing {
    golden_thing_kind kind;
    union {
        co_value         *value;
        golden_closure   *closure;
        co_dataset       *dataset;
        co_iterator      *iterator;
        golden_open_tape *tape;
        void             *any;
    } u;
} golden_thing;

/* Names, then those of the place around. They live as long as the case: a function refers to the
 * names of the place where it was defined. */
typedef struct golden_names golden_names;

/* What all replicas of a case share. */
typedef struct golden_world {
    golden_case    *c;
    co_strategy    *strategy; /* of the case */
    golden_names   *top;
    golden_names   *once;     /* variables that host code keeps, by key */
    golden_names   *literals; /* host values of the program text, by their place in it */
    pthread_mutex_t lock;     /* of everything below, and of all names */
    json_t         *notes;    /* of the step that runs at the top level */
    golden_closure *closures; /* all of the case */
    void           *rooms;    /* what is freed with the case */
} golden_world;

/* A function of the case. */
struct golden_closure {
    golden_world   *w;
    golden_closure *next;
    json_t         *def;       /* args, body, return, defaults, varargs; borrowed */
    golden_names   *names;     /* where it was defined */
    const char     *top;       /* its name, if it is a captured one of the top level, else NULL */
    co_function    *function;  /* NULL: it is not captured */
    co_function    *handle;    /* what stands for it as an argument; NULL: it was none yet */
    int             num_fixed; /* parameters beyond the signature, which keep their defaults */
    int             traces;
};

/* One run of a body: where its statements act. */
typedef struct golden_frame {
    golden_world         *w;
    co_context           *ctx;
    golden_names         *names;
    golden_open_tape     *tapes;
    const golden_closure *closure; /* NULL: the top level */
} golden_frame;

/* functions_values.c */

/* Room that is freed with the case; NULL without memory, with a reason. */
void         *golden_room(golden_world *w, size_t size);
void          golden_free_rooms(golden_world *w);
golden_names *golden_names_new(golden_world *w, golden_names *around);
void golden_bind(golden_world *w, golden_names *names, const char *name, golden_thing thing);
/* Where a name is bound: `names` or a place around it. False: nowhere. */
bool golden_find(golden_world *w, golden_names *names, const char *name, golden_thing *thing);
/* Change what a name stands for in the place where it is bound. False: it is bound nowhere. */
bool golden_rebind(golden_world *w, golden_names *names, const char *name, golden_thing thing);
/* Whether the name is bound in `names` itself. */
bool golden_is_local(golden_world *w, golden_names *names, const char *name);

/* Keep what the local names of a body stand for, for a function that outlives the body. */
void golden_keep_locals(golden_frame *f);

golden_thing golden_value(co_value *value);
/* What an argument of a function is: datasets, iterators and functions come as values. */
golden_thing golden_thing_of(golden_world *w, co_context *ctx, co_value *value);
/* A value for what has one: NULL for tapes. */
co_value    *golden_value_of(co_context *ctx, golden_thing thing);
golden_thing golden_nothing(void);
/* An operand; NOTHING with an error in the frame's context. */
golden_thing golden_operand(golden_frame *f, json_t *json);
/* An operand that must be a value; NULL with an error. */
co_value *golden_operand_value(golden_frame *f, json_t *json);
/* The same of a field of a statement. */
co_value *golden_field(golden_frame *f, json_t *step, const char *key);
/* A specification: {"dtype","shape"}, a structure of them, {"element_spec_of": name}. */
co_value *golden_read_spec(golden_frame *f, json_t *json);
co_value *golden_element_spec(golden_frame *f, golden_thing thing);

/* A value as operands are written; mirrored values have the key "mirrored". */
json_t *golden_write_operand(co_context *ctx, co_value *value);
/* Specifications in the structure of a value. */
json_t *golden_write_spec_of(co_context *ctx, co_value *value);

/* functions_operators.c */

co_value *golden_apply_operator(golden_frame *f, json_t *step);

/* functions_calls.c */

/* A function: a name, or an inline one, which is made here. NULL with an error. */
golden_closure *golden_function_of(golden_frame *f, json_t *json);
golden_thing    golden_define(golden_frame *f, json_t *step);
/* The arguments of a call in the order of the function's names, as Python binds them; a count, or
 * -1 with CO_TYPE_ERROR. */
int golden_bind_arguments(golden_frame *f, const golden_closure *closure, json_t *args,
                          json_t *kwargs, golden_thing *out);
/* Call with bound arguments. */
golden_thing golden_call(golden_frame *f, golden_closure *closure, const golden_thing *args, int n);
/* The same with values that need no binding, in any context. */
co_value    *golden_call_values(co_context *ctx, golden_closure *closure, co_value *const *args,
                                int n);
golden_thing golden_interpret(co_context *ctx, golden_closure *closure, const golden_thing *args,
                              int n);
golden_thing golden_act_call(golden_frame *f, json_t *step);
golden_thing golden_act_concrete(golden_frame *f, json_t *step);
golden_thing golden_act_structured(golden_frame *f, json_t *step);
golden_thing golden_act_run(golden_frame *f, json_t *step);
golden_thing golden_act_merge_call(golden_frame *f, json_t *step);
golden_thing golden_act_update(golden_frame *f, json_t *step);
golden_thing golden_act_values_from_function(golden_frame *f, json_t *step);
golden_thing golden_act_experimental_run(golden_frame *f, json_t *step);
/* The co_fn and its user pointer that stand for a function in a step. */
co_fn golden_step_fn(golden_closure *closure, void **user);

/* functions_data.c */

golden_thing golden_act_dataset(golden_frame *f, json_t *step);
golden_thing golden_act_distribute_dataset(golden_frame *f, json_t *step);
golden_thing golden_act_iterator(golden_frame *f, json_t *step);
golden_thing golden_act_element_spec(golden_frame *f, json_t *step);
golden_thing golden_act_elements(golden_frame *f, json_t *step);
golden_thing golden_act_call_each(golden_frame *f, json_t *step);
golden_thing golden_act_next(golden_frame *f, json_t *step);
golden_thing golden_act_get_next(golden_frame *f, json_t *step);
golden_thing golden_act_get_next_as_optional(golden_frame *f, json_t *step);
golden_thing golden_act_has_value(golden_frame *f, json_t *step);
golden_thing golden_act_get_value(golden_frame *f, json_t *step);
golden_thing golden_act_ds_reduce(golden_frame *f, json_t *step);
golden_thing golden_act_v1_iterator(golden_frame *f, json_t *step);

/* functions_control.c */

golden_thing golden_act_cond(golden_frame *f, json_t *step);
golden_thing golden_act_switch_case(golden_frame *f, json_t *step);
golden_thing golden_act_case(golden_frame *f, json_t *step);
golden_thing golden_act_while(golden_frame *f, json_t *step);
golden_thing golden_act_map_fn(golden_frame *f, json_t *step);
golden_thing golden_act_scan(golden_frame *f, json_t *step);
golden_thing golden_act_foldl(golden_frame *f, json_t *step);
golden_thing golden_act_foldr(golden_frame *f, json_t *step);
golden_thing golden_act_for_each(golden_frame *f, json_t *step);
golden_thing golden_act_assert(golden_frame *f, json_t *step);
golden_thing golden_act_assert_equal(golden_frame *f, json_t *step);
golden_thing golden_act_assert_less(golden_frame *f, json_t *step);
golden_thing golden_act_assert_greater(golden_frame *f, json_t *step);
golden_thing golden_act_check_numerics(golden_frame *f, json_t *step);

/* functions_actions.c */

/* Statements in order; false after an error of the context or when the case cannot go on. */
bool golden_run_body(golden_frame *f, json_t *body);
/* One statement. `is_object`: its result is not recorded. */
golden_thing golden_run_statement(golden_frame *f, json_t *step, bool *is_object);
/* End the tapes that a frame left open. */
void golden_end_tapes(golden_frame *f);
/* What the library does not offer: the case fails, and the context has an error that ends what
 * runs. */
golden_thing golden_refuse(golden_frame *f, const char *what);
bool         golden_goes_on(const golden_frame *f);

/* functions_judge.c */

/* Compare entries; the first difference fails the case. */
void golden_judge_entries(golden_case *c, const char *path, json_t *seen, json_t *expected);

#endif
