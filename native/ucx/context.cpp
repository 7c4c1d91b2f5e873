#include "ucx/context.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/fork.hpp"
#include "base/status.hpp"
#include "base/ucx_library.hpp"

namespace ucxstore::ucx {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 10> kDefaults = {{
    // Without it, endpoints with peer error handling silently lose shared memory.
    {"MM_ERROR_HANDLING", "y"},
    // 8 KiB by default, which costs a factor of 4 to 5 with peer error handling.
    {"TCP_TX_SEG_SIZE", "256K"},
    {"TCP_RX_SEG_SIZE", "256K"},
    // UCX crashes where a connection fails inside the call that makes it: it frees what its caller
    // still uses, at a client whose server dies meanwhile, and at a server whose client does. So
    // that call does not wait for the connection, which then only fails later, when UCX is ready.
    {"TCP_CONN_NB", "y"},
    // The kernel's default is to try for two minutes where packets are dropped; this is 7 s.
    {"TCP_SYN_CNT", "2"},
    // UCX does without bridges unless told. The device of a connection may be one.
    {"TCP_BRIDGE_ENABLE", "y"},
    // 8 KiB, 256 and 512 by default. Larger fragments cost less each, and with fewer of them what
    // is under way stays in a core's cache: 1.2 times as fast where the cores are near each other,
    // up to twice where they are far. From 64 KiB on UCX's 16-bit length overflows, and it hangs.
    {"POSIX_SEG_SIZE", "60K"},
    {"POSIX_FIFO_SIZE", "32"},
    {"POSIX_RX_BUFS_GROW", "64"},
    // Huge pages come before, by default: one for each worker, of which it uses a fraction.
    {"ALLOC_PRIO", "md:sysv,md:posix,mmap,heap"},
}};

void apply_defaults(ucp_config_t* config, const Options& options) {
    for (const auto& [name, value] : kDefaults) {
        const std::string variable = std::string("UCX_") + name;
        if (!is_given(name, options)) {
            base::check(base::ucp_config_modify(config, name, value), "UCX option " + variable);
        }
    }
}

void apply_options(ucp_config_t* config, const Options& options) {
    for (const auto& [name, value] : options) {
        const ucs_status_t status = base::ucp_config_modify(config, name.c_str(), value.c_str());
        if (status != UCS_OK) {
            throw base::Error(base::ErrorKind::argument, "UCX option " + name + "=" + value + ": " +
                                                             base::ucs_status_string(status));
        }
    }
}

constexpr const char* kTransports = "TLS";

// The ports of this host's adapters for RDMA, by UCX's names, each after a comma. UCX listens on no
// socket for these.
std::string rdma_ports() {
    namespace fs = std::filesystem;
    std::string ports;
    std::error_code none;
    for (const auto& adapter : fs::directory_iterator("/sys/class/infiniband", none)) {
        for (const auto& port : fs::directory_iterator(adapter.path() / "ports", none)) {
            ports += "," + adapter.path().filename().string() + ":";
            ports += port.path().filename().string();
        }
    }
    return ports;
}

void apply_device(ucp_config_t* config, const Options& options, const std::string& device) {
    if (is_given(kDevices, options)) {
        return;
    }
    const std::string ports = rdma_ports();
    base::check(base::ucp_config_modify(config, kDevices, (device + ports).c_str()),
                "UCX_NET_DEVICES");
    if (!ports.empty() && !is_given("WARN_INVALID_CONFIG", options)) {
        // A UCX that was built without RDMA warns of such devices.
        base::check(base::ucp_config_modify(config, "WARN_INVALID_CONFIG", "n"),
                    "UCX_WARN_INVALID_CONFIG");
    }
}

void apply_transports(ucp_config_t* config, const Options& options, SharedMemory memory) {
    std::optional<std::string> wanted;
    if (const auto found = options.find(kTransports); found != options.end()) {
        wanted = found->second;
    } else if (const char* variable = std::getenv("UCX_TLS"); variable != nullptr) {
        wanted = variable;
    }
    base::check(base::ucp_config_modify(config, kTransports, transports(wanted, memory).c_str()),
                "UCX_TLS");
}

constexpr const char* kRegistrationCache = "RCACHE_ENABLE";

// The user's option for the registration cache, if there is one.
std::optional<std::string> wanted_cache(const Options& options) {
    if (const auto found = options.find(kRegistrationCache); found != options.end()) {
        return found->second;
    }
    const char* variable = std::getenv("UCX_RCACHE_ENABLE");
    return variable == nullptr ? std::nullopt : std::optional<std::string>(variable);
}

bool says(const char* variable, std::initializer_list<std::string_view> values) {
    const char* value = std::getenv(variable);
    return value != nullptr && std::ranges::find(values, value) != values.end();
}

// UCX has no cache without its hooks on mmap, though it may not refuse to start for that.
bool hooks_are_off() {
    return says("UCX_MEM_EVENTS", {"n", "no", "0", "off"}) ||
           says("UCX_MEM_MMAP_HOOK_MODE", {"none"});
}

base::ConfigHandle configure(const Options& options, const std::string& device,
                             SharedMemory memory) {
    ucp_config_t* config = nullptr;
    base::check(base::ucp_config_read(nullptr, nullptr, &config), "reading the UCX configuration");
    base::ConfigHandle owner(config);
    apply_defaults(config, options);
    apply_device(config, options, device);
    apply_options(config, options);
    apply_transports(config, options, memory);
    return owner;
}

ucs_status_t start(const ucp_config_t* config, base::ContextHandle& handle) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.name = "ucxstore";
    ucp_context_h context = nullptr;
    // The version that we need, not the one of the headers at hand: ucp_init() would complain about
    // a library that is older than they are.
    const ucs_status_t status = base::ucp_init_version(1, 18, &params, config, &context);
    if (status == UCS_OK) {
        handle.reset(context);
    }
    return status;
}

}  // namespace

