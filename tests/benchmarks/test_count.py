"""What counts as a line of code."""

from benchmarks import count

TEXT = """'''A module's
docstring.'''

# A comment.
def one(x):  # counts
    '''Its own.'''
    return (
        x
    )
"""


def test_blank_lines_comments_and_docstrings_do_not_count():
    assert count.lines_of_code(TEXT) == 4
    assert count.lines_of_code("a = '''text\nof two lines'''") == 2
