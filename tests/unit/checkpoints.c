/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of programs: what comes back, under which strategy, and what is refused. Killed
 * programs are in tests/kills.
 */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 6, EXAMPLES = 40 };

/* --- folders --- */

static const char *
new_folder(void)
{
    static char path[64];

    snprintf(path, sizeof(path), "/tmp/cohort-checkpoints-XXXXXX");
    CO_REQUIRE(mkdtemp(path) != NULL);
    return path;
}

static void
remove_folder(const char *path)
{
    DIR           *names = opendir(path);
    struct dirent *name;
    char           file[400];

    while (names != NULL && (name = readdir(names)) != NULL)
        if (strcmp(name->d_name, ".") != 0 && strcmp(name->d_name, "..") != 0) {
            snprintf(file, sizeof(file), "%s/%s", path, name->d_name);
            unlink(file);
        }
    if (names != NULL)
        closedir(names);
    rmdir(path);
}

/* --- a program with every kind of state --- */

typedef struct program {
    co_context    *ctx;
    co_strategy   *strategy;
    co_value      *weights, *total, *generator; /* total: a sum that each replica has for itself */
    co_optimizer  *adam;
    co_metric     *mean;
    co_dataset    *dataset;
    co_iterator   *input;
    co_function   *captured; /* NULL: eager */
    int64_t        step;
    co_checkpoint *checkpoint;
} program;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    program  *p = user;
    co_value *x = co_at(ctx, args, 0), *losses;

    x = co_dropout(ctx, x, 0.25);
    x = co_add(ctx, x, co_generator_normal(ctx, p->generator, CO_FLOAT32, CO_SHAPE(SIZE), NULL));
    co_tape_begin(ctx);
    losses = co_reduce_mean(
        ctx, co_squared_difference(ctx, co_mul(ctx, x, p->weights), co_float(ctx, 1)),
        (const int[]){ 1 }, 1, false);
    co_minimize(ctx, p->adam, co_average_loss(ctx, losses));
    co_assign_add(ctx, p->total, co_reduce_sum(ctx, losses, CO_ALL_AXES, false));
    co_metric_update(ctx, p->mean, losses, NULL, NULL);
    return losses;
}

static co_strategy *
test_mirrored(co_context *ctx, int replicas)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:2" };

    return co_mirrored_strategy(ctx, devices, (size_t)replicas, NULL);
}

static void
make_variables(program *p)
{
    co_context          *ctx = p->ctx;
    co_variable_options  named = CO_VARIABLE_OPTIONS_INIT, summed = CO_VARIABLE_OPTIONS_INIT;
    co_optimizer_options options = CO_OPTIMIZER_OPTIONS_INIT;

    named.name = "weights";
    summed.name = "total";
    summed.synchronization = CO_SYNC_ON_READ;
    summed.aggregation = CO_AGGREGATION_SUM;
    p->weights = co_variable(ctx, co_fill(ctx, CO_SHAPE(SIZE), co_float(ctx, 0.1)), &named);
    p->total = co_variable(ctx, co_to_tensor(ctx, co_float(ctx, 0), CO_FLOAT32), &summed);
    p->generator = co_generator(ctx, 5);
    p->mean = co_metric_new(ctx, CO_METRIC_MEAN, NULL);
    p->adam = co_adam(ctx, NULL);
    options.accumulation_steps = 3;
    options.ema_momentum = 0.75;
    co_optimizer_configure(ctx, p->adam, &options);
}

static void
make_input(program *p)
{
    co_context *ctx = p->ctx;
    float       data[EXAMPLES * SIZE];

    for (int i = 0; i < EXAMPLES * SIZE; ++i)
        data[i] = (float)((i * 7919) % 101 - 50) * 0.02f;
    p->dataset = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32,
                                                              CO_SHAPE(EXAMPLES, SIZE), data));
    p->dataset = co_dataset_shuffle(ctx, p->dataset, EXAMPLES, 11, true);
    p->dataset = co_dataset_batch(ctx, p->dataset, 7, false);
    p->dataset = co_dataset_repeat(ctx, p->dataset, -1);
    if (p->strategy != NULL)
        p->dataset = co_distribute_dataset(ctx, p->strategy, p->dataset, NULL);
    p->input = co_iterate(ctx, p->dataset);
}

