/* SPDX-License-Identifier: Apache-2.0 */
/* functions: operators by name, with operands and attributes of the program. */
#include "functions.h"

#include <stdio.h>
#include <string.h>

#include "ops.h"

#define MAX_ITEMS 64

/* A number, a string, a list of such (lists of lists are handed over flat), or a computed value. */
static bool
read_attr(golden_frame *f, json_t *json, co_value **items, size_t *n)
{
    size_t  i;
    json_t *item;

    if (*n == MAX_ITEMS)
        return false;
    if (!json_is_array(json)) {
        json_t *computed = json_object_get(json, "value_of");

        items[*n] = computed != NULL ? golden_operand_value(f, computed)
                                     : golden_read_value(f->w->c, f->ctx, json);
        return items[(*n)++] != NULL;
    }
    json_array_foreach(json, i, item)
    {
        if (!read_attr(f, item, items, n))
            return false;
    }
    return true;
}

static co_value *
read_attr_value(golden_frame *f, json_t *json)
{
    co_value *items[MAX_ITEMS];
    size_t    n = 0;

    if (!read_attr(f, json, items, &n))
        return NULL;
    return json_is_array(json) ? co_list(f->ctx, items, n) : items[0];
}

/* The operands in the operator's order. Some are attributes in the data, and some may be absent
 * from the end. */
static bool
read_operands(golden_frame *f, json_t *step, const co_op_info *info, golden_operands *in)
{
    json_t *inputs = json_object_get(step, "inputs"), *attrs = json_object_get(step, "attrs");

    for (size_t i = 0; (i < info->num_inputs || info->variadic) && in->n < GOLDEN_MAX_OPERANDS;
         ++i) {
        char    name[32];
        json_t *json;

        if (info->variadic)
            snprintf(name, sizeof(name), "%s_%zu", info->inputs[0], i);
        else
            snprintf(name, sizeof(name), "%s", info->inputs[i]);
        snprintf(in->names[in->n], sizeof(in->names[0]), "%s", name);
        if ((json = json_object_get(inputs, name)) != NULL)
            in->values[in->n] = golden_operand_value(f, json);
        else if ((json = json_object_get(attrs, name)) != NULL)
            in->values[in->n] = read_attr_value(f, json);
        else if (info->variadic)
            break;
        else
            golden_fail(f->w->c, "operator '%s' of the case lacks the input '%s'", info->name,
                        name);
        if (in->values[in->n] == NULL || f->w->c->is_failed)
            return false;
        ++in->n;
    }
    return true;
}

static bool
is_operand(const golden_operands *in, const char *name)
{
    for (size_t i = 0; i < in->n; ++i)
        if (strcmp(in->names[i], name) == 0)
            return true;
    return false;
}

static co_value *
read_attrs(golden_frame *f, const char *op, json_t *attrs, const golden_operands *in)
{
    const char *keys[MAX_ITEMS + 2], *key;
    co_value   *items[MAX_ITEMS + 2];
    size_t      n = 0;
    json_t     *item;

    json_object_foreach(attrs, key, item)
    {
        if (is_operand(in, key) || n == MAX_ITEMS)
            continue;
        keys[n] = key;
        if ((items[n++] = read_attr_value(f, item)) == NULL)
            return NULL;
    }
    if (strcmp(op, "range") == 0) { /* which begins at 0 and counts by 1 */
        if (json_object_get(attrs, "start") == NULL)
            keys[n] = "start", items[n++] = co_int(f->ctx, 0);
        if (json_object_get(attrs, "delta") == NULL)
            keys[n] = "delta", items[n++] = co_int(f->ctx, 1);
    }
    return co_dict(f->ctx, keys, items, n);
}

co_value *
golden_apply_operator(golden_frame *f, json_t *step)
{
    const char     *name = golden_string(f->w->c, step, "op");
    golden_operands in = { .n = 0 };
    co_op_info      info = CO_OP_INFO_INIT;
    co_value       *attrs;

    if (!golden_find_operator(name, &info)) {
        golden_refuse(f, name);
        return NULL;
    }
    if (!read_operands(f, step, &info, &in))
        return NULL;
    attrs = read_attrs(f, name, json_object_get(step, "attrs"), &in);
    if (attrs == NULL)
        return NULL;
    return co_op_call(f->ctx, name, co_tuple(f->ctx, in.values, in.n), attrs);
}
