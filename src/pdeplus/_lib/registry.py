"""The folder is the registry: a name is a file, imported when it is asked for.

A dotted name (`my_package.my_idea`) loads from the user's own code; a URI (`timm:resnet18`) from another library.
"""

import copy
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
import types
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from textwrap import shorten
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from weakref import WeakValueDictionary

from ..errors import UserError

FAMILIES = {"methods": "Method", "models": "build", "data": "Source", "augment": "Augmentor"}
"""Each family's folder, and what a file in it provides: a final class of that kind, or that function."""
HELPERS = {"base", "normalise"}
"""Files of those folders that are no members, besides those whose names start with an underscore."""
FILES = (".onnx", ".pt", ".pt2", ".pth", ".safetensors")
"""What the name of a network in a file ends with."""
NEW = {"new": True}
"""Metadata of an option that older configs do not have: at its default it does not count when configs are compared."""
Target = Callable[..., Any]
Options = Mapping[str, Any]
PYTHON = "python:"
"""What the name of an object begins with that was given in Python."""
_given = WeakValueDictionary[str, Any]()
_users_code = ContextVar("users_code", default=True)
"""Whether names may stand for code outside pdeplus."""


def new_since(before: object) -> dict[str, object]:
    """Metadata of an option that older configs do not have and whose default is not what they did, `before`."""
    return {"new": True, "before": before}


@contextmanager
def users_code(allowed: bool) -> Generator[None]:
    """Within it a name that stands for code outside pdeplus is imported, or refused before anything of it runs."""
    before = _users_code.set(allowed)
    try:
        yield
    finally:
        _users_code.reset(before)


def names(family: str) -> list[str]:
    """All names of a family."""
    package = importlib.import_module(f"pdeplus.{family}")
    found = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return sorted(name for name in found - HELPERS if not name.startswith("_"))


def give(name: str, thing: object) -> str:
    """Let a name, which begins with "python:", stand for an object of the user's own Python as long as that lives."""
    _given[name] = thing
    return name


def _find_given(family: str, name: str) -> Target:
    """What makes a copy of a given network, or is the given data; it refuses, when called, what is not there."""

    def there() -> Any:
        if name not in _given:
            part = {"models": "model", "data": "data"}.get(family, family)
            way_out = f"in another process give it again: Run.load(folder, {part}=…), or pp.resume with it"
            raise UserError(f"{family}: {name!r} was passed in Python and is not available here; {way_out}")
        return _given[name]

    def network(*, classes: int, channels: int) -> Any:
        return copy.deepcopy(there())

    return network if family == "models" else there


def find(family: str, name: str) -> Target:
    """The class or builder behind a name; an unknown name is answered with the known ones."""
    if name.startswith(PYTHON):
        return _find_given(family, name)
    if family == "models" and (":" in name or "/" in name or os.path.splitext(name)[1] in FILES):
        return importlib.import_module(f"pdeplus.{family}._libraries").find_uri(name)
    if name.startswith(".") or ("." not in name and name not in names(family)):
        own = f" (a module of your own needs a dot: my_package.{name})" * os.path.isfile(f"{name}.py")
        raise unknown(f"{family}: {name!r}{own}", name, names(family))
    module = load_module(family, name if "." in name else f"pdeplus.{family}.{name}", name)
    provided = FAMILIES[family]
    if provided.islower():
        target = getattr(module, provided, None)
    else:
        kind = getattr(importlib.import_module(f"pdeplus.{family}.base"), provided)
        classes = (c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__)
        target = next((c for c in classes if issubclass(c, kind) and c is not kind), None)
    if target is None:
        raise UserError(f"{family}: {name!r} has no {provided}")
    return cast(Target, target)


