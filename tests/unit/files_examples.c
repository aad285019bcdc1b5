/* SPDX-License-Identifier: Apache-2.0 */
/* tf.Example: what is written is read again, alone and in batches; malformed bytes of every kind
 * are errors. */
#include "files_support.h"

static co_value *
example(co_context *ctx, int64_t id, size_t num_floats)
{
    static const char *const keys[] = { "floats", "id", "words" };
    static const void *const words[] = { "", "a\0b", "word" };
    static const size_t      lengths[] = { 0, 3, 4 };
    static const float       numbers[] = { 0.5F, -1, 3e20F, 7 };
    int64_t                  dims[] = { (int64_t)num_floats };
    co_value *const          items[] = { co_tensor(ctx, CO_FLOAT32, dims, 1, numbers),
                                         co_scalar_int64(ctx, id),
                                         co_tensor_bytes(ctx, CO_SHAPE(3), words, lengths) };

    return co_example_encode(ctx, co_dict(ctx, keys, items, 3));
}

/* A batch of examples as a tensor of strings. */
static co_value *
examples(co_context *ctx, int n)
{
    const void *bytes[8];
    size_t      lengths[8];
    int64_t     dims[] = { n };

    for (int i = 0; i < n; ++i)
        bytes[i] = co_string_at(ctx, example(ctx, i - 1, (size_t)i % 5), 0, &lengths[i]);
    return co_tensor_bytes(ctx, dims, 1, bytes, lengths);
}

CO_TEST(examples_in_batches_are_stacked_and_filled_up, "")
{
    static const int64_t three[] = { 3 };
    const co_feature     features[] = {
            { "words", CO_FEATURE_FIXED, CO_STRING, three, 1, NULL },
            { "id", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
            { "floats", CO_FEATURE_SEQUENCE, CO_FLOAT32, NULL, 0, NULL },
            { "absent", CO_FEATURE_SEQUENCE, CO_STRING, three, 1, NULL },
            { "other", CO_FEATURE_FIXED, CO_INT64, NULL, 0, co_scalar_int64(ctx, 9) },
    };
    char text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, examples(ctx, 3), features, 5), text),
                  "(absent:[[],[],[]],floats:[[0,0],[0.5,0],[0.5,-1]],id:[-1,0,1],other:[9,9,9],"
                  "words:[['','a','word'],['','a','word'],['','a','word']])");
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, example(ctx, 5, 1), features, 3), text),
                  "(floats:[0.5],id:5,words:['','a','word'])");
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, examples(ctx, 0), features, 2), text),
                  "(id:[],words:[])");
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, examples(ctx, 2), NULL, 0), text), "()");
}

/* Examples of n values "a", of n / 2, and of none: another feature stands there. */
static co_value *
short_sequences(co_context *ctx, co_value *whole, int64_t n)
{
    static const char *const names[] = { "a", "a", "b" };
    const int64_t            lengths[] = { n, n / 2, n };
    const void              *bytes[3];
    size_t                   sizes[3];

    for (int i = 0; i < 3; ++i) {
        co_value *part = co_slice(ctx, whole, (const int64_t[]){ 0 }, &lengths[i], 1);
        co_value *map = co_dict(ctx, &names[i], &part, 1);

        bytes[i] = co_string_at(ctx, co_example_encode(ctx, map), 0, &sizes[i]);
    }
    return co_tensor_bytes(ctx, CO_SHAPE(3), bytes, sizes);
}

CO_TEST(sequences_are_filled_up_with_what_is_given, "")
{
    static const int64_t two[] = { 2 }, numbers[] = { 1, 2, 3, 4 };
    co_value            *whole = co_tensor(ctx, CO_INT64, CO_SHAPE(4), numbers);
    co_value            *batch = short_sequences(ctx, whole, 4);
    co_feature           feature = { "a", CO_FEATURE_SEQUENCE, CO_INT64, NULL, 0, NULL };
    char                 text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, batch, &feature, 1), text),
                  "(a:[[1,2,3,4],[1,2,0,0],[0,0,0,0]])");
    feature.missing = co_scalar_int64(ctx, -1);
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, batch, &feature, 1), text),
                  "(a:[[1,2,3,4],[1,2,-1,-1],[-1,-1,-1,-1]])");
    feature.dims = two;
    feature.ndim = 1;
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, batch, &feature, 1), text),
                  "(a:[[[1,2],[3,4]],[[1,2],[-1,-1]],[[-1,-1],[-1,-1]]])");
    feature.name = "none";
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, batch, &feature, 1), text),
                  "(none:[[],[],[]])");
    CO_EXPECT_STR(data_text(ctx, co_parse_example(ctx, example(ctx, 1, 1), &feature, 1), text),
                  "(none:[])");
}

