/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Record files, lines and fixed-length records as datasets, and writing records. Values recorded
 * from TensorFlow are compared by the golden runner; here are damage, sizes that hurt, sharing out,
 * and want of memory.
 */
#include "files_support.h"

static co_dataset *
tfrecord(co_context *ctx, const char *path, co_compression compression)
{
    co_file_options options = files_options(compression);

    return co_dataset_tfrecord(ctx, &path, 1, &options);
}

/* --- GEN-ERR-5 --- */

static const struct {
    const char    *file;
    co_compression compression;
    int            intact; /* records before the error */
    co_code        code;
    const char    *part;
} damages[] = {
    { "does_not_exist.tfrecord", CO_COMPRESSION_NONE, 0, CO_NOT_FOUND, "No such file" },
    { "plain.tfrecord/x", CO_COMPRESSION_NONE, 0, CO_NOT_FOUND, "Not a directory" },
    { "bad_length_crc_first.tfrecord", CO_COMPRESSION_NONE, 0, CO_DATA_LOSS,
      "record 0 at offset 0" },
    { "bad_length_crc.tfrecord", CO_COMPRESSION_NONE, 1, CO_DATA_LOSS, "record 1 at offset 28" },
    { "bad_length.tfrecord", CO_COMPRESSION_NONE, 1, CO_DATA_LOSS, "checksum of the length" },
    { "bad_data_crc.tfrecord", CO_COMPRESSION_NONE, 1, CO_DATA_LOSS, "14 bytes of data is wrong" },
    { "bad_data.tfrecord", CO_COMPRESSION_NONE, 1, CO_DATA_LOSS, "checksum" },
    { "truncated_in_data.tfrecord", CO_COMPRESSION_NONE, 2, CO_DATA_LOSS, "cut off" },
    { "truncated_after_header.tfrecord", CO_COMPRESSION_NONE, 2, CO_DATA_LOSS,
      "record 2 at offset 58" },
    { "truncated_in_footer.tfrecord", CO_COMPRESSION_NONE, 2, CO_DATA_LOSS, "cut off" },
    { "truncated_in_header.tfrecord", CO_COMPRESSION_NONE, 2, CO_OK, "" },
    { "truncated_in_length_crc.tfrecord", CO_COMPRESSION_NONE, 2, CO_OK, "" },
    { "empty.tfrecord", CO_COMPRESSION_NONE, 0, CO_OK, "" },
    { "examples.tfrecord.gz", CO_COMPRESSION_NONE, 0, CO_DATA_LOSS, "is this a TFRecord file" },
    { "examples.tfrecord", CO_COMPRESSION_GZIP, 0, CO_DATA_LOSS, "not a GZIP stream" },
    { "examples.tfrecord", CO_COMPRESSION_ZLIB, 0, CO_DATA_LOSS, "not a ZLIB stream" },
    { "examples.tfrecord.gz", CO_COMPRESSION_ZLIB, 0, CO_DATA_LOSS, "not a ZLIB stream" },
    { "", CO_COMPRESSION_NONE, 0, CO_INVALID_ARGUMENT, "directory" },
};

/* Each damaged file stands before a good one: the intact records, the error, and the records of the
 * next file. */
CO_TEST(damage_is_found_after_the_intact_records, "GEN-ERR-5 DS-ITER-8")
{
    bool has_zlib = files_has_zlib();

    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); ++i)
        CO_BLOCK(ctx) {
            bool            readable = has_zlib || damages[i].compression == CO_COMPRESSION_NONE;
            char            paths[2][FILES_PATH];
            const char     *files[] = { files_golden(damages[i].file, paths[0]),
                                        files_golden("one.tfrecord", paths[1]) };
            co_file_options options = files_options(damages[i].compression);
            co_iterator    *it = co_iterate(ctx, co_dataset_tfrecord(ctx, files, 2, &options));
            int             seen = 0;

            while (co_next(ctx, it) != NULL)
                ++seen;
            CO_EXPECT_INT(seen, damages[i].intact + (damages[i].code == CO_OK));
            if (damages[i].code != CO_OK) {
                if (!CO_EXPECT_ERROR(ctx, readable ? damages[i].code : CO_UNIMPLEMENTED,
                                     readable ? damages[i].part : "without zlib"))
                    test_fail(TEST_AT, "at %s", damages[i].file);
                if (damages[i].compression == CO_COMPRESSION_NONE)
                    CO_EXPECT_STR(co_string_at(ctx, co_next(ctx, it), 0, NULL), "only");
                else
                    co_next(ctx, it), co_clear(ctx); /* the next file is not compressed */
            }
            CO_EXPECT_NULL(co_next(ctx, it));
            CO_EXPECT_OK(ctx);
        }
}

