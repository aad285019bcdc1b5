/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors: what is written is read again, damage and hostile headers are refused, a full
 * disk loses nothing, and a mapped file may shrink. Values of others are compared by the golden
 * runner. */
#include "files_support.h"

#include "io/crc32.h"
#include "io/crc32c.h"
#include "io/tensor_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const co_dtype numbers[] = { CO_BOOL,     CO_INT8,    CO_INT16,  CO_INT32,  CO_INT64,
                                    CO_UINT8,    CO_UINT16,  CO_UINT32, CO_UINT64, CO_FLOAT16,
                                    CO_BFLOAT16, CO_FLOAT32, CO_FLOAT64 };
#define NUM_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static const struct {
    int     ndim;
    int64_t dims[CO_MAX_DIMS];
} shapes[] = {
    { 0, { 0 } },       { 1, { 0 } },       { 1, { 7 } },
    { 3, { 2, 0, 3 } }, { 3, { 2, 3, 5 } }, { 8, { 1, 2, 1, 1, 3, 1, 1, 2 } },
};
#define NUM_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* 0, 1, ... n - 1 */
static co_value *
count_to(co_context *ctx, int64_t n, co_dtype dtype)
{
    co_value *zero = co_int(ctx, 0), *one = co_int(ctx, 1);

    return co_cast(ctx, co_range(ctx, zero, co_int(ctx, n), one, CO_INT64), dtype);
}

/* --- what is written is read --- */

/* A tensor of bits that depend on the dtype and the place. */
static co_value *
make_tensor(co_context *ctx, co_dtype dtype, int ndim, const int64_t *dims)
{
    unsigned char bytes[2000];
    size_t        n = co_dtype_size(dtype);

    for (int d = 0; d < ndim; ++d)
        n *= (size_t)dims[d];
    CO_REQUIRE(n <= sizeof(bytes));
    files_fill(bytes, n, (size_t)dtype);
    for (size_t i = 0; i < n && dtype == CO_BOOL; ++i)
        bytes[i] &= 1;
    for (size_t i = 0; i < n && dtype == CO_BFLOAT16; ++i) /* no NaN, which conversions change */
        bytes[i] &= 0x3f;
    return co_tensor(ctx, dtype, dims, ndim, bytes);
}

static co_value *
make_tensors(co_context *ctx)
{
    static char names[NUM_NUMBERS * NUM_SHAPES][40];
    const char *keys[NUM_NUMBERS * NUM_SHAPES];
    co_value   *items[NUM_NUMBERS * NUM_SHAPES];
    size_t      n = 0;

    for (size_t i = 0; i < NUM_NUMBERS; ++i)
        for (size_t k = 0; k < NUM_SHAPES; ++k, ++n) {
            snprintf(names[n], sizeof(names[n]), "%s/%zu \"\n\x01é", co_dtype_name(numbers[i]), k);
            keys[n] = names[n];
            items[n] = make_tensor(ctx, numbers[i], shapes[k].ndim, shapes[k].dims);
        }
    return co_dict(ctx, keys, items, n);
}

static void
expect_same(co_context *ctx, co_value *seen, co_value *expected, bool upcast)
{
    co_dtype dtype = co_value_dtype(ctx, expected);
    size_t   n;

    if (upcast && dtype == CO_BFLOAT16) {
        CO_EXPECT_INT(co_value_dtype(ctx, seen), CO_FLOAT32);
        seen = co_cast(ctx, seen, CO_BFLOAT16);
    }
    CO_EXPECT_INT(co_value_dtype(ctx, seen), dtype);
    CO_EXPECT_INT(co_value_ndim(ctx, seen), co_value_ndim(ctx, expected));
    for (int d = 0; d < co_value_ndim(ctx, expected); ++d)
        CO_EXPECT_INT(co_value_dim(ctx, seen, d), co_value_dim(ctx, expected, d));
    n = (size_t)co_value_num_elements(ctx, expected) * co_dtype_size(dtype);
    if (n > 0)
        CO_EXPECT_BYTES(co_value_data(ctx, seen), co_value_data(ctx, expected), n);
}

static void
expect_same_dicts(co_context *ctx, co_value *seen, co_value *expected, bool upcast)
{
    CO_EXPECT_INT(co_num_items(ctx, seen), co_num_items(ctx, expected));
    for (size_t i = 0; i < co_num_items(ctx, expected); ++i)
        expect_same(ctx, co_get(ctx, seen, co_key(ctx, expected, i)), co_at(ctx, expected, i),
                    upcast);
}

static co_value *
read_file(co_context *ctx, const char *path, bool map)
{
    co_tensor_file_options options = CO_TENSOR_FILE_OPTIONS_INIT;

    options.map = map;
    return co_tensor_file_read_all(ctx, co_tensor_file_open(ctx, path, &options));
}

CO_TEST(every_dtype_and_shape_comes_back, "")
{
    co_value *tensors = make_tensors(ctx);
    co_value *metadata = co_dict(ctx, (const char *[]){ "a", "format" },
                                 (co_value *[]){ co_string(ctx, "\t\"é\x7f"), co_string(ctx, "") },
                                 2);
    co_value *seen;
    char      path[FILES_PATH];

    files_path("t.safetensors", path);
    CO_EXPECT_CODE(co_save_safetensors(ctx, path, tensors, metadata, NULL), CO_OK);
    expect_same_dicts(ctx, read_file(ctx, path, false), tensors, false);
    expect_same_dicts(ctx, read_file(ctx, path, true), tensors, false);
    expect_same_dicts(ctx, co_load_safetensors(ctx, path), tensors, false);
    seen = co_tensor_file_metadata(ctx, co_tensor_file_open(ctx, path, NULL));
    CO_EXPECT_STR(co_string_at(ctx, co_get(ctx, seen, "a"), 0, NULL), "\t\"é\x7f");
    CO_EXPECT_INT(co_num_items(ctx, seen), 2);
    files_path("t.npz", path);
    CO_EXPECT_CODE(co_save_npz(ctx, path, tensors, NULL), CO_OK);
    expect_same_dicts(ctx, read_file(ctx, path, false), tensors, true);
    expect_same_dicts(ctx, co_load_npz(ctx, path), tensors, true);
    CO_EXPECT_INT(co_value_kind(co_tensor_file_metadata(ctx, co_tensor_file_open(ctx, path, NULL))),
                  CO_KIND_NONE);
    files_clean();
}

