#include "sessions/answer.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::sessions {
namespace {

// So many keys are looked at, or removed, at once: they take as long as some gets.
constexpr std::size_t kFewKeys = 64;

// The name of a key or a prefix, unless it has a fault.
std::string checked(std::string name, const std::optional<std::string>& fault) {
    if (fault) {
        throw base::Error(base::ErrorKind::invalid_key, *fault);
    }
    return name;
}

std::string checked_key(std::string key) {
    const auto fault = protocol::key_fault(key);
    return checked(std::move(key), fault);
}

std::string checked_prefix(std::string prefix, bool whole) {
    const auto fault = protocol::prefix_fault(prefix, whole);
    return checked(std::move(prefix), fault);
}

std::vector<std::string> checked_keys(protocol::Reader& reader, std::uint32_t count) {
    std::vector<std::string> keys;
    for (std::uint32_t i = 0; i < count; ++i) {
        keys.push_back(checked_key(reader.string()));
        if (protocol::space_of(keys.back()) != protocol::space_of(keys.front())) {
            throw base::Error(base::ErrorKind::invalid_key,
                              "is in another scratch space than the request's other keys");
        }
    }
    return keys;
}

// Refuses what the client's grant does not allow, of a key or a prefix.
struct Permit {
    const Bounds& bounds;
    bool change;

    Bounds::Fault fault(const std::string& name) const {
        return change ? bounds.write_fault(name) : bounds.read_fault(name);
    }
    void operator()(const std::string& prefix) const {
        if (const auto found = fault(prefix)) {
            throw base::Error(base::ErrorKind::denied, *found);
        }
    }
    // What a client is told is about the first of them.
    void operator()(const std::vector<std::string>& keys) const {
        for (const std::string& key : keys) {
            if (const auto found = fault(key)) {
                const bool first = key == keys.front();
                throw base::Error(base::ErrorKind::denied,
                                  first ? *found : "came with '" + key + "', which " + *found);
            }
        }
    }
    void operator()(const cache::StatCall& call) const { (*this)(call.keys); }
    void operator()(const cache::RemoveCall& call) const { (*this)(call.keys); }
    template <typename Other>
    void operator()(const Other& call) const {
        (*this)(call.prefix);
    }
};

cache::StorageCall read(const protocol::RequestHeader& header, std::span<const std::byte> body) {
    protocol::Reader reader(body);
    switch (header.op) {
        case protocol::Op::stat:
            return cache::StatCall{checked_keys(reader, header.count)};
        case protocol::Op::remove:
            return cache::RemoveCall{checked_keys(reader, header.count)};
        case protocol::Op::remove_prefix:
            return cache::RemovePrefixCall{checked_prefix(reader.string(), true)};
        case protocol::Op::measure: {
            std::string prefix = checked_prefix(reader.string(), true);
            return cache::MeasureCall{std::move(prefix), reader.u8() != 0};
        }
        case protocol::Op::list: {
            protocol::ListQuery query = reader.list_query();
            return cache::ListCall{checked_prefix(std::move(query.prefix), query.delimited),
                                   query.delimited, std::move(query.cursor), protocol::kPageBytes};
        }
        default:
            throw base::Error(base::ErrorKind::protocol, "an unknown operation");
    }
}

// Appends a result to the payload of a reply.
struct Payload {
    std::string& out;

    void operator()(const cache::Sizes& sizes) const {
        for (const std::uint64_t size : sizes) {
            protocol::put_u64(out, size);
        }
    }
    void operator()(const cache::Removed& removed) const { protocol::put_u64(out, removed.keys); }
    void operator()(const cache::Measure& measure) const {
        protocol::put_u64(out, measure.keys);
        protocol::put_u64(out, measure.bytes);
        put_names(measure.unreadable);
    }
    void operator()(const storage::Page& page) const {
        protocol::put_string(out, page.cursor);
        protocol::put_u64(out, page.unreadable.size());
        put_names(page.unreadable);
        put_names(page.names);
    }
    template <typename Other>
    void operator()(const Other&) const {}  // the status alone is the answer

    void put_names(const std::vector<std::string>& names) const {
        for (const std::string& name : names) {
            protocol::put_string(out, name);
        }
    }
};

const std::string kNoKey;

struct KeyOrPrefixOf {
    const std::string& none;

    const std::string& first(const std::vector<std::string>& keys) const {
        return keys.empty() ? none : keys.front();
    }
    const std::string& operator()(const cache::StatCall& call) const { return first(call.keys); }
    const std::string& operator()(const cache::RemoveCall& call) const { return first(call.keys); }
    template <typename Other>
    const std::string& operator()(const Other& call) const {
        return call.prefix;
    }
};

}  // namespace

protocol::Status status_of(const std::exception& failure) {
    const auto* error = dynamic_cast<const base::Error*>(&failure);
    switch (error == nullptr ? base::ErrorKind::storage : error->kind()) {
        case base::ErrorKind::scratch_ended:
            return protocol::Status::ended;
        case base::ErrorKind::evicted:
            return protocol::Status::evicted;
        case base::ErrorKind::invalid_key:
            return protocol::Status::invalid_key;
        case base::ErrorKind::denied:
            return protocol::Status::denied;
        default:
            return protocol::Status::storage;
    }
}

bool changes(const cache::StorageCall& call) {
    return std::holds_alternative<cache::RemoveCall>(call) ||
           std::holds_alternative<cache::RemovePrefixCall>(call);
}

bool concerns_few_keys(const cache::StorageCall& call) {
    const auto* stat = std::get_if<cache::StatCall>(&call);
    const auto* remove = std::get_if<cache::RemoveCall>(&call);
    return (stat != nullptr && stat->keys.size() <= kFewKeys) ||
           (remove != nullptr && remove->keys.size() <= kFewKeys);
}

const std::string& key_or_prefix_of(const cache::StorageCall& call) {
    return std::visit(KeyOrPrefixOf{kNoKey}, call);
}

std::variant<cache::StorageCall, Answer> read_call(bool read_only, const Bounds& bounds,
                                                   const protocol::RequestHeader& header,
                                                   std::span<const std::byte> body) {
    try {
        cache::StorageCall call = read(header, body);
        std::visit(Permit{bounds, changes(call)}, call);
        if (read_only && changes(call) && !protocol::space_of(key_or_prefix_of(call))) {
            return Answer{protocol::Status::read_only, {}};
        }
        return call;
    } catch (const base::Error& error) {
        if (error.kind() == base::ErrorKind::protocol) {
            throw;
        }
        const bool denied = error.kind() == base::ErrorKind::denied;
        return Answer{denied ? protocol::Status::denied : protocol::Status::invalid_key,
                      error.what()};
    }
}

SpaceRequest read_space_request(protocol::Op op, std::span<const std::byte> body) {
    protocol::Reader reader(body);
    SpaceRequest request{.name = reader.string()};
    if (op == protocol::Op::begin_space) {
        request.quota = reader.u64();
        const auto longest = static_cast<std::uint64_t>(storage::Spaces::kMaxTimeout.count());
        request.timeout = storage::Spaces::Timeout(std::min(reader.u64(), longest + 1));
    }
    return request;
}

Answer answer_of(const cache::CallResult& result) {
    if (const auto* failure = std::get_if<cache::Failure>(&result)) {
        return {failure->unknown ? protocol::Status::unknown : protocol::Status::storage,
                failure->text};
    }
    Answer answer;
    std::visit(Payload{answer.payload}, result);
    return answer;
}

}  // namespace ucxstore::sessions
