"""Builds the kernel: a shared library with a plain C interface, loaded by ctypes, so that one serves every Python.

Without a C++ compiler, or with one that fails, the build goes on without it. The pages of docs/ are copied into the
package, for `n3net help`.
"""

import sys
from glob import glob
from pathlib import Path
from textwrap import shorten

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError

FOLDER = "src/n3net/kernel"
FLAGS = ["-std=c++17", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-pthread"]


class BuildKernel(build_ext):
    """Compiles as for an extension module, without what makes it one of Python."""

    def finalize_options(self):
        super().finalize_options()
        self.force = True  # what another compiler made must not stay

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split("."))) + ".so"

    def get_export_symbols(self, ext):
        return []

    def run(self):
        for folder in [self.build_lib, *(["src"] if self.inplace else [])]:
            for earlier in Path(folder, "n3net").rglob("*.so"):
                earlier.unlink()
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            why = shorten(str(error), 100)
            print(f"n3net: without the kernel, on PyTorch alone, as it did not compile: {why}", file=sys.stderr)
            self.extensions = self.distribution.ext_modules = []


class BuildPython(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:  # else they are found in docs/
            pages = Path(self.build_lib, "n3net", "pages")
            self.mkpath(str(pages))
            for page in sorted(Path("docs").glob("*.md")):
                self.copy_file(str(page), str(pages / page.name))


class Wheel(bdist_wheel):
    """For any Python 3: of this platform with the kernel, of any without."""

    def run_command(self, command):
        super().run_command(command)
        if command == "build":
            self.root_is_pure = not self.distribution.has_ext_modules()

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildKernel, "build_py": BuildPython, "bdist_wheel": Wheel},
    ext_modules=[
        Extension(
            "n3net.kernel.libn3net",
            sources=[f"{FOLDER}/kernel.cpp"],
            depends=glob(f"{FOLDER}/*.inc"),
            language="c++",
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
        )
    ],
)