/* In batches: the batch that the damage falls into is lost, as it is in the reference; those before
 * it are not. */
CO_TEST(damage_in_batches_keeps_whole_batches, "GEN-ERR-5")
{
    char         path[FILES_PATH];
    co_dataset  *records = tfrecord(ctx, files_golden("truncated_in_data.tfrecord", path), 0);
    co_iterator *it = co_iterate(ctx, co_dataset_batch(ctx, records, 2, false));

    CO_EXPECT_INT(co_value_num_elements(ctx, co_next(ctx, it)), 2);
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "cut off");
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_OK(ctx);
}

CO_TEST(fixed_length_bodies_are_multiples, "GEN-ERR-5")
{
    static const struct {
        int64_t record, header, footer;
        int     count;
    } cases[] = {
        { 4, 3, 0, 5 },  { 5, 0, 3, 4 },  { 23, 0, 0, 1 },   { 1, 0, 0, 23 },
        { 7, 0, 0, -1 }, { 4, 0, 0, -1 }, { 5, 20, 20, -1 }, { 9, 20, 3, 0 },
    };
    char        path[FILES_PATH];
    const char *file = files_golden("fixed.bin", path);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        CO_BLOCK(ctx) {
            co_dataset *dataset = co_dataset_fixed_length_records(
                ctx, &file, 1, cases[i].record,
                &(co_fixed_length_options){ sizeof(co_fixed_length_options), NULL, cases[i].header,
                                            cases[i].footer });
            co_iterator *it = co_iterate(ctx, dataset);
            int          seen = 0;

            while (co_next(ctx, it) != NULL)
                ++seen;
            CO_EXPECT_INT(seen, cases[i].count > 0 ? cases[i].count : 0);
            if (cases[i].count < 0)
                CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a multiple");
            CO_EXPECT_OK(ctx);
        }
    CO_EXPECT_NULL(co_dataset_fixed_length_records(ctx, &file, 1, 0, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "records of 0 bytes");
    CO_EXPECT_NULL(co_dataset_fixed_length_records(
        ctx, &file, 1, 1,
        &(co_fixed_length_options){ sizeof(co_fixed_length_options), NULL, -1, 0 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "header of -1");
    CO_EXPECT_NULL(co_dataset_fixed_length_records(
        ctx, &file, 1, 1,
        &(co_fixed_length_options){ sizeof(co_fixed_length_options), NULL, INT64_MAX, 0 }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "a header of 9223372036854775807 bytes; it has 0 to 2305843009213693951");
    CO_EXPECT_NULL(co_dataset_fixed_length_records(
        ctx, &file, 1, 1,
        &(co_fixed_length_options){ sizeof(co_fixed_length_options), NULL, 0, INT64_MAX }));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "a footer of 9223372036854775807 bytes; it has 0 to 2305843009213693951");
    CO_EXPECT_NULL(co_dataset_fixed_length_records(ctx, &file, 1, INT64_MAX, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "one has 1 to 2305843009213693951");
}

CO_TEST(examples_that_are_none_or_differ, "GEN-ERR-5")
{
    static const char *const keys[] = { "id", "vals" };
    co_value *const items[] = { co_scalar_int64(ctx, 7), co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3),
                                                                   (const float[]){ 1, 2, 3 }) };
    co_value       *bytes = co_example_encode(ctx, co_dict(ctx, keys, items, 2));
    static const int64_t two[] = { 2 };
    const struct {
        co_feature  feature;
        const char *part;
    } wrong[] = {
        { { "missing", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL }, "no feature 'missing'" },
        { { "id", CO_FEATURE_FIXED, CO_FLOAT32, NULL, 0, NULL }, "holds int64, not float32" },
        { { "vals", CO_FEATURE_FIXED, CO_FLOAT32, two, 1, NULL },
          "has 3 values; its shape wants 2" },
        { { "vals", CO_FEATURE_SEQUENCE, CO_FLOAT32, two, 1, NULL }, "a multiple of 2" },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        CO_EXPECT_NULL(co_parse_example(ctx, bytes, &wrong[i].feature, 1));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong[i].part);
    }
    CO_EXPECT_NULL(co_parse_example(ctx, co_bytes(ctx, "\xff\xffgarbage", 9), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no tf.Example");
    CO_EXPECT_NULL(co_example_decode(ctx, co_bytes(ctx, "\x0a\x7f", 2)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no tf.Example");
}

CO_TEST(array_files_that_cannot_be_read, "GEN-ERR-5")
{
    char path[FILES_PATH];

    CO_EXPECT_NULL(co_load_npy(ctx, files_golden("bad_magic.npy", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "magic");
    CO_EXPECT_NULL(co_load_npy(ctx, files_golden("short.npy", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "cut off: 27 of 32 bytes");
    CO_EXPECT_NULL(co_load_npy(ctx, files_golden("empty.txt", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "cut off");
    CO_EXPECT_NULL(co_load_npy(ctx, files_golden("none.npy", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "none.npy");
    CO_EXPECT_NULL(co_load_npz(ctx, files_golden("f4_c.npy", path)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no directory");
    CO_EXPECT_NULL(co_load_npz(ctx, files_golden("none.npz", path)));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "none.npz");
}

/* --- writing and reading back --- */

/* Sizes that hurt: nothing, one, around the window that is read ahead, more than it, many. */
static const size_t sizes[] = { 0,      1, 7, 1000,   1001,   65535,  262131, 262144,  12, 300000,
                                262144, 0, 5, 100000, 100000, 100000, 3,      1000000, 1,  40000 };
enum { NUM_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void
write_sizes(co_context *ctx, const char *path, co_compression compression, size_t rounds)
{
    co_file_options   options = files_options(compression);
    co_record_writer *writer = co_record_writer_open(ctx, path, &options);
    unsigned char    *bytes = malloc(1000000);

    for (size_t i = 0; i < rounds * NUM_SIZES; ++i) {
        files_fill(bytes, sizes[i % NUM_SIZES], i);
        co_record_write(ctx, writer, bytes, sizes[i % NUM_SIZES]);
    }
    free(bytes);
    CO_EXPECT_CODE(co_record_writer_close(ctx, writer), CO_OK);
}

/* Records from number `at` on are what was written; returns how many there were. */
static size_t
expect_records(co_context *ctx, co_value *records, size_t at)
{
    size_t         n = (size_t)co_value_num_elements(ctx, records);
    unsigned char *bytes = malloc(1000000);

    for (size_t i = 0; i < n; ++i) {
        size_t      nbytes;
        const char *got = co_string_at(ctx, records, (int64_t)i, &nbytes);
        size_t      expected = sizes[(at + i) % NUM_SIZES];

        CO_EXPECT_INT(nbytes, expected);
        files_fill(bytes, expected, at + i);
        CO_EXPECT_BYTES(got, bytes, expected);
        CO_EXPECT_INT(got[nbytes], 0);
    }
    free(bytes);
    return n;
}

static void
read_sizes(co_context *ctx, co_dataset *dataset, size_t total)
{
    co_iterator *it = co_iterate(ctx, dataset);
    size_t       seen = 0;

    CO_EACH(ctx, element, it)
        seen += expect_records(ctx, element, seen);
    CO_EXPECT_INT(seen, total);
    CO_EXPECT_OK(ctx);
}

CO_TEST(records_come_back_alone_and_in_batches_of_any_size, "")
{
    static const int64_t batches[] = { 1, 2, 7, 20, 64, 100000 };
    char                 path[FILES_PATH];
    co_compression       last = files_has_zlib() ? CO_COMPRESSION_ZLIB : CO_COMPRESSION_NONE;

    for (co_compression c = CO_COMPRESSION_NONE; c <= last; ++c)
        CO_BLOCK(ctx) {
            co_dataset *dataset = tfrecord(ctx, files_path("sizes", path), c);

            write_sizes(ctx, path, c, 3);
            read_sizes(ctx, dataset, 3 * NUM_SIZES);
            for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); ++i)
                read_sizes(ctx, co_dataset_batch(ctx, dataset, batches[i], false), 3 * NUM_SIZES);
        }
    files_clean();
}

/* Many records of one length: batches have the exact room; the window is of the caller's size. */
CO_TEST(equal_records_in_small_windows, "")
{
    static const size_t windows[] = { 1, 13, 64, 1000, 1 << 20 };
    char                path[FILES_PATH];
    const char         *file = files_path("equal", path);
    co_record_writer   *writer = co_record_writer_open(ctx, file, NULL);
    char                record[100];

    for (int i = 0; i < 1000; ++i) {
        snprintf(record, sizeof(record), "%04d", i);
        CO_EXPECT_CODE(co_record_write(ctx, writer, record, sizeof(record)), CO_OK);
    }
    CO_EXPECT_CODE(co_record_writer_close(ctx, writer), CO_OK);
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); ++w) {
        co_file_options options = CO_FILE_OPTIONS_INIT;
        co_dataset     *dataset;
        int             seen = 0;

        options.buffer_bytes = windows[w];
        dataset = co_dataset_batch(ctx, co_dataset_tfrecord(ctx, &file, 1, &options), 33, false);
        CO_EACH(ctx, batch, co_iterate(ctx, dataset))
            for (int64_t i = 0; i < co_value_num_elements(ctx, batch); ++i, ++seen)
                CO_EXPECT_INT(atoi(co_string_at(ctx, batch, i, NULL)), seen);
        CO_EXPECT_INT(seen, 1000);
    }
    files_clean();
}

CO_TEST(lines_of_any_length, "")
{
    char        path[FILES_PATH];
    const char *file = files_path("lines", path);
    size_t      length = 0, lengths[] = { 0, 1, 255, 256, 257, 5000, 300000, 0, 0, 3 };
    char       *text = malloc(400000);
    co_dataset *dataset = co_dataset_text_lines(ctx, &file, 1, NULL);
    const int   batches[] = { 0, 1, 3, 100 };

    for (size_t i = 0; i < 10; ++i) {
        memset(text + length, 'a' + (int)i, lengths[i]);
        length += lengths[i];
        if (i % 2 == 1)
            text[length++] = '\r';
        if (i < 9)
            text[length++] = '\n';
    }
    files_write(file, text, length);
    for (size_t b = 0; b < 4; ++b) {
        int64_t seen = 0;

        CO_EACH(ctx, lines,
                co_iterate(ctx, batches[b] > 0 ? co_dataset_batch(ctx, dataset, batches[b], false)
                                               : dataset))
            for (int64_t i = 0; i < co_value_num_elements(ctx, lines); ++i, ++seen) {
                size_t      n;
                const char *line = co_string_at(ctx, lines, i, &n);

                CO_EXPECT_INT(n, lengths[seen]);
                CO_EXPECT_TRUE(n == 0 || line[n - 1] == 'a' + (int)seen);
                CO_EXPECT_INT(line[n], 0);
            }
        CO_EXPECT_INT(seen, 10);
    }
    free(text);
    files_clean();
}

/* As in TensorFlow: anywhere in a line, and alone at the end of a file they are no line. */
CO_TEST(lines_have_no_carriage_returns, "")
{
    static const struct {
        const char *bytes, *lines;
    } cases[] = {
        { "a\rb\r\nc\r\r\nd\n\r\ne\r", "'ab' 'c' 'd' '' 'e'" },
        { "\r", "" },
        { "a\n\r\r", "'a'" },
        { "\r\n", "''" },
        { "a\n\rb", "'a' 'b'" },
    };
    char        path[FILES_PATH], text[DATA_TEXT];
    const char *file = files_path("returns", path);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        files_write(file, cases[i].bytes, strlen(cases[i].bytes));
        CO_EXPECT_STR(data_elements(ctx, co_dataset_text_lines(ctx, &file, 1, NULL), 20, text),
                      cases[i].lines);
        CO_EXPECT_OK(ctx);
    }
    files_clean();
}

CO_TEST(fixed_records_in_batches_and_compressed, "")
{
    char          path[FILES_PATH];
    const char   *file = files_path("fixed", path);
    unsigned char body[1003];
    co_dataset   *dataset;
    int           seen = 0;

    files_fill(body, sizeof(body), 0);
    files_write(file, body, sizeof(body));
    dataset = co_dataset_fixed_length_records(ctx, &file, 1, 10,
                                              &(co_fixed_length_options){
                                                  sizeof(co_fixed_length_options), NULL, 2, 1 });
    CO_EACH(ctx, batch, co_iterate(ctx, co_dataset_batch(ctx, dataset, 7, false)))
        for (int64_t i = 0; i < co_value_num_elements(ctx, batch); ++i, ++seen) {
            CO_EXPECT_BYTES(co_string_at(ctx, batch, i, NULL), body + 2 + 10 * seen, 10);
            CO_EXPECT_INT(co_string_at(ctx, batch, i, NULL)[10], 0);
        }
    CO_EXPECT_INT(seen, 100);
    files_clean();
}

/* A compressed body says how long it is only at its end: the records come first, then the error. */
CO_TEST(compressed_fixed_records_that_do_not_fit, "GEN-ERR-5")
{
    co_file_options options = files_options(CO_COMPRESSION_GZIP);
    char            path[FILES_PATH];
    const char     *file = files_golden("examples.tfrecord.gz", path);
    co_iterator    *it;
    int             seen = 0;

    if (!files_has_zlib())
        CO_SKIP("zlib");
    it = co_iterate(ctx, co_dataset_fixed_length_records(ctx, &file, 1, 100,
                                                         &(co_fixed_length_options){
                                                             sizeof(co_fixed_length_options),
                                                             &options, 0, 0 }));
    while (co_next(ctx, it) != NULL)
        ++seen;
    CO_EXPECT_INT(seen, 9);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "5 bytes are left");
    it = co_iterate(ctx, co_dataset_fixed_length_records(ctx, &file, 1, 100,
                                                         &(co_fixed_length_options){
                                                             sizeof(co_fixed_length_options),
                                                             &options, 0, 5 }));
    for (seen = 0; co_next(ctx, it) != NULL; ++seen)
        continue;
    CO_EXPECT_INT(seen, 9);
    files_clean();
}

/* --- files that change or lie --- */

CO_TEST(a_file_that_shrinks_is_an_error, "GEN-ERR-5")
{
    char         path[FILES_PATH];
    co_iterator *it = co_iterate(ctx, tfrecord(ctx, files_path("shrinks", path), 0));

    write_sizes(ctx, path, CO_COMPRESSION_NONE, 1);
    CO_EXPECT_NOT_NULL(co_next(ctx, it));
    CO_EXPECT_INT(truncate(path, 100000), 0);
    while (co_next(ctx, it) != NULL)
        continue;
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "has shrunk from");
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_OK(ctx);
    files_clean();
}

/* A length of 2^60 with a right checksum: no memory is asked for that the file cannot fill. */
CO_TEST(a_huge_length_is_damage_not_memory, "GEN-ERR-5")
{
    unsigned char head[40] = { 0, 0, 0, 0, 0, 0, 0, 0x10 };
    uint32_t      crc = co_crc32c_masked(head, 8);
    char          path[FILES_PATH];

    memcpy(head + 8, &crc, 4); /* on a machine of the other order it is simply a wrong checksum */
    files_write(files_path("huge", path), head, sizeof(head));
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, tfrecord(ctx, path, 0))));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, NULL);
    head[7] = 0xff;
    crc = co_crc32c_masked(head, 8);
    memcpy(head + 8, &crc, 4);
    files_write(path, head, sizeof(head));
    CO_EXPECT_NULL(co_next(ctx, co_iterate(ctx, tfrecord(ctx, path, 0))));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, NULL);
    files_clean();
}

/* Every prefix of a compressed file: intact records, then data loss; nothing at all is no file,
 * which ends. */
CO_TEST(a_compressed_file_that_is_cut_off, "GEN-ERR-5")
{
    char   from[FILES_PATH], path[FILES_PATH];
    size_t n;
    char  *bytes;

    if (!files_has_zlib())
        CO_SKIP("zlib");
    bytes = files_read(files_golden("examples.tfrecord.gz", from), &n);
    for (size_t cut = 0; cut <= n; cut += 1)
        CO_BLOCK(ctx) {
            co_iterator *it;
            int          seen = 0;

            files_write(files_path("cut", path), bytes, cut);
            it = co_iterate(ctx, tfrecord(ctx, path, CO_COMPRESSION_GZIP));
            while (co_next(ctx, it) != NULL)
                ++seen;
            CO_EXPECT_TRUE(seen <= 6);
            if (cut == 0 || cut == n)
                CO_EXPECT_OK(ctx);
            else
                CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, NULL);
        }
    free(bytes);
    files_clean();
}

/* gzip files may be joined by cat. */
CO_TEST(members_of_a_gzip_file_follow_each_other, "")
{
    char   from[FILES_PATH], path[FILES_PATH];
    size_t n;
    char  *bytes, *twice;
    int    seen = 0;

    if (!files_has_zlib())
        CO_SKIP("zlib");
    bytes = files_read(files_golden("examples.tfrecord.gz", from), &n);
    twice = malloc(2 * n);
    memcpy(twice, bytes, n);
    memcpy(twice + n, bytes, n);
    files_write(files_path("twice.gz", path), twice, 2 * n);
    CO_EACH(ctx, element, co_iterate(ctx, tfrecord(ctx, path, CO_COMPRESSION_GZIP)))
        ++seen;
    CO_EXPECT_INT(seen, 12);
    free(bytes);
    free(twice);
    files_clean();
}

/* --- arguments --- */

CO_TEST(arguments_of_file_datasets, "")
{
    const char     *names[] = { "a", NULL, "" };
    co_file_options options = CO_FILE_OPTIONS_INIT;
    char            text[DATA_TEXT];

    CO_EXPECT_NULL(co_dataset_tfrecord(ctx, NULL, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "files) is NULL");
    CO_EXPECT_NULL(co_dataset_tfrecord(ctx, names, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "name 1 of 2 is NULL");
    CO_EXPECT_NULL(co_dataset_text_lines(ctx, names + 2, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "empty");
    options.compression = (co_compression)9;
    CO_EXPECT_NULL(co_dataset_tfrecord(ctx, names, 1, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "compression is 9");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_tfrecord(ctx, NULL, 0, NULL), 9, text), "");
    CO_EXPECT_INT(co_cardinality(ctx, co_dataset_tfrecord(ctx, names, 1, NULL)),
                  CO_UNKNOWN_CARDINALITY);
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, co_dataset_tfrecord(ctx, names, 1, NULL)),
                            text),
                  "string[]");
}

/* DS-PREF-2: a dataset of files that are not there can be made and asked for an iterator. */
CO_TEST(files_are_opened_by_the_first_next, "DS-PREF-2")
{
    const char  *name = "no/such/file";
    co_iterator *it = co_iterate(ctx, co_dataset_tfrecord(ctx, &name, 1, NULL));

    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "tfrecord: file 0 of 1, 'no/such/file'");
}

