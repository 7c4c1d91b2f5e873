#include "answer.hpp"

#include <cstdint>
#include <utility>

#include "keys.hpp"
#include "status.hpp"

namespace ucxstore {
namespace {

using wire::Op;
using wire::Status;

std::string checked_key(std::string key) {
    if (const auto fault = wire::key_fault(key)) {
        throw Error(ErrorKind::invalid_key, *fault);
    }
    return key;
}

std::string checked_prefix(std::string prefix, bool whole) {
    if (const auto fault = wire::prefix_fault(prefix, whole)) {
        throw Error(ErrorKind::invalid_key, *fault);
    }
    return prefix;
}

std::string carry_out(Backing& backing, const Counters& counters, const wire::RequestHeader& header,
                      std::span<const std::byte> body) {
    wire::Reader reader(body);
    std::string payload;
    switch (header.op) {
        case Op::ping:
            break;
        case Op::stat:
            for (std::uint32_t i = 0; i < header.count; ++i) {
                const std::string key = checked_key(reader.string());
                wire::put_u64(payload, backing.size(key).value_or(wire::kAnySize));
            }
            break;
        case Op::remove:
            for (std::uint32_t i = 0; i < header.count; ++i) {
                backing.remove(checked_key(reader.string()));
            }
            break;
        case Op::remove_prefix:
            wire::put_u64(payload, backing.remove_prefix(checked_prefix(reader.string(), true)));
            break;
        case Op::measure: {
            const std::string prefix = checked_prefix(reader.string(), true);
            const Measure measure = backing.measure(prefix, reader.u8() != 0);
            wire::put_u64(payload, measure.keys);
            wire::put_u64(payload, measure.bytes);
            break;
        }
        case Op::list: {
            const wire::ListQuery query = reader.list_query();
            const Page page = backing.list(checked_prefix(query.prefix, query.delimited),
                                           query.delimited, query.cursor, wire::kPageBytes);
            wire::put_string(payload, page.cursor);
            for (const std::string& name : page.names) {
                wire::put_string(payload, name);
            }
            break;
        }
        case Op::stats:
            payload = counters.to_json();
            break;
        default:
            throw Error(ErrorKind::protocol, "an unknown operation");
    }
    return payload;
}

}  // namespace

Answer answer_of(Backing& backing, const Counters& counters, bool read_only,
                 const wire::RequestHeader& header, std::span<const std::byte> body) {
    if (read_only && (header.op == Op::remove || header.op == Op::remove_prefix)) {
        return {Status::read_only, {}};
    }
    try {
        return {Status::ok, carry_out(backing, counters, header, body)};
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::protocol) {
            throw;
        }
        const bool is_key = error.kind() == ErrorKind::invalid_key;
        return {is_key ? Status::invalid_key : Status::backing, error.what()};
    }
}

}  // namespace ucxstore
