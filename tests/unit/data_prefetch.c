/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefetching: prefetch, parallel map and interleave, distributed datasets that read ahead. What
 * they give is what is given without them; and when they begin, how far they go, how they end.
 */
#include "context/context.h"
#include "data_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double
now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void
sleep_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

/* Until `*number` is at least `least`, or ten seconds have passed: others may have the
 * processor. */
static bool
reaches(atomic_int *number, int least)
{
    for (double end = now_ms() + 10000; now_ms() < end; sleep_ms(1))
        if (atomic_load(number) >= least)
            return true;
    return false;
}

/* --- what a function of these tests does --- */

static void
raise_to(atomic_int *number, int least)
{
    for (int seen = atomic_load(number);
         least > seen && !atomic_compare_exchange_weak(number, &seen, least);)
        continue;
}

typedef struct work {
    atomic_int         calls, inside, most; /* begun; at work now, and at most so far */
    atomic_int         made;                /* elements up to the last that was asked for */
    atomic_int         open;                /* while 0, calls from `wait_at` on wait for it */
    int                wait_at;             /* 0: none waits */
    int                together;            /* calls that wait for each other, the first ones */
    int                fail_at[2];          /* elements that are errors */
    long               ms;                  /* that a call takes */
    _Atomic(pthread_t) thread;              /* of the last call */
    co_iterator       *iterator;            /* of whom the function speaks */
} work;

static void
enter(work *w)
{
    int inside = atomic_fetch_add(&w->inside, 1) + 1;
    int call = atomic_fetch_add(&w->calls, 1) + 1;

    raise_to(&w->most, inside);
    if (call <= w->together)
        reaches(&w->most, w->together);
    if (w->ms > 0)
        sleep_ms(w->ms);
    if (w->wait_at > 0 && call >= w->wait_at)
        reaches(&w->open, 1);
    atomic_fetch_sub(&w->inside, 1);
}

static co_value *
triple(co_context *ctx, co_value *x, void *user)
{
    work   *w = user;
    int64_t i = co_item_int(ctx, x);

    raise_to(&w->made, (int)i + 1);
    enter(w);
    if (i > 0 && (i == w->fail_at[0] || i == w->fail_at[1])) {
        co_fail(ctx, CO_DATA_LOSS, "number %lld", (long long)i);
        return NULL;
    }
    return co_mul(ctx, x, co_int(ctx, 3));
}

static co_value *
numbers(co_context *ctx, int64_t index, void *user)
{
    work *w = user;

    raise_to(&w->made, (int)index + 1);
    enter(w);
    w->thread = pthread_self();
    if (index > 0 && (index == w->fail_at[0] || index == w->fail_at[1])) {
        co_fail(ctx, CO_DATA_LOSS, "number %lld", (long long)index);
        return NULL;
    }
    return index < 20 ? co_scalar_int64(ctx, index) : NULL;
}

static co_dataset *
generated(co_context *ctx, work *w)
{
    return co_dataset_from_generator(ctx, numbers, w, co_spec(ctx, CO_INT64, NULL, 0));
}

static co_dataset *
tripled(co_context *ctx, co_dataset *input, work *w, int calls, bool deterministic)
{
    co_map_options options = CO_MAP_OPTIONS_INIT;

    options.num_parallel_calls = calls;
    options.deterministic = deterministic;
    return co_dataset_parallel_map(ctx, input, triple, w, NULL, &options);
}

static co_dataset *
up_to(co_context *ctx, co_value *x, void *user)
{
    co_dataset *range = co_dataset_range(ctx, 0, co_item_int(ctx, x), 1);

    if (co_item_int(ctx, x) == 7)
        co_fail(ctx, CO_DATA_LOSS, "seven");
    return co_dataset_map(ctx, range, triple, user, NULL);
}

static co_dataset *
interleaved(co_context *ctx, work *w, int cycle, int block, int calls, bool deterministic)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;

    options.cycle_length = cycle;
    options.block_length = block;
    options.num_parallel_calls = calls;
    options.deterministic = deterministic;
    return co_dataset_interleave(ctx, co_dataset_range(ctx, 0, 9, 1), up_to, w, NULL, &options);
}

/* All that an iterator gives, errors in their places; and that the end stays the end. */
static const char *
story(co_context *ctx, co_dataset *dataset, char *text)
{
    co_iterator *iterator = co_iterate(ctx, dataset);
    data_out     out = { text, 0 };
    bool         more = true;

    text[0] = '\0';
    while (more)
        CO_BLOCK(ctx) {
            co_value *element = co_next(ctx, iterator);

            more = element != NULL || !co_ok(ctx);
            if (!co_ok(ctx)) {
                data_put(&out, "!%s:%s ", co_code_name(co_error(ctx)->code),
                         co_error(ctx)->message);
                co_clear(ctx);
            } else if (more) {
                data_put_value(ctx, element, &out);
                data_put(&out, " ");
            }
        }
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_OK(ctx);
    return text;
}

/* --- the same elements --- */

