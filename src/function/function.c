/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured functions: the programs of a function, found by the types of arguments and by where it
 * is called, captured at need.
 */
#include "function/function.h"
#include "function/graph.h"
#include "function/plan.h"
#include "function/value_tree.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_PROGRAMS 64
#define MOST_PROGRAMS    65536
#define MOST_NESTED      64 /* functions that are captured while another is */

/* Where a function is called: what user code may ask for while it is captured (CTX-7). */
typedef struct call_place {
    co_strategy     *strategy; /* a reference; NULL: the default one */
    bool             cross, in_step;
    int              replica, num_replicas, update_id;
    bool             is_plain; /* outside of strategies, or in a run that is no more than a call */
    const co_device *device;   /* the current one; NULL: not known, or not there */
    const coi_device_name *device_id; /* its name; of the context that calls */
} call_place;

typedef struct captured {
    coi_program    *program; /* a reference */
    co_value       *types;   /* of its arguments; a reference */
    int             known;   /* coi_types_known of them */
    call_place      place;
    coi_device_name device_id; /* of place */
    bool            is_free; /* no call of it depends on the strategy: all plain places share it */
} captured;

struct co_function {
    coi_object  object;
    coi_memory *memory;
    coi_log    *log; /* of the runtime, which outlives it */
    co_fn       fn;
    void       *user;
    void       *closure; /* a reference to `user` where that is an object; NULL: it is not */
    char       *name;
    size_t      name_size;
    co_value   *signature; /* a reference; NULL: none */
    bool        relax_shapes, check;
    size_t      max_programs;
    bool        is_concrete; /* it has one program, for arguments of its types alone */
    coi_lock    lock;        /* of what follows */
    captured   *programs;    /* oldest first */
    size_t      num_programs, cap_programs;
    bool        said_limit;
    bool makes_no_variables; /* it is a step of a later capture, or tried to make some in one */
    bool user_is_gone; /* what it was given is in a frame that is over: it is captured no more */
    atomic_llong captures, replays;
};

static void
drop_captured(coi_heap *heap, captured *c)
{
    coi_unref(heap, c->program);
    coi_unref(heap, c->types);
    coi_unref(heap, c->place.strategy);
}

static void
count_programs(co_function *function, co_function_stats *stats)
{
    coi_lock_take(&function->lock);
    stats->programs = (int64_t)function->num_programs;
    for (size_t i = 0; i < function->num_programs; ++i)
        coi_regions_count(function->programs[i].program, stats);
    coi_lock_give(&function->lock);
}

static void
say_counts(co_function *function)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;
    long long         captures = atomic_load(&function->captures);
    long long         replays = atomic_load(&function->replays);

    if (replays == 0)
        return;
    count_programs(function, &stats);
    coi_log_line(function->log, CO_LOG_INFO,
                 "captured function '%s' ends: %lld call%s of %lld capture%s; %lld run%s of %lld "
                 "plan%s, of %lld bytes",
                 function->name, replays, COI_S(replays), captures, COI_S(captures),
                 (long long)stats.plan_runs, COI_S(stats.plan_runs), (long long)stats.plans,
                 COI_S(stats.plans), (long long)stats.planned_bytes);
}

static void
destroy(coi_heap *heap, void *object)
{
    co_function *function = object;

    if (function->name != NULL)
        say_counts(function);
    for (size_t i = 0; i < function->num_programs; ++i)
        drop_captured(heap, &function->programs[i]);
    coi_free(function->memory, function->programs,
             function->cap_programs * sizeof(*function->programs));
    coi_free(function->memory, function->name, function->name_size);
    coi_unref(heap, function->signature);
    coi_unref(heap, function->closure);
    coi_object_free(heap, function, sizeof(*function));
}

static const coi_class function_class = { "function", destroy, NULL };

/* --- making one --- */

static bool
check_options(co_context *ctx, co_fn fn, const co_function_options *options)
{
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (fn) of function_of is NULL; it must be a function");
        return false;
    }
    if (options->max_programs < 0 || options->max_programs > MOST_PROGRAMS) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "options->max_programs is %d; it must be 0, for %d, or up to %d",
                 options->max_programs, DEFAULT_PROGRAMS, MOST_PROGRAMS);
        return false;
    }
    return options->signature == NULL || coi_check_signature(ctx, options->signature);
}

