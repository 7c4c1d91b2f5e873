#include "bindings/py_log.hpp"

#include <string_view>

#include "base/log.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {
namespace {

constexpr const char* kAreas[] = {"client", "server"};
constexpr const char* kKinds[] = {"connected",    "closed",  "lost",   "refused",
                                  "slow_request", "evicted", "kicked", "request"};

// A text may have been cut in the middle of a character.
nb::object to_text(std::string_view text) {
    return nb::steal(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

nb::dict to_dict(const base::log::Record& record) {
    nb::dict fields;
    fields["area"] = kAreas[static_cast<std::size_t>(record.area)];
    fields["level"] = static_cast<int>(record.level);
    fields["kind"] = kKinds[static_cast<std::size_t>(record.kind)];
    fields["time"] = record.time;
    fields["peer"] = to_text(record.peer.view());
    fields["key"] = to_text(record.key.view());
    fields["detail"] = to_text(record.detail.view());
    fields["count"] = record.count;
    fields["bytes"] = record.bytes;
    fields["seconds"] = record.seconds;
    return fields;
}

using Events = nb::typed<nb::list, nb::typed<nb::dict, nb::str, nb::any>>;

nb::typed<nb::tuple, Events, std::uint64_t> take() {
    const base::log::Queue::Taken taken = base::log::queue().take();
    Events events;
    for (const base::log::Record& record : taken.records) {
        events.append(to_dict(record));
    }
    return nb::typed<nb::tuple, Events, std::uint64_t>(nb::make_tuple(events, taken.dropped));
}

}  // namespace

void bind_log(nb::module_& module) {
    module.def("log_listen", &base::log::listen, "client"_a, "server"_a,
               "Queue events of these levels and above; see `ucxstore.base.logs`.");
    module.def("log_slow_request", &base::log::set_slow_request, "seconds"_a,
               "Report requests that take longer; 0 for none.");
    module.def("log_fileno", [] { return base::log::queue().fd(); });
    module.def("log_wake", [] { base::log::queue().wake(); });
    module.def("log_take", &take, "Take the queued events, and how many were dropped.");
}

}  // namespace ucxstore::bindings
