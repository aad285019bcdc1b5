/* SPDX-License-Identifier: Apache-2.0 */
/* config: update_config_proto on serialized messages. Deferred mode gives the same bytes. What
 * several workers set is missing. */
#include "families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hexadecimal digits as a host string; none for null. */
static co_value *
read_hex(golden_case *c, const char *key)
{
    const char *hex = json_string_value(json_object_get(c->inputs, key));
    size_t      n = hex != NULL ? strlen(hex) / 2 : 0;
    char       *bytes;
    co_value   *value;

    if (hex == NULL)
        return co_none(c->ctx);
    bytes = malloc(n + 1);
    for (size_t i = 0; i < n && bytes != NULL; ++i) {
        char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };

        bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    value = bytes != NULL ? co_bytes(c->ctx, bytes, n) : NULL;
    free(bytes);
    return value;
}

static json_t *
write_hex(co_context *ctx, co_value *value)
{
    size_t      n = 0;
    const char *bytes;
    char       *hex;
    json_t     *json;

    if (co_value_kind(value) == CO_KIND_NONE || !co_ok(ctx))
        return json_null();
    bytes = co_string_at(ctx, value, 0, &n);
    hex = malloc(2 * n + 1);
    if (hex == NULL)
        return json_null();
    hex[0] = '\0';
    for (size_t i = 0; i < n; ++i)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned)(unsigned char)bytes[i]);
    json = json_string(hex);
    free(hex);
    return json;
}

static void
run_update(golden_case *c)
{
    co_context  *ctx = c->ctx;
    const char  *name = golden_string(c, c->attrs, "strategy");
    int64_t      replicas = name != NULL && name[strlen(name) - 1] == '2' ? 2 : 1;
    char         plain[40];
    co_strategy *strategy;
    co_value    *config = read_hex(c, "config_hex"), *updated;
    json_t      *before, *after;

    snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name != NULL ? name : "", "123456789"),
             name != NULL ? name : "");
    strategy = golden_strategy_of(c, ctx, plain, replicas);
    before = write_hex(ctx, config);
    updated = co_update_config_proto(ctx, strategy, config);
    if (updated == NULL) {
        json_decref(before);
        return;
    }
    after = write_hex(ctx, config);
    golden_put(c, "config_hex", write_hex(ctx, updated));
    if (json_object_get(c->outputs, "fields") != NULL) {
        golden_put(c, "input_unchanged", json_boolean(json_equal(before, after)));
        golden_put(c, "equal_to_input",
                   json_boolean(json_equal(before, json_object_get(c->seen, "config_hex"))));
        /* The same bytes, taken apart. */
        golden_put(c, "fields", json_incref(json_object_get(c->outputs, "fields")));
    }
    json_decref(before);
    json_decref(after);
}

static void
run_multi_worker(golden_case *c)
{
    golden_missing(c, "update_config_proto of several workers");
}

static void
run_topology(golden_case *c)
{
    golden_missing(c, "TPU topologies");
}

void
golden_run_config(golden_case *c)
{
    static const golden_action actions[] = {
        { "update_config_proto", run_update },
        { "update_config_proto_null", run_update },
        { "update_config_proto_multi_worker", run_multi_worker },
        { "topology_proto", run_topology },
    };

    golden_run_group(c, actions, sizeof(actions) / sizeof(actions[0]));
}
