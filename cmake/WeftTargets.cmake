# Interface targets that every Weft library links privately, and two helpers.

add_library(weft_warnings INTERFACE)
target_compile_options(weft_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wno-unused-parameter -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${WEFT_WERROR}>:-Werror>)

add_library(weft_sanitizers INTERFACE)
if(WEFT_SANITIZE)
  set(weft_sanitize_flags -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  if(WEFT_SANITIZE MATCHES "undefined")
    # vptr needs RTTI of prebuilt libraries; alignment reports third-party headers.
    list(APPEND weft_sanitize_flags -fno-sanitize=vptr,null,alignment -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(weft_sanitizers INTERFACE ${weft_sanitize_flags})
  target_link_options(weft_sanitizers INTERFACE ${weft_sanitize_flags})
endif()
set(weft_test_environment "WEFT_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "WEFT_BINARY_DIR=${PROJECT_BINARY_DIR}")
if(WEFT_SANITIZE MATCHES "thread")
  list(APPEND weft_test_environment
       "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt")
endif()

# weft_library(NAME SRCS ... DEPS ...): a static library with include paths from the root.
function(weft_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${arg_DEPS} weft_sanitizers
                          PRIVATE ${arg_PRIVATE_DEPS} weft_warnings)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${arg_DEPS} weft_sanitizers)
  endif()
endfunction()

# All tests labelled `unit`: what ThreadSanitizer runs over.
add_custom_target(weft_unit_tests)

# weft_test(NAME SRCS ... DEPS ... LABELS ... [SHARDS n]): one GoogleTest binary, one ctest entry a
# shard (listing the cases of a binary by running it costs too much for the ones that link LibTorch).
function(weft_test name)
  cmake_parse_arguments(arg "" "SHARDS;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} weft_warnings weft_sanitizers
                        GTest::gmock GTest::gtest_main)
  if("unit" IN_LIST arg_LABELS)
    add_dependencies(weft_unit_tests ${name})
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(arg_SHARDS GREATER 1)
      set(test ${name}_${shard})
    endif()
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES
      LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard};${weft_test_environment}")
  endforeach()
endfunction()

# weft_service_proto(NAME PROTO): messages and gRPC code of one .proto file below the calling folder.
function(weft_service_proto name proto)
  add_library(${name} STATIC)
  protobuf_generate(
    TARGET ${name}
    IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/proto
    PROTOC_OUT_DIR ${CMAKE_CURRENT_BINARY_DIR}
    PROTOS ${proto})
  protobuf_generate(
    TARGET ${name}
    LANGUAGE grpc
    PLUGIN protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>
    GENERATE_EXTENSIONS .grpc.pb.h .grpc.pb.cc
    IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/proto
    PROTOC_OUT_DIR ${CMAKE_CURRENT_BINARY_DIR}
    PROTOS ${proto})
  target_include_directories(${name} SYSTEM PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC gRPC::grpc++ weft_proto)
endfunction()
