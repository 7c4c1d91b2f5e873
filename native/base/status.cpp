#include "base/status.hpp"

#include <cerrno>
#include <cstring>

#include "base/ucx_library.hpp"

namespace ucxstore::base {

void require(bool condition, const char* what) {
    if (!condition) {
        throw Error(ErrorKind::argument, what);
    }
}

void check(ucs_status_t status, std::string_view what) {
    if (status != UCS_OK) {
        throw Error(ErrorKind::connect, std::string(what) + ": " + ucs_status_string(status));
    }
}

void throw_errno(std::string_view what, ErrorKind kind) {
    const int code = errno;
    throw Error(kind, std::string(what) + ": " + std::strerror(code));
}

}  // namespace ucxstore::base
