/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cohort ops`: the operator table. Without names one line for each operator, with names all that
 * the table knows of them. `cohort ops --markdown` writes docs/operators.md.
 */
#include "command.h"

#include "example.h"

#include <cohort/cohort.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* "x, y" or "xs..." */
static void
input_text(const co_op_info *info, char *out, size_t capacity)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < info->num_inputs && at < capacity; ++i)
        at += (size_t)snprintf(out + at, capacity - at, "%s%s%s", i > 0 ? ", " : "",
                               info->inputs[i], info->variadic ? "..." : "");
}

static void
print_line(const co_op_info *info, int width)
{
    char inputs[80];

    input_text(info, inputs, sizeof(inputs));
    printf("  %-*s%-17s%-3s%s\n", width, info->name, inputs, info->differentiable ? "d" : "",
           info->doc);
}

/* The width of the first column: two more than the longest name. */
static int
name_width(void)
{
    co_op_info info = CO_OP_INFO_INIT;
    size_t     longest = 0;

    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (!info.internal && strlen(info.name) > longest)
            longest = strlen(info.name);
    return (int)longest + 2;
}

#define BIT(dtype) (1u << (dtype))
#define FLOATS     (BIT(CO_FLOAT16) | BIT(CO_BFLOAT16) | BIT(CO_FLOAT32) | BIT(CO_FLOAT64))
#define SIGNED     (BIT(CO_INT8) | BIT(CO_INT16) | BIT(CO_INT32) | BIT(CO_INT64))
#define UNSIGNED   (BIT(CO_UINT8) | BIT(CO_UINT16) | BIT(CO_UINT32) | BIT(CO_UINT64))

/* "floats, integers, bool": sets by their names, and what is left of the dtypes one by one. */
static void
dtype_text(uint32_t dtypes, char *out, size_t capacity)
{
    static const struct {
        uint32_t    bits;
        const char *name;
    } sets[] = { { FLOATS, "floats" },
                 { SIGNED | UNSIGNED, "integers" },
                 { SIGNED, "signed integers" } };
    size_t at = (size_t)snprintf(out, capacity, "%s", dtypes == 0 ? "any" : "");

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]) && at < capacity; ++i)
        if ((dtypes & sets[i].bits) == sets[i].bits) {
            at += (size_t)snprintf(out + at, capacity - at, "%s%s", at > 0 ? ", " : "",
                                   sets[i].name);
            dtypes &= ~sets[i].bits;
        }
    for (int d = CO_BOOL; d < CO_NUM_DTYPES && at < capacity; ++d)
        if ((dtypes & BIT(d)) != 0)
            at += (size_t)snprintf(out + at, capacity - at, "%s%s", at > 0 ? ", " : "",
                                   co_dtype_name((co_dtype)d));
}

static bool
print_whole(const co_op_info *info)
{
    char inputs[80], dtypes[120], example[1000];

    input_text(info, inputs, sizeof(inputs));
    dtype_text(info->dtypes, dtypes, sizeof(dtypes));
    printf("%s: %s\n", info->name, info->doc);
    printf("  inputs      %s\n", info->num_inputs > 0 ? inputs : "none");
    for (size_t i = 0; i < info->num_attrs; ++i)
        printf("  %s%s\n", i == 0 ? "attributes  " : "            ", info->attrs[i]);
    if (info->num_inputs > 0)
        printf("  dtypes      %s\n", dtypes);
    printf("  gradient    %s\n", info->differentiable ? "yes" : "none");
    if (info->internal) {
        printf("  internal    made for gradients and training; not part of the stable set%s\n",
               info->by_name ? "" : ", not called by name");
        return true;
    }
    if (!example_text(info->name, example, sizeof(example)))
        return false;
    printf("  shapes      %s\n  example     %s\n", example_shapes(info->name), example);
    return true;
}

static void
print_all(void)
{
    co_op_info info = CO_OP_INFO_INIT;
    size_t     shown = 0;
    int        width = name_width();

    printf("  %-*s%-17s%-3s%s\n", width, "operator", "inputs", "", "d: has a gradient");
    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (!info.internal) {
            print_line(&info, width);
            ++shown;
        }
    printf("%zu operator%s, and %zu internal ones; cohort ops NAME tells more\n", shown,
           shown == 1 ? "" : "s", co_num_ops() - shown);
}

/* A cell; a bar would end it. */
static void
print_cell(const char *text)
{
    for (; *text != '\0'; ++text)
        printf("%s%c", *text == '|' ? "\\" : "", *text);
    printf(" |");
}

static bool
print_row(const co_op_info *info)
{
    char inputs[80], dtypes[120], example[1000];

    if (!example_text(info->name, example, sizeof(example)))
        return false;
    input_text(info, inputs, sizeof(inputs));
    dtype_text(info->dtypes, dtypes, sizeof(dtypes));
    printf("| `%s` | %s |", info->name, inputs);
    for (size_t i = 0; i < info->num_attrs; ++i)
        printf(" `%s`", info->attrs[i]);
    printf(" | %s | %s | ", info->num_inputs > 0 ? dtypes : "", info->differentiable ? "yes" : "");
    print_cell(info->doc);
    printf(" ");
    print_cell(example_shapes(info->name));
    printf(" `%s` |\n", example);
    return true;
}

static void
print_resources(unsigned bits)
{
    static const struct {
        unsigned    bit;
        const char *name;
    } names[] = { { CO_RESOURCE_VARIABLE, "variable" },
                  { CO_RESOURCE_RANDOM, "random counter" },
                  { CO_RESOURCE_ITERATOR, "iterator" },
                  { CO_RESOURCE_REPLICAS, "replicas" },
                  { CO_RESOURCE_WORKERS, "workers" } };
    bool any = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if ((bits & names[i].bit) != 0) {
            printf("%s%s", any ? ", " : " ", names[i].name);
            any = true;
        }
    printf(" |");
}

static void
print_stateful(const co_op_info *info)
{
    printf("| `%s` |", info->name);
    print_resources(info->reads);
    print_resources(info->writes);
    printf(" ");
    print_cell(info->doc);
    printf("\n");
}

/* An operator that only the library needs. Other internal entries have an effect, and name
 * neither inputs nor attributes. */
static bool
is_internal_operator(const co_op_info *info)
{
    return info->internal && info->num_inputs + info->num_attrs > 0 &&
           (info->reads | info->writes) == 0;
}

static void
print_internal(const co_op_info *info)
{
    char inputs[80];

    input_text(info, inputs, sizeof(inputs));
    printf("| `%s` | %s |", info->name, inputs);
    for (size_t i = 0; i < info->num_attrs; ++i)
        printf(" `%s`", info->attrs[i]);
    printf(" | %s | ", info->by_name ? "yes" : "");
    print_cell(info->doc);
    printf("\n");
}

/* The document: what is in the table and nothing else, so that it can be compared. */
static bool
print_markdown(void)
{
    co_op_info info = CO_OP_INFO_INIT;
    bool       whole = true;

    printf(
        "# Operators\n\n"
        "Generated by `cohort ops --markdown` from the table of operators. In C each operator is a function of `ops.h`, which\n"
        "documents it. By name, an operator is called with the inputs and attributes listed here:\n"
        "`co_op_call(ctx, \"reduce_sum\", co_args(ctx, x), attrs)`, where `attrs` is a dict, or NULL for the defaults. An attribute is\n"
        "written `name:type=default`; an attribute without a default is required. The column dtypes lists the dtypes of the first\n"
        "input; other numeric inputs have the same dtype. Gradients of any order exist. The examples were computed when this page was\n"
        "generated, and are shown with four digits; several results are separated by semicolons.\n\n"
        "| operator | inputs | attributes | dtypes | gradient | | shapes | example |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (!info.internal && !print_row(&info))
            whole = false;
    printf(
        "\n## Entries that act on state\n\n"
        "Reads and writes of variables, collectives, iterators and copies between devices are entries of the same table, so\n"
        "that observers (`observe.h`) see them start. They are not called by name. Operators that draw random numbers move a\n"
        "counter, and are called like other operators.\n\n"
        "| entry | reads | writes | |\n|---|---|---|---|\n");
    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if ((!info.by_name || (info.reads | info.writes) != 0) && !is_internal_operator(&info))
            print_stateful(&info);
    printf(
        "\n## Internal operators\n\n"
        "Gradients, variants that run while a tape is open, and parts of other operators. Observers see them under these\n"
        "names, and backends may have kernels for them. They may change in any version. Those that only the library\n"
        "starts are not called by name.\n\n"
        "| operator | inputs | attributes | by name | |\n|---|---|---|---|---|\n");
    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (is_internal_operator(&info))
            print_internal(&info);
    return whole;
}

static bool
print_named(const char *name)
{
    co_op_info info = CO_OP_INFO_INIT;

    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (strcmp(info.name, name) == 0)
            return print_whole(&info);
    fprintf(stderr, "cohort ops: there is no operator '%s'; cohort ops lists them\n", name);
    return false;
}

int
ops_command(int argc, char **argv)
{
    int status = 0;

    if (argc == 0)
        print_all();
    if (argc == 1 && strcmp(argv[0], "--markdown") == 0)
        return print_markdown() ? 0 : 1;
    for (int i = 0; i < argc; ++i) {
        if (argv[i][0] == '-')
            return refuse_argument("ops", argv[i]);
        if (!print_named(argv[i]))
            status = 1;
    }
    return status;
}