CO_TEST(what_is_made_ahead_is_what_is_made_on_demand, "DS-PREF-3 DS-SHARD-12")
{
    static const char *const pipelines[] = {
        "range(0)",
        "range(7)",
        "range(7).batch(3)",
        "range(9).double.even.batch(2)",
        "range(5).cache.repeat(3)",
        "range(5).double.repeat(2).skip(3).take(4)",
        "range(6).batch(2).enumerate",
        "range(20).below5.double.cache",
    };
    char plain[DATA_TEXT], ahead[DATA_TEXT], text[200];

    for (size_t i = 0; i < sizeof(pipelines) / sizeof(pipelines[0]); ++i)
        for (int depth = 0; depth < 9; depth = 2 * depth + 1) {
            snprintf(text, sizeof(text), "%s.prefetch(%d)", pipelines[i], depth);
            CO_EXPECT_STR(story(ctx, data_pipeline(ctx, text), ahead),
                          story(ctx, data_pipeline(ctx, pipelines[i]), plain));
            snprintf(text, sizeof(text), "range(3).double.prefetch(%d).repeat(2).prefetch(2)",
                     depth);
            CO_EXPECT_STR(story(ctx, data_pipeline(ctx, text), ahead), "0 2 4 0 2 4 ");
        }
}

CO_TEST(errors_of_what_is_made_ahead_come_at_their_place, "DS-ITER-8 DS-PREF-3")
{
    static work w = { .fail_at = { 2, 4 } }; /* outlives the iterators */
    char        plain[DATA_TEXT], ahead[DATA_TEXT];
    co_dataset *map = co_dataset_map(ctx, co_dataset_range(ctx, 0, 8, 1), triple, &w, NULL);

    CO_EXPECT_STR(story(ctx, map, plain), "0 3 !CO_DATA_LOSS:map of element 2: number 2 9 "
                                          "!CO_DATA_LOSS:map of element 4: number 4 15 18 21 ");
    for (int depth = 1; depth < 9; ++depth) {
        CO_EXPECT_STR(story(ctx, co_dataset_prefetch(ctx, map, depth), ahead), plain);
        CO_EXPECT_STR(story(ctx, co_dataset_prefetch(ctx, co_dataset_prefetch(ctx, map, 1), depth),
                            ahead),
                      plain);
    }
    for (int calls = 0; calls < 6; ++calls)
        CO_EXPECT_STR(story(ctx, tripled(ctx, co_dataset_range(ctx, 0, 8, 1), &w, calls, true),
                            ahead),
                      plain);
    w.fail_at[0] = 1;
    CO_EXPECT_STR(
        story(ctx, co_dataset_prefetch(ctx, co_dataset_take(ctx, generated(ctx, &w), 3), 4), ahead),
        "0 !CO_DATA_LOSS:from_generator of element 1: number 1 2 "
        "3 ");
}

CO_TEST(parallel_interleave_gives_what_interleave_gives, "DS-PREF-3")
{
    static work w = { .fail_at = { 3, 5 } };
    char        plain[DATA_TEXT], ahead[DATA_TEXT];

    for (int cycle = 1; cycle < 6; ++cycle)
        for (int block = 1; block < 4; ++block) {
            story(ctx, interleaved(ctx, &w, cycle, block, 0, true), plain);
            CO_EXPECT_CONTAINS(plain, "interleave of element 7: seven");
            CO_EXPECT_CONTAINS(plain, "map of element 5: number 5");
            for (int calls = 1; calls < 6; calls += 2)
                CO_EXPECT_STR(story(ctx, interleaved(ctx, &w, cycle, block, calls, true), ahead),
                              plain);
        }
}

/* How often each number comes. */
static void
count_all(co_context *ctx, co_dataset *dataset, int *times, int n)
{
    co_iterator *iterator = co_iterate(ctx, dataset);

    for (bool more = true; more;)
        CO_BLOCK(ctx) {
            co_value *x = co_next(ctx, iterator);

            if (x != NULL && co_item_int(ctx, x) < n)
                ++times[co_item_int(ctx, x)];
            more = x != NULL || !co_ok(ctx);
            co_clear(ctx);
        }
}

static co_value *
slow_to_open(co_context *ctx, int64_t index, void *user)
{
    if (index == 0)
        enter(user);
    return index < 3 ? co_scalar_int64(ctx, index) : NULL;
}

static co_dataset *
slow_datasets(co_context *ctx, co_value *x, void *user)
{
    (void)x;
    return co_dataset_from_generator(ctx, slow_to_open, user, co_spec(ctx, CO_INT64, NULL, 0));
}

/* Datasets are opened side by side, those of the cycle and the next ones; not where their elements
 * come from functions. */
CO_TEST(parallel_interleave_opens_datasets_together, "")
{
    for (int mapped = 0; mapped < 2; ++mapped)
        for (int calls = 0; calls < 4; ++calls) {
            int                   together = calls < 2 || mapped ? 1 : calls + 1;
            work                  w = { .ms = 1, .together = together }, other = { .calls = 0 };
            co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
            co_dataset           *range = co_dataset_range(ctx, 0, 12, 1), *dataset;
            int                   counts[12] = { 0 };

            options.cycle_length = 3;
            options.num_parallel_calls = calls;
            if (mapped)
                range = co_dataset_map(ctx, range, triple, &other, NULL);
            dataset = co_dataset_interleave(ctx, range, slow_datasets, &w,
                                            co_spec(ctx, CO_INT64, NULL, 0), &options);
            count_all(ctx, dataset, counts, 12);
            for (int i = 0; i < 3; ++i)
                CO_EXPECT_INT(counts[i], 12);
            CO_EXPECT_INT(atomic_load(&w.calls), 12);
            CO_EXPECT_TRUE(atomic_load(&w.most) >= together);
            CO_EXPECT_TRUE(atomic_load(&w.most) <= (together == 1 ? 1 : 2 * calls));
        }
}

