# Makes calls of the file system fail, for resume_test.cc.
add_library(fault_shim SHARED ${CMAKE_CURRENT_LIST_DIR}/fault_shim.c)
target_link_libraries(fault_shim PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(${name} fault_shim)
target_link_libraries(${name} PRIVATE tests_scratch onnxtrain_cli)
