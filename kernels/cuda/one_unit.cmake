# All of CU_SOURCES as one source, whose headers, most of an nvcc's work, are read once; each kernel's
# names are in a namespace of its own. Not for a build that is to compute: optim's flags are left out.
set(headers)
set(text)
foreach(source ${CU_SOURCES})
  get_filename_component(stem ${source} NAME_WE)
  file(STRINGS ${source} lines REGEX "^#include")
  list(APPEND headers ${lines})
  string(APPEND text "namespace unit_${stem} {\n#include \"${source}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES headers)
list(JOIN headers "\n" headers)
set(CU_SOURCES ${CMAKE_BINARY_DIR}/gen/kernels.cu)
file(WRITE ${CU_SOURCES} "${headers}\n${text}")
