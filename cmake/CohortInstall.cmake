# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where: headers, both libraries, the plug-in, the tool, the documents, which headers refer to, the
# pkg-config file and the CMake package.

if(NOT TARGET cohort)
    return()
endif()
include(CMakePackageConfigHelpers)

set(cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/cohort")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cohort" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h")
install(TARGETS cohort cohort_static EXPORT cohort-targets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET cohort_mpi)
    install(TARGETS cohort_mpi LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/cohort")
endif()
if(TARGET cohort_tool)
    set_target_properties(cohort_tool PROPERTIES
        INSTALL_RPATH "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS cohort_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    FILES_MATCHING PATTERN "*.md" PATTERN "*.tsv")

# A static link needs what the library itself needs: names, which are looked up again on the machine that uses them.
# They are no pkg-config requirements, because a program with the shared library needs none of their headers.
set(COHORT_STATIC_LIBRARIES "")
foreach(name IN ITEMS ONEDNN ZLIB)
    if(COI_HAVE_${name})
        get_filename_component(file "${COHORT_${name}_LIBRARY}" NAME_WE)
        string(REGEX REPLACE "^lib" "" file "${file}")
        list(APPEND COHORT_STATIC_LIBRARIES ${file})
    endif()
endforeach()
list(TRANSFORM COHORT_STATIC_LIBRARIES PREPEND "-l" OUTPUT_VARIABLE COHORT_PC_LIBS)
list(APPEND COHORT_PC_LIBS -lpthread -lm -ldl)
list(JOIN COHORT_PC_LIBS " " COHORT_PC_LIBS)

# The prefix is written relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH COHORT_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/cmake/cohort.pc.in" "${CMAKE_BINARY_DIR}/cohort.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/cohort.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/cohortConfig.cmake.in"
    "${CMAKE_BINARY_DIR}/cohortConfig.cmake" INSTALL_DESTINATION "${cmake_dir}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/cohortConfigVersion.cmake"
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(EXPORT cohort-targets NAMESPACE cohort:: DESTINATION "${cmake_dir}")
install(FILES "${CMAKE_BINARY_DIR}/cohortConfig.cmake" "${CMAKE_BINARY_DIR}/cohortConfigVersion.cmake"
    DESTINATION "${cmake_dir}")
