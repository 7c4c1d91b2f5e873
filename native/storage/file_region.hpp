// A value in a file, which is read as it is sent.
#pragma once

#include <memory>
#include <string>

#include "base/handle.hpp"
#include "base/region.hpp"

namespace ucxstore {

// The content of `file`: read at once where it is small, and by Region::locate() else. Never
// through a mapping: whoever cuts a mapped file, and a disk that fails, end the process that
// touches it by SIGBUS. A read that fails throws Error(storage), which names `key`.
std::shared_ptr<const Region> read_file(Fd file, const std::string& key);

}  // namespace ucxstore