static void
open_program(program *p, co_context *ctx, int replicas, bool is_captured, const char *folder)
{
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;

    *p = (program){ .ctx = ctx };
    co_set_seed(ctx, 3);
    if (replicas > 0) {
        p->strategy = test_mirrored(ctx, replicas);
        CO_SCOPE(ctx, p->strategy) {
            make_variables(p);
        }
    } else {
        make_variables(p);
    }
    make_input(p);
    if (is_captured)
        p->captured = co_function_of(ctx, train, p, NULL);
    options.waits = replicas % 2 == 0;
    if (p->strategy != NULL)
        CO_SCOPE(ctx, p->strategy) {
            p->checkpoint = co_checkpoint_open(ctx, folder, &options);
        }
    else
        p->checkpoint = co_checkpoint_open(ctx, folder, &options);
    co_checkpoint_add(ctx, p->checkpoint, "model",
                      co_dict(ctx, (const char *[]){ "generator", "total", "weights" },
                              (co_value *[]){ p->generator, p->total, p->weights }, 3));
    co_checkpoint_add_optimizer(ctx, p->checkpoint, "adam", p->adam, co_list(ctx, &p->weights, 1));
    co_checkpoint_add_metric(ctx, p->checkpoint, "mean", p->mean);
    co_checkpoint_add_iterator(ctx, p->checkpoint, "input", p->dataset, &p->input);
    co_checkpoint_add_counter(ctx, p->checkpoint, "step", &p->step);
    CO_EXPECT_OK(ctx);
}

static void
take_steps(program *p, int n)
{
    co_context *ctx = p->ctx;

    for (; n > 0; --n, ++p->step)
        CO_BLOCK(ctx) {
            co_value *args = co_args(ctx, co_next(ctx, p->input));
            co_fn     fn = p->captured != NULL ? co_captured : train;
            void     *user = p->captured != NULL ? (void *)p->captured : (void *)p;

            if (p->strategy != NULL)
                co_run(ctx, p->strategy, fn, args, user);
            else
                fn(ctx, args, user);
        }
    CO_EXPECT_OK(ctx);
}

/* What a run comes to, to the bit. */
typedef struct outcome {
    float   weights[SIZE], total, mean;
    int64_t step;
} outcome;

static outcome
outcome_of(program *p)
{
    co_context *ctx = p->ctx;
    outcome     o;

    memset(&o, 0, sizeof(o));
    co_value_copy_data(ctx, co_variable_save(ctx, p->weights), CO_FLOAT32, o.weights, SIZE);
    o.total = (float)co_item_float(ctx, co_variable_save(ctx, p->total));
    o.mean = (float)co_item_float(ctx, co_metric_result(ctx, p->mean));
    o.step = p->step;
    CO_EXPECT_OK(ctx);
    return o;
}

/* --- tests --- */

static void
compare_runs(co_context *ctx, int replicas, bool is_captured)
{
    const char *folder = new_folder();
    program     p;
    outcome     whole, resumed;

    for (int at = 1; at < 12; at += 3) { /* in the middle of cycles of accumulation, too */
        CO_BLOCK(ctx) {
            open_program(&p, ctx, replicas, is_captured, folder);
            take_steps(&p, at);
            CO_EXPECT_CODE(co_checkpoint_save(ctx, p.checkpoint, at, NULL), CO_OK);
            take_steps(&p, 12 - at);
            whole = outcome_of(&p);
            CO_EXPECT_CODE(co_checkpoint_close(ctx, p.checkpoint), CO_OK);
        }
        CO_BLOCK(ctx) {
            open_program(&p, ctx, replicas, is_captured, folder);
            take_steps(&p, 2); /* which is forgotten */
            CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_OK);
            CO_EXPECT_INT(co_checkpoint_restored(ctx, p.checkpoint), at);
            CO_EXPECT_INT(p.step, at);
            take_steps(&p, 12 - at);
            resumed = outcome_of(&p);
            CO_EXPECT_CODE(co_checkpoint_close(ctx, p.checkpoint), CO_OK);
        }
        CO_EXPECT_BYTES(&resumed, &whole, sizeof(whole));
    }
    remove_folder(folder);
}

CO_TEST_WITH(a_run_goes_on_with_the_same_bits, "TR-4", "cpus=3")
{
    for (int replicas = 0; replicas < 4; ++replicas)
        for (int is_captured = 0; is_captured < 2; ++is_captured)
            compare_runs(ctx, replicas, is_captured != 0);
}

static bool
is_in(co_context *ctx, co_value *list, const char *part)
{
    for (size_t i = 0; i < co_num_items(ctx, list); ++i) {
        size_t      n;
        const char *text = co_string_at(ctx, co_at(ctx, list, i), 0, &n);

        if (text != NULL && strstr(text, part) != NULL)
            return true;
    }
    return false;
}

