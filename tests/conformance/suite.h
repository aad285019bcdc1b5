/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite: one set of test bodies, run unchanged under every strategy. What is
 * different from strategy to strategy is data, a row of the table in strategies.c with the
 * strategy's size and what is expected of it; a body asks its row and never which strategy it has.
 *
 *     CONFORM(sums_and_means_are_taken_over_replicas, "S-REDUCE-5 S-REDUCE-24")
 *     {
 *         co_value *x = suite_floats(ctx, s, 1, 1);
 *
 *         CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0)),
 *                         SUM_OF_IDS(row->n) + row->n, 0);
 *     }
 *
 *     build/release/tests/conformance --row mirrored-2 [--verbose] [NAME-PART...]
 *
 * A body has `ctx`, its strategy `s`, its `row` and `first`, the id of the first replica of this
 * process. After every body the context must be in default mode and the strategy must still run a
 * step and reduce its results, whatever errors the body has provoked.
 */
#ifndef COHORT_CONFORMANCE_SUITE_H
#define COHORT_CONFORMANCE_SUITE_H

#include "test.h"

/* What is expected of a kind of strategy. A code of CO_OK means that the call succeeds. */
typedef struct suite_family {
    const char *name;       /* co_strategy_name */
    bool        is_current; /* in its scope it is the current strategy, in cross-replica context */
    bool        selects;    /* steps get components of bundles, not the bundles */
    bool        spreads;    /* local results of a structure are one structure per replica */
    bool        same_dataset;       /* distributing gives the dataset back */
    co_kind     function_kind;      /* what values made by a function come as */
    co_code     mixing;             /* another strategy, where this one is current */
    co_code     scope_in_step;      /* its own scope, inside its step */
    co_code     variable_elsewhere; /* its variable, where another strategy is current */
    co_code     foreign_bundle;     /* a bundle with more components than there are replicas */
    co_code     bundle_as_operand;  /* what a value function made, as a tensor outside a step */
    co_code     bundle_arithmetic;  /* the same in a binary operator */
    /* Section 13. */
    co_code devices_known; /* worker_devices, parameter_devices */
    co_code flags_known;   /* should_init, between_graph */
    bool    between_graph;
    co_code non_slot;        /* non_slot_devices without variables */
    co_kind cluster;         /* of cluster_resolver */
    co_code handle_in_cross; /* variable_handle in its scope */
    co_code scatter_max;     /* scatter_max into a sum, in a step */
    co_code scatter_on_read; /* scatter_add into a sync-on-read variable */
    co_code several_steps;   /* run_steps_on_iterator */
    co_code broadcast;       /* broadcast_to a device */
    co_code no_destination;  /* reduce_to nowhere */
    co_code update_plain;    /* update of a variable that is not the strategy's */
    /* Section 18. */
    co_code sync_none;     /* a variable with synchronization NONE */
    co_code mean_integer;  /* an integer variable with aggregation MEAN */
    co_code read_no_sum;   /* reading a sync-on-read variable without aggregation outside a step */
    co_code assign_bundle; /* a bundle to a sync-on-read variable outside a step */
    co_code add_to_sum;    /* adding to a sync-on-read sum outside a step */
    /* Sections 15 to 17. */
    co_code input_per_replica;    /* distribute_dataset with one dataset per replica */
    co_code function_per_replica; /* the same, from a function */
    co_code input_of_others;      /* next, where another strategy is current */
    co_code next_in_step;         /* next, in a step */
} suite_family;

/* A strategy under test. What depends on the number of replicas is here. */
typedef struct suite_row {
    const char         *row; /* its name, and that of its test */
    const suite_family *is;
    const char         *settings;
    const char         *devices[8];
    int                 num_devices; /* of this process */
    int                 n;           /* replicas in sync */
    int                 local;       /* of this process */
    int                 workers;
    const char         *job;          /* in the names of its devices */
    co_kind             result_kind;  /* of results that differ from replica to replica */
    co_kind             element_kind; /* of elements of a distributed dataset */
    co_kind             reduced_to_device;
    co_kind             reduced_to_variable; /* one component per device, if there are several */
    co_code             plain_sum;           /* SUM of a value that is the same on all replicas */
    co_code             mirrored_sum;        /* SUM of a mirrored variable */
    co_code shapes_differ;      /* and dtypes that cannot be added: combining over replicas */
    co_code structures_differ;  /* results of the replicas of one process */
    co_code structures_reduced; /* all_reduce of structures that differ */
    co_code left_alone;         /* a collective that the last replica does not come to */
    co_code left_others;        /* the same, for the process of the last replica */
    co_code merge_missed;       /* a merge that odd replicas do not come to */
    co_code names_differ;       /* variables made in a step under names of their own */
    co_code gather_axis;        /* gathering along an axis that is not there */
    co_code unbatched;          /* distributing a dataset of scalars */
    bool    keeps_dtype;        /* MEAN of integers stays what it is: nothing is averaged */
    int64_t weights[8];         /* of the replicas in a batch; all 0: equal shares */
    co_strategy *(*make)(co_context *ctx, const struct suite_row *row);
} suite_row;

