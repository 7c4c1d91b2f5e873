#include "sessions/answer.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore {
namespace {

using wire::Op;
using wire::Status;

// So many keys are looked at, or removed, at once: they take as long as some gets.
constexpr std::size_t kFewKeys = 64;

// The name of a key or a prefix, unless it has a fault.
std::string checked(std::string name, const std::optional<std::string>& fault) {
    if (fault) {
        throw Error(ErrorKind::invalid_key, *fault);
    }
    return name;
}

std::string checked_key(std::string key) {
    const auto fault = wire::key_fault(key);
    return checked(std::move(key), fault);
}

std::string checked_prefix(std::string prefix, bool whole) {
    const auto fault = wire::prefix_fault(prefix, whole);
    return checked(std::move(prefix), fault);
}

std::vector<std::string> checked_keys(wire::Reader& reader, std::uint32_t count) {
    std::vector<std::string> keys;
    for (std::uint32_t i = 0; i < count; ++i) {
        keys.push_back(checked_key(reader.string()));
        if (wire::space_of(keys.back()) != wire::space_of(keys.front())) {
            throw Error(ErrorKind::invalid_key,
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
            throw Error(ErrorKind::denied, *found);
        }
    }
    // What a client is told is about the first of them.
    void operator()(const std::vector<std::string>& keys) const {
        for (const std::string& key : keys) {
            if (const auto found = fault(key)) {
                const bool first = key == keys.front();
                throw Error(ErrorKind::denied,
                            first ? *found : "came with '" + key + "', which " + *found);
            }
        }
    }
    void operator()(const StatCall& call) const { (*this)(call.keys); }
    void operator()(const RemoveCall& call) const { (*this)(call.keys); }
    template <typename Other>
    void operator()(const Other& call) const {
        (*this)(call.prefix);
    }
};

StorageCall read(const wire::RequestHeader& header, std::span<const std::byte> body) {
    wire::Reader reader(body);
    switch (header.op) {
        case Op::stat:
            return StatCall{checked_keys(reader, header.count)};
        case Op::remove:
            return RemoveCall{checked_keys(reader, header.count)};
        case Op::remove_prefix:
            return RemovePrefixCall{checked_prefix(reader.string(), true)};
        case Op::measure: {
            std::string prefix = checked_prefix(reader.string(), true);
            return MeasureCall{std::move(prefix), reader.u8() != 0};
        }
        case Op::list: {
            wire::ListQuery query = reader.list_query();
            return ListCall{checked_prefix(std::move(query.prefix), query.delimited),
                            query.delimited, std::move(query.cursor), wire::kPageBytes};
        }
        default:
            throw Error(ErrorKind::protocol, "an unknown operation");
    }
}

// Appends a result to the payload of a reply.
struct Payload {
    std::string& out;

    void operator()(const Sizes& sizes) const {
        for (const std::uint64_t size : sizes) {
            wire::put_u64(out, size);
        }
    }
    void operator()(const Removed& removed) const { wire::put_u64(out, removed.keys); }
    void operator()(const Measure& measure) const {
        wire::put_u64(out, measure.keys);
        wire::put_u64(out, measure.bytes);
        put_names(measure.unreadable);
    }
    void operator()(const Page& page) const {
        wire::put_string(out, page.cursor);
        wire::put_u64(out, page.unreadable.size());
        put_names(page.unreadable);
        put_names(page.names);
    }
    template <typename Other>
    void operator()(const Other&) const {}  // the status alone is the answer

    void put_names(const std::vector<std::string>& names) const {
        for (const std::string& name : names) {
            wire::put_string(out, name);
        }
    }
};

const std::string kNoKey;

struct KeyOrPrefixOf {
    const std::string& none;

    const std::string& first(const std::vector<std::string>& keys) const {
        return keys.empty() ? none : keys.front();
    }
    const std::string& operator()(const StatCall& call) const { return first(call.keys); }
    const std::string& operator()(const RemoveCall& call) const { return first(call.keys); }
    template <typename Other>
    const std::string& operator()(const Other& call) const {
        return call.prefix;
    }
};

}  // namespace

Status status_of(const std::exception& failure) {
    const auto* error = dynamic_cast<const Error*>(&failure);
    switch (error == nullptr ? ErrorKind::storage : error->kind()) {
        case ErrorKind::scratch_ended:
            return Status::ended;
        case ErrorKind::evicted:
            return Status::evicted;
        case ErrorKind::denied:
            return Status::denied;
        default:
            return Status::storage;
    }
}

bool changes(const StorageCall& call) {
    return std::holds_alternative<RemoveCall>(call) ||
           std::holds_alternative<RemovePrefixCall>(call);
}

bool concerns_few_keys(const StorageCall& call) {
    const auto* stat = std::get_if<StatCall>(&call);
    const auto* remove = std::get_if<RemoveCall>(&call);
    return (stat != nullptr && stat->keys.size() <= kFewKeys) ||
           (remove != nullptr && remove->keys.size() <= kFewKeys);
}

const std::string& key_or_prefix_of(const StorageCall& call) {
    return std::visit(KeyOrPrefixOf{kNoKey}, call);
}

std::variant<StorageCall, Answer> read_call(bool read_only, const Bounds& bounds,
                                            const wire::RequestHeader& header,
                                            std::span<const std::byte> body) {
    try {
        StorageCall call = read(header, body);
        const bool changes = header.op == Op::remove || header.op == Op::remove_prefix;
        std::visit(Permit{bounds, changes}, call);
        if (read_only && changes && !wire::space_of(key_or_prefix_of(call))) {
            return Answer{Status::read_only, {}};
        }
        return call;
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::protocol) {
            throw;
        }
        const bool denied = error.kind() == ErrorKind::denied;
        return Answer{denied ? Status::denied : Status::invalid_key, error.what()};
    }
}

SpaceRequest read_space_request(Op op, std::span<const std::byte> body) {
    wire::Reader reader(body);
    SpaceRequest request{.name = reader.string()};
    if (op == Op::begin_space) {
        request.quota = reader.u64();
        const auto longest = static_cast<std::uint64_t>(Spaces::kMaxTimeout.count());
        request.timeout = Spaces::Timeout(std::min(reader.u64(), longest + 1));
    }
    return request;
}

Answer answer_of(const CallResult& result) {
    if (const auto* failure = std::get_if<Failure>(&result)) {
        return {failure->unknown ? Status::unknown : Status::storage, failure->text};
    }
    Answer answer;
    std::visit(Payload{answer.payload}, result);
    return answer;
}

}  // namespace ucxstore