CO_TEST(files_without_tensors, "")
{
    co_value *none = co_dict(ctx, NULL, NULL, 0);
    char      path[FILES_PATH];

    CO_EXPECT_CODE(co_save_safetensors(ctx, files_path("t", path), none, none, NULL), CO_OK);
    CO_EXPECT_INT(co_num_items(ctx, read_file(ctx, path, true)), 0);
    CO_EXPECT_CODE(co_save_npz(ctx, path, none, NULL), CO_OK);
    CO_EXPECT_INT(co_num_items(ctx, read_file(ctx, path, true)), 0);
    files_clean();
}

/* A variable is saved as it is read, a number as the tensor it becomes. */
CO_TEST(values_are_converted_before_they_are_written, "")
{
    co_value *tensors = co_dict(
        ctx, (const char *[]){ "n", "v" },
        (co_value *[]){ co_int(ctx, 3), co_variable(ctx, co_scalar_float(ctx, 2.5f), NULL) }, 2);
    char      path[FILES_PATH];
    co_value *seen;

    CO_EXPECT_CODE(co_save_safetensors(ctx, files_path("t", path), tensors, NULL, NULL), CO_OK);
    seen = co_load_safetensors(ctx, path);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, seen, "n")), 3);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_get(ctx, seen, "v")), 2.5, 0);
    files_clean();
}

/* In parts, by several threads, with a checksum that does not depend on the parts. */
CO_TEST_WITH(large_tensors_are_read_in_parts, "", "cpus=1,threads=4")
{
    int64_t          n = (33 << 20) + 3;
    co_value        *tensor = count_to(ctx, n, CO_UINT8);
    co_value        *seen;
    char             path[FILES_PATH];
    coi_memory       memory;
    coi_tensor_file *file;
    coi_extent       extent;
    co_error_info    err = { .code = CO_OK };
    char            *bytes;
    uint32_t         crc;

    CO_EXPECT_CODE(co_save_safetensors(ctx, files_path("t", path),
                                       co_dict(ctx, (const char *[]){ "x" }, &tensor, 1), NULL,
                                       NULL),
                   CO_OK);
    seen = co_tensor_file_read(ctx, co_tensor_file_open(ctx, path, NULL), "x");
    CO_EXPECT_BYTES(co_value_data(ctx, seen), co_value_data(ctx, tensor), (size_t)n);
    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_tensor_file_open(&memory, path, &file, &err) == CO_OK);
    CO_REQUIRE(file->format->locate(file, coi_tensor_file_entry(file, "x", 1), &extent, &err) ==
               CO_OK);
    bytes = malloc((size_t)n);
    for (size_t first = 0; first < 3; ++first) {
        CO_EXPECT_CODE(
            coi_read_extent(&extent, first, bytes, (uint64_t)n - first, NULL, &crc, &err), CO_OK);
        CO_EXPECT_INT(crc, co_crc32c(bytes, (size_t)n - first));
    }
    CO_EXPECT_CODE(coi_read_extent(&extent, 0, bytes, 0, NULL, &crc, &err), CO_OK);
    CO_EXPECT_INT(crc, 0);
    free(bytes);
    coi_tensor_file_close(file);
    files_clean();
}

CO_TEST(checksums_can_be_joined, "")
{
    unsigned char bytes[70000];

    files_fill(bytes, sizeof(bytes), 3);
    for (size_t i = 0; i <= sizeof(bytes); i += 997) {
        uint32_t first = co_crc32c(bytes, i), rest = co_crc32c(bytes + i, sizeof(bytes) - i);

        CO_EXPECT_INT(coi_crc32c_join(first, rest, sizeof(bytes) - i),
                      co_crc32c(bytes, sizeof(bytes)));
        CO_EXPECT_INT(coi_crc32c_extend(first, bytes + i, sizeof(bytes) - i),
                      co_crc32c(bytes, sizeof(bytes)));
        CO_EXPECT_INT(coi_crc32_plain(coi_crc32_plain(0, bytes, i), bytes + i, sizeof(bytes) - i),
                      coi_zip_crc32(0, bytes, sizeof(bytes)));
    }
    CO_EXPECT_INT(coi_crc32_plain(0, "123456789", 9), 0xcbf43926);
}

/* All 256 of both, by what their bits mean. */
CO_TEST(float8_becomes_float16, "")
{
    char          header[200], path[FILES_PATH];
    unsigned char bytes[8 + 200 + 512];
    size_t        n;
    co_value     *seen;
    float         values[256];

    n = (size_t)snprintf(
        header, sizeof(header),
        "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[256],\"data_offsets\":[0,256]},"
        "\"b\":{\"dtype\":\"F8_E5M2\",\"shape\":[256],\"data_offsets\":[256,512]}}");
    memset(bytes, 0, 8);
    bytes[0] = (unsigned char)n;
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < 512; ++i)
        bytes[8 + n + i] = (unsigned char)i;
    files_write(files_path("t", path), bytes, 8 + n + 512);
    seen = co_load_safetensors(ctx, path);
    for (int which = 0; which < 2; ++which) {
        int fraction = which == 0 ? 3 : 2, bias = which == 0 ? 7 : 15;

        CO_REQUIRE(co_value_copy_data(ctx, co_get(ctx, seen, which == 0 ? "a" : "b"), CO_FLOAT32,
                                      values, 256) == CO_OK);
        for (int i = 0; i < 256; ++i) {
            int   exponent = (i & 0x7f) >> fraction, rest = i & ((1 << fraction) - 1);
            float expected = exponent == 0 ? ldexpf((float)rest, 1 - bias - fraction)
                                           : ldexpf((float)(rest + (1 << fraction)),
                                                    exponent - bias - fraction);

            if (which == 1 && exponent == 31)
                expected = rest == 0 ? INFINITY : NAN;
            if (which == 0 && (i & 0x7f) == 0x7f)
                expected = NAN;
            if (isnan(expected))
                CO_EXPECT_TRUE(isnan(values[i]));
            else
                CO_EXPECT_TRUE(values[i] == (i >= 128 ? -expected : expected) &&
                               (signbit(values[i]) != 0) == (i >= 128));
        }
    }
    files_clean();
}

