# These tests write archives and compressed files.
find_package(ZLIB REQUIRED)
find_library(ZIP_LIBRARY zip REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
find_library(ARCHIVE_LIBRARY archive REQUIRED)
target_link_libraries(${name} PRIVATE ${ZIP_LIBRARY} ${ZSTD_LIBRARY} ${ARCHIVE_LIBRARY} ZLIB::ZLIB)