/* What is left, errors among it. */
static char *
rest_of(co_context *ctx, co_iterator *iterator, char *out)
{
    size_t n = 0;

    for (int i = 0; i < 60; ++i) {
        co_value *x = co_next(ctx, iterator);

        if (x == NULL && co_ok(ctx))
            break;
        n += x != NULL
                 ? (size_t)snprintf(out + n, DATA_TEXT - n, "%lld ", (long long)co_item_int(ctx, x))
                 : (size_t)snprintf(out + n, DATA_TEXT - n, "%s ", co_error(ctx)->message);
        co_clear(ctx);
    }
    return out;
}

/* The dataset of 7 fails, also if a position is taken when that is known but not told. */
CO_TEST(a_dataset_that_failed_ahead_fails_at_its_place_after_a_restore, "")
{
    static work w;
    char        rest[DATA_TEXT], again[DATA_TEXT];

    for (int calls = 0; calls < 4; ++calls)
        for (int others = 0; others < 4; others += 3)
            for (int at = 0; at < 29; ++at) {
                co_iterator *iterator = co_iterate(ctx, interleaved(ctx, &w, 2, 1, calls, true));
                co_iterator *other;

                for (int i = 0; i < at; ++i) {
                    co_next(ctx, iterator);
                    co_clear(ctx);
                }
                other = co_iterator_restore(ctx, interleaved(ctx, &w, 2, 1, others, true),
                                            co_iterator_save(ctx, iterator));
                CO_REQUIRE(other != NULL);
                rest[0] = again[0] = '\0';
                CO_EXPECT_STR(rest_of(ctx, other, again), rest_of(ctx, iterator, rest));
                CO_EXPECT_TRUE(at > 15 || strstr(rest, "interleave of element 7: seven") != NULL);
            }
}

CO_TEST(without_order_every_element_comes_once, "DS-PREF-3")
{
    static work w = { .fail_at = { 5, 11 } };

    for (int calls = 1; calls < 5; ++calls) {
        int times[60] = { 0 }, plain[30] = { 0 }, ahead[30] = { 0 };

        count_all(ctx, tripled(ctx, co_dataset_range(ctx, 0, 20, 1), &w, calls, false), times, 60);
        for (int i = 0; i < 60; ++i)
            CO_EXPECT_INT(times[i], i % 3 == 0 && i != 15 && i != 33);
        count_all(ctx, interleaved(ctx, &w, 3, 1, 0, true), plain, 30);
        count_all(ctx, interleaved(ctx, &w, 3, 1, calls, false), ahead, 30);
        for (int i = 0; i < 30; ++i)
            CO_EXPECT_INT(ahead[i], plain[i]);
    }
}

static co_value *
first_waits(co_context *ctx, co_value *x, void *user)
{
    work *w = user;

    if (co_item_int(ctx, x) == 0)
        reaches(&w->open, 1);
    return x;
}

CO_TEST(without_order_who_is_ready_goes_first, "")
{
    work           w = { .open = 0 };
    co_map_options options = CO_MAP_OPTIONS_INIT;

    options.num_parallel_calls = 2;
    options.deterministic = false;
    CO_BLOCK(ctx) {
        co_dataset  *range = co_dataset_range(ctx, 0, 9, 1);
        co_iterator *iterator = co_iterate(ctx, co_dataset_parallel_map(ctx, range, first_waits, &w,
                                                                        NULL, &options));

        CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, iterator)), 1);
        CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, iterator)), 2);
        atomic_store(&w.open, 1);
    }
}

static co_dataset *
slow_or_not(co_context *ctx, co_value *x, void *user)
{
    co_dataset *range = co_dataset_range(ctx, co_item_int(ctx, x) * 10,
                                         10 * co_item_int(ctx, x) + 9, 1);

    return co_dataset_map(ctx, range, first_waits, user, NULL);
}

CO_TEST(without_order_a_dataset_that_waits_lets_others_pass, "")
{
    work                  w = { .open = 0 };
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;

    options.cycle_length = 2;
    options.num_parallel_calls = 2;
    options.deterministic = false;
    CO_BLOCK(ctx) {
        co_dataset  *range = co_dataset_range(ctx, 0, 2, 1);
        co_iterator *iterator = co_iterate(ctx, co_dataset_interleave(ctx, range, slow_or_not, &w,
                                                                      NULL, &options));
        int64_t      before = 0;

        CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, iterator)), 10); /* 0 waits */
        atomic_store(&w.open, 1);
        while (before < 9 && co_item_int(ctx, co_next(ctx, iterator)) != 0)
            ++before;
        CO_EXPECT_TRUE(before < 9); /* after the eight that are left, at the latest */
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(parallel_calls_are_at_work_together_and_no_more_than_asked_for, "")
{
    for (int calls = 1; calls < 4; ++calls) {
        work w = { .ms = 1, .together = calls };
        char text[DATA_TEXT];

        CO_BLOCK(ctx)
            story(ctx, tripled(ctx, co_dataset_range(ctx, 0, 30, 1), &w, calls, true), text);
        CO_EXPECT_INT(atomic_load(&w.most), calls);
    }
}