co_function *
co_function_of(co_context *ctx, co_fn fn, void *user, const co_function_options *options)
{
    co_function_options all = CO_FUNCTION_OPTIONS_INIT;
    co_function        *function;

    COI_ENTER(ctx, "function_of", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) || !check_options(ctx, fn, &all))
        return NULL;
    function = coi_object_new(&ctx->heap, &function_class, sizeof(*function));
    if (function == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
        return NULL;
    }
    function->memory = &ctx->runtime->memory;
    function->log = &ctx->runtime->log;
    function->fn = fn;
    function->user = user;
    function->relax_shapes = all.relax_shapes;
    function->check = all.check || ctx->runtime->settings.check_functions;
    function->max_programs = all.max_programs > 0 ? (size_t)all.max_programs : DEFAULT_PROGRAMS;
    coi_lock_init(&function->lock);
    if (all.name == NULL)
        all.name = "function";
    function->name_size = strlen(all.name) + 1;
    function->name = coi_strndup(function->memory, all.name, function->name_size - 1);
    if (all.signature != NULL) {
        coi_ref(all.signature);
        function->signature = all.signature;
    }
    if (function->name != NULL)
        return coi_own(ctx, function);
    coi_unref(&ctx->heap, function);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
    return NULL;
}

void
coi_function_inherit(const co_context *ctx, co_function *function)
{
    function->makes_no_variables = ctx->capture != NULL && !ctx->capture->may_create;
}

/* Frames are asked for, since a sanitizer may keep variables elsewhere: of those nothing is known.
 */
coi_outer_capture
coi_outermost_capture(const co_context *ctx)
{
    coi_outer_capture outer = { NULL, __builtin_frame_address(0), 0 };

    if (ctx->outer_capture != NULL)
        return *ctx->outer_capture;
    for (const coi_capture *c = ctx->capture; c != NULL; c = c->outer)
        if (c->stack != NULL) {
            outer.first_frame = c->stack;
            outer.program = c->program;
        }
    return outer;
}

/* Stacks grow in either direction. */
static bool
is_between(const void *a, const void *b, const void *pointer)
{
    uintptr_t first = (uintptr_t)a, last = (uintptr_t)b, at = (uintptr_t)pointer;

    return first <= last ? first <= at && at <= last : last <= at && at <= first;
}

/* A step of several replicas has frames on the stack of its thread, and its caller on another. */
bool
coi_is_in_captured_frames(const co_context *ctx, const void *pointer)
{
    coi_outer_capture outer = coi_outermost_capture(ctx);
    const void       *first = NULL;

    if (outer.first_frame != NULL && is_between(outer.first_frame, outer.last_frame, pointer))
        return true;
    for (const coi_capture *c = ctx->capture; c != NULL; c = c->outer)
        first = c->stack != NULL ? c->stack : first;
    return first != NULL && is_between(first, __builtin_frame_address(0), pointer);
}

void
coi_function_outlives(const co_context *ctx, co_function *function, const void *user)
{
    function->user_is_gone = coi_is_in_captured_frames(ctx, user);
}

co_function *
coi_function_of_closure(co_context *ctx, co_fn fn, void *closure, const char *name)
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *function;

    options.name = name;
    function = co_function_of(ctx, fn, closure, &options);
    if (function != NULL) {
        coi_ref(closure);
        function->closure = closure;
        coi_function_inherit(ctx, function);
    }
    return function;
}

/* --- finding a program --- */

static call_place
place_of(const co_context *ctx)
{
    const coi_mode *mode = &ctx->mode;

    bool is_default = mode->strategy == NULL && mode->step == NULL;

    return (call_place){ .strategy = mode->strategy,
                         .cross = mode->cross,
                         .in_step = mode->step != NULL,
                         .replica = mode->replica,
                         .num_replicas = mode->num_replicas,
                         .update_id = mode->update_id,
                         .is_plain = !mode->cross && mode->update_id < 0 &&
                                     (is_default || mode->is_direct),
                         .device = ctx->device,
                         .device_id = &ctx->device_id };
}

/* By name only where a device is not known. */
static bool
is_same_device(const captured *c, const call_place *place)
{
    return c->place.device != NULL && place->device != NULL
               ? c->place.device == place->device
               : coi_device_name_equal(&c->device_id, place->device_id);
}

