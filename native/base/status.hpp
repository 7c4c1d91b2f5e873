// Error: the exception of the core, and how statuses of UCX and errno become one.
#pragma once

#include <ucs/type/status.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace ucxstore::base {

// Each kind is a class of ucxstore.base.errors or a builtin: see bindings/convert.cpp.
enum class ErrorKind {
    argument,
    invalid_key,
    connect,
    server_lost,
    timeout,
    cancelled,
    read_only,
    denied,  // the client's grant does not allow it
    value_too_large,
    chunk_size,
    storage,
    scratch_ended,
    undecoded,  // the server does not decode the value
    evicted,    // the key has had a value, which the server has given up for others
    // A change that was carried out or not: its source does not say, the server was lost, or
    // nothing came in time.
    unknown_outcome,
    change_lost,
    change_timeout,
    integrity,  // bytes were changed on their way
    protocol,
    resource,  // this process has no descriptor left
    memory,    // this process has no memory left
    no_ucx,    // no usable UCX library
};

class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const { return kind_; }

  private:
    ErrorKind kind_;
};

// Throws Error(argument) with `what` unless `condition`.
void require(bool condition, const char* what);

// Throws Error(connect) naming `what` unless `status` is UCS_OK.
void check(ucs_status_t status, std::string_view what);

// "what: strerror(errno)".
[[noreturn]] void throw_errno(std::string_view what, ErrorKind kind = ErrorKind::storage);

}  // namespace ucxstore::base
