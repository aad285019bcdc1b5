/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that replicas make in a step (VAR-RUN-1 to VAR-RUN-3). Replica 0 makes them for all,
 * without waiting for the others; each of those gets, for the k-th time that it asks for a name,
 * the k-th variable of that name. It waits until replica 0 has made that variable, or until replica
 * 0 waits or has returned without having made it.
 */
#include "ops/engine/execute.h"
#include "strategy/rendezvous.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>

COI_USES_OP(merge_call)

/* A variable of the step. What a replica has taken, it alone marks. */
struct coi_made_variable {
    struct coi_made_variable *next; /* made later */
    size_t                    nbytes;
    co_value                 *variable; /* a reference */
    char                     *name;
    bool                      is_taken[]; /* by local replica; the name is behind it */
};

/* The length of a part of a name without a trailing "_2" that made it unique. */
static size_t
base_length(const char *part, size_t n)
{
    size_t digits = n;

    while (digits > 0 && isdigit((unsigned char)part[digits - 1]))
        --digits;
    return digits < n && digits > 1 && part[digits - 1] == '_' ? digits - 1 : n;
}

/* Whether names are the same but for what made them unique, in every part of the path. */
static bool
same_base(const char *a, const char *b)
{
    for (;;) {
        size_t to_a = strcspn(a, "/"), to_b = strcspn(b, "/"), n = base_length(a, to_a);

        if (n != base_length(b, to_b) || memcmp(a, b, n) != 0 || a[to_a] != b[to_b])
            return false;
        if (a[to_a] == '\0')
            return true;
        a += to_a + 1;
        b += to_b + 1;
    }
}

static bool
publish(co_context *ctx, const char *name, co_value *variable)
{
    coi_step           *step = ctx->mode.step;
    size_t              length = strlen(name) + 1;
    size_t              nbytes = sizeof(coi_made_variable) + (size_t)step->n + length;
    coi_made_variable **last = &step->made, *made = coi_calloc(&ctx->runtime->memory, nbytes);

    if (made == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to share variable '%.*s%s'",
                 COI_CUT(100, name));
        return false;
    }
    made->nbytes = nbytes;
    made->variable = variable;
    made->name = (char *)made->is_taken + step->n;
    memcpy(made->name, name, length);
    coi_ref(variable);
    coi_lock_take(&step->made_lock);
    while (*last != NULL)
        last = &(*last)->next;
    *last = made;
    coi_lock_give(&step->made_lock);
    coi_tell_awaiting(step);
    return true;
}

typedef struct asking {
    const char    *name;
    co_value      *initial;
    coi_merge_body body;
    void          *arg;
    co_value      *result; /* a reference */
} asking;

/* The next variable of the name that this replica has not taken. */
static bool
take(co_context *ctx, void *arg)
{
    coi_step          *step = ctx->mode.step;
    asking            *a = arg;
    int                me = ctx->mode.local_replica;
    coi_made_variable *made;

    coi_lock_take(&step->made_lock);
    for (made = step->made; made != NULL; made = made->next)
        if (!made->is_taken[me] && same_base(made->name, a->name))
            break;
    coi_lock_give(&step->made_lock);
    if (made == NULL)
        return false;
    made->is_taken[me] = true;
    coi_ref(made->variable);
    a->result = made->variable;
    return true;
}

static bool
make_or_take(co_context *ctx, void *arg)
{
    coi_step *step = ctx->mode.step;
    asking   *a = arg;
    int       first = step->strategy->first_local;

    if (ctx->mode.local_replica == 0) {
        a->result = coi_merge_first(ctx, a->initial, a->body, a->arg);
        if (a->result == NULL)
            return false;
        if (step->n == 1 || publish(ctx, a->name, a->result))
            return true;
        coi_unref(&ctx->heap, a->result);
        a->result = NULL;
        return false;
    }
    if (coi_await_first(ctx, COI_RENDEZVOUS_VARIABLE, a->initial, take, a))
        return true;
    if (ctx->error.code == CO_OK)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "replicas disagree: replica %d makes variable '%.*s%s', and replica %d %s without "
                 "one of that name; replica %d makes variables for all, the others no more than it",
                 first + ctx->mode.local_replica, COI_CUT(100, a->name), first,
                 atomic_load(&step->slots[0].finished) ? "has returned" : "waits for the others",
                 first);
    return false;
}

co_value *
coi_step_variable(co_context *ctx, const char *name, co_value *initial, coi_merge_body body,
                  void *arg)
{
    asking a = { name, initial, body, arg, NULL };

    return coi_execute_body(ctx, &coi_op_merge_call,
                            (coi_effect){
                                .in = &initial, .num_in = 1, .out = &a.result, .num_out = 1 },
                            make_or_take, &a)
               ? a.result
               : NULL;
}

void
coi_step_variables_free(coi_step *step, coi_heap *heap)
{
    while (step->made != NULL) {
        coi_made_variable *made = step->made;

        step->made = made->next;
        coi_unref(heap, made->variable);
        coi_free(&step->strategy->runtime->memory, made, made->nbytes);
    }
}
