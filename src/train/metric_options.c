/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of metrics, from a struct or from a dict as Keras writes it. One table says for each
 * where it is and of what type; the row of a metric says which ones it has.
 */
#include "train/metric.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

typedef enum option_type {
    TYPE_DOUBLE,
    TYPE_INT,
    TYPE_AXIS,
    TYPE_SIZE,
    TYPE_FLAG, /* an int: 0, 1 or not given */
    TYPE_BOOL,
    TYPE_DOUBLES, /* a pointer, and their number behind it */
    TYPE_INTS,
    TYPE_AVERAGE, /* enumerations */
    TYPE_CURVE,
    TYPE_SUMMATION,
    TYPE_AGGREGATION,
    TYPE_FUNCTION
} option_type;

static const struct {
    const char *name;
    option_type type;
    size_t      offset;
} all[COI_NUM_METRIC_OPTIONS] = {
#define OPTION(number, field, type)                                                                \
    [COI_OPTION_NUMBER_##number] = { #field, TYPE_##type, offsetof(co_metric_options, field) },
    COI_METRIC_OPTIONS(OPTION)
#undef OPTION
};

/* The words of an enumeration, in the order of its numbers; Keras has some in two spellings. */
typedef struct words {
    const char *at[4][2];
    size_t      n;
} words;
static const words words_of_average = { { { "" }, { "micro" }, { "macro" }, { "weighted" } }, 4 };
static const words words_of_curve = { { { "ROC", "roc" }, { "PR", "pr" }, { "PRGAIN", "prgain" } },
                                      3 };
static const words words_of_summation = { { { "interpolation", "Interpolation" },
                                            { "minoring", "Minoring" },
                                            { "majoring", "Majoring" } },
                                          3 };
static const words words_of_aggregation = {
    { { "uniform_average" }, { "variance_weighted_average" }, { "" } }, 3
};

static const words *
words_of(option_type type)
{
    return type == TYPE_AVERAGE       ? &words_of_average
           : type == TYPE_CURVE       ? &words_of_curve
           : type == TYPE_SUMMATION   ? &words_of_summation
           : type == TYPE_AGGREGATION ? &words_of_aggregation
                                      : NULL;
}

/* What the option is called for this metric. */
static const char *
name_of(const coi_metric_row *row, int option)
{
    return option == COI_OPTION_NUMBER_CONSTRAINT && row->constraint != NULL ? row->constraint
                                                                             : all[option].name;
}

static const void *
field(const co_metric_options *options, int option)
{
    return (const char *)options + all[option].offset;
}

/* Whether an option is as the initialiser has it. The number of given thresholds is not an option.
 */
static bool
is_default(const co_metric_options *options, int option)
{
    static const co_metric_options initial = CO_METRIC_OPTIONS_INIT;

    const void *mine = field(options, option), *other = field(&initial, option);

    switch (all[option].type) {
    case TYPE_DOUBLE: {
        double a, b;

        memcpy(&a, mine, sizeof(a));
        memcpy(&b, other, sizeof(b));
        return (isnan(a) && isnan(b)) || a == b;
    }
    case TYPE_INT: return memcmp(mine, other, sizeof(int64_t)) == 0;
    case TYPE_SIZE: return options->thresholds != NULL || memcmp(mine, other, sizeof(size_t)) == 0;
    case TYPE_BOOL: return memcmp(mine, other, sizeof(bool)) == 0;
    case TYPE_DOUBLES: return *(const double *const *)mine == NULL;
    case TYPE_INTS: return *(const int64_t *const *)mine == NULL;
    case TYPE_FUNCTION: return options->fn == NULL;
    default: return memcmp(mine, other, sizeof(int)) == 0; /* int and enumerations */
    }
}

static void
list_options(const coi_metric_row *row, char *out, size_t capacity)
{
    coi_prose text = { out, capacity, 0 };

    for (int o = 0; o < COI_NUM_METRIC_OPTIONS; ++o)
        if ((row->takes >> o & 1) != 0)
            coi_put(&text, "%s%s", text.at > 0 ? ", " : "", name_of(row, o));
    if (text.at == 0)
        coi_put(&text, "name and dtype alone");
    coi_put_end(&text);
}

static bool
check_known(co_context *ctx, const co_metric *metric)
{
    const coi_metric_row *row = metric->row;
    char                  has[300];

    for (int o = 0; o < COI_NUM_METRIC_OPTIONS; ++o) {
        bool given = !is_default(&metric->options, o);

        if (given && (row->takes >> o & 1) == 0) {
            list_options(row, has, sizeof(has));
            coi_fail(ctx, CO_VALUE_ERROR, "%s has no option %s; it has %s", row->class_name,
                     all[o].name, has);
            return false;
        }
        if (!given && (row->needs >> o & 1) != 0) {
            coi_fail(ctx, CO_TYPE_ERROR, "%s needs the option %s, which is not given",
                     row->class_name, name_of(row, o));
            return false;
        }
    }
    return true;
}

/* --- ranges --- */

static bool
check_threshold(co_context *ctx, const co_metric *metric, double threshold)
{
    bool scores = metric->family == &coi_score_family;

    if (metric->family == &coi_mean_family || metric->family == &coi_iou_family)
        return true; /* of accuracies and BinaryIoU: compared with predictions of any range */
    if (threshold >= 0 && threshold <= 1 && !(scores && threshold == 0))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR, "a threshold of %s is %g; it must be in %s 1]",
             metric->row->class_name, threshold, scores ? "(0," : "[0,");
    return false;
}

