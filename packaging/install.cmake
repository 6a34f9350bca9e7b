# The files that `cmake --install` installs, their folders, and the target `uninstall`.
# packaging/debian.cmake makes Debian packages from them. The component weir-cuda is the CUDA
# backend; the component weir is all other files.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME weir)
set(data ${CMAKE_INSTALL_DATADIR}/weir)
set(package ${CMAKE_INSTALL_DATADIR}/cmake/Weir)
set(man ${CMAKE_INSTALL_MANDIR}/man1)
set(completions ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

# The installation first records the folders that it makes: uninstall removes these, and no others.
set(destinations ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR}/weir
    ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_INCLUDEDIR} ${data} ${package} ${man}
    ${completions} ${CMAKE_INSTALL_DOCDIR})
install(CODE "set(destinations \"${destinations}\")\nset(build \"${CMAKE_BINARY_DIR}\")")
install(SCRIPT packaging/note_folders.cmake)
add_custom_target(uninstall VERBATIM
  COMMAND ${CMAKE_COMMAND} -P ${CMAKE_SOURCE_DIR}/packaging/uninstall.cmake ${CMAKE_BINARY_DIR})

# ps and worker are installed under other names, because most systems have another ps in PATH. The
# programs look for backends and models from their own folder, so that the installed folders may be
# moved together.
install(PROGRAMS $<TARGET_FILE:ps> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME weir-ps)
install(PROGRAMS $<TARGET_FILE:worker> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME weir-worker)
install(PROGRAMS $<TARGET_FILE:weirctl> DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS $<TARGET_FILE:weir-task> DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET weir_cpu)
  install(TARGETS weir_cpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weir)
endif()
if(TARGET weir_cuda)
  install(TARGETS weir_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weir COMPONENT weir-cuda)
endif()
install(TARGETS weir LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES libweir/weir.h libweir/weir_tables.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The file may be moved with all other files: its folders are relative to its own.
set(pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH WEIR_PREFIX ${CMAKE_INSTALL_PREFIX}/${pkgconfig} ${CMAKE_INSTALL_PREFIX})
configure_file(packaging/weir.pc.in ${CMAKE_BINARY_DIR}/weir.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/weir.pc DESTINATION ${pkgconfig})
install(FILES examples/own_trainer.c examples/python/char_gpt.py examples/python/char_gpt_weir.py
        examples/python/clicks.py examples/python/clicks_serve.py
        examples/python/clicks_weir.py examples/python/gan_weir.py
        examples/python/lightning_weir.py examples/python/trainer_weir.py
        examples/notebooks/own_loop.ipynb examples/notebooks/shared_gpu.ipynb
        examples/r/softmax.R DESTINATION ${data}/examples)
install(DIRECTORY python DESTINATION ${data} PATTERN __pycache__ EXCLUDE)
install(DIRECTORY r/weir DESTINATION ${data}/r USE_SOURCE_PERMISSIONS
        PATTERN "*.o" EXCLUDE PATTERN "*.so" EXCLUDE PATTERN Makevars EXCLUDE)
install(DIRECTORY examples/models/ DESTINATION ${data}/models FILES_MATCHING PATTERN "*.json")
install(PROGRAMS scripts/get_cifar10 scripts/get_mnist scripts/launch scripts/make_certs scripts/make_data
        scripts/setup_gpu_vm DESTINATION ${data}/scripts)
install(DIRECTORY examples/slurm examples/kubernetes examples/compose examples/systemd
        examples/prometheus DESTINATION ${data})
install(DIRECTORY scripts/ipsec DESTINATION ${data}/scripts USE_SOURCE_PERMISSIONS
        PATTERN __pycache__ EXCLUDE)
install(FILES net/wire/weir.proto net/wire/evaluation.proto net/wire/table_status.proto
        net/wire/report.proto DESTINATION ${data})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The pages, and the files that they link to, at the same relative places.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")
install(DIRECTORY bench/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench
        FILES_MATCHING PATTERN "*.md")
install(FILES net/wire/weir.proto net/wire/evaluation.proto net/wire/table_status.proto
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/net/wire)
install(FILES examples/notebooks/own_loop.ipynb examples/notebooks/shared_gpu.ipynb
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/notebooks)

# The programs and the library for find_package(Weir) of other projects. The major version is still
# 0, so a minor version may change the flags of programs.
include(CMakePackageConfigHelpers)
set(programs ${CMAKE_INSTALL_FULL_BINDIR})
set(models ${CMAKE_INSTALL_FULL_DATADIR}/weir/models)
set(library ${CMAKE_INSTALL_FULL_LIBDIR})
set(headers ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_package_config_file(packaging/WeirConfig.cmake.in ${CMAKE_BINARY_DIR}/WeirConfig.cmake
  INSTALL_DESTINATION ${package} PATH_VARS programs models library headers
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/WeirConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/WeirConfig.cmake ${CMAKE_BINARY_DIR}/WeirConfigVersion.cmake
        DESTINATION ${package})

# Manual pages and bash's completions. The programs print both from their table of options.
string(TIMESTAMP date "%Y-%m-%d" UTC) # of SOURCE_DATE_EPOCH, where that is set
set(pages)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " runner)
if(WEIR_SYNTAX_ONLY OR WEIR_FUZZ)
  set(printers)
elseif(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  set(printers)
  message(STATUS "no manual pages and completions: the programs print them, and do not run here; "
                 "-DCMAKE_CROSSCOMPILING_EMULATOR names a program that runs them")
else()
  set(printers ps worker weirctl)
endif()
foreach(program ${printers})
  set(name weir-${program})
  if(program STREQUAL weirctl)
    set(name weirctl)
  endif()
  set(page ${CMAKE_BINARY_DIR}/share/${name}.1)
  set(completion ${CMAKE_BINARY_DIR}/share/${name})
  add_custom_command(OUTPUT ${page} ${completion} VERBATIM
    DEPENDS ${program} packaging/man/${name}.1.in packaging/page.cmake
    COMMAND ${CMAKE_COMMAND} -DDATE=${date} -DVERSION=${PROJECT_VERSION} -DPAGE=${page}
            -DIN=${CMAKE_SOURCE_DIR}/packaging/man/${name}.1.in -DCOMPLETION=${completion}
            -DPROGRAM=$<TARGET_FILE:${program}> -DRUNNER=${runner}
            -P ${CMAKE_SOURCE_DIR}/packaging/page.cmake)
  list(APPEND pages ${page} ${completion})
  install(FILES ${page} DESTINATION ${man})
  install(FILES ${completion} DESTINATION ${completions})
endforeach()
add_custom_target(pages ALL DEPENDS ${pages})
set(DATE ${date})
set(VERSION ${PROJECT_VERSION})
configure_file(packaging/man/weir-task.1.in ${CMAKE_BINARY_DIR}/share/weir-task.1 @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/share/weir-task.1 DESTINATION ${man})
if(printers)
  install(FILES packaging/weir-task.bash DESTINATION ${completions} RENAME weir-task)
endif()

include(packaging/debian.cmake)
