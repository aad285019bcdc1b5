/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints over processes: saved by all and written once, restored by as many processes and by
 * other numbers of them with as many replicas, and errors of one process, which all have to hear.
 * The same bodies run with 1, 2 and 4 processes.
 */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Four logical replicas, whoever hosts them. */
enum { REPLICAS = 4, SIZE = 5, EXAMPLES = 48, BATCH = 8 };

static co_strategy *
workers(co_context *ctx)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.num_replicas = REPLICAS;
    options.deadline_ms = 30000;
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

static co_strategy *
alone(co_context *ctx)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

    return co_mirrored_strategy(ctx, devices, REPLICAS, NULL);
}

/* --- what the processes share --- */

/* Nobody goes on before all are here: the largest of their numbers. */
static int64_t
meet(co_context *ctx, co_strategy *strategy, int64_t number)
{
    co_value *all = co_reduce(ctx, strategy, CO_REDUCE_MAX, co_scalar_int64(ctx, number), NULL, 0);

    return co_item_int(ctx, co_at(ctx, co_local_results(ctx, strategy, all), 0));
}

/* A folder that is not there yet, of the same name on all. */
static const char *
new_folder(co_context *ctx, co_strategy *strategy)
{
    static char paths[2][80];
    static int  n;
    char       *path = paths[n % 2];
    int         worker = co_worker_id(ctx, strategy);

    snprintf(path, sizeof(paths[0]), "/tmp/cohort-ranks-checkpoints-%lld-%d",
             (long long)meet(ctx, strategy, worker == 0 ? getpid() : 0), n++);
    return path;
}

/* The files of a folder that begin so; with `remove` none is left, nor the folder. */
static int
count_files(const char *path, const char *prefix, bool remove)
{
    DIR           *names = opendir(path);
    struct dirent *name;
    char           file[400];
    int            n = 0;

    while (names != NULL && (name = readdir(names)) != NULL) {
        n += strncmp(name->d_name, prefix, strlen(prefix)) == 0;
        snprintf(file, sizeof(file), "%s/%.250s", path, name->d_name);
        if (remove && strcmp(name->d_name, ".") != 0 && strcmp(name->d_name, "..") != 0)
            unlink(file);
    }
    if (names != NULL)
        closedir(names);
    if (remove)
        rmdir(path);
    return n;
}

static void
remove_folder(co_context *ctx, co_strategy *strategy, const char *folder)
{
    meet(ctx, strategy, 0);
    if (co_worker_id(ctx, strategy) == 0)
        count_files(folder, "", true);
}

/* --- a program --- */

typedef struct program {
    co_context    *ctx;
    co_strategy   *strategy;
    co_value      *weights, *total, *generator;
    co_optimizer  *adam;
    co_metric     *mean;
    co_dataset    *dataset; /* NULL: the input is a function of the step */
    co_iterator   *input;
    co_function   *captured;
    int64_t        step;
    co_checkpoint *checkpoint;
} program;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    program  *p = user;
    co_value *x = co_at(ctx, args, 0), *losses, *id;

    id = co_cast(ctx, co_replica_id_tensor(ctx), CO_FLOAT32);
    x = co_dropout(ctx, co_add(ctx, x, co_mul(ctx, id, co_float(ctx, 0.125))), 0.25);
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
    p->dataset = co_dataset_repeat(ctx, co_dataset_batch(ctx, p->dataset, BATCH, false), -1);
    p->dataset = co_distribute_dataset(ctx, p->strategy, p->dataset, NULL);
    p->input = co_iterate(ctx, p->dataset);
}

typedef enum kind { PLAIN = 0, CAPTURED = 1, HAS_INPUT = 2, PARTIAL = 4 } kind;

