import pytest

from ingestd.actions.plan import Plan, plan
from ingestd.model.errors import BadInput

TREE = [
    {
        "Action": "query",
        "When": {"Exists": "ds.t"},
        "Request": {"SQL": "SELECT $EventID", "Dest": "ds.out"},
        "OnSuccess": [{"Action": "delete"}, {"Action": "drop", "Request": {"Table": "ds.tmp"}}],
        "OnFailure": [{"Action": "notify", "Request": {"Channels": "#ops", "Title": "oh"}}],
    },
    {"Action": "push", "Request": {"Topic": "t", "Message": {"a": [1]}, "Attributes": {"n": 1}}},
]


def test_steps_are_numbered_depth_first_after_the_load():
    numbers = [(item.step, item.name) for item in plan(TREE, [{"Action": "delete"}]).walk()]
    assert numbers == [(2, "query"), (3, "delete"), (4, "drop"), (5, "notify"), (6, "push"), (7, "delete")]


def test_clean_up_is_numbered_last():
    steps = plan(TREE, [{"Action": "delete"}], [{"Action": "drop", "Request": {"Table": "ds.tmp"}}])
    assert steps.cleanup[0].step == 8


def test_a_plan_survives_json():
    steps = plan(TREE, [{"Action": "move", "Request": {"DestURL": "gs://b/failed"}}])
    assert Plan.from_json(steps.to_json()) == steps
    assert Plan.from_json(steps.to_json()).to_json() == steps.to_json()


def test_the_same_rule_always_gives_the_same_numbers():
    assert plan(TREE) == plan(TREE)


@pytest.mark.parametrize("document", [{"Action": "levitate"}, {"Request": {}}, {"Action": "drop"}])
def test_what_is_no_action_is_refused_as_bad_input(document):
    with pytest.raises(BadInput):
        plan([document])
