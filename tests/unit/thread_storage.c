/* SPDX-License-Identifier: Apache-2.0 */
/* A host with so much thread-local data that it does not fit on a small stack. */
#include "base/threads.h"
#include "test.h"

static _Thread_local volatile char large[3 << 20];

static void
use_large(void *arg)
{
    for (size_t i = 0; i < sizeof(large); i += 4096)
        large[i] = 1;
    *(int *)arg = large[4096];
}

CO_TEST_BARE(a_thread_gets_a_stack_that_holds_the_hosts_data, "")
{
    coi_memory  memory;
    coi_thread *thread;
    int         seen = 0;

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_thread_start(&memory, "t", NULL, 0, 0, use_large, &seen, &thread, NULL) ==
               CO_OK);
    coi_thread_join(&memory, thread);
    CO_EXPECT_INT(seen, 1);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}