/* --- when, and how far --- */

CO_TEST(nothing_is_made_before_the_first_next_and_no_more_than_the_buffer_holds,
        "DS-PREF-2 DS-PREF-3")
{
    for (int depth = 1; depth < 6; ++depth) {
        work w = { .calls = 0 };

        CO_BLOCK(ctx) {
            co_iterator *iterator = co_iterate(ctx,
                                               co_dataset_prefetch(ctx, generated(ctx, &w), depth));

            sleep_ms(5);
            CO_EXPECT_INT(atomic_load(&w.calls), 0);
            for (int taken = 1; taken < 4; ++taken) {
                co_next(ctx, iterator);
                CO_EXPECT_TRUE(reaches(&w.calls, taken + depth / 2));
                sleep_ms(3);
                CO_EXPECT_TRUE(atomic_load(&w.calls) <= taken + depth);
            }
        }
    }
}

CO_TEST(a_thread_without_work_sleeps, "")
{
    work          w = { .calls = 0 };
    struct rusage before, after;
    double        used;

    CO_BLOCK(ctx) {
        co_dataset *range = co_dataset_range(ctx, 0, 99, 1);

        co_next(ctx, co_iterate(ctx, co_dataset_prefetch(ctx, generated(ctx, &w), 2)));
        co_next(ctx, co_iterate(ctx, tripled(ctx, range, &w, 4, true)));
        sleep_ms(20);
        getrusage(RUSAGE_SELF, &before);
        sleep_ms(200);
        getrusage(RUSAGE_SELF, &after);
    }
    used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1e3 +
           (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e3;
    CO_EXPECT_TRUE(used < 50);
}

static co_strategy *
mirrored(co_context *ctx)
{
    return co_mirrored_strategy(ctx, (const char *const[]){ "/cpu:0", "/cpu:1" }, 2, NULL);
}

/* A device whose memory the host cannot see: counts what goes there, and what the thread that asks
 * has to bring itself. */
static co_device *gpus[2];
static atomic_int uploads[2], own_uploads;
static pthread_t  asking;

static co_code
count_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
             size_t nbytes, co_error_info *err)
{
    atomic_fetch_add(&uploads[queue == gpus[1]->queue], 1);
    if (pthread_equal(asking, pthread_self()))
        atomic_fetch_add(&own_uploads, 1);
    return coi_cpu_backend.queue->upload(queue, dst, offset, src, nbytes, err);
}

static co_dataset *
generated_for(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    return co_dataset_batch(ctx, generated(ctx, user), 2, false);
}

/* Elements of one dataset for all replicas, and of one for each, are on their device before they
 * are asked for. */
CO_TEST_WITH(what_is_read_ahead_is_on_the_device_of_its_replica, "DS-PREF-1 IO-4", "devices=GPU:2")
{
    co_backend             far = coi_cpu_backend;
    co_backend_queue_table queue = *coi_cpu_backend.queue;

    queue.upload = count_upload;
    far.host_memory = false;
    far.queue = &queue;
    asking = pthread_self();
    for (size_t i = 0; i < 2; ++i) {
        gpus[i] = coi_devices_of_type(ctx->runtime->devices, "GPU", i);
        gpus[i]->backend = &far;
        gpus[i]->cpu_kernels = false;
        gpus[i]->host_memory = false;
        gpus[i]->host = coi_devices_at(ctx->runtime->devices, 0);
    }
    for (int per_replica = 0; per_replica < 2; ++per_replica) {
        work             w = { .calls = 0 };
        co_input_options options = CO_INPUT_OPTIONS_INIT;

        options.per_replica = per_replica == 1;
        for (int i = 0; i < 2; ++i)
            atomic_store(&uploads[i], 0);
        CO_BLOCK(ctx) {
            co_strategy *strategy = co_mirrored_strategy(
                ctx, (const char *const[]){ "/gpu:0", "/gpu:1" }, 2, NULL);
            co_dataset *dataset = co_distribute_datasets_from_function(ctx, strategy, generated_for,
                                                                       &w, &options);
            int         steps = 0;

            CO_EACH(ctx, x, co_iterate(ctx, dataset)) {
                CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, x, 0)), "GPU:0");
                CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, x, 1)), "GPU:1");
                ++steps;
            }
            CO_EXPECT_INT(steps, per_replica ? 10 : 5);
            for (int i = 0; i < 2; ++i)
                CO_EXPECT_INT(atomic_load(&uploads[i]), steps);
        }
    }
    CO_EXPECT_INT(atomic_load(&own_uploads), 0);
    for (size_t i = 0; i < 2; ++i) {
        gpus[i]->backend = &coi_cpu_backend;
        gpus[i]->cpu_kernels = true;
        gpus[i]->host_memory = true;
        gpus[i]->host = gpus[i];
    }
}

