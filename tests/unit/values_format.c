/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people: every kind, long tensors, strange strings, strange locales, and buffers that are
 * too small. */
#include "test.h"

#include <locale.h>

static const char *
text_of(co_context *ctx, co_value *value)
{
    static char text[4096];
    size_t      needed = co_format(ctx, value, text, sizeof(text));

    CO_EXPECT_INT(strlen(text), needed);
    return text;
}

CO_TEST(every_kind_has_a_text, "DV-FMT-1")
{
    co_value *x = co_tensor(ctx, CO_INT32, CO_SHAPE(2, 2), (const int32_t[]){ 1, -2, 3, 4 });
    co_value *pair[2] = { co_scalar_float(ctx, 1.5f), co_string(ctx, "b") };
    co_value *row = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 2), (const float[]){ 1, 2 });
    co_value *index = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (const int64_t[]){ 3 });
    co_value *dense = co_tensor(ctx, CO_INT64, CO_SHAPE(2), (const int64_t[]){ 4, 2 });
    static const char *const names[] = { "y", "x" };

    CO_EXPECT_STR(text_of(ctx, NULL), "NULL");
    CO_EXPECT_STR(text_of(ctx, x), "[[1, -2], [3, 4]]");
    CO_EXPECT_STR(text_of(ctx, co_int(ctx, INT64_MIN)), "-9223372036854775808");
    CO_EXPECT_STR(text_of(ctx, co_float(ctx, 0.1)), "0.1");
    CO_EXPECT_STR(text_of(ctx, co_float(ctx, 3)), "3.0");
    CO_EXPECT_STR(text_of(ctx, co_bool(ctx, false)), "false");
    CO_EXPECT_STR(text_of(ctx, co_none(ctx)), "none");
    CO_EXPECT_STR(text_of(ctx, pair[1]), "\"b\"");
    CO_EXPECT_STR(text_of(ctx, co_list(ctx, pair, 2)), "[1.5, \"b\"]");
    CO_EXPECT_STR(text_of(ctx, co_tuple(ctx, pair, 2)), "(1.5, \"b\")");
    CO_EXPECT_STR(text_of(ctx, co_tuple(ctx, pair, 1)), "(1.5,)");
    CO_EXPECT_STR(text_of(ctx, co_no_args(ctx)), "()");
    CO_EXPECT_STR(text_of(ctx, co_named_tuple(ctx, "Point", names, pair, 2)),
                  "Point(y=1.5, x=\"b\")");
    CO_EXPECT_STR(text_of(ctx, co_dict(ctx, names, pair, 2)), "{'x': \"b\", 'y': 1.5}");
    CO_EXPECT_STR(text_of(ctx, co_per_replica_value(ctx, pair, 2)),
                  "PerReplica:{\n  0: 1.5\n  1: \"b\"\n}");
    CO_EXPECT_STR(text_of(ctx, co_mirrored_value(ctx, pair, 1)), "Mirrored:{\n  0: 1.5\n}");
    CO_EXPECT_STR(text_of(ctx, co_slices(ctx, row, index, NULL)),
                  "IndexedSlices(values=[[1.0, 2.0]], indices=[3])");
    CO_EXPECT_STR(text_of(ctx, co_slices(ctx, row, index, dense)),
                  "IndexedSlices(values=[[1.0, 2.0]], indices=[3], dense_shape=[4, 2])");
    CO_EXPECT_STR(text_of(ctx, co_spec(ctx, CO_INT8, CO_SHAPE(2, -1))), "TensorSpec([2,?], int8)");
    CO_EXPECT_STR(text_of(ctx, co_spec(ctx, CO_INT8, NULL, -1)),
                  "TensorSpec(<unknown rank>, int8)");
    CO_EXPECT_STR(text_of(ctx, co_variable(ctx, x, NULL)),
                  "<Variable 'Variable' shape=[2,2] dtype=int32 value=[[1, -2], [3, 4]]>");
}

