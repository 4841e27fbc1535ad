"""What test_torch.py runs in a process that has been handed a module."""

import copy


def feed(scaled, last, moments, told):
    """Feeds them, and a copy of its own; and takes the layer to unit 4. Tells the refusal and the copy's statistics."""
    try:
        scaled.merge_state(moments)
    except RuntimeError as error:
        told.put(str(error))
    own = copy.deepcopy(scaled)
    own.merge_state(moments)
    last.to_unit_([4.0])
    told.put(own.statistics.tolist())
