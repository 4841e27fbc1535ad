"""Python of the documentation runs as it stands, and prints what the page says.

In docs/adopting.md every block runs after those before it in its section; the notebook's cells run in their order.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from packaging.version import Version

from tests.pages import BLOCK, ROOT, passes_with_keras_2, programs

ADOPTING = programs("docs/adopting.md")


@pytest.mark.parametrize("section", ADOPTING)
def test_the_blocks_of_a_section_run(section, caplog, request):
    tf = pytest.importorskip("tensorflow")
    if "PPO" in section and Version(np.__version__) >= Version("2.4"):
        pytest.skip("TF-Agents 0.19 needs numpy<2.4 for discrete actions, as the page says")
    if "tf_agents" in ADOPTING[section] and hasattr(tf.keras, "ops"):
        pytest.importorskip("tf_keras")  # it needs Keras 2, for which it is too late in this process
        return passes_with_keras_2(request)
    names = {"__name__": "adopting"}
    if "PPO" in section:  # whose graph is 25 epochs: tracing it takes half a minute
        tf.config.run_functions_eagerly(True)
        request.addfinalizer(lambda: tf.config.run_functions_eagerly(False))
    exec(compile(ADOPTING[section], f"docs/adopting.md, {section}", "exec"), names)
    assert not [each for each in caplog.records if each.name.startswith("rbs_tf")]
    if "losses" in names:  # also those before the first episode has ended
        assert len(names["losses"]) == 100 and max(names["losses"]) < 10.0


ALONE = ["README.md", "docs/package.md", "docs/saving.md"]
# What runs the blocks of the other pages.
PLACES = {
    "docs/adopting.md": "tests/test_adopting.py",
    "docs/configs.md": "tests/test_docs.py",
    "docs/jax.md": "tests/elsewhere/test_jax.py",
    "docs/actor_critics.md": "tests/elsewhere/test_actor_critics.py",
    "docs/pytorch.md": "tests/elsewhere/test_torch.py",
    "docs/sb3.md": "tests/elsewhere/test_sb3.py",
    "docs/playing.md": "tests/agents/commands/test_api.py",
    "docs/tf_agents.md": "tests/test_tf_agents.py",
}


def test_every_page_with_a_block_has_a_test_that_runs_it():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    shown = {str(page.relative_to(ROOT)) for page in pages if re.search(r"^ *```py", page.read_text(), re.M)}
    assert shown - {"docs/api.md"} == {*ALONE, *PLACES}  # which shows signatures
    for page, place in PLACES.items():
        assert Path(page).name in (ROOT / place).read_text()


@pytest.mark.parametrize("page", ALONE)
def test_blocks_that_stand_alone_run_and_print_what_the_page_says(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    blocks = re.findall(BLOCK + r"(?:\n*prints\n+```text\n(.*?)^```)?", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for code, said in blocks:
        if "import torch" in code:  # tests/elsewhere/test_torch.py runs it
            continue
        exec(compile(code, page, "exec"), {"__name__": "page"})
        assert capsys.readouterr().out == (said or "")


def test_the_notebook_runs_and_keeps_no_output():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    cells = json.loads((ROOT / "docs/return_scaling.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    names = {"__name__": "notebook"}
    for cell in code:
        source = "".join(line for line in cell["source"] if not line.startswith("%"))
        exec(compile(source, f"docs/return_scaling.ipynb, {cell['id']}", "exec"), names)
    pyplot.close("all")
    # What its text says: nearly all of the squared errors before scaling, comparable ones after it.
    unscaled, scaled = (np.square(names[kind]).mean(axis=0) for kind in ("before", "after"))
    assert unscaled[0] < 1e-3 * unscaled[1]
    assert 0.01 < scaled[0] / scaled[1] < 5.0
