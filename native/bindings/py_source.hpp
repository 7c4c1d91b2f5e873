// ucxstore._core.CachedSource. Python carries out its calls. Python's buffers become values, and
// are released under the GIL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/convert.hpp"
#include "cache/cached_source.hpp"

namespace ucxstore::bindings {

// Buffers whose values are gone, and which are still to be released. A value may go on any thread,
// but only the thread that carries the calls out releases buffers, under the GIL.
class ReleaseQueue;

class PyCachedSource {
  public:
    // `freshness` is in seconds; nullopt is for ever. `visible`: whole values lie where other
    // processes may be let see them.
    PyCachedSource(std::uint64_t cache_bytes, std::uint64_t block_bytes,
                   std::optional<double> freshness, std::uint64_t write_bytes, bool visible);
    ~PyCachedSource();
    PyCachedSource(const PyCachedSource&) = delete;
    PyCachedSource& operator=(const PyCachedSource&) = delete;

    using Taken = nb::typed<nb::list, nb::typed<nb::tuple, nb::any, nb::ellipsis>>;

    int fileno() const { return source->calls().fd(); }
    void wake() { source->calls().wake(); }
    // The new calls, each as (ticket, name, arguments...).
    Taken take();
    // Both give a call its result. True if the caller may keep it: the key was not changed
    // meanwhile.
    bool found(std::uint64_t ticket, nb::handle buffer, const std::string& etag,
               std::uint64_t size);
    // `takes_long`: other threads of Python's go on meanwhile.
    bool answer(std::uint64_t ticket, cache::CallResult result, bool takes_long = false);
    void close(const std::string& why);
    // Releases what is to be released of Python's.
    void drain();

    const std::shared_ptr<cache::CachedSource> source;

  private:
    const std::shared_ptr<ReleaseQueue> released_;
};

void bind_source(nb::module_& module);

}  // namespace ucxstore::bindings
