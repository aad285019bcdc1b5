/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files, and names of files by pattern. */
#include "files_support.h"

static co_dataset *
csv(co_context *ctx, const char *text, const co_csv_column *columns, size_t n,
    const co_csv_options *options)
{
    char        path[FILES_PATH];
    const char *file = files_path("a.csv", path);

    files_write(file, text, strlen(text));
    return co_dataset_csv(ctx, &file, 1, columns, n, options);
}

static const struct {
    const char *text, *elements;
} files[] = {
    { "1,a\n2,b\n", "(1,'a') (2,'b')" },
    { "1,a\r\n2,b", "(1,'a') (2,'b')" },
    { " 1 ,a b \n-2,\"x,y\"\n", "(1,'a b ') (-2,'x,y')" },
    { "1,\"a \"\"b\"\"\"\n2,\"two\nlines\"\n", "(1,'a \"b\"') (2,'two\nlines')" },
    { "7,\n,x\n", "(7,'none') (-1,'x')" },
    { "7,\"\"\nNA,NA\n", "(7,'none') (-1,'none')" },
    { "\"3\",z\n", "(3,'z')" },
    { "", "" },
};

CO_TEST(rows_become_tuples_of_their_dtypes, "")
{
    const co_csv_column columns[] = { { CO_INT64, co_int(ctx, -1) },
                                      { CO_STRING, co_string(ctx, "none") } };
    co_csv_options      options = CO_CSV_OPTIONS_INIT;
    char                text[DATA_TEXT];

    options.na_value = "NA";
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); ++i)
        CO_EXPECT_STR(data_elements(ctx, csv(ctx, files[i].text, columns, 2, &options), 9, text),
                      files[i].elements);
    files_clean();
}

/* In batches every column is a tensor; numbers have a point whatever the locale. */
CO_TEST(batches_of_rows_have_columns, "")
{
    const co_csv_column columns[] = { { CO_INT32, NULL },
                                      { CO_FLOAT32, NULL },
                                      { CO_FLOAT64, co_float(ctx, 0.5) },
                                      { CO_STRING, NULL } };
    co_csv_options      options = CO_CSV_OPTIONS_INIT;
    co_dataset         *dataset;
    char                text[DATA_TEXT];

    options.delimiter = ';';
    options.header = true;
    dataset = csv(ctx, "id;x;y;name\n1;1.5;;a\n2;-2e3;7;b\n3;inf;8;c\n", columns, 4, &options);
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, dataset), text),
                  "(int32[],float32[],float64[],string[])");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_batch(ctx, dataset, 2, false), 9, text),
                  "([1,2],[1.5,-2000],[0.5,7],['a','b']) ([3],[inf],[8],['c'])");
    CO_EXPECT_STR(data_elements(ctx, csv(ctx, "id;x;y;name\n", columns, 4, &options), 9, text), "");
    files_clean();
}

static const struct {
    const char *text, *part;
} wrong[] = {
    { "1,a\n2\n3,c\n", "row 1: it has 1 field, not 2" },
    { "1,a\n2,b,c\n3,c\n", "row 1: it has 3 fields, not 2" },
    { "1,a\nx,b\n3,c\n", "column 0, 'x', is no int32" },
    { "1,a\n2.5,b\n3,c\n", "column 0, '2.5', is no int32" },
    { "1,a\n3000000000,b\n3,c\n", "is no int32" },
    { "1,a\n,b\n3,c\n", "column 0 is empty" },
    { "1,a\n ,b\n3,c\n", "is no int32" },
    { "1,a\n\"2\"x,b\n3,c\n", "followed by something else" },
    { "1,a\n\n3,c\n", "column 0 is empty" },
    { "1,a\n2,5\" disk\n3,c\n", "row 1: column 1: a field has quotes inside" },
    { "1,a\n2,5\" disk\n3,\"c\n\"\n", "row 1: column 1: a field has quotes inside" },
    { "1,a\n2,\"x\n3,c\n", "row 1: column 1: a quoted field does not end" },
    { "1,a\n2,\"x\"\"\r\n3,c\n", "row 1: column 1: a quoted field does not end" },
    { "1,a\n2,\"x\n3,\"c\"\n", "row 1: column 1: a quoted field does not end" },
    { "1,a\n\"2\"x,\"\nb\"\n3,c\n", "row 1: column 0: a quoted field is followed by" },
    { "1,a\n\"\n2\",\"x\n3,c\n", "row 1: column 1: a quoted field does not end" },
};