/* What costs something is made on another thread, on the replica's device, as far as the option
 * says. */
CO_TEST_WITH(distributed_datasets_read_ahead_what_costs_something,
             "DS-PREF-1 DS-PREF-2 DS-SHARD-12", "cpus=2")
{
    for (int size = 0; size < 3; ++size) {
        work             w = { .calls = 0 };
        co_input_options options = CO_INPUT_OPTIONS_INIT;

        options.per_replica_buffer_size = size;
        CO_BLOCK(ctx) {
            co_dataset  *batches = co_dataset_batch(ctx, generated(ctx, &w), 2, false);
            co_iterator *iterator = co_iterate(ctx, co_distribute_dataset(ctx, mirrored(ctx),
                                                                          batches, &options));
            co_value    *element;

            CO_EXPECT_INT(atomic_load(&w.calls), 0);
            element = co_next(ctx, iterator);
            CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, element, 1)), "CPU:1");
            sleep_ms(5);
        }
        CO_EXPECT_INT(pthread_equal(w.thread, pthread_self()) != 0, size == 0);
        /* Two pieces, each of one row, and so many for each replica; the batch that a piece is cut
         * from is whole. */
        CO_EXPECT_TRUE(atomic_load(&w.calls) <= 2 + 2 * size + 1);
        CO_EXPECT_TRUE(size > 0 || atomic_load(&w.calls) == 2);
    }
}

CO_TEST_WITH(distributed_elements_are_the_same_however_far_they_are_read_ahead,
             "DS-PREF-1 DS-PREF-3 DS-SHARD-12 DS-ITER-8", "cpus=2")
{
    char first[DATA_TEXT] = "", text[DATA_TEXT];

    for (int size = 0; size < 4; ++size) {
        work             w = { .fail_at = { 4, 0 } };
        co_input_options options = CO_INPUT_OPTIONS_INIT;

        options.per_replica_buffer_size = size;
        CO_BLOCK(ctx) {
            co_dataset *batches = co_dataset_batch(ctx, generated(ctx, &w), 3, false);

            story(ctx, co_distribute_dataset(ctx, mirrored(ctx), batches, &options),
                  size == 0 ? first : text);
        }
        if (size > 0)
            CO_EXPECT_STR(text, first);
        CO_EXPECT_CONTAINS(first, "from_generator of element 4: number 4");
    }
}

/* --- the end --- */

static co_dataset *
variant(co_context *ctx, int which, work *w)
{
    co_dataset *made = generated(ctx, w);

    switch (which) {
    case 0: return co_dataset_prefetch(ctx, made, 3);
    case 1: return tripled(ctx, made, w, 3, true);
    case 2: return tripled(ctx, made, w, 3, false);
    case 3: return interleaved(ctx, w, 3, 2, 2, true);
    case 4: return interleaved(ctx, w, 3, 1, 3, false);
    case 5:
        made = co_dataset_shuffle(ctx, co_dataset_prefetch(ctx, made, 2), 7, 1, true);
        return co_dataset_prefetch(ctx, co_dataset_cache(ctx, co_dataset_repeat(ctx, made, 2)), 4);
    default:
        return co_dataset_prefetch(
            ctx,
            co_dataset_batch(ctx, co_dataset_prefetch(ctx, tripled(ctx, made, w, 2, true), 1), 3,
                             false),
            1);
    }
}
enum { NUM_VARIANTS = 7 };

CO_TEST(iterators_may_be_released_after_any_number_of_elements, "THR-4")
{
    for (int which = 0; which < NUM_VARIANTS; ++which)
        for (int count = 0; count < 46; ++count) {
            work w = { .fail_at = { 3, 11 } };

            CO_BLOCK(ctx) {
                co_iterator *iterator = co_iterate(ctx, variant(ctx, which, &w));

                for (int i = 0; i < count; ++i) {
                    co_next(ctx, iterator);
                    co_clear(ctx);
                }
            }
            CO_EXPECT_INT(atomic_load(&w.inside), 0);
        }
}

/* The shuffle wants hundreds of elements, each of which takes its time: one is waited for, not
 * all. */
CO_TEST(release_waits_for_one_call_at_most, "THR-4")
{
    work   w = { .ms = 50 };
    double begin;

    CO_BLOCK(ctx) {
        co_dataset  *slow = co_dataset_map(ctx, co_dataset_range(ctx, 0, 100000, 1), triple, &w,
                                           NULL);
        co_dataset  *inner = co_dataset_prefetch(ctx, slow, 1);
        co_dataset  *outer = co_dataset_prefetch(ctx, co_dataset_shuffle(ctx, inner, 400, 1, false),
                                                 1);
        co_iterator *first = co_iterate(ctx, co_dataset_prefetch(ctx, slow, 2));
        co_iterator *second = co_iterate(
            ctx, co_dataset_concatenate(ctx, co_dataset_range(ctx, 0, 1, 1), outer));

        co_next(ctx, first);
        co_next(ctx, second);
        co_iterator_cancel(ctx, second);
        CO_EXPECT_NULL(co_next(ctx, second));
        CO_EXPECT_ERROR(ctx, CO_CANCELLED, "cancelled");
        begin = now_ms();
    }
    CO_EXPECT_TRUE(now_ms() - begin < 10000); /* of 20 seconds */
    CO_EXPECT_INT(atomic_load(&w.inside), 0);
}

