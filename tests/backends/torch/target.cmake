# The backend exports no symbols for tests.
target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/backends/torch/replay.cc
                               ${CMAKE_SOURCE_DIR}/backends/torch/upload_ring.cc)
find_package(glog REQUIRED)
target_link_libraries(${name} PRIVATE glog::glog)