static bool
is_same_place(const call_place *a, const call_place *b)
{
    return a->strategy == b->strategy && a->cross == b->cross && a->in_step == b->in_step &&
           a->replica == b->replica && a->num_replicas == b->num_replicas &&
           a->update_id == b->update_id;
}

static bool
serves_place(const captured *c, const call_place *place)
{
    return ((c->is_free && c->place.is_plain && place->is_plain) ||
            is_same_place(&c->place, place)) &&
           is_same_device(c, place);
}

/* The most specific program for arguments, and its types where `types` is not NULL: references, or
 * NULL. */
static coi_program *
find_program(co_function *function, const call_place *place, co_value *args, co_value **types)
{
    co_value    *best_types = NULL;
    coi_program *best = NULL;
    int          most = -1;

    coi_lock_take(&function->lock);
    for (size_t i = function->num_programs; i > 0; --i) {
        const captured *c = &function->programs[i - 1];

        if (c->known > most && serves_place(c, place) && coi_fits_types(c->types, args) &&
            (!c->program->is_tied || coi_has_same_datasets(c->types, args))) {
            most = c->known;
            best = c->program;
            best_types = c->types;
        }
    }
    if (best != NULL)
        coi_ref(best);
    if (best != NULL && types != NULL) {
        coi_ref(best_types);
        *types = best_types;
    }
    coi_lock_give(&function->lock);
    return best;
}

/* --- capturing one --- */

static void
say_limit(co_context *ctx, const co_function *function, const co_value *before,
          const co_value *types)
{
    char one[300], other[300];

    coi_format(&ctx->heap, before, one, sizeof(one));
    coi_format(&ctx->heap, types, other, sizeof(other));
    coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                 "captured function '%s' has %zu programs, and every new one drops the oldest: its "
                 "arguments keep changing, lately from %s to %s; give it a signature with unknown "
                 "dimensions (-1), and pass numbers that change as tensors",
                 function->name, function->max_programs, one, other);
}

/* Keep a program. Threads that capture for the same types at once keep one each; both are right. */
static coi_program *
keep_program(co_context *ctx, co_function *function, const captured *c)
{
    captured dropped = { .program = NULL };
    bool     ok, says = false;

    coi_lock_take(&function->lock);
    if (function->num_programs == function->max_programs) {
        dropped = function->programs[0];
        memmove(&function->programs[0], &function->programs[1],
                --function->num_programs * sizeof(*function->programs));
        says = !function->said_limit;
        function->said_limit = true;
    }
    ok = coi_grow(function->memory, (void **)&function->programs, &function->cap_programs,
                  function->num_programs + 1, sizeof(*function->programs));
    if (ok) {
        coi_ref(c->program);
        coi_ref(c->types);
        if (c->place.strategy != NULL)
            coi_ref(c->place.strategy);
        function->programs[function->num_programs] = *c;
        function->programs[function->num_programs++].place.device_id = NULL; /* the caller's */
    }
    coi_lock_give(&function->lock);
    if (says)
        say_limit(ctx, function, dropped.types, c->types);
    drop_captured(&ctx->heap, &dropped);
    return c->program; /* also where there was no memory to keep it */
}

/* With relax_shapes: types that fit an earlier call too, if only shapes differ. */
static co_value *
relaxed_types(co_context *ctx, co_function *function, const call_place *place, co_value *types)
{
    co_value *joined = types;

    coi_lock_take(&function->lock);
    for (size_t i = 0; i < function->num_programs && joined != NULL; ++i) {
        const captured *c = &function->programs[i];
        co_value *both = serves_place(c, place) ? coi_join_types(ctx, joined, c->types) : NULL;

        if (both != NULL || ctx->error.code != CO_OK)
            joined = both;
    }
    coi_lock_give(&function->lock);
    return joined;
}

static bool
check_nesting(co_context *ctx, const co_function *function)
{
    int depth = 0;

    for (const coi_capture *c = ctx->capture; c != NULL; c = c->outer)
        ++depth;
    if (depth < MOST_NESTED)
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "capturing '%s' inside %d other captures; a captured function that calls itself needs "
             "an argument on the host that ends it",
             function->name, depth);
    return false;
}