static void
open_program(program *p, co_context *ctx, co_strategy *strategy, int what, const char *folder)
{
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;

    *p = (program){ .ctx = ctx, .strategy = strategy };
    co_set_seed(ctx, 3);
    options.is_partial = (what & PARTIAL) != 0;
    CO_SCOPE(ctx, strategy) {
        make_variables(p);
        p->checkpoint = co_checkpoint_open(ctx, folder, &options);
    }
    if ((what & HAS_INPUT) != 0)
        make_input(p);
    if ((what & CAPTURED) != 0)
        p->captured = co_function_of(ctx, train, p, NULL);
    co_checkpoint_add(ctx, p->checkpoint, "model",
                      co_dict(ctx, (const char *[]){ "generator", "total", "weights" },
                              (co_value *[]){ p->generator, p->total, p->weights }, 3));
    co_checkpoint_add_optimizer(ctx, p->checkpoint, "adam", p->adam, co_list(ctx, &p->weights, 1));
    co_checkpoint_add_metric(ctx, p->checkpoint, "mean", p->mean);
    if ((what & HAS_INPUT) != 0)
        co_checkpoint_add_iterator(ctx, p->checkpoint, "input", p->dataset, &p->input);
    co_checkpoint_add_counter(ctx, p->checkpoint, "step", &p->step);
    CO_EXPECT_OK(ctx);
}

static void
take_steps(program *p, int64_t last)
{
    co_context *ctx = p->ctx;

    for (; p->step < last && co_ok(ctx); ++p->step)
        CO_BLOCK(ctx) {
            co_value *x = p->input != NULL ? co_next(ctx, p->input)
                                           : co_fill(ctx, CO_SHAPE(2, SIZE),
                                                     co_float(ctx, 0.25 * (double)(p->step % 5)));

            if (p->captured != NULL)
                co_run(ctx, p->strategy, co_captured, co_args(ctx, x), p->captured);
            else
                co_run(ctx, p->strategy, train, co_args(ctx, x), p);
        }
    CO_EXPECT_OK(ctx);
}

/* What a run comes to, to the bit. */
typedef struct outcome {
    float   weights[SIZE], total, mean, average[SIZE];
    int64_t step;
} outcome;

static outcome
outcome_of(program *p)
{
    co_context *ctx = p->ctx;
    outcome     o;
    co_value   *state = co_optimizer_state(ctx, p->adam);

    memset(&o, 0, sizeof(o));
    co_value_copy_data(ctx, co_variable_save(ctx, p->weights), CO_FLOAT32, o.weights, SIZE);
    for (size_t i = 0; i < co_num_items(ctx, state); ++i)
        if (strstr(co_key(ctx, state, i), "average") != NULL)
            co_value_copy_data(ctx, co_variable_save(ctx, co_at(ctx, state, i)), CO_FLOAT32,
                               o.average, SIZE);
    o.total = (float)co_item_float(ctx, co_variable_save(ctx, p->total));
    o.mean = (float)co_item_float(ctx, co_metric_result(ctx, p->mean));
    o.step = p->step;
    CO_EXPECT_OK(ctx);
    return o;
}

static void
close_program(program *p)
{
    CO_EXPECT_CODE(co_checkpoint_close(p->ctx, p->checkpoint), CO_OK);
    CO_EXPECT_OK(p->ctx);
}

static bool
has_text(co_context *ctx, co_value *list, const char *part)
{
    for (size_t i = 0; i < co_num_items(ctx, list); ++i) {
        size_t      n;
        const char *text = co_string_at(ctx, co_at(ctx, list, i), 0, &n);

        if (text != NULL && strstr(text, part) != NULL)
            return true;
    }
    return false;
}

/* --- the same number of processes --- */

static void
resume(co_context *ctx, int what)
{
    co_strategy *strategy = workers(ctx);
    const char  *folder = new_folder(ctx, strategy);
    program      p;
    outcome      whole, resumed;

    CO_BLOCK(ctx) {
        open_program(&p, ctx, strategy, what, folder);
        take_steps(&p, 7);
        CO_EXPECT_CODE(co_checkpoint_save(ctx, p.checkpoint, 7, NULL), CO_OK);
        take_steps(&p, 13);
        whole = outcome_of(&p);
        CO_EXPECT_CODE(co_checkpoint_wait(ctx, p.checkpoint), CO_OK);
        CO_EXPECT_INT(count_files(folder, "step-", false), 1);
        CO_EXPECT_INT(count_files(folder, ".step-", false), 0);
        meet(ctx, strategy, 0); /* the others look while the first has not closed, too */
        CO_EXPECT_INT(co_value_num_elements(ctx, co_checkpoint_steps(ctx, p.checkpoint)), 1);
        close_program(&p);
    }
    CO_BLOCK(ctx) {
        open_program(&p, ctx, strategy, what, folder);
        take_steps(&p, 2);
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_OK);
        CO_EXPECT_INT(co_checkpoint_restored(ctx, p.checkpoint), 7);
        CO_EXPECT_INT(
            co_num_items(ctx, co_get(ctx, co_checkpoint_report(ctx, p.checkpoint), "unused")), 0);
        take_steps(&p, 13);
        resumed = outcome_of(&p);
        CO_EXPECT_BYTES(&resumed, &whole, sizeof(whole));
        close_program(&p);
    }
    remove_folder(ctx, strategy, folder);
}

