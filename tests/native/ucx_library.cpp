// Gives the tests the UCX that they were compiled against.
#include "base/ucx_library.hpp"

#include <dlfcn.h>

#include "rooms.hpp"

namespace ucxstore::test {
namespace {

[[maybe_unused]] const bool kChosen = [] {
    set_ucx_loader([] { return UcxLibrary{dlopen(UCXSTORE_LIBUCP, RTLD_NOW)}; });
    return true;
}();

}  // namespace
}  // namespace ucxstore::test
