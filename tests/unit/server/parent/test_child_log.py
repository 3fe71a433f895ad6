from __future__ import annotations

import pytest

from rwkv_server.parent import child_log
from rwkv_server.parent.child_log import ChildLog, find_cause, parse_progress, split_lines
from rwkv_server.parent.status import Progress


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc"], ["ab", "c"]),
        ([b"10%\r20%\r\n\ndone\n"], ["10%", "20%", "done"]),
        ([b"caf\xc3", b"\xa9\n"], ["café"]),
        ([b"\xff\n"], ["\ufffd"]),
        ([], []),
    ],
)
def test_lines(chunks, lines):
    assert list(split_lines(chunks)) == lines


def test_a_line_without_end_is_cut_instead_of_kept():
    pieces = list(split_lines([b"x" * 50_000] * 4))
    assert "".join(pieces) == "x" * 200_000
    assert max(map(len, pieces)) <= child_log.MAX_LINE + 50_000


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00]",
            Progress("loading the weights", 50),
        ),
        ("(Worker pid=7) INFO 11-29 17:00:00 [x.py:3] Starting to load model /m...",
         Progress("loading the weights")),
        ("INFO Loading weights took 0.10 seconds", Progress("preparing the state cache")),
        ("(APIServer pid=1) INFO Starting vLLM server on http://0.0.0.0:8000",
         Progress("opening the HTTP port")),
        ("something else", None),
    ],
)  # fmt: skip
def test_progress(line, progress):
    assert parse_progress(line) == progress


DEATH = """\
(EngineCore pid=40) INFO 11-29 17:01:00 [core.py:99] Initializing a V1 LLM engine (v0.32.0)
(Worker pid=41) ERROR 11-29 17:01:02 [multiproc_executor.py:880] Traceback (most recent call last):
(Worker pid=41) ERROR 11-29 17:01:02 [multiproc_executor.py:880]   File "x.py", line 3, in load
(Worker pid=41) ERROR 11-29 17:01:02 [multiproc_executor.py:880] ValueError: no tensor lm_head
(EngineCore pid=40) Exception: WorkerProc initialization failed due to an exception
(APIServer pid=9) RuntimeError: Engine core initialization failed. See root cause above.
(APIServer pid=9) [rank0] bye
"""


def test_the_cause_is_the_first_real_exception():
    assert find_cause(DEATH.splitlines()) == "ValueError: no tensor lm_head"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([], "it wrote nothing"),
        (["starting", "Killed"], "Killed"),
        (["vllm.v1.EngineDeadError: gone", "bye"], "vllm.v1.EngineDeadError: gone"),
        (["torch.OutOfMemoryError: CUDA out of memory"],
         "torch.OutOfMemoryError: CUDA out of memory"),
        (["INFO ValueErrors are not exceptions: x", "end"], "end"),
        (["x" * 9999], "x" * child_log.MAX_CAUSE),
    ],
)  # fmt: skip
def test_causes(lines, cause):
    assert find_cause(lines) == cause


def test_the_key_is_never_shown():
    log = ChildLog("top-secret")
    assert log.add("Authorization: Bearer top-secret!") == "Authorization: Bearer ***!"
    assert "top-secret" not in log.cause
