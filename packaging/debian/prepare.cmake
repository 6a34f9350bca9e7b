# Adapts a package's files to Debian's policy; cpack runs this after it has installed the files and
# before it packs them. It replaces LICENSE by Debian's copyright and changelog, gzips manual pages,
# strips programs, and removes this machine's folders of CUDA's libraries from the libraries.
file(GLOB packages LIST_DIRECTORIES ON ${CPACK_TEMPORARY_DIRECTORY}/*)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, where that is set
foreach(package ${packages})
  if(NOT IS_DIRECTORY ${package}/usr)
    continue()
  endif()
  cmake_path(GET package FILENAME name)
  set(doc ${package}/usr/share/doc/${name})
  file(REMOVE ${doc}/LICENSE)
  configure_file(${CPACK_WEIR_COPYRIGHT} ${doc}/copyright COPYONLY)
  set(version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
  file(WRITE ${doc}/changelog.Debian "${name} (${version}) unstable; urgency=medium

  * Weir ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  file(GLOB texts ${doc}/changelog.Debian ${package}/usr/share/man/man1/*.1)
  execute_process(COMMAND gzip -9nf ${texts} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE binaries ${package}/usr/lib/*.so ${package}/usr/lib/*.so.*)
  foreach(binary ${binaries})
    if(IS_SYMLINK ${binary})
      list(REMOVE_ITEM binaries ${binary})
    endif()
  endforeach()
  file(GLOB programs ${package}/usr/bin/*)
  execute_process(COMMAND ${CPACK_WEIR_STRIP} --strip-unneeded --remove-section=.comment
                          ${binaries} ${programs} COMMAND_ERROR_IS_FATAL ANY)
  foreach(binary ${binaries})
    file(RPATH_REMOVE FILE ${binary})
  endforeach()
  file(GLOB_RECURSE all LIST_DIRECTORIES ON ${package}/usr/*)
  execute_process(COMMAND chmod go-w,go+rX ${package}/usr ${all} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