typedef struct canceller {
    co_context  *ctx;
    co_iterator *iterator;
    work        *w;
} canceller;

static void *
cancel_later(void *arg)
{
    canceller *c = arg;

    reaches(&c->w->inside, 1);
    sleep_ms(5);
    co_iterator_cancel(c->ctx, c->iterator);
    return NULL;
}

CO_TEST(another_thread_may_cancel_who_waits, "")
{
    for (int which = 0; which < 3; ++which) {
        work        w = { .wait_at = 1 };
        canceller   c = { co_open_beside(ctx), NULL, &w };
        co_dataset *dataset;
        pthread_t   thread;
        double      begin = now_ms();

        co_block_begin(ctx);
        dataset = generated(ctx, &w);
        dataset = which == 0 ? co_dataset_prefetch(ctx, dataset, 1)
                  : which == 1
                      ? co_dataset_prefetch(
                            ctx,
                            co_dataset_batch(ctx, co_dataset_prefetch(ctx, dataset, 1), 2, false),
                            1)
                      : tripled(ctx, dataset, &w, 2, true);
        c.iterator = co_iterate(ctx, dataset);
        CO_REQUIRE(pthread_create(&thread, NULL, cancel_later, &c) == 0);
        CO_EXPECT_NULL(co_next(ctx, c.iterator));
        CO_EXPECT_ERROR(ctx, CO_CANCELLED, "the iterator was cancelled");
        CO_EXPECT_TRUE(now_ms() - begin < 8000); /* or it would wait for w.open */
        pthread_join(thread, NULL);
        CO_EXPECT_NULL(co_get_next(ctx, c.iterator));
        CO_EXPECT_ERROR(ctx, CO_CANCELLED, NULL);
        atomic_store(&w.open, 1);
        co_block_end(ctx);
        CO_EXPECT_CODE(co_close(c.ctx), CO_OK);
    }
}

/* --- functions that know their iterator --- */

static co_value *
asks(co_context *ctx, co_value *x, void *user)
{
    work *w = user;

    if (atomic_fetch_add(&w->calls, 1) == 3) {
        co_next(ctx, w->iterator);
        co_fail(ctx, CO_ABORTED, "there was no error");
    }
    return x;
}

CO_TEST(a_function_may_not_ask_the_iterator_that_it_works_ahead_for, "")
{
    for (int nested = 0; nested < 2; ++nested) {
        work        w = { .calls = 0 };
        co_dataset *dataset;
        char        text[DATA_TEXT];

        co_block_begin(ctx);
        dataset = co_dataset_map(ctx, co_dataset_range(ctx, 0, 9, 1), asks, &w, NULL);
        dataset = co_dataset_prefetch(ctx, dataset, 5);
        if (nested)
            dataset = co_dataset_prefetch(ctx, co_dataset_batch(ctx, dataset, 1, false), 2);
        w.iterator = co_iterate(ctx, dataset);
        co_next(ctx, w.iterator);
        CO_EXPECT_TRUE(
            reaches(&w.calls, 4)); /* nobody asks meanwhile, and it does not wait for itself */
        sleep_ms(5);
        for (int i = 1; i < 3; ++i)
            CO_EXPECT_NOT_NULL(co_next(ctx, w.iterator));
        CO_EXPECT_NULL(co_next(ctx, w.iterator));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                        "map of element 3: the iterator is asked for an element by a "
                        "function that makes one for it");
        CO_EXPECT_STR(data_rest(ctx, w.iterator, 20, text),
                      nested ? "[4] [5] [6] [7] [8]" : "4 5 6 7 8");
        co_block_end(ctx);
    }
}

static co_value *
lets_go(co_context *ctx, co_value *x, void *user)
{
    work *w = user;

    if (co_item_int(ctx, x) == 2 && reaches(&w->open, 1)) {
        co_release(ctx, w->iterator);
        atomic_store(&w->most, 1);
    }
    return x;
}

/* The last reference goes while its own thread is in the function: that thread cleans up. */
CO_TEST(a_function_may_drop_the_iterator_that_it_works_ahead_for, "THR-4")
{
    for (int nested = 0; nested < 3; ++nested) {
        work w = { .open = 0 };

        CO_BLOCK(ctx) {
            co_dataset *dataset = co_dataset_map(ctx, co_dataset_range(ctx, 0, 9, 1), lets_go, &w,
                                                 NULL);

            dataset = co_dataset_prefetch(ctx, dataset, 5);
            for (int i = 0; i < nested; ++i)
                dataset = co_dataset_prefetch(ctx, co_dataset_batch(ctx, dataset, 1, false), 2);
            w.iterator = co_iterate(ctx, dataset);
            co_keep(ctx, w.iterator);
            CO_EXPECT_NOT_NULL(co_next(ctx, w.iterator));
        }
        atomic_store(&w.open, 1);
        CO_EXPECT_TRUE(reaches(&w.most, 1));
        sleep_ms(30); /* nobody is told when it is done */
    }
    CO_EXPECT_OK(ctx);
}

