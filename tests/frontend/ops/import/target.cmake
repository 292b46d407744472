target_link_libraries(${name} PRIVATE op_cases)