static bool
check_user(co_context *ctx, const co_function *function)
{
    if (!function->user_is_gone)
        return true;
    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "the %s would have to be captured again, for values of other types or at another place, and "
        "its user pointer is to a local variable of a function that has returned; let it point to "
        "memory that lives as long as the captured function",
        function->name);
    return false;
}

/* FN-6: no program was captured before, but for other replicas of the step. */
static bool
is_first_capture(co_function *function, const call_place *place)
{
    bool is_first;

    coi_lock_take(&function->lock);
    is_first = !function->makes_no_variables;
    for (size_t i = 0; i < function->num_programs; ++i) {
        const call_place *other = &function->programs[i].place;

        is_first = is_first && other->strategy == place->strategy &&
                   ((other->in_step && place->in_step && other->replica != place->replica) ||
                    other->update_id != place->update_id);
    }
    coi_lock_give(&function->lock);
    return is_first;
}

/* A new program for these types, which nobody keeps yet: a reference, or NULL with an error. */
static coi_program *
capture_types(co_context *ctx, co_function *function, co_value *types, bool is_first,
              bool *makes_variables)
{
    coi_program *program = check_nesting(ctx, function) && check_user(ctx, function)
                               ? coi_program_new(ctx)
                               : NULL;
    co_value    *args = program != NULL ? coi_symbols_of_types(ctx, program, types) : NULL;

    *makes_variables = false;
    if (args == NULL) {
        coi_unref(&ctx->heap, program);
        return NULL;
    }
    atomic_fetch_add_explicit(&function->captures, 1, memory_order_relaxed);
    return coi_capture_program(ctx, program, function->name, function->fn, function->user, args,
                               is_first, makes_variables);
}

/* It tried to make a variable in a later capture than the first, so it is not what it was: what was
 * captured before does not say any more what it does. */
static void
drop_programs(co_context *ctx, co_function *function)
{
    captured *dropped;
    size_t    n, cap;

    coi_lock_take(&function->lock);
    dropped = function->programs;
    n = function->num_programs;
    cap = function->cap_programs;
    function->programs = NULL;
    function->num_programs = function->cap_programs = 0;
    function->makes_no_variables = true;
    coi_lock_give(&function->lock);
    for (size_t i = 0; i < n; ++i)
        drop_captured(&ctx->heap, &dropped[i]);
    coi_free(function->memory, dropped, cap * sizeof(*dropped));
}

/*
 * The same with variables (FN-6). After a capture that made some it is captured once more: what it
 * does in later calls, when they are there, is its program. One that makes new variables then, or
 * in a later capture, is refused.
 */
static coi_program *
capture_whole(co_context *ctx, co_function *function, const call_place *place, co_value *types)
{
    bool         makes_variables, may_create = is_first_capture(function, place);
    coi_program *program = capture_types(ctx, function, types, may_create, &makes_variables);

    if (program != NULL && makes_variables) {
        coi_program *first = program; /* which holds the variables that it made */

        may_create = false;
        program = capture_types(ctx, function, types, may_create, &makes_variables);
        coi_unref(&ctx->heap, first);
    }
    if (program == NULL && makes_variables && !may_create)
        drop_programs(ctx, function);
    return program;
}

static bool
is_free_of_place(const coi_program *program)
{
    return !program->asks_place &&
           !coi_program_acts_on(program, CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS);
}

static coi_program *
capture(co_context *ctx, co_function *function, const call_place *place, co_value *types)
{
    coi_program *program = capture_whole(ctx, function, place, types);

    if (program == NULL)
        return NULL;
    coi_log_line(&ctx->runtime->log, CO_LOG_INFO, "captured '%s': %zu calls", function->name,
                 program->num_steps);
    return keep_program(ctx, function,
                        &(captured){ program, types, coi_types_known(types), *place,
                                     *place->device_id, is_free_of_place(program) });
}

/* The types of a new program: the signature, or those of the arguments. */
static co_value *
types_for(co_context *ctx, co_function *function, const call_place *place, co_value *args)
{
    co_value *types;

    if (function->signature != NULL) {
        types = coi_signature_here(ctx, function->signature);
        if (types != NULL)
            types = co_tuple(ctx, types->u.items.items, types->u.items.n);
        return types != NULL ? coi_types_of_args(ctx, types) : NULL; /* of its own */
    }
    types = coi_types_of_args(ctx, args);
    return types != NULL && function->relax_shapes ? relaxed_types(ctx, function, place, types)
                                                   : types;
}