CO_TEST(names_and_shapes_are_compared, "")
{
    const char           *folder = new_folder();
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *a = co_variable(ctx, co_fill(ctx, CO_SHAPE(2), co_float(ctx, 1)), NULL);
    co_value             *b = co_variable(ctx, co_fill(ctx, CO_SHAPE(3), co_float(ctx, 2)), NULL);
    co_value             *c = co_variable(ctx, co_fill(ctx, CO_SHAPE(4), co_float(ctx, 3)), NULL);
    co_checkpoint        *first = co_checkpoint_open(ctx, folder, NULL), *second;
    co_value             *report;

    co_checkpoint_add(ctx, first, "a", a);
    co_checkpoint_add(ctx, first, "b", b);
    CO_EXPECT_CODE(co_checkpoint_add(ctx, first, "a", b), CO_ALREADY_EXISTS);
    CO_EXPECT_ERROR(ctx, CO_ALREADY_EXISTS, "'a' was added to the checkpoint already");
    CO_EXPECT_CODE(co_checkpoint_save(ctx, first, 5, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, first), CO_OK);
    for (int partial = 0; partial < 2; ++partial) {
        options.is_partial = partial != 0;
        second = co_checkpoint_open(ctx, folder, &options);
        co_checkpoint_add(ctx, second, "a", a);
        co_checkpoint_add(ctx, second, "b", c);
        co_checkpoint_add(ctx, second, "new", c);
        co_assign(ctx, a, co_fill(ctx, CO_SHAPE(2), co_float(ctx, 9)));
        co_checkpoint_restore(ctx, second, NULL);
        if (partial == 0)
            CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "does not fit the program in 2 tensors");
        CO_EXPECT_OK(ctx);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, a, CO_ALL_AXES, false)),
                        partial != 0 ? 1.0 : 9.0, 0.0);
        report = co_checkpoint_report(ctx, second);
        CO_EXPECT_TRUE(is_in(ctx, co_get(ctx, report, "restored"), "a"));
        CO_EXPECT_TRUE(is_in(ctx, co_get(ctx, report, "missing"), "new"));
        CO_EXPECT_TRUE(is_in(ctx, co_get(ctx, report, "different"),
                             "b: float32 [4] in the program, float32 [3] in the checkpoint"));
        CO_EXPECT_CODE(co_checkpoint_close(ctx, second), CO_OK);
    }
    remove_folder(folder);
}

static int64_t
count_steps(co_context *ctx, co_checkpoint *checkpoint)
{
    return co_value_num_elements(ctx, co_checkpoint_steps(ctx, checkpoint));
}

CO_TEST(the_last_and_the_best_stay, "")
{
    static const double   values[] = { 0.5, 0.25, 0.75, 0.125, 1.0, 2.0, NAN };
    static const int64_t  stay[] = { 1, 3, 5, 6 };
    const char           *folder = new_folder();
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_checkpoint        *checkpoint;

    options.keep_last = 2;
    options.keep_best = 2;
    checkpoint = co_checkpoint_open(ctx, folder, &options);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    for (int i = 0; i < 7; ++i) {
        co_checkpoint_save_options how = CO_CHECKPOINT_SAVE_OPTIONS_INIT;

        how.value = values[i];
        co_assign(ctx, v, co_to_tensor(ctx, co_float(ctx, i), CO_FLOAT32));
        CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, i, &how), CO_OK);
    }
    for (int again = 0; again < 2; ++again) {
        co_checkpoint_restore_options best = CO_CHECKPOINT_RESTORE_OPTIONS_INIT;
        const int64_t *steps = co_value_data(ctx, co_checkpoint_steps(ctx, checkpoint));

        CO_EXPECT_INT(count_steps(ctx, checkpoint), 4);
        for (int i = 0; steps != NULL && i < 4; ++i)
            CO_EXPECT_INT(steps[i], stay[i]);
        best.step = CO_CHECKPOINT_BEST;
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, &best), CO_OK);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, v)), 3.0, 0.0);
        best.step = 4;
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, &best), CO_NOT_FOUND);
        CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "there is no checkpoint 4");
        CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
        checkpoint = co_checkpoint_open(ctx, folder, &options); /* from the index */
        co_checkpoint_add(ctx, checkpoint, "v", v);
    }
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

static void
flip(const char *folder, const char *name, off_t from_end)
{
    char path[400];
    char byte = 0;
    int  fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDWR);
    CO_REQUIRE(fd >= 0);
    CO_REQUIRE(pread(fd, &byte, 1, lseek(fd, -from_end, SEEK_END)) == 1);
    byte = (char)(byte ^ 4);
    CO_REQUIRE(pwrite(fd, &byte, 1, lseek(fd, -from_end, SEEK_END)) == 1);
    close(fd);
}

CO_TEST(a_damaged_checkpoint_is_skipped_for_the_one_before, "")
{
    const char                   *folder = new_folder();
    co_value                     *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_checkpoint                *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_restore_options which = CO_CHECKPOINT_RESTORE_OPTIONS_INIT;

    co_checkpoint_add(ctx, checkpoint, "v", co_dict(ctx, (const char *[]){ "w" }, &v, 1));
    for (int i = 1; i < 4; ++i) {
        co_assign(ctx, v, co_to_tensor(ctx, co_float(ctx, i), CO_FLOAT32));
        CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, i, NULL), CO_OK);
    }
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, checkpoint), CO_OK);
    flip(folder, "step-3.safetensors", 2);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(co_checkpoint_restored(ctx, checkpoint), 2);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, v)), 2.0, 0.0);
    which.step = 3;
    co_checkpoint_restore(ctx, checkpoint, &which);
    CO_EXPECT_STR(co_error(ctx)->call, "checkpoint_restore");
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "it is damaged");
    flip(folder, "index", 4);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    checkpoint = co_checkpoint_open(ctx, folder, NULL);
    CO_EXPECT_INT(count_steps(ctx, checkpoint), 3);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