static bool
check_thresholds(co_context *ctx, const co_metric *metric)
{
    const co_metric_options *o = &metric->options;

    if (!isnan(o->threshold) && o->thresholds != NULL) {
        coi_fail(ctx, CO_VALUE_ERROR, "%s is given threshold and thresholds; give one of them",
                 metric->row->class_name);
        return false;
    }
    if (o->thresholds != NULL && o->num_thresholds == 0 && metric->kind != CO_METRIC_AUC) {
        coi_fail(ctx, CO_VALUE_ERROR, "thresholds of %s are an empty list; give at least one",
                 metric->row->class_name);
        return false;
    }
    if (!isnan(o->threshold) && !check_threshold(ctx, metric, o->threshold))
        return false;
    for (size_t i = 0; o->thresholds != NULL && i < o->num_thresholds; ++i)
        if (!check_threshold(ctx, metric, o->thresholds[i]))
            return false;
    return true;
}

typedef struct range {
    const char *name;
    double      value, min, max;
} range;

static bool
check_ranges(co_context *ctx, const co_metric *metric)
{
    const co_metric_options *o = &metric->options;
    const range              ranges[] = {
                     { "k", (double)o->k, 1, INT32_MAX },
                     { "top_k", o->top_k == CO_METRIC_NOT_GIVEN ? 1 : (double)o->top_k, 1, INT32_MAX },
                     { "num_classes", (double)o->num_classes, 0, INT32_MAX },
                     { "num_labels", (double)o->num_labels, 0, INT32_MAX },
                     { "num_regressors", (double)o->num_regressors, 0, INT32_MAX },
                     { "num_thresholds", (double)o->num_thresholds, 0, INT32_MAX },
                     { "beta", o->beta, nextafter(0, 1), HUGE_VAL },
                     { "label_smoothing", o->label_smoothing, 0, 1 },
    };

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); ++i)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)) {
            coi_fail(ctx, CO_VALUE_ERROR, "%s of %s is %g; it must be %s%g%s", ranges[i].name,
                     metric->row->class_name, ranges[i].value,
                     ranges[i].min > 0 && ranges[i].min < 1 ? "above " : "at least ",
                     ranges[i].min < 1 ? 0 : ranges[i].min,
                     ranges[i].max == 1 ? " and at most 1" : "");
            return false;
        }
    return true;
}