/* Nothing is moved to the devices of an iterator that is gone: it goes in the last call for a
 * batch. */
CO_TEST_WITH(a_function_may_drop_the_distributed_iterator_that_reads_it_ahead, "THR-4 DS-PREF-1",
             "cpus=2")
{
    work w = { .open = 0 };

    CO_BLOCK(ctx) {
        co_dataset *map = co_dataset_map(ctx, co_dataset_range(ctx, -1, 9, 1), lets_go, &w, NULL);

        w.iterator = co_iterate(ctx,
                                co_distribute_dataset(ctx, mirrored(ctx),
                                                      co_dataset_batch(ctx, map, 2, false), NULL));
        co_keep(ctx, w.iterator);
        CO_EXPECT_NOT_NULL(co_next(ctx, w.iterator));
    }
    atomic_store(&w.open, 1);
    CO_EXPECT_TRUE(reaches(&w.most, 1));
    sleep_ms(30);
    CO_EXPECT_OK(ctx);
}

/* --- several readers --- */

typedef struct reader {
    co_context *ctx;
    co_dataset *dataset;
    int64_t     sum;
} reader;

static void *
read_all(void *arg)
{
    reader *r = arg;

    for (int i = 0; i < 3; ++i)
        CO_EACH(r->ctx, x, co_iterate(r->ctx, r->dataset))
            r->sum += co_item_int(r->ctx, x);
    return NULL;
}

CO_TEST(caches_and_shuffles_are_read_ahead_by_several_iterators_at_once, "DS-PREF-3")
{
    static work w = { .calls = 0 };
    co_dataset *dataset = co_dataset_cache(ctx, co_dataset_prefetch(ctx, generated(ctx, &w), 2));
    reader      readers[3];
    pthread_t   threads[3];

    dataset = co_dataset_shuffle(ctx, tripled(ctx, dataset, &w, 2, true), 6, 1, true);
    dataset = co_dataset_prefetch(ctx, dataset, 3);
    for (int i = 0; i < 3; ++i) {
        readers[i] = (reader){ co_open_beside(ctx), dataset, 0 };
        CO_REQUIRE(pthread_create(&threads[i], NULL, read_all, &readers[i]) == 0);
    }
    for (int i = 0; i < 3; ++i) {
        pthread_join(threads[i], NULL);
        CO_EXPECT_INT(readers[i].sum, 3 * 3 * 190);
        CO_EXPECT_CODE(co_close(readers[i].ctx), CO_OK);
    }
}

/* --- positions --- */

/* What waits in the ring is saved, errors too. */
CO_TEST(what_was_made_ahead_is_part_of_the_position, "")
{
    static work w = { .fail_at = { 4, 6 } };

    for (int calls = 0; calls < 4; ++calls) {
        for (int at = 0; at < 10; ++at) {
            co_dataset  *dataset = co_dataset_map(ctx, co_dataset_range(ctx, 0, 9, 1), triple, &w,
                                                  NULL);
            co_iterator *iterator, *other;
            co_value    *position;

            dataset = calls == 0 ? co_dataset_prefetch(ctx, dataset, 4)
                                 : tripled(ctx, dataset, &w, calls, true);
            iterator = co_iterate(ctx, dataset);
            for (int i = 0; i < at; ++i) {
                co_next(ctx, iterator);
                co_clear(ctx);
            }
            position = co_iterator_save(ctx, iterator);
            CO_EXPECT_OK(ctx);
            other = co_iterator_restore(ctx, dataset, position);
            for (int i = at; i < 11; ++i) {
                char          one[DATA_TEXT] = "", two[DATA_TEXT] = "";
                co_value     *element = co_next(ctx, iterator);
                co_error_info error = *co_error(ctx);

                co_clear(ctx);
                if (element != NULL)
                    data_text(ctx, element, one);
                element = co_next(ctx, other);
                CO_EXPECT_CODE(co_error(ctx)->code, error.code);
                CO_EXPECT_STR(co_error(ctx)->message, error.message);
                co_clear(ctx);
                if (element != NULL)
                    data_text(ctx, element, two);
                CO_EXPECT_STR(two, one);
            }
        }
    }
}

/* What a position brings is in the buffer: an iterator that is saved and restored again and again
 * holds no more. */
/* Those before it live on meanwhile, and end with the block: before `w` does. */
static void
save_and_go_on(co_context *ctx, bool parallel, work *w)
{
    co_dataset  *dataset = parallel ? tripled(ctx, co_dataset_range(ctx, 0, 20, 1), w, 2, true)
                                    : co_dataset_prefetch(ctx, generated(ctx, w), 4);
    co_iterator *iterator = co_iterate(ctx, dataset);
    char         text[DATA_TEXT];

    for (int taken = 1; taken < 6; ++taken) {
        CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, iterator)), (taken - 1) * (parallel ? 3 : 1));
        CO_EXPECT_TRUE(reaches(&w->made, taken + 2));
        sleep_ms(5);
        CO_EXPECT_TRUE(atomic_load(&w->made) <= taken + 4);
        iterator = co_iterator_restore(ctx, dataset, co_iterator_save(ctx, iterator));
        CO_REQUIRE(iterator != NULL);
    }
    data_rest(ctx, iterator, 20, text);
    CO_EXPECT_STR(text, parallel ? "15 18 21 24 27 30 33 36 39 42 45 48 51 54 57"
                                 : "5 6 7 8 9 10 11 12 13 14 15 16 17 18 19");
}