CO_TEST(a_folder_has_one_writer, "")
{
    const char           *folder = new_folder();
    co_checkpoint        *first = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_checkpoint        *reader;

    CO_EXPECT_NULL(co_checkpoint_open(ctx, folder, NULL));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "writes checkpoints to");
    options.is_reader = true;
    reader = co_checkpoint_open(ctx, folder, &options);
    co_checkpoint_add(ctx, first, "v", v);
    co_checkpoint_add(ctx, reader, "v", v);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, reader, NULL), CO_OK); /* there is none */
    CO_EXPECT_INT(co_checkpoint_restored(ctx, reader), -1);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, first, 7, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, first), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, reader, NULL), CO_OK);
    CO_EXPECT_INT(co_checkpoint_restored(ctx, reader), 7);
    co_checkpoint_save(ctx, reader, 8, NULL);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "is_reader");
    CO_EXPECT_CODE(co_checkpoint_close(ctx, first), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, first), CO_OK);
    co_checkpoint_save(ctx, first, 9, NULL);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "was closed");
    first = co_checkpoint_open(ctx, folder, NULL);
    CO_EXPECT_INT(count_steps(ctx, first), 1);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, first), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, reader), CO_OK);
    remove_folder(folder);
}

CO_TEST(a_full_disk_loses_nothing, "")
{
    const char           *folder = new_folder();
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(50000)), NULL);
    co_checkpoint        *checkpoint;
    struct rlimit         before, small;

    CO_REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    for (int waits = 0; waits < 2; ++waits) {
        options.waits = waits != 0;
        checkpoint = co_checkpoint_open(ctx, folder, &options);
        co_checkpoint_add(ctx, checkpoint, "v", co_dict(ctx, (const char *[]){ "w" }, &v, 1));
        CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
        CO_EXPECT_CODE(co_checkpoint_wait(ctx, checkpoint), CO_OK);
        signal(SIGXFSZ, SIG_IGN);
        small = before;
        small.rlim_cur = 60000;
        CO_REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
        co_checkpoint_save(ctx, checkpoint, 2, NULL);
        if (waits == 0)
            co_checkpoint_wait(ctx, checkpoint);
        CO_EXPECT_STR(co_error(ctx)->call, waits != 0 ? "checkpoint_save" : "checkpoint_wait");
        CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "checkpoint 2 was not written");
        CO_REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
        CO_EXPECT_INT(count_steps(ctx, checkpoint), 1);
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
        CO_EXPECT_INT(co_checkpoint_restored(ctx, checkpoint), 1);
        CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    }
    remove_folder(folder);
}

static co_value *
save_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_checkpoint_save(ctx, user, 1, NULL);
    return NULL;
}