/* So many that whoever copies more than one element of what is given leaves its memory. */
CO_TEST(long_sequences_are_filled_up, "")
{
    enum { N = 100000 };
    co_feature numbers = {
        "a", CO_FEATURE_SEQUENCE, CO_FLOAT32, NULL, 0, co_scalar_float(ctx, -1)
    };
    co_feature   words = numbers;
    const char **texts = malloc(N * sizeof(*texts)), *pad = "pad";
    const float *floats;
    co_value    *parsed;
    int          wrong = 0;

    parsed = co_parse_example(ctx, short_sequences(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(N)), N),
                              &numbers, 1);
    parsed = co_get(ctx, parsed, "a");
    floats = co_value_data(ctx, parsed);
    CO_REQUIRE(floats != NULL && co_value_num_elements(ctx, parsed) == 3 * N);
    for (int i = 0; i < 3 * N; ++i)
        wrong += floats[i] != (i < N + N / 2 ? 1.0F : -1.0F);

    for (int i = 0; i < N; ++i)
        texts[i] = "word";
    words.dtype = CO_STRING;
    words.missing = co_tensor(ctx, CO_STRING, NULL, 0, &pad);
    parsed = co_tensor(ctx, CO_STRING, CO_SHAPE(N), texts);
    parsed = co_get(ctx, co_parse_example(ctx, short_sequences(ctx, parsed, N), &words, 1), "a");
    CO_REQUIRE(co_value_num_elements(ctx, parsed) == 3 * N);
    for (int i = 0; i < 3 * N; ++i)
        wrong += strcmp(co_string_at(ctx, parsed, i, NULL), i < N + N / 2 ? "word" : "pad") != 0;
    CO_EXPECT_INT(wrong, 0);
    free(texts);
}

CO_TEST(all_of_an_example_comes_back, "")
{
    static const char *const keys[] = { "b", "d", "h", "i", "s", "u" };
    co_value *const          items[] = {
                 co_scalar_bool(ctx, true),
                 co_scalar_double(ctx, 0.25),
                 co_int(ctx, 3),
                 co_tensor(ctx, CO_INT8, CO_SHAPE(2, 1), (const int8_t[]){ -1, 100 }),
                 co_string(ctx, "text"),
                 co_tensor(ctx, CO_UINT16, CO_SHAPE(0), ""),
    };
    co_value *bytes = co_example_encode(ctx, co_dict(ctx, keys, items, 6));
    char      text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_example_decode(ctx, bytes), text),
                  "(b:[1],d:[0.25],h:[3],i:[-1,100],s:['text'],u:[])");
    bytes = co_example_encode(ctx, co_dict(ctx, NULL, NULL, 0));
    CO_EXPECT_INT(co_num_items(ctx, co_example_decode(ctx, bytes)), 0);
    CO_EXPECT_INT(co_num_items(ctx, co_example_decode(ctx, co_string(ctx, ""))), 0);
}

/* What protocol buffers allow besides what TensorFlow writes: unpacked numbers, unknown fields,
 * keys that come twice. */
