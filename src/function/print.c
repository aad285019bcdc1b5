/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program for people: one call a line, with the type of its result and the line of the function
 * that made it.
 *
 *     args (%0, %1)
 *     %2 = matmul(%0, 'w' [4,2])  float32 [?,2]  train.c:12
 *     return %2
 */
#include "function/program.h"
#include "function/value_tree.h"

#include "base/text.h"

#include <stdio.h>

typedef struct printing {
    coi_printer        to;
    const coi_program *program;
} printing;

static void
print_leaf(printing *p, const co_value *leaf)
{
    char shape[COI_SHAPE_TEXT];

    if (leaf->kind == CO_KIND_SYMBOLIC)
        coi_print(&p->to, "%%%llu", (unsigned long long)leaf->u.symbol.slot);
    else if (coi_is_variable(leaf))
        coi_print(&p->to, "'%.60s'", leaf->u.variable->name);
    else if (leaf->kind == CO_KIND_TENSOR)
        coi_print(&p->to, "%s %s", co_dtype_name((co_dtype)leaf->dtype),
                  coi_shape_text(leaf->u.tensor.dims, leaf->ndim, shape));
    else
        coi_print_value(&p->to, leaf);
}

static void
print_tree(printing *p, const co_value *value)
{
    coi_values items = coi_tree_items(value);

    if (!coi_is_tree(value)) {
        print_leaf(p, value);
        return;
    }
    coi_print(&p->to, "(");
    for (size_t i = 0; i < items.n; ++i) {
        coi_print(&p->to, "%s", i > 0 ? ", " : "");
        if (items.items[i] != NULL)
            print_tree(p, items.items[i]);
        else
            coi_print(&p->to, "none");
    }
    coi_print(&p->to, ")");
}

/* The types of a result: "float32 [?,2], float32 []". */
static bool
print_type(const co_value *leaf, void *arg)
{
    printing *p = arg;
    char      shape[COI_SHAPE_TEXT];

    if (leaf->kind == CO_KIND_SYMBOLIC && leaf->dtype != CO_DTYPE_NONE)
        coi_print(&p->to, "  %s %s", co_dtype_name((co_dtype)leaf->dtype),
                  coi_shape_text(leaf->u.symbol.dims, leaf->ndim, shape));
    return true;
}

static void
print_step(printing *p, const coi_program_step *step)
{
    if (step->result->kind != CO_KIND_NONE) {
        print_tree(p, step->result);
        coi_print(&p->to, " = ");
    }
    coi_print(&p->to, "%s(", coi_entry_name(step->op));
    for (int i = 0; i < step->num_in; ++i) {
        coi_print(&p->to, "%s", i > 0 ? ", " : "");
        print_tree(p, step->in[i]);
    }
    coi_print(&p->to, ")");
    coi_tree_all(step->result, print_type, p);
    if (step->site.file != NULL)
        coi_print(&p->to, "  %s:%d", coi_path_end(step->site.file, 60), step->site.line);
    coi_print(&p->to, "\n");
}

size_t
coi_program_print(co_context *ctx, const coi_program *program, char *out, size_t capacity)
{
    printing p = { { &ctx->heap, out, capacity, 0 }, program };

    if (program->args != NULL) { /* a graph has none */
        coi_print(&p.to, "args ");
        print_tree(&p, program->args);
        coi_print(&p.to, "\n");
    }
    for (size_t i = 0; i < program->num_steps; ++i)
        print_step(&p, &program->steps[i]);
    if (program->result != NULL) {
        coi_print(&p.to, "return ");
        print_tree(&p, program->result);
        coi_print(&p.to, "\n");
    }
    return p.to.length;
}
