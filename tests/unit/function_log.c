/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the log says of captured functions (COHORT_LOG=info): captures, plans, what kept changing,
 * and how often all of it served.
 */
#include "function_worlds.h"

typedef struct log_book {
    char text[20000]; /* all lines */
} log_book;

static void
write_book(co_log_level level, const char *line, void *user)
{
    log_book *book = user;
    size_t    n = strlen(book->text);

    (void)level;
    snprintf(book->text + n, sizeof(book->text) - n, "%s\n", line);
}

static co_context *
open_with_book(log_book *book)
{
    co_options options = CO_OPTIONS_INIT;

    options.settings = "log=info, cpus=2";
    options.log = write_book;
    options.log_user = book;
    return co_open_with(&options);
}

/* How often a text is in the book. */
static int
count(const log_book *book, const char *part)
{
    int n = 0;

    for (const char *at = book->text; (at = strstr(at, part)) != NULL; ++at)
        ++n;
    return n;
}

static co_value *
square_and_add(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_add(ctx, co_square(ctx, x), co_at(ctx, args, 1));
}

/* Call a function with vectors of some lengths. */
static void
call_with(co_context *ctx, const co_function_options *options, int first, int last)
{
    co_function *f = co_function_of(ctx, square_and_add, NULL, options);

    for (int n = first; n <= last; ++n)
        CO_BLOCK(ctx) {
            int64_t   dim = n;
            co_value *x = co_fill(ctx, &dim, 1, co_float(ctx, 3));

            CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, x, x)));
            CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, x, x)));
        }
}

CO_TEST_BARE(the_log_tells_of_captures_and_plans, "FN-1")
{
    log_book            book = { "" };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;

    ctx = open_with_book(&book);
    options.name = "energy";
    CO_BLOCK(ctx) {
        call_with(ctx, &options, 4, 5);
    }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    CO_EXPECT_INT(count(&book, "captured 'energy': 2 calls"), 2);
    CO_EXPECT_INT(count(&book, "plan of calls 0 to 1: 2 kernels in 1 start"), 2);
    CO_EXPECT_CONTAINS(book.text,
                       "captured function 'energy' ends: 4 calls of 2 captures; 4 runs of 2 plans");
}

CO_TEST_BARE(the_log_tells_what_kept_changing, "FN-9")
{
    log_book            book = { "" };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;

    ctx = open_with_book(&book);
    options.max_programs = 2;
    CO_BLOCK(ctx) {
        call_with(ctx, &options, 1, 5);
    }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    CO_EXPECT_INT(count(&book, "has 2 programs, and every new one drops the oldest"), 1);
    CO_EXPECT_CONTAINS(book.text, "keep changing");
}

CO_TEST_BARE(the_log_tells_of_more_shapes_than_plans, "FN-9")
{
    log_book            book = { "" };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    const int64_t       any = -1;

    ctx = open_with_book(&book);
    CO_BLOCK(ctx) {
        co_value *vector = co_spec(ctx, CO_FLOAT32, &any, 1);

        options.signature = co_args(ctx, vector, vector);
        call_with(ctx, &options, 1, 40);
    }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    CO_EXPECT_INT(count(&book, "more shapes or threads than the first 32"), 1);
    CO_EXPECT_CONTAINS(book.text, "80 calls of 1 capture; 64 runs of 32 plans");
}

/* --- what a plan leaves out --- */

static co_value *
twice_the_same(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_args(ctx, co_matmul(ctx, x, x), co_matmul(ctx, x, x));
}

static co_value *
with_unused(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = co_sin(ctx, x);

    (void)user;
    co_tanh(ctx, y);
    co_div(ctx, co_scalar_int32(ctx, 1),
           co_cast(ctx, co_reduce_min(ctx, y, CO_ALL_AXES, false),
                   CO_INT32)); /* which would fail, by 0 */
    return co_matmul(ctx, x, x);
}

static co_value *
of_constants(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);
    co_value *two = co_add(ctx, co_float(ctx, 1), co_float(ctx, 1));

    (void)user;
    return co_mul(ctx, x, co_reshape(ctx, co_sqrt(ctx, co_mul(ctx, two, two)), CO_SHAPE(1, 1)));
}

static co_value *
with_random(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0,
                      1); /* which counts, though nothing uses it */
    return co_matmul(ctx, x, x);
}

CO_TEST_BARE(plans_leave_out_what_is_not_needed, "FN-9")
{
    static const struct {
        co_fn       fn;
        const char *kernels;
    } rows[] = {
        { twice_the_same, ": 1 kernel in 1 start," },
        { with_unused, ": 1 kernel in 1 start," },
        { of_constants, ": 1 kernel in 1 start," },
        { with_random, ": 2 kernels in 2 starts," },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        log_book book = { "" };

        ctx = open_with_book(&book);
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, co_ones(ctx, CO_FLOAT32, (const int64_t[]){ 2, 2 }, 2));
            co_function *f = co_function_of(ctx, rows[i].fn, NULL, NULL);

            CO_EXPECT_NOT_NULL(co_call(ctx, f, args));
        }
        CO_EXPECT_CODE(co_close(ctx), CO_OK);
        CO_EXPECT_CONTAINS(book.text, rows[i].kernels);
    }
}

CO_TEST(options_out_of_range_are_refused, "GEN-ERR-1")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;

    CO_EXPECT_NULL(co_function_of(ctx, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 2 (fn) of function_of is NULL");
    for (int i = 0; i < 2; ++i) {
        options.max_programs = i == 0 ? -1 : 1 << 30;
        CO_EXPECT_NULL(co_function_of(ctx, square_and_add, NULL, &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "options->max_programs is");
    }
}
