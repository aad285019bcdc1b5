/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CSV: the rows of files, cut into fields and converted. The input is a dataset of rows as strings
 * (data/files.c), of which a stack is taken at once; so a batch is made column by column. Fields
 * are cut in the memory of their row, which is ours.
 */
#include "data/files.h"
#include "data/iterator_checkpoint.h"

#include "io/options.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct csv_column {
    co_dtype  dtype;
    co_value *missing; /* a reference to a scalar on the host; NULL: required */
} csv_column;

typedef struct csv_dataset {
    co_dataset  base;
    csv_column *columns; /* as many as leaves */
    char        delimiter;
    char       *na_value; /* NULL: none */
} csv_dataset;

typedef struct csv_iterator {
    co_iterator   base;
    locale_t      plain; /* in which numbers have a point */
    co_value     *rows;  /* a stack of the input, of which `at` rows are gone; NULL: none */
    int64_t       at;
    co_error_info failure; /* of row `at`, after rows that were good */
} csv_iterator;

/* --- fields --- */

typedef struct cursor {
    char *at, *end; /* what is left of a row; NULL after its last field */
} cursor;

/* A field in quotes: doubled quotes become one, where they are. */
static const char *
take_quoted(cursor *row, char delimiter, coi_text *out)
{
    char *to = ++row->at, *from = to;

    out->data = to;
    for (;; ++from) {
        if (from == row->end)
            return "a quoted field does not end";
        if (*from == '"') {
            if (from + 1 == row->end || from[1] != '"')
                break;
            ++from;
        }
        *to++ = *from;
    }
    out->nbytes = (size_t)(to - out->data);
    row->at = from + 1;
    if (row->at < row->end && *row->at != delimiter)
        return "a quoted field is followed by something else than a delimiter; a quote inside is "
               "doubled";
    *to = '\0';
    return NULL;
}

/* The next field, ended by a zero in place of what stood behind it; NULL, or what is wrong. */
static const char *
take_field(cursor *row, char delimiter, coi_text *out)
{
    const char *wrong = NULL;
    char       *end;

    if (row->at < row->end && *row->at == '"') {
        wrong = take_quoted(row, delimiter, out);
    } else {
        end = row->at < row->end ? memchr(row->at, delimiter, (size_t)(row->end - row->at)) : NULL;
        end = end != NULL ? end : row->end;
        *out = (coi_text){ row->at, (size_t)(end - row->at) };
        if (out->nbytes > 0 && memchr(out->data, '"', out->nbytes) != NULL)
            wrong =
                "a field has quotes inside and not around it; put it in quotes and double those";
        row->at = end;
    }
    if (wrong != NULL)
        return wrong;
    if (row->at == row->end) {
        *row->at = '\0'; /* rows end with a zero of their own */
        row->at = NULL;
    } else {
        *row->at++ = '\0';
    }
    return NULL;
}

static void
trim(coi_text *text)
{
    while (text->nbytes > 0 && strchr(" \t", *text->data) != NULL && *text->data != '\0')
        ++text->data, --text->nbytes;
    while (text->nbytes > 0 &&
           (text->data[text->nbytes - 1] == ' ' || text->data[text->nbytes - 1] == '\t'))
        --text->nbytes;
}

/* A number at out[i]; false if it is none of its dtype. */
static bool
take_number(coi_text text, co_dtype dtype, locale_t plain, void *out, int64_t i)
{
    char *end;

    trim(&text);
    if (text.nbytes == 0)
        return false;
    errno = 0;
    if (dtype == CO_FLOAT32) {
        ((float *)out)[i] = strtof_l(text.data, &end, plain);
        errno = 0; /* too large is infinity, too small is zero */
    } else if (dtype == CO_FLOAT64) {
        ((double *)out)[i] = strtod_l(text.data, &end, plain);
        errno = 0;
    } else {
        long long n = strtoll(text.data, &end, 10);

        if (dtype == CO_INT32 && (n < INT32_MIN || n > INT32_MAX))
            return false;
        if (dtype == CO_INT32)
            ((int32_t *)out)[i] = (int32_t)n;
        else
            ((int64_t *)out)[i] = n;
    }
    return errno == 0 && end == text.data + text.nbytes;
}

