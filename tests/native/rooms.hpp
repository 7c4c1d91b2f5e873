// All rooms of native/ are open to the tests.
#pragma once

namespace ucxstore::base {}
namespace ucxstore::cache {}
namespace ucxstore::client {}
namespace ucxstore::files {}
namespace ucxstore::local {}
namespace ucxstore::local_client {}
namespace ucxstore::local_server {}
namespace ucxstore::memory {}
namespace ucxstore::protocol {}
namespace ucxstore::server {}
namespace ucxstore::sessions {}
namespace ucxstore::shared {}
namespace ucxstore::storage {}
namespace ucxstore::stream {}
namespace ucxstore::stream_client {}
namespace ucxstore::stream_server {}
namespace ucxstore::threads {}
namespace ucxstore::ucx {}
namespace ucxstore::ucx_client {}
namespace ucxstore::ucx_server {}

namespace ucxstore::test {

using namespace base;
using namespace cache;
using namespace client;
using namespace files;
using namespace local;
using namespace local_client;
using namespace local_server;
using namespace memory;
using namespace protocol;
using namespace server;
using namespace sessions;
using namespace shared;
using namespace storage;
using namespace stream;
using namespace stream_client;
using namespace stream_server;
using namespace threads;
using namespace ucx;
using namespace ucx_client;
using namespace ucx_server;

}  // namespace ucxstore::test
