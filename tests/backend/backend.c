/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices with memory and a queue of their own, on the TEST backend. Where order matters, the queue
 * of a device is held by an event that has not happened, so that nothing depends on luck.
 */
#include "context/context.h"
#include "test.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#define ON_TEST "cpus=2, devices=TEST:3"

static co_device *
device_at(co_context *ctx, size_t i)
{
    return coi_devices_of_type(ctx->runtime->devices, "TEST", i);
}

/* Commands given to the queue of a device from now on run when the hold is let go. */
static co_backend_event *
hold(co_device *device)
{
    co_backend_event *event = NULL;

    CO_REQUIRE(device->backend->event->open(device->handle, &event, NULL) == CO_OK);
    CO_REQUIRE(device->backend->event->wait(device->queue, event, NULL) == CO_OK);
    return event;
}

/* The event happens in the queue of another device. */
static void
let_go(co_device *other, co_backend_event *event)
{
    CO_EXPECT_INT(other->backend->event->record(other->queue, event, NULL), CO_OK);
    other->backend->event->close(event);
}

static co_value *
vector(co_context *ctx, float a, float b, float c)
{
    const int64_t n = 3;

    return co_tensor(ctx, CO_FLOAT32, &n, 1, (const float[]){ a, b, c });
}

static void
expect_vector(co_context *ctx, co_value *x, float a, float b, float c)
{
    float out[3] = { 0 };

    CO_EXPECT_INT(co_value_copy_data(ctx, x, CO_FLOAT32, out, 3), CO_OK);
    CO_EXPECT_BYTES(out, ((const float[]){ a, b, c }), sizeof(out));
}

CO_TEST_WITH(devices_of_a_backend_are_found_by_their_type, "", ON_TEST)
{
    co_device_info info = CO_DEVICE_INFO_INIT;

    CO_EXPECT_INT(co_num_devices(ctx), 5);
    CO_EXPECT_INT(co_get_device_info(ctx, 3, &info), CO_OK);
    CO_EXPECT_CONTAINS(info.name, "/device:TEST:1");
    CO_EXPECT_STR(info.backend, "test");
    CO_EXPECT_FALSE(info.host_backed);
    CO_EXPECT_FALSE(info.host_memory);
    CO_EXPECT_INT(co_get_device_info(ctx, 0, &info), CO_OK);
    CO_EXPECT_TRUE(info.host_memory);
    CO_EXPECT_INT(co_declare_devices(ctx, "TEST", 7), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "has 8 devices");
}

CO_TEST_WITH(values_of_a_device_are_read_as_any, "", ON_TEST)
{
    CO_DEVICE(ctx, "/device:TEST:1") {
        co_value *x = co_add(ctx, vector(ctx, 1, 2, 3), co_float(ctx, 0.5));
        char      text[60];

        CO_EXPECT_CONTAINS(co_value_device(ctx, x), "TEST:1");
        expect_vector(ctx, x, 1.5F, 2.5F, 3.5F);
        co_format(ctx, x, text, sizeof(text));
        CO_EXPECT_STR(text, "[1.5, 2.5, 3.5]");
        CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, x))[2], 3.5, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, x, NULL, 0, false)), 7.5, 0);
        CO_EXPECT_STR(co_string_at(ctx, co_to_tensor(ctx, co_string(ctx, "a text"), CO_STRING), 0,
                                   NULL),
                      "a text");
    }
}

static __attribute__((noinline)) co_value *
touch_data(co_context *ctx, co_value *leaf, void *user)
{
    (void)ctx, (void)user;
    *(volatile char *)leaf->u.tensor.data += 1;
    return leaf;
}

typedef struct copies {
    int  n;
    char from[8][40], to[8][40];
} copies;

static void
note_copies(const co_observation *seen, void *user)
{
    copies *c = user;

    if (seen->phase != CO_OBSERVE_END || strcmp(seen->op, "copy_to_device") != 0 || c->n == 8)
        return;
    CO_EXPECT_STR(seen->device, seen->outputs[0].device);
    snprintf(c->from[c->n], sizeof(c->from[0]), "%s", strstr(seen->inputs[0].device, "device:"));
    snprintf(c->to[c->n++], sizeof(c->to[0]), "%s", strstr(seen->outputs[0].device, "device:"));
}

