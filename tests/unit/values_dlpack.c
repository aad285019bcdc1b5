/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack in and out: in place where possible, copied otherwise, each deleter called once, and
 * tensors made to hurt. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

/* The ABI of DLPack 0.8, declared again so that a slip in the library does not go unnoticed. */
typedef struct dl_managed {
    void    *data;
    int32_t  device_type, device_id, ndim;
    uint8_t  code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void    *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

_Static_assert(offsetof(dl_managed, shape) == 24 && offsetof(dl_managed, byte_offset) == 40 &&
                   offsetof(dl_managed, deleter) == 56 && sizeof(dl_managed) == 64,
               "the layout of DLManagedTensor on 64-bit machines");

static void
count_delete(dl_managed *self)
{
    ++*(int *)self->manager;
}

static dl_managed
lend(void *data, int64_t *shape, int32_t ndim, int *deletes)
{
    return (dl_managed){ .data = data,
                         .device_type = 1,
                         .ndim = ndim,
                         .code = 2,
                         .bits = 32,
                         .lanes = 1,
                         .shape = shape,
                         .manager = deletes,
                         .deleter = count_delete };
}

CO_TEST(compact_memory_is_used_in_place, "")
{
    static float   memory[6] = { 1, 2, 3, 4, 5, 6 };
    static int64_t shape[2] = { 2, 3 }, strides[2] = { 3, 1 };
    static int     deletes;

    for (int with_strides = 0; with_strides < 2; ++with_strides) {
        static dl_managed lent;

        deletes = 0;
        lent = lend(memory, shape, 2, &deletes);
        lent.strides = with_strides ? strides : NULL;
        CO_BLOCK(ctx) {
            co_value *x = co_from_dlpack(ctx, &lent);

            CO_EXPECT_PTR(co_value_data(ctx, x), memory);
            CO_EXPECT_INT(co_value_dtype(ctx, x), CO_FLOAT32);
            CO_EXPECT_INT(co_value_dim(ctx, x, 1), 3);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, x, CO_ALL_AXES, false)), 21, 0);
            CO_EXPECT_INT(deletes, 0);
        }
        CO_EXPECT_INT(deletes, 1);
    }
}

CO_TEST(strides_of_single_rows_do_not_matter, "")
{
    static float      memory[3] = { 1, 2, 3 };
    static int64_t    shape[3] = { 1, 3, 1 }, strides[3] = { -77, 1, 12345 };
    static int        deletes;
    static dl_managed lent;

    lent = lend(memory, shape, 3, &deletes);
    lent.strides = strides;
    CO_EXPECT_PTR(co_value_data(ctx, co_from_dlpack(ctx, &lent)), memory);
}

CO_TEST(other_layouts_are_copied, "")
{
    float   memory[6] = { 1, 2, 3, 4, 5, 6 };
    int64_t shape[2] = { 2, 3 };
    const struct {
        int64_t strides[2];
        float  *data;
        float   want[6];
    } cases[] = {
        { { 1, 2 }, memory, { 1, 3, 5, 2, 4, 6 } },       /* column-major */
        { { 0, 1 }, memory, { 1, 2, 3, 1, 2, 3 } },       /* broadcast */
        { { -3, -1 }, memory + 5, { 6, 5, 4, 3, 2, 1 } }, /* backwards */
        { { 1, 0 }, memory, { 1, 1, 1, 2, 2, 2 } },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        int        deletes = 0;
        int64_t    strides[2] = { cases[i].strides[0], cases[i].strides[1] };
        dl_managed lent = lend(cases[i].data, shape, 2, &deletes);
        co_value  *x;

        lent.strides = strides;
        x = co_from_dlpack(ctx, &lent);
        CO_EXPECT_INT(deletes, 1); /* at once: the copy needs it no more */
        CO_EXPECT_BYTES(co_value_data(ctx, x), cases[i].want, sizeof(cases[i].want));
    }
}

CO_TEST(what_is_not_aligned_is_copied, "")
{
    char       memory[4 * sizeof(double) + 1];
    double     values[4] = { 1, 2, 3, 4 };
    int64_t    shape[1] = { 4 };
    int        deletes = 0;
    dl_managed lent = lend(memory, shape, 1, &deletes);
    co_value  *x;

    memcpy(memory + 1, values, sizeof(values));
    lent.bits = 64;
    lent.byte_offset = 1;
    x = co_from_dlpack(ctx, &lent);
    CO_EXPECT_INT(deletes, 1);
    CO_EXPECT_BYTES(co_value_data(ctx, x), values, sizeof(values));
}

CO_TEST(an_offset_moves_the_beginning, "")
{
    static float      memory[4] = { 1, 2, 3, 4 };
    static int64_t    shape[1] = { 2 };
    static int        deletes;
    static dl_managed lent;

    lent = lend(memory, shape, 1, &deletes);
    lent.byte_offset = 8;
    CO_EXPECT_PTR(co_value_data(ctx, co_from_dlpack(ctx, &lent)), memory + 2);
}