/* --- parts --- */

CO_TEST(slices_are_those_of_the_whole, "")
{
    static const int64_t dims[] = { 4, 3, 5 };
    co_value       *tensor = co_reshape(ctx, count_to(ctx, 60, CO_INT32), dims, 3), *part, *again;
    char            path[FILES_PATH];
    co_tensor_file *file;

    for (int npz = 0; npz < 2; ++npz) {
        co_value *dict = co_dict(ctx, (const char *[]){ "x" }, &tensor, 1);

        files_path("t", path);
        CO_EXPECT_CODE(npz ? co_save_npz(ctx, path, dict, NULL)
                           : co_save_safetensors(ctx, path, dict, NULL, NULL),
                       CO_OK);
        file = co_tensor_file_open(ctx, path, NULL);
        for (int64_t i = 0; i < 4 * 3 * 5 * 2 * 2 * 2; ++i)
            CO_BLOCK(ctx) {
                int64_t begin[] = { i % 4, i / 4 % 3, i / 12 % 5 };
                int64_t size[] = { i / 60 % 2, i / 120 % 2, i / 240 % 2 };

                for (int d = 0; d < 3; ++d)
                    size[d] = size[d] == 0 ? dims[d] - begin[d] : (dims[d] - begin[d]) / 2;
                part = co_tensor_file_read_slice(ctx, file, "x", begin, size, 3);
                again = co_slice(ctx, tensor, begin, size, 3);
                expect_same(ctx, part, again, false);
            }
        CO_EXPECT_NULL(co_tensor_file_read_slice(ctx, file, "x", (int64_t[]){ 0, 0, 4 },
                                                 (int64_t[]){ 1, 1, 2 }, 3));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "2 elements from 4 on along dimension 2");
        CO_EXPECT_NULL(co_tensor_file_read_slice(ctx, file, "x", (int64_t[]){ 0, INT64_MAX, 0 },
                                                 (int64_t[]){ 1, INT64_MAX, 1 }, 3));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "along dimension 1");
        CO_EXPECT_NULL(co_tensor_file_read_slice(ctx, file, "x", NULL, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the tensor has 3");
        CO_EXPECT_NULL(co_tensor_file_read(ctx, file, "y"));
        CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "'y'");
        CO_EXPECT_NULL(co_tensor_file_read_entry(ctx, file, 1));
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "1 tensor,");
        CO_EXPECT_CODE(co_tensor_file_close(ctx, file), CO_OK);
        CO_EXPECT_NULL(co_tensor_file_read(ctx, file, "x"));
        CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "closed");
    }
    files_clean();
}

/* --- headers --- */

#define X "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"
/* Verdicts of version 0.8 of the Python package, with 16 bytes of data. */
static const struct {
    const char *header;
    co_code     code;
} headers[] = {
    { "{\"x\":" X "}", CO_OK },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"x\":" X "}", CO_OK },
    { "{\"x\":" X ",\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      CO_DATA_LOSS },
    { "{\"__metadata__\":null,\"x\":" X "}", CO_OK },
    { "{\"__metadata__\":{},\"__metadata__\":{},\"x\":" X "}", CO_DATA_LOSS },
    { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},\"x\":" X "}", CO_OK },
    { "{\"__metadata__\":{\"a\":null},\"x\":" X "}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
      CO_DATA_LOSS },
    { "{\"x\":{\"z\":{\"q\":[1,2,{\"a\":null}]},\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
      CO_OK },
    { "{\"x\":{\"z\":[true,false,-0,1e5,-1.5E-3,\"\\u00e9\"],\"dtype\":\"F32\",\"shape\":[4],"
      "\"data_offsets\":[0,16]}}",
      CO_OK },
    { "{\"x\":{\"z\":1.,\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"z\":tru,\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[04],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[4e0],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[-0],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", CO_DATA_LOSS },
    { "{\"x\\ud800\":" X "}", CO_DATA_LOSS },
    { "{\"x\\udc00\":" X "}", CO_DATA_LOSS },
    { "{\"x\\ud83dA\":" X "}", CO_DATA_LOSS },
    { "{\"x\\ud83d\\ude00\":" X "}", CO_OK },
    { "{\"x\\/\":" X "}", CO_OK },
    { "{\"x\\q\":" X "}", CO_DATA_LOSS },
    { "{\"x\ty\":" X "}", CO_DATA_LOSS },
    { "{\"x\\u00\":" X "}", CO_DATA_LOSS },
    { "{\"x\":" X ",}", CO_DATA_LOSS },
    { "{,\"x\":" X "}", CO_DATA_LOSS },
    { "{\"x\" " X "}", CO_DATA_LOSS },
    { "{\"x\":" X " \"y\":1}", CO_DATA_LOSS },
    { "{\"x\":" X "} \n\t\r", CO_OK },
    { "\r\n{\"x\":" X "}", CO_OK },
    { "\f{\"x\":" X "}", CO_DATA_LOSS },
    { "\xef\xbb\xbf{\"x\":" X "}", CO_DATA_LOSS },
    { "{\"\xc3\":" X "}", CO_DATA_LOSS },
    { "{\"\xc0\x80\":" X "}", CO_DATA_LOSS },
    { "{\"x\":" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[0,4611686018427387904],\"data_offsets\":"
      "[16,16]}}",
      CO_OK },
    { "{\"x\":" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808,4,0],\"data_offsets\":"
      "[16,16]}}",
      CO_DATA_LOSS },
    { "{\"x\":" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[0,18446744073709551616],\"data_offsets\":"
      "[16,16]}}",
      CO_DATA_LOSS },
    { "{\"x\":" X ",\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}",
      CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F4\",\"shape\":[32],\"data_offsets\":[0,16]}}", CO_OK },
    { "{\"x\":{\"dtype\":\"F4\",\"shape\":[31],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[0,16]}}", CO_OK },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}", CO_OK },
    { "{\"x\":{\"dtype\":17,\"shape\":[4],\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,16]}}", CO_DATA_LOSS },
    { "{\"x\":null}", CO_DATA_LOSS },
    { "{\"x\":{}}", CO_DATA_LOSS },
    { "{\"x\":{\"d\\u0074ype\":\"F\\u0033\\u0032\",\"shape\":[4],\"data_offsets\":[0,16]}}",
      CO_OK },
    { "{\"\\u005f_metadata__\":{\"a\":\"b\"},\"x\":" X "}", CO_OK },
    { "null", CO_DATA_LOSS },
    { "", CO_DATA_LOSS },
};

