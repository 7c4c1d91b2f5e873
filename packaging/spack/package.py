# SPDX-License-Identifier: Apache-2.0

from spack.package import *


class PyUcxstore(PythonPackage):
    """A Zarr v3 store whose chunks travel over UCX straight into the buffer they are read into."""

    pypi = "ucxstore/ucxstore-0.1.0.tar.gz"

    license("Apache-2.0")

    # `spack checksum py-ucxstore` adds the checksum of the release.
    version("0.1.0")

    variant("tools", default=True, description="Object stores, progress of cp, metrics")
    variant("dask", default=False, description="A server in every worker of a Dask cluster")

    depends_on("cxx", type="build")
    conflicts("%gcc@:11", msg="ucxstore needs C++20")
    conflicts("platform=darwin", msg="ucxstore needs Linux")

    depends_on("python@3.12:", type=("build", "run"))
    depends_on("cmake@3.26:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@1.1:", type="build")
    depends_on("py-nanobind@3.1:", type="build")

    # Opened when it is needed, where setup_run_environment says that it is.
    depends_on("ucx@1.18:1.21,1.22.1:", type=("build", "link", "run"))
    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-zarr@3.4.1:3", type=("build", "run"))

    with when("+tools"):
        depends_on("py-obstore@0.6:", type="run")
        depends_on("py-prometheus-client", type="run")
        depends_on("py-rich", type="run")
        depends_on("py-shtab", type="run")
    with when("+dask"):
        depends_on("py-dask@2026.7: +array +distributed", type="run")

    def setup_build_environment(self, env):
        env.set("UCX_ROOT", self.spec["ucx"].prefix)

    def setup_run_environment(self, env):
        env.set("UCXSTORE_UCX", "system")
        env.prepend_path("LD_LIBRARY_PATH", self.spec["ucx"].prefix.lib)