CO_TEST_WITH(a_resumed_run_has_the_bits_of_a_whole_one, "", "cpus=4")
{
    resume(ctx, HAS_INPUT);
    resume(ctx, HAS_INPUT | CAPTURED);
}

/* --- another number of processes with as many replicas --- */

CO_TEST_WITH(replicas_may_move_to_other_processes, "", "cpus=4")
{
    co_strategy *strategy = workers(ctx), *one = alone(ctx);
    const char  *folder = new_folder(ctx, strategy);
    bool         is_first = co_worker_id(ctx, strategy) == 0;
    program      p;
    outcome      whole, moved;

    for (int what = PLAIN; what <= CAPTURED; ++what) {
        CO_BLOCK(ctx) { /* all of it by the processes */
            open_program(&p, ctx, strategy, what, folder);
            take_steps(&p, 7);
            CO_EXPECT_CODE(co_checkpoint_save(ctx, p.checkpoint, 7, NULL), CO_OK);
            take_steps(&p, 16);
            whole = outcome_of(&p);
            close_program(&p);
        }
        meet(ctx, strategy, 0);
        if (is_first)
            CO_BLOCK(ctx) { /* the middle by one alone */
                open_program(&p, ctx, one, what, folder);
                CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_OK);
                CO_EXPECT_INT(p.step, 7);
                take_steps(&p, 11);
                CO_EXPECT_CODE(co_checkpoint_save(ctx, p.checkpoint, 11, NULL), CO_OK);
                take_steps(&p, 16);
                moved = outcome_of(&p);
                CO_EXPECT_BYTES(&moved, &whole, sizeof(whole));
                close_program(&p);
            }
        meet(ctx, strategy, 0);
        CO_BLOCK(ctx) { /* the end by the processes */
            open_program(&p, ctx, strategy, what, folder);
            CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_OK);
            CO_EXPECT_INT(p.step, 11);
            take_steps(&p, 16);
            moved = outcome_of(&p);
            CO_EXPECT_BYTES(&moved, &whole, sizeof(whole));
            close_program(&p);
        }
        remove_folder(ctx, strategy, folder);
        meet(ctx, strategy, 0);
    }
}

/* The iterator cannot go on; all else can. */
static void
restore_without_input(co_context *ctx, co_strategy *strategy, const char *folder,
                      const char *because)
{
    program   p;
    co_value *report;

    CO_BLOCK(ctx) {
        open_program(&p, ctx, strategy, HAS_INPUT, folder);
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, because);
        CO_EXPECT_INT(p.step, 0);
        report = co_checkpoint_report(ctx, p.checkpoint);
        CO_EXPECT_TRUE(has_text(ctx, co_get(ctx, report, "different"), because));
        close_program(&p);
        meet(ctx, strategy, 0);
        open_program(&p, ctx, strategy, HAS_INPUT | PARTIAL, folder);
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, p.checkpoint, NULL), CO_OK);
        CO_EXPECT_INT(p.step, 3);
        report = co_checkpoint_report(ctx, p.checkpoint);
        CO_EXPECT_TRUE(has_text(ctx, co_get(ctx, report, "different"), because));
        CO_EXPECT_FALSE(has_text(ctx, co_get(ctx, report, "restored"), "input"));
        CO_EXPECT_FALSE(has_text(ctx, co_get(ctx, report, "unused"), "input"));
        take_steps(&p, 5); /* from the beginning of the input */
        close_program(&p);
    }
}

