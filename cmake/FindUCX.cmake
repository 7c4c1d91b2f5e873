# Finds UCX: UCX_INCLUDE_DIR and UCX_UCP_LIBRARY. The first of these that is there is used, and no
# other: UCX_ROOT (a variable or in the environment), the libucx wheel of Python_EXECUTABLE,
# pkg-config. Nothing is cached, so that an upgraded wheel is seen when CMake next runs.

set(_ucx_root "${UCX_ROOT}")
if(NOT _ucx_root)
    set(_ucx_root "$ENV{UCX_ROOT}")
endif()
if(NOT _ucx_root AND Python_EXECUTABLE)
    execute_process(
        COMMAND "${Python_EXECUTABLE}" -c [[
import importlib.util
spec = importlib.util.find_spec("libucx")
print(spec.submodule_search_locations[0] if spec else "", end="")
]]
        OUTPUT_VARIABLE _ucx_root COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT _ucx_root)
    find_package(PkgConfig QUIET)
    if(PkgConfig_FOUND)
        pkg_get_variable(_ucx_root ucx prefix)
    endif()
endif()

if(_ucx_root)
    # NO_DEFAULT_PATH: headers of one UCX with the library of another would crash at run time.
    find_path(UCX_INCLUDE_DIR ucp/api/ucp.h
              PATHS "${_ucx_root}/include" NO_DEFAULT_PATH NO_CACHE)
    set(_ucx_libraries "${_ucx_root}/lib" "${_ucx_root}/lib64"
                       "${_ucx_root}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
    find_library(UCX_UCP_LIBRARY ucp PATHS ${_ucx_libraries} NO_DEFAULT_PATH NO_CACHE)
endif()

if(UCX_INCLUDE_DIR)
    file(READ "${UCX_INCLUDE_DIR}/ucp/api/ucp_version.h" _ucx_version)
    string(REGEX MATCH "UCP_API_MAJOR +([0-9]+)" _ "${_ucx_version}")
    set(UCX_VERSION "${CMAKE_MATCH_1}")
    string(REGEX MATCH "UCP_API_MINOR +([0-9]+)" _ "${_ucx_version}")
    string(APPEND UCX_VERSION ".${CMAKE_MATCH_1}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(UCX
    REQUIRED_VARS UCX_UCP_LIBRARY UCX_INCLUDE_DIR
    VERSION_VAR UCX_VERSION
    REASON_FAILURE_MESSAGE "No usable UCX with headers. Install the wheel \
(pip install 'libucx-cu12>=1.18') into the Python that builds, or a UCX ${UCX_FIND_VERSION} or \
later that pkg-config finds, or name its prefix: -DUCX_ROOT=<prefix>")