CO_TEST_WITH(copies_between_devices_are_shown_to_observers, "", ON_TEST)
{
    copies       c = { 0 };
    co_observer *observer = co_observe(ctx, note_copies, &c);
    co_value    *x = vector(ctx, 1, 2, 3), *y = NULL;

    y = co_copy_to(ctx, x, "/device:TEST:1");
    y = co_copy_to(ctx, y, "/device:TEST:2");
    expect_vector(ctx, y, 1, 2, 3);
    co_copy_to(ctx, x, "/cpu:1"); /* the same memory: nothing is copied */
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
    CO_EXPECT_INT(c.n, 3);
    CO_EXPECT_STR(c.from[0], "device:CPU:0");
    CO_EXPECT_STR(c.to[0], "device:TEST:1");
    CO_EXPECT_STR(c.from[1], "device:TEST:1");
    CO_EXPECT_STR(c.to[1], "device:TEST:2");
    CO_EXPECT_STR(c.from[2], "device:TEST:2");
    CO_EXPECT_STR(c.to[2], "device:CPU:0");
}

CO_TEST_BARE(a_host_that_touches_device_memory_is_caught_and_named, "")
{
    char    said[2000] = "";
    size_t  n = 0;
    ssize_t got;
    int     ends[2], status;
    pid_t   child;

    CO_REQUIRE(pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        co_context *own = co_open(ON_TEST);

        dup2(ends[1], STDERR_FILENO);
        CO_DEVICE(own, "/device:TEST:0")
            co_map_structure(own, co_list(own, (co_value *[]){ vector(own, 1, 2, 3) }, 1),
                             touch_data, NULL);
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], said + n, sizeof(said) - 1 - n)) > 0)
        n += (size_t)got;
    close(ends[0]);
    CO_REQUIRE(waitpid(child, &status, 0) == child);
    CO_EXPECT_TRUE(WIFEXITED(status));
    CO_EXPECT_INT(WEXITSTATUS(status), 86);
    CO_EXPECT_CONTAINS(said, "the host touches device memory");
    CO_EXPECT_CONTAINS(said, "touch_data");
}

/* What makes a missing wait a wrong result. */
CO_TEST_WITH(a_download_is_there_after_the_wait_and_not_before, "", ON_TEST)
{
    co_device        *device = device_at(ctx, 0);
    coi_buffer       *buffer = coi_buffer_alloc(device, 4, NULL);
    int32_t           out = -1;
    co_backend_event *event;

    CO_EXPECT_INT(coi_device_upload(device, buffer, 0, &(int32_t){ 42 }, 4, NULL), CO_OK);
    event = hold(device);
    CO_EXPECT_INT(device->backend->queue->download(device->queue, &out, coi_backend_buffer(buffer),
                                                   0, 4, NULL),
                  CO_OK);
    CO_EXPECT_INT(out, -1);
    let_go(device_at(ctx, 1), event);
    CO_EXPECT_INT(coi_device_synchronize(device, NULL), CO_OK);
    CO_EXPECT_INT(out, 42);
    coi_buffer_unref(buffer);
}

/* The memory of x is given to later tensors while the commands that read it still pend. */
CO_TEST_WITH(memory_goes_back_in_the_order_of_the_queue, "", ON_TEST)
{
    co_device        *device = device_at(ctx, 0);
    co_backend_event *event;
    co_device_info    before = CO_DEVICE_INFO_INIT, after = CO_DEVICE_INFO_INIT;

    CO_DEVICE(ctx, "/device:TEST:0") {
        co_value *sums[8];

        CO_BLOCK(ctx) /* the pool has what a round needs */
            co_neg(ctx, vector(ctx, 0, 0, 0));
        event = hold(device);
        for (int i = 0; i < 8; ++i)
            CO_BLOCK(ctx) {
                sums[i] = co_neg(ctx, vector(ctx, (float)i + 1, 1, 2));
                co_keep(ctx, sums[i]);
            }
        coi_device_fill_info(device, &before);
        CO_BLOCK(ctx)
            vector(ctx, 9, 9, 9);
        coi_device_fill_info(device, &after);
        CO_EXPECT_INT(after.pool_misses, before.pool_misses); /* it took the memory of an x */
        let_go(device_at(ctx, 1), event);
        for (int i = 0; i < 8; ++i) {
            expect_vector(ctx, sums[i], (float)(-i - 1), -1, -2);
            co_release(ctx, sums[i]);
        }
    }
    CO_EXPECT_OK(ctx);
}

