#include "client/reads_once.hpp"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "client/batch.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::client {
namespace {

constexpr double kTimeoutSeconds = 60;

// Whether a box has no byte twice.
bool is_injective(const protocol::Layout& box) {
    std::vector<protocol::Dim> dims = box.dims();
    std::ranges::sort(dims, {}, &protocol::Dim::stride);
    std::uint64_t extent = box.run();
    for (const protocol::Dim& dim : dims) {
        const auto stride = static_cast<std::uint64_t>(dim.stride);
        if (dim.count > 1 && stride < extent) {
            return false;
        }
        extent += (dim.count - 1) * stride;
    }
    return true;
}

bool is_of_once(const Item& item) { return protocol::is_read_once(item.key); }

}  // namespace

// The server has seen that a box lies in the value.
bool is_whole(const protocol::GetItem& wanted, const Item& item) {
    if (item.status != protocol::Status::ok || item.size != item.value_size) {
        return false;
    }
    if (const auto* box = std::get_if<protocol::Layout>(&wanted.selection)) {
        return box->offsets().empty() && is_injective(*box);
    }
    return std::get<std::vector<protocol::Range>>(wanted.selection).size() <= 1;
}

void tell_of_reads(const std::shared_ptr<Link>& link, Operation& operation) {
    if (operation.kind != Operation::Kind::get ||
        std::ranges::none_of(operation.items, is_of_once)) {
        return;
    }
    operation.on_success = [weak = std::weak_ptr(link)](const Operation& done) {
        std::vector<std::pair<std::string, std::uint64_t>> read;
        for (std::size_t i = 0; i < done.items.size(); ++i) {
            const Item& item = done.items[i];
            if (is_of_once(item) && is_whole(done.gets[i], item)) {
                read.emplace_back(item.key, item.version);
            }
        }
        const auto self = weak.lock();
        if (self != nullptr && !read.empty()) {
            self->submit_later(make_read(read, kTimeoutSeconds));
        }
    };
}

}  // namespace ucxstore::client