CO_TEST(files_are_shared_out_whole, "DS-SHARD-2 DS-SHARD-5 DS-SHARD-7")
{
    char        paths[4][FILES_PATH], text[DATA_TEXT];
    const char *files[4];
    co_dataset *dataset;

    for (int i = 0; i < 4; ++i) {
        snprintf(text, sizeof(text), "auto_%d.txt", i);
        files[i] = files_golden(text, paths[i]);
    }
    dataset = co_dataset_text_lines(ctx, files, 4, NULL);
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 3, 0), 20, text),
                  "'file0 line0' 'file0 line1' 'file3 line0' 'file3 line1' 'file3 line2' 'file3 "
                  "line3'");
    CO_EXPECT_STR(data_elements(ctx, co_dataset_auto_shard(ctx, dataset, 3, 2), 20, text),
                  "'file2 line0'");
    for (int w = 0; w < 5; ++w) {
        co_iterator *it = co_iterate(ctx, co_dataset_auto_shard(ctx, dataset, 5, w));

        CO_EXPECT_OK(ctx);
        CO_EXPECT_NULL(co_next(ctx, it));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                        "4 files, fewer than the 5 workers that share them; use the policy "
                        "CO_AUTOSHARD_REPLICA or");
    }
}

/* Rows of the pieces that worker `index` of `workers` reads, two replicas in all. */
static const char *
rows_of_pieces(co_context *ctx, co_dataset *dataset, int workers, int index, char *out)
{
    co_input_context input = { workers, index, 2 };
    size_t           at = 0;

    out[0] = '\0';
    CO_EACH(ctx, piece, co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input)))
        at += (size_t)snprintf(out + at, DATA_TEXT - at, "%lld ",
                               (long long)co_value_num_elements(ctx, piece));
    return out;
}

