# Tests choose the instruction set of the vector kernels.
target_link_libraries(${name} PRIVATE onnxtrain_highway)
# The backend exports no symbols for tests.
target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/backends/cpu/lower/unit_graph.cc)
