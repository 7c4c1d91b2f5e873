#include "ucx/endpoint.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::ucx {

namespace {

// UCX reads an address as far as that says. Behind it are zeros, the mark of an address's end.
constexpr std::size_t kPadding = 4096;

// Transports whose data only ucp_worker_progress() moves, and no adapter.
constexpr std::string_view kOfTheProcessor[] = {"self", "posix", "tcp"};
constexpr std::string_view kShared[] = {"self", "posix"};

bool are_all_of(std::span<const std::string_view> transports,
                const std::vector<std::string>& lanes) {
    return !lanes.empty() && std::ranges::all_of(lanes, [&](const std::string& lane) {
        const std::string_view transport = std::string_view(lane).substr(0, lane.find('/'));
        return std::ranges::find(transports, transport) != transports.end();
    });
}

}  // namespace

void Endpoint::check_address(const Worker& worker, const std::string& address) {
    // It begins with the version of its format, and UCX aborts at one that it does not know.
    if (address.empty() || address.front() != worker.address().front()) {
        throw base::Error(base::ErrorKind::connect,
                          "the other side has another UCX, whose addresses this one cannot read");
    }
}

Endpoint::Endpoint(Worker& worker, const std::string& address) : worker_(worker) {
    worker.used = true;
    check_address(worker, address);
    const std::string padded = address + std::string(kPadding, '\0');
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &Endpoint::on_error;
    params.err_handler.arg = this;
    base::check(base::ucp_ep_create(worker.get(), &params, &handle_), "creating a UCX endpoint");
    const auto chosen = lanes();
    worker.moves_only_in_progress = are_all_of(kOfTheProcessor, chosen);
    worker.shares_memory = are_all_of(kShared, chosen);
}

void Endpoint::on_error(void* argument, ucp_ep_h, ucs_status_t status) {
    // Inside UCX here: only noted. The owner's tick() closes.
    auto* self = static_cast<Endpoint*>(argument);
    if (self != nullptr) {
        self->failed_ = true;
        self->cause_ = base::ucs_status_string(status);
    }
}

std::vector<std::string> Endpoint::lanes() const {
    if (get() == nullptr) {
        return {};
    }
    std::array<ucp_transport_entry_t, 32> entries{};
    ucp_ep_attr_t attributes{};
    attributes.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
    attributes.transports.entries = entries.data();
    attributes.transports.num_entries = entries.size();
    attributes.transports.entry_size = sizeof(ucp_transport_entry_t);
    if (base::ucp_ep_query(handle_, &attributes) != UCS_OK) {
        return {};
    }
    std::vector<std::string> lanes;
    for (unsigned i = 0; i < attributes.transports.num_entries; ++i) {
        std::string lane = std::string(entries[i].transport_name) + "/" + entries[i].device_name;
        if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) {
            lanes.push_back(std::move(lane));
        }
    }
    return lanes;
}

void Endpoint::close() {
    if (handle_ == nullptr) {
        return;
    }
    ucp_request_param_t params{};
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    params.cb.send = [](void* request, ucs_status_t, void* worker) {
        --static_cast<Worker*>(worker)->closing;
        base::ucp_request_free(request);
    };
    params.user_data = &worker_;
    failed_ = true;
    worker_.used = true;
    if (UCS_PTR_IS_PTR(base::ucp_ep_close_nbx(std::exchange(handle_, nullptr), &params))) {
        ++worker_.closing;
    }
}

}  // namespace ucxstore::ucx
