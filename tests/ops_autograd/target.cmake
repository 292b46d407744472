# Runs the cases of tests/ops against libtorch's autograd.
target_sources(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ops/run.cc)
target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ops)
target_link_libraries(${name} PRIVATE op_cases onnxtrain_libtorch)
