# The backend exports no symbols for tests: its objects are linked; those with CUDA, where there are some.
if(ONNXTRAIN_CUDA_TORCH)
  target_link_libraries(${name} PRIVATE onnxtrain_backend_torch_cuda_objects)
else()
  target_link_libraries(${name} PRIVATE onnxtrain_backend_torch_objects)
endif()
target_link_libraries(${name} PRIVATE op_cases)
target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/ops/run.cc)
target_compile_definitions(${name} PRIVATE ONNXTRAIN_CXX="${CMAKE_CXX_COMPILER}")