/* A trim while commands pend frees in order too. */
CO_TEST_WITH(memory_is_freed_behind_the_commands_that_use_it, "", ON_TEST)
{
    co_device        *device = device_at(ctx, 0);
    co_backend_event *event;
    co_value         *sum = NULL;

    CO_DEVICE(ctx, "/device:TEST:0") {
        event = hold(device);
        CO_BLOCK(ctx) {
            sum = co_add(ctx, vector(ctx, 1, 2, 3), vector(ctx, 10, 20, 30));
            co_keep(ctx, sum);
        }
        coi_devices_trim(ctx->runtime->devices);
        let_go(device_at(ctx, 1), event);
        expect_vector(ctx, sum, 11, 22, 33);
        co_release(ctx, sum);
    }
}

CO_TEST_WITH(a_copy_waits_for_the_device_that_it_reads, "", ON_TEST)
{
    co_backend_event *event = hold(device_at(ctx, 0));
    co_value         *here = NULL, *there = NULL;

    CO_DEVICE(ctx, "/device:TEST:0")
        here = co_square(ctx, vector(ctx, 1, 2, 3));
    there = co_copy_to(ctx, here, "/device:TEST:1");
    CO_EXPECT_CONTAINS(co_value_device(ctx, there), "TEST:1");
    usleep(20000); /* a copy that does not wait would be done now */
    let_go(device_at(ctx, 2), event);
    expect_vector(ctx, there, 1, 4, 9);
}

/* What is written to the source after the copy was given does not come through. */
CO_TEST_WITH(the_source_of_a_copy_waits_for_it, "", ON_TEST)
{
    co_device        *from = device_at(ctx, 0), *to = device_at(ctx, 1);
    co_value         *here = NULL, *there;
    co_backend_event *event;

    CO_DEVICE(ctx, "/device:TEST:0")
        here = vector(ctx, 1, 2, 3);
    event = hold(to);
    there = co_copy_to(ctx, here, "/device:TEST:1");
    CO_EXPECT_INT(coi_device_fill(from, here->u.tensor.buffer, 0, 0, 12, NULL), CO_OK);
    let_go(device_at(ctx, 2), event);
    expect_vector(ctx, there, 1, 2, 3);
    expect_vector(ctx, here, 0, 0, 0);
}

typedef struct fallbacks {
    int64_t sin, add, sin_bytes, all;
} fallbacks;

static void
take_fallback(const char *device, const char *op, int64_t count, int64_t nbytes, void *user)
{
    fallbacks *f = user;

    if (strstr(device, "TEST:0") == NULL)
        return;
    f->all += count;
    if (strcmp(op, "sin") == 0) {
        f->sin += count;
        f->sin_bytes += nbytes;
    }
    f->add += strcmp(op, "add") == 0 ? count : 0;
}

