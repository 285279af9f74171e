# Every dependency comes from Debian 12 (scripts/setup installs them); nothing is fetched.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED CONFIG)  # after Protobuf in module mode, or it finds none
find_package(absl REQUIRED CONFIG)
find_package(spdlog REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(hwy REQUIRED CONFIG)
# Its CMake package breaks beside LibTorch's (both define a target "gflags").
pkg_check_modules(ROCKSDB REQUIRED IMPORTED_TARGET rocksdb)
find_package(prometheus-cpp REQUIRED CONFIG)
find_package(dnnl REQUIRED CONFIG)  # its CMake package wants OpenCL's development files
find_package(ZLIB REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)
set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
add_library(weft_hdf5 INTERFACE)
target_include_directories(weft_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(weft_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

if(WEFT_WITH_TESTS)
  find_package(GTest REQUIRED CONFIG)
endif()
if(WEFT_WITH_BENCHMARKS)
  find_package(benchmark REQUIRED CONFIG)
endif()
if(WEFT_WITH_TORCH)
  find_package(Torch REQUIRED)
endif()