CO_TEST(restored_elements_count_as_made_ahead, "DS-PREF-2")
{
    for (int parallel = 0; parallel < 2; ++parallel) {
        work w = { .calls = 0 };

        CO_BLOCK(ctx)
            save_and_go_on(ctx, parallel == 1, &w);
    }
}

/* --- want --- */

static bool
run_all(co_context *ctx)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    work                  opened = { .calls = 0 };
    int64_t               count = 0;

    for (int which = 0; which < NUM_VARIANTS && co_ok(ctx); ++which) {
        work w = { .calls = 0 };

        CO_BLOCK(ctx) {
            if (which != 3 && which != 4)
                CO_EACH(ctx, x, co_iterate(ctx, variant(ctx, which, &w)))
                    ++count;
        }
    }
    options.cycle_length = options.num_parallel_calls = 2;
    CO_BLOCK(ctx) {
        co_dataset *range = co_dataset_range(ctx, 0, 5, 1);
        co_value   *spec = co_spec(ctx, CO_INT64, NULL, 0);

        CO_EACH(ctx, x,
                co_iterate(ctx, co_dataset_interleave(ctx, range, slow_datasets, &opened, spec,
                                                      &options)))
            ++count;
    }
    return co_ok(ctx) && count == 20 + 20 + 20 + 40 + 7 + 15;
}

CO_TEST_BARE(working_ahead_survives_without_memory, "GEN-ERR-1")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, run_all);
}

/* A process that may have no more memory gets no thread: elements are made when they are asked
 * for. */
CO_TEST(without_threads_elements_are_made_on_demand, "")
{
    struct rlimit before, little = { (rlim_t)1 << 20, RLIM_INFINITY };
    char          plain[DATA_TEXT], text[DATA_TEXT];
    static work   w = { .fail_at = { 3, 5 } };

    if (TEST_SANITIZED)
        CO_SKIP("sanitizers need the address space");
    story(ctx, generated(ctx, &w), plain);
    story(ctx, co_dataset_map(ctx, generated(ctx, &w), triple, &w, NULL), text);
    for (int i = 0; i < 5000; ++i) /* dead cells wait before they are used again, in debug builds
                                    * for 4096 others */
        CO_BLOCK(ctx)
            co_int(ctx, i);
    getrlimit(RLIMIT_AS, &before);
    little.rlim_max = before.rlim_max;
    for (int which = 0; which < 2; ++which) {
        co_dataset *dataset = which == 0 ? co_dataset_prefetch(ctx, generated(ctx, &w), 3)
                                         : tripled(ctx, generated(ctx, &w), &w, 2, true);
        char        got[DATA_TEXT];

        CO_REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
        story(ctx, dataset, got);
        CO_REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
        CO_EXPECT_STR(got, which == 0 ? plain : text);
        if (which == 0)
            CO_EXPECT_TRUE(pthread_equal(w.thread, pthread_self()) != 0);
    }
}

CO_TEST(reading_ahead_takes_nothing_from_the_allocator_in_steady_state, "")
{
    co_iterator    *iterator = co_iterate(ctx,
                                          data_pipeline(ctx, "range(5).repeat.double.prefetch(3)"));
    co_memory_stats before = { .struct_size = sizeof(before) }, after = before;

    for (int i = 0; i < 6000; ++i) {
        if (i == 5000)
            co_get_memory_stats(ctx, &before);
        CO_BLOCK(ctx)
            co_next(ctx, iterator);
    }
    co_get_memory_stats(ctx, &after);
    if (!TEST_SANITIZED)
        CO_EXPECT_INT(after.system_allocations - before.system_allocations, 0);
    CO_EXPECT_OK(ctx);
}

CO_TEST(parallel_stages_refuse_wrong_arguments, "")
{
    co_dataset    *range = co_dataset_range(ctx, 0, 3, 1);
    work           w = { .calls = 0 };
    co_map_options tiny = { .struct_size = 1 };

    CO_EXPECT_NULL(tripled(ctx, range, &w, -2, true));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "num_parallel_calls is -2; it is 0 to 256");
    CO_EXPECT_NULL(tripled(ctx, range, &w, 257, true));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "num_parallel_calls is 257");
    CO_EXPECT_NULL(interleaved(ctx, &w, 2, 1, -2, true));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "num_parallel_calls is -2");
    CO_EXPECT_NULL(tripled(ctx, NULL, &w, 1, true));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "input");
    CO_EXPECT_NULL(co_dataset_parallel_map(ctx, range, NULL, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn) of dataset_parallel_map is NULL");
    CO_EXPECT_NULL(co_dataset_parallel_map(ctx, range, triple, &w, co_int(ctx, 1), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 5 (spec)");
    CO_EXPECT_NULL(co_dataset_parallel_map(ctx, range, triple, &w, NULL, &tiny));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
    CO_EXPECT_CODE(co_iterator_cancel(ctx, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (iterator)");
}