CO_TEST(elements_of_every_dtype_have_a_text, "")
{
    static const char *const texts[CO_NUM_DTYPES] = {
        [CO_BOOL] = "true",   [CO_INT8] = "3",      [CO_INT16] = "3",      [CO_INT32] = "3",
        [CO_INT64] = "3",     [CO_UINT8] = "3",     [CO_UINT16] = "3",     [CO_UINT32] = "3",
        [CO_UINT64] = "3",    [CO_FLOAT16] = "3.0", [CO_BFLOAT16] = "3.0", [CO_FLOAT32] = "3.0",
        [CO_FLOAT64] = "3.0",
    };
    const uint64_t huge = UINT64_MAX;
    const double   odd[] = { NAN, -NAN, INFINITY, -INFINITY, -0.0, 1e300, 1e-7, 0.1, 1.0 / 3 };

    for (int d = CO_BOOL; d <= CO_FLOAT64; ++d)
        CO_EXPECT_STR(text_of(ctx, co_cast(ctx, co_scalar_int32(ctx, 3), (co_dtype)d)), texts[d]);
    CO_EXPECT_STR(text_of(ctx, co_tensor(ctx, CO_UINT64, NULL, 0, &huge)), "18446744073709551615");
    CO_EXPECT_STR(text_of(ctx, co_tensor(ctx, CO_FLOAT64, CO_SHAPE(9), odd)),
                  "[nan, nan, inf, -inf, -0.0, 1e+300, 1e-07, 0.1, 0.3333333333333333]");
    CO_EXPECT_STR(text_of(ctx, co_scalar_float(ctx, 0.1f)), "0.1");
    CO_EXPECT_STR(text_of(ctx, co_scalar_float(ctx, 16777217.0f)), "16777216.0");
}

CO_TEST(strings_are_shown_as_valid_text, "")
{
    static const char *const texts[] = { "a\"b\\c", "\xC3\xA9", "\xC3", "\n\x7F" };
    char                     long_text[200];

    CO_EXPECT_STR(text_of(ctx, co_tensor(ctx, CO_STRING, CO_SHAPE(4), texts)),
                  "[\"a\\\"b\\\\c\", \"\xC3\xA9\", \"\\xc3\", \"\\x0a\\x7f\"]");
    CO_EXPECT_STR(text_of(ctx, co_bytes(ctx, "a\0b", 3)), "\"a\\x00b\"");
    memset(long_text, 'z', sizeof(long_text));
    CO_EXPECT_INT(strlen(text_of(ctx, co_bytes(ctx, long_text, sizeof(long_text)))), 60 + 5);
    CO_EXPECT_INT(strlen(text_of(ctx, co_bytes(ctx, long_text, 60))), 60 + 2);
    /* The cut does not go through a character. */
    memcpy(long_text + 59, "\xE2\x82\xAC", 3);
    CO_EXPECT_CONTAINS(text_of(ctx, co_bytes(ctx, long_text, sizeof(long_text))),
                       "\xE2\x82\xAC...\"");
}

CO_TEST(long_tensors_are_cut_in_the_middle, "")
{
    co_value *hundred = co_range(ctx, co_int(ctx, 0), co_int(ctx, 100), co_int(ctx, 1), CO_INT32);
    co_value *more = co_range(ctx, co_int(ctx, 0), co_int(ctx, 101), co_int(ctx, 1), CO_INT32);
    co_value *zeros = co_zeros(ctx, CO_INT8, CO_SHAPE(9, 9, 9, 9, 9, 9, 9, 9));

    CO_EXPECT_CONTAINS(text_of(ctx, hundred), "49, 50, 51");
    CO_EXPECT_STR(text_of(ctx, more), "[0, 1, 2, ..., 98, 99, 100]");
    more = co_reshape(ctx, co_concat(ctx, co_args(ctx, more, more), 0), CO_SHAPE(101, 2));
    CO_EXPECT_STR(text_of(ctx, more),
                  "[[0, 1], [2, 3], [4, 5], ..., [95, 96], [97, 98], [99, 100]]");
    CO_EXPECT_LESS(co_format(ctx, zeros, NULL, 0), 4000); /* 43 million elements */
    CO_EXPECT_STR(text_of(ctx, co_zeros(ctx, CO_INT8, CO_SHAPE(0))), "[] shape=[0] dtype=int8");
    CO_EXPECT_STR(text_of(ctx, co_zeros(ctx, CO_INT8, CO_SHAPE(5, 0))),
                  "[] shape=[5,0] dtype=int8");
}

