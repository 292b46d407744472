# Links the readers alone, so that sanitizer builds stay small.
target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools/onnxtrain/flags/flag_lines.cc
                               ${CMAKE_SOURCE_DIR}/tools/onnxtrain/flags/flags_prepass.cc
                               ${CMAKE_SOURCE_DIR}/optim/config/config_synonyms.cc)
find_package(glog REQUIRED)
find_package(yaml-cpp REQUIRED)
target_link_libraries(${name} PRIVATE frontend_base frontend_graph frontend_ops frontend_passes frontend_onnx
                                      frontend_data glog::glog yaml-cpp)
