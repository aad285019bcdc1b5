/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: steps per second, memory, and the time to the first step. Each model, strategy and mode
 * has a process of its own (train_child.c), so that memory and start are those of a program that
 * does nothing else. The processes of a model are measured in turns, with the others waiting: what
 * is compared has met the same phases of the machine. The limit beside a rate is the arithmetic of
 * the products of matrices at the best rate of any library, sampled in turns too.
 */
#include "bench.h"
#include "train.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STARTS = 3, TURNS = 6, PACES = 5, MAX_PROCESSES = 2 * TRAIN_NUM_STRATEGIES };
#define TURN_SECONDS 0.25
#define REST_SECONDS                                                                               \
    0.05 /* threads of other libraries spin for a while after their last product                   \
          */

bench_train_options bench_train_what;

/* --- options --- */

static const char *
name_at(bool of_models, size_t i)
{
    return of_models ? train_models[i].name : train_strategies[i].name;
}

bool
bench_train_knows(const char *option, const char *value, char *names, size_t capacity)
{
    bool   of_models = strcmp(option, "--model") == 0;
    size_t count = of_models ? TRAIN_NUM_MODELS : TRAIN_NUM_STRATEGIES, length = 0;
    bool   known = false;

    for (size_t i = 0; i < count && length < capacity; ++i) {
        known = known || strcmp(name_at(of_models, i), value) == 0;
        length += (size_t)snprintf(names + length, capacity - length, "%s%s", i > 0 ? ", " : "",
                                   name_at(of_models, i));
    }
    return known;
}

/* --- processes --- */

typedef struct process {
    train_task    task;
    pid_t         id;
    FILE         *to, *from;
    double        first_loss;
    double        mib;      /* the most that was resident */
    double        held_mib; /* the most that the library held */
    bench_samples first_ms; /* from its start to the loss of its first step */
    bench_samples rates;
} process;

static _Noreturn void
give_up(const process *p, const char *what)
{
    fprintf(stderr, "cohort-bench: train %s %s %s: %s\n", p->task.model->name,
            p->task.strategy->name, p->task.function ? "function" : "eager", what);
    exit(1);
}

/* In the child: become the process that trains. */
static _Noreturn void
become(const process *p)
{
    char argument[80], program[4096];

    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

    snprintf(argument, sizeof(argument), "--train-%s-%s-%s", p->task.model->name,
             p->task.strategy->name, p->task.function ? "function" : "eager");
    if (length > 0) {
        program[length] = '\0';
        if (p->task.strategy->processes > 1) {
            char count[16];

            snprintf(count, sizeof(count), "%d", p->task.strategy->processes);
            execl(COHORT_MPIRUN, COHORT_MPIRUN, "-n", count, program, argument, (char *)NULL);
        } else {
            execl(program, bench_program, argument, (char *)NULL);
        }
    }
    perror("cohort-bench: exec");
    _exit(127);
}

/* A line of answer after its first word, which must be `word`. The line is the caller's. */
static char *
read_answer(process *p, const char *word)
{
    char  *line = NULL;
    size_t capacity = 0, length = strlen(word);

    if (getline(&line, &capacity, p->from) < 0 || strncmp(line, word, length) != 0)
        give_up(p, "the process that trains ended without an answer");
    memmove(line, line + length, strlen(line + length) + 1);
    return line;
}

static double
read_number(process *p, const char *word)
{
    char  *line = read_answer(p, word);
    double number = strtod(line, NULL);

    free(line);
    return number;
}

/* A pipe whose ends processes that are started later do not inherit: the input of one ends when
 * this process closes it. */
