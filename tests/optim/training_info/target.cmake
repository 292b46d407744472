# Tests of training_info put algorithms together.
find_package(Protobuf REQUIRED)
find_library(ONNX_PROTO_LIBRARY onnx_proto REQUIRED)
find_package(nlohmann_json REQUIRED)
target_link_libraries(${name} PRIVATE ${ONNX_PROTO_LIBRARY} protobuf::libprotobuf nlohmann_json::nlohmann_json)
target_compile_definitions(${name} PRIVATE ONNX_ML=1 ONNX_NAMESPACE=onnx)
target_link_libraries(${name} PRIVATE tests_scratch onnxtrain_cli)
