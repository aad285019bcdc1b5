/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best GEMM rate at this moment: 256 x 256 x 256, which fits the L2 cache, by the fastest
 * library. It is sampled in turns with the figure beside it. A virtual machine has phases of half
 * its speed, and the best of a whole run would come from another phase.
 */
#include "bench.h"
#include "peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 256, TRIALS = 40, MAX_PEERS = 2 };

struct bench_pace {
    co_context       *ctx;
    co_value         *a, *b;
    bench_product     p;
    const bench_peer *peer; /* NULL: ours */
};

static double
time_once(const bench_pace *pace, const bench_peer *peer)
{
    double begin = bench_now();

    if (peer != NULL)
        peer->multiply(&pace->p);
    else
        CO_BLOCK(pace->ctx) {
            co_matmul(pace->ctx, pace->a, pace->b);
        }
    return (bench_now() - begin) * 1e6;
}

/* In turns, too. */
static void
choose_fastest(bench_pace *pace, const bench_peer *peers, size_t num_peers)
{
    double best[MAX_PEERS + 1] = { INFINITY, INFINITY, INFINITY };
    size_t fastest = 0;

    for (int trial = 0; trial < TRIALS; ++trial)
        for (size_t i = 0; i <= num_peers; ++i)
            best[i] = fmin(best[i], time_once(pace, i > 0 ? &peers[i - 1] : NULL));
    for (size_t i = 1; i <= num_peers; ++i)
        fastest = best[i] < best[fastest] ? i : fastest;
    pace->peer = fastest > 0 ? &peers[fastest - 1] : NULL;
}

bench_pace *
bench_pace_begin(co_context *ctx, int threads)
{
    int64_t           dims[] = { SIDE, SIDE };
    size_t            num_peers;
    const bench_peer *peers = bench_peers(threads, &num_peers);
    bench_pace       *pace = malloc(sizeof(*pace));
    float            *room = aligned_alloc(64, SIDE * SIDE * sizeof(float));

    if (pace == NULL || room == NULL) {
        fprintf(stderr, "cohort-bench: no memory for a product of %d x %d\n", SIDE, SIDE);
        exit(1);
    }
    *pace = (bench_pace){ .ctx = ctx,
                          .a = co_random_uniform(ctx, CO_FLOAT32, dims, 2, -1, 1),
                          .b = co_random_uniform(ctx, CO_FLOAT32, dims, 2, -1, 1),
                          .p = { SIDE, SIDE, SIDE, false, false, NULL, NULL, room } };
    co_keep(ctx, pace->a);
    co_keep(ctx, pace->b);
    bench_check(ctx);
    pace->p.a = co_value_data(ctx, pace->a);
    pace->p.b = co_value_data(ctx, pace->b);
    choose_fastest(pace, peers, num_peers);
    bench_check(ctx);
    return pace;
}

void
bench_pace_add(const bench_pace *pace, bench_samples *times)
{
    bench_add(times, time_once(pace, pace->peer));
}

double
bench_pace_rate(const bench_samples *times)
{
    return (double)SIDE * SIDE * SIDE / bench_best(times);
}

void
bench_pace_end(bench_pace *pace)
{
    co_release(pace->ctx, pace->a);
    co_release(pace->ctx, pace->b);
    free(pace->p.c);
    free(pace);
}
