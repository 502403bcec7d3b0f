"""Stand-ins for packages that SGLang imports and that a machine without a GPU does not have.

A .pth file in the environment's site-packages imports this module at every start of its interpreter.  It adds one
finder behind all others, so a package that is installed is always the real one.  What it hands out can be imported,
subclassed, put into a type and used as a decorator; using it for work raises RuntimeError with its name.
"""
import sys
import types
from importlib.machinery import ModuleSpec

# Kernels, codecs, grammars: nothing of these is called while SGLang is being imported.
SILENT = frozenset("""IPython compressed_tensors cuda cutlass flashinfer gguf openai_harmony sentencepiece sgl_kernel
    soundfile tiktoken torchaudio torchvision xgrammar""".split())
# Decorators and tuning tables of this one are called at import time; a kernel is only *run* by kernel[grid](...).
CALLED_AT_IMPORT = frozenset({"triton"})


def _absent(path):
    raise RuntimeError(f"{path}: the package {path.split('.')[0]} is not installed; SGLang runs on a CPU here without it")


class _AbsentType(type):
    """The type of every handed-out name; a class, because SGLang derives from some of them."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _name(f"{cls.absent_path}.{name}")

    def __call__(cls, *arguments, **_keywords):
        package, *rest = cls.absent_path.split(".")
        if package not in CALLED_AT_IMPORT or "driver" in rest:
            _absent(cls.absent_path)
        decorated = getattr(arguments[0], "__name__", "") if arguments else ""
        return _name(f"{cls.absent_path}({decorated})")

    def __getitem__(cls, _key):
        _absent(cls.absent_path)


def _any_schema(_cls, _source, _handler):
    from pydantic_core import core_schema  # only pydantic calls this, so it is there

    return core_schema.any_schema()


def _name(path):
    members = {"absent_path": path, "__module__": path.rpartition(".")[0], "__get_pydantic_core_schema__": classmethod(_any_schema)}
    return _AbsentType(path.rpartition(".")[2], (), members)


class _AbsentModule(types.ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _name(f"{self.__name__}.{name}")


class _Finder:
    @staticmethod
    def find_spec(name, _path=None, _target=None):
        if name.partition(".")[0] in SILENT | CALLED_AT_IMPORT:
            return ModuleSpec(name, _Finder, is_package=True)
        return None

    @staticmethod
    def create_module(spec):
        return _AbsentModule(spec.name)

    @staticmethod
    def exec_module(_module):
        pass


sys.meta_path.append(_Finder)
