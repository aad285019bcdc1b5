/* SPDX-License-Identifier: Apache-2.0 */
/* Making losses: options, configurations, names. */
#include "train/loss.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void
destroy(coi_heap *heap, void *object)
{
    coi_object_free(heap, object, sizeof(co_loss));
}

const coi_class coi_loss_class = { "loss", destroy, NULL };

/* --- reductions --- */

static const char *const reductions[] = {
    [CO_REDUCTION_NONE] = "none",
    [CO_REDUCTION_SUM] = "sum",
    [CO_REDUCTION_SUM_OVER_BATCH_SIZE] = "sum_over_batch_size",
    [CO_REDUCTION_MEAN] = "mean",
    [CO_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT] = "mean_with_sample_weight",
};
enum { NUM_REDUCTIONS = sizeof(reductions) / sizeof(reductions[0]) };

const char *
co_reduction_name(co_reduction reduction)
{
    return (unsigned)reduction < NUM_REDUCTIONS ? reductions[reduction] : "?";
}

static bool
find_reduction(co_context *ctx, const char *name, co_reduction *out)
{
    for (int i = 0; i < NUM_REDUCTIONS; ++i)
        if (strcmp(reductions[i], name) == 0) {
            *out = (co_reduction)i;
            return true;
        }
    coi_fail(ctx, CO_VALUE_ERROR,
             "'%.100s' is no reduction; the names are none, sum, sum_over_batch_size, mean and "
             "mean_with_sample_weight",
             name);
    return false;
}

co_code
co_reduction_from_name(co_context *ctx, const char *name, co_reduction *out)
{
    COI_ENTER_CODE(ctx, "reduction_from_name");
    if (name == NULL || out == NULL)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument %d (%s) of reduction_from_name is NULL; give a name and where "
                        "the reduction goes",
                        name == NULL ? 2 : 3, name == NULL ? "name" : "out");
    find_reduction(ctx, name, out);
    return ctx->error.code;
}

/* --- options --- */

typedef enum option_type {
    OPTION_BOOL,
    OPTION_INT,  /* int */
    OPTION_LONG, /* int64_t */
    OPTION_FLOAT,
    OPTION_NAME,
    OPTION_REDUCTION,
    OPTION_DTYPE
} option_type;

typedef struct option {
    const char *name;
    unsigned    bit; /* 0: every loss has it */
    option_type type;
    size_t      offset;
    size_t      nbytes;
} option;

#define OPTION(field, bit, type)                                                                   \
    {                                                                                              \
#field, bit, type, offsetof(co_loss_options, field), sizeof(((co_loss_options *)0)->field) \
    }
static const option all_options[] = {
    OPTION(name, 0, OPTION_NAME),
    OPTION(reduction, 0, OPTION_REDUCTION),
    OPTION(dtype, 0, OPTION_DTYPE),
    OPTION(from_logits, COI_LOSS_FROM_LOGITS, OPTION_BOOL),
    OPTION(label_smoothing, COI_LOSS_LABEL_SMOOTHING, OPTION_FLOAT),
    OPTION(axis, COI_LOSS_AXIS, OPTION_INT),
    OPTION(delta, COI_LOSS_DELTA, OPTION_FLOAT),
    OPTION(alpha, COI_LOSS_ALPHA, OPTION_FLOAT),
    OPTION(gamma, COI_LOSS_GAMMA, OPTION_FLOAT),
    OPTION(apply_class_balancing, COI_LOSS_CLASS_BALANCING, OPTION_BOOL),
    OPTION(ignore_class, COI_LOSS_IGNORE_CLASS, OPTION_LONG),
};
enum { NUM_OPTIONS = sizeof(all_options) / sizeof(all_options[0]) };

static const co_loss_options defaults = CO_LOSS_OPTIONS_INIT;

static bool
fail_foreign(co_context *ctx, const coi_loss_rule *rule, const char *name)
{
    char   list[200] = "";
    size_t n = 0;

    for (int i = 0; i < NUM_OPTIONS; ++i)
        if (all_options[i].bit == 0 || (all_options[i].bit & rule->options) != 0)
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n > 0 ? ", " : "",
                                  all_options[i].name);
    coi_fail(ctx, CO_VALUE_ERROR, "%s has no option '%.60s'; it has %s", rule->class_name, name,
             list);
    return false;
}

