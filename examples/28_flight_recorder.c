/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See where replicas waited. A strategy records its last rendezvous: the run, the call, the values,
 * the line, the replicas that arrived, and the result. After a step that failed the last entry
 * shows the place. co_flight_format gives the same as text, with times, and the setting
 * flight_file=PATH saves it when a rendezvous fails.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
mean_of(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_MEAN, co_at(ctx, args, 0), NULL, 0);
}

/* user: whether replica 1 forgets the second rendezvous. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3));

    (void)args;
    co_merge_call(ctx, mean_of, co_args(ctx, x), NULL);
    if (co_replica_id(ctx) == 1 && *(bool *)user)
        return NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, x);
}

static void
show(const co_flight_record *r, void *user)
{
    (void)user;
    printf("%d. run %d, rendezvous %d: %s of %s at %s:%d, %d of %d replicas%s%s, %s\n",
           (int)r->number, (int)r->epoch, (int)r->sequence, r->kind, r->what, r->file, r->line,
           r->arrived, r->expected, r->missing[0] != '\0' ? " without " : "", r->missing,
           r->is_waiting ? "waiting" : co_code_name(r->outcome));
}

int
main(void)
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    bool         forgets = false;

    co_run(ctx, strategy, step, co_no_args(ctx), &forgets);
    forgets = true;
    co_run(ctx, strategy, step, co_no_args(ctx), &forgets);
    printf("%s\n", co_error(ctx)->message);
    co_flight_visit(ctx, strategy, show, NULL); /* works while there is an error */
    co_clear(ctx);
    return co_close(ctx);
}