static const char *
write_header(const char *header, char *path)
{
    size_t         n = strlen(header);
    unsigned char *bytes = calloc(1, 8 + n + 16);

    bytes[0] = (unsigned char)n;
    bytes[1] = (unsigned char)(n >> 8);
    memcpy(bytes + 8, header, n);
    files_write(files_path("h.safetensors", path), bytes, 8 + n + 16);
    free(bytes);
    return path;
}

CO_TEST(headers_are_judged_as_by_the_package, "GEN-ERR-5")
{
    char path[FILES_PATH];

    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); ++i)
        CO_BLOCK(ctx) {
            co_tensor_file *file = co_tensor_file_open(ctx, write_header(headers[i].header, path),
                                                       NULL);

            if (co_error(ctx)->code != headers[i].code)
                test_fail(TEST_AT, "%s: %s", headers[i].header, co_error(ctx)->message);
            if (file == NULL)
                CO_EXPECT_ERROR(ctx, headers[i].code, "h.safetensors");
            co_clear(ctx);
        }
    files_clean();
}

CO_TEST(arrays_inside_each_other_have_a_limit, "")
{
    char path[FILES_PATH], header[1000];

    for (int depth = 100; depth <= 200; depth += 100) {
        size_t n = (size_t)snprintf(header, sizeof(header), "{\"x\":{\"z\":");

        memset(header + n, '[', (size_t)depth);
        memset(header + n + depth, ']', (size_t)depth);
        snprintf(header + n + 2 * depth, sizeof(header) - n - 2 * (size_t)depth,
                 ",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}");
        co_tensor_file_open(ctx, write_header(header, path), NULL);
        if (depth == 100)
            CO_EXPECT_OK(ctx);
        else
            CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "fewer than 128");
    }
    files_clean();
}

CO_TEST(what_no_tensor_can_hold_is_listed_and_not_read, "")
{
    static const char *const unreadable[] = {
        "{\"x\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[0,16]}}",
        "{\"x\":{\"dtype\":\"F4\",\"shape\":[32],\"data_offsets\":[0,16]}}",
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}",
        "{\"a\":" X ",\"x\":{\"dtype\":\"U8\",\"shape\":[0,18446744073709551615],\"data_offsets\":"
        "[16,16]}}",
    };
    char path[FILES_PATH];

    for (size_t i = 0; i < sizeof(unreadable) / sizeof(unreadable[0]); ++i) {
        co_tensor_file *file = co_tensor_file_open(ctx, write_header(unreadable[i], path), NULL);

        CO_EXPECT_NOT_NULL(co_tensor_file_find(ctx, file, "x"));
        CO_EXPECT_NULL(co_tensor_file_read(ctx, file, "x"));
        CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "tensor 'x'");
    }
    files_clean();
}

CO_TEST(names_may_hold_zero_bytes, "")
{
    char            path[FILES_PATH];
    co_tensor_file *file = co_tensor_file_open(ctx, write_header("{\"x\\u0000y\":" X "}", path),
                                               NULL);

    CO_EXPECT_INT(co_tensor_file_entry(ctx, file, 0)->name_nbytes, 3);
    CO_EXPECT_NULL(co_tensor_file_find(ctx, file, "x"));
    CO_EXPECT_INT(co_value_num_elements(ctx, co_tensor_file_read_entry(ctx, file, 0)), 4);
    CO_EXPECT_NULL(co_tensor_file_read_all(ctx, file));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "zero byte");
    files_clean();
}

/* --- damage --- */

/* Open and read all that is there: no crash, and no error but of damage. */
static int
count_readable(co_context *ctx, const char *path)
{
    co_tensor_file *file = co_tensor_file_open(ctx, path, NULL);
    int             readable = 0;

    for (size_t i = 0; file != NULL && i < co_tensor_file_about(ctx, file)->num_entries; ++i) {
        readable += co_tensor_file_read_entry(ctx, file, i) != NULL;
        if (!co_ok(ctx) && co_error(ctx)->code != CO_UNIMPLEMENTED)
            CO_EXPECT_CODE(co_error(ctx)->code, CO_DATA_LOSS);
        co_clear(ctx);
    }
    if (!co_ok(ctx) && co_error(ctx)->code != CO_UNIMPLEMENTED)
        CO_EXPECT_CODE(co_error(ctx)->code, CO_DATA_LOSS);
    co_clear(ctx);
    return file != NULL ? readable : -1;
}

CO_TEST(every_truncation_of_safetensors_is_refused, "GEN-ERR-5")
{
    char   path[FILES_PATH];
    size_t n;
    char  *bytes;

    CO_EXPECT_CODE(co_save_safetensors(ctx, files_path("t", path), make_tensors(ctx), NULL, NULL),
                   CO_OK);
    bytes = files_read(path, &n);
    for (size_t i = 0; i < n; i += i + 100 < n && i > 200 ? 37 : 1)
        CO_BLOCK(ctx) {
            files_write(path, bytes, i);
            CO_EXPECT_NULL(co_tensor_file_open(ctx, path, NULL));
            CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "'");
        }
    free(bytes);
    files_clean();
}

CO_TEST(every_changed_byte_of_a_file_is_survived, "GEN-ERR-5")
{
    static const char *const names[] = { "ckpt_st_dtypes.safetensors",
                                         "ckpt_st_metadata.safetensors", "bundle.npz" };
    char                     from[FILES_PATH], path[FILES_PATH];

    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); ++k) {
        size_t n;
        char  *bytes = files_read(files_golden(names[k], from), &n);

        files_path("t", path);
        for (size_t i = 0; i < n * 8; i += k == 2 ? 5 : 1)
            CO_BLOCK(ctx) {
                bytes[i / 8] = (char)(bytes[i / 8] ^ (1 << i % 8));
                files_write(path, bytes, n);
                count_readable(ctx, path);
                bytes[i / 8] = (char)(bytes[i / 8] ^ (1 << i % 8));
            }
        free(bytes);
    }
    files_clean();
}

