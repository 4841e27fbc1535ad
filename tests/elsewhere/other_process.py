"""What test_torch.py runs in a process that has been handed a module."""

import copy
import logging


def change(scaled, state):
    """Changes that reach the buffers of the other process, which must be refused. Returns the refusals."""
    refusals = []
    for change in (
        scaled.reset_state,
        lambda: scaled.load_state_dict(state),
        lambda: setattr(scaled, "sigma_v", 3.0),
    ):
        try:
            change()
        except RuntimeError as error:
            refusals.append(str(error))
    return refusals


def feed(scaled, last, moments, told, newer):
    """Feeds and changes them, and a copy; and takes the layer to unit 4, all once the other process has fed its own.

    Tells the refusals, what was logged, and the copy's statistics.
    """
    state = {name: 1.0 + values for name, values in scaled.state_dict().items()}
    state["in_units"] = scaled.in_units
    told.put("ready")
    newer.wait(100)
    said = []
    logging.getLogger("rbs_tf.advice").addFilter(lambda record: said.append(record.getMessage()))
    import torch  # pytest looks at this file without it, too

    scaled(torch.ones(2))
    refusals = change(scaled, state)
    try:
        scaled.merge_state(moments)
    except RuntimeError as error:
        refusals.append(str(error))
    told.put(refusals)
    told.put(said)
    own = copy.deepcopy(scaled)
    own.merge_state(moments)
    last.to_unit_([4.0])
    told.put(own.statistics.tolist())