/* The rows around a wrong one come, alone and in batches, and the error between them. */
CO_TEST(a_wrong_row_is_told_after_those_before_it, "GEN-ERR-5")
{
    const co_csv_column columns[] = { { CO_INT32, NULL }, { CO_STRING, NULL } };
    char                text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i)
        for (int batch = 0; batch < 3; ++batch)
            CO_BLOCK(ctx) {
                co_dataset  *dataset = csv(ctx, wrong[i].text, columns, 2, NULL);
                co_iterator *it = co_iterate(
                    ctx, batch == 0 ? dataset : co_dataset_batch(ctx, dataset, batch, false));

                if (batch < 2)
                    CO_EXPECT_CONTAINS(data_text(ctx, co_next(ctx, it), text), "1");
                CO_EXPECT_NULL(co_next(ctx, it));
                if (!CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong[i].part))
                    test_fail(TEST_AT, "at row %zu", i);
                CO_EXPECT_CONTAINS(data_text(ctx, co_next(ctx, it), text), "3");
                CO_EXPECT_NULL(co_next(ctx, it));
                CO_EXPECT_OK(ctx);
            }
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, csv(ctx, "1,\"a\n", columns, 2, NULL))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "does not end");
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, csv(ctx, "1,a\"b\"\n", columns, 2, NULL))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "quotes inside");
    files_clean();
}

/* All that is left, with what is wrong as "!", or with its row and column as "!2.1". */
static const char *
rest_and_errors(co_context *ctx, co_iterator *iterator, bool where, char *text)
{
    data_out out = { text, 0 };

    text[0] = '\0';
    for (bool more = true; more;)
        CO_BLOCK(ctx) {
            co_value   *element = co_next(ctx, iterator);
            const char *row = where ? strstr(co_error(ctx)->message, "row ") : NULL;
            const char *column = row != NULL ? strstr(row, "column ") : NULL;

            more = element != NULL || !co_ok(ctx);
            data_put(&out, more && out.at > 0 ? " " : "");
            if (column != NULL)
                data_put(&out, "!%d.%d", atoi(row + 4), atoi(column + 7));
            else if (!co_ok(ctx))
                data_put(&out, "!");
            co_clear(ctx);
            if (element != NULL)
                data_put_value(ctx, element, &out);
        }
    return text;
}

static const struct {
    const char *text, *elements;
} strays[] = {
    { "1,5\" disk\n2,ok\n4,ok\n", "!0.1 (2,'ok') (4,'ok')" },
    { "1,5\" disk\n2,ok\n3,6\" disk\n4,ok\n", "!0.1 (2,'ok') !2.1 (4,'ok')" },
    { "1,\"5\"\" disk\"\n2,ok\n", "(1,'5\" disk') (2,'ok')" },
    { "1,\"a\r\n\"\"b\"\"\"\r\n2,\"\"\r\n3,\"\"\"\"\r\n4,d",
      "(1,'a\r\n\"b\"') !1.1 (3,'\"') (4,'d')" },
    { "1,\"a\n2,b\n3,\"c\"\n4,\"d\n", "!0.1 (2,'b') (3,'c') !3.1" },
    { "1,\"a\nb\"\n2,\"x\"\ry\n3,c\r", "(1,'a\nb') !1.1 (3,'c')" },
    { "1,\"a\n2,\"\"b\n3,\"\"\n4,d\n", "!0.1 !1.1 !2.1 (4,'d')" },
    { "\",\"\n\"\n1,a\n", "!0.0 !1.0 (1,'a')" },
    { "1,\"a\n\nb\"x\n4,d\n", "!0.1 !1.0 !2.0 (4,'d')" },
    { "1, \"a\n2,b\"\n3,c\n", "!0.1 !1.1 (3,'c')" },
};

/* A quote that is where none belongs costs its own row, wherever it lies in what is read at a time,
 * and also from a position on. */