static void
copy_golden(const char *name, const char *as)
{
    char   from[FILES_PATH], to[FILES_PATH];
    size_t n;
    char  *bytes = files_read(files_golden(name, from), &n);

    files_write(files_path(as, to), bytes, n);
    free(bytes);
}

/* A flip in the data damages one tensor, one in the index the index, those in its foot aside that
 * nobody reads. */
CO_TEST(every_changed_byte_of_a_bundle_is_found, "GEN-ERR-5")
{
    static const char *const files[] = { "b.data-00000-of-00001", "b.index" };
    char                     path[FILES_PATH], prefix[FILES_PATH];

    copy_golden("ckpt_dtypes.index", "b.index");
    copy_golden("ckpt_dtypes.data-00000-of-00001", "b.data-00000-of-00001");
    files_path("b", prefix);
    for (int k = 0; k < 2; ++k) {
        size_t n;
        char  *bytes = files_read(files_path(files[k], path), &n);
        int    all = count_readable(ctx, prefix), survived = 0;

        CO_EXPECT_MORE(all, 10);
        for (size_t i = 0; i < n; ++i)
            CO_BLOCK(ctx) {
                int readable;

                bytes[i] = (char)(bytes[i] ^ 0x10);
                files_write(path, bytes, n);
                readable = count_readable(ctx, prefix);
                if (k == 0)
                    CO_EXPECT_INT(readable, all - 1);
                survived += readable == all;
                bytes[i] = (char)(bytes[i] ^ 0x10);
            }
        CO_EXPECT_LESS(survived, 60); /* metaindex, and zeros of the foot */
        for (size_t i = 0; i < n; ++i)
            CO_BLOCK(ctx) {
                files_write(path, bytes, i);
                CO_EXPECT_LESS(count_readable(ctx, prefix), all);
            }
        files_write(path, bytes, n);
        free(bytes);
    }
    files_clean();
}

/* --- indexes by hand --- */

typedef struct table_entry {
    const char *key;
    size_t      key_nbytes;
    const char *value;
    size_t      value_nbytes;
} table_entry;
#define BYTES(text) (text), sizeof(text) - 1
#define HEADER                                                                                     \
    {                                                                                              \
        BYTES(""), BYTES("\x08\x01")                                                               \
    }
#define VECTOR(n, rest) "\x08\x01\x12\x04\x12\x02\x08" n rest

static size_t
put_block(unsigned char *to, const unsigned char *bytes, size_t n, unsigned char type)
{
    uint32_t crc;

    memcpy(to, bytes, n);
    memcpy(to + n, "\0\0\0\0\1\0\0\0", 8); /* one restart */
    to[n + 8] = type;
    crc = co_crc32c_masked(to, n + 9);
    for (int i = 0; i < 4; ++i)
        to[n + 9 + (size_t)i] = (unsigned char)(crc >> 8 * i);
    return n + 8;
}

/* PREFIX.index of one block, and 16 zeros of data. */
static const char *
write_table(const table_entry *entries, size_t n, unsigned char type, char *prefix)
{
    unsigned char block[1000], file[2000], index[8];
    char          path[FILES_PATH];
    size_t        at = 0, size, end;

    for (size_t i = 0; i < n; ++i) {
        block[at++] = 0;
        block[at++] = (unsigned char)entries[i].key_nbytes;
        block[at++] = (unsigned char)entries[i].value_nbytes;
        memcpy(block + at, entries[i].key, entries[i].key_nbytes);
        at += entries[i].key_nbytes;
        memcpy(block + at, entries[i].value, entries[i].value_nbytes);
        at += entries[i].value_nbytes;
    }
    size = put_block(file, block, at, type);
    end = size + 5;
    memcpy(index, "\0\1\3z\0", 5); /* key "z": the block at 0 */
    index[5] = (unsigned char)(size | 0x80);
    index[6] = (unsigned char)(size >> 7);
    size = put_block(file + end, index, 7, 0);
    memset(file + end + size + 5, 0, 48);
    file[end + size + 5 + 2] = (unsigned char)(end | 0x80);
    file[end + size + 5 + 3] = (unsigned char)(end >> 7);
    file[end + size + 5 + 4] = (unsigned char)size;
    memcpy(file + end + size + 5 + 40, "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8);
    files_write(files_path("h.index", path), file, end + size + 5 + 48);
    files_write(files_path("h.data-00000-of-00001", path), "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    return files_path("h", prefix);
}

static const struct {
    table_entry   entries[4];
    size_t        n;
    unsigned char type;
    co_code       opens, reads; /* of tensor "x" */
    const char   *says;
} tables[] = {
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x28\x10")) } }, 2, 0, CO_OK, CO_OK, "" },
    { { HEADER }, 1, 1, CO_UNIMPLEMENTED, CO_OK, "snappy" },
    { { { BYTES("x"), BYTES(VECTOR("\x04", "\x28\x10")) } },
      1,
      0,
      CO_DATA_LOSS,
      CO_OK,
      "no header" },
    { { { BYTES(""), BYTES("\x08\x01\x10\x01") } }, 1, 0, CO_UNIMPLEMENTED, CO_OK, "big-endian" },
    { { { BYTES(""), BYTES("\x08\x01\x1a\x02\x10\x05") } },
      1,
      0,
      CO_UNIMPLEMENTED,
      CO_OK,
      "newer" },
    { { HEADER, HEADER }, 2, 0, CO_DATA_LOSS, CO_OK, "not sorted" },
    { { HEADER, { BYTES("x"), BYTES("\x08") } }, 2, 0, CO_DATA_LOSS, CO_OK, "entry of 'x'" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x28\x11")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "its shape needs 16" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x18\x01\x28\x10")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "file 1 of 1" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x20\x01\x28\x10")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "the file has 16" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x28\x10\x35\x01\x02\x03\x04")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "checksum" },
    { { HEADER, { BYTES("x"), BYTES("\x08\x08\x12\x04\x12\x02\x08\x02\x28\x10") } },
      2,
      0,
      CO_OK,
      CO_UNIMPLEMENTED,
      "complex64" },
    /* two slices: the whole, then parts that overlap, leave a hole, lie outside, are not there */
    { { HEADER,
        { BYTES("\0x\0\1\1\1\x80\x84"), BYTES(VECTOR("\x04", "\x28\x10")) },
        { BYTES("x"), BYTES(VECTOR("\x04", "\x3a\x06\x0a\x04\x08\x00\x10\x04")) } },
      3,
      0,
      CO_OK,
      CO_OK,
      "" },
    { { HEADER,
        { BYTES("x"), BYTES(VECTOR("\x04", "\x3a\x06\x0a\x04\x08\x00\x10\x03"
                                           "\x3a\x06\x0a\x04\x08\x02\x10\x02")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "overlap" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x3a\x06\x0a\x04\x08\x00\x10\x03")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "do not fill" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x3a\x06\x0a\x04\x08\x01\x10\x04")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "not inside its shape" },
    { { HEADER, { BYTES("x"), BYTES(VECTOR("\x04", "\x3a\x06\x0a\x04\x08\x00\x10\x04")) } },
      2,
      0,
      CO_OK,
      CO_DATA_LOSS,
      "not in the index" },
};

CO_TEST(indexes_are_not_believed, "GEN-ERR-5")
{
    char prefix[FILES_PATH];

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); ++i)
        CO_BLOCK(ctx) {
            co_tensor_file *file = co_tensor_file_open(
                ctx, write_table(tables[i].entries, tables[i].n, tables[i].type, prefix), NULL);
            co_code wanted = file != NULL ? tables[i].reads : tables[i].opens;

            CO_EXPECT_INT(file != NULL, tables[i].opens == CO_OK);
            if (file != NULL)
                co_tensor_file_read(ctx, file, "x");
            if (wanted == CO_OK)
                CO_EXPECT_OK(ctx);
            else
                CO_EXPECT_ERROR(ctx, wanted, tables[i].says);
            co_clear(ctx);
        }
    files_clean();
}

