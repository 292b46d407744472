target_link_libraries(${name} PRIVATE op_table_lib)
