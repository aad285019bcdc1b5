/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iterate a dataset. A dataset describes input; an iterator reads it. CO_EACH gives every element
 * its own block, so the values made for an element are released before the next one. The last batch
 * is short.
 */
#include <cohort/cohort.h>
#include <stdio.h>

int
main(void)
{
    static const float   heights[] = { 1.62F, 1.75F, 1.80F, 1.58F, 1.91F };
    static const int32_t ages[] = { 31, 45, 28, 60, 19 };

    co_context  *ctx = co_open(NULL);
    co_value    *people = co_args(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(5), heights),
                                  co_tensor(ctx, CO_INT32, CO_SHAPE(5), ages));
    co_dataset  *dataset = co_dataset_from_tensor_slices(ctx, people);
    co_iterator *iterator = co_iterate(ctx, co_dataset_batch(ctx, dataset, 2, false));

    CO_EACH(ctx, batch, iterator) {
        char text[200];

        co_format(ctx, batch, text, sizeof(text));
        printf("%s\n", text);
    }
    return co_close(ctx);
}
