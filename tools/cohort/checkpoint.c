/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cohort checkpoint`: files of tensors shown, compared and converted. What a file is, its content
 * says; what is written, its name.
 */
#include "command.h"

#include <cohort/cohort.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_TEXT 200

static bool
tell_error(co_context *ctx)
{
    fflush(stdout);
    fprintf(stderr, "cohort checkpoint: %s\n", co_error(ctx)->message);
    co_clear(ctx);
    return false;
}

static const char *
shape_text(const co_tensor_entry *e, char out[SHAPE_TEXT])
{
    size_t n = (size_t)snprintf(out, SHAPE_TEXT, "[");

    for (int d = 0; d < e->ndim && n < SHAPE_TEXT - 24; ++d)
        n += (size_t)snprintf(out + n, SHAPE_TEXT - n, "%s%lld", d > 0 ? "," : "",
                              (long long)e->dims[d]);
    snprintf(out + n, SHAPE_TEXT - n, "]");
    return out;
}

/* A name may hold anything: what a terminal would take for more than text is shown as hex. */
static void
print_name(const char *name, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        unsigned char c = (unsigned char)name[i];

        if (c < 0x20 || c == 0x7f || c == '\\')
            printf(c == '\\' ? "\\\\" : "\\x%02x", c);
        else
            putchar(c);
    }
}

/* --- show --- */

static void
show_entry(const co_tensor_entry *e)
{
    char shape[SHAPE_TEXT];

    printf("%-14s %-18s %14llu  ", e->dtype_name, shape_text(e, shape),
           (unsigned long long)e->nbytes);
    print_name(e->name, e->name_nbytes);
    if (e->num_slices > 0)
        printf("  (saved in %zu slices)", e->num_slices);
    if (e->dtype == CO_DTYPE_NONE)
        printf("  (%s cannot be read)", e->stored_name);
    putchar('\n');
}

static bool
show_file(co_context *ctx, int argc, char **argv)
{
    co_tensor_file    *file = co_tensor_file_open(ctx, argv[0], NULL);
    co_value          *metadata;
    unsigned long long nbytes = 0;
    size_t             n;

    (void)argc;
    if (file == NULL)
        return tell_error(ctx);
    n = co_tensor_file_about(ctx, file)->num_entries;
    for (size_t i = 0; i < n; ++i) {
        const co_tensor_entry *e = co_tensor_file_entry(ctx, file, i);

        show_entry(e);
        nbytes += e->nbytes;
    }
    metadata = co_tensor_file_metadata(ctx, file);
    for (size_t i = 0; co_value_kind(metadata) == CO_KIND_DICT && i < co_num_items(ctx, metadata);
         ++i) {
        const char *key = co_key(ctx, metadata, i), *text;
        size_t      length;

        text = co_string_at(ctx, co_at(ctx, metadata, i), 0, &length);
        printf("metadata  ");
        print_name(key, strlen(key));
        printf(": ");
        print_name(text, length);
        putchar('\n');
    }
    if (!co_ok(ctx))
        return tell_error(ctx);
    printf("%s: %zu tensor%s, %llu bytes\n", co_tensor_file_about(ctx, file)->format, n,
           n == 1 ? "" : "s", nbytes);
    return true;
}

/* --- diff --- */

typedef struct difference {
    size_t num_elements; /* that differ in some bit */
    double most;         /* between two numbers */
} difference;

static void
compare_strings(co_context *ctx, co_value *a, co_value *b, difference *d)
{
    for (int64_t i = 0; i < co_value_num_elements(ctx, a); ++i) {
        size_t      x_nbytes = 0, y_nbytes = 0;
        const char *x = co_string_at(ctx, a, i, &x_nbytes);
        const char *y = co_string_at(ctx, b, i, &y_nbytes);

        if (x == NULL || y == NULL)
            return;
        if (x_nbytes != y_nbytes || memcmp(x, y, x_nbytes) != 0)
            ++d->num_elements;
    }
}

static void
compare_numbers(co_context *ctx, co_value *a, co_value *b, difference *d)
{
    size_t      n = (size_t)co_value_num_elements(ctx, a);
    size_t      each = co_dtype_size(co_value_dtype(ctx, a));
    const char *x = co_value_data(ctx, a), *y = co_value_data(ctx, b);
    double     *numbers;

    for (size_t i = 0; x != NULL && y != NULL && i < n; ++i)
        if (memcmp(x + i * each, y + i * each, each) != 0)
            ++d->num_elements;
    if (d->num_elements == 0)
        return;
    numbers = malloc(2 * n * sizeof(*numbers));
    if (numbers != NULL && co_value_copy_data(ctx, a, CO_FLOAT64, numbers, (int64_t)n) == CO_OK &&
        co_value_copy_data(ctx, b, CO_FLOAT64, numbers + n, (int64_t)n) == CO_OK)
        for (size_t i = 0; i < n; ++i)
            if (fabs(numbers[i] - numbers[n + i]) > d->most)
                d->most = fabs(numbers[i] - numbers[n + i]);
    free(numbers);
}

static void print_difference(const co_tensor_entry *e, const char *format, ...) CO_PRINTF(2, 3);
static void
print_difference(const co_tensor_entry *e, const char *format, ...)
{
    va_list args;

    print_name(e->name, e->name_nbytes);
    printf(": ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* The same tensor of two files. */
static bool
same_tensor(co_context *ctx, co_tensor_file *a, const co_tensor_entry *x, co_tensor_file *b,
            const co_tensor_entry *y)
{
    char       x_shape[SHAPE_TEXT], y_shape[SHAPE_TEXT];
    difference d = { 0, 0 };

    if (strcmp(x->dtype_name, y->dtype_name) != 0 || x->ndim != y->ndim ||
        memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof(int64_t)) != 0) {
        print_difference(x, "%s %s and %s %s", x->dtype_name, shape_text(x, x_shape), y->dtype_name,
                         shape_text(y, y_shape));
        return false;
    }
    CO_BLOCK(ctx) {
        co_value *one = co_tensor_file_read(ctx, a, x->name);
        co_value *other = co_tensor_file_read(ctx, b, y->name);

        if (one != NULL && other != NULL)
            (x->dtype == CO_STRING ? compare_strings : compare_numbers)(ctx, one, other, &d);
        if (!co_ok(ctx)) {
            tell_error(ctx);
            d.num_elements = SIZE_MAX;
        }
    }
    if (d.num_elements != 0 && d.num_elements != SIZE_MAX)
        print_difference(x, "%zu element%s, by %g at most", d.num_elements,
                         d.num_elements == 1 ? " differs" : "s differ", d.most);
    return d.num_elements == 0;
}

/* Tensors of the first file that the second does not have; with `compare`, those of both. */
static size_t
compare_files(co_context *ctx, co_tensor_file *a, co_tensor_file *b, const char *only, bool compare)
{
    size_t num_differences = 0;

    for (size_t i = 0; i < co_tensor_file_about(ctx, a)->num_entries; ++i) {
        const co_tensor_entry *x = co_tensor_file_entry(ctx, a, i);
        const co_tensor_entry *y = co_tensor_file_find(ctx, b, x->name);

        if (y == NULL) {
            print_difference(x, "only in %s", only);
            ++num_differences;
        } else if (compare && !same_tensor(ctx, a, x, b, y)) {
            ++num_differences;
        }
    }
    return num_differences;
}

static bool
diff_files(co_context *ctx, int argc, char **argv)
{
    co_tensor_file *a = co_tensor_file_open(ctx, argv[0], NULL);
    co_tensor_file *b = co_tensor_file_open(ctx, argv[1], NULL);
    size_t          n;

    (void)argc;
    if (a == NULL || b == NULL)
        return tell_error(ctx);
    n = compare_files(ctx, a, b, argv[0], true) + compare_files(ctx, b, a, argv[1], false);
    if (n == 0)
        printf("the same %zu tensors\n", co_tensor_file_about(ctx, a)->num_entries);
    else
        printf("%zu difference%s\n", n, n == 1 ? "" : "s");
    return n == 0 && co_ok(ctx);
}

/* --- convert --- */

static bool
ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && strcmp(path + n - m, end) == 0;
}

/* The tensors that the other format can hold, as a dict; what is left out is told. */
static co_value *
convertible(co_context *ctx, co_tensor_file *file)
{
    size_t       n = co_tensor_file_about(ctx, file)->num_entries, kept = 0;
    const char **names = malloc((n + 1) * sizeof(*names));
    co_value   **tensors = malloc((n + 1) * sizeof(*tensors)), *dict = NULL;

    for (size_t i = 0; names != NULL && tensors != NULL && i < n && co_ok(ctx); ++i) {
        const co_tensor_entry *e = co_tensor_file_entry(ctx, file, i);

        if (e->dtype == CO_STRING || e->dtype == CO_DTYPE_NONE) {
            fprintf(stderr, "cohort checkpoint: left out: '%s', of %s\n", e->name, e->dtype_name);
            continue;
        }
        if (strncmp(e->dtype_name, "float8", 6) == 0)
            fprintf(stderr, "cohort checkpoint: '%s' of %s becomes float16\n", e->name,
                    e->dtype_name);
        names[kept] = e->name;
        tensors[kept++] = co_tensor_file_read_entry(ctx, file, i);
    }
    if (names != NULL && tensors != NULL)
        dict = co_dict(ctx, names, tensors, kept);
    free(names);
    free(tensors);
    return dict;
}

static bool
convert_file(co_context *ctx, int argc, char **argv)
{
    bool            is_npz = ends_with(argv[1], ".npz");
    co_tensor_file *file;
    co_value       *dict, *metadata;

    (void)argc;
    if (!is_npz && !ends_with(argv[1], ".safetensors")) {
        fprintf(stderr,
                "cohort checkpoint convert: '%s' must end with .safetensors or .npz, which says "
                "what to write\n",
                argv[1]);
        return false;
    }
    file = co_tensor_file_open(ctx, argv[0], NULL);
    if (file == NULL)
        return tell_error(ctx);
    dict = convertible(ctx, file);
    metadata = co_tensor_file_metadata(ctx, file);
    if (co_value_kind(metadata) != CO_KIND_DICT)
        metadata = NULL;
    if (is_npz && metadata != NULL)
        fprintf(stderr, "cohort checkpoint: left out: the metadata, which .npz does not have\n");
    if (is_npz)
        co_save_npz(ctx, argv[1], dict, NULL);
    else
        co_save_safetensors(ctx, argv[1], dict, metadata, NULL);
    return co_ok(ctx) || tell_error(ctx);
}

/* --- the command --- */

static const struct action {
    const char *name;
    int         num_files;
    bool (*run)(co_context *ctx, int argc, char **argv);
} actions[] = {
    { "show", 1, show_file },
    { "diff", 2, diff_files },
    { "convert", 2, convert_file },
};

static int
usage(FILE *out)
{
    fprintf(
        out,
        "usage: cohort checkpoint show FILE\n"
        "       cohort checkpoint diff A B\n"
        "       cohort checkpoint convert IN OUT\n\n"
        "  show      the tensors of a file: dtype, shape, bytes and name\n"
        "  diff      tensors that are in one file alone, or differ, and by how much\n"
        "  convert   write the tensors to OUT, which ends with .safetensors or .npz\n\n"
        "A file is a safetensors file, an .npz archive, the prefix of a TensorFlow checkpoint,\n"
        "or a folder with TensorFlow's file `checkpoint`, which names the latest one.\n\n"
        "  --help    this text\n"
        "  --        the rest are files, even if a name begins with -\n\n"
        "Exit status: 0 on success, 1 if files differ, or cannot be read or written, 2 for\n"
        "wrong arguments.\n");
    return out == stdout ? 0 : 2;
}

static bool
asks_for_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static int
run_action(const struct action *action, int argc, char **argv)
{
    co_context *ctx;
    int         num_files = 0;
    bool        only_files = false, good;

    for (int i = 0; i < argc; ++i) { /* files are moved to the front */
        if (only_files || argv[i][0] != '-') {
            argv[num_files++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            only_files = true;
        } else if (asks_for_help(argv[i])) {
            return usage(stdout);
        } else {
            fprintf(stderr,
                    "cohort checkpoint %s: argument '%s' is unknown; see cohort checkpoint "
                    "--help\n",
                    action->name, argv[i]);
            return 2;
        }
    }
    if (num_files != action->num_files) {
        fprintf(stderr, "cohort checkpoint %s: %d file%s named; it takes %d\n\n", action->name,
                num_files, num_files == 1 ? " is" : "s are", action->num_files);
        return usage(stderr);
    }
    ctx = co_open("log=off");
    good = co_ok(ctx) ? action->run(ctx, num_files, argv) : tell_error(ctx);
    return co_close(ctx) == CO_OK && good ? 0 : 1;
}

int
checkpoint_command(int argc, char **argv)
{
    for (size_t i = 0; argc > 0 && i < sizeof(actions) / sizeof(actions[0]); ++i)
        if (strcmp(actions[i].name, argv[0]) == 0)
            return run_action(&actions[i], argc - 1, argv + 1);
    if (argc > 0 && asks_for_help(argv[0]))
        return usage(stdout);
    if (argc > 0)
        fprintf(stderr, "cohort checkpoint: there is no action '%s'\n\n", argv[0]);
    return usage(stderr);
}
