#include "bindings/py_client.hpp"

#include <utility>

#include "base/fork.hpp"
#include "base/inherited.hpp"
#include "base/owned_by_process.hpp"
#include "bindings/gil.hpp"
#include "bindings/py_connection.hpp"
#include "bindings/py_sealing.hpp"
#include "local_client/local_client.hpp"
#include "ucx/port.hpp"
#include "ucx_client/ucx_link.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

class ClientPort : public ucx::Port<ucx_client::Client> {
  public:
    ClientPort(std::shared_ptr<ucx_client::Client> owner, std::unique_ptr<ucx::Worker> worker,
               ucx_client::Connection::Integrity integrity)
        : Port(std::move(owner), std::move(worker)), integrity(integrity) {}

    const ucx_client::Connection::Integrity integrity;
};

// The link is closed where there is no memory for an object that would close it.
nb::object to_object(const std::shared_ptr<client::Link>& link) {
    try {
        auto made = std::make_unique<PyConnection>(link);
        nb::object object = nb::cast(made.get(), nb::rv_policy::take_ownership);
        made.release();
        return object;
    } catch (...) {
        link->close();
        throw;
    }
}

nb::typed<nb::object, PyConnection> attach_client(ClientPort& port, int fd, const nb::bytes& token,
                                                  const nb::bytes& address, const std::string& peer,
                                                  double timeout) {
    base::Fd owned(fd);
    const protocol::Token session = to_token(token);
    const std::string remote = to_string(address);
    auto worker = port.take();
    std::shared_ptr<ucx_client::Connection> connection;
    {
        const WithoutGil released;
        connection = port.owner()->attach(std::move(worker), std::move(owned), session, remote,
                                          peer, port.integrity);
    }
    nb::object object = to_object(ucx_client::UcxLink::make(port.owner(), connection));
    // One round trip: both sides have each other's endpoint, and the lanes are chosen.
    nb::cast<PyConnection&>(object).ping(timeout);
    return object;
}

class PyClient {
  public:
    PyClient(const ucx::Options& options, bool polling)
        : client_(std::make_shared<ucx_client::Client>(options, polling)) {}
    ~PyClient() {
        if (client_.inherited()) {
            abandon();
        }
    }

    nb::typed<nb::object, ClientPort> open(int fd, ucx_client::Connection::Integrity integrity,
                                           bool shares_memory) {
        std::unique_ptr<ucx::Worker> worker;
        {
            const WithoutGil released;
            worker = client_->open(fd, to_sharing(shares_memory));
        }
        return nb::cast(new ClientPort(client_.get(), std::move(worker), integrity),
                        nb::rv_policy::take_ownership);
    }

    void close(double timeout) {
        const WithoutGil released;
        client_->close(milliseconds(timeout));
    }

    void abandon() {
        if (client_.get() != nullptr) {
            base::close_inherited_sockets();
            base::separate_from_parent();
            client_.leak();
        }
    }

  private:
    base::OwnedByProcess<ucx_client::Client> client_;
};

class PyLocalClient {
  public:
    PyLocalClient() : client_(std::make_shared<local_client::LocalClient>()) {}
    ~PyLocalClient() {
        if (client_.inherited()) {
            abandon();
        }
    }

    nb::typed<nb::object, PyConnection> attach(int fd, const nb::bytes& token,
                                               const std::string& peer) {
        base::Fd owned(fd);
        const protocol::Token session = to_token(token);
        std::shared_ptr<local_client::LocalLink> link;
        {
            const WithoutGil released;
            link = client_->attach(std::move(owned), session, peer);
        }
        return to_object(link);
    }

    nb::typed<nb::object, PyConnection> attach_remote(int fd, const nb::bytes& token,
                                                      const std::string& peer, bool checked,
                                                      const KeysTuple& keys) {
        base::Fd owned(fd);
        const stream::Protection protection{checked, to_keys(keys)};
        const protocol::Token session = to_token(token);
        std::shared_ptr<client::Link> link;
        {
            const WithoutGil released;
            link = client_->attach_remote(std::move(owned), session, peer, protection);
        }
        return to_object(link);
    }

    void close() {
        const WithoutGil released;
        client_->close();
    }

    void abandon() {
        if (client_.get() != nullptr) {
            base::close_inherited_sockets();
            client_.leak();
        }
    }

  private:
    base::OwnedByProcess<local_client::LocalClient> client_;
};

}  // namespace

void bind_client(nb::module_& module) {
    nb::class_<ClientPort>(module, "ClientPort")
        .def_prop_ro("address", [](const ClientPort& self) { return to_bytes(self.address()); })
        .def("attach", &attach_client, "fd"_a, "token"_a, "address"_a, "peer"_a, "timeout"_a);
    nb::class_<PyClient>(module, "Client")
        .def(nb::init<const ucx::Options&, bool>(), "options"_a, "polling"_a)
        .def("open", &PyClient::open, "fd"_a = -1, "integrity"_a.none() = nb::none(),
             "shares_memory"_a = false)
        .def("close", &PyClient::close, "timeout"_a)
        .def("abandon", &PyClient::abandon);

    nb::class_<PyLocalClient>(module, "LocalClient")
        .def(nb::init<>())
        .def("attach", &PyLocalClient::attach, "fd"_a, "token"_a, "peer"_a)
        .def("attach_remote", &PyLocalClient::attach_remote, "fd"_a, "token"_a, "peer"_a,
             "checked"_a, "keys"_a.none() = nb::none())
        .def("close", &PyLocalClient::close)
        .def("abandon", &PyLocalClient::abandon);
}

}  // namespace ucxstore::bindings
