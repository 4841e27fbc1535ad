"""gin's files read as text, and the names that groups of runs get."""

from hypothesis import given
from hypothesis import strategies as st

from agents.monitoring.report import recorded
from agents.monitoring.report.recorded import Reference, describe_method, find_differing, label_methods, parse
from tests.agents.monitoring.report.written import OPERATIVE


def test_values_macros_references_and_scopes():
    text = OPERATIVE.format(env="pong", scaling="none", seed=3, updates=100, rate=2e-4, more="")
    assert parse(text) == {
        "Heads.pairs": ((0.0, True), (0.99, True), (0.99, False)),
        "RecurrentMultiHeadAgent.learning_rate": 2e-4,
        "train.env": "pong",
        "train.environment_steps": None,
        "train.scaling": Reference("@scalings.none"),
        "train.seed": 3,
        "train.updates": 100,
    }
    assert parse("eval/make.seed = 1\nmake.of = [@a.b(), %unknown]") == {
        "eval/make.seed": 1,
        "make.of": ["@a.b()", "%unknown"],
    }
    inside = (
        "gamma = 0.9\nagain = %gamma\nHeads.pairs = ((%again, True), (0.5, False))\na.b = {'c': [%gamma]}"
    )
    assert parse(inside) == {"Heads.pairs": ((0.9, True), (0.5, False)), "a.b": {"c": [0.9]}}


def of(scaling, **others):
    return {recorded.SCALING: f"@scalings.{scaling}"} | {
        name.replace("__", "."): repr(x) for name, x in others.items()
    }


def test_seed_environment_and_length_make_no_group():
    one = parse("train.seed = 1\ntrain.env = 'pong'\ntrain.updates = 5\na.b = 1\ntrain.environment_steps = 7")
    assert describe_method(one) == {"a.b": "1"}


def test_a_group_is_named_after_what_tells_it_apart():
    assert label_methods([of("none")]) == ["none"]
    assert label_methods([of("none", a__rate=1), of("return_based", a__rate=2)]) == ["none", "return_based"]
    assert label_methods([of("none", a__rate=1), of("none", a__rate=2)]) == ["rate 1", "rate 2"]
    four = [of(name, a__rate=rate) for name in ("none", "clip") for rate in (1, 2)]
    assert label_methods(four) == ["none, rate 1", "none, rate 2", "clip, rate 1", "clip, rate 2"]
    # A parameter that only one of the scalings has.
    three = [of("none"), of("return_based", r__n_step=False), of("return_based", r__n_step=True)]
    assert label_methods(three) == ["none", "return_based, n_step False", "return_based, n_step True"]
    ten, one = tuple((0.1 * i, True) for i in range(10)), ((0.997, False),)
    of_heads = [of("none", Heads__pairs=ten), of("none", Heads__pairs=one)]
    assert label_methods(of_heads) == ["10 heads", "1 head ((0.997, False),)"]


def test_settings_differ_or_belong_to_a_part_that_some_lack():
    groups = [of("none", a__b=1, c__d=1), of("return_based", a__b=2, c__d=1, r__s=3)]
    assert find_differing(groups) == ["a.b", "r.s", "train.scaling"]


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123")), min_size=2, max_size=8))
def test_different_groups_have_different_names(groups):
    distinct = [dict(items) for items in {tuple(sorted(group.items())) for group in groups}]
    assert len(set(label_methods(distinct))) == len(distinct)