/* Six rows in batches of four, from files and from memory. */
CO_TEST(replica_splits_files_as_memory, "DS-SPLIT-1 DS-SPLIT-2 DS-SPLIT-3")
{
    char        paths[2][FILES_PATH], text[DATA_TEXT];
    const char *files[] = { files_golden("auto_0.txt", paths[0]),
                            files_golden("auto_3.txt", paths[1]) };
    co_dataset *lines = co_dataset_batch(ctx, co_dataset_text_lines(ctx, files, 2, NULL), 4, false);
    co_dataset *memory = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 6, 1), 4, false);
    co_dataset *one = co_dataset_batch(ctx, co_dataset_text_lines(ctx, files + 1, 1, NULL), 3,
                                       false);

    CO_EXPECT_STR(rows_of_pieces(ctx, memory, 1, 0, text), "2 2 1 1 ");
    CO_EXPECT_STR(rows_of_pieces(ctx, lines, 1, 0, text), "2 2 2 "); /* as TensorFlow */
    lines = co_dataset_with_autoshard(ctx, lines, CO_AUTOSHARD_REPLICA);
    memory = co_dataset_with_autoshard(ctx, memory, CO_AUTOSHARD_REPLICA);
    CO_EXPECT_STR(rows_of_pieces(ctx, memory, 1, 0, text), "2 2 1 1 ");
    CO_EXPECT_STR(rows_of_pieces(ctx, lines, 1, 0, text), "2 2 1 1 ");
    /* One file for two workers: the repair that the error names. */
    one = co_dataset_with_autoshard(ctx, one, CO_AUTOSHARD_REPLICA);
    CO_EXPECT_STR(rows_of_pieces(ctx, one, 2, 0, text), "2 1 ");
    CO_EXPECT_STR(rows_of_pieces(ctx, one, 2, 1, text), "1 0 ");
    CO_EXPECT_OK(ctx);
}

