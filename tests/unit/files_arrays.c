/* SPDX-License-Identifier: Apache-2.0 */
/* .npy and .npz: heads that are read with care, mapping, damage. Values recorded from NumPy are
 * compared by the golden runner. */
#include "files_support.h"

/* An array file: a head of version 1 and so many bytes of data, counting up. */
static const char *
write_npy(const char *head, size_t nbytes, char *path)
{
    unsigned char bytes[2000] = "\x93NUMPY\x01";
    size_t        n = strlen(head);

    bytes[8] = (unsigned char)n;
    bytes[9] = (unsigned char)(n >> 8);
    memcpy(bytes + 10, head, n);
    for (size_t i = 0; i < nbytes; ++i)
        bytes[10 + n + i] = (unsigned char)(i % 8 == 0 ? i / 8 + 1 : 0);
    files_write(files_path("a.npy", path), bytes, 10 + n + nbytes);
    return path;
}

static const struct {
    const char *head;
    size_t      nbytes;
    const char *text; /* of the array; NULL: refused */
} heads[] = {
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n", 24, "[1,2,3]" },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n", 30, "[1,2,3]" },
    { "{\"shape\":(1,3),\"descr\":\"<i8\",\"fortran_order\":True}", 24, "[[1,2,3]]" },
    { "{'descr': '=i8', 'fortran_order': False, 'shape': (3L,), }", 24, "[1,2,3]" },
    { "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }", 32, "[[1,3],[2,4]]" },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", 8, "1" },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }", 0, "[]" },
    { "{'descr': '|b1', 'fortran_order': False, 'shape': (9,), }", 9, "[1,0,0,0,0,0,0,0,1]" },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", 23, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3), }", 24, "[1,2,3]" },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (-3,), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3,, }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': 0, 'shape': (3,), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), 'more': 1}", 24, NULL },
    { "{'descr': '<i8' 'fortran_order': False, 'shape': (3,), }", 24, NULL },
    { "{'descr': '<i8, 'fortran_order': False, 'shape': (3,), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)", 24, NULL },
    { "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (3,), }", 24, NULL },
    { "{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", 24, NULL },
    { "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", 24, NULL },
    { "{'descr': '', 'fortran_order': False, 'shape': (3,), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999,), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (9999999999,9999999999), }", 24, NULL },
    { "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }", 24, NULL },
    { "", 0, NULL },
};

CO_TEST(heads_of_arrays, "GEN-ERR-5")
{
    char path[FILES_PATH], text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); ++i)
        for (int map = 0; map < 2; ++map)
            CO_BLOCK(ctx) {
                co_array_options options = CO_ARRAY_OPTIONS_INIT;
                co_value        *array;

                options.map = map == 1;
                array = co_load_npy(ctx, write_npy(heads[i].head, heads[i].nbytes, path), &options);
                if (heads[i].text != NULL)
                    CO_EXPECT_STR(data_text(ctx, array, text), heads[i].text);
                else if (!CO_EXPECT_ERROR(ctx, CO_VALUE, "a.npy"))
                    test_fail(TEST_AT, "at %s", heads[i].head);
            }
    files_clean();
}

CO_TEST(versions_of_the_format, "GEN-ERR-5")
{
    static const char head[] = "{'descr': '<i2', 'fortran_order': False, 'shape': (1,), }";
    unsigned char     bytes[200] = "\x93NUMPY\x02";
    char              path[FILES_PATH], text[DATA_TEXT];

    bytes[8] = sizeof(head) - 1;
    memcpy(bytes + 12, head, sizeof(head) - 1);
    bytes[12 + sizeof(head) - 1] = 77;
    files_write(files_path("v2.npy", path), bytes, 12 + sizeof(head) - 1 + 2);
    CO_EXPECT_STR(data_text(ctx, co_load_npy(ctx, path, NULL), text), "[77]");
    bytes[10] = 1; /* a head of 64 KiB and more */
    files_write(path, bytes, sizeof(bytes));
    CO_EXPECT_NULL(co_load_npy(ctx, path, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE, "head of the array has");
    bytes[6] = 9;
    files_write(path, bytes, sizeof(bytes));
    CO_EXPECT_NULL(co_load_npy(ctx, path, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE, "version 9");
    CO_EXPECT_NULL(co_load_npy(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path");
    CO_EXPECT_NULL(co_load_npz(ctx, ""));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path");
    CO_EXPECT_NULL(co_load_npy(ctx, ".", NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "directory");
    files_clean();
}

/* Every byte of an archive changed in turn, and every prefix of it: arrays or CO_VALUE. */
CO_TEST(changed_and_cut_archives, "GEN-ERR-5")
{
    static const char *const names[] = { "bundle.npz", "bundle_compressed.npz" };
    char                     from[FILES_PATH], path[FILES_PATH];
    int                      refused = 0;
    bool                     has_zlib = files_has_zlib();

    for (size_t k = 0; k < 2; ++k) {
        size_t n;
        char  *bytes = files_read(files_golden(names[k], from), &n);

        files_path("changed.npz", path);
        for (size_t i = 0; i < 2 * n; ++i)
            CO_BLOCK(ctx) {
                size_t length = i < n ? n : i - n;

                bytes[i % n] = (char)(bytes[i % n] ^ (i < n ? 0x55 : 0));
                files_write(path, bytes, length);
                bytes[i % n] = (char)(bytes[i % n] ^ (i < n ? 0x55 : 0));
                if (co_load_npz(ctx, path) == NULL) {
                    co_code code = co_error(ctx)->code;

                    CO_EXPECT_TRUE(code == CO_VALUE || (!has_zlib && code == CO_UNIMPLEMENTED));
                    co_clear(ctx);
                    ++refused;
                }
            }
        free(bytes);
    }
    CO_EXPECT_MORE(refused, 500);
    files_clean();
}

static bool
load_with_little_memory(co_context *ctx)
{
    co_array_options options = CO_ARRAY_OPTIONS_INIT;
    char             path[FILES_PATH];

    options.map = true;
    return co_load_npz(ctx, files_golden("bundle.npz", path)) != NULL &&
           co_load_npy(ctx, files_golden("f8_fortran_3d.npy", path), NULL) != NULL &&
           co_load_npy(ctx, files_golden("f8_1d.npy", path), &options) != NULL;
}

CO_TEST_BARE(want_of_memory_in_arrays, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, load_with_little_memory);
}