/* Where a function is an argument of itself, it keeps types without a reference to itself. */
static co_value *
borrow_itself(co_context *ctx, co_value *leaf, void *function)
{
    return leaf->kind == CO_KIND_FUNCTION && leaf->u.object == function
               ? coi_function_as_value(ctx, function, true)
               : leaf;
}

/* For types that something else keeps. */
static co_value *
hold_function(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_FUNCTION && (leaf->flags & COI_FLAG_BORROWED) != 0
               ? coi_function_as_value(ctx, leaf->u.object, false)
               : leaf;
}

/* A reference to a new program; `*types` is one to the types of its arguments. */
static coi_program *
capture_for(co_context *ctx, co_function *function, const call_place *place, co_value *args,
            co_value **types)
{
    coi_program *program = NULL;

    co_block_begin(ctx);
    *types = types_for(ctx, function, place, args);
    if (*types != NULL)
        *types = coi_tree_map(ctx, *types, borrow_itself, function);
    if (*types != NULL)
        program = capture(ctx, function, place, *types);
    if (program != NULL)
        coi_ref(*types);
    co_block_end(ctx);
    return program;
}

/* --- calling --- */

static bool
check_call(co_context *ctx, co_function *function, co_value *args)
{
    if (!coi_check_object(ctx, function, &function_class, 2, "function") ||
        !coi_check_value(ctx, args, 3, "args"))
        return false;
    if (coi_is_sequence(args))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "argument 3 (args) of call is %s; it must be a tuple or list (co_args makes one)",
             coi_a_kind(args->kind));
    return false;
}

/* A reference to the program, or NULL with an error if the function does something else now. */
static coi_program *
check_program(co_context *ctx, co_function *function, coi_program *program, co_value *types)
{
    coi_program *again;
    bool         same, makes_variables;

    if (function->user_is_gone)
        return program;
    co_block_begin(ctx);
    again = capture_types(ctx, function, types, false, &makes_variables);
    same = again != NULL && coi_check_same_program(ctx, function->name, program, again);
    co_block_end(ctx);
    coi_unref(&ctx->heap, again);
    if (same)
        return program;
    coi_unref(&ctx->heap, program);
    return NULL;
}

/* The program that was captured for these types at this place: a reference, or NULL. */
static coi_program *
program_of_types(co_function *function, const call_place *place, co_value *types)
{
    coi_program *program = NULL;

    coi_lock_take(&function->lock);
    for (size_t i = 0; i < function->num_programs && program == NULL; ++i) {
        const captured *c = &function->programs[i];

        if (is_same_place(&c->place, place) && is_same_device(c, place) &&
            coi_fits_types(c->types, types) && coi_fits_types(types, c->types))
            program = c->program;
    }
    if (program != NULL)
        coi_ref(program);
    coi_lock_give(&function->lock);
    return program;
}

/* Each capture of a call makes a function of its own, which nobody else has yet. */
bool
coi_check_same_function(co_context *ctx, co_function *before, co_function *now)
{
    bool same = true;

    for (size_t i = 0; i < now->num_programs && same; ++i) {
        const captured *c = &now->programs[i];
        coi_program    *program = program_of_types(before, &c->place, c->types);

        same = program == NULL || coi_check_same_program(ctx, now->name, program, c->program);
        coi_unref(&ctx->heap, program);
    }
    return same;
}

/* The program that a call with these arguments takes, and the types that it was captured for:
 * references, or NULL with an error. */
static coi_program *
program_for(co_context *ctx, co_function *function, co_value *args, co_value **types)
{
    call_place   place = place_of(ctx);
    coi_program *program = find_program(function, &place, args, types);

    if (program == NULL)
        return capture_for(ctx, function, &place, args, types);
    if (function->check && (program = check_program(ctx, function, program, *types)) == NULL)
        coi_unref(&ctx->heap, *types);
    return program;
}

coi_program *
coi_function_program(co_context *ctx, co_function *function, co_value *args)
{
    co_value    *types = NULL;
    call_place   place = place_of(ctx);
    coi_program *program = function->check ? NULL : find_program(function, &place, args, NULL);

    if (program != NULL) /* most calls */
        return program;
    program = program_for(ctx, function, args, &types);
    if (program != NULL)
        coi_unref(&ctx->heap, types);
    return program;
}