CO_TEST(misuse_is_an_error, "")
{
    const char           *folder = new_folder();
    co_checkpoint        *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *v = co_variable(ctx, co_float(ctx, 1), NULL);

    co_checkpoint_add(ctx, checkpoint, "v", v);
    co_checkpoint_add(ctx, checkpoint, "", v);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "name");
    co_checkpoint_add(ctx, checkpoint, "x", co_float(ctx, 1));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "must be variables");
    co_checkpoint_add_counter(ctx, checkpoint, "n", NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "address of your number");
    co_checkpoint_add_user(ctx, checkpoint, "u", NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "lacks a function");
    co_checkpoint_save(ctx, checkpoint, -1, NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "must not be negative");
    co_run(ctx, co_one_device_strategy(ctx, "/cpu:0"), save_in_step, co_args(ctx, v), checkpoint);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "call it between steps");
    co_call(ctx, co_function_of(ctx, save_in_step, checkpoint, NULL), co_args(ctx, v));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "a captured function");
    CO_EXPECT_NULL(co_checkpoint_open(ctx, "/dev/null/x", NULL));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "cannot make the folder");
    options.keep_last = -1;
    CO_EXPECT_NULL(co_checkpoint_open(ctx, folder, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "keep_last is -1");
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

/* --- what killed programs and other programs leave --- */

CO_TEST(the_owner_removes_what_a_killed_program_left, "")
{
    static const char *const names[] = { ".step-7.safetensors.123-0.tmp", ".index.123-0.tmp",
                                         ".index.hidden", "notes.tmp" };
    const char              *folder = new_folder();
    char                     path[400];
    co_checkpoint_options    options = CO_CHECKPOINT_OPTIONS_INIT;
    co_checkpoint           *checkpoint;

    for (int i = 0; i < 4; ++i) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    for (int reads = 1; reads >= 0; --reads) {
        options.is_reader = reads != 0;
        checkpoint = co_checkpoint_open(ctx, folder, &options);
        for (int i = 0; i < 4; ++i) {
            snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
            CO_EXPECT_INT(access(path, F_OK), i < 2 && reads == 0 ? -1 : 0);
        }
        CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    }
    remove_folder(folder);
}

static void
save_at(co_context *ctx, int replicas, const char *folder, int step)
{
    program p;

    CO_BLOCK(ctx) {
        open_program(&p, ctx, replicas, false, folder);
        take_steps(&p, step);
        CO_EXPECT_CODE(co_checkpoint_save(ctx, p.checkpoint, step, NULL), CO_OK);
        CO_EXPECT_CODE(co_checkpoint_close(ctx, p.checkpoint), CO_OK);
    }
}

CO_TEST_WITH(iterators_of_other_replicas_do_not_go_on, "", "cpus=3")
{
    const char           *folder = new_folder();
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *report;
    program               p;

    save_at(ctx, 2, folder, 5);
    open_program(&p, ctx, 3, false, folder);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_VALUE_ERROR);
    CO_EXPECT_STR(co_error(ctx)->call, "checkpoint_restore");
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the iterator 'input' cannot go on, and nothing was");
    CO_EXPECT_INT(p.step, 0);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, p.checkpoint), CO_OK);

    options.is_partial = true;
    CO_SCOPE(ctx, p.strategy) {
        p.checkpoint = co_checkpoint_open(ctx, folder, &options);
    }
    co_checkpoint_add_iterator(ctx, p.checkpoint, "input", p.dataset, &p.input);
    co_checkpoint_add_counter(ctx, p.checkpoint, "step", &p.step);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(p.step, 5);
    report = co_checkpoint_report(ctx, p.checkpoint);
    CO_EXPECT_TRUE(
        is_in(ctx, co_get(ctx, report, "different"), "input: the iterator cannot go on"));
    CO_EXPECT_FALSE(is_in(ctx, co_get(ctx, report, "restored"), "input"));
    CO_EXPECT_CODE(co_checkpoint_close(ctx, p.checkpoint), CO_OK);
    remove_folder(folder);
}

typedef struct custom {
    bool fails;
    int  num_restored;
} custom;

static co_value *
save_custom(co_context *ctx, void *user)
{
    return ((custom *)user)->fails ? NULL : co_bytes(ctx, "a\0b", 3);
}

static co_code
restore_custom(co_context *ctx, co_value *saved, void *user)
{
    size_t      n = 0;
    const char *bytes = co_string_at(ctx, saved, 0, &n);

    CO_EXPECT_INT(n, 3);
    if (bytes != NULL)
        CO_EXPECT_BYTES(bytes, "a\0b", 3);
    ++((custom *)user)->num_restored;
    return CO_OK;
}

CO_TEST(state_of_the_user_comes_back, "")
{
    const char        *folder = new_folder();
    custom             c = { 0 };
    co_checkpoint_user user = { save_custom, restore_custom, &c };
    co_checkpoint     *checkpoint = co_checkpoint_open(ctx, folder, NULL);

    co_checkpoint_add_user(ctx, checkpoint, "custom", &user);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
    c.fails = true;
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 2, NULL), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "the save function of 'custom' returned NULL");
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(co_checkpoint_restored(ctx, checkpoint), 1);
    CO_EXPECT_INT(c.num_restored, 1);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

/* --- what is there already --- */

static void
make_path(char *out, size_t capacity, const char *folder, const char *name)
{
    snprintf(out, capacity, "%s/%s", folder, name);
}

static void
write_file(const char *folder, const char *name, const void *bytes, size_t nbytes)
{
    char path[400];
    int  fd;

    make_path(path, sizeof(path), folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CO_REQUIRE(fd >= 0);
    CO_REQUIRE(write(fd, bytes, nbytes) == (ssize_t)nbytes);
    close(fd);
}

/* A safetensors file of another program. */
static void
write_foreign(const char *folder, const char *name, const char *header, const void *data,
              size_t nbytes)
{
    char   bytes[1000] = { 0 };
    size_t n = strlen(header);

    CO_REQUIRE(8 + n + nbytes <= sizeof(bytes) && n < 256 * 256);
    bytes[0] = (char)(n & 255);
    bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, header, n);
    memcpy(bytes + 8 + n, data, nbytes);
    write_file(folder, name, bytes, 8 + n + nbytes);
}

