# Finds the headers, tools and libraries that the CUDA backend is built with. Sets
#   CUDA_INCLUDES  folders of the headers, with those of NCCL if they exist
#   CUDA_UNFIT     faults of the headers: missing, too old; empty: no fault
#   CUDA_LEFT_OUT  reasons why the backend cannot be built: CUDA_UNFIT, and missing or unfit tools
#                  and libraries; empty: it can be built
# and NVCC, CUDNN_LIBRARY, CUBLAS_LIBRARY, CUBLASLT_LIBRARY, CUDART_LIBRARY, NCCL_INCLUDE,
# NCCL_LIBRARY. A user can set each of these with -D, and also CUDART_INCLUDE, CUBLAS_INCLUDE and
# CUDNN_INCLUDE.
set(WEIR_CUDA_ROOTS "" CACHE STRING
    "Where to look first: a CUDA toolkit, a folder of cuDNN's, site-packages/nvidia of Python's")
set(WEIR_CUDA_HOST_COMPILER "" CACHE STRING
    "The C++ compiler for nvcc, where the system's is too new for it: nvcc -ccbin")
set(CUDA_OLDEST 12.4)
set(NCCL_OLDEST 2.18)
set(CUDA_UNFIT)
set(CUDA_LEFT_OUT)

# Each package of pip has a folder of its own: site-packages/nvidia/cudnn/{include,lib}.
set(cuda_roots)
foreach(root ${WEIR_CUDA_ROOTS})
  file(GLOB packages LIST_DIRECTORIES ON ${root}/*)
  list(APPEND cuda_roots ${root} ${packages})
endforeach()
find_program(NVCC nvcc HINTS ${cuda_roots} PATH_SUFFIXES bin PATHS /usr/local/cuda)
if(NVCC) # the toolkit of nvcc is searched before other toolkits of the system
  file(REAL_PATH ${NVCC} root)
  cmake_path(GET root PARENT_PATH root)
  cmake_path(GET root PARENT_PATH root)
  list(APPEND cuda_roots ${root})
endif()

function(cuda_header variable file)
  find_path(${variable} ${file} HINTS ${cuda_roots} PATH_SUFFIXES include include/cccl
            PATHS /usr/local/cuda)
endfunction()

# Packages of pip have no links without a version, so the search includes the versioned names.
function(cuda_library variable)
  find_library(${variable} NAMES ${ARGN} NAMES_PER_DIR HINTS ${cuda_roots}
               PATH_SUFFIXES lib64 lib PATHS /usr/local/cuda)
endfunction()

# Sets `out` to the number that a header defines as `name`; "?": the header does not define it.
function(cuda_defined file name out)
  set(line)
  if(EXISTS ${file})
    file(STRINGS ${file} line REGEX "^#define +${name} +[0-9]" LIMIT_COUNT 1)
  endif()
  set(${out} "?" PARENT_SCOPE)
  if(line MATCHES "${name} +([0-9]+)")
    set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

macro(cuda_lacks list)
  string(CONCAT why ${ARGN})
  list(APPEND ${list} ${why})
endmacro()

cuda_header(CUDART_INCLUDE cuda_runtime_api.h)
# The headers of the runtime include these two, which are in separate packages of pip.
cuda_header(CUDA_CRT_INCLUDE crt/host_defines.h)
cuda_header(CUDA_CCCL_INCLUDE nv/target)
cuda_header(CUBLAS_INCLUDE cublas_v2.h)
cuda_header(CUDNN_INCLUDE cudnn.h)
cuda_header(NCCL_INCLUDE nccl.h)
set(CUDA_INCLUDES ${CUDART_INCLUDE} ${CUBLAS_INCLUDE} ${CUDNN_INCLUDE} ${CUDA_CRT_INCLUDE}
    ${CUDA_CCCL_INCLUDE})
set(cuda_major)
if(NOT CUDART_INCLUDE)
  cuda_lacks(CUDA_UNFIT "there is no cuda_runtime_api.h")
else()
  cuda_defined(${CUDART_INCLUDE}/cuda_runtime_api.h CUDART_VERSION version)
  string(REGEX REPLACE "^([0-9]+)0([0-9]+).$" "\\1.\\2" version ${version})
  string(REGEX MATCH "^[0-9]+" cuda_major ${version})
  string(REPLACE "." "-" cuda_dashed ${version}) # as in the names of NVIDIA's packages
  if(version VERSION_LESS CUDA_OLDEST)
    cuda_lacks(CUDA_UNFIT "the headers in ${CUDART_INCLUDE} are of CUDA ${version}")
  endif()
endif()
if(CUDART_INCLUDE AND NOT CUDA_CRT_INCLUDE)
  cuda_lacks(CUDA_UNFIT "there is no crt/host_defines.h, which pip has in "
             "nvidia-cuda-nvcc-cu12 and nvidia-cuda-crt")
endif()
if(CUDART_INCLUDE AND NOT CUDA_CCCL_INCLUDE)
  cuda_lacks(CUDA_UNFIT "there is no nv/target, which pip has in "
             "nvidia-cuda-cccl-cu12 (of 12.6 or newer) and nvidia-cuda-cccl")
endif()
if(NOT CUBLAS_INCLUDE)
  cuda_lacks(CUDA_UNFIT "there is no cublas_v2.h")
elseif(cuda_major)
  cuda_defined(${CUBLAS_INCLUDE}/cublas_api.h CUBLAS_VER_MAJOR version)
  if(NOT version STREQUAL cuda_major)
    cuda_lacks(CUDA_UNFIT "the headers in ${CUBLAS_INCLUDE} are of cuBLAS ${version}, not of "
         "CUDA ${cuda_major} as those in ${CUDART_INCLUDE}")
  endif()
endif()
if(NOT CUDNN_INCLUDE)
  cuda_lacks(CUDA_UNFIT "there is no cudnn.h")
else()
  cuda_defined(${CUDNN_INCLUDE}/cudnn_version.h CUDNN_MAJOR version)
  if(NOT version STREQUAL 9)
    cuda_lacks(CUDA_UNFIT "the headers in ${CUDNN_INCLUDE} are of cuDNN ${version}")
  endif()
endif()

# A worker loads NCCL only if it has towers on several GPUs; the build needs only the header.
set(without_nccl)
if(NOT NCCL_INCLUDE)
  set(without_nccl "there is no nccl.h")
else()
  cuda_defined(${NCCL_INCLUDE}/nccl.h NCCL_MAJOR version)
  cuda_defined(${NCCL_INCLUDE}/nccl.h NCCL_MINOR minor)
  if("${version}.${minor}" VERSION_LESS NCCL_OLDEST)
    set(without_nccl "it needs ${NCCL_OLDEST} or newer, ${NCCL_INCLUDE} has ${version}.${minor}")
    set(NCCL_INCLUDE NCCL_INCLUDE-NOTFOUND)
  else()
    list(APPEND CUDA_INCLUDES ${NCCL_INCLUDE})
  endif()
endif()
if(without_nccl)
  message(STATUS "CUDA backend: built without NCCL, ${without_nccl}; the gradients of several "
                 "cards are added on the host")
endif()
list(REMOVE_DUPLICATES CUDA_INCLUDES)

cuda_library(CUDNN_LIBRARY cudnn libcudnn.so.9)
cuda_library(CUBLAS_LIBRARY cublas libcublas.so.${cuda_major})
cuda_library(CUBLASLT_LIBRARY cublasLt libcublasLt.so.${cuda_major})
cuda_library(CUDART_LIBRARY cudart_static cudart libcudart.so.${cuda_major})
cuda_library(NCCL_LIBRARY nccl libnccl.so.2)
set(CUDA_LEFT_OUT ${CUDA_UNFIT})
foreach(library CUDNN CUBLAS CUBLASLT CUDART)
  string(TOLOWER ${library} name)
  string(REPLACE blaslt blasLt name ${name})
  if(NOT ${library}_LIBRARY)
    cuda_lacks(CUDA_LEFT_OUT "there is no lib${name}")
    continue()
  endif()
  set(major ${cuda_major})
  if(library STREQUAL CUDNN)
    set(major 9)
  endif()
  file(REAL_PATH ${${library}_LIBRARY} file) # libcudnn.so is a link to libcudnn.so.8.9.7
  if(major AND file MATCHES "\\.so\\.([0-9]+)" AND NOT CMAKE_MATCH_1 STREQUAL major)
    cuda_lacks(CUDA_LEFT_OUT "${file} is of version ${CMAKE_MATCH_1}, not of ${major}")
  endif()
endforeach()
if(NOT NVCC)
  cuda_lacks(CUDA_LEFT_OUT "there is no nvcc")
else()
  execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE said ERROR_VARIABLE said)
  set(version "?")
  if(said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(version ${CMAKE_MATCH_1})
  endif()
  string(REGEX MATCH "^[0-9]+" major ${version})
  if(version VERSION_LESS CUDA_OLDEST)
    cuda_lacks(CUDA_LEFT_OUT "${NVCC} is of CUDA ${version}")
  elseif(cuda_major AND NOT major STREQUAL cuda_major)
    cuda_lacks(CUDA_LEFT_OUT "${NVCC} is of CUDA ${version}, the headers in ${CUDART_INCLUDE} of "
         "CUDA ${cuda_major}")
  endif()
endif()
# A CUDA compiler that does not accept the system's C++ compiler or C library fails at every file.
set(try "${NVCC} ${WEIR_CUDA_HOST_COMPILER}")
if(NOT CUDA_LEFT_OUT AND NOT WEIR_SANITIZE AND NOT WEIR_FUZZ AND NOT try STREQUAL WEIR_NVCC_TRIED)
  set(ccbin)
  if(WEIR_CUDA_HOST_COMPILER)
    set(ccbin -ccbin ${WEIR_CUDA_HOST_COMPILER})
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/cu/try.cu "__global__ void f(float *x) { *x = 1; }\n")
  execute_process(COMMAND ${NVCC} -std=c++17 ${ccbin} -c try.cu -o try.o RESULT_VARIABLE failed
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/cu OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    string(REGEX MATCH "[^\n]*error[^\n]*" why "${said}\n${failed} (error)")
    string(REPLACE ";" "," why "${why}")
    cuda_lacks(CUDA_LEFT_OUT "${NVCC} cannot compile, and may need an older C++ compiler "
               "(-DWEIR_CUDA_HOST_COMPILER=g++-12): ${why}")
  else()
    set(WEIR_NVCC_TRIED ${try} CACHE INTERNAL "")
  endif()
endif()
string(JOIN "; " CUDA_UNFIT ${CUDA_UNFIT})
string(JOIN "; " CUDA_LEFT_OUT ${CUDA_LEFT_OUT})