CO_TEST(a_stray_quote_costs_one_row, "GEN-ERR-5")
{
    const co_csv_column columns[] = { { CO_INT32, NULL }, { CO_STRING, NULL } };

    for (size_t i = 0; i < sizeof(strays) / sizeof(strays[0]); ++i)
        for (int pad = 0; pad < 300; pad += pad == 0 ? 209 : pad < 256 ? 1 : 11)
            CO_BLOCK(ctx) {
                char         text[DATA_TEXT], expected[DATA_TEXT], seen[DATA_TEXT];
                co_iterator *it;
                co_dataset  *dataset;

                memset(seen, 'x', sizeof(seen));
                snprintf(text, sizeof(text), "id,%.*s\n%s", pad, seen, strays[i].text);
                dataset = csv(ctx, text, columns, 2,
                              &(co_csv_options){ .struct_size = sizeof(co_csv_options),
                                                 .header = true,
                                                 .delimiter = ',' });
                it = co_iterate(ctx, dataset);
                if (!CO_EXPECT_STR(rest_and_errors(ctx, it, true, seen), strays[i].elements))
                    test_fail(TEST_AT, "file %zu behind %d bytes", i, pad);
                if (pad > 0)
                    continue;
                for (int before = 0; before < 4; ++before) {
                    co_iterator *first = co_iterate(ctx, dataset);

                    for (int k = 0; k < before; ++k) {
                        co_next(ctx, first);
                        co_clear(ctx);
                    }
                    it = co_iterator_restore(ctx, dataset, co_iterator_save(ctx, first));
                    rest_and_errors(ctx, first, true, expected);
                    CO_EXPECT_STR(rest_and_errors(ctx, it, true, seen), expected);
                }
            }
    files_clean();
}

static co_dataset *
rows_of_name(co_context *ctx, co_value *name, void *user)
{
    const char *text = co_string_at(ctx, name, 0, NULL);

    return co_dataset_csv(ctx, &text, 1, user, 2, NULL);
}

/* So do those of files that are read side by side, each at its place. */
CO_TEST(stray_quotes_in_files_side_by_side, "GEN-ERR-5")
{
    co_csv_column         columns[] = { { CO_INT32, NULL }, { CO_STRING, NULL } };
    co_interleave_options options = CO_INTERLEAVE_OPTIONS_INIT;
    char                  path[FILES_PATH], pattern[FILES_PATH], text[DATA_TEXT];
    const char           *names[] = { files_path("s?", pattern) };
    co_value *row[] = { co_spec(ctx, CO_INT32, NULL, 0), co_spec(ctx, CO_STRING, NULL, 0) };

    files_write(files_path("s0", path), "1,5\" a\n2,b\n3,\"c\n", 16);
    files_write(files_path("s1", path), "4,a\n5,\"b\n6,\"c\"\n", 15);
    options.cycle_length = 2;
    options.opens_files = true;
    for (options.num_parallel_calls = 0; options.num_parallel_calls < 3;
         options.num_parallel_calls += 2)
        CO_EXPECT_STR(
            rest_and_errors(ctx,
                            co_iterate(ctx,
                                       co_dataset_interleave(
                                           ctx, co_dataset_list_files(ctx, names, 1, NULL),
                                           rows_of_name, columns, co_tuple(ctx, row, 2), &options)),
                            true, text),
            "!0.1 (2,'b') (4,'a') !2.1 !1.1 (6,'c')");
    files_clean();
}

static co_value *
but_two(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) == 2 ? (co_fail(ctx, CO_DATA_LOSS, "two"), NULL) : x;
}

/* What is lost of a batch that fails is the same whatever failed: what came before in that
 * batch. */
CO_TEST(batches_that_fail_lose_what_came_before, "DS-ITER-8")
{
    static const struct {
        int64_t     first, size;
        const char *rows, *story;
    } batches[] = {
        { 1, 2, "1\nx\n3\n4\n", "! ([3,4])" },
        { 0, 2, "0\n1\nx\n3\n4\n", "([0,1]) ! ([3,4])" },
        { 0, 4, "0\n1\nx\n3\n4\n", "! ([3,4])" },
        { 2, 3, "x\n3\n4\n", "! ([3,4])" },
    };
    const co_csv_column column = { CO_INT64, NULL };
    char                text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); ++i) {
        co_dataset *numbers = co_dataset_map(ctx, co_dataset_range(ctx, batches[i].first, 5, 1),
                                             but_two, NULL, NULL);
        co_dataset *map = co_dataset_zip(ctx, &numbers, 1);
        co_dataset *rows = csv(ctx, batches[i].rows, &column, 1, NULL);
        co_dataset *all[] = { co_dataset_batch(ctx, map, batches[i].size, false),
                              co_dataset_batch(ctx, rows, batches[i].size, false),
                              co_dataset_padded_batch(ctx, map, batches[i].size, NULL),
                              co_dataset_padded_batch(ctx, rows, batches[i].size, NULL) };

        for (size_t k = 0; k < 4; ++k) {
            CO_EXPECT_STR(rest_and_errors(ctx, co_iterate(ctx, all[k]), false, text),
                          batches[i].story);
        }
    }
    files_clean();
}

