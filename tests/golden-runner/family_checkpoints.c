/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints: safetensors files and TensorFlow's checkpoints, read; and those of the Python
 * package written again, byte for byte. */
#include "families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1000

static const char *
path_of(golden_case *c, const char *key, char *out)
{
    snprintf(out, PATH_BYTES, "%s/%s", c->folder, golden_string(c, c->attrs, key));
    return out;
}

/* A tensor as the case has it; float8 under its own name. */
static json_t *
write_tensor(co_context *ctx, const co_tensor_entry *entry, co_value *value)
{
    json_t *json = golden_write_value(ctx, value);

    if (strncmp(entry->dtype_name, "float8", 6) == 0)
        json_object_set_new(json, "dtype", json_string(entry->dtype_name));
    return json;
}

/* The first error is that of the case. */
static json_t *
note_error(golden_case *c, co_context *ctx)
{
    co_error_info first = *co_error(ctx);
    json_t       *error = golden_write_error(ctx);

    if (c->code == CO_OK) {
        c->code = first.code;
        snprintf(c->message, sizeof(c->message), "%.500s", first.message);
    }
    return error;
}

/* --- safetensors --- */

static json_t *
write_metadata(co_context *ctx, co_value *metadata)
{
    json_t *json;

    if (co_value_kind(metadata) != CO_KIND_DICT)
        return json_null();
    json = json_object();
    for (size_t i = 0; i < co_num_items(ctx, metadata); ++i)
        json_object_set_new(json, co_key(ctx, metadata, i),
                            json_string(co_string_at(ctx, co_at(ctx, metadata, i), 0, NULL)));
    return json;
}

static json_t *
write_shape_and_place(co_context *ctx, co_tensor_file *file, size_t i, const co_tensor_entry *entry)
{
    json_t *json = write_tensor(ctx, entry, co_tensor_file_read_entry(ctx, file, i));

    json_object_set_new(json, "safetensors_dtype", json_string(entry->stored_name));
    json_object_set_new(json, "data_offsets",
                        json_pack("[I,I]", (json_int_t)entry->offset,
                                  (json_int_t)(entry->offset + entry->nbytes)));
    return json;
}

static bool
same_bytes(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    bool  same = x != NULL && y != NULL;
    int   c;

    while (same && (c = getc(x)) != EOF)
        same = c == getc(y);
    same = same && getc(y) == EOF;
    if (x != NULL)
        fclose(x);
    if (y != NULL)
        fclose(y);
    return same;
}

/* What the package wrote is what we write of the same tensors. The order of metadata is not
 * compared: that of the package is random. */
static void
write_again(golden_case *c, co_tensor_file *file, const char *path)
{
    co_context *ctx = c->ctx;
    co_value   *metadata = co_tensor_file_metadata(ctx, file);
    bool        has_metadata = co_value_kind(metadata) == CO_KIND_DICT;
    const char *base = getenv("TMPDIR");
    char        copy[200];
    int         fd;

    for (size_t i = 0; i < co_tensor_file_about(ctx, file)->num_entries; ++i)
        if (strncmp(co_tensor_file_entry(ctx, file, i)->dtype_name, "float8", 6) == 0)
            return;
    if (has_metadata && co_num_items(ctx, metadata) > 1)
        return;
    snprintf(copy, sizeof(copy), "%.150s/golden-XXXXXX", base != NULL ? base : "/tmp");
    fd = mkstemp(copy);
    if (fd < 0) {
        golden_fail(c, "no temporary file can be made");
        return;
    }
    close(fd);
    if (co_save_safetensors(ctx, copy, co_tensor_file_read_all(ctx, file),
                            has_metadata ? metadata : NULL, NULL) != CO_OK)
        golden_fail(c, "written again: %s", co_error(ctx)->message);
    else if (!same_bytes(path, copy))
        golden_fail(c, "written again, the file has other bytes");
    unlink(copy);
}

