// Sockets whose end a peer must see, and forked children, which inherit them.
#pragma once

namespace ucxstore::base {

// Notes a socket, and forgets it. Any thread.
void enlist_for_children(int fd);
void strike_off_for_children(int fd);

// In a forked child: closes the sockets that it has inherited. While it holds them, the peers of
// its parent would not see the parent's end. Async-signal-safe; takes no lock.
void close_inherited_sockets();

}  // namespace ucxstore::base
