// ucxstore._core.ResultMemory.
#pragma once

#include <memory>

#include "memory/result_memory.hpp"

namespace ucxstore::bindings {

// Apart from the memory itself, which threads without the GIL may be the last to have.
struct PyResultMemory {
    explicit PyResultMemory(std::uint64_t size)
        : memory(std::make_shared<memory::ResultMemory>(size)) {}

    const std::shared_ptr<memory::ResultMemory> memory;
};

}  // namespace ucxstore::bindings