CO_TEST_WITH(iterators_go_on_with_as_many_processes_alone, "", "cpus=4")
{
    co_strategy *strategy = workers(ctx), *one = alone(ctx);
    const char  *folder = new_folder(ctx, strategy);
    int          num = co_num_workers(ctx, strategy);
    bool         is_first = co_worker_id(ctx, strategy) == 0;
    char         text[120];
    program      p;

    if (num == 1)
        CO_SKIP("one process has the same iterators under both strategies");
    for (int by_one = 0; by_one < 2; ++by_one) {
        CO_BLOCK(ctx) {
            if (by_one == 0 || is_first) {
                open_program(&p, ctx, by_one == 0 ? strategy : one, HAS_INPUT, folder);
                take_steps(&p, 3);
                CO_EXPECT_CODE(co_checkpoint_save(ctx, p.checkpoint, 3, NULL), CO_OK);
                close_program(&p);
            }
        }
        meet(ctx, strategy, 0);
        snprintf(text, sizeof(text),
                 by_one == 0 ? "input: the iterator of 1 process in the program, of %d in the"
                             : "input: the iterator of %d processes in the program, of 1 in the",
                 num);
        if (by_one == 1)
            restore_without_input(ctx, strategy, folder, text);
        else if (is_first)
            restore_without_input(ctx, one, folder, text);
        remove_folder(ctx, strategy, folder);
        meet(ctx, strategy, 0);
    }
}

/* --- sums that each replica has for itself --- */

static co_value *
add_id(co_context *ctx, co_value *args, void *user)
{
    co_assign_add(ctx, user, co_cast(ctx, co_replica_id_tensor(ctx), CO_INT64));
    return co_variable_read(ctx, co_at(ctx, args, 0));
}

CO_TEST_WITH(sums_on_read_come_back, "", "cpus=4")
{
    co_strategy        *strategy = workers(ctx);
    const char         *folder = new_folder(ctx, strategy);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *sum = NULL;
    co_checkpoint      *checkpoint = NULL;
    int                 here = co_num_local_replicas(ctx, strategy);
    int                 first = co_worker_id(ctx, strategy) * here;

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, strategy) {
        sum = co_variable(ctx, co_scalar_int64(ctx, 0), &options);
        checkpoint = co_checkpoint_open(ctx, folder, NULL);
    }
    co_checkpoint_add(ctx, checkpoint, "sum", sum);
    co_run(ctx, strategy, add_id, co_args(ctx, sum), sum);
    co_run(ctx, strategy, add_id, co_args(ctx, sum), sum);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, checkpoint, 1, NULL), CO_OK);
    co_run(ctx, strategy, add_id, co_args(ctx, sum), sum);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(co_item_int(ctx, co_variable_read(ctx, sum)), 2 * (0 + 1 + 2 + 3));
    for (int i = 0; i < here; ++i)
        CO_EXPECT_INT(
            co_item_int(ctx, co_variable_read(ctx, co_at(ctx, co_local_results(ctx, strategy, sum),
                                                         (size_t)i))),
            2 * (first + i));
    CO_EXPECT_CODE(co_checkpoint_close(ctx, checkpoint), CO_OK);
    remove_folder(ctx, strategy, folder);
}

/* --- errors of one process --- */

/* A checkpoint with one variable, `value`. */
typedef struct small {
    co_strategy   *strategy;
    const char    *folder;
    co_value      *v;
    co_checkpoint *checkpoint;
    bool           is_first, is_last;
} small;

static small
open_small(co_context *ctx)
{
    small s = { .strategy = workers(ctx) };
    int   worker = co_worker_id(ctx, s.strategy);

    s.is_first = worker == 0;
    s.is_last = worker == co_num_workers(ctx, s.strategy) - 1;
    s.folder = new_folder(ctx, s.strategy);
    CO_SCOPE(ctx, s.strategy) {
        s.v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(50000)), NULL);
        s.checkpoint = co_checkpoint_open(ctx, s.folder, NULL);
    }
    co_checkpoint_add(ctx, s.checkpoint, "v", s.v);
    CO_EXPECT_OK(ctx);
    return s;
}

static void
set_small(co_context *ctx, small *s, double value)
{
    co_assign(ctx, s->v, co_fill(ctx, CO_SHAPE(50000), co_float(ctx, value)));
}

static double
get_small(co_context *ctx, small *s)
{
    return co_item_float(ctx, co_reduce_max(ctx, co_variable_save(ctx, s->v), CO_ALL_AXES, false));
}

static void
close_small(co_context *ctx, small *s)
{
    CO_EXPECT_CODE(co_checkpoint_close(ctx, s->checkpoint), CO_OK);
    CO_EXPECT_OK(ctx);
    remove_folder(ctx, s->strategy, s->folder);
}

/* The call of each process fails in the same way, and the message of one who is not `mine` names
 * the one that failed. */