CO_TEST(a_file_that_shrinks_while_it_is_read, "GEN-ERR-5")
{
    co_value       *tensor = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1000));
    co_tensor_file *file;
    char            path[FILES_PATH];

    co_save_safetensors(ctx, files_path("t", path),
                        co_dict(ctx, (const char *[]){ "x" }, &tensor, 1), NULL, NULL);
    file = co_tensor_file_open(ctx, path, NULL);
    CO_REQUIRE(truncate(path, 2000) == 0);
    CO_EXPECT_NULL(co_tensor_file_read(ctx, file, "x"));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "tensor 'x'");
    files_clean();
}

/* --- mapping --- */

/* Whether an address is in a mapping of a file of that name. */
static bool
is_mapped_from(const void *address, const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char  line[500];
    bool  found = false;

    while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long begin, end;

        found = sscanf(line, "%lx-%lx", &begin, &end) == 2 && (uintptr_t)address >= begin &&
                (uintptr_t)address < end && strstr(line, name) != NULL;
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

static co_value *
map_tensor(co_context *ctx, const char *path)
{
    co_tensor_file_options options = CO_TENSOR_FILE_OPTIONS_INIT;
    co_tensor_file        *file;
    co_value              *seen;

    options.map = true;
    file = co_tensor_file_open(ctx, path, &options);
    seen = co_tensor_file_read(ctx, file, "x");
    co_tensor_file_close(ctx, file);
    return seen;
}

static const char *
save_range(co_context *ctx, int64_t n, char *path)
{
    co_value *tensor = count_to(ctx, n, CO_FLOAT32);

    CO_REQUIRE(co_save_safetensors(ctx, files_path("mapped.safetensors", path),
                                   co_dict(ctx, (const char *[]){ "x" }, &tensor, 1), NULL,
                                   NULL) == CO_OK);
    return path;
}

static bool
counts_up(co_context *ctx, co_value *tensor, int64_t n)
{
    const float *data = co_value_data(ctx, tensor);
    int64_t      i = 0;

    while (data != NULL && i < n && data[i] == (float)i)
        ++i;
    return i == n;
}

CO_TEST(a_mapped_file_that_shrinks_is_copied_first, "")
{
    char      path[FILES_PATH];
    co_value *x = map_tensor(ctx, save_range(ctx, 100000, path));
    int       fd;

    CO_EXPECT_TRUE(counts_up(ctx, x, 100000));
    if (!is_mapped_from(co_value_data(ctx, x), "mapped.safetensors")) {
        files_clean();
        CO_SKIP("the file system of TMPDIR grants no leases, so that nothing is mapped");
        return;
    }
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* nobody may write it now */
    CO_EXPECT_INT(fd, -1);
    CO_EXPECT_INT(truncate(path, 0), 0); /* waits for the copy */
    CO_EXPECT_FALSE(is_mapped_from(co_value_data(ctx, x), "mapped.safetensors"));
    CO_EXPECT_TRUE(counts_up(ctx, x, 100000));
    files_clean();
}

/* A file that somebody may write to is read. */
CO_TEST(a_file_that_is_open_for_writing_is_not_mapped, "")
{
    char      path[FILES_PATH];
    int       fd = open(save_range(ctx, 100000, path), O_WRONLY | O_CLOEXEC);
    co_value *x = map_tensor(ctx, path);

    CO_EXPECT_FALSE(is_mapped_from(co_value_data(ctx, x), "mapped.safetensors"));
    CO_REQUIRE(ftruncate(fd, 0) == 0);
    CO_EXPECT_TRUE(counts_up(ctx, x, 100000));
    close(fd);
    files_clean();
}

/* Released in time: the file can be replaced and written as if nothing had been. */
CO_TEST(a_mapping_ends_with_its_last_tensor, "")
{
    char path[FILES_PATH];
    int  fd;

    save_range(ctx, 1000, path);
    CO_BLOCK(ctx)
        CO_EXPECT_TRUE(counts_up(ctx, map_tensor(ctx, path), 1000));
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    CO_EXPECT_TRUE(fd >= 0);
    close(fd);
    files_clean();
}

CO_TEST(a_sealed_memory_file_is_mapped, "")
{
    char      from[FILES_PATH], path[64];
    size_t    n;
    char     *bytes = files_read(save_range(ctx, 1000, from), &n);
    int       fd = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    co_value *x;

    CO_REQUIRE(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    x = map_tensor(ctx, path);
    CO_EXPECT_FALSE(is_mapped_from(co_value_data(ctx, x), "memfd:sealed"));
    CO_REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0);
    x = map_tensor(ctx, path);
    CO_EXPECT_TRUE(is_mapped_from(co_value_data(ctx, x), "memfd:sealed"));
    CO_EXPECT_TRUE(counts_up(ctx, x, 1000));
    CO_EXPECT_INT(ftruncate(fd, 0), -1);
    close(fd);
    CO_EXPECT_TRUE(counts_up(ctx, x, 1000));
    free(bytes);
    files_clean();
}

/* --- writing --- */

static int
count_files(void)
{
    DIR           *folder = opendir(files_folder);
    struct dirent *entry;
    int            n = 0;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        n += entry->d_name[0] != '.' || strstr(entry->d_name, ".tmp") != NULL;
    if (folder != NULL)
        closedir(folder);
    return n;
}

CO_TEST(a_full_disk_loses_nothing, "")
{
    co_value     *small = count_to(ctx, 10, CO_FLOAT32), *large;
    struct rlimit limit;
    char          path[FILES_PATH];

    large = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1 << 20));
    co_save_safetensors(ctx, files_path("t", path),
                        co_dict(ctx, (const char *[]){ "x" }, &small, 1), NULL, NULL);
    signal(SIGXFSZ, SIG_IGN);
    CO_REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (rlim_t most = 0; most <= 1 << 20; most += 1 << 18) {
        limit.rlim_cur = most;
        CO_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        co_save_safetensors(ctx, path, co_dict(ctx, (const char *[]){ "x" }, &large, 1), NULL,
                            NULL);
        CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "cannot write to");
        co_save_npz(ctx, path, co_dict(ctx, (const char *[]){ "x" }, &large, 1), NULL);
        CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "cannot write to");
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    CO_EXPECT_INT(count_files(), 1);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_get(ctx, co_load_safetensors(ctx, path), "x")), 10);
    co_save_safetensors(ctx, "/dev/full", co_dict(ctx, (const char *[]){ "x" }, &small, 1), NULL,
                        NULL);
    CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, "/dev/full");
    CO_EXPECT_INT(access("/dev/full", F_OK), 0);
    files_clean();
}