/* --- rows --- */

/* Where the fields of a stack go: for each column its elements, numbers or texts. */
typedef struct table {
    const csv_dataset *csv;
    csv_iterator      *self;
    void             **columns;
} table;

static bool
is_missing(const csv_dataset *csv, const coi_text *field)
{
    return field->nbytes == 0 ||
           (csv->na_value != NULL && strcmp(field->data, csv->na_value) == 0 &&
            strlen(csv->na_value) == field->nbytes);
}

static co_code
put_field(const table *t, size_t c, int64_t i, const coi_text *field)
{
    const csv_column *column = &t->csv->columns[c];
    size_t size = column->dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[column->dtype].size;

    if (is_missing(t->csv, field)) {
        if (column->missing == NULL)
            return coi_error(&t->self->failure, CO_INVALID_ARGUMENT,
                             "column %zu is empty, and has no value for that", c);
        memcpy((char *)t->columns[c] + (size_t)i * size, coi_data_on_host(column->missing), size);
    } else if (column->dtype == CO_STRING) {
        ((coi_text *)t->columns[c])[i] = *field;
    } else if (!take_number(*field, column->dtype, t->self->plain, t->columns[c], i)) {
        return coi_error(&t->self->failure, CO_INVALID_ARGUMENT, "column %zu, '%.*s%s', is no %s",
                         c, COI_CUT(60, field->data), co_dtype_name(column->dtype));
    }
    return CO_OK;
}

/* Row `i` of the table; the error goes to the iterator. */
static co_code
put_row(const table *t, int64_t i, const coi_text *text)
{
    size_t num_columns = t->csv->base.num_leaves, c = 0;
    cursor row = { (char *)(uintptr_t)text->data,
                   NULL }; /* memory of a tensor that is ours alone */

    for (row.end = row.at + text->nbytes; row.at != NULL; ++c) {
        coi_text    field;
        const char *wrong = take_field(&row, t->csv->delimiter, &field);

        if (wrong != NULL)
            return coi_error(&t->self->failure, CO_INVALID_ARGUMENT, "column %zu: %s", c, wrong);
        if (c < num_columns && put_field(t, c, i, &field) != CO_OK)
            return t->self->failure.code;
    }
    if (c != num_columns)
        return coi_error(&t->self->failure, CO_INVALID_ARGUMENT, "it has %zu field%s, not %zu", c,
                         COI_S(c), num_columns);
    return CO_OK;
}

/* How many of n rows are good before one is not. */
static int64_t
put_rows(const table *t, int64_t n)
{
    const coi_text *texts = (const coi_text *)coi_data_on_host(t->self->rows) + t->self->at;

    for (int64_t i = 0; i < n; ++i)
        if (put_row(t, i, &texts[i]) != CO_OK)
            return i;
    return n;
}

/* Column c of `made` rows: its texts as a tensor, or the first of its `room` numbers. */
static bool
finish_column(co_context *ctx, const table *t, size_t c, int64_t made, int ndim, co_value **leaf)
{
    co_value  *numbers = *leaf;
    co_device *device = coi_data_device(ctx);

    if (t->csv->columns[c].dtype == CO_STRING)
        *leaf = coi_tensor_strings(&ctx->heap, device, &made, ndim, made, t->columns[c],
                                   coi_err(ctx));
    else if (numbers->u.tensor.num_elements != made)
        *leaf = coi_row_view(ctx, numbers, 0, made);
    else
        return true;
    coi_unref(&ctx->heap, numbers);
    if (*leaf == NULL)
        coi_failed(ctx);
    return *leaf != NULL;
}

/* Tensors for numbers, and room for texts. False with an error; all leaves are set or NULL. */
static bool
begin_columns(co_context *ctx, const table *t, int64_t n, int ndim, coi_text *texts,
              co_value **leaves)
{
    co_device *device = coi_data_device(ctx);
    size_t     num_columns = t->csv->base.num_leaves;

    memset(leaves, 0, num_columns * sizeof(*leaves));
    for (size_t c = 0; device != NULL && c < num_columns; ++c) {
        co_dtype dtype = t->csv->columns[c].dtype;

        if (dtype == CO_STRING) {
            t->columns[c] = texts;
            texts += n;
            continue;
        }
        leaves[c] = coi_tensor_new(&ctx->heap, device, dtype, &n, ndim, n, coi_err(ctx));
        if (leaves[c] == NULL) {
            coi_failed(ctx);
            return false;
        }
        t->columns[c] = coi_data_on_host(leaves[c]);
    }
    return device != NULL;
}

