"""A quiet start: none of the import noise of TensorFlow, gym, TF-Agents and Reverb reaches the user.

Call `quiet()` before the first import of TensorFlow; this module imports next to nothing itself.
"""

import contextlib
import ctypes
import logging
import os
import warnings


def quiet() -> None:
    """Silences what TensorFlow, gym and Reverb write about themselves. Calling it again changes nothing.

    What fails still fails with an exception, and fatal messages still arrive. `TF_CPP_MIN_LOG_LEVEL` stays as
    it is when it is set; with `RBS_TF_VERBOSE=1` in the environment nothing is silenced.
    """
    if os.environ.get("RBS_TF_VERBOSE", "0") not in ("", "0"):
        return
    # 3 leaves fatal messages: TensorFlow reports twice-registered CUDA plug-ins as errors, on every machine.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # gym, which TF-Agents imports, announces what this holds for its version.
    with contextlib.suppress(ImportError):
        from gym_notices.notices import notices

        notices.clear()
    # TF-Agents compares a state with `is not ()`, and AutoGraph compiles that anew into a file of its own.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*__autograph_generated_file")
    _mute_clog()


def _mute_clog() -> None:
    """Takes its buffer away from C++'s `std::clog`, where Reverb logs without a switch to turn it off.

    `std::cerr`, which Reverb keeps for fatal messages, and Python's own streams stay as they are.
    """
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
        clog = ctypes.addressof(ctypes.c_char.in_dll(runtime, "_ZSt4clog"))
        construct_streams = runtime._ZNSt8ios_base4InitC1Ev
        set_buffer = runtime._ZNSt9basic_iosIcSt11char_traitsIcEE5rdbufEPSt15basic_streambufIcS1_E
    except (OSError, ValueError, AttributeError):  # another C++ runtime: its messages stay
        return
    # The streams exist from the first C++ library on that uses them, and none may have been loaded yet.
    construct_streams(ctypes.create_string_buffer(1))
    # The buffer belongs to the virtual base `std::ios`, whose offset stands three words before the vtable.
    vtable = ctypes.c_void_p.from_address(clog).value
    offset = ctypes.c_ssize_t.from_address(vtable - 3 * ctypes.sizeof(ctypes.c_void_p)).value
    set_buffer.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    set_buffer.restype = ctypes.c_void_p
    set_buffer(clog + offset, None)