/* Options that the loss does not have are as in the initialiser. */
static bool
check_foreign(co_context *ctx, const coi_loss_rule *rule, const co_loss_options *o)
{
    for (int i = 0; i < NUM_OPTIONS; ++i) {
        const option *row = &all_options[i];

        if (row->bit != 0 && (row->bit & rule->options) == 0 &&
            memcmp((const char *)o + row->offset, (const char *)&defaults + row->offset,
                   row->nbytes) != 0)
            return fail_foreign(ctx, rule, row->name);
    }
    if (o->has_ignore_class && (rule->options & COI_LOSS_IGNORE_CLASS) == 0)
        return fail_foreign(ctx, rule, "has_ignore_class");
    return true;
}

static bool
check_numbers(co_context *ctx, const co_loss_options *o)
{
    const struct {
        const char *name;
        double      x, least, most;
        const char *right;
    } all[] = {
        { "label_smoothing", o->label_smoothing, 0, 1, "in [0, 1]" },
        { "delta", o->delta, 0, DBL_MAX, "finite and not negative" },
        { "alpha", o->alpha, -DBL_MAX, DBL_MAX, "finite" },
        { "gamma", o->gamma, -DBL_MAX, DBL_MAX, "finite" },
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i)
        if (!(all[i].x >= all[i].least && all[i].x <= all[i].most)) {
            coi_fail(ctx, CO_VALUE_ERROR, "option '%s' of a loss is %g; it must be %s", all[i].name,
                     all[i].x, all[i].right);
            return false;
        }
    return true;
}

static bool
check_options(co_context *ctx, const coi_loss_rule *rule, const co_loss_options *o)
{
    if ((unsigned)o->reduction >= NUM_REDUCTIONS)
        coi_fail(ctx, CO_VALUE_ERROR, "reduction %d is none; they go from %d (none) to %d (%s)",
                 (int)o->reduction, CO_REDUCTION_NONE, NUM_REDUCTIONS - 1,
                 reductions[NUM_REDUCTIONS - 1]);
    else if ((unsigned)o->mean_over > CO_MEAN_OVER_REPLICA)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "mean_over %d is none; it is %d (the step) or %d (the replica)", (int)o->mean_over,
                 CO_MEAN_OVER_STEP, CO_MEAN_OVER_REPLICA);
    else if ((unsigned)o->dtype >= CO_NUM_DTYPES || !coi_dtypes[o->dtype].floating)
        coi_fail(ctx, CO_VALUE_ERROR, "a loss is computed in %s; its dtype must be a floating one",
                 co_dtype_name(o->dtype));
    else if (o->ignore_class != 0 && !o->has_ignore_class)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "ignore_class is %lld, but has_ignore_class is not set; set it too",
                 (long long)o->ignore_class);
    else if (o->name != NULL && strlen(o->name) >= COI_LOSS_NAME)
        coi_fail(ctx, CO_VALUE_ERROR, "the name of a loss has %zu bytes; it may have %d",
                 strlen(o->name), COI_LOSS_NAME - 1);
    else
        return check_foreign(ctx, rule, o) && check_numbers(ctx, o);
    return false;
}

static co_loss *
make(co_context *ctx, const coi_loss_rule *rule, const co_loss_options *given, int position)
{
    co_loss_options o = defaults;
    const char     *name = rule->name != NULL ? rule->name : rule->function_name;
    co_loss        *loss;

    if (!coi_take_options(ctx, &o, sizeof(o), given, position) || !check_options(ctx, rule, &o))
        return NULL;
    loss = coi_object_new(&ctx->heap, &coi_loss_class, sizeof(*loss));
    if (loss == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a loss");
        return NULL;
    }
    loss->rule = rule;
    loss->options = o;
    loss->fn = NULL;
    loss->user = NULL;
    snprintf(loss->name, sizeof(loss->name), "%s", o.name != NULL ? o.name : name);
    loss->options.name = loss->name;
    return coi_own(ctx, loss);
}

