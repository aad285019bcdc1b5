/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instruction sets of the processor, by the levels of the x86-64 psABI. cpuid is asked here and
 * not by the compiler's builtins, because those of the compilers we support do not know all
 * features of a level; and a feature counts only if the system saves its registers.
 */
#include "base/isa.h"

#include "base/text.h"
#include "config.h"

#include <stdint.h>
#include <string.h>

static const char *const names[COI_NUM_ISAS] = { "base", "v3", "v4" };

const char *
coi_isa_name(coi_isa isa)
{
    return (unsigned)isa < COI_NUM_ISAS ? names[isa] : "?";
}

#if defined(__x86_64__)

#include <cpuid.h>

/* Register r of leaf l: eax, ebx, ecx, edx are 0 to 3. */
typedef struct feature_bits {
    coi_isa  isa;
    unsigned leaf;
    int      reg;
    uint32_t bits;
} feature_bits;

#define BIT(n) (UINT32_C(1) << (n))

static const feature_bits needs[] = {
    /* sse3 ssse3 fma cx16 sse4.1 sse4.2 movbe popcnt osxsave avx f16c */
    { COI_ISA_V3, 1, 2,
      BIT(0) | BIT(9) | BIT(12) | BIT(13) | BIT(19) | BIT(20) | BIT(22) | BIT(23) | BIT(27) |
          BIT(28) | BIT(29) },
    { COI_ISA_V3, 7, 1, BIT(3) | BIT(5) | BIT(8) },  /* bmi1 avx2 bmi2 */
    { COI_ISA_V3, 0x80000001u, 2, BIT(0) | BIT(5) }, /* lahf lzcnt */
    { COI_ISA_V4, 7, 1,
      BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31) }, /* avx512 f dq cd bw vl */
};

/* The registers that the system saves: xmm and ymm for v3, opmask and zmm besides for v4. */
static const uint64_t saved[COI_NUM_ISAS] = { 0, 0x06, 0xe6 };

static uint64_t
saved_registers(void)
{
    uint32_t low;
    uint32_t high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool
processor_has(coi_isa isa)
{
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); ++i) {
        uint32_t r[4];

        if (needs[i].isa > isa)
            continue;
        if (__get_cpuid_count(needs[i].leaf, 0, &r[0], &r[1], &r[2], &r[3]) == 0 ||
            (r[needs[i].reg] & needs[i].bits) != needs[i].bits)
            return false;
    }
    /* Level 3 and up have osxsave in their needs, so xgetbv is there. */
    return isa == COI_ISA_BASE || (saved_registers() & saved[isa]) == saved[isa];
}

#else

static bool
processor_has(coi_isa isa)
{
    return isa == COI_ISA_BASE;
}

#endif

static bool
build_has(coi_isa isa)
{
    static const bool built[COI_NUM_ISAS] = { true, COI_HAVE_ISA_V3, COI_HAVE_ISA_V4 };

    return built[isa];
}

/* The highest set for which `has` holds. */
static coi_isa
highest(bool (*has)(coi_isa isa))
{
    coi_isa isa = COI_NUM_ISAS - 1;

    while (isa > COI_ISA_BASE && !has(isa))
        --isa;
    return isa;
}

co_code
coi_isa_choose(const char *text, coi_isa *out, co_error_info *err)
{
    coi_isa isa;

    if (text == NULL || strcmp(text, "auto") == 0) {
        isa = COI_NUM_ISAS - 1;
        while (isa > COI_ISA_BASE && !(build_has(isa) && processor_has(isa)))
            --isa;
        *out = isa;
        return CO_OK;
    }
    for (isa = COI_ISA_BASE; isa < COI_NUM_ISAS; ++isa)
        if (strcmp(text, names[isa]) == 0)
            break;
    if (isa == COI_NUM_ISAS)
        return coi_error(err, CO_VALUE_ERROR, "setting isa='%.*s%s': expected auto, base, v3 or v4",
                         COI_CUT(40, text));
    if (!build_has(isa) || !processor_has(isa))
        return coi_error(
            err, CO_VALUE_ERROR,
            "setting isa='%s': this processor goes up to %s and this build up to %s; use auto",
            text, names[highest(processor_has)], names[highest(build_has)]);
    *out = isa;
    return CO_OK;
}