CO_TEST_WITH(operators_without_a_kernel_are_counted_by_name, "", ON_TEST)
{
    fallbacks f = { 0 };

    co_fallbacks_visit(ctx, take_fallback, &f);
    CO_EXPECT_INT(f.all, 0);
    CO_DEVICE(ctx, "/device:TEST:0") {
        co_value *x = vector(ctx, 0, 0, 0);

        for (int i = 0; i < 3; ++i)
            x = co_sin(ctx, co_add(ctx, x, x));
        expect_vector(ctx, x, 0, 0, 0);
        co_fallbacks_visit(ctx, take_fallback, &f);
        CO_EXPECT_INT(f.sin, 3);
        CO_EXPECT_INT(f.sin_bytes, 3 * 2 * 12);
        CO_EXPECT_INT(f.add, 0);
        /* There is a kernel, but not for these dtypes. */
        co_add(ctx, co_cast(ctx, x, CO_INT32), co_int(ctx, 1));
        f = (fallbacks){ 0 };
        co_fallbacks_visit(ctx, take_fallback, &f);
        CO_EXPECT_INT(f.add, 1);
    }
    co_device_begin(ctx, "/cpu:0");
    f = (fallbacks){ 0 };
    co_sin(ctx, vector(ctx, 1, 2, 3)); /* a CPU has all */
    co_fallbacks_visit(ctx, take_fallback, &f);
    CO_EXPECT_INT(f.sin, 3);
    co_device_end(ctx);
    co_fallbacks_visit(NULL, take_fallback, &f);
    co_fallbacks_visit(ctx, NULL, NULL);
}

/* --- a kernel table that is full --- */

typedef struct tally {
    int rows, calls, others, lines;
} tally;

static void
take_row(const char *device, const char *op, int64_t count, int64_t nbytes, void *user)
{
    tally *t = user;

    (void)device, (void)nbytes;
    ++t->rows;
    t->calls += (int)count;
    t->others += strcmp(op, "other operators") == 0 ? (int)count : 0;
}

static void
take_line(co_log_level level, const char *line, void *user)
{
    tally *t = user;

    if (level == CO_LOG_WARNING && strstr(line, "TEST:0: its kernel table is full") != NULL)
        ++t->lines;
}

/* Names are equal by their text. What has no row of its own is counted all the same. */
CO_TEST_BARE(a_full_kernel_table_counts_all_fallbacks, "")
{
    enum { MORE = 76, ALL = COI_MAX_DEVICE_KERNELS + MORE };
    static char names[2][ALL][16];
    tally       t = { 0 };
    co_options  options = CO_OPTIONS_INIT;
    co_context *own;

    options.settings = "log=warning, " ON_TEST;
    options.log = take_line;
    options.log_user = &t;
    own = co_open_with(&options);
    CO_EXPECT_OK(own);
    for (int copy = 0; copy < 2; ++copy) {
        for (int i = 0; i < ALL; ++i) {
            snprintf(names[copy][i], sizeof(names[0][0]), "task %d", i);
            coi_count_named_fallback(device_at(own, 0), names[copy][i], 1);
        }
        t = (tally){ .lines = t.lines };
        co_fallbacks_visit(own, take_row, &t);
        CO_EXPECT_INT(t.rows, COI_MAX_DEVICE_KERNELS + 1);
        CO_EXPECT_INT(t.calls, (copy + 1) * ALL);
        CO_EXPECT_INT(t.others, (copy + 1) * MORE);
        CO_EXPECT_INT(t.lines, 1);
    }
    CO_DEVICE(own, "/device:TEST:0") /* an operator without a row: the host computes it */
        expect_vector(own, co_neg(own, vector(own, 1, 2, 3)), -1, -2, -3);
    t = (tally){ 0 };
    co_fallbacks_visit(own, take_row, &t);
    CO_EXPECT_INT(t.others, 2 * MORE + 1);
    CO_EXPECT_INT(t.lines, 0);
    CO_EXPECT_OK(own);
    co_close(own);
}

/* --- a backend with host memory --- */

#define ON_UNIFIED "devices=UNIFIED:2"

/* What a device of it did, and what an observer saw. */
typedef struct work {
    int  own_kernels, cpu_kernels, copies; /* kernels of "unified", others, and transfers */
    int  num_fallbacks;
    char fallbacks[8][24];
    int  fallback_calls, fallback_bytes;
} work;

static void
note_work(const co_observation *seen, void *user)
{
    work *w = user;

    if (seen->phase != CO_OBSERVE_END || seen->device == NULL ||
        strstr(seen->device, "UNIFIED:0") == NULL)
        return;
    w->copies += strcmp(seen->op, "copy_to_device") == 0 || strcmp(seen->op, "upload") == 0 ||
                 strcmp(seen->op, "download") == 0;
    if (seen->kernel != NULL && strcmp(seen->kernel, "unified") == 0)
        w->own_kernels += seen->code == CO_OK;
    else if (seen->kernel != NULL && strcmp(seen->kernel, "view") != 0)
        ++w->cpu_kernels;
}

