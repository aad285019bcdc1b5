/* SPDX-License-Identifier: Apache-2.0 */
/* Dataset pipelines: a list of {"op", "args"} becomes a dataset. A step that the library has no function for is missing. */
#include "golden.h"

#include <stdio.h>
#include <string.h>

#define MAX_STEPS    64
#define MAX_ELEMENTS 1000
#define MAX_FILES    16

/* One step: `input` is NULL for a source. NULL with a reason in c or an error in ctx. */
typedef co_dataset *(*step_fn)(golden_case *c, co_context *ctx, co_dataset *input, json_t *args);

static int64_t
int_arg(golden_case *c, json_t *args, size_t i, int64_t fallback)
{
    json_t *arg = json_array_get(args, i);

    if (arg == NULL || json_is_null(arg))
        return fallback;
    if (!json_is_integer(arg))
        golden_fail(c, "argument %zu of a pipeline step is not an integer", i);
    return json_integer_value(arg);
}

static co_dataset *
step_range(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    size_t n = json_array_size(args);

    (void)input;
    if (n == 1)
        return co_dataset_range(ctx, 0, int_arg(c, args, 0, 0), 1);
    return co_dataset_range(ctx, int_arg(c, args, 0, 0), int_arg(c, args, 1, 0),
                            int_arg(c, args, 2, 1));
}

static co_dataset *
step_from_tensors(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_value *value = golden_read_value(c, ctx, json_array_get(args, 0));

    (void)input;
    return value != NULL ? co_dataset_from_tensors(ctx, value) : NULL;
}

static co_dataset *
step_from_tensor_slices(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_value *value = golden_read_value(c, ctx, json_array_get(args, 0));

    (void)input;
    return value != NULL ? co_dataset_from_tensor_slices(ctx, value) : NULL;
}

/* The names of a list, made relative to the folder of the data, given to one of the readers of files. */
static co_dataset *
read_files(golden_case *c, co_context *ctx, json_t *args,
           co_dataset *(*make)(co_context *, const char *const *, size_t, const co_file_options *))
{
    json_t     *list = json_array_get(args, 0);
    size_t      n = json_array_size(list);
    char        paths[MAX_FILES][500];
    const char *names[MAX_FILES];

    if (n > MAX_FILES) {
        golden_fail(c, "a step of the pipeline reads more than %d files", MAX_FILES);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i) {
        const char *name = json_string_value(json_array_get(list, i));

        snprintf(paths[i], sizeof(paths[i]), "%s/%s", c->folder, name != NULL ? name : "");
        names[i] = paths[i];
    }
    return make(ctx, names, n, NULL);
}

static co_dataset *
step_tfrecord(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)input;
    return read_files(c, ctx, args, co_dataset_tfrecord);
}

static co_dataset *
step_textline(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)input;
    return read_files(c, ctx, args, co_dataset_text_lines);
}

static co_dataset *
step_batch(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_batch(ctx, input, int_arg(c, args, 0, 0),
                            json_is_true(json_array_get(args, 1)));
}

static co_dataset *
step_repeat(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_repeat(ctx, input, int_arg(c, args, 0, -1));
}

static co_dataset *
step_take(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_take(ctx, input, int_arg(c, args, 0, 0));
}

static co_dataset *
step_rebatch(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    json_t *first = json_array_get(args, 0);
    json_t *list = json_is_array(first) ? first : args;
    size_t  n = json_is_array(first) ? json_array_size(first) : 1;
    int64_t sizes[MAX_STEPS];

    for (size_t i = 0; i < n && i < MAX_STEPS; ++i)
        sizes[i] = int_arg(c, list, i, 0);
    return co_dataset_rebatch(ctx, input, sizes, n < MAX_STEPS ? n : MAX_STEPS,
                              json_is_true(json_array_get(args, 1)));
}