CO_TEST(paths_that_cannot_be_written, "")
{
    co_value               *tensors = co_dict(ctx, NULL, NULL, 0);
    co_tensor_write_options options = CO_TENSOR_WRITE_OPTIONS_INIT;
    char                    path[FILES_PATH], inside[FILES_PATH + 20];

    files_path("t", path);
    snprintf(inside, sizeof(inside), "%s/x", path);
    co_save_safetensors(ctx, inside, tensors, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "/t/");
    co_save_npz(ctx, files_folder, tensors, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "directory");
    options.replace = false;
    CO_EXPECT_CODE(co_save_npz(ctx, path, tensors, &options), CO_OK);
    co_save_npz(ctx, path, tensors, &options);
    CO_EXPECT_ERROR(ctx, CO_ALREADY_EXISTS, "/t'");
    co_save_safetensors(ctx, inside, tensors, NULL, NULL); /* a file is no folder */
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "/t/");
    options.replace = true;
    options.sync = false;
    CO_EXPECT_CODE(co_save_npz(ctx, path, tensors, &options), CO_OK);
    co_save_npz(ctx, NULL, tensors, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path");
    if (geteuid() != 0) {
        CO_REQUIRE(chmod(files_folder, 0500) == 0);
        co_save_npz(ctx, files_path("u", path), tensors, NULL);
        CO_EXPECT_ERROR(ctx, CO_PERMISSION_DENIED, "/");
        chmod(files_folder, 0700);
    }
    files_clean();
}

CO_TEST(what_cannot_be_written_is_refused, "")
{
    co_value *one = co_scalar_float(ctx, 1);
    co_value *text = co_tensor_bytes(ctx, NULL, 0, (const void *[]){ "a" }, (size_t[]){ 1 });
    char      path[FILES_PATH];

    files_path("t", path);
    co_save_safetensors(ctx, path, one, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "tensors");
    co_save_safetensors(ctx, path, co_dict(ctx, (const char *[]){ "a" }, &text, 1), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strings");
    co_save_npz(ctx, path, co_dict(ctx, (const char *[]){ "a" }, &text, 1), NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strings");
    co_save_safetensors(ctx, path, co_dict(ctx, (const char *[]){ "\xff" }, &one, 1), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "UTF-8");
    co_save_safetensors(ctx, path, co_dict(ctx, (const char *[]){ "__metadata__" }, &one, 1), NULL,
                        NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "__metadata__");
    co_save_safetensors(ctx, path, co_dict(ctx, (const char *[]){ "a" }, &one, 1),
                        co_dict(ctx, (const char *[]){ "a" }, &one, 1), NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "metadata");
    CO_EXPECT_INT(count_files(), 0);
    files_clean();
}

/* --- finding files --- */

CO_TEST(paths_that_cannot_be_opened, "GEN-ERR-5")
{
    char path[FILES_PATH];

    CO_EXPECT_NULL(co_tensor_file_open(ctx, files_path("nothing", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "nothing.index");
    CO_EXPECT_NULL(co_load_safetensors(ctx, path));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "nothing");
    CO_EXPECT_NULL(co_tensor_file_open(ctx, files_folder, NULL));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "checkpoint");
    CO_EXPECT_NULL(co_load_safetensors(ctx, files_folder));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "directory");
    CO_EXPECT_NULL(co_tensor_file_open(ctx, "/dev/null", NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "regular");
    CO_EXPECT_NULL(co_tensor_file_open(ctx, "", NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "path");
    copy_golden("ckpt_good.index", "moved");
    CO_EXPECT_NULL(co_tensor_file_open(ctx, files_path("moved", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, ".index");
    copy_golden("bool.npy", "other");
    CO_EXPECT_NULL(co_tensor_file_open(ctx, files_path("other", path), NULL));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "other");
    if (geteuid() != 0) {
        CO_REQUIRE(chmod(path, 0) == 0);
        CO_EXPECT_NULL(co_tensor_file_open(ctx, path, NULL));
        CO_EXPECT_ERROR(ctx, CO_PERMISSION_DENIED, "other");
    }
    files_clean();
}

CO_TEST(a_folder_names_its_latest_bundle, "")
{
    static const char        text[] = "model_checkpoint_path: \"m\\055\\x1\"  # the last\n"
                                      "model_checkpoint_path: 'b'\nall_model_checkpoint_paths: \"a\\\"\"\n"
                                      "all_model_checkpoint_paths: \"b\"\n"
                                      "all_model_checkpoint_timestamps: 17.5\n";
    static const char *const wrong[] = { "",
                                         "model_checkpoint_path",
                                         "model_checkpoint_path: \"b",
                                         "model_checkpoint_path: \"\"",
                                         "{",
                                         ": \"b\"",
                                         "model_checkpoint_path: \"b\\" };
    char                     path[FILES_PATH];
    co_value                *state;
    co_tensor_file          *file;

    copy_golden("ckpt_good.index", "b.index");
    copy_golden("ckpt_good.data-00000-of-00001", "b.data-00000-of-00001");
    files_write(files_path("checkpoint", path), text, sizeof(text) - 1);
    state = co_tf_checkpoint_state(ctx, files_folder);
    CO_EXPECT_STR(co_string_at(ctx, co_get(ctx, state, "model_checkpoint_path"), 0, NULL), "b");
    state = co_get(ctx, state, "all_model_checkpoint_paths");
    CO_EXPECT_INT(co_num_items(ctx, state), 2);
    CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, state, 0), 0, NULL), "a\"");
    file = co_tensor_file_open(ctx, files_folder, NULL);
    CO_EXPECT_STR(co_tensor_file_about(ctx, file)->format, "tensor bundle");
    CO_EXPECT_INT(co_value_num_elements(ctx, co_tensor_file_read(ctx, file, "a")), 3);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        files_write(path, wrong[i], strlen(wrong[i]));
        CO_EXPECT_NULL(co_tf_checkpoint_state(ctx, files_folder));
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "/checkpoint'");
    }
    files_clean();
}

