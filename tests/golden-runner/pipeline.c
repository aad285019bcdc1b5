/* SPDX-License-Identifier: Apache-2.0 */
/* Dataset pipelines: a list of {"op", "args"} becomes a dataset. A step that the library has no
 * function for is missing. */
#include "captured.h"
#include "pipeline.h"

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

static const char *
text_arg(json_t *args, size_t i)
{
    const char *text = json_string_value(json_array_get(args, i));

    return text != NULL ? text : "";
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

/* The names of a list, made relative to the folder of the data, given to one of the readers of
 * files. */
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

static co_dataset *
step_skip(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_skip(ctx, input, int_arg(c, args, 0, 0));
}

/* The names of files as elements. */
static co_dataset *
slices_of_names(co_context *ctx, const char *const *names, size_t n, const co_file_options *options)
{
    int64_t dim = (int64_t)n;

    (void)options;
    return co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_STRING, &dim, 1, names));
}

static co_dataset *
step_files(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)input;
    return read_files(c, ctx, args, slices_of_names);
}

/* A nested pipeline. */
static co_dataset *
branch(golden_case *c, co_context *ctx, json_t *args, size_t i)
{
    return golden_pipeline(c, ctx, json_object_get(json_array_get(args, i), "pipeline"));
}

static co_dataset *
step_zip(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_dataset *branches[MAX_STEPS];
    size_t      n = json_array_size(args);

    (void)input;
    for (size_t i = 0; i < n && i < MAX_STEPS; ++i) {
        branches[i] = branch(c, ctx, args, i);
        if (branches[i] == NULL)
            return NULL;
    }
    return co_dataset_zip(ctx, branches, n < MAX_STEPS ? n : MAX_STEPS);
}

static co_dataset *
step_concatenate(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_dataset *second = branch(c, ctx, args, 0);

    return second != NULL ? co_dataset_concatenate(ctx, input, second) : NULL;
}

static co_dataset *
step_enumerate(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_enumerate(ctx, input, int_arg(c, args, 0, 0));
}

static co_dataset *
step_cache(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)c, (void)args;
    return co_dataset_cache(ctx, input);
}

static co_dataset *
step_prefetch(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_prefetch(ctx, input, int_arg(c, args, 0, 0));
}

static co_dataset *
step_map(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return golden_map(c, ctx, input, text_arg(args, 0));
}

static co_dataset *
step_filter(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_predicate_fn fn = golden_predicate(c, text_arg(args, 0));

    return fn != NULL ? co_dataset_filter(ctx, input, fn, NULL) : NULL;
}

static co_dataset *
step_take_while(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_predicate_fn fn = golden_predicate(c, text_arg(args, 0));

    return fn != NULL ? co_dataset_take_while(ctx, input, fn, NULL) : NULL;
}

static co_dataset *
step_scan(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    co_fold_fn fn = golden_scan(c, text_arg(args, 0));
    co_value  *initial = co_scalar_int64(ctx, int_arg(c, args, 1, 0));

    return fn != NULL ? co_dataset_scan(ctx, input, initial, fn, NULL, NULL) : NULL;
}

static co_dataset *
step_unbatch(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)c, (void)args;
    return co_dataset_unbatch(ctx, input);
}

static co_dataset *
step_unique(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    (void)c, (void)args;
    return co_dataset_unique(ctx, input);
}

static co_dataset *
step_assert_cardinality(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_assert_cardinality(ctx, input, int_arg(c, args, 0, 0));
}

static co_dataset *
step_shuffle(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return co_dataset_shuffle(ctx, input, int_arg(c, args, 0, 0), int_arg(c, args, 1, 0),
                              json_is_true(json_array_get(args, 2)));
}

static co_dataset *
interleave(golden_case *c, co_context *ctx, co_dataset *input, json_t *args, int cycle, int block)
{
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    co_inner_fn           fn = golden_inner(c, text_arg(args, 0), &options.opens_files);

    options.cycle_length = cycle;
    options.block_length = block;
    if (fn == NULL)
        return NULL;
    return co_dataset_interleave(ctx, input, fn, NULL,
                                 golden_inner_spec(ctx, input, text_arg(args, 0)), &options);
}

static co_dataset *
step_interleave(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    return interleave(c, ctx, input, args, (int)int_arg(c, args, 1, 0),
                      (int)int_arg(c, args, 2, 0));
}

/* Where the names of files are to be shared out, it is the interleaving of one. */
static co_dataset *
step_flat_map(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    bool        opens_files = false;
    co_inner_fn fn = golden_inner(c, text_arg(args, 0), &opens_files);

    if (fn == NULL || opens_files)
        return fn != NULL ? interleave(c, ctx, input, args, 1, 1) : NULL;
    return co_dataset_flat_map(ctx, input, fn, NULL,
                               golden_inner_spec(ctx, input, text_arg(args, 0)));
}

static co_dataset *
step_window(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    int64_t size = int_arg(c, args, 0, 0), shift = int_arg(c, args, 1, size);

    return co_dataset_window(ctx, input, size,
                             &(co_window_options){ sizeof(co_window_options),
                                                   shift != 0 ? shift : -1, int_arg(c, args, 2, 1),
                                                   json_is_true(json_array_get(args, 3)) });
}

static co_dataset *
step_padded_batch(golden_case *c, co_context *ctx, co_dataset *input, json_t *args)
{
    json_t   *shape = json_array_get(args, 1), *value = json_array_get(args, 2);
    int64_t   dims[CO_MAX_DIMS];
    size_t    n = json_array_size(shape);
    co_value *spec = co_element_spec(ctx, input);

    for (size_t i = 0; i < n && i < CO_MAX_DIMS; ++i)
        dims[i] = int_arg(c, shape, i, -1);
    return co_dataset_padded_batch(
        ctx, input, int_arg(c, args, 0, 0),
        &(co_padded_batch_options){
            sizeof(co_padded_batch_options),
            json_is_array(shape) ? co_spec(ctx, co_value_dtype(ctx, spec), dims, (int)n) : NULL,
            json_is_integer(value) ? co_int(ctx, json_integer_value(value)) : NULL,
            json_is_true(json_array_get(args, 3)) });
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
    { "files", true, step_files },
    { "zip", true, step_zip },
    { "concatenate", false, step_concatenate },
    { "skip", false, step_skip },
    { "enumerate", false, step_enumerate },
    { "cache", false, step_cache },
    { "prefetch", false, step_prefetch },
    { "map", false, step_map },
    { "filter", false, step_filter },
    { "take_while", false, step_take_while },
    { "scan", false, step_scan },
    { "unbatch", false, step_unbatch },
    { "unique", false, step_unique },
    { "apply_cardinality", false, step_assert_cardinality },
    { "shuffle", false, step_shuffle },
    { "flat_map", false, step_flat_map },
    { "interleave", false, step_interleave },
    { "padded_batch", false, step_padded_batch },
    { "window", false, step_window },
};

static const step *
find_step(const char *op)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i)
        if (strcmp(steps[i].op, op) == 0)
            return &steps[i];
    return NULL;
}

/* All steps are looked up before the first is made, so that what is missing is said even where an
 * earlier step fails. */
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

bool
golden_is_pipeline_step(json_t *item, bool is_first)
{
    const char *op = json_string_value(json_object_get(item, "op"));
    const step *s = op != NULL ? find_step(op) : NULL;

    return s != NULL && s->is_source == is_first;
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

    while (json_array_size(list) < MAX_ELEMENTS && (element = golden_next(ctx, it)) != NULL)
        json_array_append_new(list, golden_write_value(ctx, element));
    return list;
}