static bool
check_words(co_context *ctx, const co_metric *metric)
{
    for (int o = 0; o < COI_NUM_METRIC_OPTIONS; ++o) {
        const words *known = words_of(all[o].type);
        int          number;

        if (known == NULL)
            continue;
        memcpy(&number, field(&metric->options, o), sizeof(number));
        if (number >= 0 && number < (int)known->n)
            continue;
        coi_fail(ctx, CO_VALUE_ERROR, "%s of %s is %d; it must be 0 to %zu", all[o].name,
                 metric->row->class_name, number, known->n - 1);
        return false;
    }
    return true;
}

/* --- taking --- */

/* A copy of an array that goes with the metric; arrays of none are not NULL afterwards either. */
static bool
copy_array(co_context *ctx, co_metric *metric, const void **at, size_t n, size_t size)
{
    if (*at == NULL)
        return true;
    if (n > INT32_MAX / size) {
        coi_fail(ctx, CO_VALUE_ERROR, "a list of options of %s has %zu numbers; at most %zu can be",
                 metric->row->class_name, n, (size_t)INT32_MAX / size);
        return false;
    }
    *at = coi_metric_copy(ctx, metric, *at, n * size);
    return *at != NULL;
}

static bool
copy_all(co_context *ctx, co_metric *metric)
{
    co_metric_options    *o = &metric->options;
    const coi_metric_row *row = metric->row;
    const char *name = o->name != NULL ? o->name : row->name != NULL ? row->name : row->snake_name;
    const void *thresholds = o->thresholds, *ids = o->target_class_ids, *weights = o->label_weights;
    char       *own = coi_metric_copy(ctx, metric, name, strlen(name) + 1);

    if (own == NULL || !copy_array(ctx, metric, &thresholds, o->num_thresholds, sizeof(double)) ||
        !copy_array(ctx, metric, &ids, o->num_target_class_ids, sizeof(int64_t)) ||
        !copy_array(ctx, metric, &weights, o->num_label_weights, sizeof(double)))
        return false;
    o->name = own;
    o->thresholds = thresholds;
    o->target_class_ids = ids;
    o->label_weights = weights;
    return true;
}

bool
coi_metric_take_options(co_context *ctx, co_metric *metric, const co_metric_options *options)
{
    metric->options = (co_metric_options)CO_METRIC_OPTIONS_INIT;
    return coi_take_options(ctx, &metric->options, sizeof(metric->options), options, 3) &&
           check_known(ctx, metric) && check_words(ctx, metric) && copy_all(ctx, metric) &&
           check_thresholds(ctx, metric) && check_ranges(ctx, metric);
}

/* --- configs --- */

static bool
refuse_value(co_context *ctx, const co_metric *metric, const char *key, co_value *value,
             const char *wanted)
{
    char text[80];

    co_format(ctx, value, text, sizeof(text));
    coi_fail(ctx, CO_VALUE_ERROR, "%s of %s is %s; it must be %s", key, metric->row->class_name,
             text, wanted);
    return false;
}

static bool
is_number(const co_value *value)
{
    return value->kind == CO_KIND_INT || value->kind == CO_KIND_FLOAT;
}

/* Keras takes an integer for most numbers, and refuses it for these. */
static bool
must_be_float(const co_metric *metric, int option)
{
    return metric->family == &coi_score_family &&
           (option == COI_OPTION_NUMBER_BETA || option == COI_OPTION_NUMBER_THRESHOLD);
}

