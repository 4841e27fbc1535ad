"""The documentation against what it describes: commands parse, links lead somewhere, tables say what gin says."""

import csv
import inspect
import re
import shlex
from importlib import util

import gin
import numpy as np
from scipy import stats

import agents.settings  # noqa: F401  registers everything that a configuration may name
import rbs_tf
from agents import configuration
from agents.commands import sweep
from agents.commands import train as command_line
from agents.scalings import making
from agents.settings import list_settings
from docs import api_page, hyper_parameters
from networks.torsos import ConvTorso, MlpTorso
from rbs_tf.environments import names
from tests.source_tree import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
CONFIGS = sorted((ROOT / "configs").rglob("*.gin"))
LEARNING_RATE = "RecurrentMultiHeadAgent.learning_rate"


def prose(text):
    """A page without its code blocks."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def code(text):
    """Lines of code blocks, continued ones joined, and what stands between backticks elsewhere."""
    blocks = "\n".join(re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S))
    indented = "\n".join(re.findall(r"^ {4}(\S.*)", text, re.M))
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(text))
    return [*f"{blocks}\n{indented}".replace("\\\n", " ").splitlines(), *inline]


def commands(*programs):
    """(page, words) of the commands of all pages that begin so, whatever stands before them in a line."""
    found = []
    for page in PAGES:
        for line in code(page.read_text()):
            for part in re.split(r"; *(?:do )?|&& *|\| *", line):
                try:
                    words = shlex.split(part, comments=True)
                except ValueError:  # no shell
                    continue
                while words and ("=" in words[0] or words[0] in ("do", "srun", "$")):
                    words = words[1:]
                if words and re.sub(r"^(\S*/)?python[\d.]*", "python", " ".join(words)).startswith(programs):
                    found.append((page, words))
    assert found
    return found


def test_every_training_command_parses():
    for page, words in commands("python train.py", "train.py", "make train"):
        print(page.name, *words)  # a test that fails shows the last one
        if words[0] == "make":
            flags = next((shlex.split(word[5:]) for word in words if word.startswith("ARGS=")), [])
        else:
            flags = words[words.index("train.py") + 1 :]
        # What a shell's loop would fill in is filled in, and the ends of abridged commands are left out.
        flags = [re.sub(r"\$(env|game)\b", "pong", word).replace("$scaling", "none") for word in flags]
        flags = [re.sub(r"\$\w+", "0", word) for word in flags]
        flags = [word for word in flags if word not in ("...", "…")]
        if "--help" in flags:
            continue
        for flag in [flag for flag in flags if re.fullmatch(r"--config=.*\.gin", flag)]:
            assert f"`{flag[9:]}`" in page.read_text(), "a file that the page tells how to write"
            flags[flags.index(flag)] = f"--config={CONFIGS[0]}"
        options = command_line.parse_flags(flags)
        if options.env and ":" not in options.env and not options.env.endswith(("-v0", "-v1")):
            assert options.env in names.ATARI_GAMES | set(names.MINATAR_GAMES)
        gin.parse_config(options.gin_bindings)  # its message names what there is not


def test_every_module_that_is_run_exists_with_its_flags():
    for _, words in commands("python -m agents", "python -m benchmarks", "python -m studies"):
        module, arguments = words[2], words[3:]
        if "NAME" in module:
            continue
        if module == "agents" and arguments and not arguments[0].startswith("-"):
            module = f"agents.commands.{arguments.pop(0)}"
        assert util.find_spec(module) is not None, f"there is no {module}"
        folder = ROOT.joinpath(*module.split("."))
        sources = [*folder.glob("*.py")] if folder.is_dir() else [folder.with_suffix(".py")]
        known = "".join(path.read_text() for path in [*sources, ROOT / "studies/figure.py"])
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
        for flag in [word.split("=")[0] for word in arguments if word.startswith("--")]:
            assert re.search(rf"\b{flag[2:]}\b", known), f"{module} knows no {flag}"


def test_every_make_target_exists():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for _, words in commands("make "):
        assert {word for word in words[1:] if "=" not in word} <= set(targets), words


def anchors(text):
    plain = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in re.findall(r"^#+ (.*)", text, re.M))
    return {re.sub(r"[\s-]+", "-", title) for title in plain}


def test_relative_links_lead_somewhere():
    # CONTRIBUTING.md and CHANGELOG.md are shown elsewhere, too, and link to no others; README.md links by names, which
    # docs/index.md defines once more.
    for page in [*PAGES, *sorted((DOCS / "results").glob("*.md"))]:
        text = prose(page.read_text())
        named = dict(re.findall(r"^\[(\w+)\]: (\S+)$", text, re.M))
        assert set(re.findall(r"\]\[(\w+)\]", text)) <= named.keys(), page
        for link in [*re.findall(r"\]\(([^)\s]+)\)", text), *named.values()]:
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:", link):
                continue
            assert page.name not in ("CONTRIBUTING.md", "CHANGELOG.md"), link
            other = (page.parent / target).resolve() if target else page
            assert other.exists(), f"{page.name}: {link} leads nowhere"
            if anchor and other.suffix == ".md" and other.name != "api.md":
                assert anchor in anchors(prose(other.read_text())), f"{page.name}: {link}: no such heading"


def test_the_readme_and_the_first_page_link_to_the_same():
    def named(page):
        links = re.findall(r"^\[(\w+)\]: (\S+)$", page.read_text(), re.M)
        return {name: (page.parent / link.lower().partition("#")[0]).stem for name, link in links}

    assert named(ROOT / "README.md") == named(DOCS / "index.md") != {}


def test_every_gin_file_and_every_scaling_is_described():
    text = (DOCS / "configs.md").read_text()
    files = [str(path.relative_to(ROOT)) for path in CONFIGS if path.parent.name != "scaling"]
    for name in (*files, *configuration.list_scalings(ROOT / "configs")):
        assert f"`{name}`" in text, f"configs.md does not say what {name} is"


def test_the_sweep_that_is_shown_is_read_as_the_page_says(tmp_path):
    (text,) = re.findall(r"^```python\n(# A list.*?)^```", (DOCS / "configs.md").read_text(), re.M | re.S)
    (tmp_path / "shown.sweep").write_text(text)
    grid = sweep.read_sweep(tmp_path / "shown.sweep")
    assert len(grid.axes["env"]) * len(grid.axes["seed"]) * len(grid.axes[LEARNING_RATE]) == 12
    assert {name for name in grid.axes if "." in name} <= {name for name, *_ in list_settings()}


def test_every_page_can_be_reached_and_every_public_name_is_on_the_api_page():
    navigation, api = (ROOT / "mkdocs.yml").read_text(), (DOCS / "api.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if page.name not in navigation] == []
    public = [f"{package.__name__}.{name}" for package in (rbs_tf, agents) for name in package.__all__]
    assert [name for name in public if f"\n### {name}\n" not in api] == []


def test_the_api_page_is_that_of_todays_docstrings():
    page = api_page.page()
    assert page == api_page.PAGE.read_text(), "run: python -m docs.api_page"
    # Every argument that a docstring describes exists.
    for heading, code, text in re.findall(
        r"^#{3,4} (.*)\n\n```python\n(.*?)```\n(.*?)(?=^#{2,4} )", page, re.M | re.S
    ):
        arguments = re.search(r"\*\*Args\*\*:\n\n(.*?)(?=\n\n|\Z)", text, re.S)
        for names_of in re.findall(r"^\* `(.*?)`:", arguments[1] if arguments else "", re.M):
            for name in names_of.split(", "):
                assert re.search(rf"(?<![\w]){re.escape(name)}\b", code), (heading, name)


def test_ratios_of_scalings_are_those_of_the_results():
    text = (DOCS / "reproducing.md").read_text().split("## Scalings on MinAtar")[1]
    text = re.sub(r"\s+", " ", text.split("The runs and their analysis")[0])
    ratios = re.findall(r"-?\d\.\d\d \[-?\d\.\d\d, \d\.\d\d\]", text)
    assert len(ratios) >= 3
    results = "".join((DOCS / name).read_text() for name in ("results/scales.md", "results/earlier.md"))
    assert [ratio for ratio in ratios if ratio not in results] == []


def test_what_the_readme_says_of_agents_is_on_their_pages():
    said = " ".join((ROOT / "README.md").read_text().split())
    found = re.search(
        r"CartPole ends at (\d+) of 500 points without scaling, at (\d+) with scaled errors, and at (\d+) with "
        r"both. LunarLander ends at (-\d+), (-\d+) and (\d+). Normalised rewards \(`VecNormalize`\) reach "
        r"(\d+) and (\d+);.* it reaches only (\d+) and (-\d+) points even with the original rewards; both "
        r"scalings together reach (\d+) and (\d+), normalised rewards (\d+) and (\d+)\.",
        said,
    )
    table = (DOCS / "actor_critics.md").read_text().split("| CartPole-v1 |")[1].split("### SAC")[0]
    cartpole, lunar = table.split("| LunarLander-v3 |")
    cells = [row(cells, arm) for cells in (cartpole, lunar) for arm in ("`plain`", "`sigma`", "`sigma_unit`")]
    cells += [row(cells, "`normalised`") for cells in (cartpole, lunar)]
    cells += [
        row(cells, arm, -2)
        for arm in ("`plain`", "`sigma_unit`", "`normalised`")
        for cells in (cartpole, lunar)
    ]
    assert [cell.split()[0] for cell in cells] == list(found.groups())
    found = re.search(
        r"CartPole ends at (\d+) points without scaling, at (\d+) with scaled errors, and at (\d+) with both. Without "
        r"scaling the original rewards give (\d+) ",
        said,
    )
    pytorch = (DOCS / "pytorch.md").read_text()
    arms = ("neither", "scaled errors", "scaled errors and outputs")
    cells = [row(pytorch, arm) for arm in arms] + [row(pytorch, arms[0], -2)]
    assert [cell.split()[0] for cell in cells] == list(found.groups())


def row(table, arm, column=-1):
    """A cell; the last column is of rewards times 1000, the one before it of the original rewards."""
    return re.search(rf"^\| {arm} \|(.*) \|$", table, re.M)[1].split("|")[column].strip()


MODULES = ("agents", "networks", "environments", "scalings")  # that gin's names may have before them


def test_every_parameter_that_is_named_exists():
    scalings = making.named_scalings()
    known = {kind.known_as: inspect.signature(kind).parameters for kind in scalings.values()}
    known |= {torso.__name__: inspect.signature(torso).parameters for torso in (ConvTorso, MlpTorso)}
    for name, *_ in list_settings():
        known.setdefault(name.rpartition(".")[0], []).append(name.rpartition(".")[2])
    for words in code("\n\n".join(page.read_text() for page in PAGES if page.name != "api.md")):
        for name in re.findall(r"(?<![\w./])[\w.]+\.\w+\b", words):
            *modules, configurable, parameter = name.split(".")
            # Other packages have names like these: `gymnasium.make`, `tf.train.Checkpoint`.
            plain = configurable[:1].isupper() or configurable == "train"
            ours = modules[0] in MODULES if modules else plain
            owner = f"environments.{configurable}" if configurable == "make" else configurable
            if ours and owner in known and name != "train.py":
                assert parameter in known[owner], name


def test_the_table_of_hyper_parameters_is_that_of_today():
    page = hyper_parameters.PAGE.read_text()
    assert hyper_parameters.with_table(page) == page, "run: python -m docs.hyper_parameters"


def test_how_quickstarts_end_is_what_their_table_says():
    with (ROOT / "docs/results/quickstart_ends.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    greedy = np.array([float(row["greedy"]) for row in rows])
    low, high = stats.ttest_1samp(greedy, 0.0).confidence_interval()
    page = " ".join((ROOT / "docs/reproducing.md").read_text().split())
    told = f"{greedy.mean():.1f} [{low:.1f}, {high:.1f}] in 32 new episodes, {greedy.min():.1f} in the worst"
    assert told in page and len(rows) == 20