/* --- by kind, by name --- */

co_loss *
co_loss_new(co_context *ctx, co_loss_kind kind, const co_loss_options *options)
{
    COI_ENTER(ctx, "loss_new", NULL);
    if ((unsigned)kind < CO_LOSS_OWN)
        return make(ctx, &coi_loss_rules[kind], options, 3);
    coi_fail(ctx, CO_VALUE_ERROR, "kind %d is no loss; they go from 0 to %d%s", (int)kind,
             CO_LOSS_OWN - 1, kind == CO_LOSS_OWN ? ", and co_loss_of makes your own" : "");
    return NULL;
}

static bool
is_called(const coi_loss_rule *rule, const char *name)
{
    return strcmp(rule->class_name, name) == 0 || strcmp(rule->function_name, name) == 0 ||
           (rule->aliases[0] != NULL &&
            (strcmp(rule->aliases[0], name) == 0 || strcmp(rule->aliases[1], name) == 0));
}

static const coi_loss_rule *
find_rule(co_context *ctx, const char *name)
{
    char   list[700] = "";
    size_t n = 0;

    if (name == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (name) of %s is NULL; give the name of a loss", ctx->call);
        return NULL;
    }
    for (int i = 0; i < CO_LOSS_OWN; ++i)
        if (is_called(&coi_loss_rules[i], name))
            return &coi_loss_rules[i];
    for (int i = 0; i < CO_LOSS_OWN && n < sizeof(list); ++i)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n > 0 ? ", " : "",
                              coi_loss_rules[i].function_name);
    coi_fail(ctx, CO_VALUE_ERROR, "'%.60s' is no loss; the losses are %s", name, list);
    return NULL;
}

co_loss *
co_loss_named(co_context *ctx, const char *name, const co_loss_options *options)
{
    const coi_loss_rule *rule;

    COI_ENTER(ctx, "loss_named", NULL);
    rule = find_rule(ctx, name);
    return rule != NULL ? make(ctx, rule, options, 3) : NULL;
}

co_loss *
co_loss_of(co_context *ctx, co_loss_fn fn, void *user, const co_loss_options *options)
{
    co_loss *loss;

    COI_ENTER(ctx, "loss_of", NULL);
    if (fn == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (fn) of loss_of is NULL; give a function that returns one value per "
                 "example");
        return NULL;
    }
    loss = make(ctx, &coi_loss_rules[CO_LOSS_OWN], options, 4);
    if (loss != NULL) {
        loss->fn = fn;
        loss->user = user;
    }
    return loss;
}

/* --- by configuration --- */

static bool
fail_kind(co_context *ctx, const option *row, const co_value *value, const char *right)
{
    coi_fail(ctx, CO_VALUE_ERROR, "option '%s' of a loss is %s; it must be %s", row->name,
             coi_a_kind(value->kind), right);
    return false;
}

/* An integer; a bool is none. */
static bool
read_integer(co_context *ctx, const option *row, co_value *value, char *field)
{
    int64_t whole;
    int     small;

    if (value->kind != CO_KIND_INT)
        return fail_kind(ctx, row, value, "an integer");
    whole = co_item_int(ctx, value);
    small = (int)whole;
    if (row->type == OPTION_LONG)
        memcpy(field, &whole, sizeof(whole));
    else if (small == whole)
        memcpy(field, &small, sizeof(small));
    else
        coi_fail(ctx, CO_VALUE_ERROR, "option '%s' of a loss is %lld; it must fit an int",
                 row->name, (long long)whole);
    return ctx->error.code == CO_OK;
}

static bool
read_text(co_context *ctx, const option *row, co_value *value, char *field)
{
    const char *text;
    co_dtype    dtype;

    if (value->kind != CO_KIND_STRING)
        return fail_kind(ctx, row, value, "a string");
    text = co_string_at(ctx, value, 0, NULL);
    if (text == NULL)
        return false;
    if (row->type == OPTION_REDUCTION)
        return find_reduction(ctx, text, (co_reduction *)(void *)field);
    if (row->type == OPTION_NAME) {
        memcpy(field, &text, sizeof(text));
        return true;
    }
    dtype = co_dtype_from_name(text);
    memcpy(field, &dtype, sizeof(dtype));
    if (dtype == CO_DTYPE_NONE)
        coi_fail(ctx, CO_VALUE_ERROR, "'%.60s' is no dtype of a loss; use 'float32'", text);
    return dtype != CO_DTYPE_NONE;
}

