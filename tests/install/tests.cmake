# SPDX-License-Identifier: Apache-2.0
#
# A project outside the tree, with a strategy of its own. A sanitized library wants its users built alike, which a
# stranger's project is not.
if(NOT COHORT_SANITIZE)
    cohort_test(install.own_strategy "${PROJECT_SOURCE_DIR}/scripts/check-outside" "${CMAKE_BINARY_DIR}")
endif()
