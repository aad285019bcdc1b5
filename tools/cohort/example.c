/* SPDX-License-Identifier: Apache-2.0 */
/* Examples of operators for `cohort ops`: calls of op_rows.h, done, and written with their
 * results. */
#include "example.h"

#include "literal.h"
#include "op_rows.h"

#include <stdio.h>

enum { MOST_ELEMENTS = 64 };

typedef struct writer {
    char  *out;
    size_t at, capacity;
} writer;

static void
put(writer *w, const char *text)
{
    int n = snprintf(w->out + w->at, w->capacity - w->at, "%s", text);

    if (n > 0)
        w->at += (size_t)n < w->capacity - w->at ? (size_t)n : w->capacity - w->at - 1;
}

/* Four digits: more would depend on the instruction set. */
static void
put_element(writer *w, co_dtype dtype, double value)
{
    char text[40];

    if (dtype == CO_BOOL)
        snprintf(text, sizeof(text), "%s", value != 0 ? "true" : "false");
    else
        snprintf(text, sizeof(text), "%.4g", value);
    if (co_dtype_is_floating(dtype) && strpbrk(text, ".en") == NULL)
        strncat(text, ".0", sizeof(text) - strlen(text) - 1);
    put(w, text);
}

/* A tensor as nested lists; data moves on behind what was written. */
static void
put_nested(co_context *ctx, writer *w, co_value *x, int depth, const double **data)
{
    if (depth == co_value_ndim(ctx, x)) {
        put_element(w, co_value_dtype(ctx, x), *(*data)++);
        return;
    }
    put(w, "[");
    for (int64_t i = 0; i < co_value_dim(ctx, x, depth); ++i) {
        put(w, i > 0 ? ", " : "");
        put_nested(ctx, w, x, depth + 1, data);
    }
    put(w, "]");
}

static void
put_tensor(co_context *ctx, writer *w, co_value *x)
{
    double        data[MOST_ELEMENTS];
    const double *at = data;

    if (co_value_copy_data(ctx, x, CO_FLOAT64, data, MOST_ELEMENTS) == CO_OK)
        put_nested(ctx, w, x, 0, &at);
}

/* "(x, y, axis=1) = [1, 2]"; results of several outputs are separated by semicolons. */
static void
put_call(co_context *ctx, writer *w, const op_row *row)
{
    const op_call *example = &row->example;
    const char    *text = example->inputs;
    co_value      *in[LITERAL_MOST], *result;
    size_t         n = 0;

    put(w, "(");
    while (*text != '\0' && n < LITERAL_MOST) {
        in[n] = co_to_tensor(ctx, literal_value(ctx, &text, " "), CO_DTYPE_NONE);
        put(w, n > 0 ? ", " : "");
        put_tensor(ctx, w, in[n++]);
        text = literal_skip(text);
    }
    for (const char *at = example->attrs; *at != '\0'; at += strspn(at, " ")) {
        char   attr[80];
        size_t length = strcspn(at, " ");

        snprintf(attr, sizeof(attr), "%s%.*s", n > 0 || at > example->attrs ? ", " : "",
                 (int)length, at);
        put(w, attr);
        at += length;
    }
    put(w, ") = ");
    result = co_op_call(ctx, row->name, co_tuple(ctx, in, n), literal_attrs(ctx, example->attrs));
    if (co_value_kind(result) != CO_KIND_TUPLE)
        result = co_args(ctx, result);
    for (size_t i = 0; i < co_num_items(ctx, result); ++i) {
        put(w, i > 0 ? "; " : "");
        put_tensor(ctx, w, co_at(ctx, result, i));
    }
}

static const op_row *
find_row(const char *name)
{
    for (size_t i = 0; i < NUM_OP_ROWS; ++i)
        if (strcmp(op_rows[i].name, name) == 0 && op_rows[i].shapes != NULL)
            return &op_rows[i];
    return NULL;
}

const char *
example_shapes(const char *name)
{
    const op_row *row = find_row(name);

    return row != NULL ? row->shapes : NULL;
}

bool
example_text(const char *name, char *out, size_t capacity)
{
    writer        w = { out, 0, capacity };
    const op_row *row = find_row(name);
    co_context   *ctx;
    bool          done;

    if (row == NULL) {
        fprintf(stderr,
                "cohort ops: operator '%s' has no example; tools/cohort/op_rows.h lists "
                "them\n",
                name);
        return false;
    }
    ctx = co_open("log=off, cpus=1, threads=1");
    co_set_seed(ctx, 7);
    put(&w, name);
    put_call(ctx, &w, row);
    done = co_ok(ctx);
    if (!done)
        fprintf(stderr, "cohort ops: the example of '%s' fails: %s\n", name,
                co_error(ctx)->message);
    co_close(ctx);
    return done;
}