bool
coi_is_nested_call(const co_context *ctx)
{
    return ctx->capture != NULL && ((ctx->capture->outer != NULL && !ctx->capture->is_part) ||
                                    ctx->capture->num_inlined > 0);
}

/* In a function that is being captured, the calls become its own. */
static co_value *
replay(co_context *ctx, const coi_program *program, co_value *args)
{
    coi_capture *capture = ctx->capture;
    co_value    *result;

    if (capture != NULL && program->asks_place)
        coi_note_place(ctx);
    if (capture != NULL)
        ++capture->num_inlined;
    result = coi_program_replay(ctx, program, args);
    if (capture != NULL)
        --capture->num_inlined;
    return result;
}

/* A tuple of arguments in the types of the signature, if there is one; NULL with an error. */
static co_value *
take_args(co_context *ctx, const co_function *function, co_value *args, bool takes_specs)
{
    co_value *signature = function->signature;

    if (args->kind != CO_KIND_TUPLE)
        args = co_tuple(ctx, args->u.items.items, args->u.items.n);
    if (args == NULL || signature == NULL)
        return args;
    signature = coi_signature_here(ctx, signature);
    return signature != NULL ? coi_args_for_signature(ctx, signature, args, takes_specs) : NULL;
}

/* A program that holds a dataset made of its argument serves that argument alone. */
static bool
check_tied(co_context *ctx, const co_function *function, const captured *c, co_value *args)
{
    if (!c->program->is_tied || coi_has_same_datasets(c->types, args))
        return true;
    coi_fail(ctx, CO_TYPE_ERROR,
             "concrete function '%s' holds a dataset that was made of its argument, so it takes "
             "the dataset that it was captured with; call the function that co_function_of made, "
             "or make the dataset outside and pass it",
             function->name);
    return false;
}

/* It holds where it was captured, or anywhere if its calls do not depend on the place. */
static bool
check_place(co_context *ctx, const co_function *function, const captured *c)
{
    call_place place = place_of(ctx);

    if (c->is_free || serves_place(c, &place))
        return true;
    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "concrete function '%s' was captured %s strategy, asks which replica calls it or calls "
        "the others, and is called %s; call the function that co_function_of made, which is "
        "captured where it is called",
        function->name, c->place.strategy != NULL ? "under a" : "without a",
        place.in_step && !place.is_plain      ? "in a step of several replicas"
        : place.strategy != c->place.strategy ? "under another one"
                                              : "at another place");
    return false;
}

static void
count_replay(co_function *function)
{
    atomic_fetch_add_explicit(&function->replays, 1, memory_order_relaxed);
}

static coi_program *
program_to_call(co_context *ctx, co_function *function, co_value **args)
{
    const captured *only;

    *args = take_args(ctx, function, *args, false);
    if (*args == NULL || !function->is_concrete)
        return *args != NULL ? coi_function_program(ctx, function, *args) : NULL;
    only = &function->programs[0];
    *args = coi_args_for_signature(ctx, only->types, *args, false);
    if (*args == NULL || !check_tied(ctx, function, only, *args) ||
        !check_place(ctx, function, only))
        return NULL;
    coi_ref(only->program);
    return only->program;
}

static bool
is_known(const co_function *function)
{
    return function->signature == NULL && !function->check && !function->is_concrete;
}

/* The program of a call whose arguments fit an earlier one, which most do; NULL: look further. No
 * code of the user runs here. */
static coi_program *
find_known(co_context *ctx, co_function *function, co_value *args)
{
    call_place   place;
    coi_program *program;

    if (!is_known(function) || args->kind != CO_KIND_TUPLE)
        return NULL;
    place = place_of(ctx);
    program = find_program(function, &place, args, NULL);
    if (program != NULL)
        count_replay(function);
    return program;
}

/* Any call. Capturing runs code of the user, which may release the function. */
static coi_program *
find_or_capture(co_context *ctx, co_function *function, co_value **args)
{
    coi_program *program;

    coi_ref(function);
    program = program_to_call(ctx, function, args);
    if (program != NULL)
        count_replay(function);
    coi_unref(&ctx->heap, function);
    return program;
}

