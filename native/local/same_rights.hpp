// Whether the process at the other end of a Unix socket may see the same files as this one.
#pragma once

namespace ucxstore::local {

// Whether it had our user id when it connected, and has our mounts and our root directory. Then a
// descriptor of a directory gives it nothing that it cannot open by itself: in a container, of the
// same user, it would. False where that cannot be told, as before Linux 6.5.
bool has_our_rights(int socket);

}  // namespace ucxstore::local