def load_module(family: str, path: str, name: str) -> types.ModuleType:
    """The module at a dotted path, the user's own only where that is allowed; whatever fails in it is one line."""
    own = not path.startswith(f"pdeplus.{family}.")
    if own and not _users_code.get():
        way_out = "look at it first, then give --trust-code (Python: trust_code=True)"
        raise UserError(f"{family}: {name!r} would import the module {path}, which is not part of pdeplus; {way_out}")
    try:
        if own and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise UserError(f"{family}: {name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:  # a user's module may do anything
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        place = "" if isinstance(error, SyntaxError) else f" in {frame.filename} line {frame.lineno}"  # it has its own
        raise UserError(f"{family}: {name!r} fails{place}: {reason}") from error


def require(*names: str, purpose: str, extra: str) -> list[Any]:
    """The modules of these names, or one line that says what needs them and which extra of pdeplus installs them."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        missing = (error.name or names[0]).partition(".")[0]
        raise UserError(f"{purpose} needs {missing}: pip install 'pdeplus[{extra}]'") from error


def build(family: str, name: str, options: Options, **given: Any) -> Any:
    """Make the named thing from a user's options and from arguments the program itself gives."""
    target = find(family, name)
    return target(**check_options(target, options, where=family.rstrip("s"), hidden=given), **given)


def check_options(
    target: Target, options: Options, *, where: str, hidden: Collection[str] = (), common: Options | None = None
) -> dict[str, Any]:
    """The options with every key known and every value of the declared type.

    Known are the target's arguments but for the `hidden` ones, and those of `common`, the types of options that all of
    its family have.
    """
    hints = get_type_hints(target.__init__ if inspect.isclass(target) and not is_dataclass(target) else target)
    parameters = inspect.signature(target).parameters
    known = {name: hints.get(name, Any) for name in parameters if name not in hidden}
    known |= {name: hint for name, hint in (common or {}).items() if name not in known}
    checked = dict[str, Any]()
    for key, value in options.items():
        if key not in known:
            raise unknown(f"{where}.{key}={value!r}: the key", key, known)
        default = parameters[key].default if key in parameters else None
        checked[key] = check_value(f"{where}.{key}", value, known[key], default)
    return checked


def resolved(family: str, name: str, options: Options, **rules: Any) -> dict[str, Any]:
    """The options with every default filled in, as plain values; `rules` are those of `check_options`."""
    target = find(family, name)
    parameters = inspect.signature(target).parameters
    shown = {k: p.default for k, p in parameters.items() if k not in rules.get("hidden", ())}
    defaults = {k: default for k, default in shown.items() if default is not inspect.Parameter.empty}
    values = defaults | check_options(target, options, where=family.rstrip("s"), **rules)
    return {key: plain(value) for key, value in values.items() if value is not None}


def plain(value: Any) -> Any:
    """A value as TOML can hold it; a nested part becomes a table with its name."""
    if is_dataclass(value) and not isinstance(value, type):
        table = {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        module = type(value).__module__
        return {"name": module.rpartition(".")[2] if module.startswith("pdeplus.") else module, **table}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in cast(Options, value).items()}
    return list(cast(tuple[Any, ...], value)) if isinstance(value, tuple) else value


def check_value(key: str, value: Any, hint: Any, default: Any = None) -> Any:
    """`value` as the type `hint` declares, or one line that says what was expected.

    A table for a nested part that has no name is one for the default's part.
    """
    family = getattr(hint, "family", None)
    if family and isinstance(value, str | Mapping):
        options = {"name": value} if isinstance(value, str) else dict(cast(Options, value))
        name = options.pop("name", plain(default)["name"] if is_dataclass(default) else None)
        if not isinstance(name, str):
            raise UserError(f"{key}={value!r} needs a name; known: {', '.join(names(family))}")
        target = find(family, name)
        return target(**check_options(target, options, where=key))
    ok, converted = _convert(value, hint)
    if not ok:
        raise UserError(f"{key}={value!r} must be {describe(hint)}")
    return converted


def describe(hint: Any) -> str:
    """A declared type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(a) for a in arguments)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    return "a list" if origin is tuple else words.get(hint, getattr(hint, "__name__", str(hint)))


def choices(hint: Any) -> tuple[str, ...]:
    """What a Literal allows, in its order, for a command's flag; in a union, such as with None, its Literals count."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    found = tuple(str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part))
    if not found:
        raise TypeError(f"{hint} names no choices: it is no Literal")
    return found


def _convert(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether `value` fits `hint`, and the value to use: whole numbers pass for floats, lists for tuples."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True, value
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in arguments), value
    if origin in (Union, types.UnionType):
        return next((r for r in (_convert(value, a) for a in arguments) if r[0]), (False, value))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        items = [_convert(item, arguments[0]) for item in cast(list[Any], value)]
        return all(ok for ok, _ in items), tuple(item for _, item in items)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return True, float(value)
    return isinstance(value, origin or hint) and not (hint is int and isinstance(value, bool)), value


def unknown(what: str, name: str, known: Collection[str]) -> UserError:
    """The answer to an unknown name: the near ones first, then all."""
    what = "".join(c if c.isprintable() else repr(c)[1:-1] for c in what)  # one line, whatever the name holds
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"{what} is not known; {hint}known: {', '.join(known)}")
