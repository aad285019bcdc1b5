/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cohort ops`: the operator table. Without names one line for each operator, with names all that
 * the table knows of them.
 */
#include "command.h"

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

static void
print_whole(const co_op_info *info)
{
    char inputs[80];

    input_text(info, inputs, sizeof(inputs));
    printf("%s: %s\n", info->name, info->doc);
    printf("  inputs      %s\n", info->num_inputs > 0 ? inputs : "none");
    for (size_t i = 0; i < info->num_attrs; ++i)
        printf("  %s%s\n", i == 0 ? "attributes  " : "            ", info->attrs[i]);
    printf("  gradient    %s\n", info->differentiable ? "yes" : "none");
    if (info->internal)
        printf("  internal    made for gradients; not part of the stable set\n");
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
    printf("%zu operators, and %zu internal ones; cohort ops NAME tells more\n", shown,
           co_num_ops() - shown);
}

static bool
print_named(const char *name)
{
    co_op_info info = CO_OP_INFO_INIT;

    for (size_t i = 0; co_op_describe(i, &info); ++i)
        if (strcmp(info.name, name) == 0) {
            print_whole(&info);
            return true;
        }
    fprintf(stderr, "cohort ops: there is no operator '%s'; cohort ops lists them\n", name);
    return false;
}

int
ops_command(int argc, char **argv)
{
    int status = 0;

    if (argc == 0)
        print_all();
    for (int i = 0; i < argc; ++i) {
        if (argv[i][0] == '-')
            return refuse_argument("ops", argv[i]);
        if (!print_named(argv[i]))
            status = 1;
    }
    return status;
}