CO_TEST(files_of_other_programs_are_compared, "")
{
    static const char eight[] =
        "{\"v\":{\"dtype\":\"F8_E5M2\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    static const char truth[] = "{\"v\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    static const char ours[] = "{\"__metadata__\":{\"cohort.checkpoint\":\"1\"},"
                               "\"v\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    const char       *folder = new_folder();
    co_checkpoint    *halves, *bools;
    co_value         *half = co_variable(ctx, co_zeros(ctx, CO_FLOAT16, CO_SHAPE(2)), NULL);
    co_value         *bit = co_variable(ctx, co_zeros(ctx, CO_BOOL, CO_SHAPE(2)), NULL);
    bool              bits[2] = { false, true };

    write_foreign(folder, "step-1.safetensors", eight, "\x3c\x3c", 2);
    halves = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_add(ctx, halves, "v", half);
    co_checkpoint_restore(ctx, halves, NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "float8_e5m2 [2] in the checkpoint");
    CO_EXPECT_CODE(co_checkpoint_close(ctx, halves), CO_OK);
    write_foreign(folder, "step-1.safetensors", truth, "\x07\x00", 2);
    bools = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_add(ctx, bools, "v", bit);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, bools, NULL), CO_OK);
    memcpy(bits, co_value_data(ctx, co_variable_read(ctx, bit)), sizeof(bits));
    CO_EXPECT_BYTES(bits, "\x01\x00", 2);
    write_foreign(folder, "step-1.safetensors", ours, "\x00\x01", 2);
    co_checkpoint_restore(ctx, bools, NULL);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "has no checksum");
    CO_EXPECT_CODE(co_checkpoint_close(ctx, bools), CO_OK);
    remove_folder(folder);
}

CO_TEST(what_is_no_file_is_not_written_to, "")
{
    const char           *folder = new_folder();
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_value             *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_checkpoint        *checkpoint;
    char                  path[400];

    options.waits = true;
    make_path(path, sizeof(path), folder, "step-3.safetensors");
    CO_REQUIRE(mkfifo(path, 0666) == 0);
    write_file(folder, ".step-4.safetensors.1-0.tmp", "x", 1);
    write_file(folder, ".index.1-0.tmp", "x", 1);
    checkpoint = co_checkpoint_open(ctx, folder, &options);
    CO_EXPECT_INT(count_steps(ctx, checkpoint), 0);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    co_checkpoint_save(ctx, checkpoint, 3, NULL);
    CO_EXPECT_ERROR(ctx, CO_ALREADY_EXISTS, "is no regular file");
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, INT64_MAX, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_TRUE(co_checkpoint_restored(ctx, checkpoint) == INT64_MAX);
    make_path(path, sizeof(path), folder, ".step-4.safetensors.1-0.tmp");
    CO_EXPECT_TRUE(access(path, F_OK) != 0);
    make_path(path, sizeof(path), folder, ".index.1-0.tmp");
    CO_EXPECT_TRUE(access(path, F_OK) != 0);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

CO_TEST(a_run_that_went_back_keeps_what_it_saves, "")
{
    const char                   *folder = new_folder();
    co_checkpoint_options         options = CO_CHECKPOINT_OPTIONS_INIT;
    co_checkpoint_restore_options which = CO_CHECKPOINT_RESTORE_OPTIONS_INIT;
    co_value                     *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_checkpoint                *checkpoint, *reader;

    options.keep_last = 2;
    checkpoint = co_checkpoint_open(ctx, folder, &options);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    options.is_reader = true;
    reader = co_checkpoint_open(ctx, folder, &options);
    for (int step = 10; step < 13; ++step)
        CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, step, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 5, NULL), CO_OK);
    which.step = 5;
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, &which), CO_OK);
    CO_EXPECT_INT(count_steps(ctx, checkpoint), 3);
    CO_EXPECT_INT(count_steps(ctx, reader), 3); /* as the folder is now */
    CO_EXPECT_CODE(co_checkpoint_close(ctx, reader), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

CO_TEST(a_long_path_is_not_cut, "")
{
    const char    *folder = new_folder();
    char           path[1400];
    size_t         n = (size_t)snprintf(path, sizeof(path), "%s", folder);
    co_value      *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_checkpoint *checkpoint;

    for (int i = 0; i < 6; ++i) {
        path[n] = '/';
        memset(path + n + 1, 'a' + i, 200);
        n += 201;
        path[n] = '\0';
    }
    checkpoint = co_checkpoint_open(ctx, path, NULL);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(co_checkpoint_restored(ctx, checkpoint), 1);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    for (; n > strlen(folder); n -= 201) {
        path[n] = '\0';
        remove_folder(path);
    }
    remove_folder(folder);
}

/* --- what a newcomer does --- */

CO_TEST(what_cannot_be_saved_is_refused_when_it_is_added, "")
{
    const char                *folder = new_folder();
    co_checkpoint             *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_save_options how = CO_CHECKPOINT_SAVE_OPTIONS_INIT;
    co_value                  *v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_value                  *text = co_variable(ctx, co_string(ctx, "x"), NULL);
    char                       note[700];

    co_checkpoint_save(ctx, checkpoint, 1, NULL);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "nothing was added");
    co_checkpoint_restore(ctx, checkpoint, NULL);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "nothing was added");
    co_checkpoint_add(ctx, checkpoint, "text", text);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "has strings");
    co_checkpoint_add(ctx, checkpoint, "random", v);
    CO_EXPECT_ERROR(ctx, CO_ALREADY_EXISTS, "the random numbers of the context");
    co_checkpoint_add_optimizer(ctx, checkpoint, "adam", co_adam(ctx, NULL), v);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a list or tuple of variables");
    co_checkpoint_add(ctx, checkpoint, "\xff", v);
    co_checkpoint_save(ctx, checkpoint, 1, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "is not UTF-8");
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    note[0] = 'x'; /* so that the note is cut in a character */
    for (size_t i = 1; i + 2 < sizeof(note); i += 2)
        memcpy(note + i, "\xc3\xa4", 3);
    how.note = note;
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, &how), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