/* From the program on, the function is not needed any more. */
co_value *
co_call(co_context *ctx, co_function *function, co_value *args)
{
    coi_program *program;
    co_value    *result;

    COI_ENTER(ctx, "call", NULL);
    if (!check_call(ctx, function, args))
        return NULL;
    program = find_known(ctx, function, args);
    if (program == NULL && (program = find_or_capture(ctx, function, &args)) == NULL)
        return NULL;
    result = coi_in_graph(ctx) ? coi_graph_call(ctx, program, args) : replay(ctx, program, args);
    coi_unref(&ctx->heap, program);
    return result;
}

co_value *
co_captured(co_context *ctx, co_value *args, void *function)
{
    co_function *step = function;

    COI_ENTER(ctx, "captured", NULL);
    if (!coi_check_object(ctx, step, &function_class, 2, "function"))
        return NULL;
    if (step->signature != NULL && !coi_check_run_signature(ctx, step->signature))
        return NULL;
    return co_call(ctx, step, args);
}

/* --- as a value --- */

static void
destroy_value(coi_heap *heap, co_value *value)
{
    if ((value->flags & COI_FLAG_BORROWED) == 0)
        coi_unref(heap, value->u.object);
}

static void
print_value(coi_printer *out, const co_value *value)
{
    coi_print(out, "Function '%.60s'", ((const co_function *)value->u.object)->name);
}

static bool
is_same_function(const co_value *a, const co_value *b)
{
    return a->u.object == b->u.object;
}

const coi_kind_ops coi_function_kind = {
    .name = "function",
    .a_name = "a function",
    .destroy = destroy_value,
    .print = print_value,
    .same = is_same_function,
};

co_value *
coi_function_as_value(co_context *ctx, co_function *function, bool borrows)
{
    co_value *value = coi_value_new(&ctx->heap, CO_KIND_FUNCTION);

    if (value == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a function as a value");
        return NULL;
    }
    if (borrows)
        value->flags = COI_FLAG_BORROWED;
    else
        coi_ref(function);
    value->u.object = function;
    return coi_own(ctx, value);
}

co_value *
co_function_value(co_context *ctx, co_function *function)
{
    COI_ENTER(ctx, "function_value", NULL);
    return coi_check_object(ctx, function, &function_class, 2, "function")
               ? coi_function_as_value(ctx, function, false)
               : NULL;
}

co_function *
co_value_function(co_context *ctx, co_value *value)
{
    COI_ENTER(ctx, "value_function", NULL);
    return coi_check_kind(ctx, value, CO_KIND_FUNCTION, 2, "value")
               ? coi_own_ref(ctx, value->u.object)
               : NULL;
}

/* --- concrete functions --- */

/* A function with this program alone: a value of the block, or NULL with an error. */
static co_function *
concrete_of(co_context *ctx, const co_function *function, coi_program *program, co_value *types)
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *concrete;
    captured            only = { program,       types,          coi_types_known(types),
                                 place_of(ctx), ctx->device_id, is_free_of_place(program) };

    if ((only.types = coi_tree_map(ctx, types, hold_function, NULL)) == NULL)
        return NULL;
    options.name = function->name;
    concrete = co_function_of(ctx, function->fn, function->user, &options);
    if (concrete == NULL)
        return NULL;
    concrete->is_concrete = true;
    keep_program(ctx, concrete, &only);
    if (concrete->num_programs == 1)
        return concrete;
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a concrete function");
    return NULL;
}

/* What a concrete function is made for: the types of arguments, or those of the signature. */
static co_value *
concrete_args(co_context *ctx, const co_function *function, co_value *args)
{
    if (args != NULL && !coi_check_value(ctx, args, 3, "args"))
        return NULL;
    if (args != NULL && !coi_is_sequence(args)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (args) of function_concrete is %s; it must be a tuple or list "
                 "(co_args makes one)",
                 coi_a_kind(args->kind));
        return NULL;
    }
    if (function->signature != NULL && (args == NULL || args->u.items.n == 0))
        args = coi_signature_here(ctx, function->signature);
    else if (args == NULL)
        args = co_tuple(ctx, NULL, 0);
    return args != NULL ? take_args(ctx, function, args, true) : NULL;
}