/* --- the writer --- */

CO_TEST(wrong_use_of_a_writer, "")
{
    char              path[FILES_PATH];
    co_record_writer *writer;
    co_file_options   options = CO_FILE_OPTIONS_INIT;

    CO_EXPECT_NULL(co_record_writer_open(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path) is NULL");
    CO_EXPECT_NULL(co_record_writer_open(ctx, "no/such/folder/x", NULL));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no/such/folder/x");
    CO_EXPECT_NULL(co_record_writer_open(ctx, ".", NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "directory");
    options.compression = (co_compression)-1;
    CO_EXPECT_NULL(co_record_writer_open(ctx, files_path("w", path), &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "compression");
    writer = co_record_writer_open(ctx, path, NULL);
    CO_EXPECT_CODE(co_record_write(ctx, writer, NULL, 3), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bytes) is NULL");
    CO_EXPECT_CODE(co_record_write(ctx, NULL, "x", 1), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "writer");
    CO_EXPECT_CODE(co_record_write_value(ctx, writer, co_int(ctx, 3)), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "must be a string");
    CO_EXPECT_CODE(co_record_writer_close(ctx, writer), CO_OK);
    CO_EXPECT_CODE(co_record_writer_close(ctx, writer), CO_OK);
    CO_EXPECT_CODE(co_record_writer_flush(ctx, writer), CO_OK);
    CO_EXPECT_CODE(co_record_write(ctx, writer, "x", 1), CO_FAILED_PRECONDITION);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "was closed");
    files_clean();
}

/* The bytes of a file of one record are those that TensorFlow wrote; values are written one by
 * one. */
CO_TEST(records_are_written_as_the_reference_does, "")
{
    static const void *const texts[] = { "on", "ly" };
    static const size_t      lengths[] = { 2, 2 };
    char                     path[FILES_PATH], golden[FILES_PATH], text[DATA_TEXT];
    co_record_writer        *writer = co_record_writer_open(ctx, files_path("one", path), NULL);
    size_t                   n, expected_n;
    char *bytes, *expected = files_read(files_golden("one.tfrecord", golden), &expected_n);

    CO_EXPECT_CODE(co_record_write_value(ctx, writer, co_string(ctx, "only")), CO_OK);
    CO_EXPECT_CODE(co_record_writer_flush(ctx, writer), CO_OK);
    bytes = files_read(path, &n);
    CO_EXPECT_INT(n, expected_n);
    CO_EXPECT_BYTES(bytes, expected, n);
    free(bytes);
    free(expected);
    CO_EXPECT_CODE(co_record_write_value(ctx, writer,
                                         co_tensor_bytes(ctx, CO_SHAPE(2), texts, lengths)),
                   CO_OK);
    CO_EXPECT_CODE(co_record_writer_close(ctx, writer), CO_OK);
    CO_EXPECT_STR(data_elements(ctx, tfrecord(ctx, path, 0), 9, text), "'only' 'on' 'ly'");
    files_clean();
}

CO_TEST(a_full_disk_is_an_error_of_the_write, "")
{
    co_record_writer *writer = co_record_writer_open(ctx, "/dev/full", NULL);

    if (writer == NULL) {
        co_clear(ctx);
        CO_SKIP("/dev/full");
    }
    CO_EXPECT_CODE(co_record_write(ctx, writer, "x", 1), CO_OK);
    CO_EXPECT_CODE(co_record_writer_flush(ctx, writer), CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "/dev/full");
    CO_EXPECT_CODE(co_record_write(ctx, writer, "x", 1), CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "/dev/full");
    CO_EXPECT_CODE(co_record_writer_close(ctx, writer), CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "/dev/full");
}

/* --- want of memory --- */

static bool
write_and_read(co_context *ctx)
{
    char              path[FILES_PATH];
    const char       *file = files_path("memory", path);
    co_file_options   options = files_options(files_has_zlib() ? CO_COMPRESSION_ZLIB : 0);
    co_record_writer *writer = co_record_writer_open(ctx, file, &options);
    co_dataset       *dataset = co_dataset_tfrecord(ctx, &file, 1, &options);
    int               seen = 0;

    for (int i = 0; i < 5; ++i)
        co_record_write(ctx, writer, "some record", (size_t)i);
    co_record_writer_close(ctx, writer);
    CO_EACH(ctx, batch, co_iterate(ctx, co_dataset_batch(ctx, dataset, 2, false)))
        seen += (int)co_value_num_elements(ctx, batch);
    return co_ok(ctx) && seen == 5;
}

CO_TEST_BARE(want_of_memory_is_told, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, write_and_read);
    files_clean();
}
