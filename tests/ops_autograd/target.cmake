# The cases and the means to run them come from tests/ops; the references are libtorch's.
file(GLOB case_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ops/cases*.cc ${CMAKE_CURRENT_SOURCE_DIR}/ops/run.cc)
list(FILTER case_sources EXCLUDE REGEX "_test\\.cc$")
target_sources(${name} PRIVATE ${case_sources})
target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ops)
target_link_libraries(${name} PRIVATE onnxtrain_libtorch)
