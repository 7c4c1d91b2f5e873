// A connection as Python sees it: makes operations of a caller's arguments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/py_operation.hpp"

namespace ucxstore::py {

class PyConnection {
  public:
    using Keys = std::vector<std::string>;
    using Owners = nb::typed<nb::list, nb::any>;
    using Integers = nb::typed<nb::list, int>;
    using Versions = std::vector<std::uint64_t>;

    PyConnection(std::shared_ptr<Client> client, std::shared_ptr<Connection> connection);
    PyConnection(const PyConnection&) = delete;
    PyConnection& operator=(const PyConnection&) = delete;
    ~PyConnection();

    bool alive() const { return !connection_->failed(); }
    std::string peer() const { return connection_->peer(); }
    std::vector<std::string> lanes();
    void close() { client_->close(connection_); }

    PyOperation::Object get(const Keys& keys, const std::vector<Ranges>& ranges, double timeout,
                            PyCompletions* completions, const std::optional<Versions>& versions);
    PyOperation::Object get_into(const Keys& keys, const std::vector<Ranges>& ranges,
                                 const std::vector<ArrayTuple>& outs, const Owners& owners,
                                 double timeout, PyCompletions* completions);
    PyOperation::Object read_boxes(const Keys& keys, const Integers& boxes, const ArrayTuple& out,
                                   const std::vector<std::int64_t>& chunk_shape,
                                   const nb::object& owner, double timeout,
                                   PyCompletions* completions);
    PyOperation::Object read_parts(const Keys& keys, const std::vector<PartTuple>& sources,
                                   const std::vector<PartTuple>& targets, std::uint64_t address,
                                   const std::vector<std::int64_t>& expected,
                                   const Versions& versions, const nb::object& owner,
                                   double timeout, PyCompletions* completions);
    PyOperation::Object set(const Keys& keys, const std::vector<ArrayTuple>& values,
                            const Owners& owners, bool if_absent, double timeout,
                            PyCompletions* completions);
    PyOperation::Object set_parts(const Keys& keys,
                                  const std::vector<std::vector<ArrayTuple>>& values,
                                  const Owners& owners, double timeout, PyCompletions* completions);
    PyOperation::Object write_boxes(const Keys& keys, const Integers& starts,
                                    const ArrayTuple& value,
                                    const std::vector<std::int64_t>& chunk_shape,
                                    const nb::object& owner, double timeout,
                                    PyCompletions* completions);
    PyOperation::Object remove(const Keys& keys, double timeout, PyCompletions* completions);
    PyOperation::Object remove_prefix(const std::string& prefix, double timeout,
                                      PyCompletions* completions);
    PyOperation::Object stat(const Keys& keys, double timeout, PyCompletions* completions);
    PyOperation::Object measure(const std::string& prefix, bool any, double timeout,
                                PyCompletions* completions);
    PyOperation::Object list_page(const std::string& prefix, bool delimited,
                                  const std::string& cursor, double timeout,
                                  PyCompletions* completions);
    PyOperation::Object stats(double timeout, PyCompletions* completions);
    PyOperation::Object begin_space(const std::string& name, std::uint64_t quota,
                                    std::uint64_t timeout_ms, double timeout,
                                    PyCompletions* completions);
    PyOperation::Object renew_space(const std::string& name, double timeout,
                                    PyCompletions* completions);
    PyOperation::Object end_space(const std::string& name, double timeout,
                                  PyCompletions* completions);
    PyOperation::Object ping(double timeout, PyCompletions* completions);

  private:
    PyOperation::Object start(std::shared_ptr<Operation> operation, nb::object owners,
                              Convert convert);

    std::shared_ptr<Client> client_;
    std::shared_ptr<Connection> connection_;
    const int pid_;
};

}  // namespace ucxstore::py