CO_TEST(bools_that_are_not_0_or_1_are_copied, "")
{
    static uint8_t    memory[3] = { 0, 1, 5 };
    static int64_t    shape[1] = { 3 };
    static int        deletes;
    static dl_managed lent;

    lent = lend(memory, shape, 1, &deletes);
    lent.code = 6;
    lent.bits = 8;
    CO_EXPECT_BYTES(co_value_data(ctx, co_from_dlpack(ctx, &lent)), "\0\1\1", 3);
    CO_EXPECT_INT(deletes, 1);
    memory[2] = 1;
    CO_EXPECT_PTR(co_value_data(ctx, co_from_dlpack(ctx, &lent)), memory);
    CO_EXPECT_INT(deletes, 1);
}

CO_TEST(tensors_without_elements_need_no_memory, "")
{
    int64_t    shape[3] = { 2, 0, INT64_MAX / 2 };
    int        deletes = 0;
    dl_managed lent = lend(NULL, shape, 3, &deletes);
    co_value  *x = co_from_dlpack(ctx, &lent);

    CO_EXPECT_INT(co_value_num_elements(ctx, x), 0);
    CO_EXPECT_INT(co_value_dim(ctx, x, 0), 2);
    CO_EXPECT_INT(deletes, 1);
}

CO_TEST(every_dtype_goes_out_and_comes_back, "")
{
    for (int d = CO_BOOL; d <= CO_FLOAT64; ++d)
        CO_BLOCK(ctx) {
            co_value *x = co_cast(
                ctx, co_tensor(ctx, CO_INT32, CO_SHAPE(2, 2), (const int32_t[]){ 0, 1, 2, 3 }),
                (co_dtype)d);
            dl_managed *lent = co_to_dlpack(ctx, x);
            co_value   *back;

            CO_EXPECT_PTR(lent->data, co_value_data(ctx, x));
            CO_EXPECT_INT(lent->device_type, 1);
            CO_EXPECT_INT(lent->ndim, 2);
            CO_EXPECT_INT(lent->bits, 8 * co_dtype_size((co_dtype)d));
            CO_EXPECT_INT(lent->lanes, 1);
            CO_EXPECT_INT(lent->shape[1], 2);
            CO_EXPECT_INT(lent->strides[0], 2);
            CO_EXPECT_INT(lent->strides[1], 1);
            CO_EXPECT_INT(lent->byte_offset, 0);
            back = co_from_dlpack(ctx, lent);
            CO_EXPECT_INT(co_value_dtype(ctx, back), d);
            CO_EXPECT_PTR(co_value_data(ctx, back), co_value_data(ctx, x));
        }
}

/* The receiver may be done long after the tensor's block, on a thread of its own. */
static void *
use_and_delete(void *arg)
{
    dl_managed *lent = arg;
    float       sum = 0;

    for (int i = 0; i < 1000; ++i)
        sum += ((const float *)lent->data)[i];
    CO_EXPECT_CLOSE(sum, 1000, 0);
    lent->deleter(lent);
    return NULL;
}

CO_TEST_BARE(a_lent_tensor_outlives_its_runtime, "")
{
    static const int64_t sizes[] = { 1000, 4 }; /* in a buffer, and in the cell */
    co_context          *own = co_open(NULL);
    dl_managed          *lent = NULL, *small = NULL;
    pthread_t            thread;

    CO_BLOCK(own) {
        lent = co_to_dlpack(own, co_ones(own, CO_FLOAT32, &sizes[0], 1));
        small = co_to_dlpack(own, co_ones(own, CO_FLOAT32, &sizes[1], 1));
    }
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_CLOSE(((const float *)small->data)[3], 1, 0);
    small->deleter(small);
    CO_REQUIRE(pthread_create(&thread, NULL, use_and_delete, lent) == 0);
    pthread_join(thread, NULL);
}