static void
run_safetensors(golden_case *c)
{
    co_context     *ctx = c->ctx;
    char            path[PATH_BYTES];
    co_tensor_file *file = co_tensor_file_open(ctx, path_of(c, "file", path), NULL);
    json_t         *tensors, *order;
    size_t          n;

    if (file == NULL) {
        golden_take_error(c, ctx);
        return;
    }
    n = co_tensor_file_about(ctx, file)->num_entries;
    tensors = json_object();
    order = json_array();
    for (size_t i = 0; i < n; ++i) {
        const co_tensor_entry *entry = co_tensor_file_entry(ctx, file, i);

        json_object_set_new(tensors, entry->name, write_shape_and_place(ctx, file, i, entry));
        json_array_append_new(order, json_string(entry->name));
    }
    golden_put(c, "metadata", write_metadata(ctx, co_tensor_file_metadata(ctx, file)));
    golden_put(c, "header_size",
               json_integer((json_int_t)co_tensor_file_about(ctx, file)->header_nbytes));
    golden_put(c, "tensors", tensors);
    golden_put(c, "order_in_file", order);
    golden_take_error(c, ctx);
    if (strncmp(c->id, "safetensors/", 12) == 0)
        write_again(c, file, path);
}

/* --- tensor bundles --- */

static json_t *
write_slices(const co_tensor_entry *entry)
{
    json_t *slices = json_array();
    size_t  ndim = (size_t)entry->ndim;

    for (size_t i = 0; i < entry->num_slices; ++i) {
        json_t *slice = json_array();

        for (size_t d = 0; d < ndim; ++d)
            json_array_append_new(slice,
                                  json_pack("[I,I]", (json_int_t)entry->slices[2 * i * ndim + d],
                                            (json_int_t)entry->slices[(2 * i + 1) * ndim + d]));
        json_array_append_new(slices, slice);
    }
    return slices;
}

static json_t *
write_entry(co_context *ctx, co_tensor_file *file, size_t i)
{
    const co_tensor_entry *e = co_tensor_file_entry(ctx, file, i);
    json_t                *json = json_pack("{s:s}", "name", e->name);

    if (e->num_slices > 0)
        json_object_set_new(json, "slices", write_slices(e));
    else
        json_object_update_new(json, json_pack("{s:i,s:I,s:I,s:I}", "shard", e->shard, "offset",
                                               (json_int_t)e->offset, "size", (json_int_t)e->nbytes,
                                               "crc32c", (json_int_t)e->crc32c));
    if (strcmp(e->name, "_CHECKPOINTABLE_OBJECT_GRAPH") == 0)
        json_object_update_new(json, json_pack("{s:s,s:[],s:s}", "dtype", e->dtype_name, "shape",
                                               "value", "object graph, see object_graph"));
    else
        json_object_set_new(json, "value",
                            write_tensor(ctx, e, co_tensor_file_read_entry(ctx, file, i)));
    return json;
}

/* Dicts, lists, numbers and strings as JSON itself has them. */
static json_t *
plain_json(co_context *ctx, co_value *value)
{
    co_kind kind = co_value_kind(value);
    json_t *json;

    if (kind == CO_KIND_INT)
        return json_integer(co_item_int(ctx, value));
    if (kind == CO_KIND_STRING)
        return json_string(co_string_at(ctx, value, 0, NULL));
    json = kind == CO_KIND_DICT ? json_object() : json_array();
    for (size_t i = 0; i < co_num_items(ctx, value); ++i)
        if (kind == CO_KIND_DICT)
            json_object_set_new(json, co_key(ctx, value, i), plain_json(ctx, co_at(ctx, value, i)));
        else
            json_array_append_new(json, plain_json(ctx, co_at(ctx, value, i)));
    return json;
}

static void
run_bundle(golden_case *c)
{
    co_context     *ctx = c->ctx;
    char            path[PATH_BYTES];
    co_tensor_file *file = co_tensor_file_open(ctx, path_of(c, "prefix", path), NULL);
    json_t         *entries = json_array();

    for (size_t i = 0; file != NULL && i < co_tensor_file_about(ctx, file)->num_entries; ++i)
        json_array_append_new(entries, write_entry(ctx, file, i));
    golden_put(c, "entries", entries);
    if (file != NULL)
        golden_put(c, "header",
                   json_pack("{s:i,s:i,s:i}", "num_shards",
                             co_tensor_file_about(ctx, file)->num_shards, "endianness", 0,
                             "producer", co_tensor_file_about(ctx, file)->producer));
    if (json_object_get(c->outputs, "object_graph") != NULL)
        golden_put(c, "object_graph", plain_json(ctx, co_tensor_file_object_graph(ctx, file)));
    golden_take_error(c, ctx);
}

