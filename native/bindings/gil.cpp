#include "bindings/gil.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace ucxstore::py {

WithoutGil::~WithoutGil() {
    try {
        PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
        while (true) {
            pause();
        }
    }
}

}  // namespace ucxstore::py