/* As snprintf: never beyond the buffer, always terminated, and the length that would be needed. */
CO_TEST(a_text_fits_in_any_buffer, "")
{
    co_value *x = co_tensor(ctx, CO_INT32, CO_SHAPE(3), (const int32_t[]){ 10, 20, 30 });

    for (size_t capacity = 0; capacity < 20; ++capacity) {
        char text[32];

        memset(text, '#', sizeof(text));
        CO_EXPECT_INT(co_format(ctx, x, text, capacity), 12);
        CO_EXPECT_INT(text[capacity], '#');
        if (capacity > 0) {
            size_t shown = capacity - 1 < 12 ? capacity - 1 : 12;

            CO_EXPECT_INT(strlen(text), shown);
            CO_EXPECT_TRUE(memcmp(text, "[10, 20, 30]", shown) == 0);
        }
    }
    CO_EXPECT_INT(co_format(ctx, x, NULL, 0), 12);
    CO_EXPECT_INT(co_format(ctx, x, NULL, 100), 12);
}

CO_TEST(a_text_is_made_while_there_is_an_error, "")
{
    char      text[16] = "#";
    co_value *x = co_int(ctx, 5);

    co_fail(ctx, CO_VALUE_ERROR, "wrong");
    CO_EXPECT_INT(co_format(ctx, x, text, sizeof(text)), 1);
    CO_EXPECT_STR(text, "5");
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "wrong");
    CO_EXPECT_INT(co_format(NULL, x, text, sizeof(text)), 0);
    CO_EXPECT_STR(text, "");
}

/* A host that speaks German, French or anything else sees the same text, and operators the same
 * defaults. */
CO_TEST(the_locale_of_the_host_changes_nothing, "")
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF.UTF-8" };
    bool                     found = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if (setlocale(LC_ALL, names[i]) != NULL) {
            found = true;
            CO_EXPECT_STR(text_of(ctx, co_float(ctx, -2.5)), "-2.5");
            CO_EXPECT_STR(text_of(ctx, co_float(ctx, 1e-10)), "1e-10");
        }
    setlocale(LC_ALL, "C");
    if (!found)
        CO_SKIP("no locale with another decimal point is installed");
}

/* A distributed variable shows its components, as other distributed values do. */
CO_TEST_WITH(distributed_variables_have_a_line_for_each_component, "DV-FMT-1", "cpus=2")
{
    co_strategy        *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL, *w = NULL;
    char                text[400];

    options.name = "v";
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, m) {
        v = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), &options);
        options.synchronization = CO_SYNC_ON_READ;
        w = co_variable(ctx, co_scalar_int64(ctx, 7), &options);
    }
    co_format(ctx, v, text, sizeof(text));
    CO_EXPECT_STR(text,
                  "MirroredVariable:{\n"
                  "  0: <Variable 'v' shape=[2,3] dtype=float32 value=[[1.0, 1.0, 1.0], [1.0, 1.0, "
                  "1.0]]>\n"
                  "  1: <Variable 'v/replica_1' shape=[2,3] dtype=float32 value=[[1.0, 1.0, "
                  "1.0], [1.0, 1.0, 1.0]]>\n}");
    co_format(ctx, w, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, "SyncOnReadVariable:{\n  0: <Variable 'v");
    CO_EXPECT_CONTAINS(text, " shape=[] dtype=int64 value=7>");
    /* Declared, and without a value until one is assigned; and one that is empty. */
    v = co_variable(ctx, co_spec(ctx, CO_INT64, CO_SHAPE(2)), NULL);
    co_format(ctx, v, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, " shape=[2] dtype=int64, no value yet>");
    co_assign(ctx, v, co_tensor(ctx, CO_INT64, CO_SHAPE(2), ((const int64_t[]){ 5, 6 })));
    co_format(ctx, v, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, " shape=[2] dtype=int64 value=[5, 6]>");
    co_format(ctx, co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 3)), NULL), text,
              sizeof(text));
    CO_EXPECT_CONTAINS(text, " shape=[0,3] dtype=float32 value=[]>");
}