static void
run_read(golden_case *c)
{
    co_context     *ctx = c->ctx;
    char            path[PATH_BYTES];
    co_tensor_file *file = co_tensor_file_open(ctx, path_of(c, "prefix", path), NULL);
    const char     *dtype = json_string_value(json_object_get(c->attrs, "dtype"));
    co_value       *value = co_tensor_file_restore(ctx, file, golden_string(c, c->attrs, "name"),
                                             dtype != NULL ? co_dtype_from_name(dtype)
                                                                 : CO_DTYPE_NONE,
                                                   golden_string(c, c->attrs, "slice"));

    if (!golden_take_error(c, ctx))
        golden_put_value(c, "value", value);
}

/* Every tensor that the case names is read, whatever became of the others. */
static json_t *
read_apart(golden_case *c, co_context *ctx, const char *path, const char *name)
{
    co_tensor_file        *file = co_tensor_file_open(ctx, path, NULL);
    const co_tensor_entry *entry = file != NULL ? co_tensor_file_find(ctx, file, name) : NULL;
    co_value              *value = file != NULL ? co_tensor_file_read(ctx, file, name) : NULL;

    if (!co_ok(ctx))
        return json_pack("{s:o}", "error", note_error(c, ctx));
    return write_tensor(ctx, entry, value);
}

static void
run_damaged(golden_case *c)
{
    co_context     *ctx = c->ctx;
    json_t         *tensors = json_object(), *names = json_null(), *open = json_null();
    char            path[PATH_BYTES];
    co_tensor_file *file = co_tensor_file_open(ctx, path_of(c, "prefix", path), NULL);
    const char     *name;
    json_t         *expected;

    if (file != NULL) {
        names = json_array();
        for (size_t i = 0; i < co_tensor_file_about(ctx, file)->num_entries; ++i)
            json_array_append_new(names, json_string(co_tensor_file_entry(ctx, file, i)->name));
    } else {
        open = note_error(c, ctx);
    }
    json_object_foreach(json_object_get(c->outputs, "tensors"), name, expected)
        json_object_set_new(tensors, name, read_apart(c, ctx, path, name));
    golden_put(c, "open", open);
    golden_put(c, "names", names);
    golden_put(c, "tensors", tensors);
}

/* --- the manager's text file --- */

/* What the file says; the names of files and the call's result are of who wrote them. */
static json_t *
read_state(golden_case *c, const char *folder, json_t *save)
{
    co_context *ctx = c->ctx;
    const char *text = json_string_value(json_object_get(save, "state"));
    char        path[PATH_BYTES];
    FILE       *file;
    co_value   *state;
    json_t     *seen = json_copy(save);

    snprintf(path, sizeof(path), "%s/checkpoint", folder);
    file = fopen(path, "w");
    if (file == NULL || text == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        golden_fail(c, "the text file cannot be written");
        return seen;
    }
    state = co_tf_checkpoint_state(ctx, folder);
    json_object_set_new(seen, "latest",
                        plain_json(ctx, co_get(ctx, state, "model_checkpoint_path")));
    json_object_set_new(seen, "checkpoints",
                        plain_json(ctx, co_get(ctx, state, "all_model_checkpoint_paths")));
    unlink(path);
    return seen;
}

static void
run_manager(golden_case *c)
{
    const char *base = getenv("TMPDIR");
    char        folder[200];
    json_t     *saves = json_array(), *save;
    size_t      i;

    snprintf(folder, sizeof(folder), "%.150s/golden-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL)
        golden_fail(c, "no temporary folder can be made");
    else
        json_array_foreach(json_object_get(c->outputs, "saves"), i, save)
            json_array_append_new(saves, read_state(c, folder, save));
    rmdir(folder);
    golden_put(c, "saves", saves);
    golden_take_error(c, c->ctx);
}

void
golden_run_checkpoints(golden_case *c)
{
    static const golden_action table[] = {
        { "safetensors", run_safetensors },
        { "safetensors_by_hand", run_safetensors },
        { "safetensors_damaged", run_safetensors },
        { "safetensors_missing", run_safetensors },
        { "tf_names", run_bundle },
        { "tf_shards", run_bundle },
        { "tf_saver", run_bundle },
        { "tf_object", run_bundle },
        { "tf_read_slice", run_read },
        { "tf_read", run_read },
        { "tf_damaged", run_damaged },
        { "tf_manager", run_manager },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}