/* Rows that are longer than what is read ahead, and more of them than fit in a window. */
CO_TEST(many_and_long_rows, "")
{
    const co_csv_column columns[] = { { CO_INT64, NULL }, { CO_STRING, NULL } };
    size_t              at = 0, capacity = 2000000;
    char               *text = malloc(capacity);
    int64_t             seen = 0;
    co_dataset         *dataset;

    for (int i = 0; i < 3000; ++i) {
        size_t n = i % 1000 == 7 ? 300000 : (size_t)i % 50;

        at += (size_t)snprintf(text + at, capacity - at, "%d,", i);
        memset(text + at, 'x', n + 1);
        at += n + 1;
        text[at++] = '\n';
    }
    text[at] = '\0';
    dataset = csv(ctx, text, columns, 2, NULL);
    CO_EACH(ctx, batch, co_iterate(ctx, co_dataset_batch(ctx, dataset, 128, false)))
        for (int64_t i = 0; i < co_value_num_elements(ctx, co_at(ctx, batch, 0)); ++i, ++seen) {
            size_t n;

            co_string_at(ctx, co_at(ctx, batch, 1), i, &n);
            CO_EXPECT_INT(((const int64_t *)co_value_data(ctx, co_at(ctx, batch, 0)))[i], seen);
            CO_EXPECT_INT(n, 1 + (seen % 1000 == 7 ? 300000 : seen % 50));
        }
    CO_EXPECT_INT(seen, 3000);
    free(text);
    files_clean();
}