CO_TEST(a_file_without_objects_has_no_graph, "")
{
    char            path[FILES_PATH];
    co_tensor_file *file = co_tensor_file_open(ctx, files_golden("ckpt_good", path), NULL);

    CO_EXPECT_NULL(co_tensor_file_object_graph(ctx, file));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "object graph");
}

/* Nothing happens without a context, or on one that has an error. */
CO_TEST(calls_on_a_context_with_an_error_do_nothing, "")
{
    char            path[FILES_PATH];
    co_tensor_file *file = co_tensor_file_open(ctx, files_golden("ckpt_good", path), NULL);
    co_value       *none = co_dict(ctx, NULL, NULL, 0);

    CO_EXPECT_NOT_NULL(file);
    co_item_int(ctx, none);
    for (int i = 0; i < 2; ++i) {
        co_context *c = i == 0 ? ctx : NULL;

        CO_EXPECT_NULL(co_tensor_file_open(c, path, NULL));
        CO_EXPECT_NULL(co_tensor_file_about(c, file));
        CO_EXPECT_NULL(co_tensor_file_entry(c, file, 0));
        CO_EXPECT_NULL(co_tensor_file_find(c, file, "a"));
        CO_EXPECT_NULL(co_tensor_file_metadata(c, file));
        CO_EXPECT_NULL(co_tensor_file_read(c, file, "a"));
        CO_EXPECT_NULL(co_tensor_file_read_entry(c, file, 0));
        CO_EXPECT_NULL(co_tensor_file_read_slice(c, file, "a", NULL, NULL, 0));
        CO_EXPECT_NULL(co_tensor_file_restore(c, file, "a", CO_FLOAT32, ""));
        CO_EXPECT_NULL(co_tensor_file_read_all(c, file));
        CO_EXPECT_NULL(co_tensor_file_object_graph(c, file));
        CO_EXPECT_NULL(co_tf_checkpoint_state(c, path));
        CO_EXPECT_NULL(co_load_safetensors(c, path));
        CO_EXPECT_TRUE(co_tensor_file_close(c, file) != CO_OK);
        CO_EXPECT_TRUE(co_save_safetensors(c, path, none, NULL, NULL) != CO_OK);
        CO_EXPECT_TRUE(co_save_npz(c, path, none, NULL) != CO_OK);
    }
    co_clear(ctx);
    CO_EXPECT_NULL(co_tensor_file_read(ctx, NULL, "a"));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "file");
    CO_EXPECT_NULL(co_tensor_file_read(ctx, (co_tensor_file *)none, "a"));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "tensor file");
    CO_EXPECT_NULL(co_tensor_file_read(ctx, file, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "name");
    CO_EXPECT_CODE(co_tensor_file_close(ctx, file), CO_OK);
    CO_EXPECT_CODE(co_tensor_file_close(ctx, file), CO_OK);
}

/* --- memory --- */

static bool
save_and_read(co_context *ctx)
{
    char      path[FILES_PATH];
    co_value *tensors = co_dict(
        ctx, (const char *[]){ "a", "b" },
        (co_value *[]){ count_to(ctx, 100, CO_FLOAT32), co_scalar_int64(ctx, 3) }, 2);
    co_value       *metadata = co_dict(ctx, (const char *[]){ "k" },
                                       (co_value *[]){ co_string(ctx, "v") }, 1);
    co_tensor_file *file;

    co_save_safetensors(ctx, files_path("m.safetensors", path), tensors, metadata, NULL);
    file = co_tensor_file_open(ctx, path, NULL);
    co_tensor_file_read_all(ctx, file);
    co_tensor_file_metadata(ctx, file);
    read_file(ctx, path, true);
    co_tensor_file_read_slice(ctx, file, "a", (int64_t[]){ 3 }, (int64_t[]){ 4 }, 1);
    co_save_npz(ctx, files_path("m.npz", path), tensors, NULL);
    read_file(ctx, path, false);
    read_file(ctx, files_golden("ckpt_object", path), false);
    read_file(ctx, files_golden("ckpt_sliced", path), false);
    co_tensor_file_object_graph(ctx,
                                co_tensor_file_open(ctx, files_golden("ckpt_object", path), NULL));
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_memory_is_survived, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, save_and_read);
    files_clean();
}
