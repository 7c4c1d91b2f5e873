// Keys of sessions, and what is sealed by Python: see docs/security.md.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "protocol/sealing.hpp"

namespace ucxstore::bindings {

// The keys to send and to receive by, as the handshake has made them.
using KeysTuple = std::optional<std::pair<nanobind::bytes, nanobind::bytes>>;
std::optional<protocol::SessionKeys> to_keys(const KeysTuple& tuple);

void bind_sealing(nanobind::module_& module);

}  // namespace ucxstore::bindings