/* The next n rows of the stack, or those before a wrong one. */
static int64_t
convert(co_context *ctx, csv_iterator *self, int64_t n, int ndim, co_value **leaves)
{
    const csv_dataset *csv = (const csv_dataset *)self->base.dataset;
    size_t             num_columns = csv->base.num_leaves;
    size_t             nbytes = num_columns * (sizeof(void *) + (size_t)n * sizeof(coi_text));
    table              t = { csv, self, coi_small_alloc(&ctx->heap, nbytes) };
    int64_t            made = -1;

    if (t.columns == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %lld rows of CSV", (long long)n);
        return COI_ERROR;
    }
    if (begin_columns(ctx, &t, n, ndim, (coi_text *)(t.columns + num_columns), leaves)) {
        made = put_rows(&t, n);
        for (size_t c = 0; made > 0 && c < num_columns; ++c)
            if (!finish_column(ctx, &t, c, made, ndim, &leaves[c]))
                made = -1;
    }
    coi_small_free(&ctx->heap, t.columns, nbytes);
    if (made <= 0)
        coi_leaves_release(&ctx->heap, leaves, num_columns);
    self->at += made > 0 ? made : 0;
    return made;
}

static int
tell_failure(co_context *ctx, csv_iterator *self)
{
    int64_t     left = self->rows->u.tensor.num_elements - self->at, next;
    const char *path = coi_files_at(self->base.input, &next);

    ++self->at; /* iteration goes on behind it */
    coi_fail(ctx, self->failure.code, "%s: '%s', row %lld: %s", coi_stage_name(self->base.dataset),
             path, (long long)(next - left), self->failure.message);
    coi_error_reset(&self->failure);
    return COI_ERROR;
}

static int64_t
csv_pull(co_context *ctx, co_iterator *iterator, int64_t max, int ndim, co_value **leaves)
{
    csv_iterator *self = (csv_iterator *)iterator;
    int64_t       n, got;

    if (self->rows != NULL && self->at == self->rows->u.tensor.num_elements) {
        coi_unref(&ctx->heap, self->rows);
        self->rows = NULL;
    }
    if (self->rows == NULL) {
        self->at = 0;
        got = coi_iterator_rows(ctx, iterator->input, max, &self->rows);
        if (got <= 0)
            return got;
    }
    if (self->failure.code != CO_OK)
        return tell_failure(ctx, self);
    n = self->rows->u.tensor.num_elements - self->at;
    got = convert(ctx, self, n < max ? n : max, ndim, leaves);
    return got == 0 ? tell_failure(ctx, self) : got;
}

static int
csv_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    return (int)csv_pull(ctx, iterator, 1, 0, leaves);
}

static int64_t
csv_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    return csv_pull(ctx, iterator, max, 1, leaves);
}

static co_code
csv_open(co_context *ctx, co_iterator *iterator)
{
    csv_iterator *self = (csv_iterator *)iterator;

    self->plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (self->plain == (locale_t)0)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a locale");
    return CO_OK;
}

static void
csv_close(coi_heap *heap, co_iterator *iterator)
{
    csv_iterator *self = (csv_iterator *)iterator;

    coi_unref(heap, self->rows);
    if (self->plain != (locale_t)0)
        freelocale(self->plain);
}

static void
csv_destroy(coi_heap *heap, co_dataset *dataset)
{
    csv_dataset *self = (csv_dataset *)dataset;

    for (size_t c = 0; self->columns != NULL && c < dataset->num_leaves; ++c)
        coi_unref(heap, self->columns[c].missing);
    coi_small_free(heap, self->columns, dataset->num_leaves * sizeof(*self->columns));
    coi_small_free(heap, self->na_value, self->na_value != NULL ? strlen(self->na_value) + 1 : 0);
}

