# These tests write archives and compressed files.
find_package(ZLIB REQUIRED)
find_library(ZIP_LIBRARY zip REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_library(ARCHIVE_LIBRARY archive REQUIRED)
target_link_libraries(${name} PRIVATE ${ZIP_LIBRARY} ${ZSTD_LIBRARY} ${ARCHIVE_LIBRARY} ZLIB::ZLIB)
find_package(nlohmann_json REQUIRED)
target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
# Prints token ids for tests/parity/tokenizers/compare_ids.py, which is run by hand.
add_executable(tokenizer_ids EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/parity/tokenizers/tokenizer_ids.cc)
target_link_libraries(tokenizer_ids PRIVATE frontend_base frontend_graph frontend_data)