CO_TEST(wrong_arguments_of_csv, "")
{
    const co_csv_column good = { CO_INT64, NULL }, bad = { CO_BOOL, NULL };
    const co_csv_column text = { CO_INT64, co_string(ctx, "x") };
    const co_csv_column several = { CO_INT64,
                                    co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 1, 2 }) };
    co_csv_options      options = CO_CSV_OPTIONS_INIT;
    co_file_options     file = files_options((co_compression)7);

    CO_EXPECT_NULL(csv(ctx, "", NULL, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "columns) is NULL");
    CO_EXPECT_NULL(csv(ctx, "", &good, 0, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "columns) is empty");
    CO_EXPECT_NULL(csv(ctx, "", &bad, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "column 0 is to be bool");
    CO_EXPECT_NULL(csv(ctx, "", (co_csv_column[]){ good, text }, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "argument 4 (columns): what stands for an empty field of column 1: ");
    CO_EXPECT_NULL(csv(ctx, "", (co_csv_column[]){ good, several }, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "of column 1 is 2 elements of int64; it must be one of int64");
    options.delimiter = '"';
    CO_EXPECT_NULL(csv(ctx, "", &good, 1, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "delimiter is byte 34");
    options.delimiter = ',';
    options.file = &file;
    CO_EXPECT_NULL(csv(ctx, "", &good, 1, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "compression is 7");
    CO_EXPECT_NULL(co_dataset_csv(ctx, NULL, 1, &good, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "files) is NULL");
    files_clean();
}

CO_TEST(csv_files_are_shared_out_whole, "DS-SHARD-2")
{
    const co_csv_column column = { CO_INT64, NULL };
    char                paths[3][FILES_PATH], text[DATA_TEXT];
    const char         *names[3];
    co_dataset         *dataset;

    for (int i = 0; i < 3; ++i) {
        snprintf(text, sizeof(text), "%d\n%d\n", 10 * i, 10 * i + 1);
        names[i] = files_path(i == 0 ? "0" : i == 1 ? "1" : "2", paths[i]);
        files_write(names[i], text, strlen(text));
    }
    dataset = co_dataset_csv(ctx, names, 3, &column, 1, NULL);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 2, 0), 9, text),
                  "(0) (1) (20) (21)");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 2, 1), 9, text),
                  "(10) (11)");
    files_clean();
}

/* --- list_files --- */

CO_TEST(names_are_sorted_or_in_the_order_of_a_seed, "")
{
    static const char *const names[] = { "b.txt", "a.txt", "B.txt", "c.bin", "d.txt" };
    co_list_files_options    options = CO_LIST_FILES_OPTIONS_INIT;
    char path[FILES_PATH], patterns[2][FILES_PATH], sorted[DATA_TEXT], expected[DATA_TEXT],
        orders[4][DATA_TEXT];
    const char *both[] = { files_path("*.txt", patterns[0]), files_path("?.*", patterns[1]) };
    int         same = 0;

    for (int i = 0; i < 5; ++i)
        files_write(files_path(names[i], path), "", 0);
    data_elements(ctx, co_dataset_list_files(ctx, both, 1, NULL), 9, sorted);
    snprintf(expected, sizeof(expected), "'%s/B.txt' '%s/a.txt' '%s/b.txt' '%s/d.txt'",
             files_folder, files_folder, files_folder, files_folder);
    CO_EXPECT_STR(sorted, expected);
    CO_EXPECT_INT(co_cardinality(ctx, co_dataset_list_files(ctx, both, 2, NULL)), 5);
    options.shuffle = true;
    for (int i = 0; i < 4; ++i) {
        options.seed = (uint64_t)i / 2;
        data_elements(ctx, co_dataset_list_files(ctx, both, 2, &options), 9, orders[i]);
        same += strcmp(orders[i], sorted) == 0;
    }
    CO_EXPECT_STR(orders[0], orders[1]);
    CO_EXPECT_STR(orders[2], orders[3]);
    CO_EXPECT_TRUE(strcmp(orders[0], orders[2]) != 0);
    CO_EXPECT_LESS(same, 3);
    files_clean();
}

static co_dataset *
lines_of(co_context *ctx, co_value *name, void *user)
{
    const char *path = co_string_at(ctx, name, 0, NULL);

    (void)user;
    return co_dataset_text_lines(ctx, &path, 1, NULL);
}

/* Workers get the same files whatever their seeds are, as far as names are shuffled at all. */
CO_TEST(a_shuffle_of_names_goes_behind_the_shard, "DS-SHARD-18 DS-SHARD-3")
{
    char                  path[FILES_PATH], pattern[FILES_PATH], lines[2][DATA_TEXT], line[8];
    const char           *names = files_path("*.lines", pattern);
    co_list_files_options list = CO_LIST_FILES_OPTIONS_INIT;
    co_flat_map_options   options = CO_FLAT_MAP_OPTIONS_INIT;
    co_value             *spec = co_spec(ctx, CO_STRING, NULL, 0);
    int                   others = 0;

    for (int i = 0; i < 8; ++i) {
        snprintf(line, sizeof(line), "%d.lines", i);
        files_write(files_path(line, path), line, 1);
    }
    options.opens_files = true;
    list.shuffle = true;
    for (uint64_t seed = 0; seed < 4; ++seed)
        for (int w = 0; w < 2; ++w) {
            co_dataset *listed, *mine;
            int         seen = 0;

            list.seed = 10 * seed + (uint64_t)w; /* another on every worker */
            listed = co_dataset_list_files(ctx, &names, 1, &list);
            mine = co_dataset_auto_shard(
                ctx, co_dataset_flat_map_with(ctx, listed, lines_of, NULL, spec, &options), 2, w);
            CO_EACH(ctx, x, co_iterate(ctx, mine))
                seen |= 1 << (co_string_at(ctx, x, 0, NULL)[0] - '0');
            CO_EXPECT_INT(seen, w == 0 ? 0x55 : 0xaa);
            data_elements(ctx, mine, 9, lines[w]);
            others += strcmp(lines[w], w == 0 ? "'0' '2' '4' '6'" : "'1' '3' '5' '7'") != 0;
        }
    CO_EXPECT_MORE(others, 4); /* shuffled all the same */
    files_clean();
}

CO_TEST(patterns_without_a_file_are_refused, "")
{
    const char *none[] = { "/no/such/place/*", NULL };

    CO_EXPECT_NULL(co_dataset_list_files(ctx, none, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no file matches '/no/such/place/*'");
    CO_EXPECT_NULL(co_dataset_list_files(ctx, none, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pattern 1 is NULL");
    CO_EXPECT_NULL(co_dataset_list_files(ctx, NULL, 0, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "0 patterns");
    CO_EXPECT_NULL(co_dataset_list_files(ctx, NULL, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "patterns) is NULL");
}

static bool
read_with_little_memory(co_context *ctx)
{
    const co_csv_column columns[] = { { CO_INT64, co_int(ctx, -1) },
                                      { CO_STRING, co_string(ctx, "none") } };
    co_csv_options      options = CO_CSV_OPTIONS_INIT;
    int                 seen = 0;

    options.na_value = "?";
    CO_EACH(ctx, batch,
            co_iterate(ctx, co_dataset_batch(ctx, csv(ctx, "1,a\n,b\n3,?\n", columns, 2, &options),
                                             2, false)))
        seen += (int)co_value_num_elements(ctx, co_at(ctx, batch, 0));
    return co_ok(ctx) && seen == 3;
}

CO_TEST_BARE(want_of_memory_in_csv, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, read_with_little_memory);
    files_clean();
}
