target_link_libraries(${name} PRIVATE onnx_conformance_cases op_table_lib)