static bool
read_list(co_context *ctx, co_metric *metric, const char *key, co_value *value, co_dtype dtype,
          void *out, size_t size)
{
    bool   is_list = value->kind == CO_KIND_LIST || value->kind == CO_KIND_TUPLE;
    size_t n = is_list ? co_num_items(ctx, value) : 1;
    char  *copy = coi_metric_copy(ctx, metric, NULL, n * size);

    if (copy == NULL)
        return false;
    for (size_t i = 0; i < n; ++i) {
        co_value *item = is_list ? co_at(ctx, value, i) : value;

        if (item == NULL)
            return false;
        if (item->kind != CO_KIND_INT && !(item->kind == CO_KIND_FLOAT && dtype == CO_FLOAT64))
            return refuse_value(ctx, metric, key, value,
                                dtype == CO_FLOAT64 ? "a number or a list of numbers"
                                                    : "a list of integers");
        if (co_value_copy_data(ctx, item, dtype, copy + i * size, 1) != CO_OK)
            return false;
    }
    memcpy(out, &(const void *){ copy }, sizeof(void *));
    memcpy((char *)out + sizeof(void *), &n, sizeof(n));
    return true;
}
_Static_assert(offsetof(co_metric_options, num_thresholds) ==
                       offsetof(co_metric_options, thresholds) + sizeof(void *) &&
                   offsetof(co_metric_options, num_target_class_ids) ==
                       offsetof(co_metric_options, target_class_ids) + sizeof(void *) &&
                   offsetof(co_metric_options, num_label_weights) ==
                       offsetof(co_metric_options, label_weights) + sizeof(void *),
               "the number of an array is behind it");

static bool
read_word(co_context *ctx, co_metric *metric, const char *key, co_value *value, option_type type,
          void *out)
{
    const words *known = words_of(type);
    char         wanted[120];
    coi_prose    text = { wanted, sizeof(wanted), 0 };
    const char  *given = value->kind == CO_KIND_STRING ? co_string_at(ctx, value, 0, NULL)
                         : value->kind == CO_KIND_NONE ? ""
                                                       : NULL;

    for (int i = 0; given != NULL && i < (int)known->n; ++i)
        for (int s = 0; s < 2 && known->at[i][s] != NULL; ++s)
            if (strcmp(known->at[i][s], given) == 0 &&
                (value->kind == CO_KIND_NONE) == (given[0] == '\0')) {
                memcpy(out, &i, sizeof(i));
                return true;
            }
    for (size_t i = 0; i < known->n; ++i)
        coi_put(&text, "%s%s", i > 0 ? ", " : "",
                known->at[i][0][0] != '\0' ? known->at[i][0] : "none");
    coi_put_end(&text);
    return refuse_value(ctx, metric, key, value, wanted);
}

static bool
read_integer(co_context *ctx, co_metric *metric, const char *key, co_value *value, option_type type,
             void *out)
{
    int64_t number = value->kind == CO_KIND_INT ? co_item_int(ctx, value) : -1;
    int     axis = (int)number;
    size_t  size = (size_t)number;

    if (value->kind != CO_KIND_INT)
        return refuse_value(ctx, metric, key, value, "an integer");
    if (type == TYPE_AXIS && axis != number)
        return refuse_value(ctx, metric, key, value, "an axis");
    if (type == TYPE_SIZE && number < 0)
        return refuse_value(ctx, metric, key, value, "at least 0");
    if (type == TYPE_INT)
        memcpy(out, &number, sizeof(number));
    else if (type == TYPE_AXIS)
        memcpy(out, &axis, sizeof(axis));
    else
        memcpy(out, &size, sizeof(size));
    return true;
}

static bool
read_truth(co_context *ctx, co_metric *metric, const char *key, co_value *value, option_type type,
           void *out)
{
    bool truth;
    int  flag;

    if (value->kind != CO_KIND_BOOL)
        return refuse_value(ctx, metric, key, value, "a bool");
    truth = co_item_int(ctx, value) != 0;
    flag = truth;
    if (type == TYPE_BOOL)
        memcpy(out, &truth, sizeof(truth));
    else
        memcpy(out, &flag, sizeof(flag));
    return true;
}

