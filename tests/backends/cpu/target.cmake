# Tests choose the instruction set of the vector kernels.
target_link_libraries(${name} PRIVATE onnxtrain_highway)
