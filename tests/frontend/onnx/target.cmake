# The examples of operators that tests bend.
target_link_libraries(${name} PRIVATE op_table_lib)
