# The backend exports no symbols for tests.
target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/backends/torch/nccl/nccl_collectives.cc)
find_package(glog REQUIRED)
target_link_libraries(${name} PRIVATE glog::glog)
