# CU_SOURCES as two sources, whose headers, most of an nvcc's work, are read once for each; each
# file's names are in a namespace of its own, but for the functions declared extern "C". optim has
# flags of its own and stays by itself.
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
file(CONFIGURE OUTPUT ${CU_SOURCES} CONTENT "${headers}\n${text}" @ONLY) # unchanged: nothing is compiled again
list(APPEND CU_SOURCES ${apart})