static const struct {
    const char *bytes, *decoded;
} unusual[] = {
    { "\x0a\x0d\x0a\x0b\x0a\x01x\x12\x06\x1a\x04\x08\x05\x08\x06", "(x:[5,6])" },
    { "\x0a\x10\x0a\x0e\x0a\x01x\x12\x09\x12\x07\x0d\x01\x01\x80\x3f\x08\x01", NULL },
    { "\x10\x07\x0a\x0b\x0a\x09\x0a\x01x\x12\x04\x1a\x02\x08\x05", "(x:[5])" },
    { "\x0a\x16\x0a\x09\x0a\x01x\x12\x04\x1a\x02\x08\x05\x0a\x09\x0a\x01x\x12\x04\x1a\x02\x08\x07",
      "(x:[7])" },
    { "\x0a\x0b\x0a\x09\x0a\x01x\x12\x04\x1a\x02\x08\x05\x0a\x0b\x0a\x09\x0a\x01y\x12\x04\x1a\x02"
      "\x08\x07",
      "(x:[5],y:[7])" },
    { "\x08\x01", NULL },                                          /* features that is a number */
    { "\x0a\x02\x08\x01", NULL },                                  /* an entry that is a number */
    { "\x0a\x04\x0a\x02\x08\x01", NULL },                          /* a key that is a number */
    { "\x0a\x0b\x0a\x09\x0a\x01x\x12\x04\x1a\x02\x0d\x05", NULL }, /* a value that is cut off */
    { "\x0a\x0a\x0a\x08\x0a\x01x\x12\x03\x1a\x01\x08", NULL },
    { "\x0b\x01", NULL },                                     /* a group */
    { "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", NULL }, /* a length of 2^64 - 1 */
    { "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", NULL }, /* more than 64 bits */
    { "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", NULL },
    { "\x02", NULL }, /* field 0 */
};

CO_TEST(unusual_and_malformed_bytes, "GEN-ERR-5")
{
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(unusual) / sizeof(unusual[0]); ++i)
        CO_BLOCK(ctx) {
            co_value *bytes = co_bytes(ctx, unusual[i].bytes, strlen(unusual[i].bytes));
            co_value *map = co_example_decode(ctx, bytes);

            if (unusual[i].decoded != NULL)
                CO_EXPECT_STR(data_text(ctx, map, text), unusual[i].decoded);
            else if (!CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL))
                test_fail(TEST_AT, "row %zu", i);
        }
}

/* Every byte of an example changed in turn, and every prefix of it: an error or a map, never a
 * crash. */
CO_TEST(changed_and_cut_examples, "GEN-ERR-5")
{
    const co_feature features[] = {
        { "id", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
        { "words", CO_FEATURE_SEQUENCE, CO_STRING, NULL, 0, NULL },
        { "floats", CO_FEATURE_SEQUENCE, CO_FLOAT32, NULL, 0, NULL },
    };
    size_t      n;
    const char *good = co_string_at(ctx, example(ctx, 300, 3), 0, &n);
    char       *bytes = malloc(n);
    int         refused = 0;

    for (size_t i = 0; i < 3 * n; ++i)
        CO_BLOCK(ctx) {
            size_t    length = i < 2 * n ? n : i - 2 * n;
            co_value *value;

            memcpy(bytes, good, n);
            if (i < 2 * n)
                bytes[i % n] = (char)(bytes[i % n] ^ (i < n ? 0x55 : 0x80));
            value = co_bytes(ctx, bytes, length);
            if (co_example_decode(ctx, value) == NULL)
                refused += CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
            if (co_parse_example(ctx, value, features, 3) == NULL)
                refused += CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
        }
    CO_EXPECT_MORE(refused, n);
    free(bytes);
}

/* Cut between two features, which TensorFlow's fast parser does not notice: it gives the default of
 * a feature that is lost. Its own message class refuses such bytes, and so do we. */
CO_TEST(examples_that_are_cut_between_features, "GEN-ERR-5")
{
    static const char bytes[] = "\x0a\x16\x0a\x09\x0a\x01x\x12\x04\x1a\x02\x08\x05"
                                "\x0a\x09\x0a\x01y\x12\x04\x1a\x02\x08\x07";
    const co_feature  feature = { "y",      CO_FEATURE_FIXED,
                                  CO_INT64, NULL,
                                  0,        co_ones(ctx, CO_INT64, NULL, 0) };
    co_value         *whole = co_bytes(ctx, bytes, 24), *cut = co_bytes(ctx, bytes, 13);

    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, co_parse_example(ctx, whole, &feature, 1), "y")), 7);
    CO_EXPECT_NULL(co_parse_example(ctx, cut, &feature, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "13 bytes are no tf.Example");
    CO_EXPECT_NULL(co_example_decode(ctx, cut));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
}

