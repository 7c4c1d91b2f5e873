#include "client/requests.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::client::requests {
namespace {

// The body of a request of one item, with its fields in the order of docs/wire.md.
class Body {
  public:
    Body& text(const std::string& text) { return protocol::put_string(bytes_, text), *this; }
    Body& number(std::uint64_t number) { return protocol::put_u64(bytes_, number), *this; }
    Body& flag(bool flag) { return protocol::put_u8(bytes_, flag ? 1 : 0), *this; }
    std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

Pointer call(const How& how, protocol::Op op, const std::string& key, Body& body) {
    return make_call(op, key, body.take(), how.timeout_s, how.queue);
}

Pointer on_keys(const How& how, const Keys& keys, Operation::Kind kind) {
    return make_operation(keys, kind, how.timeout_s, how.queue);
}

std::vector<protocol::GetItem> selected(std::vector<protocol::Selection> selections) {
    std::vector<protocol::GetItem> wanted(selections.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i].selection = std::move(selections[i]);
    }
    return wanted;
}

void give_memory(Operation& operation, std::vector<Memory> memory) {
    for (std::size_t i = 0; i < memory.size(); ++i) {
        operation.items[i].memory = std::move(memory[i]);
    }
}

protocol::Reader reply_of(const Item& item) {
    return protocol::Reader({item.owned->data(), item.owned->size()});
}

// The texts from here on: `most` of them, or to the end.
std::vector<std::string> texts_of(protocol::Reader& reader, std::uint64_t most = ~0ull) {
    std::vector<std::string> texts;
    while (!reader.done() && texts.size() < most) {
        texts.push_back(reader.string());
    }
    return texts;
}

}  // namespace

Pointer get(const How& how, const Keys& keys, std::vector<protocol::Selection> selections,
            const std::optional<Versions>& versions, bool borrows) {
    base::require(selections.size() == keys.size(), "one list of ranges a key");
    base::require(!versions || versions->size() == keys.size(), "one version a key");
    auto operation = on_keys(how, keys, Operation::Kind::get);
    operation->borrows = borrows;
    for (std::size_t i = 0; versions && i < keys.size(); ++i) {
        operation->items[i].version = (*versions)[i];
    }
    want(*operation, selected(std::move(selections)));
    return operation;
}

Pointer get_into(const How& how, const Keys& keys, std::vector<protocol::Selection> selections,
                 std::vector<Memory> outs) {
    base::require(selections.size() == keys.size() && outs.size() == keys.size(),
                  "one list of ranges and one out a key");
    auto operation = on_keys(how, keys, Operation::Kind::get);
    give_memory(*operation, std::move(outs));
    want(*operation, selected(std::move(selections)));
    return operation;
}

Pointer read_boxes(const How& how, const Keys& keys, Integers boxes, const Array& out,
                   Integers chunk_shape, std::shared_ptr<memory::ResultMemory> result) {
    const Array chunk = Array::stored_chunk(chunk_shape, out.itemsize);
    const std::size_t ndim = chunk.dims.size();
    base::require(out.dims.size() == ndim, "out and chunk of different numbers of axes");
    base::require(boxes.size() == keys.size() * 3 * ndim, "boxes do not match the keys");
    auto operation = on_keys(how, keys, Operation::Kind::get);
    operation->result = std::move(result);
    std::vector<protocol::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const Integers box = boxes.subspan(i * 3 * ndim, 3 * ndim);
        const Integers count = box.subspan(2 * ndim);
        Item& item = operation->items[i];
        item.memory = Memory{out.base, out.box(box.subspan(ndim, ndim), count)};
        item.exact = true;
        wanted[i].selection = chunk.box(box.first(ndim), count);
        wanted[i].expected = chunk.nbytes();
    }
    want(*operation, std::move(wanted));
    return operation;
}

Pointer read_parts(const How& how, const Keys& keys, std::span<const StridedPart> sources,
                   std::span<const StridedPart> targets, std::byte* base, Integers expected,
                   const Versions& versions) {
    base::require(sources.size() == keys.size() && targets.size() == keys.size() &&
                      expected.size() == keys.size() && versions.size() == keys.size(),
                  "one source, target, size and version a key");
    auto operation = on_keys(how, keys, Operation::Kind::get);
    std::vector<protocol::GetItem> wanted(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        Item& item = operation->items[i];
        try {
            protocol::Layout source = part_of_value(sources[i]);
            protocol::Layout target = part_of_memory(targets[i]);
            base::require(source.size() == target.size(),
                          "a source and a target of different sizes");
            wanted[i].selection = std::move(source);
            item.memory.emplace(base, std::move(target));
        } catch (const base::Error& error) {
            throw base::Error(error.kind(), "'" + keys[i] + "': " + error.what());
        }
        item.exact = true;
        item.version = versions[i];
        wanted[i].expected = static_cast<std::uint64_t>(expected[i]);  // -1: any
    }
    want(*operation, std::move(wanted));
    return operation;
}

