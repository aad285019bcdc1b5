/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: elements that are datasets, what can be done with them and what not. */
#include "data_support.h"

/* Windows as text: "0,1 2,3". */
static const char *
windows(co_context *ctx, co_dataset *dataset, char *text)
{
    data_out out = { text, 0 };

    text[0] = '\0';
    CO_EACH(ctx, window, co_iterate(ctx, dataset)) {
        const char *between = out.at > 0 ? " " : "";

        CO_EACH(ctx, x, co_iterate(ctx, co_value_dataset(ctx, window))) {
            data_put(&out, "%s%lld", between, (long long)co_item_int(ctx, x));
            between = ",";
        }
    }
    return text;
}

CO_TEST(windows_have_a_size_a_shift_and_a_stride, "")
{
    static const struct {
        const char *input;
        int64_t     size, shift, stride;
        bool        drop;
        int64_t     count;
        const char *windows;
    } cases[] = {
        { "range(7)", 2, 0, 1, false, 4, "0,1 2,3 4,5 6" },
        { "range(7)", 2, 0, 1, true, 3, "0,1 2,3 4,5" },
        { "range(4)", 3, 1, 1, false, 4, "0,1,2 1,2,3 2,3 3" },
        { "range(7)", 2, 3, 2, false, 3, "0,2 3,5 6" },
        { "range(8)", 2, 4, 1, false, 2, "0,1 4,5" },
        { "range(9)", 2, 4, 1, true, 2, "0,1 4,5" },
        { "range(4)", 5, 1, 1, true, 0, "" },
        { "range(0)", 5, 1, 1, false, 0, "" },
        { "range(9).even", 2, 3, 1, false, CO_UNKNOWN_CARDINALITY, "0,2 6,8" },
        { "range(9).even.double", 2, 2, 2, false, CO_UNKNOWN_CARDINALITY, "0,8 8,16 16" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_dataset *dataset = co_dataset_window(
            ctx, data_pipeline(ctx, cases[i].input), cases[i].size,
            &(co_window_options){ sizeof(co_window_options), cases[i].shift, cases[i].stride,
                                  cases[i].drop });

        CO_EXPECT_INT(co_cardinality(ctx, dataset), cases[i].count);
        CO_EXPECT_STR(windows(ctx, dataset, text), cases[i].windows);
    }
}

static co_dataset *
batch_window(co_context *ctx, co_value *window, void *user)
{
    (void)user;
    return co_dataset_batch(ctx, co_value_dataset(ctx, window), 2, false);
}

static co_dataset *
flat_windows(co_context *ctx, co_dataset *dataset)
{
    return co_dataset_flat_map(ctx, dataset, batch_window, NULL,
                               co_spec(ctx, CO_INT64, (int64_t[]){ -1 }, 1));
}

CO_TEST(flat_map_makes_tensors_of_windows, "")
{
    co_dataset *dataset = co_dataset_window(ctx, data_pipeline(ctx, "range(5)"), 3,
                                            &(co_window_options){ sizeof(co_window_options), 2, 1,
                                                                  false });
    char        text[DATA_TEXT];

    CO_EXPECT_STR(data_elements(ctx, flat_windows(ctx, dataset), 9, text),
                  "[0,1] [2] [2,3] [4] [4]");
    /* Windows are handed on, chosen and shuffled like other elements. */
    dataset = co_dataset_shuffle(ctx, co_dataset_skip(ctx, dataset, 1), 1, 1, false);
    dataset = co_dataset_cache(ctx, co_dataset_repeat(ctx, dataset, 2));
    CO_EXPECT_STR(windows(ctx, co_dataset_take(ctx, dataset, 3), text), "2,3,4 4 2,3,4");
}

CO_TEST(components_are_windows_of_their_own, "")
{
    co_dataset *dataset = co_dataset_enumerate(ctx, data_pipeline(ctx, "range(3,6)"), 0);
    co_value   *element, *spec;
    char        text[DATA_TEXT];

    dataset = co_dataset_window(ctx, dataset, 2, NULL);
    spec = co_element_spec(ctx, dataset);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, spec, 1)), CO_KIND_SPEC);
    CO_EXPECT_INT(co_value_dtype(ctx, co_at(ctx, spec, 1)), CO_DTYPE_NONE);
    data_text(ctx, co_element_spec(ctx, co_value_dataset(ctx, co_at(ctx, spec, 1))), text);
    CO_EXPECT_STR(text, "int64[]");
    element = co_next(ctx, co_iterate(ctx, dataset));
    co_format(ctx, element, text, sizeof(text));
    CO_EXPECT_STR(text, "(Dataset, Dataset)");
    co_format(ctx, spec, text, sizeof(text));
    CO_EXPECT_STR(text, "(DatasetSpec, DatasetSpec)");
    CO_EXPECT_STR(data_elements(ctx, co_value_dataset(ctx, co_at(ctx, element, 1)), 9, text),
                  "3 4");
}

