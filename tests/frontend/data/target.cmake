# These tests write archives and compressed files.
find_package(ZLIB REQUIRED)
find_library(ZIP_LIBRARY zip REQUIRED)
target_link_libraries(${name} PRIVATE ${ZIP_LIBRARY} ZLIB::ZLIB)