static void
note_fallback(const char *device, const char *op, int64_t count, int64_t nbytes, void *user)
{
    work *w = user;

    CO_EXPECT_CONTAINS(device, "UNIFIED:0");
    if (w->num_fallbacks < 8)
        snprintf(w->fallbacks[w->num_fallbacks++], sizeof(w->fallbacks[0]), "%s", op);
    w->fallback_calls += (int)count;
    w->fallback_bytes += (int)nbytes;
}

/* Its counter of calls of add (0) or matmul (1). */
static int
calls_of_unified(int which)
{
    const char       *build = getenv("COHORT_BUILD_DIR");
    char              path[600];
    void             *handle;
    const atomic_int *calls;

    CO_REQUIRE(build != NULL);
    snprintf(path, sizeof(path), "%s/lib/cohort/libcohort_backend_unified.so", build);
    handle = dlopen(path, RTLD_NOW);
    CO_REQUIRE(handle != NULL);
    calls = dlsym(handle, "unified_calls");
    CO_REQUIRE(calls != NULL);
    which = atomic_load(&calls[which]);
    dlclose(handle);
    return which;
}

CO_TEST_WITH(a_backend_with_host_memory_runs_its_kernels, "", ON_UNIFIED)
{
    work         w = { 0 };
    co_observer *observer = co_observe(ctx, note_work, &w);
    int          adds = calls_of_unified(0), matmuls = calls_of_unified(1);

    CO_DEVICE(ctx, "/device:UNIFIED:0") {
        co_value *small = vector(ctx, 1, 2, 3); /* its data is in its cell */
        co_value *large = co_range(ctx, co_int(ctx, 0), co_int(ctx, 900), co_int(ctx, 1),
                                   CO_FLOAT32);
        co_value *matrix = co_reshape(ctx, large, CO_SHAPE(30, 30));

        w = (work){ 0 };
        small = co_add(ctx, small, small);
        CO_EXPECT_CONTAINS(co_value_device(ctx, small), "UNIFIED:0");
        expect_vector(ctx, small, 2, 4, 6);
        CO_EXPECT_INT(w.own_kernels, 1);
        CO_EXPECT_INT(w.cpu_kernels, 0);
        w = (work){ 0 };
        matrix = co_matmul(ctx, matrix, matrix);
        /* element (1, 2): the sum of (30 + k) (30 k + 2) over k < 30 */
        CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, matrix))[32], 650820, 0);
        CO_EXPECT_INT(w.own_kernels, 1);
        CO_EXPECT_INT(w.cpu_kernels, 0);
        CO_EXPECT_INT(w.copies, 0);
    }
    CO_EXPECT_INT(calls_of_unified(0) - adds, 1);
    CO_EXPECT_INT(calls_of_unified(1) - matmuls, 1);
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
    CO_EXPECT_OK(ctx);
}

/* Operators without a kernel of it, and operands that its kernels decline. */
CO_TEST_WITH(fallbacks_in_host_memory_are_in_place_and_counted, "", ON_UNIFIED)
{
    work         w = { 0 };
    co_observer *observer = co_observe(ctx, note_work, &w);
    int          adds = calls_of_unified(0);
    co_value    *host = vector(ctx, 0, 0, 0);

    CO_DEVICE(ctx, "/device:UNIFIED:0") {
        expect_vector(ctx, co_cos(ctx, co_sin(ctx, host)), 1, 1, 1); /* data of a CPU */
        expect_vector(ctx, co_add(ctx, host, co_float(ctx, 2)), 2, 2, 2);
        CO_EXPECT_STR(co_string_at(ctx, co_to_tensor(ctx, co_string(ctx, "a text"), CO_STRING), 0,
                                   NULL),
                      "a text");
    }
    CO_EXPECT_INT(co_unobserve(ctx, observer), CO_OK);
    CO_EXPECT_INT(calls_of_unified(0), adds);
    CO_EXPECT_INT(w.own_kernels, 0);
    CO_EXPECT_INT(w.cpu_kernels, 3);
    CO_EXPECT_INT(w.copies, 0);
    co_fallbacks_visit(ctx, note_fallback, &w);
    CO_EXPECT_INT(w.num_fallbacks, 3);
    CO_EXPECT_INT(w.fallback_calls, 3);
    CO_EXPECT_INT(w.fallback_bytes, 0);
    CO_DEVICE(ctx, "/cpu:0") /* a CPU has no fallbacks */
        co_sin(ctx, host);
    w = (work){ 0 };
    co_fallbacks_visit(ctx, note_fallback, &w);
    CO_EXPECT_INT(w.fallback_calls, 3);
    CO_EXPECT_OK(ctx);
}

