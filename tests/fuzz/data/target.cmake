# Shares the targets of the readers of data, which link frontend/data alone, with tests_fuzz.
foreach(source data_targets seeds scratch)
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/${source}.cc)
endforeach()
find_package(glog REQUIRED)
target_link_libraries(${name} PRIVATE glog::glog)
