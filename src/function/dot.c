/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program as a picture: the text of a directed graph for Graphviz. Calls are boxes, arguments and
 * the result are ellipses, variables are cylinders, and tensors that the function had when it was
 * captured are plain text.
 */
#include "function/program.h"
#include "function/value_tree.h"

#include "base/text.h"

#define NOBODY UINT32_MAX

typedef struct drawing {
    coi_printer          to;
    coi_memory          *memory;
    const coi_program   *program;
    uint32_t            *makers;    /* by slot: the call that makes it; NOBODY: an argument */
    const coi_variable **variables; /* that have a node */
    size_t               num_variables, cap_variables;
    size_t               num_constants;
    uint32_t             step;     /* whose results are noted */
    char                 user[32]; /* the node whose operands are drawn */
    bool                 ok;
} drawing;

/* Inside a label: quotes and backslashes are escaped. */
static void
draw_text(drawing *d, const char *text, size_t most)
{
    for (size_t i = 0; i < most && text[i] != '\0'; ++i) {
        unsigned char c = (unsigned char)text[i];

        coi_print(&d->to, c == '"' || c == '\\' ? "\\%c" : "%c", c < ' ' ? ' ' : c);
    }
}

static void
draw_type(drawing *d, const co_value *leaf)
{
    const int64_t *dims = leaf->kind == CO_KIND_SYMBOLIC ? leaf->u.symbol.dims
                                                         : leaf->u.tensor.dims;
    char           shape[COI_SHAPE_TEXT];

    if (leaf->dtype != CO_DTYPE_NONE)
        coi_print(&d->to, "%s %s", co_dtype_name((co_dtype)leaf->dtype),
                  coi_shape_text(dims, leaf->ndim, shape));
}

static bool
note_maker(const co_value *leaf, void *arg)
{
    drawing *d = arg;

    if (leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == d->program->serial)
        d->makers[leaf->u.symbol.slot] = d->step;
    return true;
}

static bool
draw_argument(const co_value *leaf, void *arg)
{
    drawing *d = arg;

    if (leaf->kind != CO_KIND_SYMBOLIC)
        return true;
    coi_print(&d->to, "  a%llu [shape=ellipse, label=\"argument %llu\\n",
              (unsigned long long)leaf->u.symbol.slot, (unsigned long long)leaf->u.symbol.slot);
    draw_type(d, leaf);
    coi_print(&d->to, "\"];\n");
    return true;
}

/* The number of the node of a variable, drawn where it is used first. */
static size_t
draw_variable(drawing *d, const co_value *leaf)
{
    const coi_variable *variable = leaf->u.variable;
    size_t              i = 0;

    while (i < d->num_variables && d->variables[i] != variable)
        ++i;
    if (i < d->num_variables)
        return i;
    if (!coi_grow(d->memory, (void **)&d->variables, &d->cap_variables, i + 1,
                  sizeof(*d->variables))) {
        d->ok = false;
        return i;
    }
    d->variables[d->num_variables++] = variable;
    coi_print(&d->to, "  v%zu [shape=cylinder, label=\"", i);
    draw_text(d, variable->name, 60);
    coi_print(&d->to, "\"];\n");
    return i;
}

static bool
draw_operand(const co_value *leaf, void *arg)
{
    drawing *d = arg;
    uint32_t maker;
    size_t   node;

    if (leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == d->program->serial) {
        maker = d->makers[leaf->u.symbol.slot];
        if (maker == NOBODY)
            coi_print(&d->to, "  a%llu -> %s;\n", (unsigned long long)leaf->u.symbol.slot, d->user);
        else
            coi_print(&d->to, "  c%u -> %s;\n", maker, d->user);
    } else if (coi_is_variable(leaf)) {
        node = draw_variable(d, leaf);
        coi_print(&d->to, "  v%zu -> %s;\n", node, d->user);
    } else if (leaf->kind == CO_KIND_TENSOR) {
        coi_print(&d->to, "  k%zu [shape=plaintext, label=\"", d->num_constants);
        draw_type(d, leaf);
        coi_print(&d->to, "\"];\n  k%zu -> %s;\n", d->num_constants++, d->user);
    }
    return d->ok;
}

static bool
draw_result_type(const co_value *leaf, void *arg)
{
    drawing *d = arg;

    if (leaf->kind == CO_KIND_SYMBOLIC && leaf->dtype != CO_DTYPE_NONE) {
        coi_print(&d->to, "\\n");
        draw_type(d, leaf);
    }
    return true;
}

static void
draw_step(drawing *d, size_t i)
{
    const coi_program_step *step = &d->program->steps[i];

    coi_print(&d->to, "  c%zu [label=\"", i);
    draw_text(d, coi_entry_name(step->op), 60);
    coi_tree_all(step->result, draw_result_type, d);
    if (step->site.file != NULL) {
        coi_print(&d->to, "\\n");
        draw_text(d, coi_path_end(step->site.file, 60), 60);
        coi_print(&d->to, ":%d", step->site.line);
    }
    coi_print(&d->to, "\"];\n");
    coi_text_line(d->user, sizeof(d->user), "c%zu", i);
    for (int k = 0; d->ok && k < step->num_in; ++k)
        coi_tree_all(step->in[k], draw_operand, d);
}

static void
draw(drawing *d)
{
    const coi_program *program = d->program;

    for (uint32_t i = 0; i < program->num_slots; ++i)
        d->makers[i] = NOBODY;
    for (d->step = 0; d->step < program->num_steps; ++d->step)
        coi_tree_all(program->steps[d->step].result, note_maker, d);
    coi_print(&d->to, "digraph function {\n"
                      "  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n");
    coi_tree_all(program->args, draw_argument, d);
    for (size_t i = 0; d->ok && i < program->num_steps; ++i)
        draw_step(d, i);
    coi_print(&d->to, "  result [shape=ellipse];\n");
    coi_text_line(d->user, sizeof(d->user), "result");
    coi_tree_all(program->result, draw_operand, d);
    coi_print(&d->to, "}\n");
}

size_t
coi_program_dot(co_context *ctx, const coi_program *program, char *out, size_t capacity)
{
    drawing d = { .to = { &ctx->heap, out, capacity, 0 },
                  .memory = &ctx->runtime->memory,
                  .program = program,
                  .ok = true };
    size_t  nbytes = ((size_t)program->num_slots + 1) * sizeof(*d.makers);

    d.makers = coi_alloc(d.memory, nbytes);
    if (d.makers != NULL)
        draw(&d);
    coi_free(d.memory, d.makers, nbytes);
    coi_free(d.memory, d.variables, d.cap_variables * sizeof(*d.variables));
    if (d.makers != NULL && d.ok)
        return d.to.length;
    if (capacity > 0)
        out[0] = '\0';
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the picture of %zu calls",
             program->num_steps);
    return 0;
}
