# Installs a relocatable tree: bin/onnxtrain, lib/libonnxtrain.so, lib/libonnxtrain_backend_*.so, headers and a CMake
# package; for C, lib/libonnxtrain_c.so.1, onnxtrain.h and onnxtrain.pc.
include(CMakePackageConfigHelpers)
install(TARGETS onnxtrain EXPORT onnxtrain LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY frontend backends optim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onnxtrain
        FILES_MATCHING PATTERN "*.h" PATTERN "backends/cpu" EXCLUDE PATTERN "backends/torch" EXCLUDE)
install(TARGETS onnxtrain_c EXPORT onnxtrain-c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES capi/onnxtrain.h frontend/plugin/onnxtrain_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES tests/plugin/ten_operators.c tests/plugin/example_operators.c
        DESTINATION ${CMAKE_INSTALL_DATADIR}/onnxtrain/plugins)
install(EXPORT onnxtrain-c NAMESPACE onnxtrain:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/onnxtrain
        FILE onnxtrain-c-targets.cmake)
file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/onnxtrain.pc.in ${CMAKE_BINARY_DIR}/onnxtrain.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/onnxtrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT onnxtrain NAMESPACE onnxtrain:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/onnxtrain
        FILE onnxtrain-targets.cmake)
configure_package_config_file(cmake/onnxtrain-config.cmake.in ${CMAKE_BINARY_DIR}/onnxtrain-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/onnxtrain)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/onnxtrain-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/onnxtrain-config.cmake ${CMAKE_BINARY_DIR}/onnxtrain-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/onnxtrain)
