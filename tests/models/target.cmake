# These tests read what the program writes as JSON.
find_package(nlohmann_json REQUIRED)
target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
target_link_libraries(${name} PRIVATE tests_scratch onnxtrain_cli)
