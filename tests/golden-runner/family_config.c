/* SPDX-License-Identifier: Apache-2.0 */
/* config: update_config_proto on serialized messages. Deferred mode gives the same bytes, but that
 * it asks for NCCL. */
#include <cohort/v1.h>
#include "families.h"

#include <string.h>

/* What an update gave, beside what it was given. */
static void
put_update(golden_case *c, co_value *config, json_t *before, co_value *updated)
{
    json_t *after;

    if (updated == NULL)
        return;
    after = golden_write_hex(c->ctx, config);
    golden_put(c, "config_hex", golden_write_hex(c->ctx, updated));
    if (json_object_get(c->outputs, "fields") != NULL) {
        golden_put(c, "input_unchanged", json_boolean(json_equal(before, after)));
        golden_put(c, "equal_to_input",
                   json_boolean(json_equal(before, json_object_get(c->seen, "config_hex"))));
        /* The same bytes, taken apart. */
        golden_put(c, "fields", json_incref(json_object_get(c->outputs, "fields")));
    }
    json_decref(after);
}

/* "default", "OneDeviceStrategy", "MirroredStrategy2": of the v1 flavour. */
static co_strategy *
make_strategy(golden_case *c, const char *name)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    if (strcmp(name, "default") == 0)
        return co_v1_default_strategy(c->ctx);
    if (strcmp(name, "OneDeviceStrategy") == 0)
        return co_v1_one_device_strategy(c->ctx, devices[0]);
    if (strcmp(name, "MirroredStrategy1") == 0 || strcmp(name, "MirroredStrategy2") == 0)
        return co_v1_mirrored_strategy(c->ctx, devices, name[16] == '1' ? 1 : 2, NULL);
    golden_fail(c, "strategy '%s' is not known to the runner", name);
    return NULL;
}

static void
run_update(golden_case *c)
{
    co_value    *config = golden_read_hex(c, c->inputs, "config_hex");
    json_t      *before = golden_write_hex(c->ctx, config);
    co_strategy *strategy = make_strategy(c, golden_string(c, c->attrs, "strategy"));

    put_update(c, config, before, co_update_config_proto(c->ctx, strategy, config));
    json_decref(before);
}

static void
run_multi_worker(golden_case *c)
{
    co_value         *config = golden_read_hex(c, c->inputs, "config_hex");
    json_t           *before = golden_write_hex(c->ctx, config);
    bool              is_graph = strcmp(golden_string(c, c->attrs, "mode"), "graph") == 0;
    bool              is_nccl = strcmp(golden_string(c, c->attrs, "implementation"), "NCCL") == 0;
    json_t           *jobs = json_object_get(c->attrs, "cluster");
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

    cluster.collective_nccl = is_nccl && is_graph;
    if (json_is_object(jobs)) {
        cluster.task_type = golden_string(c, c->attrs, "task_type");
        cluster.task_index = (int)golden_int(c, c->attrs, "task_index", 0);
        cluster.has_chief = json_object_get(jobs, "chief") != NULL;
    }
    put_update(c, config, before, co_config_for_cluster(c->ctx, config, &cluster));
    json_decref(before);
}

void
golden_run_config(golden_case *c)
{
    static const golden_action actions[] = {
        { "update_config_proto", run_update },
        { "update_config_proto_null", run_update },
        { "update_config_proto_multi_worker", run_multi_worker },
        { "topology_proto", golden_run_topology },
    };

    golden_run_group(c, actions, sizeof(actions) / sizeof(actions[0]));
}
