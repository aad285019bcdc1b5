/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A system that cannot wipe a page of a forked child (before Linux 4.14): handles cannot tell that
 * they are in one, and the few calls that would wait for threads which are not there ask for the
 * number of the process.
 */
#include "context/context.h"
#include "engine_support.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int
madvise(void *address, size_t nbytes, int advice)
{
#ifdef MADV_WIPEONFORK
    if (advice == MADV_WIPEONFORK) {
        errno = EINVAL;
        return -1;
    }
#endif
    return (int)syscall(SYS_madvise, address, nbytes, advice);
}

static co_value *
sum_ones(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

static float
first_sum(co_context *ctx, co_strategy *m)
{
    co_value *sums = co_run(ctx, m, sum_ones, co_no_args(ctx), NULL);

    return (float)co_item_float(ctx, co_at(ctx, sums, 0));
}

static bool
refused(co_context *ctx)
{
    bool right = co_error(ctx)->code == CO_RUNTIME_ERROR &&
                 strstr(co_error(ctx)->message, "forked from process") != NULL;

    co_clear(ctx);
    return right;
}

CO_TEST_WITH(a_fork_is_found_by_its_process, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    int          status = -1;
    pid_t        child;

    CO_REQUIRE(ctx->heap.magic == &ctx->heap.store->own_magic);
    CO_EXPECT_CLOSE(first_sum(ctx, m), 2, 0);
    child = fork();
    CO_REQUIRE(child >= 0);
    if (child == 0) {
        bool right;

        alarm(10); /* who hangs is ended, and found */
        right = co_run(ctx, m, sum_ones, co_no_args(ctx), NULL) == NULL && refused(ctx);
        test_end_child(right);
    }
    CO_REQUIRE(waitpid(child, &status, 0) == child);
    CO_EXPECT_INT(status, 0);
    CO_EXPECT_CLOSE(first_sum(ctx, m), 2, 0);
}
