// Both ends in one process: a server thread and a client with a socketpair for the control
// connection, the operations that a caller would make, and a peer that is driven by hand.
#pragma once

#include <functional>

#include "client/batch.hpp"
#include "client/link.hpp"
#include "server/server.hpp"
#include "storage/memory.hpp"
#include "stream/stream_socket.hpp"
#include "support.hpp"
#include "ucx_client/client.hpp"

namespace ucxstore::test {

struct ControlPair {
    Fd one;
    Fd other;
};
ControlPair control_pair();
Token new_token();
std::unique_ptr<Worker> new_worker(const Options& options = {});

// Ends with the test, in the order of a process that goes.
class Loopback {
  public:
    explicit Loopback(const Options& options = {}, bool read_only = false,
                      std::shared_ptr<Storage> storage = nullptr);
    explicit Loopback(std::shared_ptr<CachedSource> remote, const Options& options = {},
                      std::shared_ptr<Spaces> spaces = nullptr);
    ~Loopback();

    std::shared_ptr<Connection> connect() { return connect(*client); }
    std::shared_ptr<Connection> connect(Client& from, Connection::Integrity integrity = false);

    // Waits for the operation and throws its failure.
    void run(const std::shared_ptr<Operation>& operation);
    void submit(const std::shared_ptr<Operation>& operation) {
        client->submit(connection, operation);
    }

    void set(const std::string& key, const Bytes& value);
    std::optional<Bytes> get(const std::string& key, Selection selection = {});
    std::uint64_t stat(const std::string& key);

    std::shared_ptr<Storage> storage;  // nullptr where it is a remote one
    const std::shared_ptr<Counters> shared_counters = std::make_shared<Counters>();
    Counters& counters = *shared_counters;
    std::unique_ptr<UcxThread> server;
    std::unique_ptr<Client> client;
    std::shared_ptr<Connection> connection;
};

// Throws the failure; "it did not complete" as std::runtime_error.
void finish(const std::shared_ptr<Operation>& operation);
// The same, as a caller that may do the link's work meanwhile.
void await(Link& link, const std::shared_ptr<Operation>& operation);

struct Get {
    std::string key;
    Selection selection = {};
    std::optional<Memory> memory = {};
    bool exact = false;
    std::uint64_t expected = kAnySize;
    std::uint64_t version = kAnyVersion;
};
std::shared_ptr<Operation> get_operation(const std::vector<Get>& gets, double timeout_s = 60);

struct Set {
    std::string key;
    Memory memory;
};
std::shared_ptr<Operation> set_operation(const std::vector<Set>& sets, bool if_absent = false,
                                         double timeout_s = 60);

// One message of one item.
std::shared_ptr<Operation> call_operation(Op op, const std::string& body, std::uint32_t count = 1,
                                          double timeout_s = 60);
std::string strings(const std::vector<std::string>& texts);

Memory memory_of(Bytes& bytes);
Bytes reply_of(const Operation& operation, std::size_t item = 0);

// A reply of one segment.
ReplyHeader reply_header(const Token& token, std::uint64_t request, std::uint32_t item,
                         Status status, std::uint64_t size = 0);

// A worker without a thread: says what it is told to, and answers nothing by itself. Used by the
// thread that made it.
class Puppet {
  public:
    struct Received {
        std::string header;
        std::string data;  // "" where it comes by rendezvous: the puppet never takes it
    };
    enum class Way { eager, rendezvous };

    explicit Puppet(const Options& options = {});
    ~Puppet();

    const std::string& address() const { return worker_->address(); }
    // Sends to whoever has this address, who must have sent something first: over TCP, UCX loses
    // messages where both ends connect at the same moment.
    void connect(const std::string& address);
    // The same, for a client of this address that has just been attached: once its first ping has
    // come.
    void meet(const std::string& address);

    void send(Message message, const std::string& header, std::string data = {},
              Way way = Way::eager);
    // Progresses until `condition` holds; false where it does not in time.
    bool until(const std::function<bool()>& condition,
               std::chrono::milliseconds patience = kPatience);
    std::uint64_t in_flight() const { return in_flight_; }
    // Until UCX has let go of all that was sent, or the peer has cut the connection.
    void flush();

    // But for the first ping of a client, which waits for no answer.
    std::vector<Received>& received() { return received_; }

  private:
    static ucs_status_t on_message(void* self, const void* header, std::size_t header_size,
                                   void* data, std::size_t size, const ucp_am_recv_param_t* param);

    std::unique_ptr<Worker> worker_;
    std::unique_ptr<Endpoint> endpoint_;
    std::vector<Received> received_;
    std::uint64_t in_flight_ = 0;
    bool pinged_ = false;
};

}  // namespace ucxstore::test
