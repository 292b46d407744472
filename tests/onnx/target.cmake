# The examples of operators that tests bend.
target_link_libraries(tests_onnx PRIVATE op_table_lib)
