/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the instruction set, the version, and the facts of the build. */
#include "base/isa.h"
#include "test.h"

CO_TEST_BARE(auto_is_the_highest_that_can_be_chosen_by_name, "")
{
    coi_isa best = COI_NUM_ISAS;
    coi_isa isa;

    CO_EXPECT_CODE(coi_isa_choose("auto", &best, NULL), CO_OK);
    CO_REQUIRE(best < COI_NUM_ISAS);
    CO_EXPECT_CODE(coi_isa_choose(NULL, &isa, NULL), CO_OK);
    CO_EXPECT_INT(isa, best);
    for (coi_isa i = COI_ISA_BASE; i < COI_NUM_ISAS; ++i) {
        co_error_info err;

        isa = COI_NUM_ISAS;
        coi_error_reset(&err);
        if (i <= best) {
            CO_EXPECT_CODE(coi_isa_choose(coi_isa_name(i), &isa, &err), CO_OK);
            CO_EXPECT_INT(isa, i);
        } else {
            CO_EXPECT_CODE(coi_isa_choose(coi_isa_name(i), &isa, &err), CO_VALUE_ERROR);
            CO_EXPECT_INT(isa, COI_NUM_ISAS);
            CO_EXPECT_CONTAINS(err.message, "this processor goes up to");
            CO_EXPECT_CONTAINS(err.message, "this build up to");
        }
    }
}

/* The compiler's builtin is a second opinion on the processor. */
CO_TEST_BARE(the_processor_is_read_as_the_compiler_reads_it, "")
{
#if defined(__x86_64__)
    coi_isa isa;
    bool    has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool    has_v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");

    CO_REQUIRE(coi_isa_choose("auto", &isa, NULL) == CO_OK);
    if (isa >= COI_ISA_V3)
        CO_EXPECT_TRUE(has_v3);
    if (isa >= COI_ISA_V4)
        CO_EXPECT_TRUE(has_v4);
    CO_EXPECT_TRUE(isa >= COI_ISA_V3 || !has_v3);
#else
    CO_SKIP("not an x86-64 processor");
#endif
}

CO_TEST_BARE(a_word_that_is_no_instruction_set_is_refused, "")
{
    static const char *const words[] = { "", "v2", "avx2", "AUTO", "v3 ", "\xff" };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        coi_isa       isa = COI_NUM_ISAS;
        co_error_info err;

        coi_error_reset(&err);
        CO_EXPECT_CODE(coi_isa_choose(words[i], &isa, &err), CO_VALUE_ERROR);
        CO_EXPECT_CONTAINS(err.message, "expected auto, base, v3 or v4");
        CO_EXPECT_INT(isa, COI_NUM_ISAS);
    }
    CO_EXPECT_STR(coi_isa_name((coi_isa)77), "?");
}

static void
count_fact(const char *name, const char *text, void *user)
{
    ++*(int *)user;
    CO_EXPECT_TRUE(name != NULL && name[0] != '\0');
    CO_EXPECT_NOT_NULL(text);
    if (strcmp(name, "version") == 0)
        CO_EXPECT_STR(text, CO_VERSION);
}

CO_TEST_BARE(the_build_tells_its_facts, "")
{
    int facts = 0;

    co_build_visit(count_fact, &facts);
    CO_EXPECT_MORE(facts, 5);
    co_build_visit(NULL, NULL);
    CO_EXPECT_STR(co_version(), CO_VERSION);
}
