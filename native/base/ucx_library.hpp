// The UCX library, loaded when it is first needed. The core is not linked to it: a process that
// makes nothing of UCX does not load it.
#pragma once

#include <ucp/api/ucp.h>

// The functions of UCX that are called. One that is missing here is an undefined symbol of the
// module, which then cannot be imported.
#define UCXSTORE_UCX_FUNCTIONS(DO)     \
    DO(ucp_am_data_release)            \
    DO(ucp_am_recv_data_nbx)           \
    DO(ucp_am_send_nbx)                \
    DO(ucp_cleanup)                    \
    DO(ucp_config_modify)              \
    DO(ucp_config_read)                \
    DO(ucp_config_release)             \
    DO(ucp_dt_create_generic)          \
    DO(ucp_ep_close_nbx)               \
    DO(ucp_ep_create)                  \
    DO(ucp_ep_query)                   \
    DO(ucp_get_version_string)         \
    DO(ucp_init_version)               \
    DO(ucp_request_free)               \
    DO(ucp_worker_arm)                 \
    DO(ucp_worker_create)              \
    DO(ucp_worker_destroy)             \
    DO(ucp_worker_get_address)         \
    DO(ucp_worker_get_efd)             \
    DO(ucp_worker_progress)            \
    DO(ucp_worker_release_address)     \
    DO(ucp_worker_set_am_recv_handler) \
    DO(ucs_status_string)

namespace ucxstore::base {

// Pointers with the names of the functions, called as base::ucp_ep_query() and the like. They are
// null until load_ucx() has returned. Only what a Context has led to may call them.
// NOLINTNEXTLINE(bugprone-macro-parentheses): no expression
#define UCXSTORE_DECLARE(name) extern decltype(&::name) name;
UCXSTORE_UCX_FUNCTIONS(UCXSTORE_DECLARE)
#undef UCXSTORE_DECLARE

struct UcxLibrary {
    void* handle = nullptr;  // of dlopen(), never closed
    bool has_hooks = true;   // on mmap and the like, without which it caches no registered memory
};

// Says how the library is loaded. The loader may be called more than once, and at the same time by
// several threads. It returns the same library each time.
void set_ucx_loader(UcxLibrary (*loader)());

// Loads UCX, if that is still to be done. The constructor of Context calls it: whatever is made of
// UCX begins there. Throws what the loader throws, or Error(no_ucx).
const UcxLibrary& load_ucx();

}  // namespace ucxstore::base