#define EXPECT_HEARD(mine, code, part)                                                             \
    do {                                                                                           \
        CO_EXPECT_CONTAINS(co_error(ctx)->message, (mine) ? "" : "rank ");                         \
        CO_EXPECT_ERROR(ctx, code, part);                                                          \
    } while (0)

CO_TEST_WITH(a_full_disk_is_heard_by_all, "", "cpus=4")
{
    small         s = open_small(ctx);
    struct rlimit before, limit;

    CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 1, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, s.checkpoint), CO_OK);
    CO_REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_IGN);
    limit = before;
    limit.rlim_cur = 60000;
    for (int how = 0; how < 3; ++how) {
        if (s.is_first)
            CO_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 2, NULL), CO_OK);
        if (how == 0)
            co_checkpoint_wait(ctx, s.checkpoint);
        else if (how == 1)
            co_checkpoint_save(ctx, s.checkpoint, 3, NULL); /* which fails as well */
        else
            co_checkpoint_restore(ctx, s.checkpoint, NULL);
        EXPECT_HEARD(s.is_first, CO_RESOURCE_EXHAUSTED, "checkpoint 2 was not written");
        if (how == 1) {
            co_checkpoint_wait(ctx, s.checkpoint);
            EXPECT_HEARD(s.is_first, CO_RESOURCE_EXHAUSTED, "checkpoint 3 was not written");
        }
        if (s.is_first)
            CO_REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
        CO_EXPECT_INT(co_value_num_elements(ctx, co_checkpoint_steps(ctx, s.checkpoint)), 1);
    }
    CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 4, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, s.checkpoint), CO_OK);
    close_small(ctx, &s);
}

CO_TEST_WITH(a_file_that_one_cannot_read_is_restored_by_none, "", "cpus=4")
{
    small         s = open_small(ctx);
    struct rlimit before, limit;

    set_small(ctx, &s, 1);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 1, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, s.checkpoint), CO_OK);
    set_small(ctx, &s, 2);
    CO_REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    limit.rlim_cur = 3; /* no further file */
    if (s.is_last)
        CO_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    co_checkpoint_restore(ctx, s.checkpoint, NULL);
    CO_REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    EXPECT_HEARD(s.is_last, CO_RESOURCE_EXHAUSTED, s.folder);
    CO_EXPECT_CLOSE(get_small(ctx, &s), 2, 0);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, s.checkpoint, NULL), CO_OK);
    CO_EXPECT_CLOSE(get_small(ctx, &s), 1, 0);
    close_small(ctx, &s);
}

static void
flip_last_byte(const char *folder, int step)
{
    char path[200], byte = 0;
    int  fd;

    snprintf(path, sizeof(path), "%s/step-%d.safetensors", folder, step);
    fd = open(path, O_RDWR);
    CO_REQUIRE(fd >= 0);
    CO_REQUIRE(pread(fd, &byte, 1, lseek(fd, -1, SEEK_END)) == 1);
    byte = (char)(byte ^ 4);
    CO_REQUIRE(pwrite(fd, &byte, 1, lseek(fd, -1, SEEK_END)) == 1);
    close(fd);
}

CO_TEST_WITH(all_skip_a_damaged_checkpoint, "", "cpus=4")
{
    small                         s = open_small(ctx);
    co_checkpoint_restore_options which = CO_CHECKPOINT_RESTORE_OPTIONS_INIT;

    for (int step = 1; step < 4; ++step) {
        set_small(ctx, &s, step);
        CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, step, NULL), CO_OK);
    }
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, s.checkpoint), CO_OK);
    if (s.is_first)
        flip_last_byte(s.folder, 3);
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, s.checkpoint, NULL), CO_OK);
    CO_EXPECT_INT(co_checkpoint_restored(ctx, s.checkpoint), 2);
    CO_EXPECT_CLOSE(get_small(ctx, &s), 2, 0);
    which.step = 3;
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, s.checkpoint, &which), CO_DATA_LOSS);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "it is damaged");
    which.step = 9;
    CO_EXPECT_CODE(co_checkpoint_restore(ctx, s.checkpoint, &which), CO_NOT_FOUND);
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "there is no checkpoint 9");
    CO_EXPECT_CLOSE(get_small(ctx, &s), 2, 0);
    close_small(ctx, &s);
}

typedef struct custom {
    bool fails;
    int  num_restored;
} custom;