static void
open_pipe(const process *p, int ends[2])
{
    if (pipe(ends) != 0 || fcntl(ends[0], F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(ends[1], F_SETFD, FD_CLOEXEC) != 0)
        give_up(p, "there are no pipes");
}

static void
start(process *p)
{
    int    input[2], output[2];
    double begin = bench_now();

    open_pipe(p, input);
    open_pipe(p, output);
    p->id = fork();
    if (p->id < 0)
        give_up(p, "there is no process");
    if (p->id == 0) {
        dup2(input[0], STDIN_FILENO);
        dup2(output[1], STDOUT_FILENO);
        become(p);
    }
    close(input[0]);
    close(output[1]);
    p->to = fdopen(input[1], "w");
    p->from = fdopen(output[0], "r");
    if (p->to == NULL || p->from == NULL)
        give_up(p, "there are no pipes");
    p->first_loss = read_number(p, "first");
    bench_add(&p->first_ms, (bench_now() - begin) * 1e3);
}

static void
say(process *p, const char *command, double number)
{
    if (fprintf(p->to, "%s %g\n", command, number) < 0 || fflush(p->to) != 0)
        give_up(p, "the process that trains does not listen");
}

static void
end(process *p)
{
    char *line, *rest;
    int   status;

    fclose(p->to); /* the end of its input */
    line = read_answer(p, "memory");
    p->mib = strtod(line, &rest);
    p->held_mib = strtod(rest, NULL);
    free(line);
    fclose(p->from);
    if (waitpid(p->id, &status, 0) != p->id || status != 0)
        give_up(p, "the process that trains failed");
}

static void
take_turn(process *p)
{
    char *line, *at, *next;

    say(p, "time", TURN_SECONDS);
    line = read_answer(p, "rates");
    for (at = line;; at = next) {
        double rate = strtod(at, &next);

        if (next == at)
            break;
        bench_add(&p->rates, rate);
    }
    free(line);
}

/* --- figures --- */

static const char *
figure_name(const process *p, const char *what)
{
    static char name[80];

    snprintf(name, sizeof(name), "train_%s_%s%s%s", p->task.model->name, p->task.strategy->name,
             p->task.function ? "_function" : "", what);
    return name;
}

static void
report_one(const char *name, const char *unit, double value)
{
    bench_figure figure = { name, unit, value, value, (double)NAN, "", (double)NAN, false };

    bench_report(&figure);
}

static void
report_process(process *p, double best_rate)
{
    double limit = best_rate * 1e6 / p->task.model->multiply_adds;

    bench_report_rates(figure_name(p, "_rate"), "steps/s", &p->rates, limit,
                       "its matrix products at the best rate", (double)NAN);
    bench_report_samples(figure_name(p, "_first_ms"), "ms", &p->first_ms, (double)NAN, "",
                         (double)NAN);
    report_one(figure_name(p, "_rss_mib"), "MiB", p->mib);
    report_one(figure_name(p, "_held_mib"), "MiB", p->held_mib);
    report_one(figure_name(p, "_loss"), "loss", p->first_loss);
}

/* Best to best and median to median. */
static void
report_ratio(const char *name, process *p, process *base, double goal)
{
    bench_figure figure = { name,
                            "ratio",
                            bench_most(&p->rates) / bench_most(&base->rates),
                            bench_median(&p->rates) / bench_median(&base->rates),
                            (double)NAN,
                            "",
                            goal,
                            true };

    bench_report(&figure);
}

typedef struct goals {
    const char *model;
    double      function;     /* captured against eager, at least */
    double      function_mem; /* the same of memory, at most */
    double      mirrored2;    /* against one device, at least */
} goals;

static const goals *
goals_of(const train_model *model)
{
    static const goals all[TRAIN_NUM_MODELS] = { { "mlp_small", 1.5, NAN, NAN },
                                                 { "mlp", 1, NAN, 0.97 },
                                                 { "cnn", 1, 0.6, 0.97 },
                                                 { "gpt", 1.15, 0.6, 0.97 } };

    for (size_t i = 0; i < TRAIN_NUM_MODELS; ++i)
        if (strcmp(all[i].model, model->name) == 0)
            return &all[i];
    return NULL; /* never: the tables have the same names */
}

static process *
find_process(process *all, size_t n, const char *strategy, bool function)
{
    for (size_t i = 0; i < n; ++i)
        if (strcmp(all[i].task.strategy->name, strategy) == 0 && all[i].task.function == function)
            return &all[i];
    return NULL;
}

static void
report_memory(const char *what, const char *model, double ratio, double goal)
{
    char         name[80];
    bench_figure figure = { name, "ratio", ratio, ratio, (double)NAN, "", goal, false };

    snprintf(name, sizeof(name), "%s_%s", what, model);
    bench_report(&figure);
}

/* What a captured step is to the step itself: its rate and, on one device, its memory, that of the
 * process and that which the library holds. */
static void
report_function(process *captured, process *eager, const goals *goal)
{
    const char *model = eager->task.model->name;
    bool        one = strcmp(eager->task.strategy->name, "one") == 0;

    report_ratio(figure_name(captured, ""), captured, eager, one ? goal->function : (double)NAN);
    if (one) {
        report_memory("function_mem", model, captured->mib / eager->mib, goal->function_mem);
        report_memory("function_held", model, captured->held_mib / eager->held_mib, (double)NAN);
    }
}

/* What a strategy of two replicas is to one device with as many threads. */
static void
report_ratios(process *all, size_t n, const train_model *model)
{
    const goals *goal = goals_of(model);
    process     *one = find_process(all, n, "one", false);

    for (size_t i = 0; i < n; ++i) {
        const char *strategy = all[i].task.strategy->name;
        bool        is_mirrored = strcmp(strategy, "mirrored2") == 0;

        if (all[i].task.function)
            report_function(&all[i], find_process(all, n, strategy, false), goal);
        else if (is_mirrored || strcmp(strategy, "mpi2") == 0)
            report_ratio(figure_name(&all[i], ""), &all[i], one,
                         is_mirrored ? goal->mirrored2 : (double)NAN);
    }
}

/* --- all of it --- */

static bool
is_chosen(const char *choice, const char *name)
{
    return choice == NULL || strcmp(choice, name) == 0;
}

/* Why there is no strategy of several processes here; NULL if there is one. */
static void
look_for_mpi(const char *name, const char *text, void *user)
{
    if (strcmp(name, "MPI") == 0 && strcmp(text, "no") == 0)
        *(const char **)user = "the library was built without MPI";
}

static const char *
why_no_mpi(void)
{
    const char *why = NULL;

    co_build_visit(look_for_mpi, &why);
    if (why == NULL && system("command -v mpirun >/dev/null 2>&1") != 0)
        why = "mpirun is not installed";
    return why;
}

/* What a strategy is measured or compared in: as it is, captured, or both. */
static void
choose_modes(const train_strategy *s, bool *eager, bool *captured)
{
    const bench_train_options *what = &bench_train_what;
    bool                       chosen = is_chosen(what->strategy, s->name);
    bool                       is_one = strcmp(s->name, "one") == 0;
    bool                       measures = what->steps == 0;
    /* two replicas are compared with one device */
    bool is_base = measures && is_one && what->strategy != NULL &&
                   (strcmp(what->strategy, "mirrored2") == 0 ||
                    strcmp(what->strategy, "mpi2") == 0);

    *eager = (chosen && (measures || !what->function)) || is_base;
    *captured = chosen && (what->function || (measures && is_one && what->strategy == NULL));
}

static size_t
choose_processes(const train_model *model, process *all)
{
    size_t n = 0;

    for (size_t i = 0; i < TRAIN_NUM_STRATEGIES; ++i) {
        const train_strategy *s = &train_strategies[i];
        bool                  eager, captured;

        choose_modes(s, &eager, &captured);
        if ((eager || captured) && s->processes > 1 && why_no_mpi() != NULL) {
            fprintf(stderr, "cohort-bench: train %s is left out: %s\n", s->name, why_no_mpi());
            continue;
        }
        if (eager)
            all[n++].task = (train_task){ model, s, false };
        if (captured)
            all[n++].task = (train_task){ model, s, true };
    }
    return n;
}

static void
print_losses(process *p, int steps)
{
    char *line, *at, *next;

    start(p);
    printf("%s %s %s %.9g", p->task.model->name, p->task.strategy->name,
           p->task.function ? "function" : "eager", p->first_loss);
    if (steps > 1) {
        say(p, "steps", steps - 1);
        line = read_answer(p, "losses");
        for (at = line;; at = next) {
            double loss = strtod(at, &next);

            if (next == at)
                break;
            printf(" %.9g", loss);
        }
        free(line);
    }
    printf("\n");
    fflush(stdout);
    end(p);
}

static void
measure(process *all, size_t n, const train_model *model)
{
    co_context    *ctx = co_open(NULL);
    co_device_info info = CO_DEVICE_INFO_INIT;
    bench_pace    *pace;
    bench_samples  times = { .n = 0 };

    co_get_device_info(ctx, 0, &info);
    bench_check(ctx);
    for (int round = 1; round < STARTS; ++round)
        for (size_t i = 0; i < n; ++i) {
            start(&all[i]);
            end(&all[i]);
        }
    for (size_t i = 0; i < n; ++i)
        start(&all[i]); /* for all turns */
    pace = bench_pace_begin(ctx, info.num_threads);
    for (int turn = 0; turn < TURNS; ++turn) {
        for (int i = 0; i < PACES; ++i)
            bench_pace_add(pace, &times);
        bench_rest(REST_SECONDS);
        for (size_t i = 0; i < n; ++i)
            take_turn(&all[i]);
    }
    bench_check(ctx);
    for (size_t i = 0; i < n; ++i)
        end(&all[i]);
    for (size_t i = 0; i < n; ++i)
        report_process(&all[i], bench_pace_rate(&times));
    report_ratios(all, n, model);
    bench_pace_end(pace);
    co_close(ctx);
}

void
bench_train(void)
{
    static process all[MAX_PROCESSES]; /* large: each has its samples */

    signal(SIGPIPE, SIG_IGN); /* a process that died is told by its missing answer */
    for (size_t i = 0; i < TRAIN_NUM_MODELS; ++i) {
        size_t n;

        if (!is_chosen(bench_train_what.model, train_models[i].name))
            continue;
        memset(all, 0, sizeof(all));
        n = choose_processes(&train_models[i], all);
        if (bench_train_what.steps == 0)
            measure(all, n, &train_models[i]);
        for (size_t k = 0; k < n && bench_train_what.steps > 0; ++k)
            print_losses(&all[k], bench_train_what.steps);
    }
    if (bench_train_what.steps == 0 && is_chosen(bench_train_what.model, "mlp_small") &&
        is_chosen(bench_train_what.strategy, "one"))
        bench_train_threads();
}