/* Rows that were read and not given yet are there only after one that was wrong. */
static bool
csv_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    csv_iterator *self = (csv_iterator *)iterator;
    bool          has_rows = self->rows != NULL, fails = self->failure.code != CO_OK;

    if (!coi_checkpoint_flag(ctx, p, &has_rows))
        return false;
    if (!has_rows)
        return true;
    if (!coi_checkpoint_value(ctx, p, &self->rows))
        return false;
    if (self->rows->kind != CO_KIND_TENSOR || self->rows->dtype != CO_STRING ||
        self->rows->ndim != 1) {
        coi_unref(&ctx->heap, self->rows);
        self->rows = NULL;
        return coi_checkpoint_wrong(ctx, p, "rows are not strings");
    }
    if (!coi_checkpoint_number(ctx, p, &self->at, 0, self->rows->u.tensor.num_elements) ||
        !coi_checkpoint_flag(ctx, p, &fails))
        return false;
    if (!fails)
        return true;
    if (!coi_checkpoint_bytes(ctx, p, self->failure.message, sizeof(self->failure.message)))
        return false;
    if (self->at == self->rows->u.tensor.num_elements)
        return coi_checkpoint_wrong(ctx, p, "the row that is wrong is not there");
    self->failure.code = CO_INVALID_ARGUMENT; /* as of all rows */
    self->failure.message[sizeof(self->failure.message) - 1] = '\0';
    return true;
}

static co_dataset *csv_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs);

static const coi_dataset_ops csv_ops = {
    .name = "csv",
    .costs = true,
    .dataset_size = sizeof(csv_dataset),
    .iterator_size = sizeof(csv_iterator),
    .next = csv_next,
    .open = csv_open,
    .close = csv_close,
    .destroy = csv_destroy,
    .rows = csv_rows,
    .checkpoint = csv_checkpoint,
    .with_inputs = csv_with_inputs,
};

/* --- making --- */

/* A dataset over `input` with columns that are not set yet. `spec` is taken over. */
static co_dataset *
csv_new(co_context *ctx, co_dataset *input, co_value *spec, char delimiter, const char *na_value)
{
    co_dataset  *dataset = coi_dataset_new(ctx, &csv_ops, &input, 1, spec, CO_UNKNOWN_CARDINALITY);
    csv_dataset *self = (csv_dataset *)dataset;
    size_t       n;

    if (dataset == NULL)
        return NULL;
    self->delimiter = delimiter;
    n = dataset->num_leaves * sizeof(*self->columns);
    self->columns = coi_small_alloc(&ctx->heap, n);
    if (self->columns != NULL)
        memset(self->columns, 0, n);
    if (na_value != NULL) {
        self->na_value = coi_small_alloc(&ctx->heap, strlen(na_value) + 1);
        if (self->na_value != NULL)
            memcpy(self->na_value, na_value, strlen(na_value) + 1);
    }
    if (self->columns != NULL && (na_value == NULL || self->na_value != NULL))
        return dataset;
    coi_unref(&ctx->heap, dataset);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (csv)");
    return NULL;
}

static co_dataset *
csv_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    const csv_dataset *self = (const csv_dataset *)dataset;
    co_dataset        *made;

    coi_ref(dataset->spec);
    made = csv_new(ctx, inputs[0], dataset->spec, self->delimiter, self->na_value);
    for (size_t c = 0; made != NULL && c < dataset->num_leaves; ++c) {
        ((csv_dataset *)made)->columns[c] = self->columns[c];
        if (self->columns[c].missing != NULL)
            coi_ref(self->columns[c].missing);
    }
    return made;
}

static co_value *
row_spec(co_context *ctx, const co_csv_column *columns, size_t n)
{
    co_value *spec = coi_structure_new(&ctx->heap, CO_KIND_TUPLE, n, NULL, NULL, NULL,
                                       coi_err(ctx));

    if (spec == NULL) {
        coi_failed(ctx);
        return NULL;
    }
    for (size_t c = 0; c < n; ++c) {
        spec->u.items.items[c] = coi_spec_new(ctx, columns[c].dtype, NULL, 0);
        if (spec->u.items.items[c] == NULL) {
            coi_unref(&ctx->heap, spec);
            return NULL;
        }
    }
    if (coi_structure_seal(spec, coi_err(ctx)) == CO_OK)
        return spec;
    coi_failed(ctx);
    coi_unref(&ctx->heap, spec);
    return NULL;
}

