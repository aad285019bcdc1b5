/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matmuls of four models' steps, forward and backward, through the public interface, beside the
 * times of other libraries. Large ones are compared with the best rate of any library on this
 * machine, sampled in turns, small ones with the faster peer.
 */
#include "bench.h"
#include "peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 1000, MAX_PEERS = 2, LARGE = 128, MIDDLE = 32 };

#define SHARE_OF_LARGE  0.85 /* of the best rate, at least */
#define SHARE_OF_MIDDLE 0.75
#define SECONDS         0.4 /* for one matmul, all peers together */
#define SAMPLE_US       50.0

typedef struct shape {
    int         m, n, k;
    const char *way; /* nn: forward; nt: towards the input; tn: towards the weights */
} shape;

static const shape shapes[] = {
    /* mlp_small: 64-64-10, batch 32 */
    { 32, 64, 64, "nn" },
    { 32, 10, 64, "nn" },
    { 32, 64, 10, "nt" },
    { 64, 64, 32, "tn" },
    { 64, 10, 32, "tn" },
    /* mlp: 784-512-512-10, batch 128 */
    { 128, 512, 784, "nn" },
    { 128, 512, 512, "nn" },
    { 128, 10, 512, "nn" },
    { 128, 512, 512, "nt" },
    { 128, 512, 10, "nt" },
    { 784, 512, 128, "tn" },
    { 512, 512, 128, "tn" },
    { 512, 10, 128, "tn" },
    /* cnn: its dense layers, 3136-128-10, batch 64 */
    { 64, 128, 3136, "nn" },
    { 64, 10, 128, "nn" },
    { 64, 3136, 128, "nt" },
    { 64, 128, 10, "nt" },
    { 3136, 128, 64, "tn" },
    { 128, 10, 64, "tn" },
    /* gpt: 512 tokens, width 128: qkv, out, up, down, logits with the table of the input */
    { 512, 384, 128, "nn" },
    { 512, 128, 128, "nn" },
    { 512, 512, 128, "nn" },
    { 512, 128, 512, "nn" },
    { 512, 128, 128, "nt" },
    { 512, 128, 384, "nt" },
    { 512, 128, 512, "nt" },
    { 512, 512, 128, "nt" },
    { 128, 384, 512, "tn" },
    { 128, 128, 512, "tn" },
    { 128, 512, 512, "tn" },
    { 512, 128, 512, "tn" },
};

/* One matmul, ours and the peers'. */
typedef struct contest {
    bench_product p;
    co_value     *a, *b;
    bench_samples ours, peer[MAX_PEERS], paces;
} contest;

typedef struct bench_setting {
    co_context       *ctx;
    const bench_peer *peers;
    size_t            num_peers;
    bench_pace       *pace;
} bench_setting;

static double
multiply_adds(const bench_product *p)
{
    return (double)p->m * p->n * p->k;
}

static double
time_ours(co_context *ctx, const contest *c, int repeat)
{
    double begin = bench_now();

    for (int i = 0; i < repeat; ++i)
        CO_BLOCK(ctx) {
            co_matmul_transposed(ctx, c->a, c->b, c->p.transpose_a, c->p.transpose_b);
        }
    return (bench_now() - begin) / repeat * 1e6;
}

static double
time_peer(const bench_peer *peer, const bench_product *p, int repeat)
{
    double begin = bench_now();

    for (int i = 0; i < repeat; ++i)
        peer->multiply(p);
    return (bench_now() - begin) / repeat * 1e6;
}

/* In turn, so that what disturbs one disturbs all. */
static void
hold(const bench_setting *s, contest *c)
{
    int repeat = 1 + (int)(SAMPLE_US / fmax(time_ours(s->ctx, c, 1), 0.1));

    for (bench_clock clock = bench_begin(ROUNDS, SECONDS); bench_more(&clock);) {
        bench_add(&c->ours, time_ours(s->ctx, c, repeat));
        for (size_t i = 0; i < s->num_peers; ++i)
            bench_add(&c->peer[i], time_peer(&s->peers[i], &c->p, repeat));
        bench_pace_add(s->pace, &c->paces);
    }
    bench_check(s->ctx);
}

static double
best_peer(const bench_setting *s, const contest *c)
{
    double best = INFINITY;

    for (size_t i = 0; i < s->num_peers; ++i)
        best = fmin(best, bench_best(&c->peer[i]));
    return best;
}

static void
measure(const bench_setting *s, const shape *of, contest *c)
{
    bool    transpose_a = of->way[0] == 't', transpose_b = of->way[1] == 't';
    int64_t a_dims[] = { transpose_a ? of->k : of->m, transpose_a ? of->m : of->k };
    int64_t b_dims[] = { transpose_b ? of->n : of->k, transpose_b ? of->k : of->n };

    *c = (contest){ .p = { of->m, of->n, of->k, transpose_a, transpose_b, NULL, NULL, NULL } };
    CO_BLOCK(s->ctx) {
        c->a = co_random_uniform(s->ctx, CO_FLOAT32, a_dims, 2, -1, 1);
        c->b = co_random_uniform(s->ctx, CO_FLOAT32, b_dims, 2, -1, 1);
        bench_check(s->ctx);
        c->p.a = co_value_data(s->ctx, c->a);
        c->p.b = co_value_data(s->ctx, c->b);
        c->p.c = aligned_alloc(64,
                               ((size_t)of->m * (size_t)of->n * sizeof(float) + 63) & ~(size_t)63);
        if (c->p.c == NULL) {
            fprintf(stderr, "cohort-bench: no memory for a product\n");
            exit(1);
        }
        hold(s, c);
        free(c->p.c);
    }
}

/* Where a dimension is small, nobody reaches the best rate: there the better peer is the limit. */
static void
report(const bench_setting *s, const shape *of, contest *c)
{
    int    smallest = of->m < of->n ? of->m : of->n;
    double ideal = multiply_adds(&c->p) / bench_pace_rate(&c->paces), peer = best_peer(s, c);
    char   name[64];

    smallest = smallest < of->k ? smallest : of->k;
    snprintf(name, sizeof(name), "matmul_%dx%dx%d_%s", of->m, of->n, of->k, of->way);
    if (smallest >= MIDDLE || s->num_peers == 0)
        bench_report_samples(name, "us", &c->ours, ideal, "at the best rate",
                             ideal / (smallest >= LARGE ? SHARE_OF_LARGE : SHARE_OF_MIDDLE));
    else
        bench_report_samples(name, "us", &c->ours, peer, "the better peer", peer);
}

void
bench_matmul(void)
{
    enum { NUM_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    static contest contests[NUM_SHAPES];
    int            threads = bench_threads();
    bench_setting  s = { .ctx = bench_open(threads) };
    double         rate = 0;

    s.peers = bench_peers(threads, &s.num_peers);
    s.pace = bench_pace_begin(s.ctx, threads);
    for (size_t i = 0; i < NUM_SHAPES; ++i) {
        measure(&s, &shapes[i], &contests[i]);
        rate = fmax(rate, 2e-3 * bench_pace_rate(&contests[i].paces));
    }
    bench_report(&(bench_figure){ "matmul_best_rate", "GFLOP/s", rate, rate, (double)NAN, "",
                                  (double)NAN, true });
    for (size_t i = 0; i < NUM_SHAPES; ++i)
        report(&s, &shapes[i], &contests[i]);
    bench_pace_end(s.pace);
    co_close(s.ctx);
}
