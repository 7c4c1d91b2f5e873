#include "client/batch.hpp"

#include <numeric>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::client {
namespace {

void check_key(const std::string& key) {
    if (const auto fault = protocol::key_fault(key)) {
        throw base::Error(base::ErrorKind::invalid_key, "the key '" + key + "' " + *fault);
    }
}

void check_size(const std::string& body) {
    if (body.size() > protocol::kMaxRequestBytes) {
        throw base::Error(base::ErrorKind::argument, "a request of more bytes than a server takes");
    }
}

// Adds an item to the last message, or to a new one that begins with item `first`: where that one
// is full, or the item is to be apart. So many bytes will come before its items.
Outgoing& add(std::vector<Outgoing>& messages, protocol::Op op, std::size_t first,
              const std::string& one, bool apart = false, std::size_t before = 0) {
    check_size(one);
    if (apart || messages.empty() ||
        before + messages.back().body.size() + one.size() > protocol::kRequestBodyBytes) {
        messages.push_back({{{}, 0, op, static_cast<std::uint32_t>(first), 0, 0}, {}});
    }
    messages.back().body += one;
    ++messages.back().header.count;
    return messages.back();
}

// What a message says of a key.
struct KeyBody {
    std::string key;
    std::string bytes;
};

// An operation with an item for each message.
std::shared_ptr<Operation> make_of(protocol::Op op, const std::vector<KeyBody>& bodies,
                                   double timeout_s, QueuePointer queue) {
    std::vector<Item> items;
    std::vector<Outgoing> messages;
    for (const auto& [key, bytes] : bodies) {
        if (add(messages, op, items.size(), bytes).header.count == 1) {
            items.emplace_back();
            items.back().key = key;
        }
    }
    auto operation = std::make_shared<Operation>(std::move(items), timeout_s, std::move(queue));
    operation->requests = std::move(messages);
    return operation;
}

}  // namespace

std::shared_ptr<Operation> make_operation(const std::vector<std::string>& keys,
                                          Operation::Kind kind, double timeout_s,
                                          QueuePointer queue) {
    std::vector<Item> items(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        check_key(keys[i]);
        items[i].key = keys[i];
    }
    auto operation = std::make_shared<Operation>(std::move(items), timeout_s, std::move(queue));
    operation->kind = kind;
    return operation;
}

void want(Operation& operation, std::vector<protocol::GetItem> wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const Item& item = operation.items[i];
        wanted[i].key = item.key;
        wanted[i].version = item.version;
        if (item.memory) {
            wanted[i].limit = item.memory->size();
            wanted[i].segment = item.memory->segment_bytes();
        }
    }
    operation.gets = std::move(wanted);
}

std::vector<Outgoing> request_gets(const Operation& operation,
                                   std::span<const std::uint32_t> items) {
    std::vector<Outgoing> messages;
    std::string recipe;  // in each of them
    if (!operation.recipe.empty()) {
        protocol::put_string(recipe, operation.recipe);
    }
    std::uint32_t next = 0;  // items of one message have numbers in a row
    for (const std::uint32_t item : items) {
        std::string body;
        protocol::put_get_item(body, operation.gets[item]);
        add(messages, protocol::Op::get, item, body, item != next, recipe.size());
        next = item + 1;
    }
    for (Outgoing& message : messages) {
        if (!recipe.empty()) {
            message.header.flags |= protocol::kDecoded;
            message.body.insert(0, recipe);
        }
    }
    return messages;
}

std::vector<Outgoing> request_gets(const Operation& operation) {
    std::vector<std::uint32_t> all(operation.gets.size());
    std::iota(all.begin(), all.end(), 0);
    return request_gets(operation, all);
}

std::shared_ptr<Operation> make_calls(protocol::Op op, const std::vector<std::string>& keys,
                                      double timeout_s, QueuePointer queue) {
    std::vector<KeyBody> bodies;
    for (const std::string& key : keys) {
        check_key(key);
        bodies.push_back({key, {}});
        protocol::put_string(bodies.back().bytes, key);
    }
    auto operation = make_of(op, bodies, timeout_s, std::move(queue));
    operation->removes = op == protocol::Op::remove;
    return operation;
}

std::shared_ptr<Operation> make_read(
    const std::vector<std::pair<std::string, std::uint64_t>>& values, double timeout_s) {
    std::vector<KeyBody> bodies;
    for (const auto& [key, version] : values) {
        bodies.push_back({key, {}});
        protocol::put_string(bodies.back().bytes, key);
        protocol::put_u64(bodies.back().bytes, version);
    }
    return make_of(protocol::Op::was_read, bodies, timeout_s, nullptr);
}

std::shared_ptr<Operation> make_call(protocol::Op op, const std::string& key, std::string body,
                                     double timeout_s, QueuePointer queue) {
    check_size(body);
    std::vector<Item> items(1);
    items[0].key = key;
    auto operation = std::make_shared<Operation>(std::move(items), timeout_s, std::move(queue));
    operation->requests.push_back({{{}, 0, op, 0, 1, 0}, std::move(body)});
    operation->removes = op == protocol::Op::remove_prefix;
    return operation;
}

}  // namespace ucxstore::client
