# A program in C, which capi_test.cc runs.
add_executable(capi_use ${CMAKE_CURRENT_LIST_DIR}/use.c)
set_target_properties(capi_use PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
target_compile_options(capi_use PRIVATE -Wall -Wextra -Werror -pedantic)
target_link_libraries(capi_use PRIVATE onnxtrain_c m)
target_link_libraries(${name} PRIVATE onnxtrain_c)
add_dependencies(${name} capi_use onnxtrain_backend_cpu)
