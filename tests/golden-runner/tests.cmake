# SPDX-License-Identifier: Apache-2.0
#
# The golden runner itself: where its data is, and that it tells right from wrong, and that no case that passed fails again.

if(TARGET golden)
    target_compile_definitions(golden PRIVATE "GOLDEN_DEFAULT_FOLDER=\"${PROJECT_SOURCE_DIR}/tests/golden\"")
    cohort_test(golden.hostile "${PROJECT_SOURCE_DIR}/tests/golden-runner/check_hostile.sh" $<TARGET_FILE:golden>)
    cohort_test(golden.wrong "${PROJECT_SOURCE_DIR}/tests/golden-runner/check_wrong.sh" $<TARGET_FILE:golden>)
    cohort_test(golden.counts "${PROJECT_SOURCE_DIR}/tests/golden-runner/check_counts.sh" $<TARGET_FILE:golden>)
    cohort_test(golden.function "${PROJECT_SOURCE_DIR}/tests/golden-runner/check_counts.sh" $<TARGET_FILE:golden> --function)
    cohort_test(golden.types "${PROJECT_SOURCE_DIR}/tests/golden-runner/check_types.sh" $<TARGET_FILE:golden>)
else()
    cohort_skipped_test(golden "it reads its data with jansson, which this build was configured without")
endif()
