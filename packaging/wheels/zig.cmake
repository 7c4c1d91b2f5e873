# Builds the module for another glibc than this machine's, and for another architecture if asked,
# with Zig's clang and its libc++, which becomes a part of the module. build.py sets the variables.
set(UCXSTORE_ZIG "$ENV{UCXSTORE_ZIG}")
set(UCXSTORE_ARCH "$ENV{UCXSTORE_ARCH}")
set(UCXSTORE_WHEELS "$ENV{UCXSTORE_WHEELS}")

cmake_host_system_information(RESULT _host QUERY OS_PLATFORM)
if(NOT UCXSTORE_ARCH STREQUAL _host)
    set(CMAKE_SYSTEM_NAME Linux)
    set(CMAKE_SYSTEM_PROCESSOR "${UCXSTORE_ARCH}")
endif()

set(CMAKE_CXX_COMPILER "${UCXSTORE_ZIG}" c++ -target "${UCXSTORE_ARCH}-linux-gnu.2.28")
set(CMAKE_AR "${UCXSTORE_ZIG}")
set(CMAKE_RANLIB "${UCXSTORE_ZIG}")
set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> ar qc <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> ar q <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "<CMAKE_RANLIB> ranlib <TARGET>")
set(CMAKE_CXX_SCAN_FOR_MODULES OFF) # it would need clang-scan-deps

# nanobind names stderr without including <cstdio>, which other C++ libraries bring along.
set(CMAKE_CXX_FLAGS_INIT "-include cstdio")
# -g1: files, lines and functions, which are all that a traceback or a profile names.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG" CACHE STRING "")
# glibc before 2.41 does not keep vector registers where such a variable is first used.
set(NB_HAS_MTLS_GNU2 OFF CACHE BOOL "")

# The unwinder of the process, as Python's own pthread_exit uses it, and not one in the module: two
# of them do not understand each other. Before the objects, so that it is found first.
set(CMAKE_MODULE_LINKER_FLAGS_INIT
    "${UCXSTORE_WHEELS}/libgcc_s.so.1 -Wl,--build-id=sha1 \
-Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map")