/* Operators that a backend was asked for, and the calls of random_uniform_drawn. */
static struct {
    const co_backend       *backend;
    co_backend              noting;
    co_backend_device_table table;
    const char             *names[200];
    size_t                  n;
    int64_t                 seeds[8][2];
    size_t                  num_seeds;
} asked;

/* The host computes. */
static co_code
note_random(co_backend_queue *queue, const co_backend_call *call, co_error_info *err)
{
    (void)queue, (void)err;
    for (size_t i = 0; i < call->num_attrs && asked.num_seeds < 8; ++i)
        if (strcmp(call->attrs[i].name, "seed") == 0 && call->attrs[i].num_ints == 2)
            memcpy(asked.seeds[asked.num_seeds++], call->attrs[i].ints, sizeof(asked.seeds[0]));
    return CO_UNIMPLEMENTED;
}

static co_backend_kernel
note_kernel(co_backend_device *device, const char *op)
{
    CO_REQUIRE(asked.n < sizeof(asked.names) / sizeof(asked.names[0]));
    asked.names[asked.n++] = op;
    return strcmp(op, "random_uniform_drawn") == 0 ? note_random
                                                   : asked.backend->device->kernel(device, op);
}

/* Until end_noting, the kernels of the device are asked for by note_kernel. */
static void
begin_noting(co_device *device)
{
    memset(&asked, 0, sizeof(asked));
    asked.backend = device->backend;
    asked.table = *device->backend->device;
    asked.table.kernel = note_kernel;
    asked.noting = *device->backend;
    asked.noting.device = &asked.table;
    device->backend = &asked.noting;
}

static void
end_noting(co_device *device)
{
    device->backend = asked.backend;
}

static int
times_asked(const char *op)
{
    int n = 0;

    for (size_t i = 0; i < asked.n; ++i)
        n += strcmp(asked.names[i], op) == 0;
    return n;
}

/* Internal operators and variants for training have names of their own. */
CO_TEST_WITH(a_backend_is_asked_for_variants_too, "", ON_TEST)
{
    static const char *const names[] = {
        "attention",       "attention_training", "attention_grad",
        "layer_norm_rows", "layer_norm_grad",    "sparse_softmax_cross_entropy_training"
    };

    begin_noting(device_at(ctx, 0));
    CO_DEVICE(ctx, "/device:TEST:0") {
        co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4, 8)), *y;
        co_value *row = co_ones(ctx, CO_FLOAT32, CO_SHAPE(8));

        co_attention(ctx, x, x, x, 2, NULL);
        for (int i = 0; i < 2; ++i) {
            co_tape_begin(ctx);
            co_watch(ctx, x);
            y = co_layer_norm(ctx, co_attention(ctx, x, x, x, 2, NULL), row, row, NULL);
            y = co_sparse_softmax_cross_entropy(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(2, 4)), y);
            co_gradient(ctx, y, x);
        }
    }
    end_noting(device_at(ctx, 0));
    CO_EXPECT_TRUE(co_ok(ctx));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if (times_asked(names[i]) != 1)
            test_fail(TEST_AT, "%s was asked for %d times", names[i], times_asked(names[i]));
}