co_function *
co_function_concrete(co_context *ctx, co_function *function, co_value *args)
{
    co_function *concrete = NULL;
    coi_program *program;
    co_value    *types;

    COI_ENTER(ctx, "function_concrete", NULL);
    if (!coi_check_object(ctx, function, &function_class, 2, "function"))
        return NULL;
    if (function->is_concrete) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (function) of function_concrete is concrete already; give it the "
                 "function that co_function_of made");
        return NULL;
    }
    coi_ref(function); /* which its own code may release */
    args = concrete_args(ctx, function, args);
    program = args != NULL ? program_for(ctx, function, args, &types) : NULL;
    if (program != NULL) {
        concrete = concrete_of(ctx, function, program, types);
        coi_unref(&ctx->heap, program);
        coi_unref(&ctx->heap, types);
    }
    coi_unref(&ctx->heap, function);
    return concrete;
}

static const captured *
only_program(co_context *ctx, const co_function *function)
{
    if (!coi_check_object(ctx, function, &function_class, 2, "function"))
        return NULL;
    if (function->is_concrete)
        return &function->programs[0];
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (function) of %s is a function of any types; give it what "
             "co_function_concrete made",
             ctx->call);
    return NULL;
}

static co_value *
spec_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_TENSOR || coi_is_type(leaf) || coi_is_variable(leaf)
               ? coi_fresh_type(ctx, leaf)
               : leaf;
}

co_value *
co_function_arg_specs(co_context *ctx, const co_function *function)
{
    const captured *only;

    COI_ENTER(ctx, "function_arg_specs", NULL);
    only = only_program(ctx, function);
    return only != NULL ? coi_tree_map(ctx, only->types, spec_leaf, NULL) : NULL;
}

co_value *
co_function_result_spec(co_context *ctx, const co_function *function)
{
    const captured *only;

    COI_ENTER(ctx, "function_result_spec", NULL);
    only = only_program(ctx, function);
    return only != NULL ? coi_tree_map(ctx, only->program->result, spec_leaf, NULL) : NULL;
}

co_code
co_function_get_stats(co_context *ctx, const co_function *function, co_function_stats *stats)
{
    co_function_stats all = CO_FUNCTION_STATS_INIT;
    size_t            size;

    COI_ENTER_CODE(ctx, "function_get_stats");
    if (!coi_check_object(ctx, function, &function_class, 2, "function"))
        return ctx->error.code;
    if (stats == NULL || stats->struct_size < sizeof(stats->struct_size))
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 3 (stats) of function_get_stats is %s; begin with "
                        "CO_FUNCTION_STATS_INIT",
                        stats == NULL ? "NULL" : "without struct_size");
    size = stats->struct_size;
    all.captures = atomic_load_explicit(&function->captures, memory_order_relaxed);
    all.replays = atomic_load_explicit(&function->replays, memory_order_relaxed);
    count_programs((co_function *)(uintptr_t)function, &all);
    memcpy(stats, &all, size < sizeof(all) ? size : sizeof(all));
    stats->struct_size = size;
    return CO_OK;
}

/* The program that was captured last: a reference, or NULL. */
static coi_program *
last_program(co_function *function)
{
    coi_program *program = NULL;

    coi_lock_take(&function->lock);
    if (function->num_programs > 0) {
        program = function->programs[function->num_programs - 1].program;
        coi_ref(program);
    }
    coi_lock_give(&function->lock);
    return program;
}

typedef size_t (*program_text_fn)(co_context *ctx, const coi_program *program, char *out,
                                  size_t capacity);

static size_t
write_text(co_context *ctx, co_function *function, program_text_fn fn, char *out, size_t capacity)
{
    coi_program *program;
    size_t       length = 0;

    if (!coi_check_object(ctx, function, &function_class, 2, "function"))
        return 0;
    program = last_program(function);
    if (program != NULL)
        length = fn(ctx, program, out, capacity);
    coi_unref(&ctx->heap, program);
    return length;
}

size_t
co_function_print(co_context *ctx, co_function *function, char *out, size_t capacity)
{
    if (out == NULL)
        capacity = 0;
    if (capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "function_print", 0);
    return write_text(ctx, function, coi_program_print, out, capacity);
}

size_t
co_function_dot(co_context *ctx, co_function *function, char *out, size_t capacity)
{
    if (out == NULL)
        capacity = 0;
    if (capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "function_dot", 0);
    return write_text(ctx, function, coi_program_dot, out, capacity);
}