/* An empty feature may be larger than memory in its other dimensions. */
CO_TEST(empty_features_of_large_dimensions, "")
{
    static const int64_t dims[] = { (int64_t)1 << 31, (int64_t)1 << 31, 0 };
    const co_feature     feature = { "x",      CO_FEATURE_FIXED,
                                     CO_INT64, dims,
                                     3,        co_zeros(ctx, CO_INT64, CO_SHAPE(0)) };
    co_value            *map = co_parse_example(ctx, example(ctx, 1, 1), &feature, 1);

    CO_EXPECT_INT(co_value_dim(ctx, co_get(ctx, map, "x"), 1), dims[1]);
}

CO_TEST(wrong_arguments_of_examples, "")
{
    static const int64_t nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, two[] = { 2 };
    co_value            *bytes = example(ctx, 1, 1), *words = examples(ctx, 2);
    const struct {
        co_feature  feature;
        co_code     code;
        const char *part;
    } wrong[] = {
        { { NULL, CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
          CO_INVALID_ARGUMENT,
          "name is NULL" },
        { { "x", CO_FEATURE_FIXED, CO_INT32, NULL, 0, NULL }, CO_INVALID_ARGUMENT, "int32" },
        { { "x", (co_feature_kind)7, CO_INT64, NULL, 0, NULL }, CO_INVALID_ARGUMENT, "kind 7" },
        { { "x", CO_FEATURE_FIXED, CO_INT64, nine, 9, NULL }, CO_INVALID_ARGUMENT, "at most 8" },
        { { "x", CO_FEATURE_SEQUENCE, CO_INT64, nine, 8, NULL },
          CO_INVALID_ARGUMENT,
          "more than 8" },
        { { "x", CO_FEATURE_FIXED, CO_INT64, NULL, 0, bytes }, CO_TYPE_ERROR, "missing" },
        { { "x", CO_FEATURE_FIXED, CO_INT64, two, 1, co_ones(ctx, CO_INT64, NULL, 0) },
          CO_INVALID_ARGUMENT,
          "of 1 element; it must be int64 of 2" },
        { { "x", CO_FEATURE_FIXED, CO_INT64, NULL, 0, co_scalar_float(ctx, 1) },
          CO_INVALID_ARGUMENT,
          "float32" },
        { { "x", CO_FEATURE_SEQUENCE, CO_INT64, two, 1, co_zeros(ctx, CO_INT64, CO_SHAPE(2)) },
          CO_INVALID_ARGUMENT,
          "of 2 elements; it must be int64 of 1" },
    };
    const co_feature twice[] = {
        { "id", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
        { "x", CO_FEATURE_SEQUENCE, CO_INT64, NULL, 0, NULL },
        { "id", CO_FEATURE_SEQUENCE, CO_INT64, NULL, 0, NULL },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        CO_EXPECT_NULL(co_parse_example(ctx, bytes, &wrong[i].feature, 1));
        CO_EXPECT_ERROR(ctx, wrong[i].code, wrong[i].part);
    }
    CO_EXPECT_NULL(co_parse_example(ctx, bytes, twice, 3));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "feature 'id' is described twice");
    CO_EXPECT_NULL(co_parse_example(ctx, bytes, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "features) is NULL");
    CO_EXPECT_NULL(co_parse_example(ctx, co_int(ctx, 1), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "must be a string");
    CO_EXPECT_NULL(co_parse_example(ctx, co_expand_dims(ctx, words, 0), NULL, 0));
    co_clear(ctx);
    CO_EXPECT_NULL(co_example_decode(ctx, words));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "rank 1");
    CO_EXPECT_NULL(co_example_decode(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "serialized");
    CO_EXPECT_NULL(co_example_encode(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "features");
}

static bool
parse_with_little_memory(co_context *ctx)
{
    const co_feature features[] = {
        { "id", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
        { "words", CO_FEATURE_SEQUENCE, CO_STRING, NULL, 0, NULL },
    };
    co_value *batch = examples(ctx, 2);

    return co_parse_example(ctx, batch, features, 2) != NULL &&
           co_example_decode(ctx, example(ctx, 1, 4)) != NULL;
}

CO_TEST_BARE(want_of_memory_in_examples, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, parse_with_little_memory);
}
