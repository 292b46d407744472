# The backend exports no symbols for tests: its objects are linked.
target_link_libraries(${name} PRIVATE onnxtrain_backend_torch_objects op_cases)
target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/ops/run.cc)
target_compile_definitions(${name} PRIVATE ONNXTRAIN_CXX="${CMAKE_CXX_COMPILER}")
