# cmake -DDATE=D -DVERSION=V -DIN=man/X.1.in -DPAGE=X.1 -DCOMPLETION=X -DPROGRAM=P -DRUNNER=R
#       -P page.cmake
# Writes the manual page of the program P and bash's completion. R is a command that runs P, or
# empty. The output of --help=man replaces @OPTIONS@.
separate_arguments(RUNNER)
execute_process(COMMAND ${RUNNER} ${PROGRAM} --help=man OUTPUT_VARIABLE OPTIONS
                COMMAND_ERROR_IS_FATAL ANY)
cmake_path(GET COMPLETION PARENT_PATH folder)
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${RUNNER} ${PROGRAM} --help=bash OUTPUT_FILE ${COMPLETION}
                COMMAND_ERROR_IS_FATAL ANY)
configure_file(${IN} ${PAGE} @ONLY)