extern const suite_row suite_rows[];
extern const size_t    suite_num_rows;

typedef void (*suite_body)(co_context *ctx, co_strategy *s, const suite_row *row, int first);
void suite_run(co_context *ctx, const char *name, suite_body body);

#define CONFORM(name_, rules_)                                                                     \
    static void name_##_body(co_context *, co_strategy *, const suite_row *, int);                 \
    CO_TEST(name_, rules_)                                                                         \
    {                                                                                              \
        suite_run(ctx, #name_, name_##_body);                                                      \
    }                                                                                              \
    static void name_##_body(__attribute__((unused)) co_context      *ctx,                         \
                             __attribute__((unused)) co_strategy     *s,                           \
                             __attribute__((unused)) const suite_row *row,                         \
                             __attribute__((unused)) int              first)

/* Steps, merge functions and value functions that use only some of their arguments. */
#define STEP(name_)                                                                                \
    static co_value *name_(__attribute__((unused)) co_context *ctx,                                \
                           __attribute__((unused)) co_value   *args,                               \
                           __attribute__((unused)) void       *user)
#define MERGE(name_)                                                                               \
    static co_value *name_(__attribute__((unused)) co_context  *ctx,                               \
                           __attribute__((unused)) co_strategy *s,                                 \
                           __attribute__((unused)) co_value    *args,                              \
                           __attribute__((unused)) void        *user)
#define UPDATE(name_)                                                                              \
    static co_value *name_(__attribute__((unused)) co_context *ctx,                                \
                           __attribute__((unused)) co_value   *variable,                           \
                           __attribute__((unused)) co_value   *args,                               \
                           __attribute__((unused)) void       *user)
#define VALUE_OF(name_)                                                                            \
    static co_value *name_(__attribute__((unused)) co_context             *ctx,                    \
                           __attribute__((unused)) const co_value_context *replica,                \
                           __attribute__((unused)) void                   *user)

/* 0 + 1 + ... + (n - 1). */
#define SUM_OF_IDS(n) ((n) * ((n)-1) / 2)
/* The length of an array. */
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The context has the error `code`, or none for CO_OK; it is cleared. */
#define EXPECT_OUTCOME(ctx, code) suite_outcome(TEST_AT, (ctx), (code))
bool suite_outcome(const char *file, int line, co_context *ctx, co_code code);

/* Float32 scalars a + b * id, one per replica. */
co_value *suite_floats(co_context *ctx, co_strategy *s, double a, double b);
/* One value per replica by a function of the caller. */
co_value *suite_values(co_context *ctx, co_strategy *s, co_value_fn fn);
/* 0, 1, ..., id: a float32 vector that is longer on every replica. */
co_value *suite_ranges(co_context *ctx, co_strategy *s);
/* The number of a scalar; NaN with the error of ctx left in place where there is none. */
double suite_number(co_context *ctx, co_value *value);
/* Component i of this process. */
co_value *suite_local(co_context *ctx, co_strategy *s, co_value *value, int i);
/* The local components of a value are a + b * id. */
#define EXPECT_LOCAL(ctx, s, value, a, b) suite_expect_local(TEST_AT, (ctx), (s), (value), (a), (b))
void suite_expect_local(const char *file, int line, co_context *ctx, co_strategy *s,
                        co_value *value, double a, double b);
/* The rows of a batch of m that replica `id` gets: [*begin, *end). */
void suite_slice(const suite_row *row, int m, int id, int *begin, int *end);
/* Run a step without arguments. */
co_value *suite_step(co_context *ctx, co_strategy *s, co_fn fn, void *user);
/* Another strategy, to get in the way. */
co_strategy *suite_other(co_context *ctx);
/* A float32 variable made in the scope of s. */
co_value *suite_variable(co_context *ctx, co_strategy *s, double initial, co_synchronization sync,
                         co_aggregation aggregation);
/* A float32 vector or matrix. */
co_value *suite_vector(co_context *ctx, int64_t n, const float *data);
/* The elements of value are those of `expected`. */
#define EXPECT_ELEMENTS(ctx, value, n, ...)                                                        \
    suite_expect_elements(TEST_AT, (ctx), (value), (n), (const double[]){ __VA_ARGS__ })
void suite_expect_elements(const char *file, int line, co_context *ctx, co_value *value, int64_t n,
                           const double *expected);

#ifdef SUITE_CAPTURED
/*
 * The same bodies with captured steps: every run captures its step and replays it. A step that
 * reads elements on the host has no meaning in a captured function: it runs as it is, and the case
 * counts as skipped, with the reason.
 */
co_value *suite_captured_run(co_context *ctx, co_strategy *s, co_fn fn, co_value *args, void *user,
                             const co_run_options *options);
#undef co_run
#undef co_run_with
#define co_run(ctx, s, fn, args, user)                                                             \
    suite_captured_run(CO_HERE(ctx), (s), (fn), (args), (user), NULL)
#define co_run_with(ctx, s, fn, args, user, options)                                               \
    suite_captured_run(CO_HERE(ctx), (s), (fn), (args), (user), (options))
#endif

#endif
