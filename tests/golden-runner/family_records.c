/* SPDX-License-Identifier: Apache-2.0 */
/* records: record, text and array files, checksums and tf.Example. */
#include "families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FEATURES 8

static json_t *
hex_text(const void *bytes, size_t nbytes)
{
    static const char    digits[] = "0123456789abcdef";
    const unsigned char *at = bytes;
    char                *text = malloc(2 * nbytes + 1);
    json_t              *json;

    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < nbytes; ++i) {
        text[2 * i] = digits[at[i] >> 4];
        text[2 * i + 1] = digits[at[i] & 15];
    }
    json = json_stringn(text, 2 * nbytes);
    free(text);
    return json;
}

static int
digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The bytes of a hex string, as a host string; NULL with a reason. */
static co_value *
read_hex(golden_case *c, json_t *json)
{
    const char    *text = json_string_value(json);
    size_t         n = json_string_length(json) / 2;
    unsigned char *bytes = text != NULL ? malloc(n + 1) : NULL;
    co_value      *value = NULL;
    bool           is_good = bytes != NULL && json_string_length(json) % 2 == 0;

    for (size_t i = 0; is_good && i < n; ++i) {
        is_good = digit(text[2 * i]) >= 0 && digit(text[2 * i + 1]) >= 0;
        bytes[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    }
    if (is_good)
        value = co_bytes(c->ctx, bytes, n);
    else
        golden_fail(c, "the bytes of the case are not a hex string");
    free(bytes);
    return value;
}

static const char *
file_path(golden_case *c, char *out, size_t capacity)
{
    snprintf(out, capacity, "%s/%s", c->folder, golden_string(c, c->attrs, "file"));
    return out;
}

static co_file_options
file_options(golden_case *c)
{
    co_file_options options = CO_FILE_OPTIONS_INIT;
    const char     *name = json_string_value(json_object_get(c->attrs, "compression"));

    if (name != NULL && strcmp(name, "GZIP") == 0)
        options.compression = CO_COMPRESSION_GZIP;
    else if (name != NULL && strcmp(name, "ZLIB") == 0)
        options.compression = CO_COMPRESSION_ZLIB;
    else if (name != NULL && name[0] != '\0')
        golden_fail(c, "compression '%s' is not known to the runner", name);
    return options;
}

static co_dataset *
tfrecord_of(golden_case *c)
{
    co_file_options options = file_options(c);
    char            path[1000];
    const char     *file = file_path(c, path, sizeof(path));

    return co_dataset_tfrecord(c->ctx, &file, 1, &options);
}

/* All elements of a dataset as hex, up to the first error, which belongs to the case. */
static json_t *
elements_hex(golden_case *c, co_dataset *dataset)
{
    json_t      *list = json_array();
    co_iterator *it = co_iterate(c->ctx, dataset);
    co_value    *element;

    while ((element = co_next(c->ctx, it)) != NULL) {
        size_t      n;
        const char *bytes = co_string_at(c->ctx, element, 0, &n);

        json_array_append_new(list, hex_text(bytes, n));
    }
    golden_take_error(c, c->ctx);
    return list;
}

static void
run_tfrecord(golden_case *c)
{
    co_dataset  *dataset = tfrecord_of(c);
    co_iterator *it = co_iterate(c->ctx, dataset);
    json_t      *hex = json_array(), *sizes = json_array(), *crcs = json_array();
    co_value    *element;
    char         path[1000];
    struct stat  about;

    file_path(c, path, sizeof(path));

    while ((element = co_next(c->ctx, it)) != NULL) {
        size_t      n;
        const char *bytes = co_string_at(c->ctx, element, 0, &n);

        json_array_append_new(hex, hex_text(bytes, n));
        json_array_append_new(sizes, json_integer((json_int_t)n));
        json_array_append_new(crcs, json_integer(co_crc32c(bytes, n)));
    }
    if (json_is_null(json_object_get(c->outputs, "records_hex"))) /* too long for the recording */
        json_decref(hex), hex = json_null();
    if (json_object_get(c->outputs, "file_size") != NULL && stat(path, &about) == 0)
        golden_put(c, "file_size", json_integer(about.st_size));
    golden_put(c, "records_hex", hex);
    golden_put(c, "record_sizes", sizes);
    golden_put(c, "record_crc32c", crcs);
}

/* As the recording writes a float32. */
static json_t *
nine_digits(float value)
{
    char text[40];

    snprintf(text, sizeof(text), "%.9g", (double)value);
    return golden_write_double(strtod(text, NULL));
}

/* {"kind": "int64_list", "values": [...]}; bytes as values_hex. */
static json_t *
write_feature(co_context *ctx, co_value *value)
{
    co_dtype dtype = co_value_dtype(ctx, value);
    json_t  *list = json_array();

    if (dtype == CO_STRING) {
        for (int64_t i = 0; i < co_value_num_elements(ctx, value); ++i) {
            size_t      n;
            const char *bytes = co_string_at(ctx, value, i, &n);

            json_array_append_new(list, hex_text(bytes, n));
        }
        return json_pack("{s:s,s:o}", "kind", "bytes_list", "values_hex", list);
    }
    for (int64_t i = 0; i < co_value_num_elements(ctx, value); ++i)
        json_array_append_new(list,
                              dtype == CO_INT64
                                  ? json_integer(((const int64_t *)co_value_data(ctx, value))[i])
                                  : nine_digits(((const float *)co_value_data(ctx, value))[i]));
    return json_pack("{s:s,s:o}", "kind", dtype == CO_INT64 ? "int64_list" : "float_list", "values",
                     list);
}

/* Every example is also encoded again and must decode to the same. */
static void
run_example(golden_case *c)
{
    co_context  *ctx = c->ctx;
    co_iterator *it = co_iterate(ctx, tfrecord_of(c));
    json_t      *hex = json_array(), *examples = json_array();
    co_value    *element;

    while ((element = co_next(ctx, it)) != NULL) {
        size_t      n;
        const char *bytes = co_string_at(ctx, element, 0, &n);
        co_value   *map = co_example_decode(ctx, element);
        co_value   *again = co_example_decode(ctx, co_example_encode(ctx, map));
        json_t     *example = json_object(), *copy = json_object();

        json_array_append_new(hex, hex_text(bytes, n));
        for (size_t i = 0; i < co_num_items(ctx, map); ++i) {
            json_object_set_new(example, co_key(ctx, map, i),
                                write_feature(ctx, co_at(ctx, map, i)));
            json_object_set_new(copy, co_key(ctx, again, i),
                                write_feature(ctx, co_at(ctx, again, i)));
        }
        if (!json_equal(example, copy))
            golden_fail(c, "an example that was decoded and encoded decodes to something else");
        json_decref(copy);
        json_array_append_new(examples, example);
    }
    golden_put(c, "records_hex", hex);
    golden_put(c, "examples", examples);
}

static void
run_count_before_error(golden_case *c)
{
    json_t *list = elements_hex(c, tfrecord_of(c));

    golden_put(c, "records_before_error", json_integer((json_int_t)json_array_size(list)));
    json_decref(list);
}

static void
run_damaged(golden_case *c)
{
    golden_put(c, "records_before_error", elements_hex(c, tfrecord_of(c)));
}

static void
run_crc32c(golden_case *c)
{
    co_value   *bytes = read_hex(c, json_object_get(c->inputs, "bytes_hex"));
    size_t      n = 0;
    const char *data = bytes != NULL ? co_string_at(c->ctx, bytes, 0, &n) : NULL;

    golden_put(c, "crc32c", json_integer(co_crc32c(data, n)));
    golden_put(c, "masked", json_integer(co_crc32c_masked(data, n)));
}

static void
run_textline(golden_case *c)
{
    char        path[1000];
    const char *file = file_path(c, path, sizeof(path));

    golden_put(c, "lines_hex", elements_hex(c, co_dataset_text_lines(c->ctx, &file, 1, NULL)));
    golden_put(c, "lines",
               json_incref(json_object_get(c->outputs, "lines"))); /* the same as text */
}

static void
run_fixed_length(golden_case *c)
{
    char        path[1000];
    const char *file = file_path(c, path, sizeof(path));
    co_dataset *dataset = co_dataset_fixed_length_records(
        c->ctx, &file, 1, golden_int(c, c->attrs, "record_bytes", 1),
        &(co_fixed_length_options){ sizeof(co_fixed_length_options), NULL,
                                    golden_int(c, c->attrs, "header_bytes", 0),
                                    golden_int(c, c->attrs, "footer_bytes", 0) });
    json_t *list = elements_hex(c, dataset);

    if (json_object_size(c->outputs) > 0 || json_array_size(list) > 0)
        golden_put(c, "records_hex", list);
    else
        json_decref(list);
}

/* What the case wants of one feature; false with a reason. */
static bool
read_feature(golden_case *c, const char *name, json_t *json, int64_t *dims, co_feature *out)
{
    json_t *shape = json_object_get(json, "shape"), *data = json_object_get(json, "default");

    *out = (co_feature){ name, CO_FEATURE_FIXED, CO_DTYPE_NONE, dims, (int)json_array_size(shape),
                         NULL };
    out->dtype = co_dtype_from_name(golden_string(c, json, "dtype"));
    if (strcmp(golden_string(c, json, "kind"), "sequence") == 0)
        out->kind = CO_FEATURE_SEQUENCE;
    for (int i = 0; i < out->ndim && i < CO_MAX_DIMS; ++i)
        dims[i] = json_integer_value(json_array_get(shape, (size_t)i));
    if (data != NULL) {
        json_t *tensor = json_pack("{s:s,s:O,s:O}", "dtype", co_dtype_name(out->dtype), "shape",
                                   shape, "data", data);

        out->missing = golden_read_value(c, c->ctx, tensor);
        json_decref(tensor);
    }
    return !c->is_failed;
}

static void
run_parse_example(golden_case *c)
{
    co_context *ctx = c->ctx;
    co_value   *bytes = read_hex(c, json_object_get(c->inputs, "serialized_hex")), *map;
    co_feature  features[MAX_FEATURES];
    int64_t     dims[MAX_FEATURES][CO_MAX_DIMS];
    size_t      n = 0;
    const char *name;
    json_t     *json;

    json_object_foreach(json_object_get(c->attrs, "features"), name, json)
    {
        if (n == MAX_FEATURES || !read_feature(c, name, json, dims[n], &features[n]))
            return;
        ++n;
    }
    map = co_parse_example(ctx, bytes, features, n);
    for (size_t i = 0; i < co_num_items(ctx, map); ++i)
        golden_put_value(c, co_key(ctx, map, i), co_at(ctx, map, i));
    golden_take_error(c, ctx);
}

static void
run_npy(golden_case *c)
{
    char      path[1000];
    co_value *array = co_load_npy(c->ctx, file_path(c, path, sizeof(path)), NULL);

    if (!golden_take_error(c, c->ctx))
        golden_put_value(c, "array", array);
}

static void
run_npz(golden_case *c)
{
    char      path[1000];
    co_value *map = co_load_npz(c->ctx, file_path(c, path, sizeof(path)));
    json_t   *arrays = json_object();

    for (size_t i = 0; i < co_num_items(c->ctx, map); ++i)
        json_object_set_new(arrays, co_key(c->ctx, map, i),
                            golden_write_value(c->ctx, co_at(c->ctx, map, i)));
    golden_put(c, "arrays", arrays);
}

/* The files of the auto-shard cases: records or lines. */
static void
run_shard_file(golden_case *c)
{
    bool         is_text = json_object_get(c->outputs, "lines") != NULL;
    char         path[1000];
    const char  *file = file_path(c, path, sizeof(path));
    co_iterator *it = co_iterate(c->ctx, is_text ? co_dataset_text_lines(c->ctx, &file, 1, NULL)
                                                 : co_dataset_tfrecord(c->ctx, &file, 1, NULL));
    json_t      *list = json_array();
    co_value    *element;

    while ((element = co_next(c->ctx, it)) != NULL)
        json_array_append_new(list, json_string(co_string_at(c->ctx, element, 0, NULL)));
    golden_put(c, is_text ? "lines" : "records", list);
}

void
golden_run_records(golden_case *c)
{
    static const golden_action table[] = {
        { "tfrecord", run_tfrecord },
        { "tfrecord_example", run_example },
        { "tfrecord_wrong_compression", run_count_before_error },
        { "tfrecord_missing", run_count_before_error },
        { "damaged", run_damaged },
        { "crc32c", run_crc32c },
        { "textline", run_textline },
        { "fixed_length", run_fixed_length },
        { "parse_example", run_parse_example },
        { "npy", run_npy },
        { "npz", run_npz },
        { "auto_shard_file", run_shard_file },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}