static co_value *
save_custom(co_context *ctx, void *user)
{
    const custom *c = user;

    if (!c->fails)
        return co_string(ctx, "state");
    co_fail(ctx, CO_UNAVAILABLE, "the camera is off");
    return NULL;
}

static co_code
restore_custom(co_context *ctx, co_value *saved, void *user)
{
    custom *c = user;
    size_t  n;

    CO_EXPECT_STR(co_string_at(ctx, saved, 0, &n), "state");
    if (c->fails)
        return co_fail(ctx, CO_UNAVAILABLE, "the camera is off");
    ++c->num_restored;
    return CO_OK;
}

CO_TEST_WITH(a_function_that_fails_on_one_is_heard_by_all, "", "cpus=4")
{
    small              s = open_small(ctx);
    custom             c = { 0 };
    co_checkpoint_user user = { save_custom, restore_custom, &c };

    co_checkpoint_add_user(ctx, s.checkpoint, "camera", &user);
    CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 1, NULL), CO_OK);
    for (int round = 0; round < 2; ++round) {
        c.fails = s.is_last;
        co_checkpoint_save(ctx, s.checkpoint, 2, NULL);
        EXPECT_HEARD(s.is_last, CO_UNAVAILABLE, "the camera is off");
        co_checkpoint_restore(ctx, s.checkpoint, NULL);
        EXPECT_HEARD(s.is_last, CO_UNAVAILABLE, "the camera is off");
        c.fails = false;
        c.num_restored = 0;
        CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 1, NULL), CO_OK);
        CO_EXPECT_CODE(co_checkpoint_restore(ctx, s.checkpoint, NULL), CO_OK);
        CO_EXPECT_INT(co_checkpoint_restored(ctx, s.checkpoint), 1);
        CO_EXPECT_INT(c.num_restored, 1);
    }
    close_small(ctx, &s);
}

CO_TEST_WITH(a_folder_that_the_first_cannot_have_is_opened_by_none, "", "cpus=4")
{
    small          s = open_small(ctx);
    co_checkpoint *other = NULL;

    CO_SCOPE(ctx, s.strategy) {
        other = co_checkpoint_open(ctx, s.folder, NULL);
    }
    CO_EXPECT_NULL(other);
    EXPECT_HEARD(s.is_first, CO_FAILED_PRECONDITION, "writes checkpoints to");
    CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 1, NULL), CO_OK);
    close_small(ctx, &s);
}

CO_TEST_WITH(processes_that_save_different_things_disagree, "", "cpus=4")
{
    small               s = open_small(ctx);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_checkpoint      *other = NULL;
    co_value           *sums[2] = { NULL, NULL };
    const char         *path = new_folder(ctx, s.strategy);

    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, s.strategy) {
        for (int i = 0; i < 2; ++i)
            sums[i] = co_variable(ctx, co_scalar_int64(ctx, 0), &options);
        other = co_checkpoint_open(ctx, path, NULL);
    }
    co_checkpoint_add(ctx, other, "first", sums[0]);
    if (!s.is_last)
        co_checkpoint_add(ctx, other, "second", sums[1]);
    if (co_num_workers(ctx, s.strategy) > 1)
        for (int round = 0; round < 2; ++round) {
            co_checkpoint_save(ctx, other, 1, NULL);
            CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "ranks disagree");
            CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 1, NULL), CO_OK);
        }
    CO_EXPECT_CODE(co_checkpoint_close(ctx, other), CO_OK);
    CO_EXPECT_INT(count_files(path, "step-", false), 0);
    remove_folder(ctx, s.strategy, path);
    close_small(ctx, &s);
}

CO_TEST_WITH(processes_that_save_different_numbers_disagree, "", "cpus=4")
{
    small s = open_small(ctx);

    if (co_num_workers(ctx, s.strategy) > 1) {
        co_checkpoint_save(ctx, s.checkpoint, s.is_first ? 1 : 2, NULL);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "saving number 1");
        CO_EXPECT_INT(count_files(s.folder, "step-", false), 0);
    }
    CO_EXPECT_CODE(co_checkpoint_save(ctx, s.checkpoint, 3, NULL), CO_OK);
    CO_EXPECT_CODE(co_checkpoint_wait(ctx, s.checkpoint), CO_OK);
    CO_EXPECT_INT(count_files(s.folder, "step-", false), 1);
    close_small(ctx, &s);
}
