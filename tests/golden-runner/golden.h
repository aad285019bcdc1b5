/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden runner: executes recorded cases through the public API and compares what comes back
 * with what was recorded. The format of the data is described in tests/golden/README.md.
 *
 *   main.c      options, files, totals            family_*.c  a family: action to function
 *   case.c      one case: expectations, verdict   pipeline.c  pipelines, for several families
 *   isolate.c   cases in child processes          strategy.c  the strategies that cases name
 *   read.c      JSON into values                  write.c     values into JSON
 *   compare.c   two JSON trees, with tolerances
 *   types.c     the mode --types                  captured.c  the mode --function
 *
 * A family turns what it sees into the JSON that the recording would have held; one comparison
 * serves all.
 */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <cohort/cohort.h>
#include <jansson.h>

#define GOLDEN_REASON_MAX 600

/* What --types checked. */
typedef struct golden_types_count {
    long combinations;  /* of unknown dimensions */
    long unknown_ranks; /* the same with inputs of unknown rank */
    long samples;       /* shapes that fit a combination and that the operator accepts */
    long dimensions;    /* of results, that had to be known */
    long errors;        /* cases that expect an error */
    long programs;      /* cases of several operators, which no one rule is about */
} golden_types_count;

typedef struct golden_options {
    bool        is_verbose;
    bool        is_function;
    bool        is_types; /* check rules over types instead of results */
    int         fault;    /* a golden_fault (types.h) */
    const char *filter;   /* NULL: all cases */
} golden_options;

/* One case while it runs. */
typedef struct golden_case {
    const char         *family;
    const char         *id;
    const char         *folder; /* paths of the data are relative to it */
    json_t             *json;   /* the whole case, borrowed */
    json_t             *attrs;  /* objects, never NULL, borrowed */
    json_t             *inputs;
    json_t             *outputs; /* what is expected, `expect` applied, borrowed */
    json_t             *error;   /* the expected error, or NULL */
    co_context         *ctx;     /* fresh, with four logical CPUs */
    json_t             *seen;    /* an object the family fills with outputs */
    co_code             code; /* the first error that the family met and that belongs to the case */
    char                message[GOLDEN_REASON_MAX];
    bool                is_failed;
    char                reason[GOLDEN_REASON_MAX]; /* the first one counts */
    int                 fault;                     /* --types --fault: a golden_fault */
    golden_types_count *types;                     /* --types: what was checked */
} golden_case;

typedef struct golden_family {
    const char *name;
    void (*run)(golden_case *c);
} golden_family;

/* The table of families (families.c); NULL for an unknown name. */
extern const golden_family golden_families[];
extern const size_t        golden_num_families;
const golden_family       *golden_family_find(const char *name);

/* A row of a table from the name of an action, operator or group to what does it. */
typedef struct golden_action {
    const char *name;
    void (*run)(golden_case *c);
} golden_action;
/* Call the row whose name is the group of the case's id ("error.reduce/3" has the group
 * "reduce"). */
void golden_run_group(golden_case *c, const golden_action *table, size_t n);

/* case.c */

/* Run one case of a family and judge it. False: failed, with c->reason. */
typedef struct golden_verdict {
    bool               is_passed;
    char               reason[GOLDEN_REASON_MAX];
    char               apart[100]; /* --function: why the case has no meaning in a function */
    golden_types_count types;
} golden_verdict;
void golden_case_run(const char *family, const char *folder, json_t *json,
                     const golden_options *options, golden_verdict *out);
/* Run all cases on devices of this type, whose number `index` is the current one; CPU at first. */
void golden_use_device(const char *type, int index);
/* "/device:CPU:2", or what stands for it; i is from 0 to 3. */
const char *golden_device(int i);
/* A device name as the recording, which knows CPUs alone, would have it. Static room. */
const char *golden_recorded_device(const char *text);
/* Note why a case fails; later reasons are ignored. */
void golden_fail(golden_case *c, const char *format, ...) CO_PRINTF(2, 3);
/* What the library does not offer yet. */
void golden_missing(golden_case *c, const char *what);
/* Move an error of ctx into the case (the first one stays) and clear it. True if there was one. */
bool golden_take_error(golden_case *c, co_context *ctx);
/* Put an output; takes over the reference to value. NULL value: null. */
void golden_put(golden_case *c, const char *key, json_t *value);
void golden_put_value(golden_case *c, const char *key, co_value *value);
/* Fields of attrs. A field of the wrong type fails the case and gives the fallback. */
const char *golden_string(golden_case *c, json_t *object, const char *key);
int64_t     golden_int(golden_case *c, json_t *object, const char *key, int64_t fallback);
/* The group of an id: "error.reduce/3" gives "reduce". */
void golden_group(const char *id, char *out, size_t capacity);