static bool
read_option(co_context *ctx, const option *row, co_value *value, co_loss_options *o)
{
    char  *field = (char *)o + row->offset;
    double real;
    bool   flag;

    switch (row->type) {
    case OPTION_BOOL:
        if (value->kind != CO_KIND_BOOL)
            return fail_kind(ctx, row, value, "a bool");
        flag = co_item_int(ctx, value) != 0;
        memcpy(field, &flag, sizeof(flag));
        return true;
    case OPTION_FLOAT:
        if (value->kind != CO_KIND_FLOAT && value->kind != CO_KIND_INT)
            return fail_kind(ctx, row, value, "a number");
        real = co_item_float(ctx, value);
        memcpy(field, &real, sizeof(real));
        return true;
    case OPTION_INT:
    case OPTION_LONG: return read_integer(ctx, row, value, field);
    default: return read_text(ctx, row, value, field);
    }
}

static const option *
find_option(const char *name)
{
    for (int i = 0; i < NUM_OPTIONS; ++i)
        if (strcmp(all_options[i].name, name) == 0)
            return &all_options[i];
    return NULL;
}

/* Whether a key of a configuration is an option that the loss has; then it is read. In Keras a
 * reduction of None is "none", and None elsewhere the default. */
static bool
take_option(co_context *ctx, const coi_loss_rule *rule, const char *key, co_value *value,
            co_loss_options *o)
{
    const option *row = find_option(key);

    if (row == NULL || (row->bit != 0 && (row->bit & rule->options) == 0))
        return fail_foreign(ctx, rule, key);
    if (value->kind == CO_KIND_NONE) {
        if (row->type == OPTION_REDUCTION)
            o->reduction = CO_REDUCTION_NONE;
        return true;
    }
    if (!read_option(ctx, row, value, o))
        return false;
    o->has_ignore_class = o->has_ignore_class || row->type == OPTION_LONG;
    return true;
}

co_loss *
co_loss_from_config(co_context *ctx, const char *name, co_value *config)
{
    const coi_loss_rule *rule;
    co_loss_options      o = defaults;

    COI_ENTER(ctx, "loss_from_config", NULL);
    rule = find_rule(ctx, name);
    if (rule == NULL || (config != NULL && !coi_check_kind(ctx, config, CO_KIND_DICT, 3, "config")))
        return NULL;
    for (size_t i = 0; config != NULL && i < config->u.items.n; ++i)
        if (!take_option(ctx, rule, co_key(ctx, config, i), config->u.items.items[i], &o))
            return NULL;
    ctx->call = "loss_from_config";
    return make(ctx, rule, &o, 3);
}

/* --- looking at one --- */

co_code
co_loss_describe(co_context *ctx, const co_loss *loss, co_loss_info *info)
{
    co_loss_info all = CO_LOSS_INFO_INIT;
    size_t       given;

    COI_ENTER_CODE(ctx, "loss_describe");
    if (!coi_check_object(ctx, loss, &coi_loss_class, 2, "loss") ||
        !coi_take_options(ctx, &all, sizeof(all), info, 3))
        return ctx->error.code;
    if (info == NULL)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 3 (info) of loss_describe is NULL; give a co_loss_info that is "
                        "CO_LOSS_INFO_INIT");
    given = info->struct_size;
    all = (co_loss_info){ given,
                          (co_loss_kind)(loss->rule - coi_loss_rules),
                          loss->rule->class_name,
                          loss->rule->function_name,
                          loss->name,
                          loss->options.reduction,
                          loss->options.mean_over,
                          loss->options.dtype,
                          loss->options.from_logits };
    memcpy(info, &all, given < sizeof(all) ? given : sizeof(all));
    return CO_OK;
}
