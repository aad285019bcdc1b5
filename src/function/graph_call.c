/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A captured function that is called while a graph is built: one operation, whose effects happen
 * whenever it runs, in the order of the function.
 */
#include "function/control_flow.h"
#include "function/graph.h"

static co_value *
replay_call(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return coi_program_replay(ctx, ((const coi_bodies_attrs *)attrs)->bodies->programs[0], in[0]);
}

const coi_op coi_op_call_in_graph = {
    COI_WITH_BODIES("call_in_graph", "Calls a captured function; co_call.", replay_call)
};

co_value *
coi_graph_call(co_context *ctx, coi_program *program, co_value *args)
{
    coi_bodies *bodies = coi_bodies_new(ctx, 1);
    co_value   *in[2] = { args, co_tuple(ctx, NULL, 0) }, *type;

    if (bodies == NULL || in[1] == NULL)
        return NULL;
    coi_ref(program);
    bodies->programs[0] = program;
    type = coi_program_result_type(ctx, program, args);
    return type != NULL ? coi_bodies_record(ctx, &coi_op_call_in_graph, bodies, in, 2,
                                            coi_types_of_args(ctx, type))
                        : NULL;
}
