# Debian packages: weir, and weir-cuda if the CUDA backend was built. Run `cpack` in a build folder
# that was configured with -DCMAKE_INSTALL_PREFIX=/usr, so that libraries are where Debian has them.
# packaging/debian/prepare.cmake adapts the installed files to Debian's policy.
set(WEIR_MAINTAINER "The Weir authors <root@localhost>" CACHE STRING
    "Maintainer of the Debian packages: NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weir)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${WEIR_MAINTAINER}")
set(CPACK_PACKAGE_CHECKSUM)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packaging/debian/prepare.cmake)
set(CPACK_WEIR_COPYRIGHT ${CMAKE_SOURCE_DIR}/packaging/debian/copyright)
set(CPACK_WEIR_STRIP ${CMAKE_STRIP})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL weir)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(CPACK_DEBIAN_WEIR_PACKAGE_NAME weir)
set(CPACK_DEBIAN_WEIR_PACKAGE_SECTION science)
# Other programs use libweir.so.0: ldconfig finds it, and their packages depend on this one.
set(CPACK_DEBIAN_WEIR_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/packaging/debian/triggers;${CMAKE_SOURCE_DIR}/packaging/debian/shlibs")
# Users, in this order: --metrics_port; make_certs; make_data and ipsec; get_mnist.
set(CPACK_DEBIAN_WEIR_PACKAGE_RECOMMENDS "libmicrohttpd12, openssl, python3, curl | wget")
set(CPACK_DEBIAN_WEIR_PACKAGE_SUGGESTS
    "weir-cuda, dataset-fashion-mnist, strongswan-charon, strongswan-swanctl, nftables")
set(CPACK_COMPONENT_WEIR_DESCRIPTION "trains neural networks with parameter servers
Two small programs, weir-ps and weir-worker, started with the flags that
TensorFlow 1 users know, train a neural network on the CPUs of one host or
many. Workers join and leave while it trains; a killed process loses no
acknowledged work; the same seed and workers lead to the same bits.
weirctl shows the status of a running job, and sends it commands.
libweir and weir.h let a program with its own training loop join a job.

The package weir-cuda adds training on NVIDIA's GPUs.")

if(TARGET weir_cuda)
  list(APPEND CPACK_COMPONENTS_ALL weir-cuda)
  set(CPACK_DEBIAN_WEIR-CUDA_PACKAGE_NAME weir-cuda)
  set(CPACK_DEBIAN_WEIR-CUDA_PACKAGE_SECTION contrib/science)
  set(CPACK_DEBIAN_WEIR-CUDA_PACKAGE_DEPENDS
      "weir (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
  # NVIDIA's packages, its installer or pip install CUDA's libraries. Only the packages could satisfy
  # a dependency, so weir-cuda depends on none of them. The worker names each library that is missing.
  set(CPACK_DEBIAN_WEIR-CUDA_PACKAGE_RECOMMENDS
      "libcudnn9-cuda-${cuda_major}, libcublas-${cuda_dashed}")
  set(CPACK_DEBIAN_WEIR-CUDA_PACKAGE_SUGGESTS libnccl2)
  set(CPACK_COMPONENT_WEIR-CUDA_DESCRIPTION "trains neural networks on NVIDIA's GPUs (CUDA ${cuda_major})
The package adds to weir-worker the backend that computes on GPUs. It needs
NVIDIA's driver, cuDNN 9 and cuBLAS of CUDA ${cuda_major}, from NVIDIA's packages or
its installer; weir-worker --self_test names each library that is missing.")
endif()
include(CPack)