CO_TEST(every_dtype_and_shape_comes_back, "")
{
    static const co_dtype dtypes[] = { CO_BOOL, CO_FLOAT16, CO_BFLOAT16, CO_INT8, CO_UINT64 };
    enum { KINDS = sizeof(dtypes) / sizeof(dtypes[0]) };
    const char    *folder = new_folder();
    co_checkpoint *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_value      *v[KINDS], *empty, *long_named;
    char           name[5000];

    for (int i = 0; i < KINDS; ++i)
        v[i] = co_variable(ctx, co_ones(ctx, dtypes[i], CO_SHAPE(1, 2, 1, 1, 2, 1, 1, 2)), NULL);
    empty = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(0, 3)), NULL);
    long_named = co_variable(ctx, co_int(ctx, 3), NULL);
    co_checkpoint_add(ctx, checkpoint, "v/\"\\\n", co_tuple(ctx, v, KINDS));
    co_checkpoint_add(ctx, checkpoint, "empty", empty);
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    co_checkpoint_add(ctx, checkpoint, name, long_named);
    name[sizeof(name) - 2] = 'm';
    co_checkpoint_add(ctx, checkpoint, name, empty);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 0, NULL), CO_OK);
    for (int i = 0; i < KINDS; ++i)
        co_assign(ctx, v[i], co_zeros_like(ctx, v[i]));
    co_assign(ctx, long_named, co_int(ctx, 4));
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(co_checkpoint_restored(ctx, checkpoint), 0);
    for (int i = 0; i < KINDS; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, co_cast(ctx, v[i], CO_FLOAT32),
                                                         CO_ALL_AXES, false)),
                        8.0, 0.0);
    CO_EXPECT_INT(co_item_int(ctx, co_variable_read(ctx, long_named)), 3);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

static co_checkpoint *
open_with_metric(co_context *ctx, const char *folder, co_metric **metric)
{
    co_checkpoint *checkpoint = co_checkpoint_open(ctx, folder, NULL);

    *metric = co_metric_new(ctx, CO_METRIC_F1_SCORE, NULL);
    co_checkpoint_add_metric(ctx, checkpoint, "f1", *metric);
    return checkpoint;
}

static void
update_metric(co_context *ctx, co_metric *metric)
{
    const float truth[] = { 1, 0, 0, 0, 1, 0, 0, 1, 0 };
    const float scores[] = { 0.75f, 0.25f, 0, 0.25f, 0.5f, 0, 0.5f, 0.25f, 0 };

    co_metric_update(ctx, metric, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 3), truth),
                     co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 3), scores), NULL);
}

CO_TEST(a_metric_comes_back_before_its_first_update, "")
{
    const char    *folder = new_folder();
    co_metric     *metric;
    co_checkpoint *checkpoint = open_with_metric(ctx, folder, &metric);
    float          before[3] = { 0 }, after[3] = { 1, 1, 1 };

    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
    update_metric(ctx, metric);
    co_value_copy_data(ctx, co_metric_result(ctx, metric), CO_FLOAT32, before, 3);
    CO_EXPECT_TRUE(before[0] > 0);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 2, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    checkpoint = open_with_metric(ctx, folder, &metric);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    co_value_copy_data(ctx, co_metric_result(ctx, metric), CO_FLOAT32, after, 3);
    CO_EXPECT_BYTES(after, before, sizeof(before));
    /* the first one was saved before the update */
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint,
                                         &(co_checkpoint_restore_options){
                                             sizeof(co_checkpoint_restore_options), 1 }),
                   CO_OK);
    co_value_copy_data(ctx, co_metric_result(ctx, metric), CO_FLOAT32, after, 3);
    CO_EXPECT_CLOSE(after[0], 0.0, 0.0);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

static co_value *
set_own(co_context *ctx, co_value *args, void *user)
{
    co_assign(ctx, co_at(ctx, args, 0),
              co_to_tensor(ctx, co_float(ctx, co_replica_id(ctx) * *(double *)user), CO_FLOAT32));
    return NULL;
}