/* read.c: NULL with a reason in c when the JSON is not what it should be. Values belong to ctx's
 * block. */

/* A tensor, structure, per-replica bundle or host value. */
co_value *golden_read_value(golden_case *c, co_context *ctx, json_t *json);
/* The bytes of a JSON string: each character is one byte. The caller frees. NULL without memory or
 * if one is wider. */
char *golden_read_bytes(json_t *json, size_t *nbytes);
bool  golden_is_tensor(const json_t *json);
/* Hexadecimal digits of a field of object as a host string of bytes; none for null. */
co_value *golden_read_hex(golden_case *c, json_t *object, const char *key);

/* write.c: new references; json_null() for NULL. */

json_t *golden_write_value(co_context *ctx, co_value *value);
/* The bytes of a host string in hexadecimal digits; null for none or with an error in ctx. */
json_t *golden_write_hex(co_context *ctx, co_value *value);
/* The error of ctx as {"kind", "message"}; clears it. */
json_t *golden_write_error(co_context *ctx);
/* Numbers as the recording writes them. */
json_t  *golden_write_double(double value);
double   golden_half_to_double(uint16_t bits);
double   golden_bfloat16_to_double(uint16_t bits);
uint16_t golden_double_to_half(double value);
uint16_t golden_double_to_bfloat16(double value);

/* compare.c */

typedef struct golden_compare {
    golden_case *c;
    bool         signed_zeros; /* -0.0 and 0.0 differ */
    bool         host_numbers; /* a host number will do for the scalar tensor that it becomes */
} golden_compare;
/* Compare two trees; the first difference fails the case, naming the path. True if they agree. */
bool golden_same(const golden_compare *how, const char *path, json_t *seen, json_t *expected);

/* strategy.c */

/* "default", "OneDeviceStrategy" and "MirroredStrategy" with `replicas`, from attrs; NULL with a
 * reason. */
co_strategy *golden_strategy(golden_case *c);
/* The same by class name and number of replicas. */
co_strategy *golden_strategy_of(golden_case *c, co_context *ctx, const char *name,
                                int64_t replicas);
/* D, O, P, M1, M2, M3, M4, N2: a new strategy with every call, except D. */
co_strategy *golden_strategy_named(golden_case *c, co_context *ctx, const char *name);
/* A bundle for `per_replica` inputs: plain for strategies that do not wrap. */
co_value *golden_read_replicas(golden_case *c, co_context *ctx, co_strategy *strategy,
                               json_t *list);
/* The components of a result of run, one per replica, as a JSON list. */
json_t *golden_write_local(co_context *ctx, co_strategy *strategy, co_value *value);

/* The same for every leaf of a structure: {"dict": {"a": {"per_replica": [...]}}}. */
json_t *golden_write_replicas(co_context *ctx, co_strategy *strategy, co_value *value);
/* Run fn in every replica and write what each returns, in its own context, as a list by replica
 * id. */
json_t *golden_run_each(golden_case *c, co_strategy *strategy, co_fn fn, co_value *args,
                        void *user);
bool    golden_is_mirrored(co_context *ctx, co_strategy *strategy);
/* The name that the recording gives to the kind of a value: "EagerTensor", "PerReplica", ... */
const char *golden_class(co_context *ctx, co_value *value);

/* pipeline.c */

/* The dataset that a list of {"op","args"} describes; NULL with a reason or with an error in
 * ctx. */
co_dataset *golden_pipeline(golden_case *c, co_context *ctx, json_t *pipeline);
/* Whether an item is a known step: a source where it is the first, else a transformation. */
bool golden_is_pipeline_step(json_t *item, bool is_first);
/* One step that is known to exist, after `input`. */
co_dataset *golden_pipeline_step(golden_case *c, co_context *ctx, co_dataset *input, json_t *item);

/* The elements of a dataset, plain or distributed, as a list: all, or as many as a runaway one may
 * give. */
json_t *golden_write_elements(co_context *ctx, co_dataset *dataset);

/* isolate.c */

#define GOLDEN_MAX_APART 16
typedef struct golden_count {
    long               passed;
    long               failed;
    golden_types_count types;
    struct {
        char why[100];
        long n;
    } apart[GOLDEN_MAX_APART]; /* --function: neither passed nor failed */
} golden_count;
/* Run all cases of one file in child processes, print what fails, add to `count`. */
void golden_run_cases(const char *family, const char *folder, json_t *cases,
                      const golden_options *options, golden_count *count);

#endif