static bool
read_double(co_context *ctx, co_metric *metric, int option, co_value *value, void *out)
{
    double number;

    if (!is_number(value) || (value->kind == CO_KIND_INT && must_be_float(metric, option)))
        return refuse_value(ctx, metric, name_of(metric->row, option), value, "a float");
    number = co_item_float(ctx, value);
    memcpy(out, &number, sizeof(number));
    return true;
}

/* None is the default, but for enumerations in which it is a word. */
static bool
read_option(co_context *ctx, co_metric *metric, int option, co_value *value, co_metric_options *out)
{
    option_type type = all[option].type;
    const char *key = name_of(metric->row, option);
    char       *at = (char *)out + all[option].offset;

    if (words_of(type) != NULL)
        return read_word(ctx, metric, key, value, type, at);
    if (value->kind == CO_KIND_NONE)
        return true;
    switch (type) {
    case TYPE_DOUBLE: return read_double(ctx, metric, option, value, at);
    case TYPE_INT:
    case TYPE_AXIS:
    case TYPE_SIZE: return read_integer(ctx, metric, key, value, type, at);
    case TYPE_FLAG:
    case TYPE_BOOL: return read_truth(ctx, metric, key, value, type, at);
    case TYPE_DOUBLES: return read_list(ctx, metric, key, value, CO_FLOAT64, at, sizeof(double));
    case TYPE_INTS: return read_list(ctx, metric, key, value, CO_INT64, at, sizeof(int64_t));
    default: return refuse_value(ctx, metric, key, value, "given by co_metric_new");
    }
}

static bool
read_name_or_dtype(co_context *ctx, co_metric *metric, const char *key, co_value *value,
                   co_metric_options *out)
{
    const char *text;

    if (value->kind == CO_KIND_NONE)
        return true;
    if (value->kind != CO_KIND_STRING)
        return refuse_value(ctx, metric, key, value, "a string");
    text = co_string_at(ctx, value, 0, NULL);
    if (strcmp(key, "name") == 0) {
        out->name = text; /* copied with the options; the config lives until then */
        return true;
    }
    out->dtype = co_dtype_from_name(text);
    return out->dtype != CO_DTYPE_NONE || refuse_value(ctx, metric, key, value, "a dtype");
}

static bool
read_key(co_context *ctx, co_metric *metric, const char *key, co_value *value,
         co_metric_options *out)
{
    char has[300];

    if (strcmp(key, "name") == 0 || strcmp(key, "dtype") == 0)
        return read_name_or_dtype(ctx, metric, key, value, out);
    for (int o = 0; o < COI_NUM_METRIC_OPTIONS; ++o)
        if ((metric->row->takes >> o & 1) != 0 && strcmp(key, name_of(metric->row, o)) == 0)
            return read_option(ctx, metric, o, value, out);
    list_options(metric->row, has, sizeof(has));
    coi_fail(ctx, CO_VALUE_ERROR, "%s has no option '%.*s%s'; it has %s", metric->row->class_name,
             COI_CUT(60, key), has);
    return false;
}

/* The threshold of a metric that has both names is called thresholds in configs. */
bool
coi_metric_read_config(co_context *ctx, co_metric *metric, co_value *config, co_metric_options *out)
{
    const char *call = ctx->call;
    size_t      n;

    *out = (co_metric_options)CO_METRIC_OPTIONS_INIT;
    if (config->kind == CO_KIND_NONE)
        return true;
    if (!coi_check_kind(ctx, config, CO_KIND_DICT, 3, "config"))
        return false;
    n = co_num_items(ctx, config);
    for (size_t i = 0; i < n; ++i) {
        const char *key = co_key(ctx, config, i);
        co_value   *value = co_at(ctx, config, i);

        ctx->call = call;
        if (value == NULL || !read_key(ctx, metric, key, value, out))
            return false;
    }
    return true;
}
