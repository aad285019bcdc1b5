/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of deferred-graph mode: a graph that is current for the case, and a session that runs it.
 */
#include "families.h"

#include <string.h>

bool
golden_is_graph(golden_case *c)
{
    const char *mode = json_string_value(json_object_get(c->attrs, "mode"));

    return mode != NULL && strcmp(mode, "graph") == 0;
}

co_session *
golden_begin_graph(golden_case *c)
{
    co_graph   *graph = co_graph_new(c->ctx);
    co_session *session = co_session_open(c->ctx, graph, NULL);

    co_graph_begin(c->ctx, graph);
    return session;
}

json_t *
golden_session_elements(co_context *ctx, co_session *session, co_dataset *dataset)
{
    json_t      *list = json_array();
    co_iterator *iterator;
    co_value    *next, *element;

    if (session == NULL) {
        json_decref(list);
        return golden_write_elements(ctx, dataset);
    }
    iterator = dataset != NULL ? co_make_initializable_iterator(ctx, dataset) : NULL;
    if (iterator == NULL)
        return list;
    co_session_run(ctx, session, co_iterator_initialize(ctx, iterator), NULL, 0);
    next = co_get_next(ctx, iterator);
    while ((element = co_session_run(ctx, session, next, NULL, 0)) != NULL)
        json_array_append_new(list, golden_write_value(ctx, element));
    if (!co_ok(ctx) && co_error(ctx)->code == CO_OUT_OF_RANGE)
        co_clear(ctx);
    return list;
}
