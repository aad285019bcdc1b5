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
                else if (!CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "a.npy"))
                    test_fail(TEST_AT, "at %s", heads[i].head);
            }
    files_clean();
}

/* An empty array may be larger than memory in its other dimensions, as long as they can be
 * multiplied. */
CO_TEST(empty_arrays_of_large_dimensions, "")
{
    static const char *const empty[] = {
        "{'descr': '<i8', 'fortran_order': True, 'shape': (2147483648,2147483648,0), }",
        "{'descr': '<i8', 'fortran_order': True, 'shape': (4294967296,4294967296,0), }"
    };
    char      path[FILES_PATH];
    co_value *array = co_load_npy(ctx, write_npy(empty[0], 0, path), NULL);

    CO_EXPECT_INT(co_value_dim(ctx, array, 1), (int64_t)1 << 31);
    CO_EXPECT_INT(co_value_dim(ctx, array, 2), 0);
    CO_EXPECT_NULL(co_load_npy(ctx, write_npy(empty[1], 0, path), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "larger than memory");
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
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "head of the array has");
    bytes[6] = 9;
    files_write(path, bytes, sizeof(bytes));
    CO_EXPECT_NULL(co_load_npy(ctx, path, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "version 9");
    CO_EXPECT_NULL(co_load_npy(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path");
    CO_EXPECT_NULL(co_load_npz(ctx, ""));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path");
    CO_EXPECT_NULL(co_load_npy(ctx, ".", NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "directory");
    files_clean();
}

/* Every byte of an archive changed in turn, and every prefix of it: arrays or CO_VALUE_ERROR. */
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

                    CO_EXPECT_TRUE(code == CO_VALUE_ERROR ||
                                   (!has_zlib && code == CO_UNIMPLEMENTED));
                    co_clear(ctx);
                    ++refused;
                }
            }
        free(bytes);
    }
    CO_EXPECT_MORE(refused, 500);
    files_clean();
}

/* --- large archives --- */

/* The numbers of 64 bits that a large archive has, as they are written over. */
typedef enum large_number {
    LARGE_NONE,
    LARGE_MEMBERS,
    LARGE_DIRECTORY,
    LARGE_LOCATOR, /* where the record of the large directory is */
    LARGE_SIZE,
    LARGE_PACKED,
    LARGE_OFFSET,
    LARGE_COUNT
} large_number;

static char *
put_number(char *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; ++i)
        *at++ = (char)(value >> 8 * i);
    return at;
}

static uint64_t
get_number(const char *at, int nbytes)
{
    uint64_t value = 0;

    for (int i = nbytes - 1; i >= 0; --i)
        value = value << 8 | (unsigned char)at[i];
    return value;
}

/* An entry of a directory with its sizes in the field for large ones, and behind it that field. */
static char *
put_large_entry(char *at, const char *entry, large_number number, uint64_t value)
{
    size_t   name = (size_t)get_number(entry + 28, 2);
    uint64_t sizes[] = { get_number(entry + 24, 4), get_number(entry + 20, 4),
                         get_number(entry + 42, 4) };

    if (number >= LARGE_SIZE && number <= LARGE_OFFSET)
        sizes[number - LARGE_SIZE] = value;
    memcpy(at, entry, 46 + name);
    put_number(at + 20, UINT64_MAX, 8);
    put_number(at + 30, 28, 2);
    put_number(at + 42, UINT32_MAX, 4);
    at = put_number(put_number(at + 46 + name, 1, 2), 24, 2);
    for (int i = 0; i < 3; ++i)
        at = put_number(at, sizes[i], 8);
    return at;
}

/* An archive of NumPy as a large one, with a number written over; its bytes. */
static size_t
make_large(const char *from, large_number number, uint64_t value, char *to)
{
    size_t      n;
    char       *small = files_read(from, &n), *at = to, *end, *directory;
    const char *entry;
    uint64_t    members, begin;

    members = get_number(small + n - 12, 2);
    begin = get_number(small + n - 6, 4);
    memcpy(to, small, (size_t)begin);
    at = directory = to + begin;
    entry = small + begin;
    for (uint64_t i = 0; i < members; ++i) {
        at = put_large_entry(at, entry, number, value);
        entry += 46 + get_number(entry + 28, 2) + get_number(entry + 30, 2);
    }
    end = at;
    memcpy(at, "PK\6\6", 4);
    at = put_number(put_number(at + 4, 44, 8), 45 | 45 << 16, 4);
    at = put_number(at, 0, 8);
    for (int i = 0; i < 2; ++i)
        at = put_number(at, number == LARGE_MEMBERS ? value : members, 8);
    at = put_number(at, (uint64_t)(end - directory), 8);
    at = put_number(at, number == LARGE_DIRECTORY ? value : begin, 8);
    memcpy(at, "PK\6\7", 4);
    at = put_number(at + 4, 0, 4);
    at = put_number(at, number == LARGE_LOCATOR ? value : (uint64_t)(end - to), 8);
    at = put_number(at, 1, 4);
    memcpy(at, "PK\5\6", 4);
    at = put_number(at + 4, 0, 4);
    at = put_number(put_number(at, UINT64_MAX, 8), UINT32_MAX, 4);
    free(small);
    return (size_t)(put_number(at, 0, 2) - to);
}

/* Numbers that a file cannot have, as signed ones negative or wrapping where they are added up. */
CO_TEST(large_archives_are_read_and_their_numbers_checked, "GEN-ERR-5")
{
    static const uint64_t wrong[] = { UINT64_MAX,           UINT64_MAX - 1,    UINT64_MAX - 29,
                                      UINT64_MAX - 45,      (uint64_t)1 << 63, INT64_MAX,
                                      INT64_MAX - 29,       (uint64_t)1 << 62, UINT64_MAX / 528,
                                      UINT64_MAX / 528 + 1, (uint64_t)1 << 32, 5000 };
    char                  from[FILES_PATH], path[FILES_PATH];
    char                  expected[DATA_TEXT], text[DATA_TEXT], bytes[4000];
    size_t                n;

    files_path("large.npz", path);
    files_golden("bundle.npz", from);
    data_text(ctx, co_load_npz(ctx, from), expected);
    n = make_large(from, LARGE_NONE, 0, bytes);
    files_write(path, bytes, n);
    CO_EXPECT_STR(data_text(ctx, co_load_npz(ctx, path), text), expected);
    for (int number = LARGE_NONE + 1; number < LARGE_COUNT; ++number)
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i)
            CO_BLOCK(ctx) {
                files_write(path, bytes, make_large(from, (large_number)number, wrong[i], bytes));
                CO_EXPECT_NULL(co_load_npz(ctx, path));
                if (!CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "large.npz"))
                    test_fail(TEST_AT, "number %d is %llu", number, (unsigned long long)wrong[i]);
            }
    files_write(path, bytes, make_large(from, LARGE_MEMBERS, UINT64_MAX, bytes));
    CO_EXPECT_NULL(co_load_npz(ctx, path));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "18446744073709551615 members");
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