/* A backend that draws itself has what the numbers depend on, and the counter moves for it too. */
CO_TEST_WITH(kernels_of_random_numbers_get_seed_and_call, "", ON_TEST)
{
    co_value *here[2], *there[2];

    co_set_seed(ctx, 7);
    for (int i = 0; i < 2; ++i)
        here[i] = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    co_set_seed(ctx, 7);
    begin_noting(device_at(ctx, 0));
    CO_DEVICE(ctx, "/device:TEST:0")
        for (int i = 0; i < 2; ++i)
            there[i] = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    end_noting(device_at(ctx, 0));
    CO_EXPECT_INT(asked.num_seeds, 2);
    CO_EXPECT_INT(ctx->random_counter, 2);
    for (int i = 0; i < 2; ++i) {
        float out[2][3];

        CO_EXPECT_INT(asked.seeds[i][0], 7);
        CO_EXPECT_INT(asked.seeds[i][1], i);
        co_value_copy_data(ctx, here[i], CO_FLOAT32, out[0], 3);
        co_value_copy_data(ctx, there[i], CO_FLOAT32, out[1], 3);
        CO_EXPECT_BYTES(out[0], out[1], sizeof(out[0]));
    }
}

/* Operands of other devices come to the one that computes. */
CO_TEST_WITH(operands_on_several_devices_meet_where_the_operator_runs, "", ON_TEST)
{
    co_value *host = vector(ctx, 1, 2, 3), *first = NULL, *sum = NULL;

    CO_DEVICE(ctx, "/device:TEST:0")
        first = co_mul(ctx, host, co_float(ctx, 2));
    CO_DEVICE(ctx, "/device:TEST:1")
        sum = co_add(ctx, first, host);
    CO_EXPECT_CONTAINS(co_value_device(ctx, sum), "TEST:1");
    expect_vector(ctx, sum, 3, 6, 9);
    expect_vector(ctx, co_add(ctx, sum, first), 5, 10, 15);
}

/* --- shared objects that are no backends --- */

static void
expect_refused(const char *file, co_code code, const char *part)
{
    char        settings[600];
    co_options  options = CO_OPTIONS_INIT;
    co_context *ctx;
    const char *build = getenv("COHORT_BUILD_DIR");

    CO_REQUIRE(build != NULL);
    snprintf(settings, sizeof(settings), "log=off, backends=%s/tests/backend/%s", build, file);
    options.settings = settings;
    ctx = co_open_with(&options);
    CO_EXPECT_INT(co_error(ctx)->code, code);
    CO_EXPECT_CONTAINS(co_error(ctx)->message, part);
    CO_EXPECT_CONTAINS(co_error(ctx)->message, file);
    co_close(ctx);
}

CO_TEST_BARE(files_that_are_no_backends_are_refused_with_the_reason, "")
{
    char sizes[120];

    expect_refused("missing.so", CO_NOT_FOUND, "does not load");
    expect_refused("text.so", CO_NOT_FOUND, "does not load");
    expect_refused("libbackend_symbol.so", CO_INVALID_ARGUMENT,
                   "does not export co_backend_plugin");
    expect_refused("libbackend_abi.so", CO_UNIMPLEMENTED, "its abi is 3, expected 2");
    snprintf(sizes, sizeof(sizes),
             "struct co_backend than this library: its struct_size is %zu, expected %zu",
             sizeof(co_backend) - 8, sizeof(co_backend));
    expect_refused("libbackend_size.so", CO_UNIMPLEMENTED, sizes);
    expect_refused("libbackend_slots.so", CO_INVALID_ARGUMENT, "lacks a queue table");
    expect_refused("libbackend_type.so", CO_INVALID_ARGUMENT, "device type 'fake'");
    expect_refused("libbackend_cpu.so", CO_ALREADY_EXISTS, "which the library does itself");
}

/* A backend that is whole and does not work: its error comes through, and one is found for it where
 * it gives none. */
CO_TEST_BARE(a_backend_that_opens_nothing_is_an_error, "")
{
    const char *build = getenv("COHORT_BUILD_DIR");
    char        settings[600];
    co_context *own;

    CO_REQUIRE(build != NULL);
    snprintf(settings, sizeof(settings),
             "log=off, devices=FAKE:1, backends=%s/tests/backend/libbackend_whole.so", build);
    own = co_open(settings);
    CO_EXPECT_INT(co_error(own)->code, CO_INTERNAL);
    CO_EXPECT_CONTAINS(co_error(own)->message, "backend 'fake' opened no device for");
    co_close(own);
}