void check_options(const Options& options) {
    base::load_ucx();  // not inside UCX, as in the constructor of Context
    const base::InUcx inside;
    configure(options, kLoopback, SharedMemory::on);
}

bool is_given(const std::string& name, const Options& options) {
    return std::getenv(("UCX_" + name).c_str()) != nullptr || options.contains(name);
}

Context::Context(const Options& options, const std::string& device, SharedMemory memory) {
    // Not inside UCX: it may wait for the GIL, and its holder may be forking.
    const base::UcxLibrary& ucx = base::load_ucx();
    const bool has_hooks = ucx.has_hooks && !hooks_are_off();
    const base::InUcx inside;
    const auto wanted = wanted_cache(options);
    const bool hooks_are_safe = !base::forked_after_ucx_started();
    if (!wanted || *wanted == "try") {
        // UCX tells whether it has a cache only by refusing to start where one is insisted on. A
        // cache that is made waits for the hooks' lock, which in a forked child may be for ever.
        const base::ConfigHandle config = configure(options, device, memory);
        const bool may_have = has_hooks && hooks_are_safe;
        base::check(base::ucp_config_modify(config.get(), kRegistrationCache, may_have ? "y" : "n"),
                    "UCX_RCACHE_ENABLE");
        if (start(config.get(), handle_) == UCS_OK) {
            has_registration_cache_ = may_have;
            return;
        }
    } else {
        const bool insists = *wanted == "y" || *wanted == "yes" || *wanted == "1";
        if (insists && !ucx.has_hooks) {
            throw base::Error(
                base::ErrorKind::argument,
                "UCX option RCACHE_ENABLE=" + *wanted +
                    ": UCX was loaded without its hooks on mmap, which the cache needs; "
                    "set UCX_MEM_MMAP_HOOK_MODE=bistro in the environment");
        }
        has_registration_cache_ = insists && has_hooks;
    }
    base::check(start(configure(options, device, memory).get(), handle_), "starting UCX");
}

Context::~Context() {
    const base::InUcx inside;
    handle_.reset();
}

}  // namespace ucxstore::ucx
