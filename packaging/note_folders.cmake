# Adds the topmost folders that do not exist yet to build/install_folders.txt. `cmake --install` runs
# this before it copies files, with `destinations` and `build` set.
if(CMAKE_INSTALL_COMPONENT) # of a package
  return()
endif()
foreach(folder ${destinations})
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} NORMALIZE)
  set(folder "$ENV{DESTDIR}${folder}")
  cmake_path(ABSOLUTE_PATH folder NORMALIZE)
  set(made)
  while(NOT EXISTS "${folder}" AND NOT folder STREQUAL made)
    set(made "${folder}")
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
  if(made)
    file(APPEND ${build}/install_folders.txt "${made}\n")
  endif()
endforeach()
