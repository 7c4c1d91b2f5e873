#include "context.hpp"

#include <array>
#include <cstdlib>
#include <utility>

#include "status.hpp"

namespace ucxstore {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 3> kDefaults = {{
    // Without it, endpoints with peer error handling silently lose shared memory.
    {"MM_ERROR_HANDLING", "y"},
    // 8 KiB by default, which costs a factor of 4 to 5 with peer error handling.
    {"TCP_TX_SEG_SIZE", "256K"},
    {"TCP_RX_SEG_SIZE", "256K"},
}};

void apply_defaults(ucp_config_t* config, const Options& options) {
    for (const auto& [name, value] : kDefaults) {
        const std::string variable = std::string("UCX_") + name;
        if (std::getenv(variable.c_str()) == nullptr && !options.contains(name)) {
            check(ucp_config_modify(config, name, value), "UCX option " + variable);
        }
    }
}

void apply_options(ucp_config_t* config, const Options& options) {
    for (const auto& [name, value] : options) {
        const ucs_status_t status = ucp_config_modify(config, name.c_str(), value.c_str());
        if (status != UCS_OK) {
            throw Error(ErrorKind::argument,
                        "UCX option " + name + "=" + value + ": " + ucs_status_string(status));
        }
    }
}

}  // namespace

Context::Context(const Options& options) {
    ucp_config_t* raw_config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &raw_config), "reading the UCX configuration");
    const ConfigHandle config(raw_config);
    apply_defaults(config.get(), options);
    apply_options(config.get(), options);

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.name = "ucxstore";
    ucp_context_h context = nullptr;
    // The version that we need, not the one of the headers at hand: ucp_init() would complain about
    // a library that is older than they are.
    check(ucp_init_version(1, 18, &params, config.get(), &context), "starting UCX");
    handle_.reset(context);
}

}  // namespace ucxstore
