"""Tables of episodes that grow and are cut back."""

from agents.storage.episodes import Episodes


def test_rows_are_kept_up_to_a_place_and_what_is_damaged_is_not(tmp_path):
    path = tmp_path / "train" / "episodes.csv"
    table = Episodes(path, ("update", "return"), most=0)
    table.append([(5, 0.1), (10, -3.0)])
    table.append([(15, 1 / 3)])
    assert path.read_text() == f"update,return\n5,0.1\n10,-3.0\n15,{1 / 3!r}\n"
    with path.open("a") as file:
        file.write("2")  # a kill in the middle of a line
    resumed = Episodes(path, ("update", "return"), most=10)
    resumed.append([(12, 2.0)])
    assert path.read_text().splitlines()[1:] == ["5,0.1", "10,-3.0", "12,2.0"]
    resumed.keep(9)
    assert path.read_text().splitlines() == ["update,return", "5,0.1"]
