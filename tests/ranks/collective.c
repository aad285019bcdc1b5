/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of tests/unit/collective_bodies.h over MPI. Every case opens a group of its own, so
 * opening and closing again and again is tested too.
 */
#include "collective/collective.h"
#include "collective_bodies.h"
#include "test.h"

/* Groups that MPI has not let go of: leaked, as they must be, and found from here, so that they are
 * no leaks to a sanitizer. */
static coi_group *volatile left[256];
static size_t num_left;

static void
run_over_mpi(group_body body)
{
    coi_memory        memory;
    coi_waiting       waiting;
    coi_group_options options = { .memory = &memory, .waiting = &waiting, .deadline_ms = LONG_MS };
    coi_group        *group;
    uint64_t          start;
    co_error_info     err;
    bool              is_broken, is_let_go;

    coi_memory_init(&memory, NULL);
    coi_waiting_init(&waiting, 2, 20);
    coi_waiting_begin(&waiting);
    coi_error_reset(&err);
    CO_EXPECT_TRUE(coi_mpi_launched());
    if (!CO_EXPECT_CODE(coi_group_open("mpi", &options, &group, &err), CO_OK))
        CO_FAIL("%s", err.message);
    body(group);
    is_broken = group->broken;
    start = coi_now_ns();
    is_let_go = coi_group_close(group);
    CO_EXPECT_LESS(ms_since(start), LONG_MS / 2);
    if (is_let_go)
        CO_EXPECT_INT(memory.bytes_in_use, 0);
    else
        CO_EXPECT_TRUE(is_broken); /* a peer that came too late for its last word */
    if (!is_let_go && CO_EXPECT_TRUE(num_left < sizeof(left) / sizeof(left[0])))
        left[num_left++] = group;
}

#define CASE(name)                                                                                 \
    CO_TEST_BARE(name, "")                                                                         \
    {                                                                                              \
        run_over_mpi(body_##name);                                                                 \
    }
COLLECTIVE_CASES(CASE)