static bool
check_columns(co_context *ctx, const co_csv_column *columns, size_t n)
{
    if (columns == NULL || n == 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 4 (columns) is %s; a row has 1 column or more",
                 columns == NULL ? "NULL" : "empty");
        return false;
    }
    for (size_t c = 0; c < n; ++c)
        if (columns[c].dtype != CO_INT32 && columns[c].dtype != CO_INT64 &&
            columns[c].dtype != CO_FLOAT32 && columns[c].dtype != CO_FLOAT64 &&
            columns[c].dtype != CO_STRING) {
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "column %zu is to be %s; there are int32, int64, float32, float64 and string",
                     c, co_dtype_name(columns[c].dtype));
            return false;
        }
    return true;
}

/* What empty fields stand for, as scalars of their columns. */
static bool
take_missing(co_context *ctx, csv_dataset *self, const co_csv_column *columns)
{
    for (size_t c = 0; c < self->base.num_leaves; ++c) {
        co_value *value = columns[c].missing, *tensor;

        self->columns[c].dtype = columns[c].dtype;
        if (value == NULL)
            continue;
        if (!coi_check_value(ctx, value, 4, "missing"))
            return false;
        tensor = coi_as_tensor(ctx, value,
                               value->kind == CO_KIND_TENSOR ? CO_DTYPE_NONE : columns[c].dtype);
        if (tensor != NULL)
            tensor = coi_place_tensor(ctx, tensor, tensor->u.tensor.device->host);
        self->columns[c].missing = tensor;
        if (tensor == NULL) {
            co_error_info why = ctx->error;

            coi_text_line(ctx->error.message, sizeof(ctx->error.message),
                          "argument 4 (columns): what stands for an empty field of column %zu: %s",
                          c, why.message);
            return false;
        }
        if (tensor->dtype != columns[c].dtype || tensor->u.tensor.num_elements != 1) {
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "argument 4 (columns): what stands for an empty field of column %zu is %lld "
                     "element%s of %s; it must be one of %s",
                     c, (long long)tensor->u.tensor.num_elements,
                     COI_S(tensor->u.tensor.num_elements), co_dtype_name((co_dtype)tensor->dtype),
                     co_dtype_name(columns[c].dtype));
            return false;
        }
    }
    return true;
}

co_dataset *
co_dataset_csv(co_context *ctx, const char *const *files, size_t num_files,
               const co_csv_column *columns, size_t num_columns, const co_csv_options *options)
{
    co_csv_options  all = CO_CSV_OPTIONS_INIT;
    co_file_options file = CO_FILE_OPTIONS_INIT;
    co_dataset     *rows, *dataset;
    co_value       *spec;

    COI_ENTER(ctx, "dataset_csv", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6) ||
        !coi_take_file_options(ctx, &file, all.file, 6) ||
        !check_columns(ctx, columns, num_columns))
        return NULL;
    if (strchr("\"\r\n", all.delimiter) != NULL) { /* the zero byte too */
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 6 (options): the delimiter is byte %d, which has another meaning",
                 all.delimiter);
        return NULL;
    }
    rows = coi_files_new(ctx, &coi_csv_framing,
                         &(coi_frame_sizes){ .header = all.header, .delimiter = all.delimiter },
                         files, num_files, &file);
    spec = rows != NULL ? row_spec(ctx, columns, num_columns) : NULL;
    dataset = spec != NULL ? csv_new(ctx, rows, spec, all.delimiter, all.na_value) : NULL;
    coi_unref(&ctx->heap, rows);
    if (dataset != NULL && !take_missing(ctx, (csv_dataset *)dataset, columns)) {
        coi_unref(&ctx->heap, dataset);
        return NULL;
    }
    return coi_dataset_give(ctx, dataset);
}