Pointer decoded(Pointer get, const std::string& recipe) {
    base::require(recipe.size() <= protocol::kMaxRecipeBytes, "a recipe that is too long");
    base::require(recipe.empty() || std::ranges::all_of(get->items,
                                                        [](const Item& item) {
                                                            return protocol::is_decoded(item.key);
                                                        }),
                  "a recipe for what is not named as decoded values are");
    get->recipe = recipe;
    return get;
}

Pointer set(const How& how, const Keys& keys, std::vector<Memory> values, Operation::Kind kind) {
    base::require(values.size() == keys.size(), "one value a key");
    auto operation = on_keys(how, keys, kind);
    give_memory(*operation, std::move(values));
    return operation;
}

Pointer write_boxes(const How& how, const Keys& keys, Integers starts, const Array& value,
                    Integers chunk_shape) {
    const std::size_t ndim = chunk_shape.size();
    base::require(value.dims.size() == ndim, "value and chunk of different numbers of axes");
    base::require(starts.size() == keys.size() * ndim, "boxes do not match the keys");
    auto operation = on_keys(how, keys, Operation::Kind::set);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        operation->items[i].memory =
            Memory{value.base, value.box(starts.subspan(i * ndim, ndim), chunk_shape)};
    }
    return operation;
}

Pointer remove(const How& how, const Keys& keys) {
    return make_calls(protocol::Op::remove, keys, how.timeout_s, how.queue);
}

Pointer remove_prefix(const How& how, const std::string& prefix) {
    return call(how, protocol::Op::remove_prefix, prefix, Body().text(prefix));
}

Pointer stat(const How& how, const Keys& keys) {
    return make_calls(protocol::Op::stat, keys, how.timeout_s, how.queue);
}

Pointer measure(const How& how, const std::string& prefix, bool any) {
    return call(how, protocol::Op::measure, prefix, Body().text(prefix).flag(any));
}

Pointer list_page(const How& how, const std::string& prefix, bool delimited,
                  const std::string& cursor) {
    return call(how, protocol::Op::list, prefix, Body().text(prefix).flag(delimited).text(cursor));
}

Pointer ping(const How& how) {
    return make_call(protocol::Op::ping, "", {}, how.timeout_s, how.queue);
}

Pointer stats(const How& how) {
    return make_call(protocol::Op::stats, "", {}, how.timeout_s, how.queue);
}

Pointer operate(const How& how, const std::string& request) {
    base::require(request.size() <= std::numeric_limits<std::uint16_t>::max(),
                  "a request too long");
    return call(how, protocol::Op::operate, "", Body().text(request));
}

Pointer begin_space(const How& how, const std::string& name, std::uint64_t quota,
                    std::uint64_t timeout_ms) {
    return call(how, protocol::Op::begin_space, name,
                Body().text(name).number(quota).number(timeout_ms));
}

Pointer renew_space(const How& how, const std::string& name) {
    return call(how, protocol::Op::renew_space, name, Body().text(name));
}

Pointer end_space(const How& how, const std::string& name) {
    return call(how, protocol::Op::end_space, name, Body().text(name));
}

std::vector<std::size_t> missing(const Operation& done) {
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < done.items.size(); ++i) {
        if (done.items[i].status == protocol::Status::missing) {
            positions.push_back(i);
        }
    }
    return positions;
}

std::vector<int> outcomes(const Operation& done) {
    std::vector<int> found;
    for (const Item& item : done.items) {
        found.push_back(item.status == protocol::Status::missing   ? 1
                        : item.status == protocol::Status::changed ? 2
                                                                   : 0);
    }
    return found;
}

std::vector<bool> written(const Operation& done) {
    std::vector<bool> found;
    for (const Item& item : done.items) {
        found.push_back(item.status != protocol::Status::kept);
    }
    return found;
}

std::uint64_t removed(const Operation& done) { return reply_of(done.items[0]).u64(); }

std::vector<std::int64_t> sizes(const Operation& done) {
    std::vector<std::int64_t> found;
    for (const Item& item : done.items) {
        for (protocol::Reader reader = reply_of(item); !reader.done();) {
            found.push_back(static_cast<std::int64_t>(reader.u64()));
        }
    }
    return found;
}

std::tuple<std::uint64_t, std::uint64_t, std::vector<std::string>> measured(const Operation& done) {
    protocol::Reader reader = reply_of(done.items[0]);
    const std::uint64_t keys = reader.u64();
    const std::uint64_t bytes = reader.u64();
    return {keys, bytes, texts_of(reader)};
}

std::tuple<std::vector<std::string>, std::string, std::vector<std::string>> page(
    const Operation& done) {
    protocol::Reader reader = reply_of(done.items[0]);
    std::string next = reader.string();
    std::vector<std::string> unreadable = texts_of(reader, reader.u64());
    return {texts_of(reader), std::move(next), std::move(unreadable)};
}

}  // namespace ucxstore::client::requests