CO_TEST_WITH(values_of_replicas_that_nothing_adds_up_come_back, "", "cpus=2")
{
    const char         *folder = new_folder();
    co_strategy        *strategy = test_mirrored(ctx, 2);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *own = NULL;
    co_checkpoint      *checkpoint = NULL;
    double              factor = 1;

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_NONE;
    CO_SCOPE(ctx, strategy) {
        own = co_variable(ctx, co_to_tensor(ctx, co_float(ctx, 7), CO_FLOAT32), &options);
        checkpoint = co_checkpoint_open(ctx, folder, NULL);
    }
    co_checkpoint_add(ctx, checkpoint, "own", own);
    co_run(ctx, strategy, set_own, co_args(ctx, own), &factor);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
    factor = 9;
    co_run(ctx, strategy, set_own, co_args(ctx, own), &factor);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    for (size_t i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(
            co_item_float(
                ctx, co_variable_read(ctx, co_at(ctx, co_local_results(ctx, strategy, own), i))),
            (double)i, 0.0);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

/* A program whose optimizer accumulates the gradients of so many steps. */
static co_checkpoint *
open_accumulating(co_context *ctx, const char *folder, int steps, co_value *v, co_optimizer **sgd)
{
    co_checkpoint       *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_optimizer_options options = CO_OPTIMIZER_OPTIONS_INIT;

    options.accumulation_steps = steps;
    *sgd = co_adam(ctx, NULL);
    co_optimizer_configure(ctx, *sgd, &options);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    co_checkpoint_add_optimizer(ctx, checkpoint, "opt", *sgd, co_list(ctx, &v, 1));
    return checkpoint;
}

CO_TEST(an_optimizer_that_cannot_go_on_changes_nothing, "")
{
    const char         *folder = new_folder();
    co_variable_options named = CO_VARIABLE_OPTIONS_INIT;
    co_optimizer       *optimizer;
    co_checkpoint      *checkpoint;
    co_value           *v, *three;

    named.name = "v";
    v = co_variable(ctx, co_to_tensor(ctx, co_float(ctx, 1), CO_FLOAT32), &named);
    checkpoint = open_accumulating(ctx, folder, 5, v, &optimizer);
    three = co_to_tensor(ctx, co_int(ctx, 3), CO_INT64);
    co_optimizer_set_state(ctx, optimizer,
                           co_dict(ctx, (const char *[]){ "accumulated" }, &three, 1));
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    co_assign(ctx, v, co_to_tensor(ctx, co_float(ctx, 2), CO_FLOAT32));
    checkpoint = open_accumulating(ctx, folder, 2, v, &optimizer);
    co_checkpoint_restore(ctx, checkpoint, NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "accumulated");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, v)), 2.0, 0.0);
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(folder);
}

/* --- ends of all kinds --- */

CO_TEST(a_fork_may_close, "")
{
    const char    *folder = new_folder();
    co_checkpoint *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    co_value      *v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(100000)), NULL);
    pid_t          child;
    int            status = -1;

    co_checkpoint_add(ctx, checkpoint, "v", v);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK); /* maybe on its way */
    child = fork();
    if (child == 0) {
        alarm(20);
        _exit(co_checkpoint_save(ctx, checkpoint, 2, NULL) == CO_RUNTIME_ERROR ? 0 : 1);
    }
    CO_EXPECT_TRUE(waitpid(child, &status, 0) == child);
    CO_EXPECT_INT(status, 0);
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, checkpoint), CO_OK);
    CO_EXPECT_INT(count_steps(ctx, checkpoint), 1);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 2, NULL), CO_OK);
    remove_folder(folder); /* it is left open, and being written: co_close waits */
}

static const char *survivor_folder;

static bool
save_and_restore(co_context *ctx)
{
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_checkpoint        *checkpoint;
    co_value             *v;
    int64_t               step = 1;

    options.waits = true;
    v = co_variable(ctx, co_to_tensor(ctx, co_float(ctx, 1), CO_FLOAT32), NULL);
    checkpoint = co_checkpoint_open(ctx, survivor_folder, &options);
    co_checkpoint_add(ctx, checkpoint, "v", v);
    co_checkpoint_add_optimizer(ctx, checkpoint, "adam", co_adam(ctx, NULL), co_list(ctx, &v, 1));
    co_checkpoint_add_counter(ctx, checkpoint, "step", &step);
    co_checkpoint_save(ctx, checkpoint, 1, NULL);
    co_checkpoint_restore(ctx, checkpoint, NULL);
    co_checkpoint_report(ctx, checkpoint);
    co_checkpoint_steps(ctx, checkpoint);
    return co_checkpoint_close(ctx, checkpoint) == CO_OK;
}

CO_TEST(little_memory_is_an_error, "")
{
    survivor_folder = new_folder();
    CO_EXPECT_SURVIVES_NO_MEMORY("log=off", save_and_restore);
    CO_EXPECT_OK(ctx);
    remove_folder(survivor_folder);
}