/* --- backends that fail while they run --- */

static co_context *
open_faulty(int fault)
{
    const char *build = getenv("COHORT_BUILD_DIR");
    char        settings[600];
    co_context *own;

    CO_REQUIRE(build != NULL);
    snprintf(settings, sizeof(settings),
             "log=off, devices=FAULTY:1, backends=%s/tests/backend/libfaulty_%d.so", build, fault);
    own = co_open(settings);
    CO_EXPECT_OK(own);
    co_device_begin(own, "/device:FAULTY:0");
    return own;
}

CO_TEST_BARE(a_backend_that_gives_no_reason_fails_all_the_same, "")
{
    co_context *own = open_faulty(1);

    CO_EXPECT_NULL(vector(own, 1, 2, 3));
    CO_EXPECT_ERROR(own, CO_DATA_LOSS, "failed to upload on");
    co_close(own);
}

CO_TEST_BARE(memory_that_is_none_is_an_error, "")
{
    co_context *own = open_faulty(2);

    CO_EXPECT_NULL(vector(own, 1, 2, 3));
    CO_EXPECT_ERROR(own, CO_INTERNAL, "backend 'faulty' allocated nothing");
    co_close(own);
}

/* Each record has its reason, and nothing is left on the device for other calls and threads. */
CO_TEST_BARE(the_reason_of_a_failed_allocation_is_in_the_record_of_the_caller, "")
{
    co_context   *own = open_faulty(2);
    co_device    *device = coi_devices_of_type(own->runtime->devices, "FAULTY", 0);
    co_error_info err[3] = { { .code = CO_OK } };

    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_NULL(coi_buffer_alloc(device, 100, &err[i]));
        CO_EXPECT_INT(err[i].code, CO_INTERNAL);
        CO_EXPECT_CONTAINS(err[i].message, "backend 'faulty' allocated nothing");
    }
    CO_EXPECT_INT(coi_device_synchronize(device, &err[2]), CO_OK);
    CO_EXPECT_INT(err[2].code, CO_OK);
    CO_EXPECT_NULL(coi_buffer_alloc(device, SIZE_MAX, &err[2])); /* lack of memory is no failure */
    CO_EXPECT_INT(err[2].code, CO_OK);
    co_close(own);
}

CO_TEST_BARE(memory_that_is_not_aligned_is_an_error, "")
{
    for (int fault = 4; fault <= 5; ++fault) {
        co_context *own = open_faulty(fault);

        CO_EXPECT_NULL(co_zeros(own, CO_FLOAT32, CO_SHAPE(1000)));
        CO_EXPECT_CONTAINS(co_error(own)->message, "backend 'faulty' gave");
        CO_EXPECT_CONTAINS(co_error(own)->message, "/device:FAULTY:0 the address");
        CO_EXPECT_ERROR(own, CO_INTERNAL, "it must be a multiple of 64, and not NULL");
        /* Every time, and not only the first. */
        CO_EXPECT_NULL(co_zeros(own, CO_FLOAT32, CO_SHAPE(1000)));
        CO_EXPECT_ERROR(own, CO_INTERNAL, "a multiple of 64");
        CO_EXPECT_CODE(co_close(own), CO_OK);
    }
}

/* The first to wait is the pool, which has nobody to tell. */
CO_TEST_BARE(a_late_error_is_told_to_the_next_one_who_waits, "")
{
    co_context *own = open_faulty(3);
    co_value   *lost = vector(own, 1, 2, 3);
    float       out[3];

    CO_EXPECT_OK(own);
    CO_BLOCK(own)
        co_zeros(own, CO_FLOAT32, CO_SHAPE(500000)); /* given back to the backend at its end */
    CO_EXPECT_OK(own);
    co_value_copy_data(own, lost, CO_FLOAT32, out, 3);
    CO_EXPECT_ERROR(own, CO_ABORTED, "the upload of before was lost");
    co_close(own);
}