static co_dataset *
step_shard(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_shard(ctx, input, int_arg(c, args, 0, 0), int_arg(c, args, 1, 0));
}

static co_dataset *
step_shard_hint(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)c;
    (void)args;
    return co_dataset_shard(ctx, input, CO_SHARD_HINT, CO_SHARD_HINT);
}

static co_dataset *
step_options_autoshard(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    static const struct {
        const char  *name;
        co_autoshard policy;
    } known[] = {
        { "OFF", CO_AUTOSHARD_OFF },   { "AUTO", CO_AUTOSHARD_AUTO }, { "FILE", CO_AUTOSHARD_FILE },
        { "DATA", CO_AUTOSHARD_DATA }, { "HINT", CO_AUTOSHARD_HINT },
    };
    const char *name = json_string_value(json_array_get(args, 0));

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (name != NULL && strcmp(known[i].name, name) == 0)
            return co_dataset_with_autoshard(ctx, input, known[i].policy);
    golden_fail(c, "policy '%s' is not known to the runner", name ? name : "?");
    return NULL;
}

typedef struct step {
    const char *op;
    bool        is_source;
    step_fn     make;
} step;
static const step steps[] = {
    { "range", true, step_range },
    { "from_tensors", true, step_from_tensors },
    { "from_tensor_slices", true, step_from_tensor_slices },
    { "tfrecord", true, step_tfrecord },
    { "textline", true, step_textline },
    { "batch", false, step_batch },
    { "repeat", false, step_repeat },
    { "take", false, step_take },
    { "rebatch", false, step_rebatch },
    { "shard", false, step_shard },
    { "shard_hint", false, step_shard_hint },
    { "options_autoshard", false, step_options_autoshard },
};

static const step *
find_step(const char *op)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i)
        if (strcmp(steps[i].op, op) == 0)
            return &steps[i];
    return NULL;
}

/* All steps are looked up before the first is made, so that what is missing is said even where an earlier step fails. */
static bool
all_known(golden_case *c, json_t *pipeline)
{
    size_t  i;
    json_t *item;

    if (!json_is_array(pipeline) || json_array_size(pipeline) == 0 ||
        json_array_size(pipeline) > MAX_STEPS) {
        golden_fail(c, "the pipeline of the case is not a list of 1 to %d steps", MAX_STEPS);
        return false;
    }
    json_array_foreach(pipeline, i, item)
    {
        const char *op = json_string_value(json_object_get(item, "op"));
        const step *s = op != NULL ? find_step(op) : NULL;

        if (s == NULL) {
            golden_fail(c, "the library does not offer the dataset step '%s' yet", op ? op : "?");
            return false;
        }
        if (s->is_source != (i == 0)) {
            golden_fail(c, "step '%s' of the pipeline is out of place", op);
            return false;
        }
    }
    return true;
}

co_dataset *
golden_pipeline_step(golden_case *c, co_context *ctx, co_dataset *input, json_t *item)
{
    const step *s = find_step(json_string_value(json_object_get(item, "op")));

    return s->make(c, ctx, input, json_object_get(item, "args"));
}

co_dataset *
golden_pipeline(golden_case *c, co_context *ctx, json_t *pipeline)
{
    co_dataset *dataset = NULL;
    size_t      i;
    json_t     *item;

    if (!all_known(c, pipeline))
        return NULL;
    json_array_foreach(pipeline, i, item)
    {
        dataset = golden_pipeline_step(c, ctx, dataset, item);
        if (dataset == NULL || c->is_failed)
            return NULL;
    }
    return dataset;
}

json_t *
golden_write_elements(co_context *ctx, co_dataset *dataset)
{
    co_iterator *it = co_iterate(ctx, dataset);
    json_t      *list = json_array();
    co_value    *element;

    while (json_array_size(list) < MAX_ELEMENTS && (element = co_next(ctx, it)) != NULL)
        json_array_append_new(list, golden_write_value(ctx, element));
    return list;
}
