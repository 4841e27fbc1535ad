"""Writes docs/api.md from signatures and docstrings, without importing anything: `python -m docs.api_page`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/api.md"
TABLE = """\
| | TensorFlow, Keras: `rbs_tf` | `rbs_tf.torch` | `rbs_tf.jax` | `rbs_tf.numpy` |
|---|---|---|---|---|
| statistics and scale | `ReturnScaling` | `ReturnScaling` | `State` | `ReturnScaling` |
| divide errors | `scaling(errors)` | `scaling(errors)` | `scale_errors(state, errors)` | `scaling(errors)` |
| record an environment | `rbs_tf.collect_returns` | the same | `observe` | the same |
| add statistics | `merge_state` | `merge_state` | `merge_state` | `merge_state` |
| sigma and unit | `sigma`, `unit` | `sigma`, `unit` | `sigma`, `unit` | `sigma`, `unit` |
| a batch's own sigma | `batch_sigma` | `batch_sigma` | `batch_sigma` | `ReturnMoments.from_batch` |
| last layer in units of the return | `UnitDense` | `UnitLinear` | any parameters | any parameters |
| change its unit | `to_unit` | `to_unit_` | `to_unit` | times `rbs_tf.unit_ratio` |
| whole algorithms | TF-Agents: `ScaledLoss` | Stable-Baselines3: `rbs_tf.sb3` | | |"""
# Section -> what stands there: a text, or a name with the members to show, None for all public ones.
SECTIONS: dict[str, list[str | tuple[str, list[str] | None]]] = {
    "API": [
        "Each name of `rbs_tf` imports what it needs when it is first used; statistics and returns need only NumPy. "
        "Shapes: H heads (value functions), T steps, B sequences, N environments; `[...]` any leading axes. "
        "`python -m docs.api_page` writes this page from the docstrings. The same idea has the same name in all "
        "libraries:",
        TABLE,
    ],
    "The method": [
        ("rbs_tf.return_scaling.ReturnScaling", None),
        ("rbs_tf.tensor_moments.batch_sigma", None),
        ("rbs_tf.moments.ReturnMoments", None),
        ("rbs_tf.returns.discounted_returns", None),
    ],
    "In your own agent": [
        ("rbs_tf.collecting.collect_returns", None),
        ("rbs_tf.scaled_loss.ScaledLoss", None),
        ("rbs_tf.unit_dense.UnitDense", None),
        ("rbs_tf.numpy.ReturnScaling", None),
        ("rbs_tf.units.unit_ratio", None),
    ],
    "PyTorch": [(f"rbs_tf.torch.{name}", None) for name in ("ReturnScaling", "UnitLinear", "batch_sigma")],
    "Stable-Baselines3": [
        (f"rbs_tf.sb3.{name}", []) for name in ("ScaledPPO", "ScaledDQN", "ScaledSAC", "ScaledTD3")
    ],
    "JAX": [
        (f"rbs_tf.jax.{name}", None)
        for name in (
            *("State", "init", "observe", "merge_state", "moments", "sigma", "unit", "scale"),
            *("scale_errors", "batch_sigma", "to_unit"),
        )
    ],
    "Environments": [("rbs_tf.environments.factory.make", None)],
    "The paper's agent": [
        "In a clone: `from agents import Agent, train`, [as here](playing.md#in-python), or "
        "`from agents import RecurrentMultiHeadAgent, Heads, SequenceShape`, [as here](tf_agents.md).",
        ("agents.api.train", None),
        ("agents.api.Agent", ["load", "make_environment", "let_act", "reset", "act", "reward_values"]),
        ("agents.errors.UsageError", None),
        ("agents.agent.RecurrentMultiHeadAgent", ["observe", "update_bandit", "initial_priorities"]),
        ("agents.heads.Heads", []),
        ("agents.sequences.SequenceShape", []),
        ("agents.bandit.HeadBandit", []),
    ],
    "Its networks": [
        ("networks.recurrent_q_network.RecurrentQNetwork", ["call"]),
        ("networks.torsos.ConvTorso", []),
        ("networks.torsos.MlpTorso", []),
        ("networks.dueling_heads.DuelingHeads", []),
    ],
    "Its scalings": [
        "`--scaling=NAME` [chooses](configs.md#scalings) one.",
        ("agents.scalings.scaling.Scaling", None),
        ("agents.scalings.scaling.ErrorContext", None),
        ("agents.scalings.scaling.HeadLayer", None),
        ("agents.scalings.return_based.ReturnBasedScaling", []),
        ("agents.scalings.return_out.ReturnOut", []),
        ("agents.scalings.pop_art.PopArt", []),
        ("agents.scalings.error.ErrorBasedScaling", []),
        ("agents.scalings.cross_head.CrossHeadScaling", []),
        ("agents.scalings.signed_hyperbolic.SignedHyperbolic", []),
        ("agents.scalings.categorical.TwoHot", []),
        ("agents.scalings.categorical.HLGauss", []),
        ("agents.scalings.clip.ClippedRewards", []),
        ("agents.scalings.gymnasium_normalise.GymnasiumNormalise", []),
        ("agents.scalings.false_friends.RewardStd", []),
        ("agents.scalings.false_friends.ReturnStd", []),
        ("agents.scalings.false_friends.Horizon", []),
    ],
}
# As people import them: the package in place of the module that a name is written in.
PUBLIC = {
    "rbs_tf.environments.factory": "rbs_tf.environments",
    "agents.api": "agents",
    "agents.errors": "agents",
    "agents.agent": "agents",
    "agents.heads": "agents",
    "agents.sequences": "agents",
}
KEEP_MODULE = ("rbs_tf.numpy", "rbs_tf.torch", "rbs_tf.jax", "rbs_tf.sb3")


def page() -> str:
    """The whole page."""
    lines = ["<!-- written by python -m docs.api_page -->", ""]
    for place, (section, entries) in enumerate(SECTIONS.items()):
        lines += [f"{'#' if place == 0 else '##'} {section}", ""]
        for entry in entries:
            if isinstance(entry, str):
                lines += [entry if entry.startswith("|") else textwrap.fill(entry, 120), ""]
            else:
                lines += described(*entry)
    return "\n".join(lines).rstrip() + "\n"


def described(name: str, members: list[str] | None) -> list[str]:
    """Heading, signature and docstring of a class or function, then those of its members."""
    module, _, own = name.rpartition(".")
    node = found(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text()), own)
    lines = [f"### {public(module)}.{own}", "", *signature(node, own), *in_markdown(ast.get_docstring(node))]
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and shown(each, members):
                lines += [f"#### {own}.{each.name}", "", *signature(each, each.name)]
                lines += in_markdown(ast.get_docstring(each))
    return lines


def public(module: str) -> str:
    if module in PUBLIC:
        return PUBLIC[module]
    package = module.partition(".")[0]
    if module.startswith("agents.scalings."):
        return "agents.scalings"
    return module if module in KEEP_MODULE or package == "agents" else package


def found(tree: ast.Module, name: str) -> ast.ClassDef | ast.FunctionDef:
    """The last definition of this name; those before it are overloads."""
    kinds = ast.ClassDef, ast.FunctionDef
    return [node for node in tree.body if isinstance(node, kinds) and node.name == name][-1]


def shown(method: ast.FunctionDef, members: list[str] | None) -> bool:
    is_setter = any(
        isinstance(each, ast.Attribute) and each.attr == "setter" for each in method.decorator_list
    )
    if is_setter or ast.get_docstring(method) is None:
        return False
    return not method.name.startswith("_") if members is None else method.name in members


def signature(node: ast.ClassDef | ast.FunctionDef, name: str) -> list[str]:
    """A code block; of a class the constructor's, or its fields'; of a property its type."""
    if isinstance(node, ast.ClassDef):
        constructor = [
            each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        ]
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and is_dataclass(node)]
        if constructor:
            node = constructor[0]
        elif fields:
            # The default is the first argument of `agents.checks.setting`.
            values = [
                each.value.args[0] if isinstance(each.value, ast.Call) else each.value for each in fields
            ]
            parts = [
                parameter(each.target.id, each.annotation, value)
                for each, value in zip(fields, values, strict=True)
            ]
            return block(name, parts, "")
        else:
            return []
    decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
    if "property" in decorators:
        return ["```python", f"{name}: {plain(node.returns)}", "```", ""]
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [
        parameter(each.arg, each.annotation, value) for each, value in zip(positional, defaults, strict=True)
    ]
    if positional and positional[0].arg in ("self", "cls"):
        parts = parts[1:]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [
        parameter(each.arg, each.annotation, value)
        for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    returns = plain(node.returns)
    return block(name, parts, "" if returns in ("None", "") else f" -> {returns}")


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def parameter(name: str, annotation: ast.expr | None, default: ast.expr | None) -> str:
    typed = f"{name}: {plain(annotation)}" if annotation is not None else name
    if default is None:
        return typed
    equals = " = " if annotation is not None else "="
    return f"{typed}{equals}{ast.unparse(default)}"


def plain(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation).strip("'\"")


def block(name: str, parts: list[str], end: str) -> list[str]:
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= 100:
        return ["```python", line, "```", ""]
    return ["```python", f"{name}(", *(f"    {part}," for part in parts), f"){end}", "```", ""]


def in_markdown(docstring: str | None) -> list[str]:
    """A docstring in Google's form: its sections become lists."""
    lines: list[str] = []
    section = ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        if match := re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):(.*)", line):
            section = match[1]
            lines += ["", f"**{section}**:{match[2]}", ""]
        elif section and line.startswith("  ") and not line.startswith("    "):
            entry = re.match(r"  ([\w*., ]+): (.*)", line) if section != "Returns" else None
            lines.append(f"* `{entry[1]}`: {entry[2]}" if entry else line[2:])
        elif section and line.startswith("    "):
            lines.append("  " + line.strip())
        else:
            if section and line.strip():
                section = ""
            lines.append(line)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return [*text.splitlines(), ""]


if __name__ == "__main__":
    PAGE.write_text(page())
