# Replaces CU_SOURCES by two sources, so that nvcc reads the headers, which is most of its work, only
# twice. The first source includes all files but optim, each in a namespace of its own, except for
# functions declared extern "C". optim stays a source of its own, because it has its own flags.
set(headers)
set(text)
set(apart)
foreach(source ${CU_SOURCES})
  get_filename_component(stem ${source} NAME_WE)
  if(stem STREQUAL optim)
    list(APPEND apart ${source})
    continue()
  endif()
  file(STRINGS ${source} lines REGEX "^#include")
  list(APPEND headers ${lines})
  string(APPEND text "namespace unit_${stem} {\n#include \"${source}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES headers)
list(JOIN headers "\n" headers)
set(CU_SOURCES ${CMAKE_BINARY_DIR}/gen/kernels.cu)
file(CONFIGURE OUTPUT ${CU_SOURCES} CONTENT "${headers}\n${text}" @ONLY) # not rewritten if unchanged
list(APPEND CU_SOURCES ${apart})
