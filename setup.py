"""Builds the compiled kernel when a C++ compiler is there. Without one, installation goes on without the kernel."""

from glob import glob

from setuptools import Extension, setup

KERNEL = "src/n3net/kernel"

setup(
    ext_modules=[
        Extension(
            "n3net._kernel",
            sources=[f"{KERNEL}/kernel.cpp"],
            depends=glob(f"{KERNEL}/*.inc"),
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-pthread"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
