#include "base/ucx_library.hpp"

#include <dlfcn.h>

#include <atomic>
#include <string>

#include "base/mutex.hpp"
#include "base/status.hpp"

namespace ucxstore::base {

// NOLINTNEXTLINE(bugprone-macro-parentheses): no expression
#define UCXSTORE_DEFINE(name) decltype(&::name) name = nullptr;
UCXSTORE_UCX_FUNCTIONS(UCXSTORE_DEFINE)
#undef UCXSTORE_DEFINE

namespace {

UcxLibrary (*loader)() = nullptr;
Mutex mutex;
std::atomic<bool> is_loaded = false;
UcxLibrary loaded;

template <typename Function>
void find(const UcxLibrary& library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library.handle, name));
    if (function == nullptr) {
        throw Error(ErrorKind::no_ucx, std::string("UCX has no ") + name + "()");
    }
}

}  // namespace

void set_ucx_loader(UcxLibrary (*given)()) { loader = given; }

const UcxLibrary& load_ucx() {
    if (!is_loaded.load(std::memory_order_acquire)) {
        const UcxLibrary library = loader();  // not under the lock: it waits for the GIL
        const Lock lock(mutex);
        if (!is_loaded.load(std::memory_order_relaxed)) {
#define UCXSTORE_FIND(name) find(library, #name, name);
            UCXSTORE_UCX_FUNCTIONS(UCXSTORE_FIND)
#undef UCXSTORE_FIND
            loaded = library;
            is_loaded.store(true, std::memory_order_release);
        }
    }
    return loaded;
}

}  // namespace ucxstore::base