CO_TEST(tensors_that_cannot_be_taken_are_given_back, "C-VAL-5")
{
    float   memory[4] = { 0 };
    int64_t good[1] = { 4 }, negative[1] = { -4 }, huge[2] = { INT64_C(1) << 40, INT64_C(1) << 40 };
    int64_t far[1] = { INT64_C(1) << 62 }, least[1] = { INT64_MIN }, many[9] = { 0 };
    int64_t pair[2] = { 2, 2 }, farther[2] = { INT64_C(1) << 61, 1 };
    int64_t together[2] = { INT64_C(1) << 60, INT64_C(1) << 60 };
    const struct {
        dl_managed  lent;
        const char *part;
    } cases[] = {
        { { memory, 2, 0, 1, 2, 32, 1, good, NULL, 0, NULL, NULL }, "device type 2" },
        { { memory, 0, 0, 1, 2, 32, 1, good, NULL, 0, NULL, NULL }, "device type 0" },
        { { memory, 1, 0, 1, 5, 64, 1, good, NULL, 0, NULL, NULL }, "complex" },
        { { memory, 1, 0, 1, 3, 64, 1, good, NULL, 0, NULL, NULL }, "code 3" },
        { { memory, 1, 0, 1, 2, 8, 1, good, NULL, 0, NULL, NULL }, "8 bits" },
        { { memory, 1, 0, 1, 2, 32, 4, good, NULL, 0, NULL, NULL }, "4 lanes" },
        { { memory, 1, 0, 1, 2, 32, 0, good, NULL, 0, NULL, NULL }, "0 lanes" },
        { { memory, 1, 0, 1, 255, 255, 65535, good, NULL, 0, NULL, NULL }, "255" },
        { { memory, 1, 0, -1, 2, 32, 1, good, NULL, 0, NULL, NULL }, "ndim -1" },
        { { memory, 1, 0, 9, 2, 32, 1, many, NULL, 0, NULL, NULL }, "at most 8" },
        { { memory, 1, 0, 1, 2, 32, 1, NULL, NULL, 0, NULL, NULL }, "NULL" },
        { { memory, 1, 0, 1, 2, 32, 1, negative, NULL, 0, NULL, NULL }, "-4" },
        { { memory, 1, 0, 2, 2, 32, 1, huge, NULL, 0, NULL, NULL }, "1099511627776" },
        { { NULL, 1, 0, 1, 2, 32, 1, good, NULL, 0, NULL, NULL }, "no data" },
        { { memory, 1, 0, 1, 2, 32, 1, good, far, 0, NULL, NULL }, "stride" },
        { { memory, 1, 0, 1, 2, 32, 1, good, least, 0, NULL, NULL }, "stride" },
        { { memory, 1, 0, 2, 2, 32, 1, pair, farther, 0, NULL, NULL }, "stride" },  /* in bytes */
        { { memory, 1, 0, 2, 2, 32, 1, pair, together, 0, NULL, NULL }, "stride" }, /* in all */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        int        deletes = 0;
        dl_managed lent = cases[i].lent;

        lent.manager = &deletes;
        lent.deleter = count_delete;
        CO_EXPECT_NULL(co_from_dlpack(ctx, &lent));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, cases[i].part);
        CO_EXPECT_INT(deletes, 1);
        lent.deleter = NULL; /* allowed */
        CO_EXPECT_NULL(co_from_dlpack(ctx, &lent));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, cases[i].part);
    }
}

CO_TEST(host_memory_of_other_devices_is_memory_of_the_host, "")
{
    static float      memory[4] = { 1, 2, 3, 4 };
    static int64_t    shape[1] = { 4 }, apart[1] = { 2 };
    static int        deletes;
    static dl_managed lent;
    static const int  types[] = { 3, 11 }; /* page-locked for CUDA and ROCm */

    for (int i = 0; i < 2; ++i)
        CO_BLOCK(ctx) {
            lent = lend(memory, shape, 1, &deletes);
            lent.device_type = types[i];
            CO_EXPECT_PTR(co_value_data(ctx, co_from_dlpack(ctx, &lent)), memory);
        }
    CO_EXPECT_INT(deletes, 2);
    CO_DEVICE(ctx, "/gpu:7") { /* which is not there */
        lent = lend(memory, shape, 1, &deletes);
        CO_EXPECT_NULL(co_from_dlpack(ctx, &lent));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:7");
        shape[0] = 2;
        lent.strides = apart; /* to be copied */
        CO_EXPECT_NULL(co_from_dlpack(ctx, &lent));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:7");
    }
    CO_EXPECT_INT(deletes, 4);
}

CO_TEST(misuse_gives_back_too, "")
{
    float      memory[4] = { 0 };
    int64_t    shape[1] = { 4 };
    int        deletes = 0;
    dl_managed lent = lend(memory, shape, 1, &deletes);

    CO_EXPECT_NULL(co_from_dlpack(NULL, &lent));
    CO_EXPECT_INT(deletes, 1);
    co_fail(ctx, CO_VALUE_ERROR, "before");
    CO_EXPECT_NULL(co_from_dlpack(ctx, &lent));
    CO_EXPECT_INT(deletes, 2);
    CO_EXPECT_NULL(co_to_dlpack(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "before");
    CO_EXPECT_NULL(co_from_dlpack(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2");
    CO_EXPECT_NULL(co_to_dlpack(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (tensor) of to_dlpack is NULL");
    CO_EXPECT_NULL(co_to_dlpack(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "host integer");
    CO_EXPECT_NULL(co_to_dlpack(ctx, co_to_tensor(ctx, co_string(ctx, "s"), CO_STRING)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strings");
    CO_EXPECT_NULL(co_to_dlpack(NULL, NULL));
}

static bool
lend_and_borrow(co_context *ctx)
{
    static float      memory[4] = { 1, 2, 3, 4 };
    static int64_t    shape[1] = { 4 };
    static int        deletes;
    static dl_managed in;
    dl_managed       *out;
    bool              ok;

    deletes = 0;
    in = lend(memory, shape, 1, &deletes);
    CO_BLOCK(ctx) {
        co_value *x = co_from_dlpack(ctx, &in);

        out = co_to_dlpack(ctx, x);
        ok = x != NULL && out != NULL;
        if (out != NULL)
            out->deleter(out);
    }
    CO_EXPECT_INT(deletes, 1);
    return ok;
}

CO_TEST_BARE(lending_survives_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, lend_and_borrow);
}