CO_TEST(an_element_that_fails_is_not_in_its_window, "DS-ITER-8")
{
    co_dataset  *dataset = co_dataset_assert_cardinality(ctx, data_pipeline(ctx, "range(3)"), 2);
    co_iterator *iterator = co_iterate(ctx, co_dataset_window(ctx, dataset, 2, NULL));

    CO_EXPECT_NOT_NULL(co_next(ctx, iterator));
    CO_EXPECT_NULL(co_next(ctx, iterator));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "at least 3");
}

CO_TEST(stages_that_work_on_tensors_refuse_windows, "")
{
    co_dataset  *range = co_dataset_range(ctx, 0, 4, 1);
    co_dataset  *dataset = co_dataset_window(ctx, range, 2, NULL);
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");
    int64_t      one = 1;

    CO_EXPECT_NULL(co_dataset_batch(ctx, dataset, 2, false));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_dataset_flat_map");
    CO_EXPECT_NULL(co_dataset_padded_batch(ctx, dataset, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_dataset_flat_map");
    CO_EXPECT_NULL(co_dataset_unique(ctx, dataset));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_dataset_flat_map");
    CO_EXPECT_NULL(co_dataset_concatenate(ctx, dataset, dataset));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_dataset_flat_map");
    CO_EXPECT_NULL(co_dataset_unbatch(ctx, dataset));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batch");
    CO_EXPECT_NULL(co_dataset_rebatch(ctx, dataset, &one, 1, false));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batch");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, strategy, dataset, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_dataset_flat_map");
    CO_EXPECT_NULL(co_add(ctx, co_next(ctx, co_iterate(ctx, dataset)), co_int(ctx, 1)));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_value_dataset(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "host integer");
    for (int i = 0; i < 3; ++i)
        for (int wrong = -1; wrong <= 0; ++wrong) {
            int64_t n[3] = { 1, 1, 1 };

            n[i] = i == 1 ? -1 : wrong;
            CO_EXPECT_NULL(co_dataset_window(ctx, range, n[0],
                                             &(co_window_options){ sizeof(co_window_options), n[1],
                                                                   n[2], false }));
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                            ((const char *[]){ "(size)", "(shift)", "(stride)" })[i]);
        }
}

static bool
iterate_windows(co_context *ctx)
{
    co_dataset  *dataset = co_dataset_window(ctx, data_pipeline(ctx, "range(6).enumerate(0)"), 3,
                                             &(co_window_options){ sizeof(co_window_options), 1, 1,
                                                                   false });
    co_iterator *iterator = co_iterate(ctx, co_dataset_shuffle(ctx, dataset, 3, 1, false));

    co_next(ctx, iterator);
    iterator = co_iterator_restore(ctx, co_dataset_shuffle(ctx, dataset, 3, 1, false),
                                   co_iterator_save(ctx, iterator));
    co_next(ctx, iterator);
    return co_ok(ctx);
}

CO_TEST_BARE(windows_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, iterate_windows);
}
