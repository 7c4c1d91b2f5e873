// Requests: an operation for each kind of request to a server, and what its replies say.
// docs/wire.md has the messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "client/array.hpp"
#include "client/batch.hpp"
#include "client/operation.hpp"

namespace ucxstore::client::requests {

using Pointer = std::shared_ptr<Operation>;
using Keys = std::vector<std::string>;
using Versions = std::vector<std::uint64_t>;
using Integers = std::span<const std::int64_t>;

// What every request is given besides its own arguments: the seconds that it may go without
// progress, and the queue that it completes into (nullptr: a thread waits for it).
struct How {
    double timeout_s;
    QueuePointer queue;
};

// These all throw Error(invalid_key), and Error(argument) where their arguments do not agree.

// Of each key what is selected. Without memory, it goes to memory of the core's; with `borrows`,
// see Operation::borrows.
Pointer get(const How& how, const Keys& keys, std::vector<protocol::Selection> selections,
            const std::optional<Versions>& versions, bool borrows);
Pointer get_into(const How& how, const Keys& keys, std::vector<protocol::Selection> selections,
                 std::vector<Memory> outs);
// A box of each raw chunk into a box of an array. `boxes`: for each key where the box starts in the
// chunk, where it starts in the array, and its counts, each by axis. `result`: see
// Operation::result.
Pointer read_boxes(const How& how, const Keys& keys, Integers boxes, const Array& out,
                   Integers chunk_shape, std::shared_ptr<memory::ResultMemory> result);
// A part of each value into a part of the memory at `base`. `expected`: the sizes that the values
// must have; -1 for any.
Pointer read_parts(const How& how, const Keys& keys, std::span<const StridedPart> sources,
                   std::span<const StridedPart> targets, std::byte* base, Integers expected,
                   const Versions& versions);

// Has the server decode what a get is for, by this recipe. Throws Error(argument) for one that is
// too long.
Pointer decoded(Pointer get, const std::string& recipe);

// `kind`: set, or set_if_absent.
Pointer set(const How& how, const Keys& keys, std::vector<Memory> values,
            Operation::Kind kind = Operation::Kind::set);
// Whole raw chunks from an array, in which each starts where `starts` says by axis.
Pointer write_boxes(const How& how, const Keys& keys, Integers starts, const Array& value,
                    Integers chunk_shape);
Pointer remove(const How& how, const Keys& keys);
Pointer remove_prefix(const How& how, const std::string& prefix);

Pointer stat(const How& how, const Keys& keys);
Pointer measure(const How& how, const std::string& prefix, bool any);
Pointer list_page(const How& how, const std::string& prefix, bool delimited,
                  const std::string& cursor);
Pointer ping(const How& how);
Pointer stats(const How& how);
Pointer operate(const How& how, const std::string& request);
Pointer begin_space(const How& how, const std::string& name, std::uint64_t quota,
                    std::uint64_t timeout_ms);
Pointer renew_space(const How& how, const std::string& name);
Pointer end_space(const How& how, const std::string& name);

// What the replies to a completed operation say. Throws Error(protocol) where one is too short.

// Of read_boxes(): which keys are missing, by position.
std::vector<std::size_t> missing(const Operation& done);
// Of read_parts(), for each key: 0 where it was read, 1 where it is missing, 2 where its value has
// another version.
std::vector<int> outcomes(const Operation& done);
// Of set(): which values were written.
std::vector<bool> written(const Operation& done);
std::uint64_t removed(const Operation& done);
// -1 for a missing key.
std::vector<std::int64_t> sizes(const Operation& done);
// Keys, the bytes of their values, and folders that the server may not open.
std::tuple<std::uint64_t, std::uint64_t, std::vector<std::string>> measured(const Operation& done);
// Names, the cursor of the next page, and folders that the server may not open.
std::tuple<std::vector<std::string>, std::string, std::vector<std::string>> page(
    const Operation& done);

}  // namespace ucxstore::client::requests
